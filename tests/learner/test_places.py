"""Where things are does not change what comes out: host memory, several devices, evaluation in the background."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dr_q
from dr_q.cli import main
from dr_q.config import preset
from dr_q.envs import PacketLayout, Transitions, make_env
from dr_q.kit import ConfigError
from dr_q.learner import Learner, LearnerSpec, root_keys
from dr_q.learner.steps import plan_update
from dr_q.settings import make_settings
from dr_q.spaces import SINGLE, ContinuousActions, Image, ObsSpec, Spaces
from dr_q.training import plan as plans
from dr_q.training.plan import GIB, Memory, main_memory, make_plan, plan_for
from tests.envs import mixed_toys, toys
from tests.training import tiny
from tests.training.test_resume import assert_same

ACTIONS = ContinuousActions((-1.0, -1.0), (1.0, 1.0))
PIXELS = Spaces(ObsSpec.image(3, 36, 36, stack=3), ACTIONS)
VECTOR = Spaces(ObsSpec.vector(5), ACTIONS)
CONFIG = preset("dr.q", **{**tiny.SIZES, "target_period": 2, "batch_size": 4})


def arrivals(spaces: Spaces, seeds: int, steps: int):
    """Outcomes of steps; seeds end their episodes at different times."""
    rng = np.random.default_rng(0)
    layout, part = PacketLayout(spaces.obs), spaces.obs[SINGLE]

    def observations() -> dict[str, np.ndarray]:
        size = (seeds, *part.shape)
        return {SINGLE: rng.integers(0, 255, size, np.uint8) if isinstance(part, Image) else rng.normal(size=size)}

    for i in range(steps):
        ends = np.array([[i % (9 + seed) == 8, i % (7 + seed) == 6] for seed in range(seeds)])
        yield Transitions.of(layout, observations(), observations(), np.column_stack([rng.normal(size=seeds), ends]))


def learn(agents: Learner, spaces: Spaces, seeds: int) -> list:
    """A little of everything; what it saw on the way."""
    steps = list(arrivals(spaces, seeds, 44))
    agents.begin(steps[0].obs)
    for arrived in steps[:40]:
        agents.act_randomly(arrived)
        agents.add()
    seen = []
    for i, arrived in enumerate(steps[40:]):
        agents.act(arrived)
        if i % 2 == 0:
            seen.append(agents.sync_targets_and_train_encoder(0))
        seen += [agents.update(0), agents.actions()]
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 2])
def test_frames_in_host_memory_give_the_same_batches_and_updates(lanes):
    """The ring wraps: 32 slots for 44 transitions and their final observations."""
    on_device = Learner(LearnerSpec(CONFIG, PIXELS, 32 * lanes, lanes=lanes), [0, 1])
    on_host = Learner(LearnerSpec(CONFIG, PIXELS, 32 * lanes, frames_on_host=True, lanes=lanes), [0, 1])
    a, b = learn(on_device, PIXELS, 2 * lanes), learn(on_host, PIXELS, 2 * lanes)
    assert on_host.states.replays.storage.obs is None
    assert on_host.frames is not None
    assert on_device.states.replays.storage.obs is not None
    np.testing.assert_array_equal(on_host.frames.rings[SINGLE], on_device.states.replays.storage.obs[SINGLE])
    for name in ("stamp", "valid", "cursor", "clock", "frames_before", "reward"):
        one, other = (getattr(agents.states.replays.storage, name) for agents in (on_device, on_host))
        np.testing.assert_array_equal(one, other, err_msg=name)
    # The batches are the same; the programs around them are not, and may round differently.
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_adding_and_updating_in_one_program_is_the_same():
    """As on a GPU."""
    apart, fused = (Learner(LearnerSpec(CONFIG, VECTOR, 64), [0, 1], fuse=fuse) for fuse in (False, True))
    a, b = learn(apart, VECTOR, 2), learn(fused, VECTOR, 2)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    for name in ("action", "stamp", "valid", "cursor", "clock"):
        one, other = (getattr(agents.states.replays.storage, name) for agents in (apart, fused))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=name)
    assert int(fused.states.replays.storage.clock[0]) == 44


@pytest.mark.slow
def test_host_and_device_replay_draw_the_same_slots_for_the_same_keys():
    on_device = Learner(LearnerSpec(CONFIG, PIXELS, 64), [0, 1])
    on_host = Learner(LearnerSpec(CONFIG, PIXELS, 64, frames_on_host=True), [0, 1])
    frames = []
    for agents in (on_device, on_host):
        steps = list(arrivals(PIXELS, 2, 40))
        agents.begin(steps[0].obs)
        for arrived in steps:
            agents.act_randomly(arrived)
            agents.add()
        plan = plan_update(agents.spec, agents.states.replays, root_keys([0, 1]), jnp.zeros(2, jnp.int32))
        frames.append(np.asarray(plan.frames[SINGLE]))
    np.testing.assert_array_equal(*frames)
    assert on_host.frames is not None
    assert on_device.states.replays.storage.obs is not None
    stored = np.asarray(on_device.states.replays.storage.obs[SINGLE])
    expected = np.stack([stored[i][frames[0][i]] for i in range(2)])
    np.testing.assert_array_equal(on_host.frames.gather({SINGLE: frames[1]})[SINGLE], expected)
    np.testing.assert_array_equal(on_host.frames.gather_ahead({SINGLE: frames[1]}).result()[SINGLE], expected)


@pytest.mark.slow
def test_a_run_with_little_device_memory_keeps_frames_on_the_host_and_resumes_to_the_byte(tmp_path, capsys):
    # As large for 80 steps as for 120: a program for another capacity may round differently.
    sizes = {**tiny.SIZES, "replay_capacity": 150}
    settings = {**tiny.RUN, **sizes, "quiet": False}
    needed = plan_of(make_settings(toys.Walk, steps=tiny.STEPS, changes=sizes), 1 * GIB)
    without_frames = sum(part.size for part in needed.parts if "observations" not in part.what)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    little = (without_frames + 1) / GIB
    dr_q.train(toys.Walk, steps=tiny.STEPS, out=whole, device_memory=little, **settings)
    assert "observations: 0.0 MiB in host memory" in capsys.readouterr().out
    dr_q.train(toys.Walk, steps=80, out=broken, device_memory=little, **settings)
    dr_q.train(toys.Walk, resume=broken, steps=tiny.STEPS, device_memory=little, quiet=True)
    assert_same(whole, broken)


@pytest.mark.slow
def test_mixed_observations_of_several_environments_with_frames_on_the_host_resume_to_the_byte(tmp_path, capsys):
    """2 seeds of 3 environments; the first checkpoint is between two target copies."""
    sizes = {**tiny.SIZES, "batch_size": 4, "exploration_steps": 108, "target_period": 4, "replay_capacity": 60}
    lanes = {"seeds": 2, "num_envs": 3}
    settings = {**tiny.RUN, **sizes, **lanes, "eval_every": 114, "eval_episodes": 1, "checkpoint_every": 114}
    settings |= {"in_process": True, "quiet": False}
    needed = plan_of(make_settings(mixed_toys.ImageGoal, steps=tiny.STEPS, changes=sizes, seeds=2, num_envs=3), 1 * GIB)
    assert needed.spec.capacity == 60
    without_frames = sum(part.size for part in needed.parts if "observations" not in part.what)
    little = (without_frames + 1) / GIB
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    dr_q.train(mixed_toys.ImageGoal, steps=tiny.STEPS, out=whole, device_memory=little, **settings)
    assert "in host memory" in capsys.readouterr().out
    dr_q.train(mixed_toys.ImageGoal, steps=114, out=broken, device_memory=little, **settings)
    more = {"device_memory": little, "quiet": True, "in_process": True}
    dr_q.train(mixed_toys.ImageGoal, resume=broken, steps=tiny.STEPS, **more)
    assert_same(whole, broken)


def test_the_plan_gives_each_environment_the_same_slots():
    settings = make_settings(toys.Walk, steps=1_000, num_envs=3, changes={**tiny.SIZES, "replay_capacity": 100})
    plan = plan_of(settings, 1 * GIB)
    assert (plan.spec.capacity, plan.spec.lanes) == (99, 3)
    assert any("replay of 99 slots" in line for line in plan.lines())
    few = make_settings(toys.Walk, steps=1_000, num_envs=3, changes={**tiny.SIZES, "replay_capacity": 41})
    with pytest.raises(ConfigError, match=r"must be at least 42 for windows of 5 .* in each of 3 environments, got 41"):
        plan_of(few, 1 * GIB)


def test_memory_is_no_more_than_a_container_or_scheduler_allows(tmp_path):
    groups, limits = tmp_path / "cgroup", tmp_path / "limits"
    whole = main_memory(groups, limits)
    assert whole == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    step = limits / "slurm" / "job_7" / "step_0"
    step.mkdir(parents=True)
    groups.write_text("0::/slurm/job_7/step_0\n")
    (step / "memory.max").write_text("max\n")
    assert main_memory(groups, limits) == whole
    (step.parent / "memory.max").write_text(f"{GIB}\n")
    assert main_memory(groups, limits) == GIB
    older = limits / "memory" / "docker"
    older.mkdir(parents=True)
    groups.write_text("5:cpu,cpuacct:/docker\n4:memory:/docker\n")
    (older / "memory.limit_in_bytes").write_text(f"{GIB // 2}\n")
    assert main_memory(groups, limits) == GIB // 2


def plan_of(settings, device_bytes: int, host_bytes: int = 64 * GIB):
    return make_plan(settings, make_env(settings.task).spec, Memory("a GPU", device_bytes, host_bytes))


def test_the_plan_puts_frames_on_the_host_only_if_it_must_and_refuses_with_what_fits():
    settings = make_settings("dmc-visual/walker-run", seeds=2)
    roomy = plan_of(settings, 80 * GIB)
    assert not roomy.spec.frames_on_host
    assert any("observations: 19.7" in line for line in roomy.lines())
    tight = plan_of(settings, 10 * GIB)
    assert tight.spec.frames_on_host
    assert tight.spec.capacity == 501_000
    assert any("observations: 19.7" in line and "in host memory" in line for line in tight.lines())
    with pytest.raises(ConfigError, match=r"the largest that fits is replay_capacity (\d+); or use fewer") as refused:
        plan_of(settings, 10 * GIB, 10 * GIB)
    fits = int(str(refused.value).split("replay_capacity ")[1].split(";")[0])
    smaller = make_settings("dmc-visual/walker-run", seeds=2, changes={"replay_capacity": fits})
    assert plan_of(smaller, 10 * GIB, 10 * GIB).spec.capacity == fits
    larger = make_settings("dmc-visual/walker-run", seeds=2, changes={"replay_capacity": int(1.02 * fits)})
    with pytest.raises(ConfigError, match="the largest that fits"):
        plan_of(larger, 10 * GIB, 10 * GIB)


def test_where_the_device_has_main_memory_its_limit_does_not_switch_off_the_check_of_the_total(monkeypatch):
    settings = make_settings("dmc-visual/walker-run", seeds=2)  # needs about 20 GiB
    spec = make_env(settings.task).spec
    monkeypatch.setattr(plans, "main_memory", lambda: 16 * GIB)
    with pytest.raises(ConfigError, match="the largest that fits"):
        plan_for(settings, spec, device_memory=64.0)
    monkeypatch.setattr(plans, "main_memory", lambda: 64 * GIB)
    limited = plan_for(settings, spec, device_memory=10.0)
    assert limited.spec.frames_on_host
    assert re.match(r"main memory: [\d.]+ GiB of 10.00 GiB$", limited.lines()[0])


def test_a_run_that_cannot_fit_ends_at_once(tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["train", "gym/Hopper-v4", "--out", str(out), "--device-memory", "0.00001", *tiny.flags()]
    assert main(arguments) == 2
    assert "not even the smallest replay fits" in capsys.readouterr().err


@pytest.mark.slow
def test_evaluation_in_the_background_gives_the_same(tmp_path):
    for name, background in (("now", False), ("behind", True)):
        dr_q.train(
            toys.Walk,
            seeds=2,
            steps=tiny.STEPS,
            out=tmp_path / name,
            background_evaluation=background,
            **tiny.RUN,
            **tiny.SIZES,
        )
    assert_same(tmp_path / "now", tmp_path / "behind")
    record = [json.loads((tmp_path / name / "policy/policy.json").read_text()) for name in ("now", "behind")]
    assert record[0] == record[1]


TWO_DEVICES = """
import sys; sys.path.insert(0, {root!r})
import jax, numpy as np
from dr_q.learner import Learner, LearnerSpec, Placement
from tests.learner.test_places import CONFIG, VECTOR, learn
lanes = {lanes}
spec = LearnerSpec(CONFIG, VECTOR, 64 * lanes, lanes=lanes)
assert len(jax.devices()) == 2
both = Learner(spec, [0, 1, 2, 3])
assert both.placement.devices == tuple(jax.devices())
seen = learn(both, VECTOR, 4 * lanes)
assert {{d for x in jax.tree.leaves(both.states) for d in x.devices()}} == set(jax.devices())
whole = jax.tree.map(np.asarray, both.states)

import tests.learner.test_places as places
every = list(places.arrivals(VECTOR, 4 * lanes, 44))
for part in (slice(0, 2), slice(2, 4)):
    mine = [type(t)(t.packet[part.start * lanes : part.stop * lanes].copy(), t.layout) for t in every]
    places.arrivals = lambda *_: iter(mine)
    alone = Learner(spec, list(range(4))[part], jax.devices()[:1])
    assert len(alone.placement.devices) == 1
    places.learn(alone, VECTOR, 2 * lanes)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(alone.states), strict=True):
        # Not to the last bit: XLA compiles for several devices, and rounds, differently.
        np.testing.assert_allclose(a[part], np.asarray(b), rtol=1e-5, atol=1e-6)
three = Placement(3)
assert len(three.devices) == 1  # equal shares only
print("same")
"""


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 3])
def test_seeds_spread_over_devices_learn_as_on_one_with_as_many_seeds(lanes):
    root = str(Path(__file__).parents[2])
    result = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES.format(root=root, lanes=lanes)],
        env={**os.environ, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.strip() == "same"
