"""Runs that start from weights (`init`) and from transitions (`prefill`) that exist, and in another environment."""

import functools
import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

import dr_q
from dr_q import replay as rp
from dr_q.agent.named_arrays import named_arrays
from dr_q.cli import main
from dr_q.config import preset
from dr_q.envs import make_env
from dr_q.learner import Learner, LearnerSpec, saving
from dr_q.policies.card import started_from_lines
from dr_q.policies.export import export_policy
from dr_q.report import read_results
from dr_q.run_folder import Checkpoints, read_arrays, read_run
from dr_q.settings import make_settings
from dr_q.spaces import SINGLE, ContinuousActions, DiscreteActions, Image, ObsSpec, Spaces, Vector
from dr_q.training.initial_weights import read_initial_weights
from dr_q.training.prior_data import frames_of, read_prior_data, unit_actions
from tests.envs import toys
from tests.sweep.toys import Aim
from tests.training import tiny
from tests.training.test_resume import assert_same

CAPACITY = 80
SIZES: dict[str, Any] = {name: x for name, x in tiny.SIZES.items() if name != "exploration_steps"}
SIZES |= {"replay_capacity": CAPACITY, "eval_episodes": 1, "eval_every": 120, "checkpoint_every": 40, "quiet": True}
SIZES |= {"keep_checkpoints": 3}
"""The same for all, so that programs are compiled once for each number of seeds."""


def train(task, out: Path, steps: int = tiny.STEPS, **more: Any) -> Path:
    dr_q.train(task, steps=steps, out=out, **{**SIZES, **more})
    return out


def record(run: Path) -> dict[str, Any]:
    return json.loads((run / "run.json").read_text())


def agents(run: Path, step: int) -> dict[str, np.ndarray]:
    return read_arrays(run / "checkpoints" / str(step) / "agents.safetensors")


