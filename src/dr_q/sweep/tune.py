"""A search over settings with Optuna: each trial is a job for every task, and the folder keeps all of it.

OUT/study.log                 Optuna's journal: every trial, its settings and its values
OUT/trials.csv                the same as a table
OUT/trial-0007/<task>/        a run's folder
"""

import contextlib
import csv
import dataclasses
import json
import math
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dr_q.config import Config, check_names, check_settings, current_names, setting, settings_of
from dr_q.kit import (
    ConfigError,
    DamagedFileError,
    MissingPackageError,
    RunFolderError,
    check_can_make,
    full_path,
    replace_file,
    spelled,
    write_text,
)
from dr_q.run_folder import Fields, evaluation_rows, read_json
from dr_q.sweep.driver import SweepInterrupted, only_driver, share_of
from dr_q.sweep.job import Ended
from dr_q.sweep.processes import ProcessJobs, this_machine
from dr_q.sweep.progress import progress_of
from dr_q.sweep.spec import Job, SweepOptions, SweepSpec, Variant, check_tasks, plain_task, value_of
from dr_q.training.signals import Signals

STUDY_FILE, TRIALS_FILE, TUNE_FILE = "study.log", "trials.csv", "tune.json"
_LOOK_EVERY = 1.0
_SEARCH = "Search"


