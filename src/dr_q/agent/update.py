"""One agent's learning, as pure functions for one seed.

The loop calls `renew` before RL updates 1, 251, 501, ..., and for each of them `draw_for_critic` and
`learn_actor_critic`, together `update_actor_critic`. `encoder_step` and `actor_critic_step` are the same updates on a
given batch.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from dr_q import replay as rp
from dr_q.agent.losses import (
    CriticBatch,
    EncoderTerms,
    actor_loss,
    critic_loss,
    critic_target,
    encoder_loss,
    encoder_terms,
)
from dr_q.agent.state import Agent, actor_optimiser, critic_optimiser, encoder_optimiser
from dr_q.config import Config
from dr_q.equations import lap_priority, n_step_return, random_shift
from dr_q.networks import Encoder

_DRAWS = 4_096
"""Starts drawn at once for one seed: enough to fill a GPU, few enough to need little memory."""


class EncoderMetrics(NamedTuple):
    """What an encoder update saw."""

    loss: Float[Array, ""]
    terms: EncoderTerms


class ActorCriticMetrics(NamedTuple):
    """What an RL update saw, before it changed anything."""

    critic_loss: Float[Array, ""]
    actor_loss: Float[Array, ""]
    """With the critics just updated."""
    q: Float[Array, "B 2"]
    q_target: Float[Array, "B"]
    priority: Float[Array, "B"]


class EncoderDraws(NamedTuple):
    """What encoder updates learn from: one, or all of a renewal along a leading axis."""

    slots: Int[Array, "*P B"]
    key_shift: Key[Array, "*P"]


class CriticDraw(NamedTuple):
    """What one RL update learns from."""

    slots: Int[Array, "B"]
    key_shift: Key[Array, ""]
    key_noise: Key[Array, ""]


def renew(config: Config, agent: Agent, replay: rp.Replay, key: Key[Array, ""]) -> tuple[Agent, EncoderMetrics]:
    """Copy online to target networks, then `target_period` encoder updates; the mean of what they saw."""
    agent = renew_targets(config, agent, replay)

    def step(learning: _Learning, draw: EncoderDraws) -> tuple[_Learning, EncoderMetrics]:
        new, seen = learn_encoder(config, _with(agent, learning), replay, draw)
        return _Learning(new.online.encoder, new.encoder_optimiser), seen

    # Only what changes is carried through the scan; all else stays the very same array.
    draws = draw_for_encoder(config, replay, key)
    learning, seen = jax.lax.scan(step, _Learning(agent.online.encoder, agent.encoder_optimiser), draws)
    return _with(agent, learning), jax.tree.map(jnp.mean, seen)


def draw_for_encoder(config: Config, replay: rp.Replay, key: Key[Array, ""]) -> EncoderDraws:
    """The batches of all encoder updates of a renewal; nothing that decides them changes meanwhile."""
    updates = config.target_period
    at_once = max(n for n in range(1, updates + 1) if updates % n == 0 and (n * config.batch_size <= _DRAWS or n == 1))
    keys = jax.vmap(jax.random.split)(jax.random.split(key, updates))
    draw = jax.vmap(lambda key_draw: rp.draw(replay, key_draw, config.batch_size))
    slots = jax.lax.map(draw, keys[:, 0].reshape(-1, at_once))
    return EncoderDraws(slots.reshape(updates, config.batch_size), keys[:, 1])


def draw_for_critic(config: Config, replay: rp.Replay, key: Key[Array, ""]) -> CriticDraw:
    """The batch of one RL update."""
    key_draw, key_shift, key_noise = jax.random.split(key, 3)
    return CriticDraw(rp.draw(replay, key_draw, config.batch_size), key_shift, key_noise)


class _Learning(NamedTuple):
    encoder: Encoder
    optimiser: optax.OptState


def _with(agent: Agent, learning: _Learning) -> Agent:
    online = dataclasses.replace(agent.online, encoder=learning.encoder)
    return dataclasses.replace(agent, online=online, encoder_optimiser=learning.optimiser)


def renew_targets(config: Config, agent: Agent, replay: rp.Replay) -> Agent:
    """Copy online to target networks and, in MR.Q, renew the reward scale."""
    renewed = dataclasses.replace(agent, target=jax.tree.map(jnp.copy, agent.online))
    if not config.reward_scaling:
        return renewed
    return dataclasses.replace(renewed, target_reward_scale=agent.reward_scale, reward_scale=rp.mean_abs_reward(replay))


def update_encoder(
    config: Config, agent: Agent, replay: rp.Replay, key: Key[Array, ""]
) -> tuple[Agent, EncoderMetrics]:
    """One encoder update on a fresh batch."""
    key_draw, key_shift = jax.random.split(key)
    draw = EncoderDraws(rp.draw(replay, key_draw, config.batch_size), key_shift)
    return learn_encoder(config, agent, replay, draw)


def learn_encoder(
    config: Config, agent: Agent, replay: rp.Replay, draw: EncoderDraws, frames: Array | None = None
) -> tuple[Agent, EncoderMetrics]:
    """One encoder update on one of the draws; `frames` where the replay does not hold them."""
    batch = rp.sample_subtrajectory(replay, draw.slots, config.encoder_horizon, frames)
    if replay.spec.pixels and config.pixel_shift:
        images = batch.obs.reshape(-1, *batch.obs.shape[2:])
        shifted = random_shift(images, draw.key_shift, config.pixel_shift)
        batch = batch._replace(obs=shifted.reshape(batch.obs.shape))
    return encoder_step(config, agent, batch, replay.has_terminated)


def update_actor_critic(
    config: Config, agent: Agent, replay: rp.Replay, key: Key[Array, ""]
) -> tuple[Agent, rp.Replay, ActorCriticMetrics]:
    """One RL update on a fresh batch: critics, then actor, then the batch's priorities."""
    return learn_actor_critic(config, agent, replay, draw_for_critic(config, replay, key))


