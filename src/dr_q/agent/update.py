"""One agent's learning, as pure functions for one seed.

The loop calls `sync_targets_and_train_encoder` before RL updates 1, 251, 501, ..., and for each update
`draw_for_critic` and `learn_actor_critic`, together `update_actor_critic`. `encoder_step` and `actor_critic_step` are
the same updates on a given batch.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from dr_q import replay as rp
from dr_q.agent.losses import CriticBatch, Gumbel, actor_loss, critic_batch, critic_target, draw_noise
from dr_q.agent.state import (
    Agent,
    actor_optimiser,
    critic_optimiser,
    encoder_optimiser,
    round_agent,
    round_targets,
)
from dr_q.agent.terms import at_index, encoder_loss, encoder_terms, predict
from dr_q.config import Config
from dr_q.equations import StoredImages, random_shift, random_shifts
from dr_q.networks import Encoder, Rounded, for_compute, packs_images, round_weights
from dr_q.spaces import ObsSpec

_DRAWS = 4_096
"""Starts drawn at once for one seed: enough to fill a GPU, few enough to need little memory."""


class EncoderMetrics(NamedTuple):
    """Metrics of an encoder update, computed before it changes the encoder."""

    loss: Float[Array, ""]
    """The encoder loss."""
    terms: dict[str, Float[Array, ""]]
    """Its terms without weights, by the names of `TERMS`."""


class ActorCriticMetrics(NamedTuple):
    """Metrics of an RL update, computed before it changes the networks."""

    critic_loss: Float[Array, ""]
    """The loss of both critics."""
    actor_loss: Float[Array, ""]
    """The actor's loss, computed with the updated critics."""
    q: Float[Array, "B critics"]
    """Both critics' values."""
    q_target: Float[Array, "B"]
    """The value that the critics regress to."""
    td_error: Float[Array, "B"]
    """TD error of each sample: the larger one of the two critics."""


class EncoderDraws(NamedTuple):
    """What encoder updates learn from: one, or all of a target period along a leading axis."""

    slots: Int[Array, "*P B"]
    key_shift: Key[Array, "*P"]


class CriticDraw(NamedTuple):
    """What one RL update learns from."""

    slots: Int[Array, "B"]
    key_shift: Key[Array, ""]
    key_noise: Key[Array, ""]


def sync_targets_and_train_encoder(
    config: Config, agent: Agent, replay: rp.Replay, key: Key[Array, ""]
) -> tuple[Agent, EncoderMetrics]:
    """Copy the online networks to the target networks, then make the encoder updates of a target period.

    A run calls it before RL updates 1, 251, 501 and so on (`target_period`).

    Args:
        config: The settings. It uses `encoder_updates`, `target_period`, `batch_size` and those of the encoder.
        agent: The agent.
        replay: The replay, with its observations in it (not in host memory).
        key: Decides the batches and the shifts of images.

    Returns:
        The agent, and the mean of the updates' metrics.

    Example:
        ```python
        sync = jax.jit(dr_q.agent.sync_targets_and_train_encoder, static_argnums=0)
        agent, metrics = sync(config, agent, replay, jax.random.key(0))
        ```
    """
    synced = sync_targets(config, agent, replay)
    keeps_rounded = synced.rounded is not None
    synced = synced if keeps_rounded else round_agent(config, synced)  # target networks once, not at each update

    def step(learning: _Learning, draw: EncoderDraws) -> tuple[_Learning, EncoderMetrics]:
        new, seen = learn_encoder(config, _with(synced, learning), replay, draw)
        return _learning(new), seen

    # Only what changes is carried through the scan; all else stays the very same array.
    draws = draw_for_encoder(config, replay, key)
    learning, seen = jax.lax.scan(step, _learning(synced), draws)
    trained = _with(synced, learning)
    trained = trained if keeps_rounded else dataclasses.replace(trained, rounded=None)
    return trained, jax.tree.map(jnp.mean, seen)


def draw_for_encoder(config: Config, replay: rp.Replay, key: Key[Array, ""]) -> EncoderDraws:
    """The batches of all encoder updates of a target period; nothing that decides them changes meanwhile."""
    updates = config.encoder_updates_per_sync
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
    """What an encoder update changes of an agent."""

    encoder: Encoder
    optimiser: optax.OptState
    rounded: Rounded | None


def _learning(agent: Agent) -> _Learning:
    rounded = agent.rounded.online.encoder if agent.rounded is not None else None
    return _Learning(agent.online.encoder, agent.encoder_optimiser, rounded)


def _with(agent: Agent, learning: _Learning) -> Agent:
    rounded = agent.rounded
    if rounded is not None:
        assert learning.rounded is not None
        rounded = rounded._replace(online=rounded.online._replace(encoder=learning.rounded))
    online = dataclasses.replace(agent.online, encoder=learning.encoder)
    return dataclasses.replace(agent, online=online, encoder_optimiser=learning.optimiser, rounded=rounded)


