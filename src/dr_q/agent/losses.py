"""The three losses: encoder (Eq. 9), critics (Eq. 13), actor (Eq. 12)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dr_q.agent.config import Config
from dr_q.agent.state import Agent, Networks
from dr_q.equations import (
    alive_steps,
    huber,
    infonce,
    latent_mse,
    q_target,
    reward_bins,
    reward_cross_entropy,
    target_action,
)
from dr_q.networks import Actor, Encoder, TwinCritic
from dr_q.replay import Subtrajectory


class EncoderTerms(NamedTuple):
    """The encoder loss's terms, each summed over the horizon and without its weight; 0 where that weight is."""

    dynamics: Float[Array, ""]
    reward: Float[Array, ""]
    infonce: Float[Array, ""]
    done: Float[Array, ""]


class CriticBatch(NamedTuple):
    """What the critics learn from."""

    obs: Array
    action: Float[Array, "B A"]
    n_step_reward: Float[Array, "B"]
    """Discounted sum of the rewards up to a termination."""
    n_step_discount: Float[Array, "B"]
    """gamma^n, or 0 after a termination."""
    next_obs: Array


def encoder_terms(config: Config, encoder: Encoder, target: Encoder, batch: Subtrajectory) -> EncoderTerms:
    """Roll the latent model out and compare it with the target encoder's states (Eqs. 6-8)."""
    target_z_s = jax.lax.stop_gradient(_over_time(target.z_s, batch.obs[1:]))

    g = encoder.state_action
    z_s = encoder.z_s(batch.obs[0])
    predictions = []
    for action_half in _steps(g.action_half(batch.action)):
        prediction = encoder.predict(g.join(g.state_half(z_s), action_half))
        z_s = prediction.z_s
        predictions.append(prediction)
    rollout = jax.tree.map(lambda *steps: jnp.stack(steps), *predictions)

    # D1: masked per sample. Averaged over the whole batch, not over what is alive.
    alive = alive_steps(batch.not_done)

    def masked(loss: Float[Array, "H B"]) -> Float[Array, ""]:
        return jnp.sum(jnp.mean(loss * alive, axis=1))

    zero = jnp.zeros(())
    terms = EncoderTerms(zero, zero, zero, zero)
    if config.dynamics_weight:
        terms = terms._replace(dynamics=masked(jax.vmap(latent_mse)(rollout.z_s, target_z_s)))
    if config.reward_weight:
        bins = reward_bins(*config.reward_range, config.reward_bins)
        loss = jax.vmap(lambda logits, r: reward_cross_entropy(logits, r, bins))
        terms = terms._replace(reward=masked(loss(rollout.reward_logits, batch.reward)))
    if config.infonce_weight:
        loss = jax.vmap(lambda pred, z: infonce(pred, z, config.infonce_temperature))
        terms = terms._replace(infonce=masked(loss(rollout.z_s, target_z_s)))
    if config.done_weight:
        terms = terms._replace(done=masked(jnp.square(rollout.done - (1 - batch.not_done))))
    return terms


def encoder_loss(config: Config, terms: EncoderTerms, train_done: Bool[Array, ""]) -> Float[Array, ""]:
    """The weighted sum of the terms (Eq. 9); MR.Q's done term only once there is something to learn."""
    return (
        config.dynamics_weight * terms.dynamics
        + config.reward_weight * terms.reward
        + config.infonce_weight * terms.infonce
        + config.done_weight * jnp.where(train_done, terms.done, 0.0)
    )


def critic_target(
    config: Config, agent: Agent, batch: CriticBatch, standard_normal: Float[Array, "B A"]
) -> Float[Array, "B"]:
    """The value the critics regress to, from the target networks (Eq. 13)."""
    target: Networks = agent.target
    next_z_s = target.encoder.z_s(batch.next_obs)
    next_action = target_action(target.actor(next_z_s), standard_normal, config.target_noise, config.target_noise_clip)
    next_q = target.critic(target.encoder.z_sa(next_z_s, next_action))
    return q_target(batch.n_step_reward, batch.n_step_discount, next_q, agent.reward_scale, agent.target_reward_scale)


def critic_loss(
    critic: TwinCritic, z_sa: Float[Array, "B zsa"], target: Float[Array, "B"]
) -> tuple[Float[Array, ""], Float[Array, "B 2"]]:
    """Huber loss over batch and both critics (Eq. 13), and the critics' values."""
    q = critic(z_sa)
    return jnp.mean(huber(q - target[:, None])), q


def actor_loss(
    config: Config,
    actor: Actor,
    encoder: Encoder,
    critic: TwinCritic,
    z_s: Float[Array, "B zs"],
    state_half: Float[Array, "B hidden"],
) -> Float[Array, ""]:
    """What the critics say of the actor's action, negated (Eq. 12); MR.Q adds a pull of pre-tanh actions to 0.

    `state_half` is g's of z_s, which the critics' update has computed already.
    """
    pre_tanh = actor.pre_tanh(z_s)
    g = encoder.state_action
    q = critic(g.join(state_half, g.action_half(jnp.tanh(pre_tanh))))
    return -jnp.mean(q) + config.pre_tanh_weight * jnp.mean(jnp.square(pre_tanh))


def _over_time(z_s: Callable[[Array], Array], obs: Array) -> Float[Array, "H B zs"]:
    """Apply an encoder to [H, B, *obs] as one batch of H * B."""
    horizon, batch, *shape = obs.shape
    return z_s(obs.reshape(horizon * batch, *shape)).reshape(horizon, batch, -1)


def _steps(x: Float[Array, "H B D"]) -> list[Float[Array, "B D"]]:
    """The steps of a sequence. By split, whose gradient is one concatenation; indexing's would be a padded sum."""
    return [step[0] for step in jnp.split(x, x.shape[0])]
