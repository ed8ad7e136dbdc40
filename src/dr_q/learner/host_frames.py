"""Observations of a replay that does not fit the device: a ring in host memory for each seed.

Only frames are here. Everything a draw needs stays on the device, so the same keys draw the same batches; the slots
drawn are fetched, their frames gathered by threads, and sent while the device works on the batch before.
"""

import concurrent.futures
import os

import numpy as np

from dr_q.replay.storage import after_writing
from dr_q.spaces import ObsSpec


class HostFrames:
    """The frames of all seeds."""

    def __init__(self, obs: ObsSpec, capacity: int, seeds: int, lanes: int = 1):
        self.rings = obs.zero_frames(seeds, capacity)
        """By part, [S, capacity, *frame]."""
        self._capacity, self._lanes = capacity, lanes
        self._seeds = np.repeat(np.arange(seeds), lanes)
        self._cursor = np.tile(np.arange(lanes), seeds)
        """Of each seed's lanes, one after the other."""
        self._threads = concurrent.futures.ThreadPoolExecutor(max(1, min(seeds, (os.cpu_count() or 1) - 1)))

    def restore(self, cursors: np.ndarray) -> None:
        """Continue to write where the replays' cursors are."""
        self._cursor = np.asarray(cursors, np.int64).reshape(-1).copy()

    def add(self, frames: dict[str, np.ndarray], final_frames: dict[str, np.ndarray], done: np.ndarray) -> None:
        """The frames of one transition of each seed and lane, [S x L, *frame], as `replay.add` stores them."""
        seeds = self._seeds
        final, after = after_writing(self._cursor, done, self._capacity, self._lanes)
        for name, ring in self.rings.items():
            ring[seeds, self._cursor] = frames[name]
            ring[seeds[done], final[done]] = final_frames[name][done]
        self._cursor = after

    def gather(self, slots: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The frames of each part at [S, F, B] slots."""
        out = {
            name: np.empty((*at.shape, *self.rings[name].shape[2:]), self.rings[name].dtype)
            for name, at in slots.items()
        }
        jobs = [
            self._threads.submit(np.take, ring, mine, 0, into, mode="clip")  # drawn slots are always in range
            for name, at in slots.items()
            for ring, mine, into in zip(self.rings[name], at, out[name], strict=True)
        ]
        for job in jobs:
            job.result()
        return out

    def gather_ahead(self, slots: dict[str, np.ndarray]) -> "concurrent.futures.Future[dict[str, np.ndarray]]":
        """The same, begun now and waited for later."""
        return _AHEAD.submit(self.gather, slots)


_AHEAD = concurrent.futures.ThreadPoolExecutor(1)
