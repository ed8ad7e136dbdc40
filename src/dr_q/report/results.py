"""Reading what runs leave behind."""

import csv
import json
from pathlib import Path
from typing import Any, NamedTuple


class RunRecord(NamedTuple):
    """One run: its settings, and its evaluations by seed."""

    folder: Path
    info: dict[str, Any]
    evaluations: dict[int, list[tuple[int, float]]]
    """For each seed (agent_steps, mean return), in order."""


def read_run(folder: str | Path) -> RunRecord:
    """A run's folder; ValueError in one line where it is none."""
    folder = Path(folder)
    for name in ("run.json", "evals.csv"):
        if not (folder / name).exists():
            raise ValueError(f"{folder} is not a run: it has no {name}; give the --out folder of dr-q train")
    evaluations: dict[int, list[tuple[int, float]]] = {}
    for row in csv.DictReader((folder / "evals.csv").read_text().splitlines()):
        evaluations.setdefault(int(row["seed"]), []).append((int(row["agent_steps"]), float(row["return_mean"])))
    return RunRecord(folder, json.loads((folder / "run.json").read_text()), evaluations)


def best_seed(run: RunRecord) -> int:
    """The seed whose last evaluation was best."""
    if not run.evaluations:
        raise ValueError(f"{run.folder} has no evaluation yet")
    return max(run.evaluations, key=lambda seed: run.evaluations[seed][-1][1])
