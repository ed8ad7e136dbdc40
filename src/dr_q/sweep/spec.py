"""What a sweep is: tasks x variants, each pair one job with all seeds in it; and its folder.

OUT/sweep.json                   the sweep, and every job that the folder has
OUT/<task>/<variant>/            a run's folder, as `dr-q train --out` makes it
OUT/<task>/<variant>.log         what the job printed
OUT/<task>/<variant>.lock        held by the process that trains it, and which one that is
OUT/<task>/<variant>.ended       how its last process ended
OUT/results.csv                  every evaluation of the finished runs

A variant is a preset, or a preset with values of the grid: `dr.q+infonce_weight=0.2`. Seeds that were added later are
another job: `dr.q-seeds5-9`.
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dr_q.config import (
    MOST_STEPS,
    PRESETS,
    Config,
    add_presets,
    base_kind,
    check_names,
    check_settings,
    current_names,
    plain_value,
    preset,
    presets_of_files,
    setting,
    settings_of,
)
from dr_q.envs import canonical, known_tasks, make_env, suite_tasks, suites
from dr_q.kit import (
    ConfigError,
    DamagedFileError,
    RunFolderError,
    TaskError,
    check_can_make,
    folder_name,
    shortened,
    spelled,
    write_text,
)
from dr_q.paper import paper_tasks
from dr_q.run_folder import Fields, read_json
from dr_q.settings import LARGEST_SEED, SCHEDULE, STOP_RULES, Settings, make_settings

SPEC_FILE = "sweep.json"
RESULTS_FILE = "results.csv"
LOCK_FILE = "sweep.lock"
COLLECT_LOCK_FILE = "results.lock"
STATUS_FILE = "status.json"
SEEDS = 10
"""The paper's."""
MOST_JOBS = 100_000
MOST_GPUS = 1_024
"""Of one job: more than any machine has."""
RUN_OPTIONS = (*SCHEDULE, "checkpoint_every", "keep_checkpoints", "num_envs")
"""What sweeps, experiments and searches may set of a run's `Settings`, besides seeds.

Sweeps may also set noise and stop rules: experiments and searches compare runs at the same step.
"""
EXECUTION_OPTIONS = (
    "envs_per_process", "env_timeout", "max_env_restarts", "max_failed_checkpoints", "keep_best",
    "log_every", "wandb", "wandb_project", "wandb_entity", "wandb_group", "wandb_tags",
)  # fmt: skip
"""What they may set of a run's `Execution`."""
GROWING = ("tasks", "presets", "seeds", "first_seed", "grid", "definitions")
"""What may be different when a sweep's folder is used again: more of it adds jobs."""
_JOBS = "Jobs"
_ADVICE = "choose another --out, or take it from a backup"


