"""Observations of a replay that does not fit the device: a ring in host memory for each seed.

Only frames are here. Everything a draw needs stays on the device, so the same keys draw the same batches; the slots
drawn are fetched, their frames gathered by threads, and sent while the device works on the batch before.
"""

import concurrent.futures
import os

import numpy as np

from dr_q import replay as rp


class HostFrames:
    """The frames of all seeds."""

    def __init__(self, spec: rp.ReplaySpec, seeds: int):
        dtype = np.uint8 if spec.pixels else np.float32
        self.rings = np.zeros((seeds, spec.capacity, *spec.frame_shape), dtype)
        self._cursor = np.zeros(seeds, np.int64)
        self._threads = concurrent.futures.ThreadPoolExecutor(max(1, min(seeds, (os.cpu_count() or 1) - 1)))

    def restore(self, cursors: np.ndarray) -> None:
        """Go on writing where the replays' cursors are."""
        self._cursor = np.asarray(cursors, np.int64).copy()

    def add(self, frames: np.ndarray, final_frames: np.ndarray, done: np.ndarray) -> None:
        """The frames of one transition of each seed, as `replay.add` stores them."""
        capacity = self.rings.shape[1]
        seeds = np.arange(len(self.rings))
        self.rings[seeds, self._cursor] = frames
        self.rings[seeds[done], (self._cursor[done] + 1) % capacity] = final_frames[done]
        self._cursor = (self._cursor + 1 + done) % capacity

    def gather(self, slots: np.ndarray) -> np.ndarray:
        """The frames at [S, F, B] slots."""
        out = np.empty((*slots.shape, *self.rings.shape[2:]), self.rings.dtype)
        jobs = [
            self._threads.submit(np.take, ring, mine, 0, into, mode="clip")  # drawn slots are always in range
            for ring, mine, into in zip(self.rings, slots, out, strict=True)
        ]
        for job in jobs:
            job.result()
        return out

    def gather_ahead(self, slots: np.ndarray) -> "concurrent.futures.Future[np.ndarray]":
        """The same, begun now and waited for later."""
        return _AHEAD.submit(self.gather, slots)


_AHEAD = concurrent.futures.ThreadPoolExecutor(1)
