"""A counter in shared memory is never visible before the data it announces, and data is never read before it."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dr_q.envs import ProcessPool, Source
from dr_q.envs.processes import fence, flags, worker
from dr_q.envs.processes.channel import CommandPipe, PipeClosedError
from dr_q.envs.processes.lanes import Lanes
from dr_q.envs.processes.seed_envs import Command, SeedEnvs, SharedArrays
from tests.envs import toys


class Recorded(np.ndarray):
    """An array, its views included, that notes each time its memory is read or written."""

    label: str
    events: list[str]

    def __array_finalize__(self, source: Any) -> None:
        self.label, self.events = getattr(source, "label", ""), getattr(source, "events", [])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.events.append(f"write {self.label}")
        self.view(np.ndarray)[key] = value

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        self.events.extend(f"read {array.label}" for array in inputs if isinstance(array, Recorded))
        options.pop("out", None)  # an `array[...] += 1`, which writes through __setitem__ afterwards
        return getattr(ufunc, method)(*(np.asarray(array) for array in inputs), **options)

    def __int__(self) -> int:
        self.events.append(f"read {self.label}")
        return int(self.view(np.ndarray))

    def copy(self, order: Any = "C") -> np.ndarray:
        self.events.append(f"read {self.label}")
        return self.view(np.ndarray).copy(order)


def recorded(arrays: SharedArrays, events: list[str]) -> SharedArrays:
    """The same memory."""

    def wrap(label: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: wrap(label, array) for name, array in value.items()}
        view = value.view(Recorded)
        view.label, view.events = label, events
        return view

    return SharedArrays(**{f.name: wrap(f.name, getattr(arrays, f.name)) for f in dataclasses.fields(arrays)})


@pytest.fixture
def events(monkeypatch):
    found: list[str] = []

    def note_fence() -> None:
        found.append("fence")
        fence.full_fence()

    monkeypatch.setattr(flags, "full_fence", note_fence)
    return found


def last(events: list[str], what: str) -> int:
    return len(events) - 1 - events[::-1].index(what)


@pytest.mark.parametrize("spin", [False, True])
def test_the_loop_writes_data_fence_order_and_reads_answer_fence_data(events, spin):
    pool = ProcessPool(Source(toys.Walk), [3, 4], 1, spin=spin)
    plain = pool._arrays  # pyright: ignore[reportPrivateUsage]
    try:
        pool.begin()
        pool._arrays = recorded(plain, events)  # pyright: ignore[reportPrivateUsage]
        events.clear()
        pool.send(np.zeros((2, 1), np.float32))
        ordered = events.index("write order")
        assert {"write action", "write command"} <= set(events[:ordered])
        assert events[ordered - 2 : ordered] == ["fence", "read order"]  # it is raised by one
        pool.receive()
        assert "fence" in events[last(events, "read answer") : events.index("read packet")]
    finally:
        pool._arrays = plain  # pyright: ignore[reportPrivateUsage]
        del plain
        pool.close()


class OneCommand(CommandPipe):
    """A pipe that closes when a worker waits for a second command."""

    def wait(self, seconds: float) -> None:
        raise PipeClosedError


def test_a_worker_reads_order_fence_data_and_writes_data_fence_answer(events):
    envs = SeedEnvs(Source(toys.Walk).make, 3)
    arrays = SharedArrays.allocate(envs.spec, 1, 1).row(0)
    envs.begin(arrays)
    arrays.command[...], arrays.order[...] = Command.STEP, 1
    with Path(os.devnull).open("wb") as answers, pytest.raises(PipeClosedError):
        worker.serve(OneCommand(0), answers, Lanes([envs]), [recorded(arrays, events)], 0.0)
    first_data = min(events.index("read command"), events.index("read action"))
    assert events[:first_data] == ["read order", "fence"]
    answered = events.index("write answer")
    assert {"write packet", "write seconds"} <= set(events[:answered])
    assert events[answered - 1] == "fence"
    assert arrays.answer == 1


def test_a_fence_takes_the_lock_twice(monkeypatch):
    """Once is no fence: accesses from both sides may move into the locked section."""
    events = []

    class Lock:
        def acquire(self) -> None:
            events.append(("acquire", self))

        def release(self) -> None:
            events.append(("release", self))

    monkeypatch.setattr(fence, "Lock", Lock)
    fence.full_fence()
    assert [what for what, _ in events] == ["acquire", "release", "acquire", "release"]
    assert len({lock for _, lock in events}) == 1
