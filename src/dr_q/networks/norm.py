"""activation(LayerNorm(x + plus)), which follows almost every product, with its gradient written out.

The gradient uses the normalised values kept for it: left alone, XLA computes the norm anew. In a program compiled for
a CUDA GPU, whatever the default device is, each direction is one kernel of ours (`norm_kernel`): XLA's backward one
took 20 us where ours takes 8 (ten seeds, an H200).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

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


OUTPUT_ALONE = True
"""Whether a kernel whose gradient is not taken leaves out what only a gradient needs."""


class NormTypes(NamedTuple):
    """What a norm is rounded to; its arithmetic is float32 in any case. See `half.norm_types`."""

    out: str = "float32"
    """Its result, which a product with 16-bit operands may be given next."""
    normal: str = "float32"
    """What is kept for its gradient."""
    gradient: str = "float32"
    """The gradient of x + plus, which such a product may be given in the backward pass."""


FLOAT32 = NormTypes()


class NormResiduals(NamedTuple):
    """What the gradient of a norm needs."""

    normal: Float[Array, "*B D"]
    """x + plus, normalised."""
    factor: Float[Array, "*B"]
    """What its entries were multiplied by."""


def normed(
    x: Float[Array, "*B D"], plus: Float[Array, "*P D"], activation: Activation, width: int, types: NormTypes = FLOAT32
) -> Float[Array, "*B D"]:
    """activation(LayerNorm(x + plus)), the norm over the first `width` entries, without scale and shift.

    `plus` is one row for all, or as large as x. Entries beyond `width` must be 0, and stay so.
    """
    return _normed(x, plus, activation, width, plus.ndim == 1, types)  # pyright: ignore[reportReturnType] - jax.custom_vjp loses the type


# What is rounded to 16 bits is float32 again for whoever asked: the compiler removes the pair of conversions where the
# next product rounds to the same type, so that it reads what the kernel wrote.


def norm_forward(
    x: Float[Array, "*B D"], plus: Float[Array, "*P D"], activation: Activation, width: int, types: NormTypes = FLOAT32
) -> tuple[Float[Array, "*B D"], NormResiduals]:
    """What `normed` gives, and what its gradient needs."""
    out, normal, factor = _by_platform("forward", _forward, activation, width, types)(x, plus)
    return out.astype(x.dtype), NormResiduals(normal, factor)


def norm_backward(
    residuals: NormResiduals,
    gradient: Float[Array, "*B D"],
    activation: Activation,
    width: int,
    types: NormTypes = FLOAT32,
) -> Float[Array, "*B D"]:
    """The gradient of x + plus from that of `normed`."""
    back = _by_platform("backward", _backward, activation, width, types)(*residuals, gradient)
    return back.astype(gradient.dtype)


def _output(x: Float[Array, "*B D"], plus: Float[Array, "*P D"], activation: Activation, width: int, types: NormTypes):
    """What `normed` gives, where no gradient is taken."""
    if not OUTPUT_ALONE:
        return norm_forward(x, plus, activation, width, types)[0]
    out = _by_platform("output", lambda *given, **how: _forward(*given, **how)[0], activation, width, types)(x, plus)
    return out.astype(x.dtype)


def _forward(
    x: Float[Array, "*B D"], plus: Float[Array, "*P D"], activation: Activation, width: int, types: NormTypes
) -> tuple[Float[Array, "*B D"], Float[Array, "*B D"], Float[Array, "*B"]]:
    """The plain formula: the result, the normalised values and the factor of each row."""
    x = x + jnp.broadcast_to(plus, x.shape)
    centred = _only(x - jnp.sum(x, axis=-1, keepdims=True) / width, width)
    factor = jax.lax.rsqrt(jnp.sum(jnp.square(centred), axis=-1) / width + EPSILON)
    normal = centred * factor[..., None]
    return ACTIVATIONS[activation](normal).astype(types.out), normal.astype(types.normal), factor


def _backward(
    normal: Float[Array, "*B D"],
    factor: Float[Array, "*B"],
    gradient: Float[Array, "*B D"],
    activation: Activation,
    width: int,
    types: NormTypes,
) -> Float[Array, "*B D"]:
    """The plain formula of the gradient."""
    normal = normal.astype(gradient.dtype)
    gradient = _only(gradient * SLOPES[activation](normal), width)
    mean = jnp.sum(gradient, axis=-1, keepdims=True) / width
    along = jnp.sum(gradient * normal, axis=-1, keepdims=True) / width
    return _only(factor[..., None] * (gradient - mean - normal * along), width).astype(types.gradient)


def _by_platform(
    direction: str, formula: Callable[..., Any], activation: Activation, width: int, types: NormTypes
) -> Callable[..., Any]:
    """The kernel in what is compiled for a CUDA GPU, the plain formula elsewhere; decided when a program is lowered."""
    plain = functools.partial(formula, activation=activation, width=width, types=types)
    if not has_cuda():
        return plain

    def kernel(*arrays: Array) -> Any:
        from dr_q.networks import norm_kernel

        return getattr(norm_kernel, direction)(*arrays, activation, width, types)

    return lambda *arrays: jax.lax.platform_dependent(*arrays, cuda=kernel, default=plain)


@functools.cache
def has_cuda() -> bool:
    """Whether a program of this process may be for a CUDA GPU: without one the kernel is not even traced."""
    try:
        return bool(jax.devices("cuda"))
    except RuntimeError:
        return False


def _only(x: Float[Array, "*B D"], width: int) -> Float[Array, "*B D"]:
    """Zeros beyond the first `width` entries."""
    if width == x.shape[-1]:
        return x
    return jnp.where(jax.lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1) < width, x, 0.0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4, 5))
def _normed(
    x: Float[Array, "*B D"],
    plus: Float[Array, "*P D"],
    activation: Activation,
    width: int,
    one_row: bool,
    types: NormTypes,
):
    return _output(x, plus, activation, width, types)


def _normed_forward(x, plus, activation, width, one_row, types):
    return norm_forward(x, plus, activation, width, types)


def _normed_backward(activation, width, one_row, types, residuals, gradient):
    gradient = norm_backward(residuals, gradient, activation, width, types)
    return gradient, jnp.sum(gradient, axis=tuple(range(gradient.ndim - 1))) if one_row else gradient


_normed.defvjp(_normed_forward, _normed_backward)
