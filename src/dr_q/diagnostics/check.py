"""Whether DR.Q can train on an environment, looked at without training: the command `dr-q check`."""

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dr_q.envs import (
    DEFAULT_TIMEOUT,
    CallInterruptedError,
    CallWatchdog,
    Env,
    Step,
    interrupting,
    keep_from_exiting,
    make_env,
)
from dr_q.envs.probe import Bounded, Finding, examine
from dr_q.kit import EnvError, spelled

CHECK_STEPS = 500
"""Random steps that a check takes by default."""
_CHECKER = "gymnasium.utils.passive_env_checker"
_MOST_HEARD = 2
"""Of the warnings of Gymnasium's checker, those that are shown."""


def check_env(task: Any, steps: int = CHECK_STEPS, timeout: float = DEFAULT_TIMEOUT) -> list[Finding]:
    """Check an environment without training. A new run starts with a shorter form of this check.

    Args:
        task: A task's name, or a callable that makes a Gymnasium environment.
        steps: Number of random steps.
        timeout: Seconds after which a call that does not return has failed. It is interrupted in the main thread only.

    Returns:
        Findings, in order. `ok` says whether all is well. Otherwise `fix` says what to do, and `warning` says whether
        a run can be trained all the same. If the environment fails, the last finding is not ok.

    Raises:
        TaskError: The environment cannot be made, or DR.Q cannot train on it.

    Example:
        ```python
        for finding in dr_q.check_env("gym/Pendulum-v1"):
            print(finding.what, finding.ok, finding.found)
        ```
    """
    return list(look_at_env(task, steps, timeout))


def look_at_env(
    task: Any, steps: int, timeout: float, give_up: Callable[[Finding], None] | None = None
) -> Iterator[Finding]:
    """The same, one after the other; `give_up` is called, from another thread, where a call cannot be interrupted."""
    watched = _Watched(timeout, give_up)
    try:
        with contextlib.closing(watched), interrupting(watched.watchdog), keep_from_exiting(watched.watchdog):
            yield from examine(lambda: _WatchedEnv(task, watched), steps)
        if watched.heard:
            yield _heard(list(watched.heard))
    except EnvError as error:
        yield _failed(str(error))


def _plain(warned: str) -> str:
    """A warning of Gymnasium without its colour and its WARN."""
    return re.sub(r"\x1b\[\d+m", "", warned).removeprefix("WARN: ")


def _failed(why: str) -> Finding:
    return Finding("failed", False, why, "fix the environment")


def _heard(warned: list[str]) -> Finding:
    """What Gymnasium's own checker said."""
    found = "; ".join(text.rstrip(".") for text in warned[:_MOST_HEARD])
    found += f"; and {len(warned) - _MOST_HEARD} more" if len(warned) > _MOST_HEARD else ""
    fix = "correct the environment or its spaces; dr-q converts observations to the dtype of their space"
    return Finding("Gymnasium's checker", False, found, fix, warning=True)


class _Watched:
    """Calls of environments, each of which may take so long."""

    def __init__(self, timeout: float, give_up: Callable[[Finding], None] | None):
        self.watchdog = CallWatchdog(timeout)
        if give_up is not None:
            self.watchdog.give_up = lambda _: give_up(_failed(self._late))
        self._option, self._what = spelled("env_timeout"), ""
        self.heard: dict[str, None] = {}
        """What Gymnasium's checker said meanwhile, in order and each once."""

    @property
    def _late(self) -> str:
        timeout = self.watchdog.timeout
        return f"{self._what} has not returned for {timeout:g} s ({self._option}); it hangs or is very slow"

    def call(self, what: str, call: Callable[[], Any], *, first: bool = True) -> Any:
        """What a call gives; EnvError if it takes too long. Gymnasium checks the `first` of its kind."""
        self._what = what
        self.watchdog.begin(0)
        try:
            with self._listening() if first else contextlib.nullcontext():
                return call()
        except CallInterruptedError:
            raise EnvError(self._late) from None
        finally:
            self.watchdog.end()

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Keep what Gymnasium's checker warns of, which it does in every environment anew; pass on other warnings."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.filterwarnings("always", module=_CHECKER)
            yield
        for warning in caught:
            if Path(warning.filename).stem == _CHECKER.rpartition(".")[2]:
                self.heard[_plain(str(warning.message))] = None
            else:
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)

    def close(self) -> None:
        """End the thread that looks."""
        self.watchdog.close()


class _WatchedEnv:
    """An environment whose calls are watched."""

    def __init__(self, task: Any, watched: _Watched):
        self._watched, self._called = watched, set[str]()
        self._env: Env = watched.call("making the environment", lambda: make_env(task))
        self.spec = self._env.spec
        if isinstance(self._env, Bounded):
            self.bounds = self._env.bounds

    def _call(self, what: str, call: Callable[[], Any]) -> Any:
        first = what not in self._called
        self._called.add(what)
        return self._watched.call(what, call, first=first)

    def reset(self, seed: int) -> dict[str, np.ndarray]:
        """Start an episode."""
        return self._call("reset(seed=...)", lambda: self._env.reset(seed))

    def step(self, action: np.ndarray) -> Step:
        """One agent step."""
        return self._call("step(action)", lambda: self._env.step(action))

    def render(self, size: tuple[int, int]) -> np.ndarray:
        """An image."""
        return self._call("render()", lambda: self._env.render(size))

    def close(self) -> None:
        """Close it."""
        self._call("close()", self._env.close)