def replay_of(run: Path, step: int, seed: int = 0) -> rp.Replay:
    info = record(run)
    stored = Checkpoints(run, info["seeds"]).read(step)
    spaces = Spaces(ObsSpec.vector(1), ContinuousActions((-1.0,), (1.0,)))
    config = preset("dr.q", **{**tiny.SIZES, "replay_capacity": CAPACITY})
    return saving.load_replay(stored, LearnerSpec(config, spaces, stored.capacity), seed)[0]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A run of two seeds."""
    folder = tmp_path_factory.mktemp("source") / "run"
    return train(toys.Walk, folder, seeds=2, exploration_steps=40)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Path:
    return train(toys.Walk, tmp_path_factory.mktemp("scratch") / "run", exploration_steps=40)


def test_init_takes_a_whole_agent_and_no_random_action(source, tmp_path, capsys):
    run = train(toys.Walk, tmp_path / "run", steps=40, init=source, quiet=False)
    said = capsys.readouterr().out
    assert f"weights of {source}, callable:tests.envs.toys.Walk at step 120: encoder, actor, critics" in said
    assert "(seed 0 from 0); fresh: optimisers, replay" in said
    before, after = agents(source, 120), agents(run, 40)
    online = [name for name in after if name.startswith("online.")]
    assert online
    for name in online:
        np.testing.assert_array_equal(after[name][0], before[name][0], err_msg=name)
        np.testing.assert_array_equal(after[name.replace("online.", "target.")][0], before[name][0], err_msg=name)
    assert all(not x.any() for name, x in after.items() if "optimiser" in name)
    storage = replay_of(run, 40).storage
    policy = dr_q.load(source, seed=0)
    frames = json.loads((run / "checkpoints" / "40" / "checkpoint.json").read_text())["chunks"][0][0]
    stored = read_arrays(run / "checkpoints" / "replay" / "seed0" / f"{frames}.safetensors")
    obs = stored["obs.obs"] if "obs.obs" in stored else stored["obs"]
    is_transition = np.asarray(storage.is_transition)[: len(obs)]
    actions = np.asarray(storage.action)[: len(obs)]
    noise = actions[is_transition] - policy.act_unit(obs[is_transition])
    assert 0.02 < np.abs(noise).mean() < 0.25, "it acts by its policy, with noise of 0.2"
    found = record(run)["started_from"]["init"]
    assert (found["kind"], found["agent_steps"], found["seeds"]) == ("checkpoint", 120, {"0": 0})
    assert record(run)["settings"]["config"]["exploration_steps"] == 0


@pytest.mark.parametrize(
    ("more", "updates", "random"),
    [
        ({"warmup_steps": 90}, 30, 0),
        ({"exploration_steps": 40}, 80, 40),
        ({"exploration_steps": 0, "warmup_steps": 60}, 60, 0),
    ],
)
def test_when_updates_begin_with_init(more, updates, random, source, scratch, tmp_path):
    """D9, D10: the first update is in the step after the warm-up, or after the random phase that was asked for."""
    run = train(toys.Walk, tmp_path / "run", init=source, **more)
    counts = {int(x[0]) for name, x in agents(run, 120).items() if "actor_optimiser" in name and x.shape == (1,)}
    assert counts == {updates}
    own, other = (np.asarray(replay_of(folder, 40).storage.action) for folder in (run, scratch))
    same = [bool(np.array_equal(own[i], other[i])) for i in range(random - 1 if random else 5)]
    assert all(same) if random else not any(same)


def test_updates_count_the_transitions_that_were_there(tmp_path):
    """6 before step 0, 6 lanes and one update for every 4: the round at step 12 has one, not two, also if resumed."""
    zeros, done = np.zeros((6, 1), np.float32), np.arange(6) >= 0
    data = {"observations": zeros, "next_observations": zeros, "actions": zeros, "rewards": zeros[:, 0]}
    np.savez(tmp_path / "data.npz", **data, terminations=done, truncations=~done)
    more = {"prefill": tmp_path / "data.npz", "exploration_steps": 12, "num_envs": 6, "replay_ratio": 0.25}
    more |= {"in_process": True, "eval_every": 60, "checkpoint_every": 6, "replay_capacity": 240}

    def updates(run: Path, step: int) -> int:
        found = {int(x[0]) for name, x in agents(run, step).items() if "actor_optimiser" in name and x.shape == (1,)}
        return found.pop()

    run = train(toys.Walk, tmp_path / "run", steps=18, **more)
    assert updates(run, 18) == 1
    dr_q.train(toys.Walk, resume=run, steps=24, quiet=True, in_process=True)
    assert updates(run, 24) == 3


def test_init_from_a_policy_has_fresh_critics_and_every_seed_takes_the_best(source, scratch, tmp_path):
    run = train(toys.Walk, tmp_path / "run", steps=40, seed=1, seeds=2, init=source / "policy", in_process=True)
    best = json.loads((source / "policy" / "policy.json").read_text())["best_seed"]
    assert record(run)["started_from"]["init"]["seeds"] == {"1": best, "2": best}
    assert record(run)["started_from"]["init"]["taken"] == "state encoder f, actor"
    weights, after = read_arrays(source / "policy" / f"seed{best}.safetensors"), agents(run, 40)
    for name, x in weights.items():
        own = after[f"online.encoder.{name}" if name.startswith("state.") else f"online.{name}"]
        for row in own:
            np.testing.assert_array_equal(row, x, err_msg=name)
    critics = [name for name in after if name.startswith("online.critic")]
    other = agents(source, 120)
    assert any(not np.array_equal(after[name][0], other[name][0]) for name in critics)
    assert any(not np.array_equal(after[name][0], after[name][1]) for name in critics)


def test_the_best_policies_over_time_are_of_different_steps(source, tmp_path):
    """The source evaluates at steps 0 and 120: make its seeds best at one of them each."""
    copy = tmp_path / "source"
    shutil.copytree(source, copy)
    file = copy / "policy" / "best" / "policy.json"
    known = {**json.loads(file.read_text()), "agent_steps": 120, "best_seed": 1}
    file.write_text(json.dumps({**known, "agent_steps_of": {"0": 60, "1": 120}}))
    spaces = Spaces(ObsSpec.vector(1), ContinuousActions((-1.0,), (1.0,)))
    config = preset("dr.q", **tiny.SIZES)
    one = read_initial_weights(str(file.parent), config, spaces, [0])
    assert (one.record["agent_steps"], "agent_steps_of" in one.record) == (60, False)
    assert "Walk at step 60: state encoder f, actor (seed 0 from 0); fresh: latent model g and M, critics" in one.line
    both = read_initial_weights(str(file.parent), config, spaces, [0, 1])
    assert "at step 60, 120: state encoder f, actor (seed 0 from 0, 1 from 1)" in both.line
    said = started_from_lines({"started_from": {"init": both.record}})
    assert any("Walk, 60, 120 agent steps): state encoder f, actor; SHA-256" in line for line in said)


def test_several_seeds_take_those_of_the_same_number(source, tmp_path):
    run = train(toys.Walk, tmp_path / "run", steps=40, seeds=1, seed=1, init=source)
    assert record(run)["started_from"]["init"]["seeds"] == {"1": 1}
    before, after = agents(source, 120), agents(run, 40)
    assert all(np.array_equal(after[name][0], before[name][1]) for name in after if name.startswith("online."))


@pytest.mark.parametrize(
    ("task", "more", "message"),
    [
        (toys.Bandit, {}, "is an agent of callable:tests.envs.toys.Walk with observations obs (1,); this environment's "
         "are obs (8,): choose an agent of the same spaces"),
        (toys.Walk, {"zs_dim": 8, "zsa_dim": 8, "actor_hidden": 4, "critic_hidden": 4}, "has other networks "
         "than zs_dim 8, zsa_dim 8, actor_hidden 4, critic_hidden 4: give zs_dim=16, zsa_dim=16, actor_hidden=16, "
         "critic_hidden=16"),
        (toys.Walk, {"init": "nowhere"}, "init nowhere is not a folder; give a run's folder or a policy's"),
        (toys.Walk, {"prefill": "nowhere.npz"}, "prefill nowhere.npz is not there; give a run's folder, an .npz file"),
        (toys.Bandit, {"init": None, "prefill": "SOURCE"}, "has observations obs (1,) and actions of 1 number; this "
         "environment's are obs (8,)"),
        (toys.Walk, {"pretrain": 10}, "pretrain 10 needs transitions: give prefill"),
        (toys.Walk, {"pretrain_policy": 5}, "pretrain_policy 5 needs transitions: give prefill"),
        (toys.Walk, {"prefill": "SOURCE", "pretrain": 7}, "pretrain must be a multiple of target_period (10), got 7"),
        (toys.Walk, {"init": None, "exploration_steps": 0}, "exploration_steps 0 leaves nothing to learn from"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_line(task, more, message, source, tmp_path):
    given: dict[str, Any] = {
        name: str(source) if value == "SOURCE" else value for name, value in {"init": source, **more}.items()
    }
    given = {name: value for name, value in given.items() if value is not None}
    with pytest.raises(dr_q.DrQError) as raised:
        train(task, tmp_path / "run", **given)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


def walk_transitions(count: int, seed: int = 3) -> dict[str, Any]:
    """Episodes of toys.Walk with random actions, as an .npz file holds them."""
    return random_transitions(toys.Walk(), count, seed)


def random_transitions(env: gymnasium.Env, count: int, seed: int = 3) -> dict[str, Any]:
    """The same of an environment with one action."""
    rng = np.random.default_rng(seed)
    rows: list[tuple] = []
    obs, _ = env.reset(seed=seed)
    while len(rows) < count:
        action = rng.uniform(-1, 1, 1).astype(np.float32)
        after, reward, terminated, truncated, _ = env.step(action)
        rows.append((obs, action, reward, after, terminated, truncated))
        obs = after
        if terminated or truncated:
            obs, _ = env.reset()
    names = ("observations", "actions", "rewards", "next_observations", "terminations", "truncations")
    return {name: np.array([row[i] for row in rows]) for i, name in enumerate(names)}


def test_prefill_is_in_the_replay_before_step_0_and_resumes_to_the_byte(source, tmp_path, capsys):
    """With init, prefill and all updates before step 0; two seeds; the sources are gone when the run is resumed."""
    data = tmp_path / "data.npz"
    rows = walk_transitions(30)
    np.savez(data, **rows)
    given = {"init": str(source), "prefill": str(data), "pretrain": 20, "pretrain_policy": 15, "seeds": 2}
    given |= {"eval_every": 40}
    whole = train(toys.Walk, tmp_path / "whole", **given, quiet=False)
    said = capsys.readouterr().out
    assert said.index("compiling (about 30 s") < said.index("20 encoder updates on them")
    assert "20 encoder updates on them (pretrain)\n15 updates of critics and actor on them (pretrain_policy)\n" in said
    assert "\n15 of 15 updates: critic loss " in said
    found = record(whole)["started_from"]["prefill"]
    assert (found["transitions"], found["pretrain"], found["pretrain_policy"]) == (30, 20, 15)
    broken = train(toys.Walk, tmp_path / "broken", steps=40, **given)
    # What the replay holds: 30 transitions of the file, then those of the run, 39 of 40 so far.
    storage = replay_of(broken, 40, seed=1).storage
    assert int(storage.clock) == 30 + 39
    is_transition = np.asarray(storage.is_transition)
    stamps = np.asarray(storage.stamp).reshape(-1)[: len(is_transition)]
    of_file = is_transition & (stamps < 30)
    np.testing.assert_array_equal(np.asarray(storage.reward)[of_file], rows["rewards"].astype(np.float32))
    np.testing.assert_allclose(np.asarray(storage.action)[of_file], rows["actions"], atol=1e-6)
    data.unlink()
    dr_q.train(toys.Walk, resume=broken, steps=tiny.STEPS, quiet=True)
    assert_same(whole, broken)
    assert record(broken)["started_from"] == record(whole)["started_from"]
    changed = [name for name, x in agents(whole, 40).items() if "encoder_optimiser" in name and x.shape == (2,)]
    # Learning begins at step 1: 39 updates in 40 steps, with 4 copies of targets and 10 encoder updates after each.
    # Before it are 20 encoder updates, and 15 RL updates with 2 copies of targets.
    assert {int(agents(whole, 40)[name][0]) for name in changed} == {20 + 20 + 40}
    counts = [x for name, x in agents(whole, 40).items() if "actor_optimiser" in name and x.shape == (2,)]
    assert {int(x) for both in counts for x in both} == {15 + 39}


def test_without_a_checkpoint_a_run_begins_again_only_from_the_same_data(tmp_path):
    data = tmp_path / "data.npz"
    np.savez(data, **walk_transitions(60))
    run = train(toys.Walk, tmp_path / "run", steps=40, prefill=str(data), exploration_steps=40)
    info = record(run)
    for file in (run / "checkpoints").rglob("*"):
        if file.is_file():
            file.unlink()
    (run / "checkpoints" / "40").rmdir()
    (run / "run.json").write_text(json.dumps({**info, "status": "failed", "last_checkpoint": None}))
    np.savez(data, **walk_transitions(60, seed=4))
    with pytest.raises(dr_q.ConfigError, match=r"must begin again, but prefill .*data.npz has changed since it began"):
        dr_q.train(toys.Walk, resume=run, quiet=True)


def test_a_replay_of_a_run_enters_in_its_order(source, tmp_path):
    spaces = Spaces(ObsSpec.vector(1), ContinuousActions((-1.0,), (1.0,)))
    found = read_prior_data(str(source), spaces, [0, 1], 1_000, horizon=5)
    assert found.record["kind"] == "run"
    assert found.record["seeds"] == {"0": 0, "1": 1}
    for seed, one in enumerate(found.by_seed):
        storage = replay_of(source, 120, seed).storage
        order = np.argsort(np.asarray(storage.stamp).reshape(-1)[:CAPACITY][np.asarray(storage.is_transition)])
        rewards = np.asarray(storage.reward)[np.asarray(storage.is_transition)][order]
        np.testing.assert_array_equal(one.reward, rewards[-len(one) - 1 : -1])  # of the newest the outcome is unknown
        inner = ~one.ends[:-1]
        np.testing.assert_array_equal(one.next_obs[SINGLE][:-1][inner], one.obs[SINGLE][1:][inner])
        assert one.ends[-1]
        assert one.terminated.any()


def test_the_newest_episodes_are_taken_where_not_all_fit(tmp_path):
    rows = walk_transitions(300)
    np.savez(tmp_path / "data.npz", **rows)
    spaces = Spaces(ObsSpec.vector(1), ContinuousActions((-1.0,), (1.0,)))
    found = read_prior_data(str(tmp_path / "data.npz"), spaces, [0], CAPACITY, horizon=5)
    assert found.record["slots"] <= CAPACITY
    assert found.record["left_out"] == 300 - found.count > 0
    np.testing.assert_array_equal(found.by_seed[0].reward, rows["rewards"][-found.count :].astype(np.float32))
    ends = rows["terminations"] | rows["truncations"]
    assert ends[300 - found.count - 1], "it begins where an episode does"
    next_episode = int(np.flatnonzero(ends[: 300 - found.count - 1])[-1]) + 1
    assert 300 - next_episode + ends[next_episode:].sum() + 1 > CAPACITY, "another episode would have fitted"


def bad(**changes) -> dict[str, Any]:
    rows = walk_transitions(30)
    return {name: x for name, x in {**rows, **changes}.items() if x is not None}


def shuffled() -> dict[str, Any]:
    rows = bad(terminations=np.zeros(30), truncations=np.zeros(30))
    return {name: x[::-1] for name, x in rows.items()}


def test_what_environments_cannot_share_evenly_is_left_out(tmp_path):
    np.savez(tmp_path / "data.npz", **walk_transitions(200))
    spaces = Spaces(ObsSpec.vector(1), ContinuousActions((-1.0,), (1.0,)))
    found = read_prior_data(str(tmp_path / "data.npz"), spaces, [0], 1_000, horizon=5, lanes=3)
    assert (found.count, found.record["left_out"]) == (198, 2)
    assert found.line.endswith(
        "enter the replay; the 2 oldest of the others are left out, so that each environment of a seed gets the same "
        "number"
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (bad(next_observations=None), "has no array 'next_observations'; got observations, actions"),
        (bad(rewards=np.full(30, np.nan)), "the reward of transition 0 is nan"),
        (bad(actions=np.full((30, 1), 3.0)), "action 0 is [3.0], outside this environment's bounds [-1.0] to [1.0]"),
        (bad(actions=np.zeros((30, 2))), "has actions of 2 numbers; this environment's have 1"),
        (bad(observations=np.zeros((30, 3))), "has observations (3,); this environment has obs (1,)"),
        (bad(observations=np.zeros((29, 1))), "'observations' has shape (29, 1), expected 30 rows"),
        (bad(observations=np.full((30, 1), np.inf), next_observations=np.full((30, 1), np.inf)),
         "the observation of transition 0 is NaN or infinite in component 0"),
        (shuffled(), "has no window of 5 transitions to learn from: after 29 of its rows the next one does not follow"),
        (bad(observations=np.zeros((30, 1)), terminations=np.zeros(30)), "has no window of 5 transitions"),
    ],
)  # fmt: skip
def test_an_npz_that_cannot_be_learnt_from_is_refused(rows, message, tmp_path):
    np.savez(tmp_path / "data.npz", **rows)
    spaces = Spaces(ObsSpec.vector(1), ContinuousActions((-1.0,), (1.0,)))
    with pytest.raises(dr_q.DrQError) as raised:
        read_prior_data(str(tmp_path / "data.npz"), spaces, [0], CAPACITY, horizon=5)
    assert message in str(raised.value)


def test_a_file_that_is_no_npz_is_refused(tmp_path):
    (tmp_path / "data.npz").write_bytes(b"PK\x03\x04nothing")
    spaces = Spaces(ObsSpec.vector(1), ContinuousActions((-1.0,), (1.0,)))
    with pytest.raises(dr_q.DamagedFileError, match=r"data.npz cannot be read as an .npz file"):
        read_prior_data(str(tmp_path / "data.npz"), spaces, [0], CAPACITY, horizon=5)


def test_observations_of_dicts_images_and_choices_become_frames():
    image = Image(3, 32, 40, 3)
    obs = ObsSpec((("camera", image), ("arm", Vector(3, fields=(("", (3,)),)))))
    images = np.random.default_rng(0).integers(0, 255, (7, 32, 40, 3)).astype(np.uint8)
    arm = np.arange(21.0).reshape(7, 3)
    found = frames_of(obs, {"camera": images, "arm": arm}, 7, "data")
    np.testing.assert_array_equal(found["camera"], images.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(found["arm"], arm.astype(np.float32))
    joined = Vector(5, fields=(("goal/at", (2,)), ("mode", ())), choices=(("mode", (3,), (1,)),))
    nested = {"mode": np.array([1, 3]), "goal": {"at": np.array([[5.0, 6.0], [7.0, 8.0]])}}
    (vectors,) = frames_of(ObsSpec.single(joined), nested, 2, "data").values()
    np.testing.assert_array_equal(vectors, [[5, 6, 1, 0, 0], [7, 8, 0, 0, 1]])


def test_actions_in_an_environments_units_become_the_agents():
    spaces = Spaces(ObsSpec.vector(1), ContinuousActions((-0.4, 0.0), (0.4, 3.0)))
    np.testing.assert_allclose(
        unit_actions(spaces, [[0.4, 0.0], [0.0, 1.5], [-0.4, 3.0]], ""), [[1, -1], [0, 0], [-1, 1]]
    )
    spaces = Spaces(ObsSpec.vector(1), DiscreteActions((3,), (1,)))
    np.testing.assert_array_equal(unit_actions(spaces, [1, 3, 2], ""), [[1, 0, 0], [0, 0, 1], [0, 1, 0]])


@pytest.mark.parametrize("frames_on_host", [False, True])
def test_recorded_transitions_enter_as_if_they_were_added_one_by_one(frames_on_host):
    """Two seeds with data of their own, more than go to the device at once, around the ring; normalised."""
    config = preset("dr.q", **{**tiny.SIZES, "normalise_observations": "all"})
    spaces = Spaces(ObsSpec.vector(2), ContinuousActions((-1.0,), (1.0,)))
    learner = Learner(LearnerSpec(config, spaces, 64, frames_on_host), [0, 1])
    rng = np.random.default_rng(0)
    count = 1_100
    obs, after = (rng.normal(size=(2, count, 2)).astype(np.float32) for _ in range(2))
    terminated = rng.random((2, count)) < 0.05
    truncated = rng.random((2, count)) < 0.05
    arrays: list[Any] = [
        {SINGLE: obs},
        rng.uniform(-1, 1, (2, count, 1)).astype(np.float32),
        rng.normal(size=(2, count)).astype(np.float32),
        {SINGLE: after},
        terminated,
        truncated,
    ]
    transitions = rp.Transition(*arrays)
    learner.begin_agents()
    learner.add_recorded(transitions, terminated | truncated)
    for seed in range(2):
        replay = rp.init_replay(config, spaces, 64)
        for i in range(count):
            replay = rp.add_in_place(replay, jax.tree.map(lambda x, i=i, seed=seed: x[seed, i], transitions))
        got = {name: x[seed] for name, x in named_arrays(learner.states.replays).items()}
        for name, x in named_arrays(replay).items():
            if frames_on_host and name == "storage.obs.obs":
                assert learner.frames is not None
                np.testing.assert_array_equal(learner.frames.rings[SINGLE][seed], x)
            else:
                np.testing.assert_array_equal(got[name], x, err_msg=name)
        normaliser = learner.states.agents.online.normaliser
        assert normaliser is not None
        np.testing.assert_allclose(np.asarray(normaliser.mean[SINGLE][seed]), obs[seed].mean(axis=0), atol=1e-4)


@pytest.mark.parametrize("frames_on_host", [False, True])
def test_critics_and_actor_learn_before_step_0_in_trainings_own_cycle(frames_on_host):
    """Copies to the targets before updates 0 and 10, and random draws that are not those of the run's updates."""
    config = preset("dr.q", **tiny.SIZES)
    spaces = Spaces(ObsSpec.vector(1), ContinuousActions((-1.0,), (1.0,)))
    rows = walk_transitions(40)

    def both(name: str) -> np.ndarray:
        return np.stack([rows[name].astype(np.float32)] * 2)

    ends = np.stack([rows["terminations"] | rows["truncations"]] * 2)
    obs, after = ({SINGLE: both(name)} for name in ("observations", "next_observations"))
    terminated = np.stack([rows["terminations"]] * 2)
    arrays: list[Any] = [obs, both("actions"), both("rewards"), after, terminated, ends & ~terminated]
    transitions = rp.Transition(*arrays)

    def updated(count: int, update: Any) -> list[dict[str, np.ndarray]]:
        """The networks before anything was learnt, and after each update."""
        learner = Learner(LearnerSpec(config, spaces, 64, frames_on_host), [0, 1])
        learner.begin_agents()
        learner.add_recorded(transitions, ends)
        seen = [dict(named_arrays(learner.states.agents))]
        for i in range(count):
            update(learner, i)
            seen.append({name: np.array(x) for name, x in named_arrays(learner.states.agents).items()})
        return seen

    seen = updated(12, Learner.pretrain_policy)
    actor = next(name for name in seen[0] if name.startswith("online.actor"))
    target, encoder = actor.replace("online", "target"), next(name for name in seen[0] if "online.encoder" in name)
    for i in range(1, 13):
        synced = seen[0 if i <= 10 else 10]  # before update 0, and before update 10
        np.testing.assert_array_equal(seen[i][target], synced[actor])
        assert not np.array_equal(seen[i][actor], seen[i - 1][actor])
        assert np.array_equal(seen[i][encoder], seen[i - 1][encoder]) == (i not in (1, 11))
    again = updated(2, Learner.pretrain_policy)
    np.testing.assert_array_equal(again[2][actor], seen[2][actor])
    other = updated(2, lambda learner, i: learner.learn(i, 0))
    assert not np.array_equal(other[2][actor], seen[2][actor])


