"""Products with 16-bit operands, for `--compute mixed`; sums, results and the weights that learn are float32.

A forward product rounds its operands to float16, which has the mantissa of tf32, in which a GPU multiplies float32. The
two products of its gradient round theirs to bfloat16, which has the range of float32: gradients are small.

A layer computes so if its weight is a `HalfWeight`, which `mixed.for_compute` makes. `layers.product` is the
plain formula, and the same functions with a plain weight are what the tests compare with.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dr_q.networks.norm import NormTypes

FORWARD, BACKWARD = jnp.float16, jnp.bfloat16


class HalfWeight(eqx.Module):
    """A weight and what it is rounded to. Gradients are those of `master`."""

    master: Float[Array, "..."]
    forward: Float[Array, "..."]
    """For forward products."""
    backward: Float[Array, "..."]
    """For the gradients of what was multiplied with it."""

    @staticmethod
    def of(weight: Float[Array, "..."]) -> "HalfWeight":
        """The same weight for 16-bit products."""
        constant = jax.lax.stop_gradient(weight)
        # The same numbers as of a conversion alone. XLA for GPUs makes a kernel of its own of that one, but puts this
        # one into the kernel that has made the weight.
        rounded = jax.lax.reduce_precision(constant, exponent_bits=8, mantissa_bits=7)
        return HalfWeight(weight, constant.astype(FORWARD), rounded.astype(BACKWARD))

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the weight."""
        return self.master.shape


Weight = Float[Array, "n_out n_in"] | HalfWeight
"""Of a layer, as it is or for 16-bit products."""


def norm_types(weight: Any, following: Any = None) -> NormTypes:
    """How the norm after a product with `weight` rounds, if its result is multiplied with `following` alone."""
    forward, backward = jnp.dtype(FORWARD).name, jnp.dtype(BACKWARD).name
    is_half = isinstance(weight, HalfWeight)
    return NormTypes(
        out=forward if isinstance(following, HalfWeight) else "float32",
        normal=forward if is_half else "float32",
        gradient=backward if is_half else "float32",
    )


@jax.custom_vjp
def half_product(x: Float[Array, "*B n_in"], weight: HalfWeight) -> Float[Array, "*B n_out"]:
    """Each x times the weight, as `layers.product`."""
    return _dot(x.astype(FORWARD), weight.forward, ((x.ndim - 1,), (1,)))


def half_back(of_output: Float[Array, "*B n_out"], weight: HalfWeight) -> Float[Array, "*B n_in"]:
    """The gradient of x from that of the product."""
    return _dot(of_output.astype(BACKWARD), weight.backward, ((of_output.ndim - 1,), (0,)))


def half_of_weight(x: Float[Array, "*B n_in"], of_output: Float[Array, "*B n_out"]) -> HalfWeight:
    """The gradient of the weight from that of the product."""
    over = tuple(range(x.ndim - 1))
    return gradient_of_master(_dot(of_output.astype(BACKWARD), x.astype(BACKWARD), (over, over)))


def gradient_of_master(gradient: Float[Array, "..."]) -> HalfWeight:
    """The gradient of a `HalfWeight`: nothing is learnt of what the weight is rounded to."""
    return HalfWeight(gradient, jnp.zeros(gradient.shape, FORWARD), jnp.zeros(gradient.shape, BACKWARD))


def _dot(x: Array, y: Array, over: tuple[tuple[int, ...], tuple[int, ...]]) -> Float[Array, "..."]:
    return jax.lax.dot_general(x, y, (over, ((), ())), preferred_element_type=jnp.float32)


def _product_forward(x, weight):
    return half_product(x, weight), (x.astype(FORWARD), weight)


def _product_backward(residuals, gradient):
    x, weight = residuals
    return half_back(gradient, weight), half_of_weight(x, gradient)


half_product.defvjp(_product_forward, _product_backward)
