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
    """A family of environments. Its tasks are named `prefix/id`.

    A family is one file that assigns a `Family` to `FAMILY`. The file must import its simulator in `make`, not at the
    top: names, suites and budgets are also needed where no simulator is installed. Packages add families through the
    entry-point group `dr_q.families` of their `pyproject.toml`:

        [project.entry-points."dr_q.families"]
        my-robots = "my_package.robots"

    Example:
        ```python
        def make(name, render):
            if name not in ("reach", "push"):
                raise dr_q.envs.UnknownIdError(name, ("reach", "push"))
            return dr_q.envs.make_env(lambda: MyRobot(name, render_mode="rgb_array" if render else None))


        FAMILY = dr_q.envs.Family(prefix="my-robots", title="My robots", make=make, agent_steps=200_000)
        ```
    """

    prefix: str
    """The first part of its tasks' names: lower case, and different from that of every other family."""
    title: str
    """Its name in texts."""
    make: Callable[[str, bool], Env]
    """Makes an environment from an id (without the prefix). The second argument says whether `render` will be called.

    It raises `UnknownIdError` for an id that the family does not have.
    """
    tasks: tuple[TaskInfo, ...] = ()
    """Tasks with a known suite and budget; others may exist. A score is normalised with `random_score` and
    `reference_score`; without these it is divided by 1,000."""
    spelling: str = ""
    """How a task is spelled, for messages: `dmc/DOMAIN-TASK`."""
    agent_steps: int = DEFAULT_AGENT_STEPS
    """Budget of tasks that are not in `tasks`."""
    eval_every: int = DEFAULT_EVAL_EVERY
    """Agent steps between evaluations."""
    probe: str = ""
    """The task that `dr-q doctor` makes and resets; empty for none."""
    installed: Callable[[], bool] | None = None
    """A function that says whether an optional simulator is installed, without importing it; None if dr-q depends on
    the simulator."""
    install: str = ""
    """The commands that install the simulator."""
    source_folder: Callable[[], Path | None] = lambda: None
    """A function that returns the simulator's source folder if it has no releases. A run records the digest of it."""

    @property
    def available(self) -> bool:
        """Whether its simulator is installed."""
        return self.installed is None or self.installed()

    @property
    def suites(self) -> tuple[str, ...]:
        """The suites of its tasks, in order."""
        return tuple(dict.fromkeys(task.suite for task in self.tasks))


class UnknownIdError(TaskError):
    """A family does not have an id. `known` are the ids that it has, for a hint."""

    def __init__(self, name: str, known: Iterable[str] = ()):
        self.known = tuple(known)
        super().__init__(f"unknown id '{name}'{did_you_mean(name, self.known)}")


def paper_tasks_of(prefix: str) -> tuple[TaskInfo, ...]:
    """The paper's tasks whose names begin with `prefix/`."""
    return tuple(task for task in paper_tasks().values() if task.name.startswith(f"{prefix}/"))