@dataclasses.dataclass(frozen=True)
class SweepSpec:
    """Everything that decides a sweep's results."""

    tasks: tuple[str, ...]
    """Names of tasks and suites; suites are replaced by their tasks."""
    presets: tuple[str, ...]
    seeds: int = SEEDS
    """Of each task and variant, from `first_seed` on."""
    steps: int | None = None
    """Agent steps of each seed; None is the paper's budget of each task."""
    eval_every: int | None = None
    eval_episodes: int | None = None
    checkpoint_every: int | None = None
    keep_checkpoints: int | None = None
    """Checkpoints of each run; None is a run's own default, as above."""
    num_envs: int | None = None
    """Environments of each seed."""
    stop_at_return: float | None = None
    """Mean return over the seeds of a job at which it is finished."""
    patience: int | None = None
    """Evaluations without a higher mean return, after which a job is finished."""
    noise_dims: int = 0
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Of the config, on top of every preset."""
    first_seed: int = 0
    grid: dict[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    """Settings of the config with the values to try; all combinations, with every preset."""
    definitions: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    """What those of the presets change that are not built in; filled in from `dr_q.PRESETS`."""

    def __post_init__(self) -> None:
        """Spell tasks out; refuse what cannot be."""
        object.__setattr__(self, "tasks", _tasks(self.tasks))
        object.__setattr__(self, "presets", tuple(dict.fromkeys(self.presets)))
        object.__setattr__(self, "changes", current_names(self.changes, Config))
        object.__setattr__(self, "grid", _grid(self.grid, self.changes))
        if not self.tasks:
            raise ConfigError(
                f"nothing to train on; name tasks (dr-q tasks lists them) or suites: {', '.join(suites())}"
            )
        if not self.presets:
            raise ConfigError(f"no preset given; presets: {', '.join(PRESETS)}")
        combinations = math.prod(len(values) for values in self.grid.values())
        count = len(self.tasks) * len(self.presets) * combinations
        if count > MOST_JOBS:
            raise ConfigError(f"{count:,} jobs are more than a sweep may have, {MOST_JOBS:,}; give fewer values")
        for variant in self.variants():
            preset(variant.preset, **self.changes, **variant.values)
        self.settings(self.tasks[0], Variant(self.presets[0]))
        object.__setattr__(self, "definitions", presets_of_files(self.presets))

    def variants(self) -> "Iterator[Variant]":
        """Every preset with every combination of the grid's values."""
        for name in self.presets:
            for values in itertools.product(*self.grid.values()):
                yield Variant(name, dict(zip(self.grid, values, strict=True)))

    def settings(
        self, task: str, variant: "Variant", first_seed: int | None = None, seeds: int | None = None
    ) -> Settings:
        """Those of one run."""
        given = {name: getattr(self, name) for name in (*RUN_OPTIONS, *STOP_RULES)}
        return make_settings(
            task,
            preset_name=variant.preset,
            changes={**self.changes, **variant.values},
            first_seed=self.first_seed if first_seed is None else first_seed,
            seeds=self.seeds if seeds is None else seeds,
            noise_dims=self.noise_dims,
            **{name: value for name, value in given.items() if value is not None},
        )

    def jobs(self, out: Path) -> list["Job"]:
        """One for each task and variant, in the order given, and as many more as seeds were added in the folder."""
        begun = read_entries(out)
        return [
            self.job(entry, out)
            for task in self.tasks
            for variant in self.variants()
            for entry in self._entries(task, variant, begun)
        ]

    def _entries(self, task: str, variant: "Variant", begun: "list[Entry]") -> "list[Entry]":
        """Those of the folder that have any of the seeds, and new ones for the seeds that none has."""
        mine = [e for e in begun if (e.task, e.preset, e.values) == (task, variant.preset, variant.values)]
        wanted = range(self.first_seed, self.first_seed + self.seeds)
        found = [e for e in mine if e.first_seed < wanted.stop and e.first_seed + e.seeds > wanted.start]
        missing = [s for s in wanted if not any(e.first_seed <= s < e.first_seed + e.seeds for e in found)]
        for first, count in _ranges(missing):
            later = f"-seeds{first}-{first + count - 1}" if mine else ""
            folder = f"{plain_task(task)}/{folder_name(variant.label)}{later}"
            found.append(Entry(folder, task, variant.preset, variant.values, first, count))
        return found

    def job(self, entry: "Entry", out: Path) -> "Job":
        """A job of the sweep's folder."""
        variant = Variant(entry.preset, entry.values)
        settings = self.settings(entry.task, variant, entry.first_seed, entry.seeds)
        later = Path(entry.folder).name.removeprefix(folder_name(variant.label)).replace("-seeds", " seeds ")
        return Job(settings, out / entry.folder, variant.label + later, self.definitions)

    def to_json(self) -> dict[str, Any]:
        """For sweep.json, as it comes back from there."""
        return json.loads(json.dumps(dataclasses.asdict(self)))


class Variant(NamedTuple):
    """A preset, and values of the grid."""

    preset: str
    values: dict[str, Any] = {}  # noqa: RUF012  # never changed

    @property
    def label(self) -> str:
        """Its name in tables and folders: dr.q+infonce_weight=0.2."""
        return self.preset + "".join(f"+{name}={value}" for name, value in self.values.items())


