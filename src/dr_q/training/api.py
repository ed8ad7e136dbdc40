"""What Python users call: `train` and `load`."""

import numbers
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium

from dr_q.config import check_names
from dr_q.envs import canonical
from dr_q.kit import ConfigError
from dr_q.run_folder import Evaluation, read_run_json
from dr_q.training.loop import Options, TrainResult
from dr_q.training.loop import train as run_loop
from dr_q.training.settings import Settings, make_settings


def train(
    task: str | Callable[[], gymnasium.Env] | None = None,
    *,
    preset: str = "dr.q",
    seeds: int = 1,
    seed: int = 0,
    steps: int | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    on_evaluation: Callable[[list[Evaluation]], None] | None = None,
    stop_after: float | None = None,
    quiet: bool = False,
    wandb: bool = False,
    in_process: bool | None = None,
    background_evaluation: bool | None = None,
    device_memory: float | None = None,
    may_exit: bool = False,
    **settings: Any,
) -> TrainResult:
    """Train on a task by name, or on the environment that a callable makes.

    `settings` are any of eval_every, eval_episodes, checkpoint_every, keep, noise_dims, and any field of `dr_q.Config`.
    With `resume=FOLDER` everything comes from that run; `steps` may be more than it had. With `may_exit` a second
    Ctrl-C ends the process, as the command line's does, also where Python cannot notice it; else it waits for updates.
    """
    for name, value in (("stop_after", stop_after), ("device_memory", device_memory)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, numbers.Real)):
            raise ConfigError(f"{name} must be a number, got {value!r}")
    if on_evaluation is not None and not callable(on_evaluation):
        raise ConfigError(f"on_evaluation must be a function of a list of evaluations, got {on_evaluation!r}")
    if stop_after is not None and not stop_after > 0:
        raise ConfigError(f"stop_after must be more than 0 minutes, got {stop_after:g}")
    options = Options(
        stop_after=stop_after,
        in_process=in_process,
        background_evaluation=background_evaluation,
        device_memory=device_memory,
        wandb=wandb,
        quiet=quiet,
        on_evaluation=on_evaluation,
        may_exit=may_exit,
    )
    run_fields = {"eval_every", "eval_episodes", "checkpoint_every", "keep", "noise_dims"}
    check_names(settings, run_fields | {"seed", "seeds", "steps", "preset", "out"})
    if resume is not None:
        asked = {"preset": (preset, "dr.q"), "seeds": (seeds, 1), "first_seed": (seed, 0)}
        given = {name: value for name, (value, default) in asked.items() if value != default}
        refuse_changes(Path(resume), task, {**given, **settings}, out)
        return run_loop(resume_settings(Path(resume), task, steps), Path(resume), options, resume=True)
    if task is None:
        raise ConfigError(
            "no task given; name one (dr-q tasks lists them) or pass a callable that makes an environment"
        )
    chosen = make_settings(
        task,
        preset_name=preset,
        changes={name: value for name, value in settings.items() if name not in run_fields},
        seeds=seeds,
        first_seed=seed,
        steps=steps,
        **{name: value for name, value in settings.items() if name in run_fields},
    )
    return run_loop(chosen, Path(out) if out is not None else default_folder(chosen), options)


def resume_settings(folder: Path, task: str | Callable[[], gymnasium.Env] | None, steps: int | None) -> Settings:
    """A run's own settings, with more steps if they are given."""
    record = read_run_json(folder, "status", "agent_steps", "seeds", "versions")["settings"]
    chosen = Settings.from_json(record, task if callable(task) else None)
    if steps is not None and steps < chosen.steps:
        raise ConfigError(f"--steps may only grow on resume: the run in {folder} has {chosen.steps}, got {steps}")
    return Settings(**{**vars(chosen), "steps": steps or chosen.steps})


def refuse_changes(
    folder: Path,
    task: str | Callable[[], gymnasium.Env] | None,
    asked: dict[str, Any],
    out: str | Path | None = None,
) -> None:
    """A run is resumed as it was: refuse what it does not have."""
    was = read_run_json(folder)["settings"]
    if callable(task) and not was["task"].startswith("callable:"):
        raise ConfigError(f"the run in {folder} is of {was['task']}, which needs no callable: leave it out")
    had = {**was["config"], **{name: value for name, value in was.items() if name != "config"}}
    named = {"task": canonical(task)} if isinstance(task, str) else {}
    for name, value in {**named, **asked}.items():
        before = had.get(name)
        before = tuple(before) if isinstance(before, list) else before
        if value is not None and value != before:
            raise ConfigError(
                f"{name.replace('_', '-')} {value} does not fit the run in {folder}, which has {before}; "
                "a run is resumed as it was: leave it out, or start a new run"
            )
    if out is not None and Path(out) != folder:
        raise ConfigError(f"--out {out} and --resume {folder} name two folders; leave --out out")


def default_folder(settings: Settings) -> Path:
    """runs/TASK-PRESET-seedsFIRST-LAST, numbered if taken."""
    name = settings.task_name.replace("/", "-").replace(":", "-").replace("<", "").replace(">", "")
    last = settings.first_seed + settings.seeds - 1
    base = Path("runs") / f"{name}-{settings.preset}-seeds{settings.first_seed}-{last}"
    folder, number = base, 2
    while folder.exists():
        folder, number = base.with_name(f"{base.name}-{number}"), number + 1
    return folder