class Range(NamedTuple):
    """What is tried of a setting: the numbers from low to high, or the choices."""

    low: float | int = 0
    high: float | int = 0
    log: bool = False
    choices: tuple[Any, ...] = ()

    def suggest(self, trial: Any, name: str) -> Any:
        """The value that Optuna suggests next."""
        if self.choices:
            return trial.suggest_categorical(name, self.choices)
        if isinstance(self.low, int):
            return trial.suggest_int(name, self.low, self.high, log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


@dataclasses.dataclass(frozen=True)
class TuneOptions:
    """How to search."""

    trials: int = setting(30, "trials in all, earlier ones included", group=_SEARCH, least=1, most=1_000_000)
    prune: bool = setting(True, "whether trials that fall behind at an evaluation are stopped", group=_SEARCH)
    startup_trials: int = setting(
        5,
        "random trials at the beginning, none of which is stopped",
        group=_SEARCH,
        least=1,
        most=1_000_000,
    )
    search_seed: int = setting(0, "seed of the search itself", group=_SEARCH, least=0, most=2**32 - 1)

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        check_settings(self)


class Best(NamedTuple):
    """What a search found."""

    number: int
    value: float
    """Mean return over seeds and tasks at the last evaluation."""
    settings: dict[str, Any]
    trials: Path


def parse_search(words: Iterable[str]) -> dict[str, Range]:
    """Ranges from `setting=low..high`, `setting=low..high:log` and `setting=value,value` words.

    Raises:
        ConfigError: For a word that is none, an unknown setting, or a value that is not allowed.
    """
    found: dict[str, Range] = {}
    for word in words:
        name, equals, listed = word.partition("=")
        name = next(iter(current_names({name.replace("-", "_"): 0}, Config)))
        if not equals or not listed:
            raise ConfigError(
                f"--search must be setting=low..high, setting=low..high:log or setting=value,value, got '{word}'"
            )
        check_names([name])
        if name in found:
            raise ConfigError(f"--search has {name.replace('_', '-')} twice")
        if isinstance(settings_of(Config)[name][0].default, tuple):
            raise ConfigError(f"{spelled(name)} has several numbers, which a search cannot vary")
        found[name] = _range(name, listed)
    if not found:
        raise ConfigError("nothing to search; give --search infonce-weight=0.01..1:log, for example")
    return found


def _range(name: str, listed: str) -> Range:
    low, dots, rest = listed.partition("..")
    if not dots:
        return Range(choices=tuple(dict.fromkeys(value_of(name, text, "--search") for text in listed.split(","))))
    high, colon, scale = rest.partition(":")
    if colon and scale != "log":
        raise ConfigError(f"--search {name.replace('_', '-')}: the scale after ':' must be log, got '{scale}'")
    first, last = (value_of(name, text, "--search") for text in (low, high))
    if isinstance(first, bool) or not isinstance(first, int | float):
        raise ConfigError(f"--search {name.replace('_', '-')} has no numbers; list its values: value,value")
    if not first < last or (colon and first <= 0):
        needs = "0 < low < high" if colon else "low < high"
        raise ConfigError(f"--search {name.replace('_', '-')} needs {needs}, got {low}..{high}")
    return Range(first, last, bool(colon))


def run_tune(
    spec: SweepSpec,
    search: dict[str, Range],
    out: Path,
    options: SweepOptions,
    tuning: TuneOptions,
    say: Callable[[str], None] = print,
    execution: dict[str, Any] | None = None,
) -> Best:
    """Search until there are as many trials as asked for. Started again after anything, it continues.

    Args:
        spec: Tasks, one preset, seeds and schedule; without a grid.
        search: What is tried of each setting.
        out: The search's folder.
        options: How jobs share this machine; they run as processes, without Ray.
        tuning: How to search.
        say: Takes lines about the progress.
        execution: Fields of `dr_q.settings.Execution` for every run.

    Raises:
        SweepInterrupted: After a signal, or `max_minutes`.
        ConfigError: If every trial failed.
    """
    optuna = _need_optuna()
    if len(spec.presets) != 1 or spec.grid:
        raise ConfigError("a search starts from one preset and has no grid")
    out = full_path(out)
    check_tasks(spec)
    _check_out(spec, search, out)
    share = share_of([this_machine()], len(spec.tasks), spec.seeds, options, None)
    with only_driver(out), Signals() as signals:
        _write_out(spec, search, out)
        study = _open_study(optuna, out, tuning)
        jobs = ProcessJobs(share, say)
        tuner = _Tuner(study, spec, search, out, tuning, jobs, say, execution or {})
        try:
            stopped = tuner.go(signals, options.max_minutes)
        finally:
            jobs.close()
            _write_trials(study, search, out)
    if stopped is not None:
        raise SweepInterrupted(stopped, out)
    complete = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    if not complete:
        raise ConfigError(f"no trial was finished; the logs are in {out}")
    best = max(complete, key=lambda trial: trial.value)
    return Best(best.number, best.value, best.params, out / TRIALS_FILE)


class _Running:
    """A trial whose runs are under way."""

    def __init__(self, trial: Any, jobs: list[Job]):
        self.trial, self.jobs = trial, jobs
        self.attempts: dict[str, Job] = {}
        self.reported = -1
        """Agent steps of the last value that was reported."""
        self.pruned = False


class _Tuner:
    """One call of `run_tune`."""

    def __init__(
        self,
        study: Any,
        spec: SweepSpec,
        search: dict[str, Range],
        out: Path,
        tuning: TuneOptions,
        jobs: ProcessJobs,
        say: Callable[[str], None],
        execution: dict[str, Any],
    ):
        self._study, self._spec, self._search, self._out = study, spec, search, out
        self._tuning, self._jobs, self._say, self._execution = tuning, jobs, say, execution
        self._running: dict[int, _Running] = {}
        self._stopping = False

    def go(self, signals: Signals, max_minutes: float | None) -> int | None:
        """Until all trials are made; the signal that stopped it, 0 if the time was up, None if nothing did."""
        start = time.monotonic()
        for number in self._begun():
            self._begin(number)
        while True:
            out_of_time = max_minutes is not None and time.monotonic() - start > 60 * max_minutes
            if (signals.received or out_of_time) and not self._stopping:
                self._stopping = True
                self._say("stopping: running trials write checkpoints")
                self._jobs.stop()
            while not self._stopping and self._may_begin():
                self._begin(None)
            if not self._running:
                return (signals.received or 0) if self._stopping else None
            for attempt, ended in self._jobs.ended(_LOOK_EVERY):
                self._take(attempt, ended)
            for running in list(self._running.values()):
                self._look(running)

    def _may_begin(self) -> bool:
        made = len(self._study.get_trials(deepcopy=False))
        at_once = max(1, self._jobs.capacity // len(self._spec.tasks))
        return made < self._tuning.trials and len(self._running) < at_once

    def _begun(self) -> list[int]:
        """Trials of a search that was stopped."""
        import optuna

        states = (optuna.trial.TrialState.RUNNING,)
        return [trial.number for trial in self._study.get_trials(deepcopy=False, states=states)]

    def _begin(self, number: int | None) -> None:
        """Start a new trial, or continue one."""
        import optuna

        if number is None:
            trial = self._study.ask()
            again = ""
        else:
            frozen = self._study.get_trials(deepcopy=False)[number]
            trial = optuna.trial.Trial(self._study, frozen._trial_id)  # Optuna has no public way
            again = "again: "
        values = {name: of.suggest(trial, name) for name, of in self._search.items()}
        running = _Running(trial, self._jobs_of(trial.number, values))
        running.reported = max(self._study.get_trials(deepcopy=False)[trial.number].intermediate_values, default=-1)
        self._running[trial.number] = running
        shown = ", ".join(f"{name} {_shown(value)}" for name, value in values.items())
        self._say(f"trial {trial.number}: {again}{shown}")
        for job in running.jobs:
            if not progress_of(job).finished:
                attempt = uuid.uuid4().hex
                running.attempts[attempt] = job
                self._jobs.submit(job, attempt)

    def _jobs_of(self, number: int, values: dict[str, Any]) -> list[Job]:
        variant = Variant(self._spec.presets[0], values)
        folder = self._out / f"trial-{number:04d}"
        name, given = f"trial {number}", (self._spec.definitions, self._execution)
        return [
            Job(self._spec.settings(task, variant), folder / plain_task(task), name, *given)
            for task in self._spec.tasks
        ]

    def _take(self, attempt: str, ended: Ended) -> None:
        import optuna

        for number, running in list(self._running.items()):
            if running.attempts.pop(attempt, None) is None:
                continue
            if ended.status in ("failed", "lost") and not running.pruned and not self._stopping:
                self._say(f"trial {number}: {ended.status}: {ended.why}")
                for other in running.attempts:
                    self._jobs.cancel(other)
                self._study.tell(number, state=optuna.trial.TrialState.FAIL)
                del self._running[number]
            elif not running.attempts and (running.pruned or self._stopping):
                del self._running[number]

    def _look(self, running: _Running) -> None:
        """Report the evaluations that all tasks have; stop the trial if it falls behind, end it after the last."""
        import optuna

        if running.pruned or running.trial.number not in self._running:
            return
        number, last = running.trial.number, running.jobs[0].settings.last_step
        for step, value in _values(running.jobs):
            if step > running.reported:
                running.reported = step
                running.trial.report(value, step)
        if not running.attempts and not self._stopping:
            value = dict(_values(running.jobs)).get(last)
            if value is None:
                self._study.tell(number, state=optuna.trial.TrialState.FAIL)
                self._say(f"trial {number}: failed: it has no evaluation at step {last:,}")
            else:
                self._study.tell(number, value)
                self._say(f"trial {number}: return {value:.1f}")
            del self._running[number]
        elif 0 < running.reported < last and self._tuning.prune and running.trial.should_prune():
            running.pruned = True
            for attempt in running.attempts:
                self._jobs.cancel(attempt)
            self._study.tell(number, state=optuna.trial.TrialState.PRUNED)
            self._say(f"trial {number}: stopped at step {running.reported:,}, behind the others")


def _values(jobs: list[Job]) -> Iterator[tuple[int, float]]:
    """Mean return over seeds and tasks at every step that all of them have been evaluated at."""
    by_step: dict[int, list[float]] = {}
    needed = sum(job.settings.seeds for job in jobs)
    for job in jobs:
        with contextlib.suppress(OSError):
            for row in evaluation_rows(job.folder):
                by_step.setdefault(int(row["agent_steps"]), []).append(float(row["return_mean"]))
    for step, values in sorted(by_step.items()):
        if len(values) == needed:
            yield step, math.fsum(values) / needed


def _need_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingPackageError("a search needs optuna, which is not installed: pip install 'dr-q[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _open_study(optuna: Any, out: Path, tuning: TuneOptions) -> Any:
    """The study in the folder; what it draws next follows from the seed and the trials that it has."""
    backend = optuna.storages.journal.JournalFileBackend(str(out / STUDY_FILE))
    try:
        storage = optuna.storages.JournalStorage(backend)
        study = optuna.create_study(study_name="dr-q", storage=storage, direction="maximize", load_if_exists=True)
        made = len(study.get_trials(deepcopy=False))
    except OSError:
        raise
    except Exception as error:  # Optuna has many ways to fail on a journal that is damaged
        raise DamagedFileError(
            f"{out / STUDY_FILE} cannot be read as Optuna's journal ({type(error).__name__}: {error}); choose another "
            f"{spelled('out')}, or take it from a backup"
        ) from None
    study.sampler = optuna.samplers.TPESampler(
        seed=(tuning.search_seed + made) % 2**32, n_startup_trials=tuning.startup_trials
    )
    study.pruner = optuna.pruners.MedianPruner(n_startup_trials=tuning.startup_trials)
    return study


def _described(spec: SweepSpec, search: dict[str, Range]) -> dict[str, Any]:
    listed = {name: list(of) for name, of in search.items()}
    return json.loads(json.dumps({"spec": spec.to_json(), "search": listed}))


def _check_out(spec: SweepSpec, search: dict[str, Range], out: Path) -> None:
    """Refuse the folder of another search, and one that is none."""
    file = out / TUNE_FILE
    if file.exists():
        fields = Fields(file, read_json(file), f"choose another {spelled('out')}, or take it from a backup")
        if {"spec": fields.object("spec"), "search": fields.object("search")} != _described(spec, search):
            raise RunFolderError(
                f"{out} holds a search with other tasks, settings or ranges; give the same to continue it, or choose "
                f"another {spelled('out')}"
            )
    elif out.is_dir() and any(path.name != "sweep.lock" for path in out.iterdir()):
        raise RunFolderError(
            f"{out} is not empty and no search: it has no {TUNE_FILE}; choose another {spelled('out')}"
        )
    check_can_make(out)


def _write_out(spec: SweepSpec, search: dict[str, Range], out: Path) -> None:
    write_text(out / TUNE_FILE, json.dumps(_described(spec, search), indent=1) + "\n")


def _write_trials(study: Any, search: dict[str, Range], out: Path) -> None:
    """trials.csv, a row for each trial."""
    with replace_file(out / TRIALS_FILE) as part, part.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["trial", "state", "return", "agent_steps", *search])
        for trial in study.get_trials(deepcopy=False):
            reached = max(trial.intermediate_values, default=0)
            value = trial.value if trial.value is not None else trial.intermediate_values.get(reached, "")
            settings = [trial.params.get(name, "") for name in search]
            writer.writerow([trial.number, trial.state.name.lower(), value, reached, *settings])


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
