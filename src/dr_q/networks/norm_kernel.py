"""The norm of `norm.py` as GPU kernels, one row of the batch to a program (Pallas, by way of Triton)."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from dr_q.config import Activation
from dr_q.networks.norm import ACTIVATIONS, EPSILON, SLOPES

_ENTRIES_PER_WARP = 256


def forward(
    x: Float[Array, "*B D"], plus: Float[Array, "*P D"], activation: Activation, width: int, *, interpret: bool = False
) -> tuple[Float[Array, "*B D"], Float[Array, "*B D"], Float[Array, "*B"]]:
    """activation(LayerNorm(x + plus)), the normalised values, and the factor of each row."""
    size = x.shape[-1]
    row = jax.ShapeDtypeStruct((size,), x.dtype)
    kernel = functools.partial(_forward, activation=activation, width=width)
    call = _call(kernel, size, (row, row, jax.ShapeDtypeStruct((), x.dtype)), "norm_forward", interpret)
    shared = plus.ndim == 1
    out, normal, factor = jax.vmap(call, in_axes=(0, None if shared else 0))(
        x.reshape(-1, size), plus if shared else plus.reshape(-1, size)
    )
    return out.reshape(x.shape), normal.reshape(x.shape), factor.reshape(x.shape[:-1])


def backward(
    normal: Float[Array, "*B D"],
    factor: Float[Array, "*B"],
    gradient: Float[Array, "*B D"],
    activation: Activation,
    width: int,
    *,
    interpret: bool = False,
) -> Float[Array, "*B D"]:
    """The gradient of x + plus."""
    size = normal.shape[-1]
    kernel = functools.partial(_backward, activation=activation, width=width)
    call = _call(kernel, size, jax.ShapeDtypeStruct((size,), normal.dtype), "norm_backward", interpret)
    return jax.vmap(call)(normal.reshape(-1, size), factor.reshape(-1), gradient.reshape(-1, size)).reshape(
        normal.shape
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
    column, there = _columns(x_ref)
    x = _load(x_ref, column, there) + _load(plus_ref, column, there)
    centred = jnp.where(column < width, x - jnp.sum(x) / width, 0.0)
    factor = jax.lax.rsqrt(jnp.sum(centred * centred) / width + EPSILON)
    normal = centred * factor
    triton.store(out_ref.at[column], ACTIVATIONS[activation](normal), mask=there)
    triton.store(normal_ref.at[column], normal, mask=there)
    factor_ref[...] = factor


def _backward(normal_ref, factor_ref, gradient_ref, out_ref, *, activation: Activation, width: int) -> None:
    column, there = _columns(normal_ref)
    normal = _load(normal_ref, column, there)
    gradient = jnp.where(column < width, _load(gradient_ref, column, there) * SLOPES[activation](normal), 0.0)
    mean = jnp.sum(gradient) / width
    along = jnp.sum(gradient * normal) / width
    out = jnp.where(column < width, factor_ref[...] * (gradient - mean - normal * along), 0.0)
    triton.store(out_ref.at[column], out, mask=there)


def _columns(ref: Any) -> tuple[Array, Array]:
    column = jnp.arange(_block(ref.shape[0]))
    return column, column < ref.shape[0]


def _load(ref: Any, column: Array, there: Array) -> Array:
    return triton.load(ref.at[column], mask=there, other=0.0)
