"""Watching environments that are simulated in this process: calls that hang, and calls that would end the process."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

from dr_q.kit import EnvError, WorkerError, spelled

PATIENCE = 5.0
"""Seconds in which a call that was interrupted must have ended."""


class CallInterruptedError(BaseException):
    """Raised inside an environment that hangs; no Exception, which environments may catch."""


class CallWatchdog:
    """Notices a call that takes longer than allowed, from another thread.

    That thread needs Python's lock: an environment that hangs in compiled code and holds it is not noticed. In a
    process of its own it would be.
    """

    def __init__(self, timeout: float):
        self.timeout = timeout
        self._option = spelled("env_timeout")  # here: another thread does not know how the user spells it
        self.interrupt: Callable[[Callable[[], None]], None] = lambda _: None
        """Calls a function in the main thread, also while that waits for something; set by the owner of signals."""
        self.give_up: Callable[[WorkerError], None] = lambda _: None
        """Called once for a call that does not end after that."""
        self._call: tuple[int, float, int] | None = None
        """Seed, begin, and thread of the call under way."""
        self._hangs: tuple[int, float, int] | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, seed: int) -> None:
        """A seed's environment is called from now on; two plain methods, because every step of it does."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, daemon=True)
            self._thread.start()
        self._call = (seed, time.monotonic(), threading.get_ident())

    def end(self) -> None:
        """The call is over."""
        self._call = None

    def calls(self, thread: int) -> bool:
        """Whether an environment is being called in a thread."""
        call = self._call
        return call is not None and call[2] == thread

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def error(self, seed: int) -> WorkerError:
        """The error of a call that hangs."""
        return WorkerError(
            f"the environment of seed {seed} has not answered for {self.timeout:g} s ({self._option}); "
            "it hangs or is very slow"
        )

    def _look(self) -> None:
        while not self._closed.wait(min(1.0, self.timeout / 4)):
            call = self._call
            if call is None or time.monotonic() - call[1] < self.timeout:
                continue
            self._hangs = call
            self.interrupt(self._raise_if_it_hangs)
            end = time.monotonic() + PATIENCE
            while self._call is call and time.monotonic() < end:
                if self._closed.wait(0.05):
                    return
            if self._call is call:
                self.give_up(self.error(call[0]))
                return

    def _raise_if_it_hangs(self) -> None:
        """In the main thread, between two of its instructions: where that call is still under way, end it."""
        if self._call is not None and self._call is self._hangs and self.calls(threading.get_ident()):
            raise CallInterruptedError


@contextlib.contextmanager
def interrupting(watchdog: CallWatchdog) -> Iterator[None]:
    """Let a watchdog interrupt calls in the main thread where nobody has taken the signals of the user (`Signals`).

    It has the main thread woken by SIGALRM, which nothing else here uses. In another thread calls are not interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    main, waiting = threading.get_ident(), list[Callable[[], None]]()
    lock, is_open = threading.Lock(), True

    def take(*_: object) -> None:
        if waiting:
            waiting.pop()()

    def interrupt(call: Callable[[], None]) -> None:
        with lock:
            if is_open:
                waiting.append(call)
                signal.pthread_kill(main, signal.SIGALRM)

    handler, interrupted_by = signal.signal(signal.SIGALRM, take), watchdog.interrupt
    watchdog.interrupt = interrupt
    try:
        yield
    finally:
        with lock:
            is_open = False
        watchdog.interrupt = interrupted_by
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # one that is still on its way would end the process
        signal.signal(signal.SIGALRM, handler)


_watchdogs: list[CallWatchdog] = []
_real_exit = os._exit


def _exit_or_raise(code: int) -> None:
    """`os._exit`, except that an environment in this process cannot end a run without a word."""
    if _owner == os.getpid() and any(watchdog.calls(threading.get_ident()) for watchdog in _watchdogs):
        raise EnvError(f"it called os._exit({code}), which would end the run")
    _real_exit(code)


_owner = 0


@contextlib.contextmanager
def keep_from_exiting(watchdog: CallWatchdog) -> Iterator[None]:
    """While environments are in this process: `os._exit` within their calls is an error of theirs."""
    global _owner  # noqa: PLW0603 - os._exit is one for the process
    _owner = os.getpid()
    _watchdogs.append(watchdog)
    os._exit = _exit_or_raise
    try:
        yield
    finally:
        _watchdogs.remove(watchdog)
        if not _watchdogs:
            os._exit = _real_exit
