"""Simulators that failed and are started again: how often that may happen, and how often it did."""

import sys
import threading
from collections import Counter
from collections.abc import Callable

from dr_q.kit import EnvError, WorkerError, spelled

FAILED = (WorkerError, EnvError)
"""What a simulator that died, hangs or raised is reported as."""


class RestartedError(Exception):
    """A simulator was started again: the evaluation that it took part in must be begun again."""


class Restarts:
    """How many restarts are left to the simulators of a run, in training and evaluation together."""

    def __init__(self, most: int = 0, say: Callable[[str], None] | None = None):
        """`say` shows a line; by default on the standard error."""
        self.most = most
        self.say = say or (lambda line: print(f"dr-q: {line}", file=sys.stderr))
        self.of_seed: Counter[int] = Counter()
        self._lock = threading.Lock()

    def take(self, seed: int, error: WorkerError | EnvError) -> None:
        """Use one for a seed; raises the error if none is left."""
        with self._lock:
            used = self.of_seed.total()
            if used >= self.most:
                if not self.most:
                    raise error
                raise type(error)(f"{error}; all {self.most} of {spelled('max_env_restarts')} are used") from error
            self.of_seed[seed] += 1
        named = str(error) if f"seed {seed}" in str(error) else f"seed {seed}: {error}"
        self.say(f"{named}; its simulator is started again ({used + 1} of {self.most}), in a new episode")

    def summary(self) -> str:
        """How often, in a sentence; empty if never."""
        total = self.of_seed.total()
        if not total:
            return ""
        seeds = ", ".join(f"seed {seed}: {count}" for seed, count in sorted(self.of_seed.items()))
        return f"simulators were started again {total} time{'s' if total > 1 else ''} ({seeds})"
