"""The three losses: encoder (Eq. 9), critics (Eq. 13), actor (Eq. 12)."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

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
from dr_q.networks import Activation, Actor, Encoder, Linear, TwinCritic, normed, product
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
    shared = _Shared(g.from_state, g.hidden2, g.output, encoder.predictor.next_state)
    return _roll_out((g.activation, g.width), shared, z_s, g.action_half(action))


class _Shared(NamedTuple):
    """The layers that every step of a roll-out goes through, in order."""

    from_state: Linear
    hidden2: Linear
    output: Linear
    next_state: Linear


class _Turned(NamedTuple):
    """Their weights' transposes."""

    from_state: Float[Array, "zs hidden"]
    hidden2: Float[Array, "hidden hidden"]
    output: Float[Array, "hidden zsa"]
    next_state: Float[Array, "zsa zs"]


class _Inputs(NamedTuple):
    """What each of them was given, at every step."""

    from_state: Float[Array, "H B zs"]
    hidden2: Float[Array, "H B hidden"]
    output: Float[Array, "H B hidden"]
    next_state: Float[Array, "H B zsa"]


class _Nudges(NamedTuple):
    """Zeros added to their outputs, whose gradients are wanted; `from_state` has the action's half for it."""

    hidden2: Float[Array, "H B hidden"]
    output: Float[Array, "H B zsa"]
    next_state: Float[Array, "H B zs"]


def _steps_of(
    static: tuple[Activation, int],
    shared: _Shared,
    turned: _Turned,
    z_s: Float[Array, "B zs"],
    action_half: Float[Array, "H B hidden"],
    nudges: _Nudges,
) -> tuple[Rollout, _Inputs]:
    activation, width = static

    def apply(name: str, x: Float[Array, "B n"]) -> Float[Array, "B m"]:
        layer: Linear = getattr(shared, name)
        y = _turned_product(x, layer.weight, getattr(turned, name))
        return y + jnp.broadcast_to(layer.bias, y.shape)

    outputs, inputs = [], []
    for half, nudge in zip(_steps(action_half), map(_Nudges, *map(_steps, nudges)), strict=True):
        y1 = normed(apply("from_state", z_s) + half, activation, width)
        y2 = normed(apply("hidden2", y1) + nudge.hidden2, activation, width)
        z_sa = apply("output", y2) + nudge.output
        inputs.append(_Inputs(z_s, y1, y2, z_sa))
        z_s = apply("next_state", z_sa) + nudge.next_state
        outputs.append(Rollout(z_sa, z_s))
    return _stack(outputs), _stack(inputs)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _roll_out(
    static: tuple[Activation, int],
    shared: _Shared,
    z_s: Float[Array, "B zs"],
    action_half: Float[Array, "H B hidden"],
) -> Rollout:
    return _steps_of(static, shared, _turn(shared), z_s, action_half, _no_nudges(shared, action_half))[0]


def _no_nudges(shared: _Shared, action_half: Float[Array, "H B hidden"]) -> _Nudges:
    horizon, batch, _ = action_half.shape
    return _Nudges(*(jnp.zeros((horizon, batch, layer.bias.size)) for layer in shared[1:]))


def _roll_out_forward(static, shared, z_s, action_half):
    steps = functools.partial(_steps_of, static, shared, _turn(shared))
    rollout, pull_back, inputs = jax.vjp(steps, z_s, action_half, _no_nudges(shared, action_half), has_aux=True)
    return rollout, (pull_back, inputs)


def _roll_out_backward(static, residuals, gradient):
    """Gradients of the layers' outputs first, step by step; then each weight's in one product over all steps."""
    pull_back, inputs = residuals
    of_z_s, of_action_half, nudges = pull_back(gradient)

    def of_layer(x: Float[Array, "H B n"], of_output: Float[Array, "H B m"]) -> Linear:
        x, of_output = (y.reshape(-1, y.shape[-1]) for y in (x, of_output))
        return Linear(of_output.T @ x, jnp.sum(of_output, axis=0))

    of_shared = _Shared(*map(of_layer, inputs, (of_action_half, *nudges)))
    return of_shared, of_z_s, of_action_half


_roll_out.defvjp(_roll_out_forward, _roll_out_backward)


def _turn(shared: _Shared) -> _Turned:
    """The weights' transposes, made once for the backward pass of all steps, where a GPU gains by it."""
    turned = _Turned(*(layer.weight.T for layer in shared))
    return turned if jax.default_backend() == "cpu" else jax.lax.optimization_barrier(turned)


@jax.custom_vjp
def _turned_product(
    x: Float[Array, "B n"], weight: Float[Array, "m n"], turned: Float[Array, "n m"]
) -> Float[Array, "B m"]:
    """The product with a weight, and of its gradient with the weight's transpose. No gradient of the weight itself."""
    return product(x, weight)


def _turned_product_forward(x, weight, turned):
    return product(x, weight), (weight, turned)


def _turned_product_backward(residuals, gradient):
    weight, turned = residuals
    return product(gradient, turned), jnp.zeros_like(weight), jnp.zeros_like(turned)


_turned_product.defvjp(_turned_product_forward, _turned_product_backward)


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
