"""The 73 tasks by name, and environments from names."""

import difflib
from collections.abc import Callable

import gymnasium

from dr_q.envs.dmc import DmcEnv
from dr_q.envs.gym import GymEnv, make_registered
from dr_q.envs.humanoid_bench import HumanoidBenchEnv
from dr_q.envs.noisy import NoisyState
from dr_q.envs.protocol import Env
from dr_q.kit import TaskError
from dr_q.paper import TaskInfo, paper_tasks

FAMILIES = ("gym", "dmc", "dmc-visual", "hbench")
SUITES = ("gym", "dmc-easy", "dmc-hard", "dmc", "dmc-visual", "hbench", "hbench-hand", "all")
DEFAULT_AGENT_STEPS = 500_000


def suite_tasks(suite: str) -> list[TaskInfo]:
    """The tasks of a suite."""
    if suite not in SUITES:
        raise TaskError(f"unknown suite '{suite}'{_hint(suite, SUITES)}; suites: {', '.join(SUITES)}")
    parts = {"all": set(SUITES), "dmc": {"dmc-easy", "dmc-hard"}}.get(suite, {suite})
    return [task for task in paper_tasks().values() if task.suite in parts]


def canonical(name: str) -> str:
    """A task's own spelling: dashes for underscores and other cases are accepted."""
    if name in paper_tasks():
        return name
    spelled = {_plain(known): known for known in paper_tasks()}
    return spelled.get(_plain(name), name)


def make_env(task: str | Callable[[], gymnasium.Env], *, noise_dims: int = 0, render: bool = False) -> Env:
    """An environment by name (`dmc/walker-run`, `gym/Ant-v4`, `module:Id`), or from a callable that makes one."""
    if not isinstance(task, str) and not callable(task):
        raise TaskError(
            f"got {type(task).__name__} as a task; give a name, or a callable that makes a new environment each time: "
            "a class, or lambda: MyEnv(...)"
        )
    env = (
        _from_name(task, render)
        if isinstance(task, str)
        else GymEnv(task, getattr(task, "__name__", "your environment"))
    )
    return NoisyState(env, noise_dims) if noise_dims else env


def _from_name(name: str, render: bool) -> Env:
    name = canonical(name)
    family, _, rest = name.partition("/")
    if family == "gym" or (":" in name and family not in FAMILIES):
        env_id = rest if family == "gym" else name
        return GymEnv(lambda: make_registered(env_id, render), env_id)
    if family in ("dmc", "dmc-visual"):
        domain, _, task = rest.partition("-")
        try:
            return DmcEnv(domain, task.replace("-", "_"), pixels=family == "dmc-visual")
        except TaskError:
            raise _unknown(name) from None
    if family == "hbench":
        return HumanoidBenchEnv(rest)
    raise _unknown(name)


def _unknown(name: str) -> TaskError:
    family = name.partition("/")[0]
    where = f"dr-q tasks {family}" if family in SUITES else "dr-q tasks"
    hint = _hint(name, paper_tasks())
    if not hint and family not in FAMILIES:
        hint = "; a task is family/id (gym/..., dmc/..., dmc-visual/..., hbench/...) or module:Id"
    stop = "" if hint.endswith("?") else "."
    return TaskError(f"unknown task '{name}'{hint}{stop} List: {where}")


def _hint(name: str, known: object) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)  # pyright: ignore[reportArgumentType]
    return f"; did you mean '{close[0]}'?" if close else ""


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
