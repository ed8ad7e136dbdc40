"""Gymnasium's nested spaces as named parts."""

import numpy as np
import pytest
from gymnasium import spaces

from dr_q.envs import make_env
from dr_q.kit import EnvError, TaskError
from dr_q.spaces import (
    SINGLE,
    DiscreteActions,
    Image,
    ObsSpec,
    Vector,
    at_path,
    one_hot,
    random_unit_action,
    spaces_from_json,
    spaces_to_json,
)
from tests.envs import mixed_toys, toys

ARM = Vector(4, fields=(("", (2, 2)),))
CHOICE = Vector(3, fields=(("", ()),), choices=(("", (3,), (1,)),))
MODE = Vector(5, fields=(("", (2,)),), choices=(("", (2, 3), (0, 0)),))


def test_each_entry_of_an_observation_with_images_is_a_part():
    env = make_env(mixed_toys.Nested)
    parts = dict(env.spec.obs.parts)
    assert parts == {
        "cameras/front": Image(3, 33, 40, stack=3),
        "cameras/wrist": Image(1, 32, 32, stack=3),
        "arm/0": ARM,
        "arm/1": CHOICE,
        "mode": MODE,
        "lamps": Vector(3),
    }
    assert env.spec.action == DiscreteActions((2, 3), (), (2,))
    assert spaces_from_json(spaces_to_json(env.spec.spaces)) == env.spec.spaces
    obs = env.reset(0)
    for _ in range(4):
        obs = env.step(np.array([1, 0, 0, 1, 0], np.float32)).obs
    np.testing.assert_array_equal(obs["cameras/front"][:, 0, 0], [2, 2, 2, 3, 3, 3, 4, 4, 4])
    np.testing.assert_array_equal(obs["cameras/wrist"][:, 0, 0], [102, 103, 104])
    np.testing.assert_array_equal(obs["arm/0"], [4, 5, 6, 7])
    np.testing.assert_array_equal(obs["arm/1"], [0, 1, 0])  # 2, of 1 to 3
    np.testing.assert_array_equal(obs["mode"], [1, 0, 0, 1, 0])
    np.testing.assert_array_equal(obs["lamps"], [1, 0, 0])
    for name, part in env.spec.obs.parts:
        assert (obs[name].shape, obs[name].dtype) == (part.shape, part.dtype)
    np.testing.assert_array_equal(env.reset(1)["cameras/wrist"][:, 0, 0], [100, 100, 100])  # the stack begins anew


def test_without_images_an_observation_is_one_vector_as_gymnasium_flattens_it():
    env, own = make_env(mixed_toys.Choices), mixed_toys.Choices()
    ((name, part),) = env.spec.obs.parts
    assert name == SINGLE
    assert isinstance(part, Vector)
    assert part.size == 7
    obs, (given, _) = env.reset(0), own.reset(seed=0)
    for _ in range(3):
        np.testing.assert_array_equal(obs[SINGLE], spaces.flatten(own.observation_space, given))
        obs, given = env.step(np.zeros(1, np.float32)).obs, own.step(np.zeros(1))[0]
    hot = next(i for i, x in enumerate(part.fields) if x[0] == "at/0")
    assert part.fields[hot] == ("at/0", ())
    assert part.is_number.tolist() == [False] * 3 + [True] * 4


def test_a_choice_alone_is_one_hot():
    env = make_env("gym/FrozenLake-v1")
    assert env.spec.obs == ObsSpec.single(Vector(16, fields=(("", ()),), choices=(("", (16,), (0,)),)))
    np.testing.assert_array_equal(env.reset(0)[SINGLE], np.eye(16)[0])


class OneImage(toys.Toy):
    """A Dict of nothing but an image, under the name that plain observations have."""

    observation_space = spaces.Dict({"obs": spaces.Box(0, 255, (40, 32, 4), np.uint8)})

    def observe(self):
        return {"obs": np.full((40, 32, 4), self.t, np.uint8)}


class SmallBoard(toys.Toy):
    """A board is no image."""

    observation_space = spaces.Dict({"board": spaces.Box(0, 9, (7, 7, 3), np.uint8), "x": spaces.Box(-1, 1, (1,))})

    def observe(self):
        return {"board": np.full((7, 7, 3), 5, np.uint8), "x": np.zeros(1, np.float32)}


class Turned(toys.Toy):
    observation_space = spaces.Dict({"camera": spaces.Box(0, 255, (3, 64, 64), np.uint8)})


class WithText(toys.Toy):
    observation_space = spaces.Dict({"camera": spaces.Box(0, 255, (64, 64, 3), np.uint8), "mission": spaces.Text(10)})


class Empty(toys.Toy):
    observation_space = spaces.Dict({})


class NoNumbers(toys.Toy):
    observation_space = spaces.Box(-1, 1, (0,), np.float32)


class NoNumbersInADict(toys.Toy):
    observation_space = spaces.Dict({"a": spaces.Box(-1, 1, (0,)), "b": spaces.MultiDiscrete([])})


class NoNumbersNextToAnImage(toys.Toy):
    observation_space = spaces.Dict({"camera": spaces.Box(0, 255, (64, 64, 3), np.uint8), "x": spaces.Box(-1, 1, (0,))})


class NoChannels(toys.Toy):
    observation_space = spaces.Box(0, 255, (64, 64, 0), np.uint8)


