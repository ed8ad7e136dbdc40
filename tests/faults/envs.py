"""A toy environment that can be told to fail at a call, for runs in which environments and disks fail."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from tests.envs import toys

CALLS = 0
"""Steps of all environments of this process."""
AT: dict[int, Callable[[], object]] = {}
"""What happens before a call, by its number."""


class Watched(toys.Walk):
    """A random walk; before each step it does what `AT` says."""

    def step(self, action) -> Any:
        global CALLS  # noqa: PLW0603 - of all environments of the process
        CALLS += 1
        given = AT.get(CALLS, lambda: None)()
        observation, *rest = super().step(action)
        return np.full_like(observation, np.nan) if given == "nan" else observation, *rest


def fails() -> None:
    """An environment that raises."""
    raise RuntimeError("the robot fell")


def dies() -> None:
    """A simulator that takes its process with it."""
    os._exit(9)


def lies() -> str:
    """An observation that is not a number."""
    return "nan"


def fills(file: Path) -> Callable[[], object]:
    """The disk is full from now on (`shim.c`, DRQ_FAULT_FULL)."""
    return file.touch


def empties(file: Path) -> Callable[[], object]:
    """The disk has room again."""
    return lambda: file.unlink(missing_ok=True)


def signals(number: int) -> Callable[[], object]:
    """A signal to this process."""
    return lambda: os.kill(os.getpid(), number)


def signals_twice(number: int = signal.SIGTERM) -> Callable[[], object]:
    """Two signals that count as two."""

    def send() -> None:
        os.kill(os.getpid(), number)
        time.sleep(0.5)
        os.kill(os.getpid(), number)

    return send


gymnasium.register("drq-watched-v0", entry_point="tests.faults.envs:Watched")
