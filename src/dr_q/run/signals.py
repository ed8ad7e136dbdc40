"""SIGINT and SIGTERM as a request to stop at a good moment."""

import contextlib
import os
import signal
import threading
from typing import Any


class Signals:
    """Within it a signal is kept in `received` for the caller to act on; a second one stops at once."""

    def __init__(self, answer: str = "") -> None:
        """`answer`: a line for the standard error at the first signal."""
        self.received = 0
        self._answer = answer
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        """Take both signals, if this is the thread that gets them."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._take)
        return self

    def _take(self, number: int, _: Any) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = number
        if self._answer:
            with contextlib.suppress(OSError):  # nobody listens
                os.write(2, f"{self._answer}\n".encode())  # a handler may come in the middle of a print

    def __exit__(self, *_: object) -> None:
        """Leave them to whoever had them before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
