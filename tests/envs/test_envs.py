"""Environments behind the protocol: seeding, scaling, shapes, names, and what is refused."""

import dataclasses
import re
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, MultiDiscrete
from gymnasium.wrappers import TimeLimit, TransformAction, TransformReward

from dr_q.envs import (
    NOISE_DIMS,
    Env,
    canonical,
    make_env,
    stream_seed,
    suite_tasks,
    suites,
)
from dr_q.kit import EnvError, TaskError
from dr_q.paper import paper_tasks
from dr_q.spaces import SINGLE, ActionScale, ContinuousActions, Image, ObsSpec, Vector
from tests.envs import toys


def rollout(env: Env, seed: int, steps: int = 20) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    seen = [env.reset(seed)[SINGLE]]
    for _ in range(steps):
        step = env.step(rng.uniform(-1, 1, env.spec.action.dim).astype(np.float32))
        seen += [step.obs[SINGLE], np.array([step.reward, step.terminated, step.truncated])]
        if step.terminated or step.truncated:
            break
    return seen


@pytest.mark.parametrize(
    "task", ["gym/Hopper-v4", "gym/Humanoid-v4", "dmc/walker-run", "dmc/reacher-hard", "dmc/fish-swim"]
)
def test_the_same_seed_gives_the_same_episode(task):
    used, fresh = make_env(task), make_env(task)
    first = rollout(used, 7)
    rollout(used, 8)
    for again in (rollout(used, 7), rollout(fresh, 7)):
        assert len(first) == len(again)
        for a, b in zip(first, again, strict=True):
            np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first[0], rollout(used, 9)[0])
    assert first[0].dtype == np.float32
    used.close()
    fresh.close()


def test_d4_actions_are_scaled_per_dimension():
    env = make_env(toys.Uneven)
    env.reset(0)
    for unit, expected in [
        ([-1, -1], [-0.4, 0.0]),
        ([1, 1], [0.4, 3.0]),
        ([0, 0], [0.0, 1.5]),
        ([0.5, -0.5], [0.2, 0.75]),
    ]:
        np.testing.assert_allclose(env.step(np.array(unit, np.float32)).obs[SINGLE], expected, atol=1e-6)
    scale = ActionScale(ContinuousActions((-0.4, 0.0), (0.4, 3.0)))
    assert (scale.to_env(np.array([1.0000001, 2.0])) <= scale.high.astype(np.float32)).all()


@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.1), (-0.7, 0.3), (-1e-3, 1e6 + 0.1), (-2.0, 3.0)])
def test_d4_the_ends_stay_inside_a_box_of_float64(low, high):
    box = Box(low, high, (2,), np.float64)
    actions = ContinuousActions(tuple(box.low.tolist()), tuple(box.high.tolist()))
    scaled = ActionScale(actions).to_env(np.array([-1, 1], np.float32))
    assert scaled.dtype == np.float32
    assert box.contains(scaled)
    np.testing.assert_allclose(scaled, [low, high], rtol=2e-7)


def test_known_bounds_and_lengths():
    humanoid, quadruped = make_env("gym/Humanoid-v4").spec, make_env("dmc/quadruped-run").spec
    assert isinstance(humanoid.action, ContinuousActions)
    assert isinstance(quadruped.action, ContinuousActions)
    np.testing.assert_allclose(humanoid.action.high, 0.4, rtol=1e-6)
    assert len(set(zip(quadruped.action.low, quadruped.action.high, strict=True))) > 1
    assert (quadruped.episode_length, quadruped.action_repeat, quadruped.can_terminate) == (500, 2, False)
    assert (humanoid.episode_length, humanoid.action_repeat) == (1000, 1)


def test_the_time_limit_of_an_unregistered_environment_is_known():
    def limited() -> TimeLimit:
        return TimeLimit(toys.Walk(), 7)

    for make in (limited, lambda: TransformReward(limited(), lambda reward: reward)):
        assert make_env(make).spec.episode_length == 7
    assert make_env(toys.Walk).spec.episode_length is None


