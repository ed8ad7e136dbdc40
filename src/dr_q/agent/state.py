"""What one agent is: its networks, their targets, and the optimisers' states."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from dr_q.config import Config
from dr_q.networks import (
    Actor,
    DiscreteActor,
    Encoder,
    Normaliser,
    Rounded,
    StateEncoder,
    TwinCritic,
    init_actor,
    round_weights,
)
from dr_q.spaces import ObsSpec, Spaces


class Networks(eqx.Module):
    """The networks of one agent: encoder, actor and twin critics."""

    encoder: Encoder
    """f, g and M of the paper."""
    actor: Actor | DiscreteActor
    """The actor pi."""
    critic: TwinCritic
    """The critics Q1 and Q2."""
    normaliser: Normaliser | None = None
    """Running mean and variance of observations; None if they are not normalised. Only the online one is used."""

    @property
    def policy(self) -> "PolicyNetworks":
        """The networks that acting needs."""
        return PolicyNetworks(self.encoder.state, self.actor, self.normaliser)

    def normalised(self, obs: dict[str, Any]) -> dict[str, Any]:
        """Observations as the encoder takes them.

        Args:
            obs: Observations as the environment and the replay give them, with any leading axes.

        Returns:
            The observations, normalised if there is a normaliser.
        """
        return obs if self.normaliser is None else self.normaliser(obs)


class PolicyNetworks(eqx.Module):
    """The networks that acting needs: the state encoder f and the actor."""

    state: StateEncoder
    """The state encoder f."""
    actor: Actor | DiscreteActor
    """The actor pi."""
    normaliser: Normaliser | None = None
    """Running mean and variance of observations; None if they are not normalised."""

    def __call__(self, obs: dict[str, Array]) -> Float[Array, "B A"]:
        """Actions for a batch of observations, without noise.

        Args:
            obs: Observations by part, [B, ...].

        Returns:
            Actions in [-1, 1], or one-hot.
        """
        return self.actor(self.z_s(obs))

    def z_s(self, obs: dict[str, Array]) -> Float[Array, "B zs"]:
        """Latent states of a batch of observations.

        Args:
            obs: Observations by part, [B, ...]; not normalised yet.

        Returns:
            Latent states z_s.
        """
        return self.state(obs if self.normaliser is None else self.normaliser(obs))


class RoundedNetworks(NamedTuple):
    """What the weights of an agent's networks are rounded to for products of 16 bit."""

    encoder: Rounded
    actor: Rounded
    critic: Rounded


class RoundedAgent(NamedTuple):
    """The same of the online and the target networks."""

    online: RoundedNetworks
    target: RoundedNetworks


class Agent(eqx.Module):
    """The agent of one seed. It is an immutable pytree: updates return a new agent.

    `dr_q.agent.init_agent` makes a fresh one, and `OpenedRun.agent` reads a trained one.
    """

    online: Networks
    """The networks that act and learn."""
    target: Networks
    """The target networks: a copy of the online networks at the last target update."""
    encoder_optimiser: optax.OptState
    """State of the encoder's AdamW."""
    actor_optimiser: optax.OptState
    """State of the actor's AdamW."""
    critic_optimiser: optax.OptState
    """State of the critics' AdamW."""
    reward_scale: Float[Array, ""]
    """Mean absolute reward at the last target update, the unit of the critics' values; 1 without `reward_scaling`."""
    target_reward_scale: Float[Array, ""]
    """Mean absolute reward at the target update before the last, the unit of the target critics' values."""
    rounded: RoundedAgent | None = None
    """Weights in 16 bit, which `--compute mixed` keeps between updates; None: they are rounded anew at each update."""


