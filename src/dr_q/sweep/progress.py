"""How far a job is, from its run's folder alone: nothing else keeps it."""

import csv
import json
import os
from pathlib import Path
from typing import NamedTuple

from dr_q.sweep.spec import Job

_TAIL = 65_536
"""Bytes at the end of a file in which the last rows are looked for."""


class Progress(NamedTuple):
    """What a run's folder says."""

    status: str
    """new, or run.json's: running, finished, stopped, interrupted, failed."""
    agent_steps: int
    """Of each seed, as far as is written down."""
    score: float | None
    """Mean over seeds of the last evaluation."""
    seed_steps_per_s: float | None
    """Over the last steps that were logged, evaluations and checkpoints included."""
    device: str = ""
    evaluated_at: int = 0
    """Agent steps of the last evaluation."""

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return self.status == "finished"


def progress_of(job: Job) -> Progress:
    """Read it."""
    try:
        info = json.loads((job.folder / "run.json").read_text())
    except FileNotFoundError:
        return Progress("new", 0, None, None)
    evaluations, metrics = _last_rows(job.folder / "evals.csv"), _last_rows(job.folder / "metrics.csv")
    steps = [info["agent_steps"]]
    steps += [int(rows[-1]["agent_steps"]) for rows in (evaluations, metrics) if rows]
    scores = [float(row["return_mean"]) for row in evaluations]
    return Progress(
        info["status"],
        info["agent_steps"] if info["status"] == "finished" else max(steps),
        sum(scores) / len(scores) if scores else None,
        _rate(metrics[-1], len(info["seeds"])) if metrics else None,
        info["versions"].get("device", ""),
        int(evaluations[-1]["agent_steps"]) if evaluations else 0,
    )


def checkpoint_of(job: Job) -> int:
    """Agent steps of the last checkpoint; 0 if there is none."""
    folder = job.folder / "checkpoints"
    steps = [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []
    return max(steps, default=0)


def _rate(row: dict[str, str], seeds: int) -> float | None:
    milliseconds = sum(float(value) for name, value in row.items() if name.startswith("ms_") and value)
    return 1000 * seeds / milliseconds if milliseconds > 0 else None


def _last_rows(path: Path) -> list[dict[str, str]]:
    """The rows of the newest agent step, whole ones only: the file may be written to meanwhile."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        header = file.readline()
        begin = max(len(header), file.seek(0, os.SEEK_END) - _TAIL)
        file.seek(begin)
        tail = file.read()
    lines = tail[: tail.rfind(b"\n") + 1].splitlines()
    lines = lines[1:] if begin > len(header) else lines
    columns = header.decode().strip().split(",")
    split = [values for values in csv.reader(line.decode() for line in lines) if len(values) == len(columns)]
    rows = [dict(zip(columns, values, strict=True)) for values in split]
    rows = [row for row in rows if row.get("agent_steps", "").isdecimal()]  # a damaged line is no reason to stop
    return [row for row in rows if row["agent_steps"] == rows[-1]["agent_steps"]]