def test_dmc_is_truncated_never_terminated():
    env = make_env("dmc/cartpole-swingup")
    env.reset(0)
    for t in range(500):
        step = env.step(np.zeros(1, np.float32))
        assert not step.terminated
        assert step.truncated == (t == 499)


def test_dmc_is_cut_where_its_physics_diverges(capsys):
    """The step before is the last that has a state; the next episode is as if nothing had been."""
    env, untouched = make_env("dmc/walker-run"), make_env("dmc/walker-run")
    action = np.zeros(env.spec.action.dim, np.float32)
    env.reset(0)
    before = env.step(action)
    env._env.physics.data.qvel[:] = 1e8  # pyright: ignore[reportAttributeAccessIssue]
    step = env.step(action)
    assert (step.terminated, step.truncated, step.reward) == (False, True, 0.0)
    np.testing.assert_array_equal(step.obs[SINGLE], before.obs[SINGLE])
    assert "walker-run: step 2 of an episode, which ends here: Physics state is invalid" in capsys.readouterr().err
    np.testing.assert_array_equal(env.reset(1)[SINGLE], untouched.reset(1)[SINGLE])
    steps = [env.step(action) for _ in range(500)]
    assert [s.truncated for s in steps] == [False] * 499 + [True]
    again = [untouched.step(action) for _ in range(3)]
    np.testing.assert_array_equal(steps[2].obs[SINGLE], again[2].obs[SINGLE])


def test_hopper_terminates():
    seen = rollout(make_env("gym/Hopper-v4"), 0, steps=1000)
    assert seen[-1][1]
    assert not seen[-1][2]


@pytest.mark.parametrize("task", ["dmc-visual/walker-run", "dmc-visual/quadruped-run"])
def test_pixels_are_the_last_three_frames_oldest_first(task):
    env = make_env(task)
    first = env.reset(0)[SINGLE]
    assert env.spec.obs == ObsSpec.single(Image(3, 84, 84, stack=3))
    assert first.shape == env.spec.obs[SINGLE].shape == (9, 84, 84)
    assert first.dtype == np.uint8
    assert first.std() > 1
    np.testing.assert_array_equal(first[:3], first[6:])
    obs = env.step(np.ones(env.spec.action.dim, np.float32)).obs[SINGLE]
    np.testing.assert_array_equal(obs[:6], first[3:])
    assert not np.array_equal(obs[6:], first[6:])
    again = make_env(task)
    np.testing.assert_array_equal(again.reset(0)[SINGLE], first)
    env.close()
    again.close()


@pytest.mark.parametrize("task", ["gym/Hopper-v4", "gym/Ant-v4"])
def test_pictures_of_gym_follow_the_robot(task):
    env = make_env(task, render=True)
    try:
        env.reset(0)
        raw = env._env.unwrapped  # pyright: ignore[reportAttributeAccessIssue] - to move it by hand

        def robot() -> int:
            """Pixels of the robot's colour, which floor and sky do not have."""
            red, _, blue = np.moveaxis(env.render((480, 480)).astype(int), -1, 0)
            return int(np.sum(red > blue + 60))

        before = robot()
        raw.data.qpos[0] += 30.0
        raw.set_state(raw.data.qpos.copy(), raw.data.qvel.copy())
        assert before > 200
        assert robot() > before / 2
    finally:
        env.close()


def test_noise_is_appended_redrawn_and_reproducible():
    plain, noisy = make_env("dmc/cartpole-swingup"), make_env("dmc/cartpole-swingup", noise_dims=NOISE_DIMS)
    assert noisy.spec.obs == ObsSpec.vector(55)
    assert noisy.spec == dataclasses.replace(plain.spec, spaces=plain.spec.spaces._replace(obs=ObsSpec.vector(55)))
    a, b = rollout(noisy, 3, steps=100), rollout(plain, 3, steps=100)
    observations = np.array([x for x in a if x.shape == (55,)])
    np.testing.assert_array_equal(observations[:, :5], [x for x in b if x.shape == (5,)])
    assert observations[:, 5:].std() == pytest.approx(0.2, rel=0.05)
    assert abs(np.corrcoef(observations[:-1, 5:].ravel(), observations[1:, 5:].ravel())[0, 1]) < 0.1
    np.testing.assert_array_equal(a[0], noisy.reset(3)[SINGLE])


