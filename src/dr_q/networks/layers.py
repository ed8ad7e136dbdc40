"""Linear, convolution, layer norm and MLP, as the paper's networks use them.

Ours rather than equinox.nn's: weights lie (in, out) so that a batch multiplies from the left, any number of leading
axes goes through, and initialisation is the paper's (Xavier uniform with gain sqrt(2), bias 0).
"""

import math
from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

Activation = Literal["elu", "relu"]


def elu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x where positive, e^x - 1 elsewhere.

    jax.nn.elu uses expm1, which costs twice as much on the CPU for digits that layer norm makes meaningless.
    """
    return jnp.where(x > 0, x, jnp.exp(jnp.where(x > 0, 0.0, x)) - 1)


ACTIVATIONS: dict[Activation, Callable[[Array], Array]] = {"elu": elu, "relu": jax.nn.relu}

_LAYER_NORM_EPSILON = 1e-5
_GAIN = math.sqrt(2)


def xavier_uniform(key: Key[Array, ""], shape: tuple[int, ...], fan_in: int, fan_out: int) -> Array:
    """Uniform within +-gain * sqrt(6 / (fan_in + fan_out)), gain sqrt(2)."""
    bound = _GAIN * math.sqrt(6 / (fan_in + fan_out))
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def layer_norm(x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
    """Zero mean and unit variance over the last axis; no scale, no shift."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + _LAYER_NORM_EPSILON)


class Linear(eqx.Module):
    """x @ weight + bias."""

    weight: Float[Array, "n_in n_out"]
    bias: Float[Array, "n_out"]

    @staticmethod
    def init(key: Key[Array, ""], n_in: int, n_out: int) -> "Linear":
        """Xavier-uniform weight, zero bias."""
        return Linear(xavier_uniform(key, (n_in, n_out), n_in, n_out), jnp.zeros(n_out))

    def __call__(self, x: Float[Array, "*B n_in"]) -> Float[Array, "*B n_out"]:
        """Apply to the last axis."""
        y = x @ self.weight
        return y + jnp.broadcast_to(self.bias, y.shape)


class Conv(eqx.Module):
    """A 3x3 convolution without padding, channels first."""

    weight: Float[Array, "c_out c_in 3 3"]
    bias: Float[Array, "c_out"]
    stride: int = eqx.field(static=True)

    @staticmethod
    def init(key: Key[Array, ""], c_in: int, c_out: int, stride: int) -> "Conv":
        """Xavier-uniform weight, zero bias."""
        weight = xavier_uniform(key, (c_out, c_in, 3, 3), 9 * c_in, 9 * c_out)
        return Conv(weight, jnp.zeros(c_out), stride)

    def __call__(self, x: Float[Array, "B c_in h w"]) -> Float[Array, "B c_out h2 w2"]:
        """Apply to a batch of images."""
        y = jax.lax.conv_general_dilated(
            x, self.weight, (self.stride, self.stride), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW")
        )
        return y + jnp.broadcast_to(self.bias[None, :, None, None], y.shape)


class MLP(eqx.Module):
    """Two hidden layers, each Linear -> LayerNorm -> activation, and a plain Linear output."""

    hidden1: Linear
    hidden2: Linear
    output: Linear
    activation: Activation = eqx.field(static=True)

    @staticmethod
    def init(key: Key[Array, ""], n_in: int, hidden: int, n_out: int, activation: Activation) -> "MLP":
        """MLP(n_in, hidden, n_out)."""
        key_1, key_2, key_output = jax.random.split(key, 3)
        return MLP(
            Linear.init(key_1, n_in, hidden),
            Linear.init(key_2, hidden, hidden),
            Linear.init(key_output, hidden, n_out),
            activation,
        )

    def __call__(self, x: Float[Array, "*B n_in"]) -> Float[Array, "*B n_out"]:
        """Apply to the last axis."""
        activate = ACTIVATIONS[self.activation]
        y = activate(layer_norm(self.hidden1(x)))
        y = activate(layer_norm(self.hidden2(y)))
        return self.output(y)