def learn_actor_critic(
    config: Config, agent: Agent, replay: rp.Replay, draw: CriticDraw, frames: Array | None = None
) -> tuple[Agent, rp.Replay, ActorCriticMetrics]:
    """One RL update on what was drawn; `frames` where the replay does not hold them."""
    sample = rp.sample_n_step(replay, draw.slots, config.q_horizon, frames)
    obs, next_obs = sample.obs, sample.next_obs
    if replay.spec.pixels and config.pixel_shift:
        both = random_shift(jnp.concatenate([obs, next_obs]), draw.key_shift, config.pixel_shift)
        obs, next_obs = jnp.split(both, 2)
    n_step_reward, n_step_discount = n_step_return(sample.reward, sample.not_done, config.discount)
    batch = CriticBatch(obs, sample.action, n_step_reward, n_step_discount, next_obs)
    standard_normal = jax.random.normal(draw.key_noise, sample.action.shape)
    agent, metrics = actor_critic_step(config, agent, batch, standard_normal)
    return agent, rp.write_priority(replay, draw.slots, metrics.priority), metrics


def encoder_step(
    config: Config, agent: Agent, batch: rp.Subtrajectory, train_done: Bool[Array, ""]
) -> tuple[Agent, EncoderMetrics]:
    """One step of the encoder down its loss (Eq. 9) on a given batch."""

    def loss_and_terms(encoder):
        terms = encoder_terms(config, encoder, agent.target.encoder, batch)
        return encoder_loss(config, terms, train_done), terms

    (loss, terms), gradient = jax.value_and_grad(loss_and_terms, has_aux=True)(agent.online.encoder)
    encoder, optimiser = _descend(encoder_optimiser(config), gradient, agent.encoder_optimiser, agent.online.encoder)
    return _with(agent, _Learning(encoder, optimiser)), EncoderMetrics(loss, terms)


def actor_critic_step(
    config: Config, agent: Agent, batch: CriticBatch, standard_normal: Float[Array, "B A"]
) -> tuple[Agent, ActorCriticMetrics]:
    """One step of the critics (Eq. 13), then of the actor (Eq. 12), on a given batch; the encoder is constant."""
    encoder = agent.online.encoder
    target = critic_target(config, agent, batch, standard_normal)
    z_s = encoder.z_s(batch.obs)
    state_half = encoder.state_action.state_half(z_s)
    z_sa = encoder.state_action.join(state_half, encoder.state_action.action_half(batch.action))

    (loss_critic, q), gradient = jax.value_and_grad(critic_loss, has_aux=True)(agent.online.critic, z_sa, target)
    if config.critic_grad_clip:
        gradient = _clip_norm(gradient, config.critic_grad_clip)
    critic, critic_state = _descend(critic_optimiser(config), gradient, agent.critic_optimiser, agent.online.critic)

    # Differentiated by the actor alone: no gradient of g's or the critics' weights is ever formed.
    def loss_of_actor(actor):
        return actor_loss(config, actor, encoder, critic, z_s, state_half)

    loss_actor, gradient = jax.value_and_grad(loss_of_actor)(agent.online.actor)
    actor, actor_state = _descend(actor_optimiser(config), gradient, agent.actor_optimiser, agent.online.actor)

    new = dataclasses.replace(
        agent,
        online=dataclasses.replace(agent.online, actor=actor, critic=critic),
        actor_optimiser=actor_state,
        critic_optimiser=critic_state,
    )
    priority = lap_priority(q, target, config.min_priority, config.priority_exponent)
    return new, ActorCriticMetrics(loss_critic, loss_actor, q, target, priority)


def _descend(
    optimiser: optax.GradientTransformation, gradient: Any, state: optax.OptState, parameters: Any
) -> tuple[Any, optax.OptState]:
    updates, state = optimiser.update(gradient, state, parameters)
    return optax.apply_updates(parameters, updates), state


def _clip_norm(gradient: Any, limit: float) -> Any:
    """Scale to an L2 norm of at most `limit` over all leaves; the 1e-6 is PyTorch's, which made MR.Q's numbers."""
    factor = jnp.minimum(1.0, limit / (optax.tree.norm(gradient) + 1e-6))
    return jax.tree.map(lambda leaf: leaf * factor, gradient)
