"""Linear, convolution and MLP, as the paper's networks use them.

Ours rather than equinox.nn's: any number of leading axes goes through, and initialisation is the paper's (Xavier
uniform with gain sqrt(2), bias 0). Weights lie (out, in), as PyTorch's: a product then reads both its operands along
what it sums over, which is what a GPU's tf32 units need.

Arrays are padded with zeros to sizes that matrix units like: a hidden width of 750 is stored as 752. The mathematics
is that of the true width: layer norm counts true entries only and leaves padded ones 0, so padded weights get no
gradient and stay 0.
"""

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from dr_q.config import Activation
from dr_q.networks.half import HalfWeight, Weight, half_back, half_of_weight, half_product, norm_types
from dr_q.networks.norm import normed

_GAIN = math.sqrt(2)
_ALIGN_WIDTH = 16
_ALIGN_INPUT = 8
_SMALL_WIDTH = 64


def padded_width(width: int) -> int:
    """Outputs stored for a layer of `width`: whole 64-byte lines, except in small layers."""
    return width if width < _SMALL_WIDTH else -(-width // _ALIGN_WIDTH) * _ALIGN_WIDTH


def padded_input(width: int) -> int:
    """Inputs stored for an input of `width`: whole 32-byte lines."""
    return -(-width // _ALIGN_INPUT) * _ALIGN_INPUT


def pad_last(x: Float[Array, "..."], size: int) -> Float[Array, "..."]:
    """Zeros after the last axis, up to `size`."""
    missing = size - x.shape[-1]
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)]) if missing else x


def xavier_uniform(key: Key[Array, ""], shape: tuple[int, ...], fan_in: int, fan_out: int) -> Array:
    """Uniform within +-gain * sqrt(6 / (fan_in + fan_out)), gain sqrt(2)."""
    bound = _GAIN * math.sqrt(6 / (fan_in + fan_out))
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def product(x: Float[Array, "*B n_in"], weight: Weight) -> Float[Array, "*B n_out"]:
    """Each x times the weight."""
    if isinstance(weight, HalfWeight):
        return half_product(x, weight)  # pyright: ignore[reportReturnType] - jax.custom_vjp loses the type
    return jax.lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())))


def product_back(of_output: Float[Array, "*B n_out"], weight: Weight) -> Float[Array, "*B n_in"]:
    """The gradient of x from that of `product`."""
    return half_back(of_output, weight) if isinstance(weight, HalfWeight) else of_output @ weight


def product_of_weight(x: Float[Array, "N n_in"], of_output: Float[Array, "N n_out"], weight: Weight) -> Weight:
    """The gradient of the weight from that of `product`."""
    return half_of_weight(x, of_output) if isinstance(weight, HalfWeight) else of_output.T @ x


def convolve(
    x: Float[Array, "B c_in h w"], weight: Float[Array, "c_out c_in 3 3"], stride: int
) -> Float[Array, "B c_out h2 w2"]:
    """Each x convolved with the weight, without padding, channels first."""
    return jax.lax.conv_general_dilated(
        x, weight, (stride, stride), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW")
    )


class Linear(eqx.Module):
    """weight @ x + bias."""

    weight: Any
    """[n_out, n_in], or a `HalfWeight` of it."""
    bias: Float[Array, "n_out"]

    @staticmethod
    def init(key: Key[Array, ""], n_in: int, n_out: int) -> "Linear":
        """Xavier-uniform weight, zero bias."""
        return Linear(xavier_uniform(key, (n_out, n_in), n_in, n_out), jnp.zeros(n_out))

    def __call__(self, x: Float[Array, "*B n_in"]) -> Float[Array, "*B n_out"]:
        """Apply to the last axis."""
        y = product(x, self.weight)
        return y + jnp.broadcast_to(self.bias, y.shape)

    def normed(
        self, x: Float[Array, "*B n_in"], activation: Activation, width: int, following: Any = None
    ) -> Float[Array, "*B n_out"]:
        """activation(LayerNorm(.)) of what this layer gives; `following` is what it is multiplied with next."""
        types = norm_types(self.weight, following)
        return normed(product(x, self.weight), self.bias, activation, width, types)

    def padded(self, n_in: int, n_out: int) -> "Linear":
        """The same with zero inputs and outputs up to these numbers."""
        rows, columns = n_out - self.weight.shape[0], n_in - self.weight.shape[1]
        if not rows and not columns:
            return self
        return Linear(jnp.pad(self.weight, ((0, rows), (0, columns))), jnp.pad(self.bias, (0, rows)))


class Conv(eqx.Module):
    """A 3x3 convolution without padding, channels first."""

    KERNEL: ClassVar[int] = 3
    weight: Any
    """[c_out, c_in, 3, 3], or a `HalfWeight` of it."""
    bias: Float[Array, "c_out"]
    stride: int = eqx.field(static=True)

    @staticmethod
    def init(key: Key[Array, ""], c_in: int, c_out: int, stride: int) -> "Conv":
        """Xavier-uniform weight, zero bias."""
        size = (Conv.KERNEL, Conv.KERNEL)
        weight = xavier_uniform(key, (c_out, c_in, *size), math.prod(size) * c_in, math.prod(size) * c_out)
        return Conv(weight, jnp.zeros(c_out), stride)

    def __call__(self, x: Float[Array, "B c_in h w"]) -> Float[Array, "B c_out h2 w2"]:
        """Apply to a batch of images."""
        y = convolve(x, self.weight, self.stride)
        return y + jnp.broadcast_to(self.bias[None, :, None, None], y.shape)


class MLP(eqx.Module):
    """Two hidden layers, each Linear -> LayerNorm -> activation, and a plain Linear output."""

    hidden1: Linear
    hidden2: Linear
    output: Linear
    activation: Activation = eqx.field(static=True)
    width: int = eqx.field(static=True)
    """Hidden width; the arrays may be padded beyond it."""

    @staticmethod
    def init(key: Key[Array, ""], n_in: int, hidden: int, n_out: int, activation: Activation) -> "MLP":
        """MLP(n_in, hidden, n_out)."""
        key_1, key_2, key_output = jax.random.split(key, 3)
        return MLP.from_layers(
            Linear.init(key_1, n_in, hidden),
            Linear.init(key_2, hidden, hidden),
            Linear.init(key_output, hidden, n_out),
            activation,
        )

    @staticmethod
    def from_layers(hidden1: Linear, hidden2: Linear, output: Linear, activation: Activation) -> "MLP":
        """An MLP of layers of their true sizes."""
        width, n_in = hidden1.weight.shape
        stored = padded_width(width)
        return MLP(
            hidden1.padded(n_in, stored),
            hidden2.padded(stored, stored),
            output.padded(stored, output.bias.size),
            activation,
            width,
        )

    def __call__(self, x: Float[Array, "*B n_in"]) -> Float[Array, "*B n_out"]:
        """Apply to the last axis."""
        return self.output(self.hidden(x))

    def normed(self, x: Float[Array, "*B n_in"], width: int) -> Float[Array, "*B n_out"]:
        """The same, and then activation(LayerNorm(.)) over the first `width` outputs."""
        return self.output.normed(self.hidden(x), self.activation, width)

    def hidden(self, x: Float[Array, "*B n_in"]) -> Float[Array, "*B hidden"]:
        """What the output layer is given."""
        y = self.hidden1.normed(x, self.activation, self.width, self.hidden2.weight)
        return self.hidden2.normed(y, self.activation, self.width, self.output.weight)
