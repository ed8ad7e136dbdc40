"""The three losses: encoder (Eq. 9), critics (Eq. 13), actor (Eq. 12)."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dr_q.agent.state import Agent, Networks
from dr_q.config import Activation, Config
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
from dr_q.networks import Actor, Encoder, Kept, Linear, TwinCritic, norm_backward, norm_forward, product
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

    rollout = roll_out(encoder, encoder.z_s(batch.obs[0]), batch.action)
    outcome = encoder.outcome(rollout.z_sa)

    # D1: masked per sample. Averaged over the whole batch, not over what is alive.
    alive = alive_steps(batch.not_done)

    def masked(loss: Float[Array, "H B"]) -> Float[Array, ""]:
        return jnp.sum(jnp.mean(loss * alive, axis=1))

    zero = jnp.zeros(())
    terms = EncoderTerms(zero, zero, zero, zero)
    if config.dynamics_weight:
        terms = terms._replace(dynamics=masked(jax.vmap(latent_mse)(rollout.pred_z_s, target_z_s)))
    if config.reward_weight:
        bins = reward_bins(*config.reward_range, config.reward_bins)
        loss = jax.vmap(lambda logits, r: reward_cross_entropy(logits, r, bins))
        terms = terms._replace(reward=masked(loss(outcome.reward_logits, batch.reward)))
    if config.infonce_weight:
        loss = jax.vmap(lambda pred, z: infonce(pred, z, config.infonce_temperature))
        terms = terms._replace(infonce=masked(loss(rollout.pred_z_s, target_z_s)))
    if config.done_weight and outcome.done is not None:
        terms = terms._replace(done=masked(jnp.square(outcome.done - (1 - batch.not_done))))
    return terms


class Rollout(NamedTuple):
    """The latent model, rolled out."""

    z_sa: Float[Array, "H B zsa"]
    pred_z_s: Float[Array, "H B zs"]
    """Predicted latent state after each step."""


def roll_out(encoder: Encoder, z_s: Float[Array, "B zs"], action: Float[Array, "H B A"]) -> Rollout:
    """Each step's prediction feeds the next (Eq. 5)."""
    g = encoder.state_action
    shared = _Shared(g.from_state.weight, g.hidden2, g.output, encoder.predictor.next_state)
    return _roll_out((g.activation, g.width), shared, z_s, g.action_half(action))


class _Shared(NamedTuple):
    """The layers that every step of a roll-out goes through, in order; the first one's bias is in the action's half."""

    from_state: Float[Array, "hidden zs"]
    hidden2: Linear
    output: Linear
    next_state: Linear


class _AtLayers(NamedTuple):
    """Something of each of these layers, at one step or, stacked, at all."""

    from_state: Float[Array, "*H B n"]
    hidden2: Float[Array, "*H B n"]
    output: Float[Array, "*H B n"]
    next_state: Float[Array, "*H B n"]


class _Norms(NamedTuple):
    """What the gradients of a step's two norms need."""

    first: Kept
    second: Kept


def _steps_of(
    static: tuple[Activation, int],
    shared: _Shared,
    z_s: Float[Array, "B zs"],
    action_half: Float[Array, "H B hidden"],
) -> tuple[Rollout, _AtLayers, list[_Norms]]:
    """The roll-out, what each layer was given at each step, and what gradients need."""
    outputs, inputs, norms = [], [], []
    for half in _steps(action_half):
        y1, first = norm_forward(product(z_s, shared.from_state), half, *static)
        y2, second = norm_forward(product(y1, shared.hidden2.weight), shared.hidden2.bias, *static)
        z_sa = shared.output(y2)
        inputs.append(_AtLayers(z_s, y1, y2, z_sa))
        norms.append(_Norms(first, second))
        z_s = shared.next_state(z_sa)
        outputs.append(Rollout(z_sa, z_s))
    return _stack(outputs), _stack(inputs), norms


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _roll_out(
    static: tuple[Activation, int],
    shared: _Shared,
    z_s: Float[Array, "B zs"],
    action_half: Float[Array, "H B hidden"],
) -> Rollout:
    return _steps_of(static, shared, z_s, action_half)[0]


def _roll_out_forward(static, shared, z_s, action_half):
    rollout, inputs, norms = _steps_of(static, shared, z_s, action_half)
    return rollout, (shared, inputs, norms)


def _roll_out_backward(static, residuals, gradient):
    """Gradients of the layers' outputs first, step by step; then each weight's in one product over all steps."""
    shared, inputs, norms = residuals
    of_outputs = []
    of_next_z_s = None  # what the steps after it say of a step's prediction
    for seen_z_sa, seen_pred, norm in reversed(list(zip(*map(_steps, gradient), norms, strict=True))):
        of_pred = seen_pred if of_next_z_s is None else seen_pred + of_next_z_s
        of_z_sa = seen_z_sa + _back(of_pred, shared.next_state)
        of_y2 = norm_backward(norm.second, _back(of_z_sa, shared.output), *static)
        of_y1 = norm_backward(norm.first, _back(of_y2, shared.hidden2), *static)
        of_outputs.append(_AtLayers(of_y1, of_y2, of_z_sa, of_pred))
        of_next_z_s = of_y1 @ shared.from_state
    at_all = _stack(of_outputs[::-1])
    weights = _AtLayers(*map(_of_weight, inputs, at_all))
    biases = [jnp.sum(of_output, axis=(0, 1)) for of_output in at_all[1:]]
    of_shared = _Shared(weights[0], *map(Linear, weights[1:], biases))
    return of_shared, of_next_z_s, at_all.from_state


def _back(of_output: Float[Array, "B m"], layer: Linear) -> Float[Array, "B n"]:
    return of_output @ layer.weight


def _of_weight(x: Float[Array, "H B n"], of_output: Float[Array, "H B m"]) -> Float[Array, "m n"]:
    x, of_output = (y.reshape(-1, y.shape[-1]) for y in (x, of_output))
    return of_output.T @ x


_roll_out.defvjp(_roll_out_forward, _roll_out_backward)


def _stack(steps: list[Any]) -> Any:
    return jax.tree.map(lambda *of_step: jnp.stack(of_step), *steps)


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
