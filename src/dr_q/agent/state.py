"""What one agent is: its networks, their targets, and the optimisers' states."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from dr_q import replay
from dr_q.config import Config
from dr_q.networks import Actor, Encoder, TwinCritic


@dataclasses.dataclass(frozen=True)
class TaskShape:
    """What the agent must know of a task."""

    obs_shape: tuple[int, ...]
    """(dim,) for vectors; (stacked channels, height, width) for pixels."""
    action_dim: int
    """Dimensions of an action."""
    history: int = 1
    """Frames stacked into one observation; 1 for vectors."""

    @property
    def pixels(self) -> bool:
        """Whether observations are images."""
        return len(self.obs_shape) == 3

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of one frame of the stack."""
        first, *rest = self.obs_shape
        if first % self.history:
            raise ValueError(f"{first} channels cannot be a stack of {self.history} frames")
        return (first // self.history, *rest)


class Networks(eqx.Module):
    """Encoder, actor and critics."""

    encoder: Encoder
    actor: Actor
    critic: TwinCritic


class Agent(eqx.Module):
    """An agent of one seed. A value: updates return a new one."""

    online: Networks
    """The networks that act and learn."""
    target: Networks
    """Their copy from the last renewal."""
    encoder_optimiser: optax.OptState
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    reward_scale: Float[Array, ""]
    """Mean absolute reward at the last renewal, the unit of the critics' values; 1 without reward scaling."""
    target_reward_scale: Float[Array, ""]
    """The same at the renewal before, the unit of the target critics' values."""


def init_networks(config: Config, shape: TaskShape, key: Key[Array, ""]) -> Networks:
    """Fresh networks for a task."""
    key_encoder, key_actor, key_critic = jax.random.split(key, 3)
    return Networks(
        encoder=Encoder.init(
            key_encoder,
            shape.obs_shape,
            shape.action_dim,
            zs_dim=config.zs_dim,
            za_dim=config.za_dim,
            zsa_dim=config.zsa_dim,
            hidden=config.encoder_hidden,
            activation=config.encoder_activation,
            reward_bins=config.reward_bins,
            predict_done=config.predict_done,
        ),
        actor=Actor.init(key_actor, config.zs_dim, shape.action_dim, config.actor_hidden, config.actor_activation),
        critic=TwinCritic.init(key_critic, config.zsa_dim, config.critic_hidden, config.critic_activation),
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


def init_replay(
    config: Config, shape: TaskShape, capacity: int | None = None, *, frames_elsewhere: bool = False
) -> replay.Replay:
    """An empty replay for a task; `capacity` slots where the run needs fewer than the config allows."""
    spec = replay.ReplaySpec(
        capacity=config.replay_capacity if capacity is None else capacity,
        frame_shape=shape.frame_shape,
        action_dim=shape.action_dim,
        pixels=shape.pixels,
        history=shape.history,
        horizon=config.horizon,
        fade_decay=config.fade_decay,
        fade_floor=config.fade_floor,
        frames_elsewhere=frames_elsewhere,
    )
    return replay.init(spec, config.min_priority**config.priority_exponent)


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
    return optimiser.init(parameters)