class NothingToSay(toys.Toy):
    """One entry is empty, the vector of all is not."""

    observation_space = spaces.Dict({"none": spaces.Box(-1, 1, (0,)), "x": spaces.Box(-1, 1, (2,))})

    def observe(self):
        return {"none": np.zeros(0, np.float32), "x": np.ones(2, np.float32)}


def test_an_empty_entry_adds_nothing_to_a_vector():
    np.testing.assert_array_equal(make_env(NothingToSay).reset(0)[SINGLE], [1, 1])


def test_a_dict_of_one_image():
    env = make_env(OneImage)
    assert env.spec.obs == ObsSpec.single(Image(4, 40, 32, stack=3))
    assert env.reset(0)["obs"].shape == (12, 40, 32)


def test_small_arrays_of_bytes_are_numbers():
    part = make_env(SmallBoard).spec.obs[SINGLE]
    assert part.shape == (148,)


@pytest.mark.parametrize(
    ("toy", "message"),
    [
        (Turned, r"images of \(3, 64, 64\) .*channels come last: wrap it to move them: .*TransformObservation"),
        (
            WithText,
            r"WithText has observations in Text.* at '.*'; DR.Q needs Box.*FilterObservation.*TransformObservation",
        ),
        (Empty, r"Empty has observations in Dict\(\); DR.Q needs Box"),
        (NoNumbers, r"NoNumbers has observations in Box.*, which is empty; .*wrappers.TransformObservation"),
        (NoNumbersInADict, r"NoNumbersInADict has observations in Dict.*, which is empty; .*TransformObservation"),
        (NoNumbersNextToAnImage, r"has observations 'x' in Box.*, which is empty; "),
        (NoChannels, r"NoChannels has observations in Box.*\(64, 64, 0\), uint8\), which is empty; "),
    ],
)
def test_what_cannot_be_observed_is_refused(toy, message):
    with pytest.raises(TaskError, match=message) as caught:
        make_env(toy)
    assert "\n" not in str(caught.value)


class Wrong(mixed_toys.ImageGoal):
    """Gives something else than its space says."""

    gives: object = None

    def observe(self):
        return self.gives


@pytest.mark.parametrize(
    ("gives", "message"),
    [
        ({"camera": np.zeros((32, 32, 1), np.uint8)}, "gave an observation without 'position'; its keys are camera"),
        ({"camera": np.zeros((32, 31, 1), np.uint8), "position": [0.0]}, r"gave an image of shape \(32, 31, 1\)"),
        ({"camera": np.full((32, 32, 1), 0.5), "position": [0.0]}, "gave an image of float64; its space has uint8"),
        ({"camera": np.full((32, 32, 1), 300), "position": [0.0]}, "gave an image of int64; .*TransformObservation"),
        ({"camera": np.zeros((32, 32, 1), np.uint8), "position": [np.nan]}, "NaN or infinite in 'position'"),
    ],
)
def test_an_observation_that_is_not_of_its_space(gives, message, monkeypatch):
    monkeypatch.setattr(Wrong, "gives", gives)
    with pytest.raises(EnvError, match=message) as caught:
        make_env(Wrong).reset(0)
    assert "\n" not in str(caught.value)


def test_noise_is_appended_to_the_first_vector_of_several_parts():
    env = make_env(mixed_toys.ImageGoal, noise_dims=5)
    assert env.spec.obs["position"].shape == (6,)
    assert env.spec.obs["camera"] == Image(1, 32, 32, stack=3)
    obs, other = env.reset(0), make_env(mixed_toys.ImageGoal).reset(0)
    np.testing.assert_array_equal(obs["camera"], other["camera"])
    assert obs["position"][0] == other["position"][0]
    assert 0 < np.std(obs["position"][1:]) < 1
    again = env.step(np.array([1, 0], np.float32)).obs
    assert not np.array_equal(obs["position"][1:], again["position"][1:])


def test_paths_through_dicts_and_tuples():
    nested = {"a": {"b/c": 1, "d": (2, [3, {"e": 4}])}, "f/g": 5}
    paths = {"a/b/c": 1, "a/d/0": 2, "a/d/1/0": 3, "a/d/1/1/e": 4, "f/g": 5}
    assert {path: at_path(nested, path) for path in paths} == paths
    for path in ("a/x", "a/d/7", "a/d/0/1", "h", ""):
        with pytest.raises(KeyError):
            at_path(nested, path)


def test_one_hot_refuses_what_is_no_choice():
    np.testing.assert_array_equal(one_hot([[1, 4], [0, 3]], (2, 2), (0, 3)), [[0, 1, 0, 1], [1, 0, 1, 0]])
    for wrong in ([2, 3], [0, 2], [0, 5], [0.5, 3]):
        with pytest.raises(ValueError, match="is not among"):
            one_hot(wrong, (2, 2), (0, 3))


def test_one_hot_vectors_take_the_memory_of_their_entries_alone():
    """Of a million choices: a matrix of all one-hot vectors would take terabytes."""
    many = 1_000_000
    rows = one_hot([[3, many - 1], [0, 0]], (4, many), (0, 0))
    assert (rows.shape, rows.dtype, rows.sum()) == ((2, 4 + many), np.float32, 4)
    assert np.flatnonzero(rows[0]).tolist() == [3, 4 + many - 1]
    drawn = random_unit_action(DiscreteActions((many, 3)), np.random.default_rng(0))
    rng = np.random.default_rng(0)
    assert np.flatnonzero(drawn).tolist() == [rng.integers(many), many + rng.integers(3)]
