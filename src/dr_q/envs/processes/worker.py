"""The process of a seed's simulators, or of some of them: `python -m dr_q.envs.processes.worker`.

`ProcessPool` starts it.
"""

import contextlib
import io
import os
import signal
import sys
import time
import traceback
from multiprocessing import resource_tracker, shared_memory
from typing import BinaryIO

from dr_q.envs.families import families
from dr_q.envs.processes import flags
from dr_q.envs.processes.channel import DONE, ENV_FAILED, UNSHOWN, CommandPipe, PipeClosedError, answer_with
from dr_q.envs.processes.lanes import Lanes, Rows, open_lanes
from dr_q.envs.processes.parent import end_with_parent
from dr_q.envs.processes.seed_envs import Command, SharedArrays
from dr_q.envs.protocol import failure
from dr_q.kit import EnvError, TaskError, one_line

NAP = 0.05
"""Seconds between polls of a worker that waits on its pipe."""


def main() -> int:
    """Carry out commands until the input ends, or the process is gone whose number is the argument."""
    end_with_parent(int(sys.argv[1]))
    # A terminal's Ctrl-C reaches the whole group; the loop decides when its simulators end, by closing the pipe.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # What simulators print must not be read as answers: standard output becomes standard error.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue] - it goes to a pipe
    pipe = CommandPipe(0)
    source, seed, numbers = pipe.message()
    with contextlib.redirect_stderr(io.StringIO()):
        families()  # the loop's process has reported those that cannot be used
    try:
        lanes = open_lanes(source, seed, numbers)
    except TaskError as error:
        answer_with(answers, str(error))
        return 2
    answer_with(answers, lanes.spec)
    name, count, episodes, mine, poll_for = pipe.message()
    memory = shared_memory.SharedMemory(name=name)
    # Python < 3.13 would let this process's tracker free the block that its creator still uses.
    resource_tracker.unregister(memory._name, "shared_memory")  # pyright: ignore[reportAttributeAccessIssue]
    arrays = SharedArrays.over(memory.buf, lanes.spec, count, episodes)
    try:
        serve(pipe, answers, lanes, [arrays.row(index) for index in mine], poll_for)
    finally:
        lanes.close()
    return 0


def serve(pipe: CommandPipe, answers: BinaryIO, lanes: Lanes, rows: Rows, poll_for: float) -> None:
    """Carry out commands; `PipeClosedError` when the loop is gone. 0 seconds of polling: wait on the pipe only."""
    plain = {
        Command.BEGIN: lanes.begin,
        Command.STEP: lanes.step,
        Command.EVALUATE_BEGIN: lanes.evaluate_begin,
        Command.EVALUATE_STEP: lanes.evaluate_step,
    }
    arrays = rows[0]
    done = 0
    while True:
        _await_order(pipe, arrays, done, poll_for)
        done += 1
        start = time.perf_counter()
        command = Command(int(arrays.command))
        if command == Command.OPEN_EPISODE:
            answer_with(answers, lanes.open_episodes())
        elif command == Command.RESTORE:
            lanes.restore(rows, pipe.message())
        else:
            plain[command](rows)
        arrays.seconds[...] = time.perf_counter() - start
        flags.give_answer(arrays, done)
        if not poll_for and command != Command.OPEN_EPISODE:
            answers.write(DONE)


def _await_order(pipe: CommandPipe, arrays: SharedArrays, done: int, poll_for: float) -> None:
    """Wait for the next command: first poll shared memory, then sleep on the pipe."""
    sleep_at = time.perf_counter() + poll_for
    while not flags.has_order(arrays, done):
        if poll_for:
            time.sleep(flags.POLL_EVERY)
        if time.perf_counter() > sleep_at:
            arrays.asleep[...] = 1
            while not flags.has_order(arrays, done):
                pipe.wait(NAP)  # not forever: an order given just as this worker fell asleep has nobody to wake it
            arrays.asleep[...] = 0


if __name__ == "__main__":
    # Past the interpreter's teardown: simulators' own exit handlers may hang on a closed display.
    try:
        code = main()
    except PipeClosedError:
        code = 0
    except (EnvError, KeyboardInterrupt, SystemExit) as error:
        # No signal is a KeyboardInterrupt here: the environment's own code raised it.
        said = str(error) if isinstance(error, EnvError) else f"the environment raised {failure(error)}"
        sys.stdout.flush()  # what the environment printed goes to the same place; the last line is read
        print(f"\n{UNSHOWN}{one_line(said)}", file=sys.stderr)
        code = ENV_FAILED
    except BaseException:  # os._exit below would say nothing of it
        sys.stdout.flush()
        lines = [f"{UNSHOWN}{line}" for line in traceback.format_exc().splitlines()]
        print("\n".join(["", *lines]), file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
