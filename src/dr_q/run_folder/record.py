"""run.json: what a run is, how far it is, and what it ran on."""

import json
import re
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dr_q.kit import DamagedFileError, RunFolderError, check_can_make, read_file, resume_call, spelled, write_text
from dr_q.run_folder.json_files import Fields, read_json
from dr_q.run_folder.tables import EVALS, evaluation_rows
from dr_q.spaces import spaces_from_json

RUN_JSON = "run.json"
STATUSES = ("running", "finished", "stopped", "interrupted", "failed")


class RunRecord(NamedTuple):
    """One run: its settings, and its evaluations by seed."""

    folder: Path
    """The run's folder."""
    info: dict[str, Any]
    """The contents of `run.json`."""
    evaluations: dict[int, list[tuple[int, float]]]
    """For each seed a list of (agent_steps, mean return), in order. Those of an earlier environment are left out."""


def read_run(folder: str | Path, *needed: str) -> RunRecord:
    """A run's folder.

    Args:
        folder: Where it is.
        needed: What run.json must have besides its settings.

    Raises:
        RunFolderError: If it is none, or has no evaluation yet.
        DamagedFileError: If a file is not whole.
    """
    folder = Path(folder)
    info = read_run_json(folder, *needed)
    if not (folder / EVALS).exists():
        raise RunFolderError(f"the run in {folder} has no evaluation yet; wait for its first, or leave it out")
    evaluations: dict[int, list[tuple[int, float]]] = {}
    for row in own_evaluation_rows(folder, info):
        evaluations.setdefault(int(row["seed"]), []).append((int(row["agent_steps"]), float(row["return_mean"])))
    return RunRecord(folder, info, evaluations)


def own_evaluation_rows(folder: Path, info: Mapping[str, Any]) -> list[dict[str, str]]:
    """The rows of evals.csv of the environment that run.json (`info`) names: those of an earlier one are not its."""
    until = max((before["until"] for before in info.get("earlier_environments", [])), default=-1)
    return [row for row in evaluation_rows(folder) if int(row["agent_steps"]) > until]


def read_run_json(folder: Path, *needed: str) -> dict[str, Any]:
    """What run.json says.

    Args:
        folder: The run's folder.
        needed: What it must have besides its settings.
    """
    path = Path(folder) / RUN_JSON
    if not path.exists():
        raise RunFolderError(f"{folder} is not a run: it has no run.json; give the folder that a run was trained in")
    info = read_json(path)
    fields = Fields(path, info, "leave it out, or train again")
    for name in ("settings", *needed):
        fields.any(name)
    for name, read in _KINDS.items():
        if name in info:
            read(fields, name)
    for name in ("task", "preset"):
        fields.inner("settings").text(name)
    return info


def _read_earlier_versions(fields: Fields, name: str) -> None:
    for part in fields.list(name):
        if not isinstance(part, dict):
            raise fields.wrong(name, "a list of versions")
        Fields(fields.path, part, within=f"{name}.").whole("until")


def _read_started_from(fields: Fields, name: str) -> None:
    inner = fields.inner(name)
    for source in inner.values:
        about = inner.inner(source)
        for text in ("source", "kind", "sha256"):
            about.text(text)
        if source == "prefill":
            about.whole("transitions")
            about.whole("slots")


def _read_environment(fields: Fields) -> None:
    fields.text("task")
    fields.object("spaces")
    try:
        spaces_from_json(fields.values["spaces"])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError):
        raise fields.damaged("it has no spaces that can be read") from None


def _read_earlier_environments(fields: Fields, name: str) -> None:
    for part in fields.list(name):
        if not isinstance(part, dict):
            raise fields.wrong(name, "a list of environments")
        inner = Fields(fields.path, part, within=f"{name}.")
        inner.whole("until")
        inner.text("task")


_KINDS: dict[str, Callable[[Fields, str], Any]] = {
    "settings": Fields.object,
    "status": lambda fields, name: fields.text(name, STATUSES),
    "agent_steps": Fields.whole,
    "last_checkpoint": lambda fields, name: fields.values[name] is None or fields.whole(name),
    "seeds": lambda fields, name: fields.wholes(name, most=2**32 - 1),
    "versions": Fields.object,
    "changed": Fields.object,
    "seconds": lambda fields, name: fields.number(name, least=0.0),
    "earlier_versions": _read_earlier_versions,
    "stop_reason": Fields.text,
    "stopped_by": Fields.text,
    "started_from": _read_started_from,
    "callbacks": Fields.texts,
    "environment": lambda fields, name: _read_environment(fields.inner(name)),
    "earlier_environments": _read_earlier_environments,
}
"""The fields of run.json, and what they must be where they are there."""


