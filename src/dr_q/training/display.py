"""What a run shows: a bar of progress in a terminal, plain lines elsewhere."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from dr_q.paper import paper_tasks, published_score
from dr_q.run_folder import Evaluation
from dr_q.settings import Settings
from dr_q.training.plan import Plan


class _Terminal(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would end the process with exit code 1


class Display:
    """A bar in a terminal, plain lines elsewhere."""

    def __init__(self, settings: Settings, quiet: bool = False):
        self._settings = settings
        self._console = _Terminal(stderr=False, soft_wrap=True)
        self._quiet = quiet
        self._progress: Progress | None = None
        self._bar: Any = None
        self._first: tuple[float, int] | None = None
        self._before_learning = "exploring" if settings.config.exploration_steps else "warming up"
        score = published_score(settings.task_name)
        self._published = f", paper {score.mean:g} at {settings_budget(settings):,}" if score else ""
        if not quiet and self._console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TextColumn("{task.fields[last]}"),
                console=self._console,
            )
            self._bar = self._progress.add_task(settings.task_name, total=settings.last_step, rate="", last="")

    def start(self) -> None:
        """Show the bar, in a terminal."""
        if self._progress is not None:
            self._progress.start()

    def say(self, text: str) -> None:
        """A line. Neither a full disk under the standard output nor a reader that left is a reason to end a run."""
        if self._quiet:
            return
        with unwritable_output_ignored():
            try:
                self._console.print(text, highlight=False, markup=False)
            except BrokenPipeError:
                self._quiet = True
                silence_output()
                with contextlib.suppress(OSError):
                    print("dr-q: nobody reads the output any more; training continues without it", file=sys.stderr)

    def plan(self, plan: Plan) -> None:
        """What goes where; only how much in all where everything is in one memory."""
        one_memory = jax.default_backend() == "cpu" and not plan.spec.frames_on_host
        for line in plan.lines()[: 1 if one_memory else None]:
            self.say(line)

    def say_on_device(self, text: str) -> None:
        """A line that concerns those who run on a GPU."""
        if jax.default_backend() != "cpu":
            self.say(text)

    def step(self, agent_steps: int) -> None:
        """Where the run is."""
        now = time.perf_counter()
        if agent_steps < self._settings.learning_starts:  # which says nothing of how fast it will learn
            if self._progress is not None:
                self._progress.update(self._bar, completed=agent_steps, rate=self._before_learning)
            return
        if self._first is None:
            self._first = (now, agent_steps)
        if self._progress is not None:
            known = now - self._first[0] > 1
            self._progress.update(self._bar, completed=agent_steps, rate=self._rate(agent_steps) if known else "")

    def evaluation(self, evaluations: Sequence[Evaluation], training: str = "") -> None:
        """The last evaluation of each seed; `training` says how the training episodes since the last one went."""
        scores = " ".join(f"{e.return_mean:.0f}" for e in evaluations)
        mean = sum(e.return_mean for e in evaluations) / len(evaluations)
        success = [e.success_mean for e in evaluations if e.success_mean is not None]
        if self._progress is not None:
            self._progress.update(self._bar, last=f"return {scores}{self._published}")
        exploring = 0 < evaluations[0].agent_steps <= self._settings.learning_starts
        rate = f", {self._before_learning}" if exploring else ""
        if self._first is not None and evaluations[0].agent_steps > self._first[1]:
            rate = f", {self._rate(evaluations[0].agent_steps)}"
        self.say(
            f"step {evaluations[0].agent_steps:,} of {self._settings.last_step:,}: return {mean:.1f}"
            + (f" (seeds: {scores})" if len(evaluations) > 1 else "")
            + (f", success {100 * sum(success) / len(success):.0f}%" if success else "")
            + f"{self._published}{rate}"
            + (f" | {training}" if training else "")
        )

    def _rate(self, agent_steps: int) -> str:
        """Since learning began: how fast, and how long it will take."""
        assert self._first is not None
        done, seconds = agent_steps - self._first[1], time.perf_counter() - self._first[0]
        if not done:
            return ""
        left = (self._settings.last_step - agent_steps) * seconds / done
        return f"{done * self._settings.seeds / seconds:,.0f} seed-steps/s, {_duration(left)} left"

    def close(self) -> None:
        """End the bar."""
        if self._progress is not None:
            self._progress.stop()
        with unwritable_output_ignored():
            sys.stdout.flush()


@contextlib.contextmanager
def unwritable_output_ignored() -> Iterator[None]:
    """Where a run tells of what it does: that nobody can be told changes nothing of it."""
    with contextlib.suppress(OSError):
        yield


def silence_output() -> None:
    """Let what is still to be printed, and what Python has kept of it, go nowhere."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: it is closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def settings_budget(settings: Settings) -> int:
    """The paper's budget of the task, for the line that names its score."""
    known = paper_tasks().get(settings.task_name)
    return known.agent_steps if known else settings.steps


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
