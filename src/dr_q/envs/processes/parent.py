"""A worker process ends with the process that started it, whatever the environment's code does at that moment."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

_PR_SET_PDEATHSIG = 1
_LOOK_EVERY = 1.0
"""Seconds between checks of the parent."""


def end_with_parent(parent: int) -> None:
    """Worker: end once the process of that number is gone.

    On Linux the kernel kills this process, also while an environment hangs in compiled code and no Python runs. A
    thread looks as well: on systems without that signal, and for a parent that was gone before the kernel was asked.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library than usual: the thread is left
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _end_if_orphan(parent)
    threading.Thread(target=_look_at_parent, args=(parent,), daemon=True).start()


def _look_at_parent(parent: int) -> None:
    while True:
        time.sleep(_LOOK_EVERY)
        _end_if_orphan(parent)


def _end_if_orphan(parent: int) -> None:
    if os.getppid() != parent:
        os._exit(0)


class _Starter:
    """Starts processes from a thread that lives as long as this process.

    For Linux a process's parent is the thread that started it: one started from a thread that ends would be killed.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self.process = os.getpid()
        threading.Thread(target=self._work, daemon=True, name="dr-q-starter").start()

    def run(self, job: Callable[[], Any]) -> Any:
        """What the job gives, done in that thread."""
        result: Future[Any] = Future()
        self._jobs.put((job, result))
        return result.result()

    def _work(self) -> None:
        while True:
            job, result = self._jobs.get()
            try:
                result.set_result(job())
            except BaseException as error:
                result.set_exception(error)


_starter: _Starter | None = None
_lock = threading.Lock()


def start_process(command: list[str], **how: Any) -> "subprocess.Popen[bytes]":
    """As `subprocess.Popen`, for a process that calls `end_with_parent`."""
    global _starter  # noqa: PLW0603 - one thread for all of a process
    with _lock:
        if _starter is None or _starter.process != os.getpid():  # a fork has no threads of its parent's
            _starter = _Starter()
    return _starter.run(lambda: subprocess.Popen(command, **how))