def test_a_policy_trained_on_prior_data_is_good_at_step_0(tmp_path):
    """Aim's reward is the action, and the data are random: the best return, 20, is not among them."""
    np.savez(tmp_path / "data.npz", **random_transitions(Aim(), 400))
    returns = {}
    for count in (0, 200):
        more = {"pretrain_policy": count, "seeds": 2, "replay_capacity": 600, "actor_learning_rate": 0.01}
        more |= {"prefill": tmp_path / "data.npz", "exploration_steps": 0, "in_process": True}
        run = train(Aim, tmp_path / f"run-{count}", 1, **more)
        returns[count] = [row.score for row in read_results([run]) if row.agent_steps == 0]
    assert len(returns[200]) == 2
    assert min(returns[200]) > max(15, *returns[0])


def test_a_signal_ends_a_run_that_has_not_begun(tmp_path, monkeypatch, capsys):
    """Nothing is left behind, so that the same command begins again."""
    np.savez(tmp_path / "data.npz", **walk_transitions(60))
    made, learn = [], Learner.pretrain_policy

    def then_signal(learner: Learner, update: int) -> Any:
        made.append(update)
        if update == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return learn(learner, update)

    monkeypatch.setattr(Learner, "pretrain_policy", then_signal)
    given = {"prefill": str(tmp_path / "data.npz"), "pretrain_policy": 1_000, "exploration_steps": 40}
    with pytest.raises(KeyboardInterrupt):
        train(toys.Walk, tmp_path / "run", **given, quiet=False)
    assert len(made) == 10, "a target period"
    assert "stopped before step 0, without a checkpoint: start the run again" in capsys.readouterr().out
    monkeypatch.setattr(Learner, "pretrain_policy", learn)
    train(toys.Walk, tmp_path / "run", steps=40, **{**given, "pretrain_policy": 10})


