"""HumanoidBench behind the protocol: every task of the paper, seeds, random state, messages."""

import csv
import os
import sys
from importlib.resources import files

import numpy as np
import pytest

from dr_q.envs import Step
from dr_q.envs.families.humanoid_bench import HumanoidBenchEnv, installed
from dr_q.kit import TaskError
from dr_q.spaces import SINGLE, ObsSpec

needs_package = pytest.mark.skipif(not installed(), reason="HumanoidBench is not installed (it is optional)")


def paper_tasks() -> list[dict[str, str]]:
    table = files("dr_q.paper") / "tasks.csv"
    return [row for row in csv.DictReader(table.read_text().splitlines()) if row["suite"].startswith("hbench")]


TASKS = paper_tasks()


def episode(env: HumanoidBenchEnv, seed: int, steps: int = 5) -> tuple[np.ndarray, list[Step]]:
    """The first steps of an episode under actions that depend on the seed alone."""
    obs = env.reset(seed)[SINGLE]
    actions = np.random.default_rng(seed).uniform(-1, 1, (steps, env.spec.action.dim))
    return obs, [env.step(action) for action in actions]


def assert_same(left: tuple[np.ndarray, list[Step]], right: tuple[np.ndarray, list[Step]]) -> None:
    np.testing.assert_array_equal(left[0], right[0])
    for one, other in zip(left[1], right[1], strict=True):
        np.testing.assert_array_equal(one.obs[SINGLE], other.obs[SINGLE])
        assert one[1:] == other[1:]


def test_without_the_package_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "humanoid_bench", None)
    assert not installed()
    with pytest.raises(TaskError, match=r"git clone \S+/humanoid-bench") as caught:
        HumanoidBenchEnv("h1-walk-v0")
    assert "\n" not in str(caught.value)


def test_the_paper_has_28_tasks():
    assert len(TASKS) == 28


@needs_package
@pytest.mark.parametrize("row", TASKS, ids=lambda row: row["task"])
def test_every_task_of_the_paper_runs_and_repeats_itself(row):
    env = HumanoidBenchEnv(row["env_id"])
    assert env.spec.obs == ObsSpec.vector(int(row["obs_dim"]))
    assert env.spec.action.dim == int(row["action_dim"])
    assert env.spec.action_repeat == int(row["action_repeat"])
    assert env.spec.episode_length == int(row["episode_length"])
    first = episode(env, seed=3)
    for obs in (first[0], *(step.obs[SINGLE] for step in first[1])):
        assert obs.shape == env.spec.obs[SINGLE].shape
        assert obs.dtype == np.float32
        assert np.isfinite(obs).all()
    assert all(np.isfinite(step.reward) for step in first[1])
    other = episode(env, seed=4)
    assert not np.array_equal(first[1][-1].obs[SINGLE], other[1][-1].obs[SINGLE])
    assert_same(episode(env, seed=3), first)
    env.close()


# The tasks that draw from numpy's global state, and two that carry something over between episodes.
@needs_package
@pytest.mark.parametrize(
    "env_id",
    ["h1-reach-v0", "h1-sit_hard-v0", "h1-maze-v0", "h1hand-basketball-v0", "h1hand-bookshelf_hard-v0"],
)
def test_a_used_and_a_fresh_instance_agree(env_id):
    used, fresh = HumanoidBenchEnv(env_id), HumanoidBenchEnv(env_id)
    episode(used, seed=1, steps=20)
    assert_same(episode(used, seed=2**40), episode(fresh, seed=2**40))
    for env in (used, fresh):
        env.reset(0)
    for name in ("body_pos", "geom_rgba"):
        np.testing.assert_array_equal(getattr(used._model, name), getattr(fresh._model, name))
    used.close()
    fresh.close()


@needs_package
def test_environments_do_not_disturb_each_other_or_the_caller():
    env, neighbour = HumanoidBenchEnv("h1-reach-v0"), HumanoidBenchEnv("h1-reach-v0")
    alone = episode(env, seed=5)
    before = np.random.get_state(legacy=False)  # noqa: NPY002
    obs, steps = env.reset(5)[SINGLE], []
    for action in np.random.default_rng(5).uniform(-1, 1, (5, env.spec.action.dim)):
        neighbour.reset(6)
        steps.append(env.step(action))
    assert_same((obs, steps), alone)
    np.testing.assert_equal(np.random.get_state(legacy=False), before)  # noqa: NPY002
    env.close()
    neighbour.close()


@needs_package
def test_rewards_are_summed_over_two_frames():
    env = HumanoidBenchEnv("h1-walk-v0")
    env.reset(0)
    rewards, step_frame = [], env._env.step

    def spy(action):
        result = step_frame(action)
        rewards.append(result[1])
        return result

    env._env.step = spy
    step = env.step(np.zeros(env.spec.action.dim))
    assert len(rewards) == 2
    assert step.reward == pytest.approx(sum(rewards), rel=1e-12)
    env.close()


@needs_package
@pytest.mark.parametrize(
    ("ends", "frames"),
    [([(True, False)], 1), ([(False, True)], 1), ([(True, True)], 1), ([(False, False), (True, True)], 2)],
)
def test_the_repeat_stops_at_an_end_and_keeps_both_kinds_apart(ends, frames):
    env = HumanoidBenchEnv("h1-walk-v0")
    obs = env.reset(0)[SINGLE]
    frame = iter([(obs, 1.0, *end, {}) for end in ends])
    env._env.step = lambda action: next(frame)
    step = env.step(np.zeros(env.spec.action.dim))
    assert (step.reward, step.terminated, step.truncated) == (frames, *ends[-1])
    env.close()


@needs_package
def test_an_episode_is_truncated_at_its_length():
    env = HumanoidBenchEnv("h1-crawl-v0")  # never terminates
    env.reset(0)
    length = env.spec.episode_length
    assert length == 500
    # All but the last two agent steps are skipped: gymnasium counts frames in its outermost wrapper.
    env._env._elapsed_steps = 2 * (length - 2)  # pyright: ignore[reportAttributeAccessIssue]
    ends = [env.step(np.zeros(env.spec.action.dim))[2:] for _ in range(2)]
    assert ends == [(False, False), (False, True)]
    env.close()


@needs_package
@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("h1-wlak-v0", "did you mean 'h1-walk-v0'"),
        ("CartPole-v1", "unknown id 'CartPole-v1'"),
        ("h1-bookshelf_hard-v0", "no model for"),
    ],
)
def test_unknown_tasks_are_refused(env_id, message):
    with pytest.raises(TaskError, match=message):
        HumanoidBenchEnv(env_id)


@needs_package
def test_no_stand_in_is_left_behind():
    HumanoidBenchEnv("h1-walk-v0").close()
    for name in ("humanoid_bench.mjx.flax_to_torch", "imageio"):
        assert name not in sys.modules or getattr(sys.modules[name], "__file__", None), f"a stub of {name} is left"


@needs_package
@pytest.mark.skipif(os.environ.get("MUJOCO_GL") not in {"egl", "osmesa"}, reason="MUJOCO_GL names no off-screen GL")
def test_pictures_come_in_the_size_asked_for():
    env = HumanoidBenchEnv("h1-walk-v0")
    env.reset(0)
    for size in ((48, 64), (300, 400)):
        image = env.render(size)
        assert image.shape == (*size, 3)
        assert image.dtype == np.uint8
        assert image.std() > 0
    env.close()
