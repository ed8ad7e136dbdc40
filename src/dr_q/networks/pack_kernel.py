"""`pack` as a GPU kernel, with `_PIXELS` pixels of one image per kernel instance (Pallas on Triton).

Bytes are read along the rows of a frame and written along the channels of a pixel; Triton turns them in shared memory.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from dr_q.equations import StoredImages
from dr_q.networks.pack import CENTRE, UNIT, packed_channels

_PIXELS = 256
"""Pixels of one kernel instance."""
_WARPS = 4


def pack(images: StoredImages, dtype: Any, *, interpret: bool = False) -> Float[Array, "N h w C2"]:
    """Gathered, shifted, channels last; see `dr_q.networks.pack`."""
    count, stack = images.slots.shape
    _, colours, height, width = images.frames.shape
    channels = packed_channels(stack * colours, dtype)
    pixels = height * width
    call = pl.pallas_call(
        functools.partial(_kernel, channels=stack * colours),
        out_shape=jax.ShapeDtypeStruct((count, pixels, channels), dtype),
        grid=(count, math.ceil(pixels / _PIXELS)),
        compiler_params=triton.CompilerParams(num_warps=_WARPS),
        interpret=interpret,
        name="pack_images",
    )
    return call(images.frames, images.slots, images.shifts).reshape(count, height, width, channels)


def _kernel(frames_ref, slots_ref, shifts_ref, out_ref, *, channels: int) -> None:
    _, colours, height, width = frames_ref.shape
    image = pl.program_id(0)
    rows_of_tile = 2 ** math.ceil(math.log2(out_ref.shape[2]))  # Triton's arrays have sizes that are powers of two
    shape = (rows_of_tile, _PIXELS)
    channel = jax.lax.broadcasted_iota(jnp.int32, shape, 0)
    pixel = pl.program_id(1) * _PIXELS + jax.lax.broadcasted_iota(jnp.int32, shape, 1)
    is_pixel = pixel < height * width
    is_channel = is_pixel & (channel < channels)

    row = jnp.clip(pixel // width + shifts_ref[image, 0], 0, height - 1)
    column = jnp.clip(pixel % width + shifts_ref[image, 1], 0, width - 1)
    here = jnp.full(shape, image)
    frame = jnp.where(channel < channels, channel // colours, 0)
    slot = triton.load(slots_ref.at[here, frame], mask=is_channel, other=0)
    bytes_ = triton.load(frames_ref.at[slot, channel % colours, row, column], mask=is_channel, other=0)
    value = jnp.where(is_channel, (bytes_.astype(jnp.float32) - CENTRE) / UNIT, 0.0)
    there = is_pixel & (channel < out_ref.shape[2])
    triton.store(out_ref.at[here, pixel, channel], value.astype(out_ref.dtype), mask=there)