def test_noise_is_for_vectors_only():
    with pytest.raises(TaskError, match=r"state vectors only; this task's observations are obs \(9, 84, 84\)"):
        make_env(toys.Pixels, noise_dims=NOISE_DIMS)


def test_dicts_are_flattened_in_the_order_of_their_keys():
    env = make_env(toys.DictObs)
    order = list(toys.DictObs.observation_space.spaces)  # type: ignore[attr-defined]
    expected = {"a": [1.0, 2.0, 3.0, 4.0], "b": [5.0, 6.0]}
    np.testing.assert_array_equal(env.reset(0)[SINGLE], [x for key in order for x in expected[key]])
    shapes = {"a": (2, 2), "b": (2,)}
    assert env.spec.obs == ObsSpec.single(Vector(6, fields=tuple((key, shapes[key]) for key in order)))


def test_images_of_gymnasium_are_stacked_channels_first():
    env = make_env(toys.Pixels)
    assert env.spec.obs[SINGLE].shape == env.reset(0)[SINGLE].shape == (9, 84, 84)
    obs = [env.step(np.zeros(1, np.float32)).obs[SINGLE] for _ in range(4)][-1]
    np.testing.assert_array_equal(obs[:, 0, 0], [2, 2, 2, 3, 3, 3, 4, 4, 4])


class NoChoices(toys.Toy):
    action_space = MultiDiscrete([])


class HugeBounds(toys.Toy):
    """Finite, and as good as none."""

    action_space = Box(-1e300, 1e300, (2,), np.float64)


class LargestFloats(toys.Toy):
    action_space = Box(-np.finfo(np.float32).max, np.finfo(np.float32).max, (1,), np.float32)


class LargeBounds(toys.Toy):
    action_space = Box(-1e6, 1e6, (1,), np.float32)


@pytest.mark.parametrize(
    ("toy", "message"),
    [
        (
            toys.ComplexActions,
            "ComplexActions has actions in Dict.* needs a Box with finite bounds, Discrete, .*TransformAction",
        ),
        (toys.Unbounded, "Unbounded has actions in .* DR.Q needs finite bounds.*gymnasium.wrappers.TransformAction"),
        (toys.NotMade, r"NotMade cannot be made: RuntimeError: no robot there \(.*toys.py, line \d+\)"),
        (toys.Leaves, r"Leaves cannot be made: SystemExit: 3 \(.*toys.py, line \d+\)"),
        (toys.TextObs, "TextObs has observations in .* DR.Q needs Box, Discrete, .*TransformObservation"),
        (toys.WholeActions, r"actions in Box\(0, 10, \(2,\), int32\); DR.Q needs floats.*wrappers.TransformAction"),
        (toys.NoActions, "NoActions has actions in Box.*, which is empty; .*wrappers.TransformAction"),
        (NoChoices, r"NoChoices has actions in MultiDiscrete.*, which is empty; .*wrappers.TransformAction"),
        (HugeBounds, r"HugeBounds has actions in .* finite bounds within \+-1e\+06.*wrappers.TransformAction"),
        (LargestFloats, r"LargestFloats has actions in .* finite bounds within \+-1e\+06.*wrappers.TransformAction"),
        (toys.TinyPixels, r"images of \(30, 84, 3\) .* at least 31 x 31; wrap it to give larger ones"),
        (toys.ChannelsFirst, r"images of \(3, 84, 84\) .* at least 31 x 31; channels come last: wrap it to move them"),
    ],
)
def test_what_cannot_be_is_refused(toy, message):
    with pytest.raises(TaskError, match=message) as caught:
        make_env(toy)
    assert "\n" not in str(caught.value)


