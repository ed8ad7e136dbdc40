"""What a saved policy takes and gives: what its environment gives and takes."""

import dataclasses
import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from gymnasium import spaces

import dr_q
from dr_q import agent as drq
from dr_q.cli import policies
from dr_q.config import preset
from dr_q.envs import make_env
from dr_q.policies import Policy, save_policies
from dr_q.policies.export import export_policy
from dr_q.spaces import SINGLE
from tests.envs import toys
from tests.training import tiny


class MatrixActions(toys.DictObs):
    action_space = spaces.Box(np.array([[-1.0], [0.0]]), np.array([[1.0], [5.0]]), (2, 1), np.float64)


class MatrixObs(toys.Toy):
    observation_space = spaces.Box(-1, 1, (2, 3), np.float32)


def policy_of(make, folder, **changes):
    spec = make_env(make).spec
    config = preset("dr.q", **tiny.SIZES, **changes)
    networks = drq.init_networks(config, spec.spaces, jax.random.key(0))
    stacked = jax.tree.map(lambda x: x[None], networks.policy)
    record = {"task": "toy", "best_seed": 0, "agent_steps": 0, "config": dataclasses.asdict(config)}
    save_policies(folder, spec.spaces, record, stacked, [0])
    return dr_q.load(folder)


def test_dicts_and_actions_of_any_shape(tmp_path):
    policy, env = policy_of(MatrixActions, tmp_path), MatrixActions()
    obs, _ = env.reset(seed=0)
    action = policy.act(obs)
    assert action.shape == (2, 1)
    assert env.action_space.contains(action)
    env.step(action)
    with pytest.warns(
        UserWarning, match=r"flat observation is taken in the order a \(2, 2\), b \(2,\); give its entries"
    ):
        assert np.array_equal(action, policy.act(spaces.flatten(env.observation_space, obs)))
    batch = {key: np.stack([x, 0 * x, x]) for key, x in obs.items()}
    actions = policy.act({"not of it": 1, **batch})
    assert actions.shape == (3, 2, 1)
    assert np.allclose(actions[[0, 2]], action, atol=1e-6)
    assert not np.allclose(actions[1], action)
    one = policy.act({key: x[None] for key, x in obs.items()})
    assert one.shape == (1, 2, 1)
    expected = r"expected {'a': \(2, 2\), 'b': \(2,\)}, or a batch"
    with pytest.raises(ValueError, match=r"observation of {'a': \(2, 2\)}; " + expected):
        policy.act({"a": obs["a"]})
    with pytest.raises(ValueError, match="observation 'b' is no array of numbers: "):
        policy.act({**obs, "b": [[1.0, 2.0], [3.0]]})
    with pytest.raises(ValueError, match=r"observation of {.*'b': \(2, 2\).*}; expected"):
        policy.act({**obs, "b": batch["b"][:2]})


def test_matrices(tmp_path):
    policy = policy_of(MatrixObs, tmp_path)
    obs = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(policy.act(obs), policy.act(obs.reshape(-1)))
    assert policy.act(np.stack([obs] * 4)).shape == (4, *policy.act(obs).shape)
    with pytest.raises(ValueError, match=r"observation of shape \(3, 2\); expected \(6,\), or a batch$"):
        policy.act(obs.T)
    with pytest.raises(ValueError, match=r"observation of {'x': \(2, 3\)}; expected an array of shape \(6,\)"):
        policy.act({"x": obs})


@pytest.mark.parametrize("shape", [(1, 6), ()])
def test_shapes_that_could_be_taken_for_a_batch(shape, tmp_path):
    class Shaped(toys.Toy):
        observation_space = spaces.Box(-1, 1, shape, np.float32)
        action_space = spaces.Box(-1, 1, shape, np.float32)

    policy = policy_of(Shaped, tmp_path)
    obs = np.full(shape, 0.5, np.float32)
    action = policy.act(obs)
    assert action.shape == shape
    assert np.array_equal(action.reshape(-1), policy.act(obs.reshape(-1)).reshape(-1))
    assert np.allclose(policy.act(np.stack([obs] * 3)), np.stack([action] * 3), atol=1e-6)


def test_policies_of_vectors_say_how_to_give_a_dict(tmp_path):
    """The first versions did not write what a vector is joined from."""
    policy = policy_of(toys.Walk, tmp_path)
    with pytest.raises(ValueError, match=r"expected an array of shape \(1,\), or a batch; of a Dict .*spaces.flatten"):
        policy.act(toys.DictObs().observe())


