"""The process of one seed's simulators: `python -m dr_q.envs.worker`, started by `ProcessPool`."""

import os
import signal
import sys
from multiprocessing import resource_tracker, shared_memory
from typing import Any, BinaryIO

import cloudpickle

from dr_q.envs.protocol import TaskError
from dr_q.envs.seat import Seat, SeatArrays


def main() -> int:
    """Answer commands of one byte until the input ends."""
    # A terminal's Ctrl-C reaches the whole group; the loop decides when its simulators end, by closing the pipe.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    commands = sys.stdin.buffer
    # What simulators print must not be read as answers: standard output becomes standard error.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    source, seed = _read_message(commands)
    try:
        seat = Seat(source.make, seed)
    except TaskError as error:
        _write_message(answers, str(error))
        return 2
    _write_message(answers, seat.spec)
    name, episodes = _read_message(commands)
    memory = shared_memory.SharedMemory(name=name)
    # Python < 3.13 would let this process's tracker free the block that its creator still uses.
    resource_tracker.unregister(memory._name, "shared_memory")  # pyright: ignore[reportAttributeAccessIssue]
    arrays = SeatArrays.over(memory.buf, seat.spec, episodes)
    try:
        _serve(commands, answers, seat, arrays)
    finally:
        seat.close()
    return 0


def _serve(commands: BinaryIO, answers: BinaryIO, seat: Seat, arrays: SeatArrays) -> None:
    plain = {
        b"b": seat.begin,
        b"s": seat.step,
        b"e": seat.evaluate_begin,
        b"v": seat.evaluate_step,
    }
    while command := commands.read(1):
        if command == b"o":
            _write_message(answers, seat.open_episode())
            continue
        if command == b"r":
            seat.restore(arrays, *_read_message(commands))
        else:
            plain[command](arrays)
        answers.write(b"k")


def _read_message(pipe: BinaryIO) -> Any:
    size = int.from_bytes(pipe.read(8), "little")
    if size == 0:
        sys.exit(0)  # the other side is gone
    return cloudpickle.loads(pipe.read(size))


def _write_message(pipe: BinaryIO, message: Any) -> None:
    data = cloudpickle.dumps(message)
    pipe.write(len(data).to_bytes(8, "little") + data)


if __name__ == "__main__":
    # Past the interpreter's teardown: simulators' own exit handlers may hang on a closed display.
    code = main()
    sys.stdout.flush()
    os._exit(code)
