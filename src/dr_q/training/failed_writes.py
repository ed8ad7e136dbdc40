"""Checkpoints that cannot be written or do not fit the run: when a run continues, and when it stops."""

import time
from collections.abc import Callable
from pathlib import Path

from dr_q.config import plain_value
from dr_q.kit import DamagedFileError, TrainingError, spelled
from dr_q.run_folder import StoredCheckpoint
from dr_q.settings import STOP_RULES, Settings

_LAST_ATTEMPTS, _PAUSE_S = 3, 2.0
"""For the checkpoint at the end of a run, and seconds between them."""


class FailedCheckpoints:
    """Counts the checkpoints that could not be written, one after the other."""

    def __init__(self, most: int, say: Callable[[str], None]):
        """`most` of them stop the run."""
        self._most, self._say = most, say
        self._count = 0

    def attempt(
        self, write: Callable[[], None], agent_steps: int, must: bool, how_to_resume: Callable[[], str]
    ) -> None:
        """Write a checkpoint, or continue without.

        Args:
            write: Writes it; OSError if that cannot be.
            agent_steps: Of the checkpoint.
            must: Whether the run ends here, so that there will be no other. Then it is tried several times.
            how_to_resume: Says what to do after the run has stopped.

        Raises:
            TrainingError: If the run must stop.
        """
        for left in reversed(range(_LAST_ATTEMPTS if must else 1)):
            try:
                write()
            except OSError as error:
                if left:
                    time.sleep(_PAUSE_S)
                else:
                    self._failed(error, agent_steps, must, how_to_resume)
            else:
                self._count = 0
                return

    def _failed(self, error: OSError, agent_steps: int, must: bool, how_to_resume: Callable[[], str]) -> None:
        self._count += 1
        failed = f"the checkpoint of step {agent_steps:,} could not be written ({why(error)})"
        if must:
            raise TrainingError(f"{failed}; once that is fixed, {how_to_resume()}")
        if self._count >= self._most:
            limit = f"{self._count} in a row, the limit of {spelled('max_failed_checkpoints')}"
            raise TrainingError(f"{failed}: {limit}; once that is fixed, {how_to_resume()}")
        self._say(f"{failed}; training continues, and the next one is tried (failed: {self._count} of {self._most})")


def why(error: OSError) -> str:
    """What the system says, and of which file."""
    said = error.strerror or str(error)
    return f"{error.filename}: {said}" if error.filename is not None else said


def check_settings_of(folder: Path, settings: Settings, stored: StoredCheckpoint, *, any_task: bool = False) -> None:
    """Refuse settings of run.json that differ from those with which a checkpoint was made, and a step past the end.

    `any_task`: the environment is compared elsewhere.
    """
    if stored.seeds != settings.seed_list:
        raise _differ(folder, "seeds", settings.seed_list, stored, stored.seeds)
    now = settings.to_json()
    for name, was in {**stored.settings, **stored.settings.get("config", {})}.items():
        got = {**now, **now["config"]}.get(name, was)
        apart = ("steps", "config", *STOP_RULES, *(["task"] if any_task else []))
        if name not in apart and plain_value(got) != plain_value(was):
            raise _differ(folder, name, got, stored, was)
    if stored.agent_steps > settings.last_step:
        raise DamagedFileError(
            f"{stored.folder} is past the end of the run in {folder}, whose settings have {settings.steps:,} steps; "
            "one of the two is not this run's: take it from a backup"
        )


def _differ(folder: Path, name: str, got: object, stored: StoredCheckpoint, was: object) -> DamagedFileError:
    return DamagedFileError(
        f"the settings of the run in {folder} are damaged: {name} is {got}, but the checkpoint of step "
        f"{stored.agent_steps:,} was made with {was}; write that into its run.json"
    )