@pytest.mark.filterwarnings("ignore")  # what minari says of datasets without an author
def test_a_minari_dataset_recorded_here(tmp_path, monkeypatch, capsys):
    """Through the command line, on a registered environment; the transitions are those that were recorded."""
    minari = pytest.importorskip("minari")
    pytest.importorskip("h5py")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    collector = minari.DataCollector(gymnasium.make("Pendulum-v1", max_episode_steps=30))
    rewards, rng = [], np.random.default_rng(0)
    for episode in range(3):
        collector.reset(seed=episode)
        for _ in range(30):
            _, reward, _, _, _ = collector.step(rng.uniform(-2, 2, 1).astype(np.float32))
            rewards.append(float(reward))
    collector.create_dataset(dataset_id="pendulum/random-v0")
    spaces = make_env("gym/Pendulum-v1").spec.spaces
    found = read_prior_data("minari:pendulum/random-v0", spaces, [0], 1_000, horizon=5)
    one = found.by_seed[0]
    np.testing.assert_allclose(one.reward, rewards, rtol=1e-5)
    assert np.flatnonzero(one.ends).tolist() == [29, 59, 89]
    assert np.abs(one.action).max() <= 1
    run = tmp_path / "run"
    options = tiny.flags(steps=60, prefill="minari:pendulum/random-v0", exploration_steps=0, pretrain=10)
    assert main(["train", "gym/Pendulum-v1", "--out", str(run), *options]) == 0
    assert "90 transitions of minari:pendulum/random-v0 (3 episodes, mean reward" in capsys.readouterr().out
    assert record(run)["started_from"]["prefill"]["sha256"] == found.record["sha256"]
    assert main(["train", "gym/Pendulum-v1", "--prefill", "minari:none/none-v0", "--out", str(tmp_path / "no")]) == 2
    error = capsys.readouterr().err
    assert "--prefill minari:none/none-v0 cannot be opened (it is not on this machine)" in error
    assert "download=True" not in error
    assert "datasets here: pendulum/random-v0" in error


