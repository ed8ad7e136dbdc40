"""The convolutions of an image encoder, computed seed by seed.

vmap would make one convolution of all seeds, with a group of channels for each, whose gradient took 17 ms where one
convolution for each seed takes 4 (five seeds, an H200). So it is told to take one seed after the other. All layers are
one function, with its gradient written out: otherwise the seeds would be stacked again between two layers.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt8

from dr_q.config import Activation
from dr_q.networks.layers import Conv, convolve
from dr_q.networks.norm import ACTIVATIONS

SLOPES_BY_OUTPUT: dict[Activation, Callable[[Array], Array]] = {
    "elu": lambda y: jnp.where(y > 0, 1.0, y + 1),
    "relu": lambda y: (y > 0).astype(y.dtype),
}
Images = UInt8[Array, "B c h w"]
Maps = list[Float[Array, "B _ _ _"]]
"""What each layer gives."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def conv_features(activation: Activation, convs: tuple[Conv, ...], obs: Images) -> Float[Array, "B c2 h2 w2"]:
    """activation(conv(.)) for each of the layers, of images scaled to [-0.5, 0.5]."""
    return _forward_by_seed(activation)(convs, obs)[-1]


def _forward(activation: Activation, convs: tuple[Conv, ...], obs: Images) -> Maps:
    maps, x = [], _scaled(obs).astype(convs[0].weight.dtype)  # float32, unless an export is checked in float64
    for conv in convs:
        x = ACTIVATIONS[activation](conv(x))
        maps.append(x)
    return maps


def _backward(
    activation: Activation, convs: tuple[Conv, ...], obs: Images, maps: Maps, gradient: Float[Array, "B c2 h2 w2"]
) -> tuple[Conv, ...]:
    """Gradients of the layers' weights, from the last layer to the first."""
    of_convs = []
    for conv, x, y in reversed(list(zip(convs, [_scaled(obs), *maps[:-1]], maps, strict=True))):
        gradient = gradient * SLOPES_BY_OUTPUT[activation](y)
        _, pull = jax.vjp(functools.partial(convolve, stride=conv.stride), x, conv.weight)
        of_bias = jnp.sum(gradient, axis=(0, 2, 3))
        gradient, of_weight = pull(gradient)
        of_convs.append(Conv(of_weight, of_bias, conv.stride))
    return tuple(reversed(of_convs))


def _scaled(obs: Images) -> Float[Array, "B c h w"]:
    return obs.astype(jnp.float32) / 255 - 0.5


def one_after_the_other(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, of which vmap makes a sequence of calls."""
    single = jax.custom_batching.custom_vmap(function)

    @single.def_vmap
    def several(axis_size: int, in_batched: Any, *arguments: Any) -> tuple[Any, Any]:
        def call(index: int) -> Any:
            return single(*jax.tree.map(lambda x, many: x[index] if many else x, arguments, tuple(in_batched)))

        results = jax.tree.map(lambda *of_one: jnp.stack(of_one), *map(call, range(axis_size)))
        return results, jax.tree.map(lambda _: True, results)

    return single


@functools.cache
def _forward_by_seed(activation: Activation) -> Callable[..., Maps]:
    return one_after_the_other(functools.partial(_forward, activation))


@functools.cache
def _backward_by_seed(activation: Activation) -> Callable[..., tuple[Conv, ...]]:
    return one_after_the_other(functools.partial(_backward, activation))


def _features_forward(activation, convs, obs):
    maps = _forward_by_seed(activation)(convs, obs)
    return maps[-1], (convs, obs, maps)


def _features_backward(activation, residuals, gradient):
    return _backward_by_seed(activation)(*residuals, gradient), None  # images have no gradient


conv_features.defvjp(_features_forward, _features_backward)
