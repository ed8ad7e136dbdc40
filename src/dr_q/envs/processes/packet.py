"""Packets: the outcome of one training step of every seed, as the bytes of one array.

One array, because each array sent to a device has the same fixed cost.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np

from dr_q.spaces import ObsSpec

_ALIGNMENT = 4
"""Bytes. Every part starts at a multiple of it, so that float32 values can be viewed in place."""


class PacketPart(NamedTuple):
    """Where a part of the observation lies in a packet: two observations, one after the other.

    The first is where the step led, the second is what to act on next. To unpack them:
    `packet[offset : offset + nbytes]`, read as `dtype`, in the shape `(2, *shape)`.
    """

    name: str
    offset: int
    """Bytes before the first observation."""
    nbytes: int
    """Bytes of both observations together."""
    shape: tuple[int, ...]
    """Of one observation."""
    dtype: np.dtype


@dataclasses.dataclass(frozen=True)
class PacketLayout:
    """Three float32 numbers (reward, terminated, truncated), then for each part its two observations."""

    obs: ObsSpec
    numbers_bytes: ClassVar[int] = 12

    @functools.cached_property
    def parts(self) -> tuple[PacketPart, ...]:
        """Where the parts lie, in the order of the observation's parts."""
        found, offset = [], self.numbers_bytes
        for name, part in self.obs.parts:
            nbytes = 2 * math.prod(part.shape) * part.dtype.itemsize
            found.append(PacketPart(name, offset, nbytes, part.shape, part.dtype))
            offset += _aligned(nbytes)
        return tuple(found)

    @functools.cached_property
    def size(self) -> int:
        """Bytes of one seed's packet."""
        return self.numbers_bytes + sum(_aligned(part.nbytes) for part in self.parts)

    def numbers(self, packet: np.ndarray) -> np.ndarray:
        """A view of [..., 3] numbers: reward, terminated, truncated."""
        return packet[..., : self.numbers_bytes].view(np.float32)

    def observations(self, packet: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Views of [..., *shape] observations: where the step led (`next_obs`), what to act on next (`obs`)."""
        next_obs, obs = {}, {}
        for name, offset, nbytes, shape, dtype in self.parts:
            middle, end = offset + nbytes // 2, offset + nbytes
            next_obs[name] = packet[..., offset:middle].view(dtype).reshape(*packet.shape[:-1], *shape)
            obs[name] = packet[..., middle:end].view(dtype).reshape(*packet.shape[:-1], *shape)
        return next_obs, obs


class Transitions(NamedTuple):
    """One training step of every seed; a leading axis of seeds. Its arrays are views of the packet."""

    packet: np.ndarray
    """[S, layout.size] bytes."""
    layout: PacketLayout

    @staticmethod
    def of(
        layout: PacketLayout, next_obs: Mapping[str, np.ndarray], obs: Mapping[str, np.ndarray], numbers: np.ndarray
    ) -> "Transitions":
        """Pack [S, ...] observations and [S, 3] numbers."""
        made = Transitions(np.zeros((len(numbers), layout.size), np.uint8), layout)
        made.numbers[...] = numbers
        for views, values in zip(layout.observations(made.packet), (next_obs, obs), strict=True):
            for name, view in views.items():
                view[...] = values[name]
        return made

    @property
    def next_obs(self) -> dict[str, np.ndarray]:
        """Where the step led."""
        return self.layout.observations(self.packet)[0]

    @property
    def obs(self) -> dict[str, np.ndarray]:
        """Observations to act on next; of the next episode where one ended."""
        return self.layout.observations(self.packet)[1]

    @property
    def numbers(self) -> np.ndarray:
        """[S, 3]: reward, terminated, truncated."""
        return self.layout.numbers(self.packet)

    @property
    def reward(self) -> np.ndarray:
        """Rewards of the step."""
        return self.numbers[:, 0]

    @property
    def terminated(self) -> np.ndarray:
        """Whether the episode reached a terminal state."""
        return self.numbers[:, 1] > 0

    @property
    def truncated(self) -> np.ndarray:
        """Whether the episode was cut off."""
        return self.numbers[:, 2] > 0

    def replace_obs(self, seed_index: int, obs: Mapping[str, np.ndarray]) -> None:
        """Write, in place, the observation that one seed acts on next."""
        for name, view in self.obs.items():
            view[seed_index] = obs[name]


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