def test_each_start_on_the_command_line_on_a_real_environment(tmp_path, capsys):
    """A run; fine-tuned with its weights and its replay; from a file; the first one continued with other gravity."""
    first, second, third = (str(tmp_path / name) for name in ("first", "second", "third"))

    def dr_q_train(task: str, *words: str, **more: Any) -> str:
        flags = [] if "--resume" in words else tiny.flags(steps=60, eval_every=60, eval_episodes=1, **more)
        assert main(["train", task, *words, *flags]) == 0
        return capsys.readouterr().out

    dr_q_train("gym/Pendulum-v1", "--out", first)
    more = {"exploration_steps": 0, "pretrain": 10}
    said = dr_q_train("gym/Pendulum-v1", "--out", second, "--init", first, "--prefill", first, **more)
    assert f"weights of {first}, gym/Pendulum-v1 at step 60: encoder, actor, critics (seed 0 from 0)" in said
    assert f"58 transitions of {first}" in said  # the outcome of the newest is unknown
    assert {name: x["kind"] for name, x in record(tmp_path / "second")["started_from"].items()} == {
        "init": "checkpoint",
        "prefill": "run",
    }
    env = gymnasium.make("Pendulum-v1")
    np.savez(tmp_path / "data.npz", **random_transitions(env, 40))
    said = dr_q_train("gym/Pendulum-v1", "--out", third, "--prefill", str(tmp_path / "data.npz"), **more)
    assert f"40 transitions of {tmp_path / 'data.npz'}" in said
    entry = "gymnasium.envs.classic_control:PendulumEnv"
    gymnasium.register("drq-Moon-v0", entry_point=entry, max_episode_steps=200, kwargs={"g": 1.6})
    try:
        assert main(["train", "gym/drq-Moon-v0", "--resume", first, "--steps", "90"]) == 2
        assert "or give --new-environment to continue in another environment" in capsys.readouterr().err
        said = dr_q_train("gym/drq-Moon-v0", "--resume", first, "--new-environment", "--steps", "90")
    finally:
        gymnasium.registry.pop("drq-Moon-v0")
    assert "another environment from step 60 on: the open episodes are closed as truncated" in said
    out = tmp_path / "results.csv"
    assert main(["results", first, second, third, "--out", str(out)]) == 0
    rows = {tuple(line.split(",")[:4]) for line in out.read_text().splitlines()[1:]}
    assert {row for row in rows if row[0] == "gym/drq-Moon-v0"} == {
        ("gym/drq-Moon-v0", "dr.q+new_environment", "0", "90")
    }
    assert {row[1] for row in rows if row[0] == "gym/Pendulum-v1"} == {"dr.q+init+prefill", "dr.q+prefill"}


