"""What a family of environments is: the prefix of its tasks, their names and budgets, and how to make one."""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path

from dr_q.envs.protocol import Env
from dr_q.kit import TaskError, did_you_mean
from dr_q.paper import TaskInfo, paper_tasks

DEFAULT_AGENT_STEPS = 500_000
"""Budget of a task for which nobody has said another."""
DEFAULT_EVAL_EVERY = 5_000
"""Agent steps between evaluations, likewise."""


@dataclasses.dataclass(frozen=True)
class Family:
    """Environments of one kind. A task is `prefix/id`.

    A family is one file that assigns one to `FAMILY`. It must import its simulator in `make` and not with the file:
    names, suites and budgets are also needed where no simulator is installed. Packages add families through the
    entry-point group `dr_q.families`:

        [project.entry-points."dr_q.families"]
        my-robots = "my_package.robots"
    """

    prefix: str
    """What its tasks' names begin with: lower case, and unlike any other family's."""
    title: str
    """Its name for people."""
    make: Callable[[str, bool], Env]
    """Makes an environment from an id (without the prefix); whether images will be rendered is the second argument.

    Raises `UnknownIdError` for an id that the family does not have.
    """
    tasks: tuple[TaskInfo, ...] = ()
    """Tasks with a known suite and budget; others may exist. A score is normalised with `random_score` and
    `reference_score`; without these it is divided by 1,000."""
    spelling: str = ""
    """How a task is spelled, for messages: `dmc/DOMAIN-TASK`."""
    agent_steps: int = DEFAULT_AGENT_STEPS
    """Budget of tasks that are not among `tasks`."""
    eval_every: int = DEFAULT_EVAL_EVERY
    """Agent steps between evaluations."""
    probe: str = ""
    """Task that `dr-q doctor` makes and resets; none if empty."""
    installed: Callable[[], bool] | None = None
    """Whether an optional simulator can be imported, without importing it; None if dr-q depends on the simulator."""
    install: str = ""
    """How to install the simulator, as commands."""
    source_folder: Callable[[], Path | None] = lambda: None
    """The simulator's source folder, if it has no releases; a run records the digest of it."""

    @property
    def available(self) -> bool:
        """Whether its simulator is installed."""
        return self.installed is None or self.installed()

    @property
    def suites(self) -> tuple[str, ...]:
        """The suites of its tasks, in order."""
        return tuple(dict.fromkeys(task.suite for task in self.tasks))


class UnknownIdError(TaskError):
    """An id that a family does not have; `known` are the ids that it has, for a hint."""

    def __init__(self, name: str, known: Iterable[str] = ()):
        self.known = tuple(known)
        super().__init__(f"unknown id '{name}'{did_you_mean(name, self.known)}")


def paper_tasks_of(prefix: str) -> tuple[TaskInfo, ...]:
    """The paper's tasks whose names begin with `prefix/`."""
    return tuple(task for task in paper_tasks().values() if task.name.startswith(f"{prefix}/"))
