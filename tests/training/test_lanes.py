"""Runs with several environments for each seed: known answers, exact resumes, Gymnasium's vector environments."""

import csv
import functools
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import dr_q
from dr_q.cli import main
from dr_q.envs import Source
from dr_q.envs.processes.pool import InProcessPool
from dr_q.run_folder import Evaluation
from dr_q.settings import make_settings
from dr_q.training.display import Display
from tests.envs import toys
from tests.training import tiny
from tests.training.test_probes import DISCOUNT, SETTINGS, values
from tests.training.test_resume import DR_Q, assert_same, load_last, unbroken

ROOT = Path(__file__).parents[2]
LANES = {"seeds": 2, "num_envs": 3}
LANES_TASK = "tests.envs.toys:drq-walk-v0"


def odd_vector() -> Any:
    """A VectorEnv whose metadata has a mode that Gymnasium does not know."""
    made = vector(AutoresetMode.DISABLED)
    made.metadata = {**made.metadata, "autoreset_mode": "whenever"}
    return made


def vector(mode: AutoresetMode, kind: type = SyncVectorEnv, count: int = 3) -> Any:
    return kind([toys.Walk] * count, autoreset_mode=mode)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """An unbroken run of 3 lanes x 2 seeds; its lanes end episodes at different times."""
    return unbroken(toys.Walk, tmp_path_factory.mktemp("lanes") / "whole", **LANES, log_every=50)


def test_events_happen_in_the_first_round_that_reaches_their_step(whole):
    with (whole / "evals.csv").open() as file:
        assert [int(row["agent_steps"]) for row in csv.DictReader(file) if row["seed"] == "1"] == [0, 42, 81, 120]
    with (whole / "metrics.csv").open() as file:
        assert [int(row["agent_steps"]) for row in csv.DictReader(file) if row["seed"] == "0"] == [51, 102, 120]
    assert sorted(int(x.name) for x in (whole / "checkpoints").iterdir() if x.name.isdecimal()) == [42, 81, 120]
    record = json.loads((whole / "run.json").read_text())
    assert (record["agent_steps"], record["settings"]["num_envs"]) == (120, 3)
    index = json.loads((whole / "checkpoints/120/checkpoint.json").read_text())
    assert (index["lanes"], len(index["episodes"])) == (3, 6)
    assert len(set(index["episodes"])) > 1, "lanes end episodes at different times"


def test_the_last_step_that_is_shown_is_the_end_of_its_round(capsys):
    """200 steps of 3 environments end at 201."""
    shown = Display(make_settings("dmc/walker-walk", num_envs=3, steps=200))
    shown.evaluation([Evaluation(0, 201, 402, 1.0, 0.0, 10.0, 1)])
    assert "step 201 of 201: return 1.0" in capsys.readouterr().out


def test_a_run_in_two_parts_is_the_unbroken_one(whole, tmp_path):
    """In other processes: three of them for each seed, then one."""
    broken = tmp_path / "broken"
    dr_q.train(toys.Walk, steps=80, out=broken, **{**tiny.RUN, **tiny.SIZES, **LANES}, envs_per_process=2)
    dr_q.train(toys.Walk, resume=broken, steps=tiny.STEPS, quiet=True, in_process=True)
    assert_same(whole, broken)


def test_a_vector_env_that_is_reset_from_outside_is_its_lanes(whole, tmp_path):
    """To the bit the run of separate environments, also when it is resumed."""
    make, broken = functools.partial(vector, AutoresetMode.DISABLED), tmp_path / "broken"
    dr_q.train(make, steps=80, out=broken, seeds=2, **tiny.RUN, **tiny.SIZES)
    dr_q.train(make, resume=broken, steps=tiny.STEPS, quiet=True)
    assert_same(whole, broken)


def test_a_vector_env_that_resets_itself_trains_and_says_that_a_resume_is_not_exact(tmp_path, capsys):
    make, run = functools.partial(vector, AutoresetMode.SAME_STEP, AsyncVectorEnv), tmp_path / "run"
    settings = {**tiny.RUN, **tiny.SIZES, "quiet": False}
    dr_q.train(make, steps=60, out=run, in_process=False, **settings)
    dr_q.train(make, resume=run, steps=90)
    said = capsys.readouterr()
    assert (said.out + said.err).count("this VectorEnv resets its environments itself (SAME_STEP)") == 2
    replay = load_last(run, toys.Walk).states.replays.storage
    assert int(replay.clock[0]) == 87  # the last round's are not in it yet
    ends = np.asarray(replay.is_transition)[0]
    assert (~ends[: 3 * int(np.asarray(replay.size).min())]).sum() > 2, "episodes end, with observations of their own"