def test_the_command_line_says_what_the_settings_are(source, tmp_path, capsys):
    assert main(["train", "gym/Pendulum-v1", "--init", str(source), "--out", str(tmp_path / "run")]) == 2
    assert "dr-q: --init " in (error := capsys.readouterr().err)
    assert "has networks of --zs-dim 16" in error or "with observations obs (1,)" in error
    settings = make_settings("gym/Pendulum-v1", init="somewhere")
    assert (settings.config.exploration_steps, settings.learning_starts) == (0, 1_000)
    settings = make_settings("gym/Pendulum-v1", init="somewhere", changes={"exploration_steps": 7})
    assert (settings.config.exploration_steps, settings.learning_starts) == (7, 7)


def test_a_model_card_says_what_a_run_started_from(source, tmp_path):
    more = {"pretrain": 10, "pretrain_policy": 20}
    run = train(toys.Walk, tmp_path / "run", steps=40, init=source, prefill=source, eval_every=40, **more)
    export_policy(run, tmp_path / "policy", episodes=0)
    card = (tmp_path / "policy" / "README.md").read_text()
    assert (
        f"Started from weights of `{source}` (callable:tests.envs.toys.Walk, 120 agent steps): encoder, actor" in card
    )
    count = record(run)["started_from"]["prefill"]["transitions"]
    updates = "with 10 encoder updates and 20 updates of critics and actor on them before step 0"
    assert f"Its replay began with {count} transitions of `{source}`, {updates}; SHA-256" in card
    assert "--pretrain 10 --pretrain-policy 20" in card or "pretrain=10, pretrain_policy=20" in card


