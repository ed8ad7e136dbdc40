"""What Python users call to train or resume: `train`."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import gymnasium

from dr_q.config import Config, check_names, config_from_json, current_names, plain_value, settings_of
from dr_q.envs import canonical
from dr_q.kit import ConfigError, spelled
from dr_q.run_folder import Evaluation, read_run_json
from dr_q.settings import RUN_SETTINGS, STOP_RULES, Execution, Settings, callable_name, make_settings
from dr_q.training.callbacks import Callback, given_callbacks
from dr_q.training.loop import Options, TrainResult
from dr_q.training.loop import train as run_loop


def train(
    task: str | Callable[[], gymnasium.Env] | None = None,
    *,
    preset: str | None = None,
    seeds: int | None = None,
    seed: int | None = None,
    steps: int | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    on_evaluation: Callable[[list[Evaluation]], Any] | None = None,
    callbacks: Sequence[Callback] | Callback = (),
    quiet: bool = False,
    new_environment: bool = False,
    may_exit: bool = False,
    started: float | None = None,
    **settings: Any,
) -> TrainResult:
    """Train on a task by name, or on the environment that a callable makes.

    Args:
        task: A task's name (`dr-q tasks` lists the paper's), or a callable that makes a new environment.
        preset: One of `dr_q.PRESETS`, or several joined by + (`dr_q.load_presets` adds those of a file); "dr.q" by
            default.
        seeds: Number of seeds, trained together; 1 by default.
        seed: The first seed; 0 by default.
        steps: Agent steps of each seed; by default the task's budget (the paper's, or its family's), else 500,000.
        out: The run's folder, new or empty; by default a new one under `runs/`.
        resume: The folder of a run to resume. Everything else comes from that run; `steps` may grow, `stop_at_return`
            and `patience` may change. Give the same `callbacks` again.
        on_evaluation: Called with the evaluations of all seeds, after each evaluation; `callbacks` can do more.
        callbacks: Objects that see the run while it trains and may stop it, called in this order: see `dr_q.Callback`.
        quiet: Print nothing.
        new_environment: With `resume`, continue in another environment, `task`, whose spaces have the same sizes. The
            open episodes are closed as truncated, and run.json says what was changed at which step.
        may_exit: Whether a second Ctrl-C ends the process, also while Python cannot react to it; without it, the
            second one waits for the updates under way.
        started: When the time that `max_minutes` limits began, by `time.monotonic()`; by default with this call.
        settings: Any other setting of `docs/settings.md` by name: of the run (`eval_every`, `keep_checkpoints`), of
            its execution (`max_minutes`, `device_memory`) and of `dr_q.Config` (`batch_size`).

    Returns:
        How the run ended, and its folder.

    Raises:
        ConfigError: For a setting that is unknown or has a value that is not allowed.
        TaskError: For a task that cannot be made.
        RunFolderError: For an `out` that is not empty, a `resume` that is no run, or a folder in use.
        DamagedFileError: For a checkpoint that cannot be read.
        MissingPackageError: For `wandb=True` without wandb.
        EnvError, WorkerError, TrainingError: For a run that failed: its environment, a simulator's process, learning.

    Example:
        >>> dr_q.train("dmc/walker-walk", seeds=5, eval_every=10_000)  # doctest: +SKIP
    """
    started = time.monotonic() if started is None else started
    settings = current_names(settings, Settings, Execution, Config)
    check_names(settings, {*_RUN_FIELDS, *settings_of(Execution), "seed", "seeds", "steps", "preset", "out"})
    if on_evaluation is not None and not callable(on_evaluation):
        raise ConfigError(f"on_evaluation must be a function of a list of evaluations, got {on_evaluation!r}")
    execution = _of(settings, settings_of(Execution))
    options = Options(
        quiet=quiet,
        on_evaluation=on_evaluation,
        callbacks=given_callbacks(callbacks),
        new_environment=new_environment,
        may_exit=may_exit,
        started=started,
        **execution,
    )
    run, changes = _of(settings, _RUN_FIELDS), _of(settings, settings_of(Config))
    given = {"preset": preset, "seeds": seeds, "first_seed": seed, **run}
    given = {name: value for name, value in given.items() if value is not None}
    if resume is not None:
        rules = {name: given.pop(name) for name in STOP_RULES if name in given}
        refuse_changes(Path(resume), task, {**given, **changes}, out, new_environment=new_environment)
        chosen = resume_settings(Path(resume), task, steps, new_environment=new_environment)
        return run_loop(dataclasses.replace(chosen, **rules), Path(resume), options, resume=True)
    if new_environment:
        raise ConfigError(
            f"{spelled('new_environment')} is for {spelled('resume')}; a new run takes the task that you name"
        )
    if task is None:
        raise ConfigError(
            "no task given; name one (dr-q tasks lists them) or pass a callable that makes an environment"
        )
    chosen = make_settings(task, preset_name=given.pop("preset", "dr.q"), changes=changes, steps=steps, **given)
    return run_loop(chosen, Path(out) if out is not None else default_folder(chosen), options)


_RUN_FIELDS = [name for name in RUN_SETTINGS if name not in ("first_seed", "seeds", "steps")]


def _of(given: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in names}


def resume_settings(
    folder: Path,
    task: str | Callable[[], gymnasium.Env] | None,
    steps: int | None,
    *,
    new_environment: bool = False,
) -> Settings:
    """A run's own settings, with more steps if they are given, and in another environment if that is asked for."""
    record = read_run_json(folder, "status", "agent_steps", "seeds", "versions")["settings"]
    named = canonical(task) if isinstance(task, str) and new_environment else None
    chosen = Settings.from_json(record, task if callable(task) else named)
    if steps is not None and steps < chosen.steps:
        raise ConfigError(
            f"{spelled('steps')} may only grow on resume: the run in {folder} has {chosen.steps}, got {steps}"
        )
    return Settings(**{**vars(chosen), "steps": steps or chosen.steps})