def sync_targets(config: Config, agent: Agent, replay: rp.Replay) -> Agent:
    """Copy online to target networks and, in MR.Q, measure the reward scale again."""
    rounded = round_targets(agent.rounded) if agent.rounded is not None else None
    synced = dataclasses.replace(agent, target=jax.tree.map(jnp.copy, agent.online), rounded=rounded)
    if not config.reward_scaling:
        return synced
    return dataclasses.replace(
        synced, target_reward_scale=agent.reward_scale, reward_scale=rp.mean_abs_reward(replay.storage)
    )


def learn_encoder(
    config: Config, agent: Agent, replay: rp.Replay, draw: EncoderDraws, frames: rp.Frames | None = None
) -> tuple[Agent, EncoderMetrics]:
    """One encoder update on one of the draws; `frames` where the replay does not hold them."""
    in_place = replay.spec.obs.images if packs_images(config.compute) else ()
    batch = rp.sample_subtrajectory(replay.storage, draw.slots, config.encoder_horizon, frames, in_place)
    shifted = shift_images(config, replay.spec.obs, batch.obs, draw.key_shift)
    batch = batch._replace(obs=agent.online.normalised(shifted))
    return encoder_step(config, agent, batch, replay.storage.has_terminated)


def shift_images(config: Config, spec: ObsSpec, obs: dict[str, Any], key: Key[Array, ""]) -> dict[str, Any]:
    """Observations with any leading axes, each of their images shifted at random."""
    if not config.pixel_shift:
        return obs
    several = len(spec.images) > 1  # the paper's one image keeps the draw's own key
    shifted = {}
    for index, name in enumerate(spec.images):
        key_part = jax.random.fold_in(key, index) if several else key
        if isinstance(obs[name], StoredImages):
            stored = obs[name]
            shifts = random_shifts(key_part, stored.shifts.size // 2, config.pixel_shift)
            shifted[name] = stored._replace(shifts=jnp.concatenate(shifts, axis=1).reshape(stored.shifts.shape))
            continue
        images = obs[name].reshape(-1, *obs[name].shape[-3:])
        shifted[name] = random_shift(images, key_part, config.pixel_shift).reshape(obs[name].shape)
    return {**obs, **shifted}


def _both(first: Any, last: Any) -> Any:
    """Two observations of a part along a new axis."""
    if not isinstance(first, StoredImages):
        return jnp.stack([first, last])
    return first._replace(slots=jnp.stack([first.slots, last.slots]), shifts=jnp.stack([first.shifts, last.shifts]))


def update_actor_critic(
    config: Config, agent: Agent, replay: rp.Replay, key: Key[Array, ""]
) -> tuple[Agent, rp.Replay, ActorCriticMetrics]:
    """Draw a batch and make one RL update: critics, then actor, then the priorities of the batch.

    Args:
        config: The settings. It uses `batch_size`, `q_horizon` and those of critics and actor.
        agent: The agent.
        replay: The replay, with its observations in it (not in host memory).
        key: Decides the batch, the shifts of images and the noise.

    Returns:
        The agent, the replay with new priorities, and the metrics of the update.

    Example:
        ```python
        update = jax.jit(dr_q.agent.update_actor_critic, static_argnums=0)
        agent, replay, metrics = update(config, agent, replay, jax.random.key(0))
        ```
    """
    return learn_actor_critic(config, agent, replay, draw_for_critic(config, replay, key))


def learn_actor_critic(
    config: Config, agent: Agent, replay: rp.Replay, draw: CriticDraw, frames: rp.Frames | None = None
) -> tuple[Agent, rp.Replay, ActorCriticMetrics]:
    """One RL update on what was drawn; `frames` where the replay does not hold them."""
    in_place = replay.spec.obs.images if packs_images(config.compute) else ()
    sample = rp.sample_n_step(replay.storage, draw.slots, config.q_horizon, frames, in_place)
    if replay.spec.obs.images and config.pixel_shift:  # vectors are not copied for nothing
        both = {name: _both(x, sample.next_obs[name]) for name, x in sample.obs.items()}
        both = shift_images(config, replay.spec.obs, both, draw.key_shift)
        obs, next_obs = ({name: at_index(x, i) for name, x in both.items()} for i in (0, 1))
        sample = sample._replace(obs=obs, next_obs=next_obs)
    obs, next_obs = map(agent.online.normalised, (sample.obs, sample.next_obs))
    batch = critic_batch(config, sample._replace(obs=obs, next_obs=next_obs))
    noise = draw_noise(agent.online.actor, sample.action.shape, draw.key_noise)
    agent, metrics = actor_critic_step(config, agent, batch, *noise)
    return agent, rp.write_priority(replay, draw.slots, metrics.td_error), metrics


def encoder_step(
    config: Config, agent: Agent, batch: rp.Subtrajectory, has_terminated: Bool[Array, ""]
) -> tuple[Agent, EncoderMetrics]:
    """One gradient step of the encoder on a given batch (Eq. 9).

    Args:
        config: The settings. It uses those of the encoder.
        agent: The agent.
        batch: Windows of `encoder_horizon` transitions, with normalised observations if the agent normalises them.
        has_terminated: Whether any transition of the replay so far terminated (`storage.has_terminated`). Only MR.Q
            uses it.

    Returns:
        The agent, and the metrics of the update.

    Example:
        ```python
        slots = dr_q.replay.draw(replay, jax.random.key(0), config.batch_size)
        batch = dr_q.replay.sample_subtrajectory(replay.storage, slots, config.encoder_horizon)
        step = jax.jit(dr_q.agent.encoder_step, static_argnums=0)
        agent, metrics = step(config, agent, batch, replay.storage.has_terminated)
        ```
    """
    known = agent.rounded
    target = for_compute(config.compute, agent.target.encoder, known and known.target.encoder)

    def loss_and_terms(encoder):
        half = for_compute(config.compute, encoder, known and known.online.encoder)
        prediction = predict(half, target, batch, has_terminated)
        terms = encoder_terms(config, prediction)
        return encoder_loss(config, prediction, terms), terms

    (loss, terms), gradient = jax.value_and_grad(loss_and_terms, has_aux=True)(agent.online.encoder)
    encoder, optimiser = _descend(encoder_optimiser(config), gradient, agent.encoder_optimiser, agent.online.encoder)
    rounded = round_weights(encoder) if known is not None else None
    return _with(agent, _Learning(encoder, optimiser, rounded)), EncoderMetrics(loss, terms)


def actor_critic_step(
    config: Config,
    agent: Agent,
    batch: CriticBatch,
    standard_normal: Float[Array, "B A"],
    gumbel: Gumbel | None = None,
) -> tuple[Agent, ActorCriticMetrics]:
    """One gradient step of the critics (Eq. 13), then of the actor (Eq. 12), on a given batch.

    The encoder does not change.

    Args:
        config: The settings. It uses those of critics and actor.
        agent: The agent.
        batch: What `critic_batch` returned.
        standard_normal: Standard normal numbers for the noise on the target actor's action.
        gumbel: Gumbel noise, which discrete actions need. `draw_noise` draws both.

    Returns:
        The agent, and the metrics of the update.

    Example:
        ```python
        sample = dr_q.replay.sample_n_step(replay.storage, slots, config.q_horizon)
        batch = dr_q.agent.critic_batch(config, sample)
        noise = dr_q.agent.draw_noise(agent.online.actor, batch.action.shape, jax.random.key(0))
        agent, metrics = dr_q.agent.actor_critic_step(config, agent, batch, *noise)
        replay = dr_q.replay.write_priority(replay, slots, metrics.td_error)
        ```
    """
    compute = config.compute
    known = agent.rounded.online if agent.rounded is not None else None
    encoder = for_compute(compute, agent.online.encoder, known and known.encoder)
    target = critic_target(config, agent, batch, standard_normal, gumbel)
    z_s = encoder.z_s(batch.obs)
    state_half = encoder.state_action.state_half(z_s)
    z_sa = encoder.state_action.join(state_half, encoder.state_action.action_half(batch.action))

    def loss_and_values(critic):
        return for_compute(compute, critic, known and known.critic).loss(z_sa, target)

    (loss_critic, q), gradient = jax.value_and_grad(loss_and_values, has_aux=True)(agent.online.critic)
    if config.critic_grad_clip:
        gradient = _clip_norm(gradient, config.critic_grad_clip)
    critic, critic_state = _descend(critic_optimiser(config), gradient, agent.critic_optimiser, agent.online.critic)

    rounded_critic = round_weights(critic) if known is not None else None
    learnt = for_compute(compute, critic, rounded_critic)

    # Differentiated by the actor alone: no gradient of g's or the critics' weights is ever formed.
    def loss_of_actor(actor):
        acting = for_compute(compute, actor, known and known.actor)
        return actor_loss(config, acting, encoder, learnt, z_s, state_half, gumbel)

    loss_actor, gradient = jax.value_and_grad(loss_of_actor)(agent.online.actor)
    actor, actor_state = _descend(actor_optimiser(config), gradient, agent.actor_optimiser, agent.online.actor)

    rounded = agent.rounded
    if rounded is not None:
        assert rounded_critic is not None
        now = rounded.online._replace(actor=round_weights(actor), critic=rounded_critic)
        rounded = rounded._replace(online=now)
    new = dataclasses.replace(
        agent,
        online=dataclasses.replace(agent.online, actor=actor, critic=critic),
        actor_optimiser=actor_state,
        critic_optimiser=critic_state,
        rounded=rounded,
    )
    return new, ActorCriticMetrics(loss_critic, loss_actor, q, target, agent.online.critic.td_error(q, target))


def _descend(
    optimiser: optax.GradientTransformation, gradient: Any, state: optax.OptState, parameters: Any
) -> tuple[Any, optax.OptState]:
    updates, state = optimiser.update(gradient, state, parameters)
    return optax.apply_updates(parameters, updates), state


def _clip_norm(gradient: Any, limit: float) -> Any:
    """Scale to an L2 norm of at most `limit` over all leaves; the 1e-6 is PyTorch's, which made MR.Q's numbers."""
    factor = jnp.minimum(1.0, limit / (optax.tree.norm(gradient) + 1e-6))
    return jax.tree.map(lambda leaf: leaf * factor, gradient)