def test_large_bounds_are_the_environment_s_own_matter():
    env = make_env(LargeBounds)
    assert isinstance(env.spec.action, ContinuousActions)
    assert env.spec.action.high == (1e6,)


class HalfActions(toys.Toy):
    """Actions of float16, whose bounds float32 has no room to round out of."""

    action_space = Box(-0.1, 0.3, (2,), np.float16)

    def step(self, action):
        assert self.action_space.contains(action), action
        return self.observe(), float(action[0]), False, False, {}


def test_actions_of_float16_are_in_their_space():
    env = make_env(HalfActions)
    env.reset(0)
    rng = np.random.default_rng(0)
    for action in (-np.ones(2), np.ones(2), *rng.uniform(-1, 1, (50, 2))):
        env.step(action.astype(np.float32))


class ClosesOnce(toys.ComplexActions):
    closed = 0

    def close(self):
        self.closed += 1


def test_an_environment_that_is_refused_is_closed_and_may_be_given_again_wrapped():
    refused, pixels = ClosesOnce(), toys.Pixels()
    with pytest.raises(TaskError, match=r"has actions in Dict.*; wrap it"):
        make_env(lambda: refused)
    assert refused.closed == 1
    make_env(lambda: TransformAction(refused, lambda action: 0, Box(-1, 1, (1,)))).close()
    with pytest.raises(TaskError, match="noise can be appended to state vectors only"):
        make_env(lambda: pixels, noise_dims=2)
    make_env(lambda: pixels).close()


def test_a_callable_that_gives_one_environment_twice_is_refused():
    shared = toys.Walk()
    wrapped = TimeLimit(shared, 9)
    first = make_env(lambda: shared)
    with pytest.raises(TaskError, match="gave the same environment twice; each call must make a new one"):
        make_env(lambda: wrapped)
    first.close()
    make_env(lambda: wrapped).close()


class Exits(toys.Toy):
    def outcome(self, action):
        raise SystemExit(7)


class OldStep(toys.Toy):
    def step(self, action) -> Any:
        return self.observe(), 0.0, False, {}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Exits, r"failed in step\(action\): SystemExit: 7"),
        (
            lambda: TimeLimit(OldStep(), 9),
            r"unpack .*; step\(action\) must give \(obs, reward, terminated, truncated, info\)",
        ),
        (OldStep, r"step\(action\) gave 4 values, expected \(obs, reward"),
    ],
)
def test_what_an_environment_does_wrong_is_an_error_of_its_own(make, message):
    env = make_env(make)
    env.reset(0)
    with pytest.raises(EnvError, match=message):
        env.step(np.zeros(1, np.float32))


def test_an_environment_that_cannot_be_closed_loses_nothing(capsys):
    env = make_env(toys.NotClosed)
    env.reset(0)
    env.close()
    assert re.search(
        r"NotClosed failed in close\(\): RuntimeError: no hands left \(.*toys.py, line", capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dmc/dog-rum", "unknown task 'dmc/dog-rum'; did you mean 'dmc/dog-run'? List: dr-q tasks dmc"),
        (
            "dmc/nothing-like-it",
            "unknown task 'dmc/nothing-like-it'; tasks are spelled dmc/DOMAIN-TASK. List: dr-q tasks dmc",
        ),
        ("dmc/point-mass-easy", "unknown task 'dmc/point-mass-easy'; did you mean 'dmc/point_mass-easy'? List"),
        ("xyz", "unknown task 'xyz'; a task is gym/ID, dmc/DOMAIN-TASK, dmc-visual/DOMAIN-TASK, hbench/"),
        ("walker-run", "unknown task 'walker-run'; did you mean 'dmc/walker-run'? List: dr-q tasks"),
        ("gym/NoSuch-v0", "Gymnasium cannot make 'NoSuch-v0'"),
        ("no.module:NoSuch-v0", "there is no module no.module, neither in this folder"),
        (
            "tests/envs/toys.py:NoSuch-v0",
            "'tests/envs/toys.py' is not the name of a module; write tests.envs.toys:NoSuch",
        ),
        ("tests.envs.toys:NoSuch-v0", "tests.envs.toys was imported and registers no NoSuch-v0; it registers drq-"),
    ],
)
def test_unknown_names_get_one_line_with_what_to_do(name, message):
    with pytest.raises(TaskError) as error:
        make_env(name)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_module_ids_and_other_dmc_tasks_work():
    assert make_env("tests.envs.toys:drq-walk-v0").spec.obs == ObsSpec.vector(1)
    assert make_env("dmc/point_mass-easy").spec.action.dim == 2
    assert make_env("gym/Pendulum-v1").spec.action == ContinuousActions((-2.0,), (2.0,))


