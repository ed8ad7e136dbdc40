"""SIGINT and SIGTERM as a request to stop at a good moment."""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

PATIENCE = 5.0
"""Seconds in which the main thread must have noticed a second signal."""


class Signals:
    """Within it a signal is kept in `received` for the caller to act on; a second one stops at once.

    Python runs handlers in the main thread, between two of its instructions. Where that thread waits for minutes
    inside a library, for updates on a CPU, they would come that late, and two signals as one. So another thread reads
    them from a socket too (`set_wakeup_fd`): it gives the answer, and ends the process if a second goes unnoticed.
    """

    def __init__(self, answer: str = "", give_up: Callable[[], None] | None = None) -> None:
        """`answer`: a line for the standard error at the first signal. `give_up`: the last thing to do."""
        self.received = 0
        self._answer = answer
        self._give_up = give_up
        self._count = 0
        self._noticed = threading.Event()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        """Take both signals, if this is the thread that gets them."""
        if threading.current_thread() is threading.main_thread():
            self._ear, self._mouth = socket.socketpair()
            self._mouth.setblocking(False)
            self._fd_before = signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)
            self._listener = threading.Thread(target=self._listen, daemon=True)
            self._listener.start()
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._take)
        return self

    def _take(self, number: int, _: Any) -> None:
        if self.received or self._count > 1:
            self._noticed.set()
            raise KeyboardInterrupt
        self.received = number

    def _listen(self) -> None:
        while data := self._ear.recv(64):
            for number in data:
                if number not in (signal.SIGINT, signal.SIGTERM):
                    continue
                self._count += 1
                if self._count == 1 and self._answer:
                    with contextlib.suppress(OSError):  # nobody listens
                        os.write(2, f"{self._answer}\n".encode())
                if self._count > 1 and self._give_up is not None and not self._noticed.wait(PATIENCE):
                    try:
                        self._give_up()
                    finally:
                        os._exit(128 + number)

    def __exit__(self, *_: object) -> None:
        """Leave them to whoever had them before."""
        if not self._before:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd_before)
        self._noticed.set()
        self._mouth.close()
        self._listener.join()
        self._ear.close()
