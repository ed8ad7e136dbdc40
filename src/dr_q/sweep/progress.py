"""How far a job is, from its run's folder alone: nothing else keeps it."""

from typing import NamedTuple

from dr_q.kit import DamagedFileError
from dr_q.report.statistics import sample
from dr_q.run_folder import (
    checkpoint_steps,
    has_learnt,
    is_run,
    last_evaluations,
    last_metrics,
    read_run_json,
    seed_steps_per_s,
)
from dr_q.settings import is_complete
from dr_q.sweep.spec import Job


class Progress(NamedTuple):
    """What a run's folder says."""

    status: str
    """new, damaged, or run.json's: running, finished, stopped, interrupted, failed."""
    agent_steps: int
    """Of each seed, as far as is written down."""
    score: float | None
    """Mean over seeds of the last evaluation."""
    seed_steps_per_s: float | None
    """Over the last steps that were logged, evaluations and checkpoints included."""
    evaluated_at: int = 0
    """Agent steps of the last evaluation."""
    stopped_by: str = ""
    """The setting that stopped it, if one did."""

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do: its steps are done, or its own stop rule ended it."""
        return is_complete(self._asdict())


def progress_of(job: Job) -> Progress:
    """Read it."""
    if not is_run(job.folder):
        return Progress("new", 0, None, None)
    try:
        info = read_run_json(job.folder, "status", "agent_steps", "seeds")
        evaluations, metrics = last_evaluations(job.folder), last_metrics(job.folder)
    except DamagedFileError:  # the job itself will say so; the others continue
        return Progress("damaged", 0, None, None)
    steps = [info["agent_steps"]]
    steps += [int(rows[-1]["agent_steps"]) for rows in (evaluations, metrics) if rows]
    scores = [float(row["return_mean"]) for row in evaluations]
    return Progress(
        info["status"],
        info["agent_steps"] if info["status"] == "finished" else max(steps),
        sample(scores).mean if scores else None,
        _rate(metrics[-1], len(info["seeds"])) if metrics else None,
        int(evaluations[-1]["agent_steps"]) if evaluations else 0,
        info.get("stopped_by", ""),
    )


def checkpoint_of(job: Job) -> int:
    """Agent steps of the last checkpoint; 0 if there is none."""
    return max(checkpoint_steps(job.folder), default=0)


def _rate(row: dict[str, str], seeds: int) -> float | None:
    if not has_learnt(row):
        return None
    return seed_steps_per_s((float(value) for name, value in row.items() if name.startswith("ms_") and value), seeds)