class OtherWalk(toys.Walk):
    """Another environment with the same spaces."""

    def __init__(self, gain: float = 2.0):
        super().__init__()
        self.gain = gain

    def outcome(self, action):
        return super().outcome(self.gain * action)


def test_another_environment_is_refused_unless_asked_for(scratch, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(scratch, run)
    with pytest.raises(dr_q.RunFolderError) as refused:
        dr_q.train(OtherWalk, resume=run, steps=160, quiet=True)
    assert "another environment than that of the run" in str(refused.value)
    assert "made_from OtherWalk, the run's Walk" in str(refused.value)
    assert "give new_environment" in str(refused.value)
    with pytest.raises(dr_q.RunFolderError, match=r"this environment's are obs .* which do not fit its agent"):
        dr_q.train(toys.Bandit, resume=run, steps=160, quiet=True, new_environment=True)
    told = (run / "run.json").read_text()
    with pytest.raises(dr_q.ConfigError, match="has done its 120 steps: there is none left for another environment"):
        dr_q.train(OtherWalk, resume=run, quiet=True, new_environment=True)
    assert (run / "run.json").read_text() == told
    before = replay_of(run, 120).storage
    dr_q.train(OtherWalk, resume=run, steps=160, quiet=True, new_environment=True)
    info = record(run)
    (earlier,) = info["earlier_environments"]
    assert (earlier["until"], earlier["made_from"], info["environment"]["made_from"]) == (120, "Walk", "OtherWalk")
    after = replay_of(run, 160).storage
    last = int(before.clock)  # the stamp of the transition that was pending: its episode is closed
    stamps = np.asarray(after.stamp).reshape(-1)[:CAPACITY]
    assert sorted(np.asarray(after.is_transition)[stamps == last].tolist()) == [False, True]
    # Its results are those of the new environment; the evaluations at steps 0 and 120 were of the earlier one.
    assert [(r.preset, r.agent_steps) for r in read_results([run])] == [("dr.q+new_environment", 160)]
    assert list(read_run(run).evaluations.values()) == [[(160, pytest.approx(read_results([run])[0].score))]]
    # From then on it is the run's own; the first one is another.
    dr_q.train(OtherWalk, resume=run, steps=170, quiet=True)
    with pytest.raises(dr_q.RunFolderError, match="another environment"):
        dr_q.train(toys.Walk, resume=run, steps=180, quiet=True)
    assert len(record(run)["earlier_environments"]) == 1


def test_arguments_of_a_partial_identify_an_environment(tmp_path):
    run = train(functools.partial(OtherWalk, gain=1.0), tmp_path / "run", steps=40, exploration_steps=40)
    with pytest.raises(dr_q.RunFolderError, match="another environment"):
        dr_q.train(functools.partial(OtherWalk, gain=3.0), resume=run, steps=60, quiet=True)
    dr_q.train(functools.partial(OtherWalk, gain=1.0), resume=run, steps=60, quiet=True)


def test_errors_name_what_python_users_write(scratch, tmp_path):
    with pytest.raises(dr_q.ConfigError, match="num_envs must be a whole number between 1 and 1000, got 0"):
        dr_q.train(toys.Walk, out=tmp_path / "run", num_envs=0)
    with pytest.raises(dr_q.ConfigError, match=r"init x does not fit the run in .*, which has none; a run is resumed"):
        dr_q.train(toys.Walk, resume=scratch, init="x")
    with pytest.raises(dr_q.ConfigError, match="name two folders; give resume alone"):
        dr_q.train(toys.Walk, resume=scratch, out=tmp_path / "run")
    settings = make_settings(functools.partial(functools.partial(OtherWalk, gain=1.0)))
    assert settings.task_name == "callable:tests.training.test_starting_from.OtherWalk"


def test_a_warm_up_that_does_nothing_is_said(tmp_path, capsys):
    train(toys.Walk, tmp_path / "run", steps=40, exploration_steps=40, warmup_steps=7, quiet=False)
    said = capsys.readouterr().out
    assert "warmup_steps 7 does nothing: it is for init without exploration_steps and prefill" in said


def test_new_environment_needs_a_run_to_resume(tmp_path):
    with pytest.raises(dr_q.ConfigError, match="new_environment is for resume"):
        dr_q.train(toys.Walk, out=tmp_path / "run", new_environment=True)


class Joints(toys.Toy):
    """Two entries, which are joined in one vector."""

    observation_space = gymnasium.spaces.Dict(
        {
            "joints": gymnasium.spaces.Box(-9, 9, (3,), np.float32),
            "target": gymnasium.spaces.Box(-9, 9, (2,), np.float32),
        }
    )

    def observe(self):
        return {"joints": np.full(3, self.t, np.float32), "target": np.zeros(2, np.float32)}

    def outcome(self, action):
        return 1.0, False, self.t == 9


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"joints": (7, 1)}, "the observation of transition 7 is NaN or infinite in 'joints'[1]; leave it out"),
        ({"target": None}, "has observations joints (3,); this environment has joints (3,), target (2,): it must be"),
    ],
)
def test_prior_data_name_the_entry_of_a_dict_that_is_wrong(changed, said, tmp_path):
    rows = {}
    for when in ("observations", "next_observations"):
        rows[f"{when}/joints"] = np.tile(np.arange(10.0)[:, None] + (when != "observations"), (3, 3))
        rows[f"{when}/target"] = np.zeros((30, 2))
    for name, at in changed.items():
        if at is None:
            del rows[f"observations/{name}"], rows[f"next_observations/{name}"]
        else:
            rows[f"observations/{name}"][at] = np.nan
    ends = np.arange(30) % 10 == 9
    more = {"actions": np.zeros((30, 1)), "rewards": np.ones(30), "terminations": ends & False, "truncations": ends}
    np.savez(tmp_path / "data.npz", **rows, **more)
    with pytest.raises(dr_q.DrQError, match=re.escape(said)):
        dr_q.train(Joints, prefill=str(tmp_path / "data.npz"), steps=40, out=tmp_path / "run", **tiny.RUN, **tiny.SIZES)


def test_a_warm_up_is_not_called_exploration(source, tmp_path, capsys):
    settings = {**tiny.RUN, **tiny.SIZES, "quiet": False}
    del settings["exploration_steps"]
    dr_q.train(toys.Walk, init=str(source), steps=40, warmup_steps=60, out=tmp_path / "run", **settings)
    said = capsys.readouterr().out
    assert "all 40 steps are warm-up; give more steps than warmup_steps, 60, or fewer of those\n" in said
    assert "warming up" in said
    assert "explor" not in said
