"""Policies of observations with several parts take what their environment gives."""

import json

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

import dr_q
from dr_q.envs import make_env
from dr_q.policies.export import export_policy
from dr_q.policies.watch import evaluate_policy
from dr_q.spaces import SINGLE
from tests.envs import mixed_toys, toys
from tests.envs.test_mixed_spaces import OneImage
from tests.policies.test_policy import policy_of


def test_an_episode_stacks_every_image_as_training_does(tmp_path):
    policy, env, own = policy_of(mixed_toys.Nested, tmp_path), make_env(mixed_toys.Nested), mixed_toys.Nested()
    obs, (given, _) = env.reset(0), own.reset(seed=0)
    playing = policy.episode()
    for _ in range(4):
        action = playing.act(given)
        assert own.action_space.contains(action)
        unit = policy.act_parts({name: x[None] for name, x in obs.items()})[0]
        np.testing.assert_array_equal(action, policy._to_env(unit))
        nested = {**given, "cameras": {name: obs[f"cameras/{name}"] for name in ("front", "wrist")}}
        np.testing.assert_array_equal(policy.act(nested), action)  # images stacked by the caller
        obs, given = env.step(unit).obs, own.step(action)[0]


def test_a_batch_of_every_part(tmp_path):
    policy, own = policy_of(mixed_toys.ImageGoal, tmp_path), mixed_toys.ImageGoal()
    rng = np.random.default_rng(0)
    batch = {"camera": rng.integers(0, 256, (5, 3, 32, 32), np.uint8), "position": rng.normal(size=(5, 1))}
    actions = policy.act(batch)
    assert actions.shape == (5,)
    for row in range(5):
        assert policy.act({name: x[row] for name, x in batch.items()}) == actions[row]
        assert own.action_space.contains(policy.act({name: x[row] for name, x in batch.items()}))
    with pytest.raises(ValueError, match=r"observation of {.*}; expected one of each part, or batches of one size"):
        policy.act({**batch, "position": np.zeros(1)})
    with pytest.raises(ValueError, match="observation without 'position': got camera; expected camera, position"):
        policy.act({"camera": batch["camera"]})
    with pytest.raises(ValueError, match=r"'camera' of shape \(32, 32, 1\); expected \(3, 32, 32\).*policy.episode"):
        policy.act(own.reset(seed=0)[0])
    with pytest.raises(ValueError, match="images 'camera' of float64; expected uint8"):
        policy.act({**batch, "camera": batch["camera"].astype(float)})
    with pytest.raises(ValueError, match="observations have several parts"):
        _ = policy.obs_shape


def test_choices_and_numbers_are_taken_as_given_or_flattened(tmp_path):
    policy, own = policy_of(mixed_toys.Choices, tmp_path), mixed_toys.Choices()
    obs, _ = own.reset(seed=0)
    flat = gymnasium.spaces.flatten(own.observation_space, obs)
    with pytest.warns(UserWarning, match="a flat observation is taken in the order at/0"):
        np.testing.assert_array_equal(policy.act(obs), policy.act(flat))
    many = {"at": (np.array([0, 2]), np.zeros((2, 2))), "bits": np.zeros((2, 2))}
    assert policy.act(many).shape == (2, 1)
    one = {"at": (2, np.zeros(2)), "bits": np.zeros(2)}
    np.testing.assert_allclose(policy.act(one), policy.act(many)[1], atol=1e-6)
    with pytest.raises(ValueError, match=r"is not among \(3,\) choices"):
        policy.act({**one, "at": (3, np.zeros(2))})


def test_a_choice_alone(tmp_path):
    policy = policy_of("gym/FrozenLake-v1", tmp_path)
    actions = policy.act(np.arange(16))
    assert actions.shape == (16,)
    for state in range(16):
        expected = policy._to_env(policy.act_parts({SINGLE: np.eye(16, dtype=np.float32)[state][None]})[0])
        assert policy.act(np.int64(state)) == actions[state] == expected


def test_a_dict_of_one_image(tmp_path):
    policy, own = policy_of(OneImage, tmp_path), OneImage()
    given, _ = own.reset(seed=0)
    stacked = make_env(OneImage).reset(0)["obs"]
    np.testing.assert_array_equal(policy.episode().act(given), policy.act({"obs": stacked}))
    np.testing.assert_array_equal(policy.act(stacked), policy.act({"obs": stacked}))


