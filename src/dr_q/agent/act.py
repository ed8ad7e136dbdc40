"""Choosing actions, in [-1, 1] or one-hot; the environment's own units are the adapters' matter."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from dr_q.agent.state import Networks
from dr_q.config import Config
from dr_q.equations import discrete_exploration_action, exploration_action
from dr_q.networks import DiscreteActor
from dr_q.spaces import ActionSpec, DiscreteActions

DISCRETE_NOISE = 0.5
"""Factor of the three noise settings for discrete actions: a one-hot action is in [0, 1], others in [-1, 1]."""


def greedy_action(networks: Networks, obs: dict[str, Array]) -> Float[Array, "A"]:
    """The actor's action for one observation, without noise.

    Args:
        networks: The networks, for instance `agent.online`.
        obs: One observation by part, without a batch axis.

    Returns:
        An action in [-1, 1], or one-hot.

    Example:
        ```python
        action = dr_q.agent.greedy_action(agent.online, {"obs": jnp.zeros(17)})
        ```
    """
    return networks.policy(jax.tree.map(lambda x: x[None], obs))[0]


def explore(config: Config, networks: Networks, obs: dict[str, Array], key: Key[Array, ""]) -> Float[Array, "A"]:
    """The actor's action for one observation, with exploration noise.

    Continuous actions get normal noise and are clipped to [-1, 1]. Discrete actions are sampled by Gumbel-softmax, get
    half the noise, and become one-hot.

    Args:
        config: The settings. It uses `exploration_noise` and `gumbel_temperature`.
        networks: The networks, for instance `agent.online`.
        obs: One observation by part, without a batch axis.
        key: Decides the noise.

    Returns:
        An action in [-1, 1], or one-hot.

    Example:
        ```python
        action = dr_q.agent.explore(config, agent.online, {"obs": jnp.zeros(17)}, jax.random.key(1))
        ```
    """
    if isinstance(networks.actor, DiscreteActor):
        return _explore_choices(config, networks, networks.actor, obs, key)
    action = greedy_action(networks, obs)
    return exploration_action(action, jax.random.normal(key, action.shape), config.exploration_noise)


def _explore_choices(
    config: Config, networks: Networks, actor: DiscreteActor, obs: dict[str, Array], key: Key[Array, ""]
) -> Float[Array, "A"]:
    key_gumbel, key_normal = jax.random.split(key)
    z_s = networks.policy.z_s(jax.tree.map(lambda x: x[None], obs))
    shape = (1, sum(actor.choices))
    soft = actor.sample(z_s, jax.random.gumbel(key_gumbel, shape), config.gumbel_temperature)
    noise = DISCRETE_NOISE * config.exploration_noise
    return discrete_exploration_action(soft, jax.random.normal(key_normal, shape), noise, actor.choices)[0]


def random_action(action: ActionSpec, key: Key[Array, ""]) -> Float[Array, "A"]:
    """A uniformly random action, as a run takes in its first `exploration_steps`.

    Args:
        action: The kind of actions, `spaces.action`.
        key: Decides the action.

    Returns:
        An action in [-1, 1], or one-hot.

    Example:
        ```python
        action = dr_q.agent.random_action(spaces.action, jax.random.key(0))
        ```
    """
    if not isinstance(action, DiscreteActions):
        return jax.random.uniform(key, (action.dim,), minval=-1, maxval=1)
    keys = jax.random.split(key, len(action.choices))
    drawn = [jax.random.randint(k, (), 0, count) for k, count in zip(keys, action.choices, strict=True)]
    return jnp.concatenate([jax.nn.one_hot(x, count) for x, count in zip(drawn, action.choices, strict=True)])
