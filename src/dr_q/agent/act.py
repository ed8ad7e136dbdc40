"""Choosing actions, in [-1, 1]; scaling to an environment's bounds happens around the agent."""

import jax
from jaxtyping import Array, Float, Key

from dr_q.agent.state import Networks
from dr_q.config import Config
from dr_q.equations import exploration_action


def greedy_action(networks: Networks, obs: Array) -> Float[Array, "A"]:
    """The actor's action for one observation, without noise."""
    return networks.actor(networks.encoder.z_s(obs[None]))[0]


def explore(config: Config, networks: Networks, obs: Array, key: Key[Array, ""]) -> Float[Array, "A"]:
    """The actor's action for one observation, with exploration noise."""
    action = greedy_action(networks, obs)
    return exploration_action(action, jax.random.normal(key, action.shape), config.exploration_noise)


def random_action(action_dim: int, key: Key[Array, ""]) -> Float[Array, "A"]:
    """A uniform action, as taken for the first `exploration_steps`."""
    return jax.random.uniform(key, (action_dim,), minval=-1, maxval=1)
