"""Counters in shared memory that say whose turn it is; every access to them is in this file, with its fence.

The loop writes what a command needs and then raises `order`. A worker that sees a new `order` reads it, writes what
came of it, and then raises `answer`. A counter must never become visible before the data it announces, and data must
never be read before the counter was. `full_fence` ensures both on processors that reorder memory accesses.
"""

import numpy as np

from dr_q.envs.processes.fence import full_fence
from dr_q.envs.processes.seed_envs import Command, SharedArrays

POLL_EVERY = 20e-6
"""Seconds between polls of the counters, on both sides."""


def give_order(arrays: SharedArrays, command: Command, which: np.ndarray) -> None:
    """Loop: tell workers, by the rows of their counters, to carry out a command, whose data is already written."""
    arrays.command[which] = command
    full_fence()
    arrays.order[which] += 1


def waiting_for(arrays: SharedArrays, which: np.ndarray) -> np.ndarray:
    """Loop: for each of these rows, whether its worker has not answered yet; where none is left, data may be read."""
    waits = arrays.order[which] != arrays.answer[which]
    full_fence()
    return waits


def has_order(arrays: SharedArrays, done: int) -> bool:
    """Worker: whether there is a command beyond those carried out; if so, its data may be read."""
    given = bool(arrays.order != done)
    full_fence()
    return given


def give_answer(arrays: SharedArrays, done: int) -> None:
    """Worker: say how many commands are carried out; the data of the last one is already written."""
    full_fence()
    arrays.answer[...] = done
