"""activation(LayerNorm(x + plus)), which follows almost every product, with its gradient written out.

The gradient uses the normalised values kept for it: left alone, XLA computes the norm anew. On a CUDA GPU each
direction is one kernel of ours (`norm_kernel`): XLA's backward one took 20 us where ours takes 8 (ten seeds, an H200).
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dr_q.config import Activation


def elu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x where positive, e^x - 1 elsewhere.

    jax.nn.elu uses expm1, which costs twice as much on the CPU for digits that layer norm makes meaningless.
    """
    return jnp.where(x > 0, x, jnp.exp(jnp.where(x > 0, 0.0, x)) - 1)


ACTIVATIONS: dict[Activation, Callable[[Array], Array]] = {"elu": elu, "relu": jax.nn.relu}
SLOPES: dict[Activation, Callable[[Array], Array]] = {
    "elu": lambda x: jnp.where(x > 0, 1.0, jnp.exp(jnp.where(x > 0, 0.0, x))),
    "relu": lambda x: (x > 0).astype(x.dtype),
}

EPSILON = 1e-5


class Kept(NamedTuple):
    """What the gradient of a norm needs."""

    normal: Float[Array, "*B D"]
    """x + plus, normalised."""
    factor: Float[Array, "*B"]
    """What its entries were multiplied by."""


def normed(
    x: Float[Array, "*B D"], plus: Float[Array, "*P D"], activation: Activation, width: int
) -> Float[Array, "*B D"]:
    """activation(LayerNorm(x + plus)), the norm over the first `width` entries, without scale and shift.

    `plus` is one row for all, or as large as x. Entries beyond `width` must be 0, and stay so.
    """
    return _normed(x, plus, activation, width, plus.ndim == 1)  # pyright: ignore[reportReturnType] - jax.custom_vjp loses the type


def norm_forward(
    x: Float[Array, "*B D"], plus: Float[Array, "*P D"], activation: Activation, width: int
) -> tuple[Float[Array, "*B D"], Kept]:
    """What `normed` gives, and what its gradient needs."""
    if _on_gpu():
        from dr_q.networks.norm_kernel import forward

        out, normal, factor = forward(x, plus, activation, width)
        return out, Kept(normal, factor)
    x = x + jnp.broadcast_to(plus, x.shape)
    centred = _only(x - jnp.sum(x, axis=-1, keepdims=True) / width, width)
    factor = jax.lax.rsqrt(jnp.sum(jnp.square(centred), axis=-1) / width + EPSILON)
    normal = centred * factor[..., None]
    return ACTIVATIONS[activation](normal), Kept(normal, factor)


def norm_backward(
    kept: Kept, gradient: Float[Array, "*B D"], activation: Activation, width: int
) -> Float[Array, "*B D"]:
    """The gradient of x + plus from that of `normed`."""
    if _on_gpu():
        from dr_q.networks.norm_kernel import backward

        return backward(*kept, gradient, activation, width)
    normal, factor = kept
    gradient = _only(gradient * SLOPES[activation](normal), width)
    mean = jnp.sum(gradient, axis=-1, keepdims=True) / width
    along = jnp.sum(gradient * normal, axis=-1, keepdims=True) / width
    return _only(factor[..., None] * (gradient - mean - normal * along), width)


def _on_gpu() -> bool:
    return jax.default_backend() == "gpu"


def _only(x: Float[Array, "*B D"], width: int) -> Float[Array, "*B D"]:
    """Zeros beyond the first `width` entries."""
    if width == x.shape[-1]:
        return x
    return jnp.where(jax.lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1) < width, x, 0.0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _normed(x: Float[Array, "*B D"], plus: Float[Array, "*P D"], activation: Activation, width: int, one_row: bool):
    return norm_forward(x, plus, activation, width)[0]


def _normed_forward(x, plus, activation, width, one_row):
    return norm_forward(x, plus, activation, width)


def _normed_backward(activation, width, one_row, kept, gradient):
    gradient = norm_backward(kept, gradient, activation, width)
    return gradient, jnp.sum(gradient, axis=tuple(range(gradient.ndim - 1))) if one_row else gradient


_normed.defvjp(_normed_forward, _normed_backward)
