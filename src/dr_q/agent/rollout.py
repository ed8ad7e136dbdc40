"""The roll-out of the latent model, with its gradient written out.

Left to automatic differentiation, each weight's gradient would be five products and their sum; here it is one product
over all steps. `tests/agent` compares it with the plain loop over `Encoder.z_sa` and `Encoder.next_z_s`.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dr_q.config import Activation
from dr_q.networks import (
    Encoder,
    HalfWeight,
    Linear,
    NormResiduals,
    NormTypes,
    Weight,
    norm_backward,
    norm_forward,
    norm_types,
    product,
    product_back,
    product_of_weight,
)
from dr_q.networks.half import BACKWARD


class Rollout(NamedTuple):
    """The latent model, rolled out."""

    z_sa: Float[Array, "H B zsa"]
    pred_z_s: Float[Array, "H B zs"]
    """Predicted latent state after each step."""


def roll_out(encoder: Encoder, z_s: Float[Array, "B zs"], action: Float[Array, "H B A"]) -> Rollout:
    """Each step's prediction feeds the next (Eq. 5)."""
    g = encoder.state_action
    shared = _Shared(g.from_state.weight, g.hidden2, g.output, encoder.predictor.next_state)
    types = norm_types(g.hidden2.weight, g.hidden2.weight)
    return _roll_out((g.activation, g.width, types), shared, z_s, g.action_half(action))


class _Shared(NamedTuple):
    """The layers that every step of a roll-out goes through, in order; the first one's bias is in the action's half."""

    from_state: Weight
    hidden2: Linear
    output: Linear
    next_state: Linear

    @property
    def weights(self) -> tuple[Any, ...]:
        """Of all of them."""
        return (self.from_state, self.hidden2.weight, self.output.weight, self.next_state.weight)


class _AtLayers(NamedTuple):
    """Something of each of these layers, at one step or, stacked, at all."""

    from_state: Float[Array, "*H B n"]
    hidden2: Float[Array, "*H B n"]
    output: Float[Array, "*H B n"]
    next_state: Float[Array, "*H B n"]


class _Norms(NamedTuple):
    """What the gradients of a step's two norms need."""

    first: NormResiduals
    second: NormResiduals


def _steps_of(
    static: tuple[Activation, int, NormTypes],
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
    static: tuple[Activation, int, NormTypes],
    shared: _Shared,
    z_s: Float[Array, "B zs"],
    action_half: Float[Array, "H B hidden"],
) -> Rollout:
    return _steps_of(static, shared, z_s, action_half)[0]


def _roll_out_forward(static, shared, z_s, action_half):
    rollout, inputs, norms = _steps_of(static, shared, z_s, action_half)
    return rollout, (shared, _rounded(shared, inputs), norms)


def _roll_out_backward(static, residuals, gradient):
    """Gradients of the layers' outputs first, step by step; then each weight's in one product over all steps."""
    shared, inputs, norms = residuals
    of_outputs = []
    of_next_z_s = None  # what the steps after it say of a step's prediction
    for seen_z_sa, seen_pred, norm in reversed(list(zip(*map(_steps, gradient), norms, strict=True))):
        of_pred = seen_pred if of_next_z_s is None else seen_pred + of_next_z_s
        of_z_sa = seen_z_sa + product_back(of_pred, shared.next_state.weight)
        of_y2 = norm_backward(norm.second, product_back(of_z_sa, shared.output.weight), *static)
        of_y1 = norm_backward(norm.first, product_back(of_y2, shared.hidden2.weight), *static)
        of_outputs.append(_AtLayers(of_y1, of_y2, of_z_sa, of_pred))
        of_next_z_s = product_back(of_y1, shared.from_state)
    at_all = _rounded(shared, _stack(of_outputs[::-1]))
    weights = [_of_weight(*layer) for layer in zip(inputs, at_all, shared.weights, strict=True)]
    biases = [jnp.sum(of_output, axis=(0, 1), dtype=jnp.float32) for of_output in at_all[1:]]
    of_shared = _Shared(weights[0], *map(Linear, weights[1:], biases))
    return of_shared, of_next_z_s, at_all.from_state.astype(jnp.float32)


def _of_weight(x: Float[Array, "H B n"], of_output: Float[Array, "H B m"], weight: Weight) -> Weight:
    x, of_output = (y.reshape(-1, y.shape[-1]) for y in (x, of_output))
    return product_of_weight(x, of_output, weight)


def _rounded(shared: _Shared, at_layers: _AtLayers) -> _AtLayers:
    """As the weights' gradients are multiplied: 16-bit stacks are half as much to copy."""
    if not isinstance(shared.from_state, HalfWeight):
        return at_layers
    return jax.tree.map(lambda x: x.astype(BACKWARD), at_layers)


_roll_out.defvjp(_roll_out_forward, _roll_out_backward)


def _stack(steps: list[Any]) -> Any:
    return jax.tree.map(lambda *of_step: jnp.stack(of_step), *steps)


def _steps(x: Float[Array, "H B D"]) -> list[Float[Array, "B D"]]:
    """The steps of a sequence. By split, whose gradient is one concatenation; indexing's would be a padded sum."""
    return [step[0] for step in jnp.split(x, x.shape[0])]
