"""Results in one tidy format, task, preset, seed, agent_steps, return: from runs, from folders of runs, from files."""

import csv
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

COLUMNS = ("task", "preset", "seed", "agent_steps", "return")
EXTRA_COLUMNS = ("env_frames", "return_std", "length_mean", "episodes")
"""What runs of ours add."""


class RunRecord(NamedTuple):
    """One run: its settings, and its evaluations by seed."""

    folder: Path
    info: dict[str, Any]
    evaluations: dict[int, list[tuple[int, float]]]
    """For each seed (agent_steps, mean return), in order."""


class Result(NamedTuple):
    """One evaluation of one seed."""

    task: str
    preset: str
    seed: int
    agent_steps: int
    score: float
    """The column `return`."""
    more: dict[str, str]
    """Optional columns, as they were written."""


def read_run(folder: str | Path) -> RunRecord:
    """A run's folder; ValueError in one line where it is none."""
    folder = Path(folder)
    _check_is_run(folder, "evals.csv")
    evaluations: dict[int, list[tuple[int, float]]] = {}
    for row in _evaluation_rows(folder):
        evaluations.setdefault(int(row["seed"]), []).append((int(row["agent_steps"]), float(row["return_mean"])))
    return RunRecord(folder, read_run_json(folder), evaluations)


def read_run_json(folder: Path, *needed: str) -> dict[str, Any]:
    """What run.json says; ValueError in one line where it is not whole."""
    _check_is_run(folder)
    try:
        info = json.loads((folder / "run.json").read_text())
    except ValueError:
        info = {}
    missing = [name for name in ("settings", *needed) if name not in info]
    if missing:
        raise ValueError(f"{folder / 'run.json'} is damaged: it has no {missing[0]}; leave it out, or train again")
    return info


def _check_is_run(folder: Path, *more: str) -> None:
    for name in ("run.json", *more):
        if not (folder / name).exists():
            raise ValueError(f"{folder} is not a run: it has no {name}; give the --out folder of dr-q train")


def _evaluation_rows(folder: Path) -> list[dict[str, str]]:
    rows = _csv_rows(folder / "evals.csv")
    for number, row in enumerate(rows, start=2):
        try:
            _ = int(row["seed"]), int(row["agent_steps"]), float(row["return_mean"])
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{folder / 'evals.csv'} is damaged in line {number}; mend or remove that line") from None
    return rows


def run_timing(run: RunRecord) -> dict[str, float]:
    """Milliseconds of an agent step of all seeds, by part, averaged over the run; empty where it logged none."""
    path = run.folder / "metrics.csv"
    rows = _csv_rows(path) if path.exists() else []
    # Every seed's row has the same times.
    rows = list({row["agent_steps"]: row for row in rows}.values())
    parts = [name for name in rows[0] if name.startswith("ms_")] if rows else []
    return {part.removeprefix("ms_"): sum(float(row[part] or 0) for row in rows) / len(rows) for part in parts}


def best_seed(run: RunRecord) -> int:
    """The seed whose last evaluation was best."""
    if not run.evaluations:
        raise ValueError(f"{run.folder} has no evaluation yet")
    return max(run.evaluations, key=lambda seed: run.evaluations[seed][-1][1])


def preset_of(run: RunRecord) -> str:
    """What its results are listed under: its preset, and the noise that was added."""
    settings = run.info["settings"]
    return listed_as(settings["preset"], settings.get("noise_dims", 0))


def listed_as(preset: str, noise_dims: int) -> str:
    """A preset's name in results: with noise in the state it is another."""
    return f"{preset}+noise{noise_dims}" if noise_dims else preset


def run_folders(path: str | Path) -> list[Path]:
    """The runs with evaluations in a folder or under it; ValueError in one line where there is no run."""
    path = Path(path)
    if path.is_file():
        raise ValueError(f"{path} is a file; give a run's folder or a folder of runs")
    if not path.is_dir():
        raise ValueError(f"{path} is not there; give a run's folder or a folder of runs")
    if (path / "run.json").exists():
        return [path]
    runs = sorted(file.parent for file in path.rglob("run.json"))
    if not runs:
        raise ValueError(f"{path} holds no run: no run.json in it or under it; give the --out folder of dr-q train")
    return [run for run in runs if (run / "evals.csv").exists()]


def read_results(paths: Sequence[str | Path]) -> list[Result]:
    """Results of runs, of folders that hold runs, and of tidy CSV files; ValueError in one line where one is neither.

    The same evaluation twice is kept once; two different values for one are refused.
    """
    found: dict[tuple[str, str, int, int], Result] = {}
    origin: dict[tuple[str, str, int, int], Path] = {}
    for path in map(Path, paths):
        for result in _read(path):
            key = result[:4]
            if key in found and found[key].score != result.score:
                raise ValueError(
                    f"{path} and {origin[key]} disagree about {result.task}, {result.preset}, seed {result.seed} at "
                    f"{result.agent_steps:,} steps: {result.score:g} and {found[key].score:g}; "
                    "leave one out, or give its runs other seeds"
                )
            found.setdefault(key, result)
            origin.setdefault(key, path)
    return sorted(found.values(), key=lambda result: result[:4])


def write_results(results: Iterable[Result], path: Path) -> None:
    """A tidy CSV file; optional columns that any result has come after the five."""
    results = list(results)
    extra = list(dict.fromkeys(name for result in results for name in result.more))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*COLUMNS, *extra])
        for result in results:
            writer.writerow([*result[:4], repr(float(result.score)), *(result.more.get(name, "") for name in extra)])


def _read(path: Path) -> list[Result]:
    if path.is_file():
        return _read_file(path)
    return [result for run in run_folders(path) for result in _of_run(run)]


def _of_run(folder: Path) -> list[Result]:
    run = read_run(folder)
    return [
        Result(
            run.info["settings"]["task"],
            preset_of(run),
            int(row["seed"]),
            int(row["agent_steps"]),
            float(row["return_mean"]),
            {name: row[name] for name in EXTRA_COLUMNS if name in row},
        )
        for row in _evaluation_rows(folder)
    ]


def _read_file(path: Path) -> list[Result]:
    rows = _csv_rows(path)
    have = list(rows[0]) if rows else []
    missing = [name for name in COLUMNS if name not in have]
    if missing:
        raise ValueError(
            f"{path} has no column {', '.join(missing)}; got {', '.join(have) or 'nothing'}; results need "
            f"{', '.join(COLUMNS)}, a row for each evaluation of each seed"
        )
    found = []
    for number, row in enumerate(rows, start=2):
        try:
            seed, steps, score = int(row["seed"]), int(row["agent_steps"]), float(row["return"])
        except (TypeError, ValueError):
            raise ValueError(
                f"{path}, line {number}: seed and agent_steps must be whole numbers and return a number; got "
                f"{row['seed']!r}, {row['agent_steps']!r}, {row['return']!r}"
            ) from None
        if not math.isfinite(score) or steps < 0:
            raise ValueError(f"{path}, line {number}: return {row['return']} at agent_steps {steps} cannot be")
        more = {name: value for name, value in row.items() if name not in COLUMNS and value}
        found.append(Result(row["task"], row["preset"], seed, steps, score, more))
    return found


def _csv_rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a CSV file: it is not text") from None
