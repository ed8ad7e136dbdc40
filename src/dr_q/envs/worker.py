"""The process of one seed's simulators: `python -m dr_q.envs.worker`, started by `ProcessPool`."""

import os
import select
import signal
import sys
import time
import traceback
from multiprocessing import resource_tracker, shared_memory
from typing import Any, BinaryIO

import cloudpickle

from dr_q.envs.seat import DONE, ENV_FAILED, LOOK_EVERY, MESSAGE, UNSHOWN, Seat, SeatArrays
from dr_q.kit import EnvError, TaskError

NAP = 0.05


def main() -> int:
    """Carry out commands until the input ends."""
    # A terminal's Ctrl-C reaches the whole group; the loop decides when its simulators end, by closing the pipe.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # What simulators print must not be read as answers: standard output becomes standard error.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue] - it goes to a pipe
    pipe = _Commands(0)
    source, index, seed = pipe.message()
    try:
        seat = Seat(source.make, seed)
    except TaskError as error:
        _write_message(answers, str(error))
        return 2
    _write_message(answers, seat.spec)
    name, seeds, episodes, spin = pipe.message()
    memory = shared_memory.SharedMemory(name=name)
    # Python < 3.13 would let this process's tracker free the block that its creator still uses.
    resource_tracker.unregister(memory._name, "shared_memory")  # pyright: ignore[reportAttributeAccessIssue]
    arrays = SeatArrays.over(memory.buf, seat.spec, seeds, episodes).row(index)
    try:
        _serve(pipe, answers, seat, arrays, spin)
    finally:
        seat.close()
    return 0


class _Commands:
    """The pipe from the loop: bytes that wake, which mean nothing else, and messages."""

    def __init__(self, handle: int):
        self._handle = handle
        self._announced = False

    def wait(self, seconds: float) -> None:
        """Until something comes, at most so long; a byte that wakes is taken off."""
        if not self._announced and select.select([self._handle], [], [], seconds)[0]:
            self._announced = self._take(1) == MESSAGE

    def message(self) -> Any:
        """The next message, past any byte that wakes."""
        while not self._announced:
            self._announced = self._take(1) == MESSAGE
        self._announced = False
        return cloudpickle.loads(self._take(int.from_bytes(self._take(8), "little")))

    def _take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = os.read(self._handle, count - len(data))
            if not part:
                raise _GoneError
            data += part
        return data


class _GoneError(Exception):
    """The other side of the pipe is gone."""


def _serve(pipe: _Commands, answers: BinaryIO, seat: Seat, arrays: SeatArrays, spin: float) -> None:
    plain = {
        ord("b"): seat.begin,
        ord("s"): seat.step,
        ord("e"): seat.evaluate_begin,
        ord("v"): seat.evaluate_step,
    }
    done = 0
    while True:
        _await_order(pipe, arrays, done, spin)
        done += 1
        start = time.perf_counter()
        command = int(arrays.command)
        if command == ord("o"):
            _write_message(answers, seat.open_episode())
        elif command == ord("r"):
            seat.restore(arrays, *pipe.message())
        else:
            plain[command](arrays)
        arrays.seconds[...] = time.perf_counter() - start
        arrays.answer[...] = done
        if not spin and command != ord("o"):
            answers.write(DONE)


def _await_order(pipe: _Commands, arrays: SeatArrays, done: int, spin: float) -> None:
    """Wait for the next command: for a while by looking again and again, then on the pipe."""
    patience = time.perf_counter() + spin
    while arrays.order == done:
        if spin:
            time.sleep(LOOK_EVERY)
        if time.perf_counter() > patience:
            arrays.asleep[...] = 1
            while arrays.order == done:
                pipe.wait(NAP)  # not for ever: an order given just as this one fell asleep has nobody to wake it
            arrays.asleep[...] = 0


def _write_message(pipe: BinaryIO, message: Any) -> None:
    data = cloudpickle.dumps(message)
    pipe.write(len(data).to_bytes(8, "little") + data)


if __name__ == "__main__":
    # Past the interpreter's teardown: simulators' own exit handlers may hang on a closed display.
    try:
        code = main()
    except _GoneError:
        code = 0
    except EnvError as error:
        sys.stdout.flush()  # what the environment printed goes to the same place; the last line is read
        print(f"\n{UNSHOWN}{' '.join(str(error).split())[:5000]}", file=sys.stderr)
        code = ENV_FAILED
    except Exception:  # os._exit below would say nothing of it
        sys.stdout.flush()
        lines = [f"{UNSHOWN}{line}" for line in traceback.format_exc().splitlines()]
        print("\n".join(["", *lines]), file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
