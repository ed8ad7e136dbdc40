"""The convolutions of an image encoder on stored images, channels last, seed by seed.

`convolutions` is the plain way, on images that have been read. Here they are read, shifted and made channels last by
the kernel that also rounds them (`pack`), once for the forward and once for the backward pass, and nothing copies a
layer's result into another layout. With `--compute mixed` operands have 16 bits, as in `half`; what a convolution gives
is rounded to them, too, and the activation is computed in float32.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt8

from dr_q.config import Activation, Compute
from dr_q.equations import StoredImages
from dr_q.networks.convolutions import SLOPES_BY_OUTPUT
from dr_q.networks.half import BACKWARD, FORWARD, HalfWeight, gradient_of_master
from dr_q.networks.layers import Conv
from dr_q.networks.norm import ACTIVATIONS, has_cuda
from dr_q.networks.pack import SCALE, pack

PACK_FLOAT32 = False
"""Whether float32 updates for a CUDA GPU read images this way, too."""


def packs_images(compute: Compute) -> bool:
    """Whether updates are given `StoredImages`."""
    return compute == "mixed" or (PACK_FLOAT32 and has_cuda())


Images = StoredImages | UInt8[Array, "B c h w"]
Maps = list[Float[Array, "B _ _ _"]]
"""What each layer gives, channels last."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def packed_conv_features(activation: Activation, convs: tuple[Conv, ...], images: Images) -> Float[Array, "B c2 h2 w2"]:
    """activation(conv(.)) for each of the layers, of images scaled to [-0.5, 0.5]; as `conv_features`."""
    return _features(_forward_by_seed(activation)(convs, images))


def _features(maps: Maps) -> Float[Array, "B c2 h2 w2"]:
    return jnp.moveaxis(maps[-1], -1, 1).astype(jnp.float32)


def _forward(activation: Activation, convs: tuple[Conv, ...], images: Images) -> Maps:
    maps, x = [], pack(images, _types(convs)[0])
    for conv, scale in zip(convs, _scales(convs), strict=True):
        y = _convolve(x, _as(conv.weight, x), conv.stride).astype(jnp.float32) * scale
        x = ACTIVATIONS[activation](y + jnp.broadcast_to(conv.bias, y.shape)).astype(x.dtype)
        maps.append(x)
    return maps


def _backward(
    activation: Activation,
    convs: tuple[Conv, ...],
    images: Images,
    maps: Maps,
    gradient: Float[Array, "B c2 h2 w2"],
) -> tuple[Conv, ...]:
    """Gradients of the layers' weights, from the last layer to the first."""
    of_convs: list[Conv] = []
    dtype = _types(convs)[1]
    given = [pack(images, dtype), *(x.astype(dtype) for x in maps[:-1])]
    of_map = jnp.moveaxis(gradient, 1, -1)
    for conv, scale, x, y in reversed(list(zip(convs, _scales(convs), given, maps, strict=True))):
        of_map = of_map.astype(jnp.float32) * SLOPES_BY_OUTPUT[activation](y.astype(jnp.float32))
        of_bias = jnp.sum(of_map, axis=(0, 1, 2))
        _, pull = jax.vjp(functools.partial(_convolve, stride=conv.stride), x, _as(conv.weight, x))
        of_map, of_weight = pull((of_map * scale).astype(dtype))
        of_weight = of_weight[:, : conv.weight.shape[1]].astype(jnp.float32)  # without padding
        of_half = isinstance(conv.weight, HalfWeight)
        of_convs.append(Conv(gradient_of_master(of_weight) if of_half else of_weight, of_bias, conv.stride))
    return tuple(reversed(of_convs))


def _scales(convs: tuple[Conv, ...]) -> list[float]:
    """What each layer's products are multiplied with: the first one's images are centred, and not scaled yet."""
    return [SCALE, *(1.0 for _ in convs[1:])]


def _types(convs: tuple[Conv, ...]) -> tuple[Any, Any]:
    return (FORWARD, BACKWARD) if isinstance(convs[0].weight, HalfWeight) else (jnp.float32, jnp.float32)


def _as(weight: Array | HalfWeight, x: Array) -> Float[Array, "c_out c_in 3 3"]:
    """A weight in the type of what it is multiplied with, with channels of zeros where that has padding."""
    if isinstance(weight, HalfWeight):
        weight = weight.forward if x.dtype == FORWARD else weight.backward
    return jnp.pad(weight, ((0, 0), (0, x.shape[-1] - weight.shape[1]), (0, 0), (0, 0)))


def _convolve(x: Float[Array, "B h w c_in"], weight: Array, stride: int) -> Float[Array, "B h2 w2 c_out"]:
    return jax.lax.conv_general_dilated(
        x, weight, (stride, stride), "VALID", dimension_numbers=("NHWC", "OIHW", "NHWC")
    )


def _seed_by_seed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, of which vmap makes a sequence of calls; frames of all seeds stay one array."""
    single = jax.custom_batching.custom_vmap(function)

    @single.def_vmap
    def several(axis_size: int, in_batched: Any, convs: Any, images: Images, *rest: Any) -> tuple[Any, Any]:
        of_convs, of_images, *of_rest = in_batched

        def call(index: int) -> Any:
            def mine(x: Array, many: bool) -> Array:
                return x[index] if many else x

            if isinstance(images, StoredImages) and of_images.frames:
                stored = images.frames.shape[1]
                first = index * stored
                frames = images.frames.reshape(-1, *images.frames.shape[2:])
                others = StoredImages(frames, images.slots, images.shifts)
                own = jax.tree.map(mine, others, of_images._replace(frames=False))
                own = own._replace(slots=own.slots + first)
            else:
                own = jax.tree.map(mine, images, of_images)
            of_seed = jax.tree.map(mine, (convs, *rest), (of_convs, *of_rest))
            return single(of_seed[0], own, *of_seed[1:])

        results = jax.tree.map(lambda *of_one: jnp.stack(of_one), *map(call, range(axis_size)))
        return results, jax.tree.map(lambda _: True, results)

    return single


@functools.cache
def _forward_by_seed(activation: Activation) -> Callable[..., Maps]:
    return _seed_by_seed(functools.partial(_forward, activation))


@functools.cache
def _backward_by_seed(activation: Activation) -> Callable[..., tuple[Conv, ...]]:
    return _seed_by_seed(functools.partial(_backward, activation))


def _features_forward(activation, convs, images):
    maps = _forward_by_seed(activation)(convs, images)
    return _features(maps), (convs, images, maps)


def _features_backward(activation, residuals, gradient):
    return _backward_by_seed(activation)(*residuals, gradient), None  # images have no gradient


packed_conv_features.defvjp(_features_forward, _features_backward)
