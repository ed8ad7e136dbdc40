"""Whether DR.Q can train on an environment, looked at without training: the command `dr-q check`."""

from collections.abc import Iterator
from typing import Any

from dr_q.envs import make_env
from dr_q.envs.probe import Finding, examine
from dr_q.kit import EnvError

CHECK_STEPS = 500
"""Random steps that a check takes by default."""


def check_env(task: Any, steps: int = CHECK_STEPS) -> Iterator[Finding]:
    """Look at an environment as a run would before it begins, for longer.

    Args:
        task: A task's name, or a callable that makes a Gymnasium environment.
        steps: Random steps to take.

    Returns:
        What was looked at, in order, as it is found. `ok` says whether there is nothing to do, `fix` what to do
        otherwise; where `warning` is true a run can be trained all the same. If the environment fails, the last one is
        not ok.

    Raises:
        TaskError: While it is looked at: it cannot be made, or DR.Q cannot train on it.

    Example:
        ```python
        for finding in dr_q.check_env("gym/Pendulum-v1"):
            print(finding.what, finding.ok, finding.found)
        ```
    """
    return _look(task, steps)


def _look(task: Any, steps: int) -> Iterator[Finding]:
    try:
        yield from examine(lambda: make_env(task), steps)
    except EnvError as error:
        yield Finding("failed", False, str(error), "fix the environment: no run can be trained on it")