def test_an_exported_policy_of_several_parts(tmp_path):
    policy = policy_of(mixed_toys.ImageGoal, tmp_path / "run")
    exported = export_policy(tmp_path / "run", tmp_path / "out", precision="float32", episodes=0).folder
    batch = {"camera": np.full((3, 32, 32), 9, np.uint8), "position": np.zeros(1)}
    assert dr_q.load(exported).act(batch) == policy.act(batch)
    assert "playing.act(obs)  # one observation after the other" in (exported / "README.md").read_text()


def test_a_policy_normalises_as_it_was_trained(tmp_path):
    policy = policy_of(mixed_toys.Large, tmp_path / "run", normalise_observations="all")
    normaliser = policy._networks.normaliser
    assert normaliser is not None
    assert set(normaliser.mean) == {SINGLE}
    env = make_env(mixed_toys.Large)
    seen = [env.reset(0)[SINGLE], *(env.step(np.zeros(1, np.float32)).obs[SINGLE] for _ in range(8))]
    for x in seen:
        normaliser = normaliser.add(env.spec.obs, {SINGLE: jnp.asarray(x)})
    np.testing.assert_allclose(normaliser.mean[SINGLE], np.mean(seen, axis=0), rtol=1e-5)
    np.testing.assert_allclose(normaliser.variance[SINGLE], np.var(seen, axis=0), rtol=1e-4)
    scaled = normaliser({SINGLE: jnp.asarray(np.array(seen))})[SINGLE]
    np.testing.assert_allclose(np.mean(scaled, axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(np.std(scaled, axis=0), 1, atol=1e-3)
    assert float(np.abs(normaliser({SINGLE: jnp.asarray([1e9, -1e9])})[SINGLE]).max()) == 10
    exported = dr_q.load(export_policy(tmp_path / "run", tmp_path / "out", episodes=0).folder)._networks.normaliser
    assert exported is not None
    assert exported.variance[SINGLE].dtype == normaliser.variance[SINGLE].dtype == jnp.float32
    np.testing.assert_array_equal(exported.variance[SINGLE], [1, 1])


def test_one_hot_entries_are_not_normalised(tmp_path):
    policy = policy_of(mixed_toys.Choices, tmp_path, normalise_observations="all")
    normaliser, spec = policy._networks.normaliser, make_env(mixed_toys.Choices).spec.obs
    assert normaliser is not None
    for t in range(4):
        normaliser = normaliser.add(
            spec, {SINGLE: jnp.asarray([t == 0, t == 1, t == 2, 3.0 * t, 1, 0, 1], jnp.float32)}
        )
    np.testing.assert_array_equal(normaliser.mean[SINGLE][:3], 0)
    np.testing.assert_array_equal(normaliser.variance[SINGLE][:3], 1)
    assert normaliser.mean[SINGLE][3] == 4.5


@pytest.mark.parametrize(
    ("toy", "which", "message"),
    [
        (
            mixed_toys.ImageGoal,
            "camera",
            "normalise_observations names 'camera'; parts that can be normalised: position;",
        ),
        (
            toys.Walk,
            "joints",
            r"parts that can be normalised: obs \(without images an observation is one part\); or give all",
        ),
    ],
)
def test_what_cannot_be_normalised_is_refused(toy, which, message, tmp_path):
    with pytest.raises(dr_q.ConfigError, match=message):
        dr_q.train(toy, steps=5, out=tmp_path / "run", normalise_observations=which)
    assert not (tmp_path / "run").exists()


def test_a_policy_of_other_observations_than_its_task_gives_is_refused(tmp_path):
    """As a Dict with an image was one vector in earlier versions."""
    policy_of(toys.Walk, tmp_path)
    file = tmp_path / "policy" / "policy.json"
    task = "tests.envs.mixed_toys:drq-image-goal-v0"
    file.write_text(json.dumps({**json.loads(file.read_text()), "task": task}))
    with pytest.raises(
        dr_q.TaskError, match=r"with observations of {'obs': \(1,\)}, and gives {'camera': .* now; use"
    ) as caught:
        evaluate_policy(tmp_path, None, 1)
    assert "\n" not in str(caught.value)