class Entry(NamedTuple):
    """A job as sweep.json records it."""

    folder: str
    """Relative to the sweep's."""
    task: str
    preset: str
    values: dict[str, Any]
    """Of the grid."""
    first_seed: int
    seeds: int


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """Where and how to run it."""

    address: str | None = setting(
        None,
        "a Ray cluster to run on; `auto` is the one that runs on this machine",
        group=_JOBS, metavar="HOST:PORT", otherwise="Ray is started on this machine, for this machine only",
    )  # fmt: skip
    gpus_per_job: float | None = setting(
        None,
        "GPUs of a job; two jobs share one with 0.5, 0 trains on the CPU",
        group=_JOBS, otherwise="1 if there are any", least=0, most=MOST_GPUS,
        check=(f"a number between 0 and 1, or a whole number up to {MOST_GPUS}", lambda x: x <= 1 or x % 1 == 0),
    )  # fmt: skip
    cpus_per_job: float | None = setting(
        None,
        "CPUs of a job",
        group=_JOBS, above=0, most=MOST_STEPS,
        otherwise="with a GPU one for each seed and 2 more, otherwise its share of the machine",
    )  # fmt: skip
    retries: int = setting(
        3, "how often a job that lost its worker is started again from its checkpoint", group=_JOBS,
        least=0, most=MOST_STEPS,
    )  # fmt: skip
    local: bool = setting(False, "run jobs as processes of this machine, without Ray", group=_JOBS)
    jobs_per_gpu: int | None = setting(
        None,
        "jobs that share a GPU under CUDA's multi-process service, each with its part of the memory",
        group=_JOBS, least=1, most=32, otherwise="1",
    )  # fmt: skip
    max_minutes: float | None = setting(
        None,
        "minutes after which jobs write checkpoints and the sweep stops, with exit code 0",
        group=_JOBS, unit="minutes", above=0, most=MOST_STEPS, otherwise="no limit",
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        check_settings(self)
        if self.jobs_per_gpu is not None and self.gpus_per_job is not None:
            raise ConfigError(f"{spelled('jobs_per_gpu')} and {spelled('gpus_per_job')} say the same; give one of them")
        if self.local and self.address is not None:
            raise ConfigError(f"{spelled('local')} runs without Ray; leave {spelled('address')} out")

    @property
    def gpus(self) -> float | None:
        """GPUs of a job, by either option; None is the default."""
        return 1 / self.jobs_per_gpu if self.jobs_per_gpu is not None else self.gpus_per_job


@dataclasses.dataclass(frozen=True)
class Job:
    """Some seeds of one task and variant, in one process."""

    settings: Settings
    folder: Path
    variant: str = ""
    """Its name in tables; empty: the preset's."""
    definitions: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    """What presets that are not built in change."""
    execution: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of `dr_q.settings.Execution`."""

    @property
    def task(self) -> str:
        """Its task's name."""
        return self.settings.task_name

    @property
    def preset(self) -> str:
        """Its variant's name."""
        return self.variant or self.settings.preset

    @property
    def name(self) -> str:
        """For lines about it."""
        return f"{self.task} {self.preset}"

    @property
    def log(self) -> Path:
        """What it printed."""
        return self._next_to("log")

    @property
    def lock(self) -> Path:
        """Held while a process trains it."""
        return self._next_to("lock")

    @property
    def ended(self) -> Path:
        """How its last process ended."""
        return self._next_to("ended")

    def _next_to(self, kind: str) -> Path:
        return self.folder.with_name(f"{self.folder.name}.{kind}")

    def to_json(self) -> dict[str, Any]:
        """For a file that another process reads."""
        record = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**record, "settings": self.settings.to_json(), "folder": str(self.folder)}

    @staticmethod
    def from_json(record: dict[str, Any]) -> "Job":
        """From such a file."""
        settings, folder = Settings.from_json(record["settings"]), Path(record["folder"])
        return Job(**{**record, "settings": settings, "folder": folder})


def check_tasks(spec: SweepSpec) -> None:
    """Refuse tasks that there are not; the paper's are there, so only others are made to see."""
    for task in spec.tasks:
        if task not in paper_tasks():
            make_env(task).close()


