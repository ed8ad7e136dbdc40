"""Policies of discrete actions: the largest logit, in the environment's own numbers."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import dr_q
from dr_q import agent as drq
from dr_q.agent.act import explore
from dr_q.config import preset
from dr_q.envs import make_env
from dr_q.policies.export import export_policy
from dr_q.policies.watch import random_returns
from dr_q.spaces import SINGLE, DiscreteActions
from tests.envs import toys
from tests.policies.test_policy import policy_of
from tests.training import tiny


class OneChoice(toys.Toy):
    action_space = spaces.Discrete(3, start=5)


class Grid(toys.Toy):
    """A matrix of choices, one of them from 2 on."""

    action_space = spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[0, 2], [0, 0]]))


class Switches(toys.Toy):
    action_space = spaces.MultiBinary(3)


class Told(toys.Toy):
    """Keeps the actions that it got."""

    action_space = spaces.Discrete(4, start=-1)

    def __init__(self):
        super().__init__()
        self.got: list[int] = []

    def step(self, action):
        assert self.action_space.contains(action)
        self.got.append(int(action))
        return self.observe(), 0.0, False, False, {}


@pytest.mark.parametrize("toy", [OneChoice, Grid, Switches])
def test_d11_the_largest_logit_acts_and_is_an_action_of_the_environment(toy, tmp_path):
    policy, env = policy_of(toy, tmp_path / "run"), toy()
    obs = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    actions = policy.act(obs)
    assert actions.shape == (64, *env.action_space.shape)
    assert all(env.action_space.contains(action) for action in actions)
    assert len(np.unique(actions.reshape(64, -1), axis=0)) > 1
    np.testing.assert_array_equal(policy.act(obs), actions)
    np.testing.assert_array_equal(policy.act(obs[7]), actions[7])
    unit, at = policy.act_unit(obs), 0
    networks = policy._networks
    logits = np.asarray(networks.actor.pre_activation(networks.z_s({SINGLE: jnp.asarray(obs)})))
    assert isinstance(policy.spaces.action, DiscreteActions)
    for count in policy.spaces.action.choices:
        np.testing.assert_array_equal(unit[:, at : at + count].argmax(1), logits[:, at : at + count].argmax(1))
        np.testing.assert_array_equal(unit[:, at : at + count].sum(1), 1)
        at += count
    exported = export_policy(tmp_path / "run", tmp_path / "out", precision="float32", episodes=0).folder
    np.testing.assert_array_equal(dr_q.load(exported).act(obs), actions)


def test_the_environment_gets_its_own_numbers():
    made = []

    def make():
        made.append(Told())
        return made[-1]

    env = make_env(make)
    assert env.spec.action == DiscreteActions((4,), (-1,))
    env.reset(0)
    for choice in (3, 0, 2):
        env.step(np.eye(4, dtype=np.float32)[choice])
    env.step(np.zeros(4, np.float32))  # what a seed that has diverged does
    assert made[0].got == [2, -1, 1, -1]


def test_one_choice_is_a_number_that_can_be_the_key_of_a_dict(tmp_path):
    """FrozenLake looks its outcome up in a dict: an array of no dimensions cannot be looked up."""
    env = make_env("gym/FrozenLake-v1")
    obs = env.reset(0)
    assert env.step(np.eye(4, dtype=np.float32)[1]).obs[SINGLE].shape == obs[SINGLE].shape
    policy, own = policy_of("gym/FrozenLake-v1", tmp_path / "run"), gymnasium.make("FrozenLake-v1")
    exported = export_policy(tmp_path / "run", tmp_path / "out", precision="float32", episodes=0).folder
    for acting in (policy, policy.episode(), dr_q.load(exported)):
        seen, _ = own.reset(seed=0)
        action = acting.act(seen)
        assert type(action) is np.int64
        own.step(action)
    assert isinstance(policy.act(np.arange(3)), np.ndarray)


def test_exploring_samples_every_action_and_random_actions_are_uniform():
    config = preset("dr.q", **tiny.SIZES)
    spec = make_env(Grid).spec.spaces
    networks = drq.init_networks(config, spec, jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 2_000)
    obs = {SINGLE: jnp.zeros(8)}
    many = jax.jit(jax.vmap(lambda key: explore(config, networks, obs, key)))
    for actions in (
        np.asarray(many(keys)),
        np.asarray(jax.vmap(lambda key: drq.random_action(spec.action, key))(keys)),
    ):
        np.testing.assert_array_equal(np.unique(actions), [0, 1])
        at = 0
        for count in (2, 3, 4, 5):
            np.testing.assert_array_equal(actions[:, at : at + count].sum(1), 1)
            assert actions[:, at : at + count].mean(0).min() > 0.05
            at += count
    shares = actions.mean(0)  # of the random ones
    np.testing.assert_allclose(shares, [1 / 2] * 2 + [1 / 3] * 3 + [1 / 4] * 4 + [1 / 5] * 5, atol=0.04)


def test_random_returns_of_a_discrete_task():
    returns = random_returns("gym/CartPole-v1", 5)
    assert 8 <= returns.min() <= returns.mean() < 60
