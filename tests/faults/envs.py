"""A toy environment that can be told to fail at a call, for runs in which environments and disks fail.

In this process by `AT`. In processes that this one starts by a variable: `DRQ_ENV_FAULTS="120=hangs,200=fills:FILE"`.
With `DRQ_ENV_FAULTS_ONCE=FILE` only the first process that reaches a fault has it; the file then says when.
It needs nothing of the package, so that other versions of it can be tested.
"""

import contextlib
import os
import re
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
        observation, reward, *rest = super().step(action)
        if given == "nan":
            observation = np.full_like(observation, np.nan)
        elif given == "another size":
            observation = np.zeros(3, np.float32)
        elif given == "infinite":
            reward = np.inf
        elif given == "four values":
            return observation, reward, *rest[1:]
        return observation, reward, *rest


class Generous(toys.Walk):
    """Rewards of 1e20."""

    def outcome(self, action):
        return 1e20, *super().outcome(action)[1:]


def fails() -> None:
    """An environment that raises."""
    raise RuntimeError("the robot fell")


def dies() -> None:
    """A simulator that takes its process with it."""
    os._exit(9)


def lies() -> str:
    """An observation that is not a number."""
    return "nan"


def hangs() -> None:
    """A step that takes longer than anybody waits."""
    time.sleep(600)


def hangs_stubbornly() -> None:
    """The same, by an environment that catches everything."""
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(600)


def computes() -> None:
    """For years, and no other thread of Python runs meanwhile."""
    re.match(r"(a+)+$", "a" * 60 + "b")


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


_NAMED: dict[str, Callable[[], object]] = {
    "raises": fails,
    "dies": dies,
    "hangs": hangs,
    "hangs stubbornly": hangs_stubbornly,
    "computes": computes,
    "is killed": signals(signal.SIGKILL),
    "is stopped": signals(signal.SIGSTOP),
    **{lie: lambda lie=lie: lie for lie in ("nan", "infinite", "another size", "four values")},
}


def once(fault: Callable[[], object], file: Path | None = None) -> Callable[[], object]:
    """Only in the first process that comes to it, which writes down when in a file; by default the variable's."""
    named = os.environ.get("DRQ_ENV_FAULTS_ONCE")
    place = Path(named) if file is None and named is not None else file

    def take() -> object:
        if place is None:
            return fault()
        try:
            with place.open("x") as first:  # one of several processes succeeds
                first.write(str(time.time()))
        except FileExistsError:
            return None
        return fault()

    return take


def faults_of(text: str) -> dict[int, Callable[[], object]]:
    """Those that a variable names."""
    found: dict[int, Callable[[], object]] = {}
    for part in filter(None, text.split(",")):
        call, _, what = part.partition("=")
        name, _, argument = what.partition(":")
        if name in ("fills", "empties"):
            found[int(call)] = {"fills": fills, "empties": empties}[name](Path(argument))
        else:
            found[int(call)] = once(_NAMED[name])
    return found


AT.update(faults_of(os.environ.get("DRQ_ENV_FAULTS", "")))
gymnasium.register("drq-generous-v0", entry_point="tests.faults.envs:Generous")
gymnasium.register("drq-watched-v0", entry_point="tests.faults.envs:Watched")
