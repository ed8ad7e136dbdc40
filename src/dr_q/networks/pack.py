"""Stored frames as the first convolution takes them: gathered, shifted, channels last, centred, padded with channels.

A byte x becomes (x - 127.5) / 128, which float16 and bfloat16 hold exactly. The encoder's own scale, x / 255 - 0.5, is
`SCALE` times that, and is applied to what the convolution gives. In a program for a CUDA GPU one kernel does it all
(`pack_kernel`); elsewhere it is the plain formula below.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt8

from dr_q.equations import StoredImages
from dr_q.networks.norm import has_cuda

CENTRE, UNIT = 127.5, 128.0
SCALE = UNIT / 255
_ALIGN_HALF = 8
"""Channels that 16-bit convolutions read at once."""
_UNSAFE_BYTES = (2**31, 2**32)
"""Sizes of stored frames that the kernel's 32-bit offsets cannot reach; it has 64-bit ones beyond."""


def pack(images: StoredImages | UInt8[Array, "N C h w"], dtype: Any) -> Float[Array, "N h w C2"]:
    """Images for the first convolution, in `dtype`."""
    if not isinstance(images, StoredImages):
        return pack_plain(images, dtype)
    low, high = _UNSAFE_BYTES
    if not has_cuda() or low <= images.frames.size <= high:
        return pack_plain(images.read(), dtype)

    def kernel(*parts: Array) -> Array:
        from dr_q.networks import pack_kernel

        return pack_kernel.pack(StoredImages(*parts), dtype)

    def plain(*parts: Array) -> Array:
        return pack_plain(StoredImages(*parts).read(), dtype)

    return jax.lax.platform_dependent(*images, cuda=kernel, default=plain)


def pack_plain(images: UInt8[Array, "N C h w"], dtype: Any) -> Float[Array, "N h w C2"]:
    """The plain formula, of images that have been read and shifted."""
    channels = images.shape[1]
    values = (images.astype(jnp.float32) - CENTRE) / UNIT
    padding = ((0, 0), (0, 0), (0, 0), (0, packed_channels(channels, dtype) - channels))
    return jnp.pad(values.transpose(0, 2, 3, 1), padding).astype(dtype)


def packed_channels(channels: int, dtype: Any) -> int:
    """Channels with those that are padding."""
    return channels if jnp.dtype(dtype).itemsize == 4 else -(-channels // _ALIGN_HALF) * _ALIGN_HALF
