"""What Python users call: `train` and `load`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium

from dr_q.agent import ConfigError, check_names
from dr_q.report.results import read_run_json
from dr_q.run.checkpoint import Checkpoints
from dr_q.run.evaluate import Evaluation
from dr_q.run.loop import Options, Outcome
from dr_q.run.loop import train as run_loop
from dr_q.run.settings import Settings, check_new_folder, make_settings


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
    **settings: Any,
) -> Outcome:
    """Train on a task by name, or on the environment that a callable makes.

    `settings` are any of eval_every, eval_episodes, checkpoint_every, keep, noise_dims, and any field of `dr_q.Config`.
    With `resume=FOLDER` everything comes from that run; `steps` may be more than it had.
    """
    if stop_after is not None and stop_after <= 0:
        raise ConfigError(f"stop_after must be more than 0 minutes, got {stop_after:g}")
    options = Options(
        stop_after=stop_after,
        in_process=in_process,
        background_evaluation=background_evaluation,
        device_memory=device_memory,
        wandb=wandb,
        quiet=quiet,
        on_evaluation=on_evaluation,
    )
    if resume is not None:
        return run_loop(resume_settings(Path(resume), task, steps), Path(resume), options, resume=True)
    if task is None:
        raise ConfigError(
            "no task given; name one (dr-q tasks lists them) or pass a callable that makes an environment"
        )
    run_fields = {"eval_every", "eval_episodes", "checkpoint_every", "keep", "noise_dims"}
    check_names(settings, run_fields)
    chosen = make_settings(
        task,
        preset_name=preset,
        changes={name: value for name, value in settings.items() if name not in run_fields},
        seeds=seeds,
        first_seed=seed,
        steps=steps,
        **{name: value for name, value in settings.items() if name in run_fields},
    )
    folder = Path(out) if out is not None else default_folder(chosen)
    check_new_folder(folder)
    return run_loop(chosen, folder, options)


def resume_settings(folder: Path, task: str | Callable[[], gymnasium.Env] | None, steps: int | None) -> Settings:
    """A run's own settings, with more steps if they are given."""
    try:
        info = read_run_json(folder, "status", "agent_steps", "seeds", "versions")
    except ValueError as error:
        raise ConfigError(str(error)) from None
    # One that was killed or failed before its first checkpoint may begin again; any other would lose its results.
    failed_early = info["agent_steps"] <= info["settings"]["checkpoint_every"] and info["status"] == "failed"
    if info["agent_steps"] > 0 and not failed_early and not Checkpoints(folder, info["seeds"], 1).steps():
        raise ConfigError(
            f"{folder} is {info['status']} at step {info['agent_steps']:,} and has no checkpoints: it cannot "
            "go on; start a new run with another --out"
        )
    record = info["settings"]
    chosen = Settings.from_json(record, task if callable(task) else None)
    if steps is not None and steps < chosen.steps:
        raise ConfigError(f"--steps may only grow on resume: the run in {folder} has {chosen.steps}, got {steps}")
    return Settings(**{**vars(chosen), "steps": steps or chosen.steps})


def default_folder(settings: Settings) -> Path:
    """runs/TASK-PRESET-seedsFIRST-LAST, numbered if taken."""
    name = settings.task_name.replace("/", "-").replace(":", "-").replace("<", "").replace(">", "")
    last = settings.first_seed + settings.seeds - 1
    base = Path("runs") / f"{name}-{settings.preset}-seeds{settings.first_seed}-{last}"
    folder, number = base, 2
    while folder.exists():
        folder, number = base.with_name(f"{base.name}-{number}"), number + 1
    return folder
