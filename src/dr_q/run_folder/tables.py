"""evals.csv and metrics.csv: rows by seed and agent step, appended while a run trains."""

import csv
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dr_q.kit import DamagedFileError, replace_file, write_text

EVALS, METRICS = "evals.csv", "metrics.csv"
_TAIL = 65_536
"""Bytes at the end of a file in which the last rows are looked for."""


class Evaluation(NamedTuple):
    """One evaluation of one seed."""

    seed: int
    agent_steps: int
    env_frames: int
    return_mean: float
    return_std: float
    length_mean: float
    """Agent steps."""
    episodes: int


EVAL_COLUMNS = Evaluation._fields


class RunTables:
    """Writes a run's tables."""

    def __init__(self, folder: Path):
        self.folder = folder

    def append_evaluations(self, evaluations: Iterable[Evaluation]) -> None:
        """Rows of evals.csv."""
        self._append(EVALS, EVAL_COLUMNS, [list(e) for e in evaluations])

    def append_metrics(self, columns: Sequence[str], rows: list[list[Any]]) -> None:
        """Rows of metrics.csv."""
        self._append(METRICS, columns, rows)

    def drop_after(self, agent_steps: int) -> None:
        """Remove rows of later steps: a resumed run writes them again."""
        for name in (EVALS, METRICS):
            path = self.folder / name
            if not path.exists():
                continue
            header, *rows = path.read_text().splitlines() or [""]
            if not header:  # killed before its first row was written
                path.unlink()
                continue
            column = header.split(",").index("agent_steps")
            width = header.count(",")
            kept = [row for row in rows if row.count(",") == width and int(row.split(",")[column]) <= agent_steps]
            write_text(path, "\n".join([header, *kept]) + "\n")

    def _append(self, name: str, columns: Sequence[str], rows: list[list[Any]]) -> None:
        path = self.folder / name
        head = self._with_columns(path, columns)
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, head, restval="", lineterminator="\n")
            writer.writerows(dict(zip(columns, row, strict=True)) for row in rows)

    def _with_columns(self, path: Path, columns: Sequence[str]) -> list[str]:
        """The file's columns, these among them: a file begun by an older version gets those that it lacks."""
        head: list[str] = []
        before: list[dict[str, str]] = []
        if path.exists():
            with path.open(newline="") as file:
                reader = csv.DictReader(file)
                head = list(reader.fieldnames or [])
                if set(columns) <= set(head):
                    return head
                before = list(reader)
        head += [column for column in columns if column not in head]
        with replace_file(path) as part, part.open("w", newline="") as file:
            writer = csv.DictWriter(file, head, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(before)
        return head


def evaluation_rows(folder: Path) -> list[dict[str, str]]:
    """The whole rows of evals.csv: a last line without an end is being written, or was when the run was killed."""
    path = folder / EVALS
    rows = read_rows(path) if path.exists() else []
    if rows and not path.read_bytes().endswith(b"\n"):
        rows.pop()
    for number, row in enumerate(rows, start=2):
        damage = _damage(row)
        if damage:
            raise DamagedFileError(f"{path} is damaged in line {number}: {damage}; fix or remove that line")
    return rows


def _damage(row: dict[str, str]) -> str:
    """What is wrong with a row of evals.csv; empty if nothing."""
    if None in row or None in row.values():
        return "it has too many or too few values"
    for name, kind in (("seed", int), ("agent_steps", int), ("return_mean", float)):
        try:
            fine = math.isfinite(kind(row[name]))
        except (KeyError, ValueError):
            fine = False
        if not fine:
            return f"{name} must be a {'whole' if kind is int else 'finite'} number, got {row.get(name)!r}"
    return ""


def run_timing(folder: Path) -> dict[str, float]:
    """Milliseconds of an agent step of all seeds, by part, averaged over the run; empty where it logged none."""
    path = folder / METRICS
    rows = read_rows(path) if path.exists() else []
    # Every seed's row has the same times.
    rows = list({row["agent_steps"]: row for row in rows}.values())
    parts = [name for name in rows[0] if name.startswith("ms_")] if rows else []
    return {part.removeprefix("ms_"): sum(float(row[part] or 0) for row in rows) / len(rows) for part in parts}


def seed_steps_per_s(milliseconds: Iterable[float], seeds: int) -> float | None:
    """How fast a run is, from the milliseconds of the parts of an agent step of all seeds; None where they are 0."""
    total = sum(milliseconds)
    return 1000 * seeds / total if total > 0 else None


def last_evaluations(folder: Path) -> list[dict[str, str]]:
    """The rows of evals.csv of the newest agent step, as far as they are written."""
    return _last_rows(folder / EVALS)


def last_metrics(folder: Path) -> list[dict[str, str]]:
    """The rows of metrics.csv of the newest agent step, as far as they are written."""
    return _last_rows(folder / METRICS)


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
    rows = [row for row in rows if row.get("agent_steps", "").isdecimal()]
    rows = [row for row in rows if all(map(_is_number, row.values()))]  # a damaged line is no reason to stop
    return [row for row in rows if row["agent_steps"] == rows[-1]["agent_steps"]]


def _is_number(text: str) -> bool:
    """Whether a value of a table is one, or empty."""
    try:
        float(text or 0)
    except ValueError:
        return False
    return True


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # some programs begin a file with a mark
            return list(csv.DictReader(file))
    except UnicodeDecodeError:
        raise DamagedFileError(f"{path} is not a CSV file: it is not text") from None
