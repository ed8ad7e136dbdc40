"""Which environment a run was trained on, for its record; a run is resumed with the same one."""

import functools
import json
from typing import Any

from dr_q.envs import EnvSpec
from dr_q.kit import RunFolderError, spelled
from dr_q.settings import Settings
from dr_q.spaces import spaces_from_json, spaces_to_json
from dr_q.training.initial_weights import described


def environment_record(settings: Settings, spec: EnvSpec) -> dict[str, Any]:
    """What identifies an environment: its name, its spaces and limits, and which code it is, as far as that is known.

    Versions of packages are not part of it: run.json has them, and resuming with others is allowed.
    """
    task = settings.task
    given = ""
    if isinstance(task, functools.partial):
        values = {"arguments": task.args, **task.keywords}
        given = json.dumps(values, sort_keys=True, default=lambda x: getattr(x, "__qualname__", type(x).__qualname__))
    return {
        "task": settings.task_name if isinstance(task, str) else "callable",
        "spaces": json.loads(json.dumps(spaces_to_json(spec.spaces))),
        "episode_length": spec.episode_length,
        "action_repeat": spec.action_repeat,
        "made_from": " ".join(part for part in (spec.made_from, given) if part),
    }


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """In what two environments differ, in words. Earlier versions did not know the limit of some: they wrote none."""
    return [
        "spaces" if name == "spaces" else f"{name} {now.get(name)}, the run's {before[name]}"
        for name in now
        if name in before and before[name] != now[name] and not (name == "episode_length" and before[name] is None)
    ]


def check_environment(before: dict[str, Any], now: dict[str, Any], *, asked_for: bool, folder: Any) -> None:
    """Refuse to resume a run with another environment, unless that is asked for.

    Args:
        before: That of the run; a run of an earlier version does not have it all.
        now: The one to resume with.
        asked_for: Whether it may be another one.
        folder: The run's, for messages.

    Raises:
        RunFolderError: It is another one and that was not asked for, or it has spaces that the agent does not fit.
    """
    found = differences(before, now)
    if "spaces" in before:
        there, here = (spaces_from_json(record["spaces"]) for record in (before, now))
        if there.sizes() != here.sizes():
            raise RunFolderError(
                f"the run in {folder} has observations {described(there.obs)} and actions {described(there.action)}; "
                f"this environment's are {described(here.obs)} and {described(here.action)}, which do not fit its agent"
            )
    if found and not asked_for:
        raise RunFolderError(
            f"this is another environment than that of the run in {folder}: {'; '.join(found)}; resume it with its "
            f"own, or give {spelled('new_environment')}: the open episode is then closed as truncated"
        )
