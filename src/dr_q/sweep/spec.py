"""What a sweep is: tasks x presets, each pair one job with all seeds in it; and its folder.

OUT/sweep.json                the sweep
OUT/<task>/<preset>/          a run's folder, as `dr-q train --out` makes it
OUT/<task>/<preset>.log       what the job printed
OUT/<task>/<preset>.lock      held by the process that trains it, and which one that is
OUT/results.csv               every evaluation of the finished runs
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from dr_q.config import PRESETS, check_settings, current_names, preset, setting
from dr_q.envs import canonical, known_tasks, make_env, suite_tasks, suites
from dr_q.kit import ConfigError, DamagedFileError, RunFolderError, TaskError, write_text
from dr_q.paper import paper_tasks
from dr_q.settings import SCHEDULE, Settings, make_settings

SPEC_FILE = "sweep.json"
RESULTS_FILE = "results.csv"
LOCK_FILE = "sweep.lock"
SEEDS = 10
"""The paper's."""
RUN_OPTIONS = (*SCHEDULE, "checkpoint_every", "keep_checkpoints")
"""What a sweep may set of a run's `Settings`, besides seeds and noise."""
_JOBS = "Jobs"


@dataclasses.dataclass(frozen=True)
class SweepSpec:
    """Everything that decides a sweep's results."""

    tasks: tuple[str, ...]
    """Names of tasks and suites; suites are replaced by their tasks."""
    presets: tuple[str, ...]
    seeds: int = SEEDS
    """Of each task and preset, from 0 on."""
    steps: int | None = None
    """Agent steps of each seed; None is the paper's budget of each task."""
    eval_every: int | None = None
    eval_episodes: int | None = None
    checkpoint_every: int | None = None
    keep_checkpoints: int | None = None
    """Checkpoints of each run; None is a run's own default, as above."""
    noise_dims: int = 0
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Of the config, on top of every preset."""

    def __post_init__(self) -> None:
        """Spell tasks out; refuse what cannot be."""
        object.__setattr__(self, "tasks", _tasks(self.tasks))
        object.__setattr__(self, "presets", tuple(dict.fromkeys(self.presets)))
        if not self.tasks:
            raise ConfigError(
                f"nothing to train on; name tasks (dr-q tasks lists them) or suites: {', '.join(suites())}"
            )
        if not self.presets:
            raise ConfigError(f"no preset given; presets: {', '.join(PRESETS)}")
        for name in self.presets:
            preset(name, **self.changes)
        self.settings(self.tasks[0], self.presets[0])

    def settings(self, task: str, preset_name: str) -> Settings:
        """Those of one run."""
        schedule = {name: getattr(self, name) for name in RUN_OPTIONS if getattr(self, name) is not None}
        return make_settings(
            task,
            preset_name=preset_name,
            changes=self.changes,
            seeds=self.seeds,
            noise_dims=self.noise_dims,
            **schedule,
        )

    def jobs(self, out: Path) -> list["Job"]:
        """One for each task and preset, in the order given."""
        return [
            Job(self.settings(task, name), out / _plain(task) / name) for task in self.tasks for name in self.presets
        ]

    def to_json(self) -> dict[str, Any]:
        """For sweep.json, as it comes back from there."""
        return json.loads(json.dumps(dataclasses.asdict(self)))


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """Where and how to run it."""

    address: str | None = setting(
        None,
        "a Ray cluster to run on; `auto` is the one that runs on this machine",
        group=_JOBS, metavar="HOST:PORT", otherwise="Ray is started on this machine",
    )  # fmt: skip
    gpus_per_job: float | None = setting(
        None,
        "GPUs of a job; two jobs share one with 0.5, 0 trains on the CPU",
        group=_JOBS, otherwise="1 if there are any",
        check=("a number between 0 and 1, or a whole number", lambda x: x >= 0 and (x <= 1 or x % 1 == 0)),
    )  # fmt: skip
    cpus_per_job: float | None = setting(
        None,
        "CPUs of a job",
        group=_JOBS, above=0, otherwise="with a GPU one for each seed and 2 more, otherwise its share of the machine",
    )  # fmt: skip
    retries: int = setting(
        3, "how often a job that lost its worker is started again from its checkpoint", group=_JOBS, least=0
    )

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        check_settings(self)


@dataclasses.dataclass(frozen=True)
class Job:
    """All seeds of one task and preset, in one process."""

    settings: Settings
    folder: Path

    @property
    def task(self) -> str:
        """Its task's name."""
        return self.settings.task_name

    @property
    def preset(self) -> str:
        """Its preset's name."""
        return self.settings.preset

    @property
    def name(self) -> str:
        """For lines about it."""
        return f"{self.task} {self.preset}"

    @property
    def log(self) -> Path:
        """What it printed."""
        return self.folder.with_name(f"{self.folder.name}.log")

    @property
    def lock(self) -> Path:
        """Held while a process trains it."""
        return self.folder.with_name(f"{self.folder.name}.lock")


def check_tasks(spec: SweepSpec) -> None:
    """Refuse tasks that there are not; the paper's are there, so only others are made to see."""
    for task in spec.tasks:
        if task not in paper_tasks():
            make_env(task).close()


def check_folder(spec: SweepSpec, out: Path) -> dict[str, Any] | None:
    """What sweep.json says, if it is there; refuse the folder of another sweep, and one that is none."""
    file = out / SPEC_FILE
    if not file.exists():
        ours = {SPEC_FILE + ".part", LOCK_FILE}
        if out.exists() and (not out.is_dir() or any(path.name not in ours for path in out.iterdir())):
            raise RunFolderError(f"{out} is not empty and no sweep: it has no {SPEC_FILE}; choose another --out")
        return None
    try:
        record = json.loads(file.read_text())
        was = current_names(record["spec"], Settings)  # a sweep of an earlier version has old names
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DamagedFileError(f"{file} cannot be read as a sweep; choose another --out, or repair the file") from None
    for name, value in spec.to_json().items():
        if was.get(name) != value:
            raise RunFolderError(
                f"{out} holds another sweep: {name.replace('_', '-')} {_said(was.get(name))}, got {_said(value)}; "
                "give the same to continue it, or choose another --out"
            )
    return record


def write_spec(spec: SweepSpec, out: Path, cpu_threads: int | None) -> None:
    """Write sweep.json; it is there whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    record = {"spec": spec.to_json(), "cpu_threads": cpu_threads}
    write_text(out / SPEC_FILE, json.dumps(record, indent=1) + "\n")


def _tasks(names: tuple[str, ...]) -> tuple[str, ...]:
    found: list[str] = []
    for name in names:
        spelled = canonical(name)
        if spelled in known_tasks() or "/" in name or ":" in name:
            found.append(spelled)
            continue
        try:
            found += [task.name for task in suite_tasks(name)]
        except TaskError as error:
            raise TaskError(f"{error}; or a task: dr-q tasks lists them") from None
    return tuple(dict.fromkeys(found))


def _plain(task: str) -> str:
    return task.replace("/", "-").replace(":", "-")


def _said(value: Any) -> str:
    if isinstance(value, list):
        shown = ", ".join(map(str, value[:4]))
        return f"{shown} and {len(value) - 4} more" if len(value) > 4 else shown
    if isinstance(value, dict):
        return ", ".join(f"{name} {x}" for name, x in value.items()) or "none"
    return "the default" if value is None else str(value)
