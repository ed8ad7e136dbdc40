"""SIGINT and SIGTERM as a request to stop at a good moment."""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

SAME = 0.3
"""Seconds in which a signal that comes again is the same one: some senders reach a process and then its whole group."""
PATIENCE = 5.0
"""Seconds in which the main thread must have left after a second signal."""
WAKE = signal.SIGURG
"""Wakes the main thread, and means nothing else; where nobody handles it, it is ignored."""
AGAIN, TRIES = 0.05, 20
"""Seconds after which the main thread is woken again if it has not noticed, and how often."""
_active: list["Signals"] = []


class Signals:
    """Within it a signal is kept in `received` for the caller to act on; a second one stops at once.

    Python runs handlers in the main thread, between two of its instructions. Where that thread waits for minutes
    inside a library, for updates on a CPU, they would come that late, and two signals as one. So another thread reads
    them from a socket too (`set_wakeup_fd`): it counts them, gives the answer, and may end the process.
    """

    def __init__(self, answer: str = "", give_up: Callable[[], None] | None = None) -> None:
        """`answer`: a line for the standard error at the first signal.

        `give_up`: the last thing to do before the process is ended, where the main thread does not leave after a second
        signal; without it the process is not ended.
        """
        self.received = 0
        self._answer = answer
        self._give_up = give_up
        self._at_once = False
        self._in_main: Callable[[], None] | None = None
        self._called = threading.Event()
        self._left = threading.Event()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        """Take both signals, if this is the thread that gets them."""
        if threading.current_thread() is threading.main_thread():
            self._main = threading.get_ident()
            self._ear, self._mouth = socket.socketpair()
            self._ear.settimeout(None)
            self._mouth.setblocking(False)
            self._fd_before = signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)
            self._listener = threading.Thread(target=self._listen, daemon=True)
            self._listener.start()
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._take)
            self._before[WAKE] = signal.signal(WAKE, self._wake)
            _active.append(self)
        return self

    def call_in_main(self, call: Callable[[], None]) -> None:
        """From another thread: have the main thread call something, which may raise, also while it waits.

        A signal wakes it from most of what it can wait for. One that comes right before it begins to wait does not, so
        it is sent again until the call has begun. Where Python cannot run, it is called later.
        """
        if not self._before:
            return
        self._called.clear()
        self._in_main = call
        for _ in range(TRIES):
            signal.pthread_kill(self._main, WAKE)
            if self._called.wait(AGAIN) or self._left.is_set():
                return

    def _wake(self, *_: Any) -> None:
        call, self._in_main = self._in_main, None
        if call is not None:
            self._called.set()
            call()

    def _take(self, number: int, _: Any) -> None:
        self.received = self.received or number
        if self._at_once:
            self._raise()

    @staticmethod
    def _raise() -> None:
        raise KeyboardInterrupt

    def _listen(self) -> None:
        first = None
        while data := self._ear.recv(64):
            for number in data:
                if number not in (signal.SIGINT, signal.SIGTERM) or self._at_once:
                    continue
                self.received = self.received or number
                if first is None:
                    first = time.monotonic()
                    if self._answer:
                        with contextlib.suppress(OSError):  # nobody reads
                            os.write(2, f"{self._answer}\n".encode())
                elif time.monotonic() - first >= SAME:
                    # The handler may have run before this was known, and the main thread wait for something again.
                    self.call_in_main(self._raise)
                    self._at_once = True
                    if self._give_up is not None and not self._left.wait(PATIENCE):
                        self._end(number, self._give_up)

    @staticmethod
    def _end(number: int, give_up: Callable[[], None]) -> None:
        last = threading.Timer(PATIENCE, os._exit, (128 + number,))  # whatever that does
        last.daemon = True
        last.start()
        try:
            give_up()
        finally:
            os._exit(128 + number)

    def __exit__(self, *_: object) -> None:
        """Leave them to whoever had them before."""
        if not self._before:
            return
        self._left.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd_before)
        _active.remove(self)
        self._mouth.shutdown(socket.SHUT_RDWR)  # closing it is not enough where a child still has it
        self._mouth.close()
        self._listener.join()
        self._ear.close()

    def leave_to_parent(self) -> None:
        """In a child that was forked meanwhile, which can then be terminated.

        SIGINT stays without effect: a terminal sends it to all processes, and the parent decides when to stop.
        """
        for number in (signal.SIGTERM, WAKE):
            signal.signal(number, self._before[number])
        self._mouth.close()
        self._ear.close()


def _after_fork() -> None:
    """A child's signals are not its parent's. Environments fork: `AsyncVectorEnv`, or `multiprocessing` on Linux."""
    if not _active:
        return
    signal.set_wakeup_fd(-1)
    while _active:
        _active.pop().leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
