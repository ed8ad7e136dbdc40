"""Families of environments and the tasks they have, by name; nothing here imports a simulator before it is needed.

The families of this package are the files in this folder. Other packages add theirs through the entry-point group
`dr_q.families`. See `Family`.
"""

import functools
import importlib
import importlib.metadata
import pkgutil
import re
import sys
from collections.abc import Callable
from typing import Any

from dr_q.envs.families.base import DEFAULT_AGENT_STEPS, DEFAULT_EVAL_EVERY, Family, UnknownIdError
from dr_q.envs.noisy import NoisyState
from dr_q.envs.protocol import Env
from dr_q.kit import TaskError, did_you_mean
from dr_q.paper import SUITES as PAPER_SUITES
from dr_q.paper import TaskInfo, paper_tasks

ENTRY_POINTS = "dr_q.families"
"""The group of entry points through which other packages add families."""
EVERY_TASK, PAPERS_TASKS = "all", "paper"
"""Suites that are not one family's: every known task, and the 73 of the paper."""

EnvFactory = Callable[[], Any]
"""A callable that makes a new Gymnasium environment each time it is called."""


@functools.cache
def families() -> dict[str, Family]:
    """Every family, by prefix: those of the paper in its order, then others by name.

    A family of another package that cannot be used is reported on standard error, once, and left out.
    """
    own = [importlib.import_module(f"{__name__}.{file.name}") for file in pkgutil.iter_modules(__path__)]
    in_paper_order = sorted((file.FAMILY for file in own if hasattr(file, "FAMILY")), key=_place_in_paper)
    found: dict[str, Family] = {family.prefix: family for family in in_paper_order}
    for entry in sorted(importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        try:
            family = _load(entry, found)
        except (Exception, SystemExit) as error:  # anything may go wrong in other people's code
            what = str(error) if isinstance(error, TaskError) else f"{type(error).__name__}: {error}"
            line = f"dr-q: the family '{entry.name}' ({entry.value}) is left out: {what}"
            print(" ".join(line.split()), file=sys.stderr)
        else:
            found[family.prefix] = family
    return found


def known_tasks() -> dict[str, TaskInfo]:
    """Every task with a known suite and budget.

    Returns:
        Tasks by name: the paper's 73, then those of other families.

    Example:
        ```python
        budget = dr_q.envs.known_tasks()["dmc/walker-run"].agent_steps
        ```
    """
    others = {task.name: task for family in families().values() for task in family.tasks}
    return {**paper_tasks(), **others}


def suites() -> tuple[str, ...]:
    """The names that `suite_tasks` takes.

    Returns:
        Names of suites, of families with several suites, `"paper"` and `"all"`.

    Example:
        ```python
        print(", ".join(dr_q.envs.suites()))
        ```
    """
    found: list[str] = []
    for family in families().values():
        found += family.suites
        if len(family.suites) > 1 and family.prefix not in family.suites:
            found.append(family.prefix)
    return (*found, PAPERS_TASKS, EVERY_TASK)


def suite_tasks(suite: str) -> list[TaskInfo]:
    """The tasks of a suite.

    Args:
        suite: One of `suites()`: a suite, a family with several suites, `"paper"` or `"all"`.

    Returns:
        The tasks.

    Raises:
        TaskError: There is no such suite.

    Example:
        ```python
        names = [task.name for task in dr_q.envs.suite_tasks("dmc-easy")]
        ```
    """
    if suite not in suites():
        hint = did_you_mean(suite, suites())
        raise TaskError(f"unknown suite '{suite}'{hint or ';'} suites: {', '.join(suites())}")
    if suite == PAPERS_TASKS:
        return list(paper_tasks().values())
    tasks = known_tasks().values()
    exact = [task for task in tasks if suite in (task.suite, EVERY_TASK)]
    return exact or [task for task in tasks if task.suite in families()[suite].suites]


def default_steps(task: str | EnvFactory) -> int:
    """Agent steps to train for if nobody says another number: the task's budget, else its family's."""
    if not isinstance(task, str):
        return DEFAULT_AGENT_STEPS
    name = canonical(task)
    if name in known_tasks():
        return known_tasks()[name].agent_steps
    family = families().get(name.partition("/")[0])
    return family.agent_steps if family else DEFAULT_AGENT_STEPS


def default_eval_every(task: str | EnvFactory) -> int:
    """Agent steps between evaluations if nobody says another number: the family's."""
    family = families().get(canonical(task).partition("/")[0]) if isinstance(task, str) else None
    return family.eval_every if family else DEFAULT_EVAL_EVERY


def canonical(name: str) -> str:
    """A task's own spelling: dashes for underscores and other cases are accepted."""
    if name in known_tasks():
        return name
    spelled = {_plain(known): known for known in known_tasks()}
    return spelled.get(_plain(name), name)


def make_env(task: str | EnvFactory, *, noise_dims: int = 0, render: bool = False) -> Env:
    """Make an environment, as training does.

    Args:
        task: A name (`dmc/walker-run`, `gym/Ant-v4`, `module:Id`), or a callable that makes a Gymnasium environment.
        noise_dims: Dimensions of noise to append to its observations.
        render: Whether `render` will be called on a named environment.

    Returns:
        The environment. Its actions are in [-1, 1], or one-hot.

    Raises:
        TaskError: There is no such task, it cannot be made, or DR.Q cannot train on it.

    Example:
        ```python
        env = dr_q.envs.make_env("gym/Pendulum-v1")
        obs = env.reset(seed=0)
        step = env.step(np.zeros(env.spec.action.dim))
        env.close()
        ```
    """
    if not isinstance(task, str) and not callable(task):
        raise TaskError(
            f"got {type(task).__name__} as a task; give a name, or a callable that makes a new environment each time: "
            "a class, or lambda: MyEnv(...)"
        )
    env = _from_name(canonical(task), render) if isinstance(task, str) else _from_callable(task)
    return NoisyState(env, noise_dims) if noise_dims else env


def _from_callable(make: EnvFactory) -> Env:
    from dr_q.envs.gymnasium_adapter import GymEnv

    return GymEnv(make, getattr(make, "__name__", "your environment"))


def _from_name(name: str, render: bool) -> Env:
    prefix, _, rest = name.partition("/")
    if prefix in families():
        family = families()[prefix]
        try:
            return family.make(rest, render)
        except UnknownIdError as error:
            known = [f"{prefix}/{known}" for known in error.known]
            listed = f"dr-q tasks {prefix}" if prefix in suites() else "dr-q tasks"
            other = f"; tasks are spelled {family.spelling}" if family.spelling else ""
            raise _unknown(name, did_you_mean(name, known or known_tasks()) or other, listed) from None
    if ":" in name:  # Gymnasium imports the module, which registers the environment
        return families()["gym"].make(name, render)
    if (spelling := _spelling_of_registered(name)) is not None:
        raise TaskError(f"unknown task '{name}'; did you mean {spelling}? List: dr-q tasks")
    spellings = ", ".join(family.spelling or f"{family.prefix}/ID" for family in families().values())
    raise _unknown(name, did_you_mean(name, known_tasks()) or f"; a task is {spellings} or module:Id", "dr-q tasks")


def _spelling_of_registered(name: str) -> str | None:
    """How a name that Gymnasium knows is spelled as a task; None for one that it does not know.

    Only the process that imported a module knows what it registers: `module:Id` has every process import it.
    """
    import gymnasium

    if name not in gymnasium.registry:
        return None
    entry: Any = gymnasium.registry[name].entry_point
    module = entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")
    if module.partition(".")[0] in ("gymnasium", ""):
        return f"'gym/{name}'"
    return f"'MODULE:{name}', with the module that registers it" if module == "__main__" else f"'{module}:{name}'"


def _unknown(name: str, hint: str, listed: str) -> TaskError:
    stop = "" if hint.endswith("?") else "."
    return TaskError(f"unknown task '{name}'{hint}{stop} List: {listed}")


def _place_in_paper(family: Family) -> tuple[int, str]:
    places = [PAPER_SUITES.index(suite) for suite in family.suites if suite in PAPER_SUITES]
    return min(places, default=len(PAPER_SUITES)), family.prefix


def _load(entry: importlib.metadata.EntryPoint, others: dict[str, Family]) -> Family:
    """A family of another package; a `TaskError` says why it cannot be used."""
    family: Any = entry.load()
    family = getattr(family, "FAMILY", family)  # an entry point names the file, or the object in it
    if not isinstance(family, Family):
        kind = type(family).__name__
        raise TaskError(f"it is of type {kind}, expected a dr_q.envs.Family, or a file with one named FAMILY")
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", family.prefix):
        raise TaskError(f"its prefix is '{family.prefix}'; a prefix has lower-case letters, digits, - and _")
    taken = {EVERY_TASK, PAPERS_TASKS, *others}.union(*(other.suites for other in others.values()))
    for name in (family.prefix, *family.suites):
        if name in taken:
            raise TaskError(f"the name '{name}' is taken")
    for task in family.tasks:
        if not task.name.startswith(f"{family.prefix}/"):
            raise TaskError(f"its task '{task.name}' does not begin with '{family.prefix}/'")
    return family


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