def parse_grid(words: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """A grid from `setting=value,value` words.

    Raises:
        ConfigError: For a word that is none, an unknown setting, or a value that is not allowed.
    """
    found: dict[str, tuple[Any, ...]] = {}
    for word in words:
        name, equals, listed = word.partition("=")
        name = next(iter(current_names({name.replace("-", "_"): 0}, Config)))
        if not equals or not listed:
            raise ConfigError(f"--grid must be setting=value,value,...: --grid infonce-weight=0.05,0.1, got '{word}'")
        check_names([name])
        if name in found:
            raise ConfigError(f"--grid has {name.replace('_', '-')} twice; give all its values at once")
        found[name] = tuple(value_of(name, text, "--grid") for text in listed.split(","))
    return found


def value_of(name: str, text: str, option: str) -> Any:
    """A setting's value as it is written after an option, `--grid` for instance; ConfigError if it is not allowed."""
    field, declared = settings_of(Config)[name]
    kind = base_kind(field.type)
    by_kind = {bool: {"True": True, "False": False}.__getitem__, int: int, float: float}
    convert = declared.read or by_kind.get(kind, str)
    try:
        value = convert(text)
    except (KeyError, ValueError):
        value = text
    declared.refuse(field.type, value, f"{option} {name.replace('_', '-')}")
    return value


def _grid(grid: Mapping[str, Iterable[Any]], changes: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Checked: settings that have one value each, every value once."""
    found = {}
    for name, values in current_names(grid, Config).items():
        check_names([name])
        if name in changes:
            raise ConfigError(f"{spelled(name)} has a value and is in the grid; leave one of them out")
        if isinstance(settings_of(Config)[name][0].default, tuple):
            raise ConfigError(f"{spelled(name)} has several numbers, which a grid cannot vary; use presets instead")
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise ConfigError(f"the grid's {name} must be a list of values, got {shortened(values)}")
        given = [plain_value(value) for value in values]
        if not all(isinstance(value, bool | int | float | str) for value in given):
            raise ConfigError(f"the grid's {name} must be numbers, words or True and False, got {shortened(given)}")
        found[name] = tuple(dict.fromkeys(given))
        if not found[name]:
            raise ConfigError(f"the grid has no value for {name}")
    return found


def _ranges(seeds: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Consecutive seeds as (first, count)."""
    for _, group in itertools.groupby(enumerate(seeds), lambda pair: pair[1] - pair[0]):
        found = [seed for _, seed in group]
        yield found[0], len(found)


def read_record(out: Path) -> dict[str, Any] | None:
    """What sweep.json says, with the names of this version; None if there is none.

    Raises:
        DamagedFileError: It is not what a sweep writes.
    """
    file = out / SPEC_FILE
    if not file.exists():
        return None
    fields = Fields(file, read_json(file), _ADVICE)
    spec = _read_spec(fields)
    if fields.values.get("cpu_threads") is not None:
        fields.whole("cpu_threads", least=1, most=MOST_STEPS)
    if fields.values.get("jobs") is None:  # of an earlier version: every task with every preset
        pairs = [(task, name) for task in spec["tasks"] for name in spec["presets"]]
        jobs = [Entry(f"{plain_task(task)}/{name}", task, name, {}, 0, spec["seeds"]) for task, name in pairs]
    else:
        jobs = [_read_entry(file, entry) for entry in fields.list("jobs")]
    return {**fields.values, "spec": spec, "jobs": jobs}


def _read_spec(fields: Fields) -> dict[str, Any]:
    """The fields of the sweep itself; whether their values fit together, `SweepSpec` says."""
    try:
        spec = current_names(fields.object("spec"), Settings)  # a sweep of an earlier version has old names
    except ConfigError as error:
        raise fields.damaged(str(error)) from None
    inner = Fields(fields.path, spec, _ADVICE, "spec.")
    inner.texts("tasks")
    inner.texts("presets")
    inner.whole("seeds", least=1)
    for name, read in _SPEC_KINDS.items():
        if name in spec:
            read(inner, name)
    return spec


def _whole_or_none(fields: Fields, name: str) -> None:
    if fields.any(name) is not None:
        fields.whole(name)


_SPEC_KINDS: dict[str, Callable[[Fields, str], Any]] = {
    **dict.fromkeys(RUN_OPTIONS, _whole_or_none),
    "noise_dims": Fields.whole,
    "first_seed": Fields.whole,
    "changes": Fields.object,
    "grid": lambda fields, name: [fields.inner(name).list(inner) for inner in fields.object(name)],
    "definitions": Fields.objects,
}
"""What a sweep of an earlier version may lack, and what it must be where it is there."""


def _read_entry(file: Path, entry: Any) -> Entry:
    if not isinstance(entry, list) or len(entry) != len(Entry._fields):
        raise Fields(file, {"jobs": entry}, _ADVICE).wrong("jobs", f"lists of {', '.join(Entry._fields)}")
    fields = Fields(file, dict(zip(Entry._fields, entry, strict=True)), _ADVICE, "jobs.")
    folder = Path(fields.text("folder"))
    if folder.is_absolute() or ".." in folder.parts or not folder.parts or "\0" in str(folder):
        raise fields.wrong("folder", "a path below the sweep's folder")  # runs are written there
    for name in ("task", "preset"):
        fields.text(name)
    fields.object("values")
    fields.whole("first_seed", most=LARGEST_SEED)
    fields.whole("seeds", least=1)
    return Entry(*entry)


def read_entries(out: Path) -> list[Entry]:
    """Every job that the folder has."""
    return (read_record(out) or {"jobs": []})["jobs"]


def jobs_of_folder(out: Path) -> list[Job]:
    """Every job of a sweep's folder; RunFolderError where it is none."""
    record = read_record(out)
    if record is None:
        raise RunFolderError(f"{out} is not a sweep: it has no {SPEC_FILE}")
    known = {field.name for field in dataclasses.fields(SweepSpec)}
    given = {name: value for name, value in record["spec"].items() if name in known}
    definitions = given.get("definitions", {})
    try:
        add_presets(definitions)
        spec = SweepSpec(**{**given, "tasks": tuple(given["tasks"]), "presets": tuple(given["presets"])})
        jobs = [spec.job(entry, out) for entry in record["jobs"]]
    except (ConfigError, TaskError) as error:  # they were allowed once
        raise DamagedFileError(f"{out / SPEC_FILE} cannot be used: {error}; {_ADVICE}") from None
    return [dataclasses.replace(job, definitions=definitions) for job in jobs]


def check_folder(spec: SweepSpec, out: Path) -> dict[str, Any] | None:
    """What sweep.json says, if it is there; refuse the folder of another sweep, and one that is none."""
    record = read_record(out)
    if record is None:
        ours = {SPEC_FILE + ".part", LOCK_FILE}
        if out.exists() and (not out.is_dir() or any(path.name not in ours for path in out.iterdir())):
            raise RunFolderError(f"{out} is not empty and no sweep: it has no {SPEC_FILE}; choose another --out")
        check_can_make(out)
        return None
    was = record["spec"]
    asked = spec.to_json()
    for name, value in asked.items():
        if name not in GROWING and was.get(name) != value:
            raise RunFolderError(
                f"{out} holds another sweep: {name.replace('_', '-')} {_said(was.get(name))}, got {_said(value)}; "
                "give the same to continue it, or choose another --out"
            )
    for name, changes in asked["definitions"].items():
        before = was.get("definitions", {}).get(name, changes)
        if before != changes:
            raise RunFolderError(
                f"{out} holds another preset '{name}': {_said(before)}, got {_said(changes)}; give it another name, or "
                "choose another --out"
            )
    return record


def write_spec(spec: SweepSpec, out: Path, cpu_threads: int | None) -> None:
    """Write sweep.json, with the jobs that the folder had before; it is there whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    before = read_record(out)
    jobs = {entry.folder: entry for entry in (before or {"jobs": []})["jobs"]}
    for job in spec.jobs(out):
        folder = job.folder.relative_to(out).as_posix()
        settings = job.settings
        values = {name: getattr(settings.config, name) for name in spec.grid}
        jobs.setdefault(folder, Entry(folder, job.task, settings.preset, values, settings.first_seed, settings.seeds))
    described = spec.to_json()
    if before is not None:
        described["definitions"] = {**before["spec"].get("definitions", {}), **described["definitions"]}
    record = {"spec": described, "cpu_threads": cpu_threads, "jobs": [list(entry) for entry in jobs.values()]}
    write_text(out / SPEC_FILE, json.dumps(record, indent=1) + "\n")


def _tasks(names: tuple[str, ...]) -> tuple[str, ...]:
    found: list[str] = []
    for name in names:
        task = canonical(name)
        if task in known_tasks() or "/" in name or ":" in name:
            found.append(task)
            continue
        try:
            found += [task.name for task in suite_tasks(name)]
        except TaskError as error:
            raise TaskError(f"{error}; or a task: dr-q tasks lists them") from None
    return tuple(dict.fromkeys(found))


def plain_task(task: str) -> str:
    """A task's name as that of a folder."""
    return folder_name(task.replace("/", "-").replace(":", "-"))


def _said(value: Any) -> str:
    if isinstance(value, list):
        shown = ", ".join(map(str, value[:4]))
        return f"{shown} and {len(value) - 4} more" if len(value) > 4 else shown
    if isinstance(value, dict):
        return ", ".join(f"{name} {x}" for name, x in value.items()) or "none"
    return "the default" if value is None else str(value)
