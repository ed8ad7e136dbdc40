"""What Python users call to train or resume: `train`."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import gymnasium

from dr_q.config import Config, check_names, config_from_json, current_names, plain_value, settings_of
from dr_q.envs import canonical
from dr_q.kit import ConfigError, folder_name, spelled
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
    """Train on a task, or resume a run.

    All seeds train together in this process. The run's folder has `run.json`, `evals.csv`, `metrics.csv`, checkpoints
    and policies. In the main thread, Ctrl-C does not raise: the run writes a checkpoint and ends with the status
    "interrupted". A second Ctrl-C raises `KeyboardInterrupt`, and no checkpoint is written.

    Args:
        task: A task's name (`dr-q tasks` lists the paper's tasks), or a callable that returns a new Gymnasium
            environment at each call. With `resume` it is needed only for a run that was started from a callable.
        preset: One of `dr_q.PRESETS`, or several joined by + (`"quick+no-infonce"`). Default: `"dr.q"`.
            `dr_q.load_presets` adds the presets of a file.
        seeds: Number of seeds. Default: 1.
        seed: The first seed. Default: 0.
        steps: Agent steps of each seed (decisions, not simulator frames). Default: the task's budget, or 500,000 for a
            task without one.
        out: The run's folder. It must be new or empty. Default: a new folder under `runs/`.
        resume: The folder of a run to resume. Its settings are used. `steps` may be larger, and `stop_at_return` and
            `patience` may differ. Give the same `callbacks` again.
        on_evaluation: A function that is called with the evaluations of all seeds after each evaluation. It may return
            a `dr_q.Stop`.
        callbacks: A `dr_q.Callback`, or several, which are called in this order.
        quiet: Whether to print nothing.
        new_environment: With `resume`: continue in another environment, `task`, whose spaces have the same sizes. The
            open episodes are closed as truncated, and `run.json` records the change.
        may_exit: Whether a second Ctrl-C may end the process while the main thread does not react to it. Without it,
            the second Ctrl-C waits for the updates under way.
        started: Start of the time that `max_minutes` limits, as `time.monotonic()` gives it. Default: this call.
        **settings: Any other setting by name: of the run (`eval_every`, `num_envs`, `keep_checkpoints`), of its
            execution (`max_minutes`, `device_memory`), and of `dr_q.Config` (`batch_size`, `discount`).

    Returns:
        How the run ended, its folder and its evaluations.

    Raises:
        ConfigError: A setting is unknown or has a value that is not allowed, or does not fit the run to resume.
        TaskError: The task is unknown, its environment cannot be made, or DR.Q cannot train on it.
        RunFolderError: `out` is not empty, `resume` is not a run or cannot be resumed, or another process uses it.
        DamagedFileError: A file of the run to resume is damaged.
        MissingPackageError: A setting needs a package that is not installed, for instance `wandb=True`.
        EnvError: An environment failed during the run.
        WorkerError: A simulator process died or does not answer.
        TrainingError: The run cannot continue, for instance because a loss is NaN.

    Example:
        ```python
        result = dr_q.train("dmc/walker-walk", seeds=5, eval_every=10_000, out="runs/walker")
        result = dr_q.train(resume="runs/walker", steps=600_000)


        def make():
            return gymnasium.make("Pendulum-v1")


        dr_q.train(make, preset="quick", steps=20_000, batch_size=64, out="runs/pendulum")
        ```
    """
    started = time.monotonic() if started is None else started
    settings = current_names(settings, Settings, Execution, Config)
    check_names(
        settings, {*_RUN_FIELDS, *settings_of(Execution), "seed", "seeds", "steps", "preset", "out", *_OF_PYTHON}
    )
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
    for name, path in (("out", out), ("resume", resume)):
        if path is not None and not isinstance(path, str | Path):
            raise ConfigError(f"{spelled(name)} must be the path of a folder, got {path!r}")
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


_OF_PYTHON = ("callbacks", "on_evaluation", "resume", "quiet", "new_environment")
"""Arguments of `train` that are no settings, for hints."""
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
    base = Path("runs") / f"{folder_name(f'{name}-{settings.preset}')}-seeds{settings.first_seed}-{last}"
    folder, number = base, 2
    while folder.exists():
        folder, number = base.with_name(f"{base.name}-{number}"), number + 1
    return folder