def check_new_folder(out: Path) -> None:
    """Refuse a folder that holds anything, or cannot be made."""
    if out.exists() and not out.is_dir():
        raise RunFolderError(f"{out} is a file; choose another {spelled('out')}, a new or empty folder")
    if out.exists() and any(out.iterdir()):
        other = f"or resume it: {resume_call(out)}" if (out / RUN_JSON).exists() else "a new or empty folder"
        raise RunFolderError(f"{out} is not empty; choose another {spelled('out')}, {other}")
    check_can_make(out)


def tensorboard_folder(folder: Path) -> Path:
    """Where a run's metrics for TensorBoard are."""
    return folder / "tensorboard"


def video_file(folder: Path, agent_steps: int, seed: int) -> Path:
    """Where the video of a seed's policy at a step is."""
    return folder / "videos" / f"step-{agent_steps:09d}-seed{seed}.mp4"


def wandb_id(folder: Path) -> str:
    """The run's name at Weights & Biases, the same after a resume; made when first asked for."""
    path = folder / "wandb_id"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_text(path, uuid.uuid4().hex)
    try:
        name = read_file(path).decode().strip()
    except UnicodeDecodeError:
        name = ""
    if re.fullmatch(r"[0-9a-f]{32}", name) is None:
        raise DamagedFileError(f"{path} is damaged: it must be 32 hexadecimal digits, got {name[:60]!r}; remove it")
    return name


class RunJson:
    """Writes a run's run.json."""

    def __init__(
        self,
        folder: Path,
        settings: dict[str, Any],
        changed: dict[str, Any],
        seeds: list[int],
        versions: dict[str, str],
    ):
        """`changed` are the settings that differ from the preset."""
        self.folder = folder
        self._settings, self._changed, self._seeds, self._versions = settings, changed, seeds, versions
        self._start = time.perf_counter()
        self._seconds_before = 0.0
        self._versions_before: list[dict[str, Any]] = []
        self.last_checkpoint: int | None = None
        """Agent steps of the run's newest checkpoint, if it has one."""
        self.started_from: dict[str, Any] = {}
        """What it started from, `init` and `prefill`, if anything."""
        self.callbacks: list[str] = []
        """Names of the callbacks that a caller of `train` gave."""
        self.environment: dict[str, Any] = {}
        """What identifies its environment."""
        self.earlier_environments: list[dict[str, Any]] = []
        """Those that it had before, each `until` an agent step."""

    def resume(self, agent_steps: int) -> dict[str, str]:
        """Count the time of the run that is in the folder already; keep what it ran on, if that was something else.

        Returns:
            The `device` that it ran on and the digest of the `source`, each if it was another.
        """
        path = self.folder / RUN_JSON
        if not path.exists():
            return {}
        before = read_run_json(self.folder, "versions")
        self._seconds_before = float(before.get("seconds", 0.0))
        self._changed = before.get("changed", self._changed)  # presets may since have changed themselves
        parts = [*before.get("earlier_versions", []), {"until": agent_steps, **before["versions"]}]
        ends = [part["until"] for part in parts]
        begins = [0, *ends]
        # What a part did beyond the checkpoint is done again.
        parts = [{**part, "until": min(end, agent_steps)} for part, end in zip(parts, ends, strict=True)]
        parts = [part for part, begin in zip(parts, begins[:-1], strict=True) if part["until"] > begin]
        if parts and parts[-1] == {"until": agent_steps, **self._versions}:
            parts.pop()
        self._versions_before = parts
        was, now = before["versions"], self._versions
        return {name: was[name] for name in ("device", "source") if name in was and was[name] != now.get(name)}

    def write(self, status: str, agent_steps: int, stop_reason: str = "", stopped_by: str = "") -> None:
        """Write it, with why the run was stopped and by which setting.

        Its seconds are those of all processes that worked on the run.
        """
        record = {
            "status": status,
            **({"stop_reason": stop_reason} if stop_reason else {}),
            **({"stopped_by": stopped_by} if stopped_by else {}),
            "agent_steps": agent_steps,
            "last_checkpoint": self.last_checkpoint,
            "settings": self._settings,
            "changed": self._changed,
            "seeds": self._seeds,
            "versions": self._versions,
            "updated": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "seconds": round(self._seconds_before + time.perf_counter() - self._start, 2),
            **({"earlier_versions": self._versions_before} if self._versions_before else {}),
            **({"started_from": self.started_from} if self.started_from else {}),
            **({"callbacks": self.callbacks} if self.callbacks else {}),
            **({"environment": self.environment} if self.environment else {}),
            **({"earlier_environments": self.earlier_environments} if self.earlier_environments else {}),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / RUN_JSON, json.dumps(record, indent=1) + "\n")
