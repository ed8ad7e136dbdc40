"""What one agent is: its networks, their targets, and the optimisers' states."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from dr_q.config import Config
from dr_q.networks import Actor, DiscreteActor, Encoder, Normaliser, StateEncoder, TwinCritic, init_actor
from dr_q.spaces import ObsSpec, Spaces


class Networks(eqx.Module):
    """Encoder, actor and critics."""

    encoder: Encoder
    actor: Actor | DiscreteActor
    critic: TwinCritic
    normaliser: Normaliser | None = None
    """Of the observations that the encoder is given; None if they are not normalised. The targets' is not used."""

    @property
    def policy(self) -> "PolicyNetworks":
        """What acts."""
        return PolicyNetworks(self.encoder.state, self.actor, self.normaliser)

    def normalised(self, obs: dict[str, Any]) -> dict[str, Any]:
        """Observations as the encoder takes them, of what the environment and the replay give."""
        return obs if self.normaliser is None else self.normaliser(obs)


class PolicyNetworks(eqx.Module):
    """f and the actor: all that acting needs."""

    state: StateEncoder
    actor: Actor | DiscreteActor
    normaliser: Normaliser | None = None

    def __call__(self, obs: dict[str, Array]) -> Float[Array, "B A"]:
        """Actions for a batch of observations: in [-1, 1], or one-hot."""
        return self.actor(self.z_s(obs))

    def z_s(self, obs: dict[str, Array]) -> Float[Array, "B zs"]:
        """Latent states of a batch of observations."""
        return self.state(obs if self.normaliser is None else self.normaliser(obs))


class Agent(eqx.Module):
    """An agent of one seed. A value: updates return a new one."""

    online: Networks
    """The networks that act and learn."""
    target: Networks
    """Their copy from the last target update."""
    encoder_optimiser: optax.OptState
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    reward_scale: Float[Array, ""]
    """Mean absolute reward at the last target update, the unit of the critics' values; 1 without reward scaling."""
    target_reward_scale: Float[Array, ""]
    """The same at the target update before, the unit of the target critics' values."""


def init_networks(config: Config, spaces: Spaces, key: Key[Array, ""]) -> Networks:
    """Fresh networks for a task."""
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
    """An agent around networks, fresh or loaded; its targets are a copy of them."""
    return Agent(
        online=networks,
        target=jax.tree.map(jnp.copy, networks),
        encoder_optimiser=_start(encoder_optimiser(config), networks.encoder),
        actor_optimiser=_start(actor_optimiser(config), networks.actor),
        critic_optimiser=_start(critic_optimiser(config), networks.critic),
        reward_scale=jnp.ones(()),
        target_reward_scale=jnp.ones(()),
    )


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
