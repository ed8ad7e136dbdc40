"""Random shift of images, the augmentation of every training batch of pixels."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, UInt8


def random_shifts(key: Key[Array, ""], count: int, pad: int) -> tuple[Int[Array, "N 1"], Int[Array, "N 1"]]:
    """Whole numbers of pixels in -pad..pad, of rows and of columns; independent and uniform."""
    key_rows, key_columns = jax.random.split(key)
    rows = jax.random.randint(key_rows, (count, 1), -pad, pad + 1)
    return rows, jax.random.randint(key_columns, (count, 1), -pad, pad + 1)


def random_shift(
    images: UInt8[Array, "N C height width"], key: Key[Array, ""], pad: int
) -> UInt8[Array, "N C height width"]:
    """Each image moved by its own whole number of pixels in -pad..pad along x and y, edges replicated.

    Shifts are independent and uniform; the channels of an image move together.
    """
    return shifted(images, *random_shifts(key, images.shape[0], pad))


def shifted(
    images: UInt8[Array, "N C height width"], shift_rows: Int[Array, "N 1"], shift_columns: Int[Array, "N 1"]
) -> UInt8[Array, "N C height width"]:
    """Each image moved by its own numbers of pixels, edges replicated."""
    height, width = images.shape[-2:]
    # Replicate-padding and cropping is reading at clipped coordinates: no padded copy is made.
    rows = jnp.clip(jnp.arange(height)[None] + shift_rows, 0, height - 1)
    columns = jnp.clip(jnp.arange(width)[None] + shift_columns, 0, width - 1)
    take = jax.vmap(lambda image, row, column: image[:, row][:, :, column])
    return take(images, rows, columns)


class StoredImages(NamedTuple):
    """Stacks of frames that still lie where they are stored, and by how much each is to be shifted.

    A network that is given these reads, shifts and converts them at once. `frames` has no axis of the batch: all else
    is done to `slots` and `shifts`, by `x[...]` and `reshape` as with an array.
    """

    frames: UInt8[Array, "stored c height width"]
    slots: Int[Array, "*N stack"]
    """Where the frames of each stack are, oldest first."""
    shifts: Int[Array, "*N 2"]
    """Pixels that each stack is moved by, of rows and of columns."""

    def at(self, index: int | slice) -> "StoredImages":
        """Those at places of the first axis."""
        return self._replace(slots=self.slots[index], shifts=self.shifts[index])

    def flat(self) -> "StoredImages":
        """All of them along one axis."""
        return self._replace(slots=self.slots.reshape(-1, self.slots.shape[-1]), shifts=self.shifts.reshape(-1, 2))

    def read(self) -> UInt8[Array, "N C height width"]:
        """The images, of one axis of them: the plain formula."""
        stacks = self.frames[self.slots]
        images = stacks.reshape(stacks.shape[0], -1, *stacks.shape[-2:])
        return shifted(images, self.shifts[:, :1], self.shifts[:, 1:])
