"""Random shift of images, the augmentation of every training batch of pixels."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, UInt8


def random_shift(
    images: UInt8[Array, "N C height width"], key: Key[Array, ""], pad: int
) -> UInt8[Array, "N C height width"]:
    """Each image moved by its own whole number of pixels in -pad..pad along x and y, edges replicated.

    Shifts are independent and uniform; the channels of an image move together.
    """
    count, _, height, width = images.shape
    key_rows, key_columns = jax.random.split(key)
    shift_rows = jax.random.randint(key_rows, (count, 1), -pad, pad + 1)
    shift_columns = jax.random.randint(key_columns, (count, 1), -pad, pad + 1)
    # Replicate-padding and cropping is reading at clipped coordinates: no padded copy is made.
    rows = jnp.clip(jnp.arange(height)[None] + shift_rows, 0, height - 1)
    columns = jnp.clip(jnp.arange(width)[None] + shift_columns, 0, width - 1)
    take = jax.vmap(lambda image, row, column: image[:, row][:, :, column])
    return take(images, rows, columns)