@pytest.mark.parametrize(
    ("make", "more", "message"),
    [
        (functools.partial(vector, AutoresetMode.NEXT_STEP), {}, r"NEXT_STEP\), which is no transition; make it with"),
        (
            odd_vector,
            {},
            "VectorEnv of autoreset mode 'whenever'; .* must be one of 'NextStep', 'SameStep', 'Disabled'",
        ),
        (
            functools.partial(vector, AutoresetMode.DISABLED),
            {"num_envs": 2},
            "the VectorEnv has 3 environments, and envs is 2; leave that out",
        ),
    ],
)
def test_a_vector_env_that_cannot_be_is_refused_in_one_line(make, more, message, tmp_path):
    with pytest.raises(dr_q.TaskError, match=message) as error:
        dr_q.train(make, steps=60, out=tmp_path / "run", **tiny.RUN, **tiny.SIZES, **more)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_the_advice_for_vector_envs_works_where_gymnasium_has_a_vector_of_its_own():
    """CartPole has one, which takes no vector_kwargs; it resets in the next step."""
    with pytest.raises(dr_q.TaskError, match="NEXT_STEP") as error:
        InProcessPool(Source(lambda: gymnasium.make_vec("CartPole-v1", num_envs=2)), [0], 1)
    advice = str(error.value).partition("DISABLED: ")[2].replace("ID", "'CartPole-v1'").replace("=N", "=2")
    docs = (ROOT / "docs" / "environments.md").read_text().replace('"', "'")
    assert str(error.value).partition("DISABLED: ")[2] in docs
    pool = InProcessPool(Source(lambda: eval(advice)), [0], 1)
    assert pool.lanes == 2
    pool.begin()


def test_a_vector_env_whose_environments_reset_together_is_refused():
    class Together(SyncVectorEnv):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)

    make = lambda: Together([toys.Walk] * 2, autoreset_mode=AutoresetMode.DISABLED)  # noqa: E731
    pool = InProcessPool(Source(make), [0], 1)
    pool.begin()
    pool.send(np.zeros((2, 1), np.float32))
    with pytest.raises(dr_q.EnvError, match=r"^<lambda>: reset.* also changed environments that it must not reset"):
        any(not pool.receive() for _ in range(100))  # until an episode ends


class ShortChains(toys.Chain):
    """A chain that begins anywhere, so that lanes end episodes at different times: Q = discount^(steps left)."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = int(self.np_random.integers(5))
        return self.observe(), {}


@pytest.mark.slow
def test_q_converges_to_the_known_value_with_three_lanes(tmp_path):
    import jax

    run, schedule = tmp_path / "run", {"eval_every": 1_500, "eval_episodes": 1, "checkpoint_every": 1_500}
    dr_q.train(ShortChains, steps=1_500, num_envs=3, in_process=True, out=run, quiet=True, **schedule, **SETTINGS)
    saved = load_last(run, ShortChains)
    assert len({episode for episode, _ in saved.episodes}) > 1
    networks = jax.tree.map(lambda x: x[0], saved.states.agents.online)
    expected = [DISCOUNT**5, DISCOUNT**3, DISCOUNT, 1.0]
    np.testing.assert_allclose(values(networks, [0, 2, 4, 5]), expected, atol=0.08, rtol=0.05)


@pytest.mark.slow
def test_kill_9_between_checkpoints_loses_nothing(tmp_path):
    """3 lanes x 2 seeds, six processes."""
    more = {"seeds": 2, "envs": 3, "envs_per_process": 1}
    arguments = ["train", LANES_TASK, *tiny.flags(checkpoint_every=50, **more)]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert main([*arguments, "--out", str(whole)]) == 0
    process = subprocess.Popen(
        [str(DR_Q), *arguments, "--out", str(broken)],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )
    deadline = time.monotonic() + 300
    while not (broken / "checkpoints" / "51").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert json.loads((broken / "run.json").read_text())["status"] == "running"
    assert main(["train", "--resume", str(broken)]) == 0
    assert_same(whole, broken)