def test_a_policy_without_its_spaces_is_damaged(tmp_path):
    policy_of(toys.Walk, tmp_path)
    file = tmp_path / "policy" / "policy.json"
    record = json.loads(file.read_text())
    del record["spaces"]
    first = {"obs_shape": [1], "history": 1, "action_low": [-1], "action_high": [1]}  # format 1's, which this is not
    file.write_text(json.dumps({**record, **first}))
    with pytest.raises(dr_q.DamagedFileError, match=r"policy.json is damaged: it has no spaces"):
        dr_q.load(tmp_path)


def test_of_images_it_takes_the_last_three(tmp_path):
    policy = policy_of(toys.Pixels, tmp_path)
    expected = (
        r"expected \(9, 84, 84\), or a batch; of images the last 3, channels first: policy.episode.* stacks them$"
    )
    with pytest.raises(ValueError, match=r"observation of shape \(84, 84, 3\); " + expected):
        policy.act(np.zeros((84, 84, 3), np.uint8))
    with pytest.raises(ValueError, match="images of float64; expected uint8, from 0 to 255"):
        policy.act(np.zeros((9, 84, 84)))


def test_an_episode_joins_images_as_training_does(tmp_path):
    policy, env, own = policy_of(toys.Pixels, tmp_path), make_env(toys.Pixels), toys.Pixels()
    obs, (image, _) = env.reset(0), own.reset(seed=0)
    playing, still = policy.episode(), np.zeros(1, np.float32)
    for _ in range(5):
        np.testing.assert_array_equal(playing.act(image), policy.act(obs[SINGLE]))
        obs, image = env.step(still).obs, own.step(still)[0]
    assert not np.array_equal(policy.episode().act(image), playing.act(image))  # an episode remembers
    with pytest.raises(ValueError, match=r"image of shape \(3, 84, 84\); expected \(84, 84, 3\): height, width"):
        playing.act(np.zeros((3, 84, 84), np.uint8))


def test_an_episode_of_vectors_is_the_policy(tmp_path):
    policy = policy_of(MatrixObs, tmp_path)
    obs = np.linspace(-1, 1, 6).reshape(2, 3)
    np.testing.assert_array_equal(policy.episode().act(obs), policy.act(obs))


@pytest.mark.parametrize(
    ("make", "task", "said"),
    [
        (toys.Walk, "toys:Walk-v0", ["action = policy.act(obs)", "`dr-q eval THIS_FOLDER` plays"]),
        (toys.Walk, "callable:toys.Walk", ["action = policy.act(obs)"]),
        (toys.Pixels, "callable:toys.Pixels", ["playing = policy.episode()", "uint8 (84, 84, 3)"]),
    ],
)
def test_a_card_says_how_the_policy_is_used(make, task, said, tmp_path):
    policy_of(make, tmp_path)
    file = tmp_path / "policy" / "policy.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "task": task}))
    card = export_policy(tmp_path, tmp_path / "given", None, "float16", 0).folder / "README.md"
    text = card.read_text()
    assert all(line in text for line in said)
    assert ("dr-q eval" in text) == (not task.startswith("callable:"))


@pytest.mark.parametrize(
    ("returns", "asked", "text"),
    [
        ({3: 1.0}, None, "seed 3"),
        ({3: 2.0, 4: 1.0}, None, "seed 3 (best last evaluation)"),
        ({3: 2.0, 4: 1.0}, 3, "seed 3"),
    ],
)
def test_which_policy_it_is(returns, asked, text):
    assert policies._which(SimpleNamespace(seed=3, returns=returns, which="last"), asked) == text  # pyright: ignore


def test_policies_are_evaluated_in_an_environment_of_a_callable(tmp_path):
    policy = policy_of(toys.Walk, tmp_path / "run")
    played = dr_q.evaluate(policy, toys.Walk, episodes=3)
    assert played.returns.shape == (3,)
    assert (played.returns < 0).all()
    np.testing.assert_array_equal(dr_q.evaluate(tmp_path / "run", toys.Walk, episodes=3).returns, played.returns)
    of_callable = Policy(policy.networks, {**policy.record, "task": "callable:tests.envs.toys.Walk"}, policy.seed)
    with pytest.raises(dr_q.TaskError, match=r"use dr_q.evaluate\(policy, THE_CALLABLE\)"):
        dr_q.evaluate(of_callable)
    with pytest.raises(dr_q.TaskError, match="was trained on"):
        dr_q.evaluate(policy, toys.Bandit)
    best = dr_q.evaluate(tmp_path / "run", toys.Walk, episodes=3, seed=0)
    np.testing.assert_array_equal(best.returns, played.returns)
    with pytest.raises(dr_q.RunFolderError, match="no best policy"):
        dr_q.evaluate(tmp_path / "run", toys.Walk, which="best")
    with pytest.raises(dr_q.ConfigError, match="episodes must be a whole number of at least 1, got 0"):
        dr_q.evaluate(policy, toys.Walk, episodes=0)
