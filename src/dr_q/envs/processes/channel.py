"""The pipes between the loop and a worker process: bytes that wake it, messages, and what its simulators print.

To a worker go `WAKE` (a command waits in shared memory) and `MESSAGE` with an object. From it come
objects and, unless the loop polls shared memory, `DONE` after each command.
"""

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from typing import IO, Any, BinaryIO

import cloudpickle

from dr_q.envs.processes.parent import start_process
from dr_q.kit import EnvError, WorkerError, spelled

WAKE, MESSAGE, DONE = b"w", b"m", b"k"
"""On the pipe to a worker: a command waits, a message follows. On the pipe from it: the command is carried out."""
ENV_FAILED = 3
"""A worker's exit code where the environment's own code failed."""
UNSHOWN = "\0"
"""Begins a line that a worker prints for the loop and not for people: why it ends."""
MOST_LINES = 200
"""Lines of a worker's output that are shown."""
LONGEST_LINE = 10_000
_SIZE_BYTES = 8


class WorkerProcess:
    """The loop's end: one worker process and its pipes."""

    def __init__(self, seed: int, module: str, lanes: str = ""):
        """`lanes` says which environments of the seed it has, if that are not all."""
        self.name = f"seed {seed}{lanes}"
        self._process = start_process(
            [sys.executable, "-m", module, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._prints = _Prints(self.name, self._process.stderr)

    def wake(self) -> None:
        """Make a worker that waits on its pipe look for commands."""
        self._write(WAKE)

    def write_message(self, message: Any) -> None:
        """Send an object."""
        data = cloudpickle.dumps(message)
        self._write(MESSAGE + len(data).to_bytes(_SIZE_BYTES, "little") + data)

    def read_message(self, timeout: float, starts: float = 0.0) -> Any:
        """Wait for an object; `starts` are seconds more, for the first one of a process."""
        deadline = time.monotonic() + timeout + starts
        size = int.from_bytes(self._read(_SIZE_BYTES, timeout, deadline, starts), "little")
        return cloudpickle.loads(self._read(size, timeout, time.monotonic() + timeout))

    def read_done(self, deadline: float, timeout: float) -> None:
        """Wait until it says that the command is carried out, at most until a time of `time.monotonic`.

        `timeout` is how long that was from the command on, for the error.
        """
        if self._read(1, timeout, deadline) != DONE:
            raise self.death()

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def silence(self, timeout: float, starts: float = 0.0) -> WorkerError:
        """The error of a worker that does not answer; `starts` are the seconds that its process had to start."""
        option, what = spelled("env_timeout"), "its environment hangs or is very slow"
        if starts:
            return WorkerError(
                f"the simulator of {self.name} could not be made in {timeout:g} s ({option}) and {starts:g} s in which "
                f"its process starts; {what}"
            )
        return WorkerError(f"the simulator of {self.name} has not answered for {timeout:g} s ({option}); {what}")

    def death(self) -> WorkerError | EnvError:
        """The error of a worker that has ended, with what it said last."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        self._prints.wait()
        lines = [line for line in self._prints.last if line.strip()]
        code = self._process.returncode
        if code == ENV_FAILED and lines:
            return EnvError(f"{self.name}: {lines[-1]}")
        said = f"; it said: {lines[-1]}" if lines else ""
        return WorkerError(f"the simulator of {self.name} died (exit code {code}){said}")

    def hang_up(self) -> None:
        """Close the pipes; a worker ends when its input does."""
        for pipe in (self._input, self._output):
            with contextlib.suppress(OSError):
                pipe.close()

    def end(self, deadline: float) -> None:
        """Wait for a worker whose pipes are closed, until a time of `time.monotonic`; then kill it."""
        try:
            self._process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._prints.close(max(0.1, deadline - time.monotonic()))

    def _write(self, data: bytes) -> None:
        try:
            self._input.write(data)
            self._input.flush()
        except OSError:
            raise self.death() from None

    def kill(self) -> None:
        """End a worker that failed, at once."""
        self._process.kill()
        self.hang_up()
        self.end(time.monotonic() + 5)

    def _read(self, count: int, timeout: float, deadline: float, starts: float = 0.0) -> bytes:
        """Exactly `count` bytes, or an error that says what became of the worker."""
        pipe = self._output.fileno()
        data = b""
        while len(data) < count:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise self.silence(timeout, starts)
            part = os.read(pipe, count - len(data))
            if not part:
                raise self.death()
            data += part
        return data


class _Prints:
    """A worker's output, shown with its name up to a number of lines; the last lines are kept."""

    def __init__(self, name: str, pipe: IO[bytes]):
        self.last: deque[str] = deque(maxlen=20)
        self._name, self._pipe = name, pipe
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        self._thread.start()

    def _pass_on(self) -> None:
        shown = 0
        for raw in iter(lambda: self._pipe.readline(LONGEST_LINE), b""):
            line = raw.decode(errors="replace").rstrip()
            if not line:
                continue
            self.last.append(line.removeprefix(UNSHOWN))
            if line.startswith(UNSHOWN) or shown > MOST_LINES:
                continue
            shown += 1
            if shown > MOST_LINES:
                line = f"(more is printed there, and not shown after {MOST_LINES} lines)"
            with contextlib.suppress(Exception):  # nobody reads it; the pipe must be read all the same
                sys.stderr.write(f"{self._name}: {line}\n")
                sys.stderr.flush()

    def wait(self, seconds: float = 2) -> None:
        """Wait until everything is read that an ended process has printed."""
        self._thread.join(seconds)

    def close(self, seconds: float) -> None:
        """After the process; a grandchild may still hold the pipe."""
        self.wait(seconds)
        if not self._thread.is_alive():
            self._pipe.close()


class PipeClosedError(Exception):
    """The loop is gone: its end of the pipe is closed."""


class CommandPipe:
    """The worker's end of the pipe from the loop: bytes that wake, which mean nothing else, and messages."""

    def __init__(self, handle: int):
        self._handle = handle
        self._announced = False

    def wait(self, seconds: float) -> None:
        """Wait until something comes, at most so long; a byte that wakes is removed."""
        if not self._announced and select.select([self._handle], [], [], seconds)[0]:
            self._announced = self._take(1) == MESSAGE

    def message(self) -> Any:
        """The next message, past any byte that wakes."""
        while not self._announced:
            self._announced = self._take(1) == MESSAGE
        self._announced = False
        return cloudpickle.loads(self._take(int.from_bytes(self._take(_SIZE_BYTES), "little")))

    def _take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = os.read(self._handle, count - len(data))
            if not part:
                raise PipeClosedError
            data += part
        return data


def answer_with(pipe: BinaryIO, message: Any) -> None:
    """Worker: send an object to the loop."""
    data = cloudpickle.dumps(message)
    pipe.write(len(data).to_bytes(_SIZE_BYTES, "little") + data)