def init_networks(config: Config, spaces: Spaces, key: Key[Array, ""]) -> Networks:
    """Fresh networks for an environment.

    Args:
        config: The settings. It uses sizes, activations and `normalise_observations`.
        spaces: Observations and actions of the environment.
        key: Decides the initial weights.

    Returns:
        The networks.

    Raises:
        ConfigError: `normalise_observations` names a part that the observations do not have, or an image.

    Example:
        ```python
        config = dr_q.preset("quick")
        spaces = dr_q.Spaces(dr_q.ObsSpec.vector(17), dr_q.ContinuousActions((-1.0,) * 6, (1.0,) * 6))
        networks = dr_q.agent.init_networks(config, spaces, jax.random.key(0))
        ```
    """
    key_encoder, key_actor, key_critic = jax.random.split(key, 3)
    return Networks(
        encoder=Encoder.init(
            key_encoder,
            spaces,
            zs_dim=config.zs_dim,
            za_dim=config.za_dim,
            zsa_dim=config.zsa_dim,
            hidden=config.encoder_hidden,
            activation=config.encoder_activation,
            reward_bins=config.reward_bins,
            predict_done=config.predict_done,
        ),
        actor=init_actor(key_actor, config.zs_dim, spaces.action, config.actor_hidden, config.actor_activation),
        critic=TwinCritic.init(key_critic, config.zsa_dim, config.critic_hidden, config.critic_activation),
        normaliser=Normaliser.init(spaces.obs, config.normalise_observations),
    )


def init_agent(config: Config, networks: Networks) -> Agent:
    """An agent around networks, with fresh optimisers. The target networks are a copy of the networks.

    Args:
        config: The settings. It uses learning rates and weight decays.
        networks: Fresh or loaded networks.

    Returns:
        The agent.

    Example:
        ```python
        networks = dr_q.agent.init_networks(config, spaces, jax.random.key(0))
        agent = dr_q.agent.init_agent(config, networks)
        ```
    """
    return Agent(
        online=networks,
        target=jax.tree.map(jnp.copy, networks),
        encoder_optimiser=_start(encoder_optimiser(config), networks.encoder),
        actor_optimiser=_start(actor_optimiser(config), networks.actor),
        critic_optimiser=_start(critic_optimiser(config), networks.critic),
        reward_scale=jnp.ones(()),
        target_reward_scale=jnp.ones(()),
    )


def round_agent(config: Config, agent: Agent) -> Agent:
    """The agent with what its weights are rounded to, if the setting `compute` asks for that; updates keep it true."""
    if config.compute == "float32":
        return agent
    online, target = (
        RoundedNetworks(round_weights(of.encoder), round_weights(of.actor), round_weights(of.critic))
        for of in (agent.online, agent.target)
    )
    return dataclasses.replace(agent, rounded=RoundedAgent(online, _without_gradients(target)))


def round_targets(rounded: RoundedAgent) -> RoundedAgent:
    """The same after the online networks became the target networks."""
    return rounded._replace(target=jax.tree.map(jnp.copy, _without_gradients(rounded.online)))


def _without_gradients(networks: RoundedNetworks) -> RoundedNetworks:
    return RoundedNetworks(*(network._replace(backward=None) for network in networks))


def note_observation(obs: ObsSpec, agent: Agent, frame: dict[str, Array]) -> Agent:
    """Let the normaliser see an observation, of which `frame` is the newest step."""
    assert agent.online.normaliser is not None
    return _with_normaliser(agent, agent.online.normaliser.add(obs, frame))


def note_observations(obs: ObsSpec, agent: Agent, frames: dict[str, Array]) -> Agent:
    """The same for several, one after the other along a leading axis."""
    assert agent.online.normaliser is not None

    def add(normaliser: Normaliser, frame: dict[str, Array]) -> tuple[Normaliser, None]:
        return normaliser.add(obs, frame), None

    return _with_normaliser(agent, jax.lax.scan(add, agent.online.normaliser, frames)[0])


def _with_normaliser(agent: Agent, normaliser: Normaliser) -> Agent:
    return dataclasses.replace(agent, online=dataclasses.replace(agent.online, normaliser=normaliser))


def encoder_optimiser(config: Config) -> optax.GradientTransformation:
    """AdamW of the encoder; weight decay on every parameter, biases included."""
    return optax.adamw(config.encoder_learning_rate, weight_decay=config.encoder_weight_decay)


def actor_optimiser(config: Config) -> optax.GradientTransformation:
    """AdamW of the actor."""
    return optax.adamw(config.actor_learning_rate, weight_decay=config.actor_weight_decay)


def critic_optimiser(config: Config) -> optax.GradientTransformation:
    """AdamW of both critics."""
    return optax.adamw(config.critic_learning_rate, weight_decay=config.critic_weight_decay)


def _start(optimiser: optax.GradientTransformation, parameters: Any) -> optax.OptState:
    return optimiser.init(parameters)  # Any: optax's own type has no modules