def test_all_73_tasks_by_name():
    tasks = paper_tasks()
    assert len(tasks) == 73
    count = {suite: len(suite_tasks(suite)) for suite in suites()}
    assert count == {
        "gym": 5,
        "dmc-easy": 21,
        "dmc-hard": 7,
        "dmc": 28,
        "dmc-visual": 12,
        "hbench": 14,
        "hbench-hand": 14,
        "atari": 57,
        "paper": 73,
        "all": 73 + 57,
    }
    assert tasks["hbench/h1hand-basketball-v0"].episode_length == 250
    assert tasks["gym/Ant-v4"].agent_steps == 1_000_000
    assert canonical("dmc/ball-in-cup-catch") == "dmc/ball_in_cup-catch"
    assert canonical("hbench/h1-sit-hard-v0") == "hbench/h1-sit_hard-v0"
    assert canonical("dmc/finger-turn-easy") == "dmc/finger-turn_easy"


@pytest.mark.parametrize("task", [t.name for t in [*suite_tasks("gym"), *suite_tasks("dmc")]])
def test_every_gym_and_dmc_task_steps(task):
    env = make_env(task)
    info = paper_tasks()[task]
    assert (env.spec.action_repeat, env.spec.episode_length) == (info.action_repeat, info.episode_length)
    obs = env.reset(0)[SINGLE]
    step = env.step(np.zeros(env.spec.action.dim, np.float32))
    assert obs.shape == step.obs[SINGLE].shape == env.spec.obs[SINGLE].shape
    assert np.isfinite(step.obs[SINGLE]).all()
    env.close()


def test_d5_streams_are_independent():
    seeds = [stream_seed(s, name, *where) for s in range(30) for name in ("train", "video") for where in [(0,), (1,)]]
    seeds += [
        stream_seed(s, "evaluation", step, episode) for s in range(30) for step in (0, 100) for episode in range(5)
    ]
    assert len(set(seeds)) == len(seeds)
    assert stream_seed(3, "train", 5) == stream_seed(3, "train", 5)


def test_the_simulators_of_the_paper_say_nothing_and_leave_nothing(tmp_path, monkeypatch, capfd, recwarn):
    monkeypatch.chdir(tmp_path)
    for task in ("gym/HalfCheetah-v4", "gym/Humanoid-v4", "dmc/humanoid-run", "dmc/quadruped-run"):
        env = make_env(task)
        env.reset(0)
        env.close()
    assert capfd.readouterr() == ("", "")
    assert [str(w.message) for w in recwarn] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((9, 9, 4), np.uint8), r"Drawn: render\(\) gave an image of shape \(9, 9, 4\), expected .*: RGB"),
        (np.zeros((9, 9, 3)), r"Drawn: render\(\) gave float64, expected uint8, from 0 to 255"),
    ],
)
def test_images_of_other_shapes_and_types_are_refused(image, message):
    class Drawn(toys.Toy):
        render_mode = "rgb_array"

        def render(self):
            return image

    with pytest.raises(EnvError, match=message):
        make_env(Drawn).render((9, 9))
