"""The norm of `norm.py` as GPU kernels, one row of the batch per kernel instance (Pallas on Triton)."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from dr_q.config import Activation
from dr_q.networks.norm import ACTIVATIONS, EPSILON, FLOAT32, SLOPES, NormTypes

_ENTRIES_PER_WARP = 256


def forward(
    x: Float[Array, "*B D"],
    plus: Float[Array, "*P D"],
    activation: Activation,
    width: int,
    types: NormTypes = FLOAT32,
    *,
    interpret: bool = False,
) -> tuple[Float[Array, "*B D"], Float[Array, "*B D"], Float[Array, "*B"]]:
    """activation(LayerNorm(x + plus)), the normalised values, and the factor of each row."""
    size = x.shape[-1]
    kept = (
        jax.ShapeDtypeStruct((size,), types.out),
        jax.ShapeDtypeStruct((size,), types.normal),
        jax.ShapeDtypeStruct((), x.dtype),
    )
    kernel = functools.partial(_forward, activation=activation, width=width)
    out, normal, factor = _by_row(_call(kernel, size, kept, "norm_forward", interpret), x, plus)
    return out.reshape(x.shape), normal.reshape(x.shape), factor.reshape(x.shape[:-1])


def output(
    x: Float[Array, "*B D"],
    plus: Float[Array, "*P D"],
    activation: Activation,
    width: int,
    types: NormTypes = FLOAT32,
    *,
    interpret: bool = False,
) -> Float[Array, "*B D"]:
    """activation(LayerNorm(x + plus)) alone: a kernel writes all its outputs, also those that nobody reads."""
    size = x.shape[-1]
    kernel = functools.partial(_output, activation=activation, width=width)
    call = _call(kernel, size, jax.ShapeDtypeStruct((size,), types.out), "norm_output", interpret)
    return _by_row(call, x, plus).reshape(x.shape)


def backward(
    normal: Float[Array, "*B D"],
    factor: Float[Array, "*B"],
    gradient: Float[Array, "*B D"],
    activation: Activation,
    width: int,
    types: NormTypes = FLOAT32,
    *,
    interpret: bool = False,
) -> Float[Array, "*B D"]:
    """The gradient of x + plus."""
    size = normal.shape[-1]
    kernel = functools.partial(_backward, activation=activation, width=width)
    call = _call(kernel, size, jax.ShapeDtypeStruct((size,), types.gradient), "norm_backward", interpret)
    return jax.vmap(call)(normal.reshape(-1, size), factor.reshape(-1), gradient.reshape(-1, size)).reshape(
        normal.shape
    )


def _by_row(call: Any, x: Float[Array, "*B D"], plus: Float[Array, "*P D"]) -> Any:
    size, shared = x.shape[-1], plus.ndim == 1
    return jax.vmap(call, in_axes=(0, None if shared else 0))(
        x.reshape(-1, size), plus if shared else plus.reshape(-1, size)
    )


def _call(kernel: Any, size: int, out: Any, name: str, interpret: bool) -> Any:
    warps = max(1, min(8, _block(size) // _ENTRIES_PER_WARP))
    return pl.pallas_call(
        kernel,
        out_shape=out,
        compiler_params=triton.CompilerParams(num_warps=warps),
        interpret=interpret,
        name=name,
    )


def _block(size: int) -> int:
    """Triton's arrays have sizes that are powers of two."""
    return 2 ** math.ceil(math.log2(size))


def _forward(x_ref, plus_ref, out_ref, normal_ref, factor_ref, *, activation: Activation, width: int) -> None:
    column, there, normal, factor = _normal(x_ref, plus_ref, width)
    triton.store(out_ref.at[column], ACTIVATIONS[activation](normal).astype(out_ref.dtype), mask=there)
    triton.store(normal_ref.at[column], normal.astype(normal_ref.dtype), mask=there)
    factor_ref[...] = factor


def _output(x_ref, plus_ref, out_ref, *, activation: Activation, width: int) -> None:
    column, there, normal, _ = _normal(x_ref, plus_ref, width)
    triton.store(out_ref.at[column], ACTIVATIONS[activation](normal).astype(out_ref.dtype), mask=there)


def _normal(x_ref: Any, plus_ref: Any, width: int) -> tuple[Array, Array, Array, Array]:
    column, there = _columns(x_ref)
    x = _load(x_ref, column, there) + _load(plus_ref, column, there)
    centred = jnp.where(column < width, x - jnp.sum(x) / width, 0.0)
    factor = jax.lax.rsqrt(jnp.sum(centred * centred) / width + EPSILON)
    return column, there, centred * factor, factor


def _backward(normal_ref, factor_ref, gradient_ref, out_ref, *, activation: Activation, width: int) -> None:
    column, there = _columns(normal_ref)
    normal = _load(normal_ref, column, there)
    gradient = jnp.where(column < width, _load(gradient_ref, column, there) * SLOPES[activation](normal), 0.0)
    mean = jnp.sum(gradient) / width
    along = jnp.sum(gradient * normal) / width
    out = jnp.where(column < width, factor_ref[...] * (gradient - mean - normal * along), 0.0)
    triton.store(out_ref.at[column], out.astype(out_ref.dtype), mask=there)


def _columns(ref: Any) -> tuple[Array, Array]:
    column = jnp.arange(_block(ref.shape[0]))
    return column, column < ref.shape[0]


def _load(ref: Any, column: Array, there: Array) -> Array:
    return triton.load(ref.at[column], mask=there, other=0.0).astype(jnp.float32)