def refuse_changes(
    folder: Path,
    task: str | Callable[[], gymnasium.Env] | None,
    asked: dict[str, Any],
    out: str | Path | None = None,
    *,
    new_environment: bool = False,
) -> None:
    """A run is resumed with its own settings: refuse others.

    Args:
        folder: The run.
        task: A task that was asked for, if any.
        asked: Settings that were asked for, by their fields' names; None where one was not.
        out: A folder that was asked for, if any.
        new_environment: Whether it may be another task.

    Raises:
        ConfigError: For the first that differs from the run's.
    """
    was = read_run_json(folder)["settings"]
    if callable(task) and callable_name(was["task"]) is None and not new_environment:
        raise ConfigError(
            f"the run in {folder} is of {was['task']}, which needs no callable: leave it out, or give "
            f"{spelled('new_environment')} to continue in another environment"
        )
    own = {name: value for name, value in was.items() if name != "config"}
    had = {**dataclasses.asdict(config_from_json(was.get("config"))), **current_names(own, Settings)}
    named = {"task": canonical(task)} if isinstance(task, str) and not new_environment else {}
    for name, value in {**named, **asked}.items():
        before = had.get(name)
        if value is not None and plain_value(value) != before:
            other = f", or give {spelled('new_environment')} to continue in another environment"
            more = other if name == "task" else ", or start a new run"
            raise ConfigError(
                f"{_called(name)} {value} does not fit the run in {folder}, which has "
                f"{'none' if before is None else before}; a run is resumed with its own settings: leave it out{more}"
            )
    if out is not None and Path(out) != folder:
        both = f"{spelled('out')} {out} and {spelled('resume')} {folder}"
        raise ConfigError(f"{both} name two folders; give {spelled('resume')} alone")


def _called(name: str) -> str:
    declared = settings_of(Settings).get(name)
    if name == "task" or declared is None:
        return name if name == "task" else spelled(name)
    return spelled(declared[1].called or name, declared[1].in_python)


def default_folder(settings: Settings) -> Path:
    """runs/TASK-PRESET-seedsFIRST-LAST, numbered if taken."""
    name = settings.task_name.replace("/", "-").replace(":", "-").replace("<", "").replace(">", "")
    last = settings.first_seed + settings.seeds - 1
    base = Path("runs") / f"{name}-{settings.preset}-seeds{settings.first_seed}-{last}"
    folder, number = base, 2
    while folder.exists():
        folder, number = base.with_name(f"{base.name}-{number}"), number + 1
    return folder
