"""The losses of the actor (Eq. 12) and the critics' target (Eq. 13); the critics own their loss, `TwinCritic.loss`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from dr_q.agent.act import DISCRETE_NOISE
from dr_q.agent.state import Agent, Networks
from dr_q.config import Config
from dr_q.equations import discrete_target_action, gumbel_softmax, n_step_return, q_target, target_action
from dr_q.networks import Actor, DiscreteActor, Encoder, TwinCritic, for_compute
from dr_q.replay import NStepBatch


class CriticBatch(NamedTuple):
    """A batch for the critics and the actor."""

    obs: dict[str, Any]
    """Observations by part, [B, ...]; normalised if the agent normalises them."""
    action: Float[Array, "B A"]
    """Actions in [-1, 1], or one-hot."""
    n_step_reward: Float[Array, "B"]
    """Discounted sum of the next n rewards, up to a termination."""
    n_step_discount: Float[Array, "B"]
    """Discount of the value after n steps: gamma^n, or 0 after a termination."""
    next_obs: dict[str, Any]
    """Observations n steps later."""


class Gumbel(NamedTuple):
    """The Gumbel noise of one RL update with discrete actions."""

    target: Float[Array, "B A"]
    """For the target actor's action."""
    actor: Float[Array, "B A"]
    """For the action in the actor's loss."""


class ActionNoise(NamedTuple):
    """The noise of one RL update."""

    standard_normal: Float[Array, "B A"]
    """Standard normal numbers, which become the noise on the target actor's action."""
    gumbel: Gumbel | None
    """Gumbel noise for discrete actions; None for continuous ones."""


def draw_noise(actor: Actor | DiscreteActor, shape: tuple[int, ...], key: Key[Array, ""]) -> ActionNoise:
    """Draw the noise of one RL update.

    Args:
        actor: The actor; it decides whether Gumbel noise is needed.
        shape: Shape of the batch of actions, (B, A).
        key: Decides the noise.

    Returns:
        The noise, which `actor_critic_step` takes.

    Example:
        ```python
        noise = dr_q.agent.draw_noise(agent.online.actor, batch.action.shape, jax.random.key(0))
        agent, metrics = dr_q.agent.actor_critic_step(config, agent, batch, *noise)
        ```
    """
    if not isinstance(actor, DiscreteActor):
        return ActionNoise(jax.random.normal(key, shape), None)
    key_normal, key_target, key_actor = jax.random.split(key, 3)
    gumbel = Gumbel(jax.random.gumbel(key_target, shape), jax.random.gumbel(key_actor, shape))
    return ActionNoise(jax.random.normal(key_normal, shape), gumbel)


def critic_batch(config: Config, sample: NStepBatch) -> CriticBatch:
    """A batch for the critics, from n-step samples of the replay.

    Args:
        config: The settings. It uses `discount`.
        sample: What `dr_q.replay.sample_n_step` returned.

    Returns:
        The batch, which `actor_critic_step` takes.

    Example:
        ```python
        slots = dr_q.replay.draw(replay, jax.random.key(0), config.batch_size)
        sample = dr_q.replay.sample_n_step(replay.storage, slots, config.q_horizon)
        batch = dr_q.agent.critic_batch(config, sample)
        ```
    """
    reward, discount = n_step_return(sample.reward, sample.not_done, config.discount)
    return CriticBatch(sample.obs, sample.action, reward, discount, sample.next_obs)


def critic_target(
    config: Config,
    agent: Agent,
    batch: CriticBatch,
    standard_normal: Float[Array, "B A"],
    gumbel: Gumbel | None = None,
) -> Float[Array, "B"]:
    """The value the critics regress to, from the target networks (Eq. 13)."""
    target: Networks = agent.target
    known = agent.rounded.target if agent.rounded is not None else None
    encoder = for_compute(config.compute, target.encoder, known and known.encoder)
    actor = for_compute(config.compute, target.actor, known and known.actor)
    critic = for_compute(config.compute, target.critic, known and known.critic)
    next_z_s = encoder.z_s(batch.next_obs)
    next_action = target_policy_action(config, actor, next_z_s, standard_normal, gumbel)
    next_q = critic(encoder.z_sa(next_z_s, next_action))
    return q_target(batch.n_step_reward, batch.n_step_discount, next_q, agent.reward_scale, agent.target_reward_scale)


def target_policy_action(
    config: Config,
    actor: Actor | DiscreteActor,
    z_s: Float[Array, "B zs"],
    standard_normal: Float[Array, "B A"],
    gumbel: Gumbel | None = None,
) -> Float[Array, "B A"]:
    """The target actor's action with noise (Eq. 11); a discrete one is sampled and made one-hot."""
    noise, clip = config.target_noise, config.target_noise_clip
    if not isinstance(actor, DiscreteActor):
        return target_action(actor(z_s), standard_normal, noise, clip)
    assert gumbel is not None
    soft = actor.sample(z_s, gumbel.target, config.gumbel_temperature)
    return discrete_target_action(soft, standard_normal, DISCRETE_NOISE * noise, DISCRETE_NOISE * clip, actor.choices)


def actor_loss(
    config: Config,
    actor: Actor | DiscreteActor,
    encoder: Encoder,
    critic: TwinCritic,
    z_s: Float[Array, "B zs"],
    state_half: Float[Array, "B hidden"],
    gumbel: Gumbel | None = None,
) -> Float[Array, ""]:
    """The critics' values of the actor's action, negated (Eq. 12); MR.Q adds a pull of pre-tanh actions to 0.

    `state_half` is g's of z_s, which the critics' update has computed already. A discrete action is a soft sample, so
    that the gradient reaches the logits; MR.Q's pull is on these.
    """
    pre_activation = actor.pre_activation(z_s)
    if isinstance(actor, DiscreteActor):
        assert gumbel is not None
        action = gumbel_softmax(pre_activation, gumbel.actor, config.gumbel_temperature, actor.choices)
    else:
        action = jnp.tanh(pre_activation)
    g = encoder.state_action
    q = critic(g.join(state_half, g.action_half(action)))
    return -jnp.mean(q) + config.pre_tanh_weight * jnp.mean(jnp.square(pre_activation))
