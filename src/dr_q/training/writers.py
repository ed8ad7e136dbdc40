"""Metrics for TensorBoard and Weights & Biases. Whatever happens to them, training continues."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dr_q.kit import MissingPackageError, spelled
from dr_q.run_folder import tensorboard_folder, wandb_id
from dr_q.settings import Settings

RETRY_S = 30.0
"""Seconds until something that failed is tried again."""
_PATIENCE_S = {"TensorBoard": 10.0, "Weights & Biases": 60.0}
"""Seconds that the end of a run waits for the last values."""
_MOST_WAITING = 10_000
"""Logged steps that are kept while nothing can be written; older ones are lost."""
Values = Mapping[str, float]
Say = Callable[[str], None]


class MetricWriters:
    """TensorBoard always, W&B where asked for; each in a thread of its own, so that neither can stop the loop."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        wandb: bool,
        purge_from: int | None = None,
        say: Say = lambda _: None,
        **belongs: Any,
    ):
        """
        Args:
            folder: The run's.
            settings: The run's, for W&B.
            wandb: Whether to log there.
            purge_from: What a run that is resumed logged from this step on, before, is not shown any more.
            say: Takes a line when values cannot be written, and when they can again.
            belongs: Project, entity, group and tags at Weights & Biases (`Execution.wandb_arguments`).
        """
        self._threads: list[_Background] = []
        if wandb:
            try:
                import wandb as library  # pyright: ignore[reportMissingImports]
            except ImportError as error:
                raise MissingPackageError(
                    f"{spelled('wandb')} needs wandb, which is not installed: pip install 'dr-q[wandb]'"
                ) from error
            named = {"project": "dr-q", **belongs, "name": folder.name, "id": wandb_id(folder), "resume": "allow"}
            named |= {"dir": str(folder), "config": settings.to_json()}
            self._threads.append(_Background("Weights & Biases", _WandB(lambda: library.init(**named)), say))
        tensorboard = _TensorBoard(tensorboard_folder(folder), purge_from)
        self._threads.append(_Background("TensorBoard", tensorboard, say))

    def scalars(self, values: Values, agent_steps: int) -> None:
        """Values at a step; returns at once."""
        for thread in self._threads:
            thread.put((values, agent_steps))

    def close(self) -> None:
        """Write what is left, if that is possible soon."""
        for thread in self._threads:
            thread.close()


class _TensorBoard:
    """One file of events. Values of a step are appended whole or not at all, so a failure leaves a file to read."""

    def __init__(self, folder: Path, purge_from: int | None):
        self._path = folder / f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}"
        self._size = 0
        self._begin = [_event(file_version="brain.Event:2")]
        if purge_from is not None:
            self._begin.append(_event(step=purge_from, session_log={"status": 1}))  # START

    def begin(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        while self._path.exists():  # of a run that was resumed within a second
            self._path = self._path.with_name(f"{self._path.name}.1")
        self._append(b"".join(self._begin))

    def write(self, values: Values, agent_steps: int) -> None:
        summary = {"value": [{"tag": name, "simple_value": float(value)} for name, value in values.items()]}
        self._append(_event(step=agent_steps, summary=summary))

    def close(self) -> None:
        pass

    def _append(self, data: bytes) -> None:
        with self._path.open("r+b" if self._size else "w+b", buffering=0) as file:
            file.truncate(self._size)  # what a failure left
            file.seek(self._size)
            view = memoryview(data)
            while view:
                view = view[file.write(view) or 0 :]
        self._size += len(data)


def _event(**fields: Any) -> bytes:
    """An event as a record of a TensorBoard file: its length and its bytes, each with a checksum."""
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue] - made at import
    from tensorboardX.record_writer import masked_crc32c

    data = Event(wall_time=time.time(), **fields).SerializeToString()
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))


class _WandB:
    """A run at Weights & Biases."""

    def __init__(self, begin: Callable[[], Any]):
        self._open, self._run = begin, None

    def begin(self) -> None:
        self._run = self._open()

    def write(self, values: Values, agent_steps: int) -> None:
        assert self._run is not None
        self._run.log({**values, "agent_steps": agent_steps})

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()


class _Background:
    """Writes values in a thread. A failure is said once; what failed is tried again until the end."""

    def __init__(self, name: str, writer: _TensorBoard | _WandB, say: Say):
        self._name, self._writer, self._say = name, writer, say
        self._waiting: list[tuple[Values, int]] = []
        self._lost = 0
        self._begun = self._failing = self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, daemon=True, name=f"dr-q {name}")
        self._thread.start()

    def put(self, item: tuple[Values, int]) -> None:
        with self._changed:
            self._waiting.append(item)
            if len(self._waiting) > _MOST_WAITING:
                del self._waiting[0]
                self._lost += 1
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(_PATIENCE_S[self._name])
        left = len(self._waiting) + self._lost
        if left:
            self._tell(f"{self._name} lacks the values of {left} logged steps, which could not be written")

    def _work(self) -> None:
        while True:
            closing = self._closing
            try:
                self._write_all()
            except Exception as error:  # a library may fail in any way, and training continues
                if not self._failing:
                    self._failing = True
                    self._tell(
                        f"{self._name} cannot be written ({_why(error)}); training continues, and it is tried again "
                        f"every {RETRY_S:g} s"
                    )
            else:
                if self._failing:
                    self._failing = False
                    self._tell(f"{self._name} is written again")
            if closing:
                with contextlib.suppress(Exception):
                    self._writer.close()
                return
            with self._changed:
                if self._failing:
                    until = time.monotonic() + RETRY_S
                    while not self._closing and time.monotonic() < until:  # whatever comes meanwhile
                        self._changed.wait(until - time.monotonic())
                elif not self._waiting and not self._closing:
                    self._changed.wait()

    def _write_all(self) -> None:
        if not self._begun:
            self._writer.begin()
            self._begun = True
        while self._waiting:
            with self._changed:
                item = self._waiting[0]
            self._writer.write(*item)
            with self._changed:
                if self._waiting and self._waiting[0] is item:
                    del self._waiting[0]

    def _tell(self, line: str) -> None:
        with contextlib.suppress(Exception):  # nobody reads
            self._say(line)


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return str(error.strerror or error)
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), 'it does not say why')}"
