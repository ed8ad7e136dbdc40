"""evals.csv and metrics.csv: rows by seed and agent step, appended while a run trains."""

import csv
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dr_q.kit import append_whole, check_is_file, read_file, replace_file, shortened, write_text
from dr_q.run_folder.csv_files import (
    Table,
    check_values,
    damaged_line,
    decoded,
    finite_number,
    has_every_value,
    parse_table,
    whole_number,
)

EVALS, METRICS = "evals.csv", "metrics.csv"
_RENAMED_TIMES = {
    "dispatch": "dispatch_actions",
    "act": "wait_for_actions",
    "simulate": "wait_for_simulators",
    "update": "wait_for_dispatch",
    "evaluate": "evaluation",
}
"""Parts of a step as earlier versions called them, and as they are called now."""
_Kinds = dict[str, type[int] | type[float]]
"""Columns that must have numbers."""
_TAIL = 65_536
"""Bytes at the end of a file in which the last rows are looked for."""


class Evaluation(NamedTuple):
    """One evaluation of one seed: episodes without exploration noise. A row of `evals.csv` has the same fields."""

    seed: int
    """The seed."""
    agent_steps: int
    """Agent steps of this seed before the evaluation."""
    env_frames: int
    """Simulator frames before the evaluation: agent steps times the action repeat."""
    return_mean: float
    """Mean return over the episodes."""
    return_std: float
    """Standard deviation of the returns over the episodes."""
    length_mean: float
    """Mean length of the episodes, in agent steps."""
    episodes: int
    """Number of episodes."""
    success_mean: float | None = None
    """Share of the episodes whose last `info["is_success"]` was true; None if the environment does not report it.
    `evals.csv` then has no such column."""


EVAL_COLUMNS = Evaluation._fields


class RunTables:
    """Writes a run's tables. Rows that cannot be written, on a full disk for instance, are kept for the next time."""

    def __init__(self, folder: Path, warn: Callable[[str], None] | None = None):
        """`warn` takes a line when rows cannot be written, and one when they are; without it that is an OSError."""
        self.folder = folder
        self._warn = warn
        self._waiting: dict[str, list[tuple[Sequence[str], list[list[Any]]]]] = {EVALS: [], METRICS: []}
        self._failing: set[str] = set()

    @property
    def metrics_path(self) -> Path:
        """Where metrics.csv is."""
        return self.folder / METRICS

    def append_evaluations(self, evaluations: Iterable[Evaluation]) -> None:
        """Rows of evals.csv."""
        rows = list(evaluations)
        columns = EVAL_COLUMNS if any(e.success_mean is not None for e in rows) else EVAL_COLUMNS[:-1]
        self._append(EVALS, columns, [list(e[: len(columns)]) for e in rows])

    def append_metrics(self, columns: Sequence[str], rows: list[list[Any]]) -> None:
        """Rows of metrics.csv."""
        self._append(METRICS, columns, rows)

    def flush(self) -> None:
        """Have everything on the disk; OSError if that cannot be."""
        for name in (EVALS, METRICS):
            self._write_waiting(name)
            path = self.folder / name
            if path.exists():
                with path.open("rb") as file:
                    os.fsync(file.fileno())

    def evaluations_text(self) -> str:
        """What evals.csv has, for a checkpoint."""
        path = self.folder / EVALS
        return read_file(path).decode() if path.exists() else ""

    def go_back(self, agent_steps: int, evaluations: str | None, say: Callable[[str], None]) -> None:
        """Bring the tables to where they were at a checkpoint.

        Args:
            agent_steps: Of the checkpoint.
            evaluations: Its copy of evals.csv, None if it has none. Damaged or lost rows are restored from it.
            say: Takes a line if rows were restored.
        """
        path = self.folder / EVALS
        if evaluations:
            if not evaluations_begin_with(self.folder, evaluations):
                write_text(path, evaluations)
                say(f"{path} was damaged; it is restored from the checkpoint of step {agent_steps:,}")
            elif read_file(path) != evaluations.encode():
                write_text(path, evaluations)  # what came after the checkpoint is done again
            self._drop_after(METRICS, agent_steps)
        else:
            self.drop_after(agent_steps)

    def drop_after(self, agent_steps: int) -> None:
        """Remove rows of later steps: a resumed run writes them again."""
        for name in (EVALS, METRICS):
            self._drop_after(name, agent_steps)

    def _drop_after(self, name: str, agent_steps: int) -> None:
        path = self.folder / name
        if not path.exists():
            return
        text = decoded(read_file(path), path)
        header, *rows = text[: text.rfind("\n") + 1].splitlines() or [""]
        if not header:  # killed before its first row was written
            path.unlink()
            return
        kept, dropped = [header], list[int]()
        columns = header.split(",")
        for number, row in enumerate(rows, start=2):
            values = row.split(",")
            if len(values) != len(columns):
                dropped.append(number)
                continue
            step = dict(zip(columns, values, strict=True)).get("agent_steps", "")
            done = whole_number(step) if step.isdecimal() and step.isascii() else None
            if done is None:
                raise damaged_line(path, number, f"agent_steps must be a whole number, got {shortened(step)}")
            if done <= agent_steps:
                kept.append(row)
        write_text(path, "\n".join(kept) + "\n")
        if dropped and dropped != [len(rows) + 1] and self._warn is not None:  # the last was cut off with its file
            lines = f"lines {dropped[0]} and {len(dropped) - 1} more" if len(dropped) > 1 else f"line {dropped[0]}"
            self._warn(f"{path} had too many or too few values in {lines}: removed")

    def _append(self, name: str, columns: Sequence[str], rows: list[list[Any]]) -> None:
        self._waiting[name].append((columns, rows))
        try:
            self._write_waiting(name)
        except OSError as error:
            if self._warn is None:
                raise
            if name not in self._failing:
                self._failing.add(name)
                self._warn(
                    f"{self.folder / name} cannot be written ({error.strerror or error}): its rows are kept, and "
                    "written when that is possible; training continues"
                )

    def _write_waiting(self, name: str) -> None:
        waiting = self._waiting[name]
        while waiting:
            self._write(name, *waiting[0])
            del waiting[0]
        if name in self._failing:
            self._failing.discard(name)
            if self._warn is not None:
                self._warn(f"{self.folder / name} is written again, with the rows that were kept")

    def _write(self, name: str, columns: Sequence[str], rows: list[list[Any]]) -> None:
        """Append all of these rows or none."""
        path = self.folder / name
        head = self._with_columns(path, columns)
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, head, restval="", lineterminator="\n")
        writer.writerows(dict(zip(columns, row, strict=True)) for row in rows)
        append_whole(path, text.getvalue().encode())

    def _with_columns(self, path: Path, columns: Sequence[str]) -> list[str]:
        """The file's columns, these among them: a file begun by an older version gets those that it lacks."""
        head: list[str] = []
        before: list[dict[str, str]] = []
        if path.exists():
            with path.open("rb") as file:
                head = parse_table(file.readline(), path).columns
            if set(columns) <= set(head):
                return head
            before = [row for row in parse_table(path.read_bytes(), path).rows if has_every_value(row)]
        head += [column for column in columns if column not in head]
        with replace_file(path) as part, part.open("w", newline="") as file:
            writer = csv.DictWriter(file, head, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(before)
        return head


def evaluations_begin_with(folder: Path, copied: str) -> bool:
    """Whether evals.csv has what a checkpoint copied of it, unchanged."""
    path = folder / EVALS
    return path.exists() and read_file(path).startswith(copied.encode())


def evaluation_rows(folder: Path) -> list[dict[str, str]]:
    """The whole rows of evals.csv: a last line without an end is being written, or was when the run was killed."""
    path = folder / EVALS
    table = _whole_rows(path)
    for line, row in table.numbered():
        _check_row(row, {"seed": int, "agent_steps": int, "return_mean": float}, path, line)
    return table.rows


def metric_curves(folder: Path, name: str) -> dict[int, list[tuple[int, float]]] | None:
    """A column of metrics.csv, or `success`: (agent_steps, value) of each seed where there is one.

    None if the run has no such column.
    """
    path, column = (folder / EVALS, "success_mean") if name == "success" else (folder / METRICS, name)
    table = _whole_rows(path)
    if column not in table.columns or column in ("seed", "agent_steps"):
        return None
    curves: dict[int, list[tuple[int, float]]] = {}
    for line, row in table.numbered():
        _check_row(row, {"seed": int, "agent_steps": int, **({column: float} if row.get(column) else {})}, path, line)
        if row[column]:
            curves.setdefault(int(row["seed"]), []).append((int(row["agent_steps"]), float(row[column])))
    return curves


def metric_columns(folder: Path) -> list[str]:
    """The columns of metrics.csv that have values."""
    return [name for name in _whole_rows(folder / METRICS).columns if name not in ("seed", "agent_steps")]


def has_learnt(row: Mapping[str, str]) -> bool:
    """Whether a row of metrics.csv is of steps with updates; exploring says nothing of how fast a run is."""
    return row.get("critic_loss") != ""


def run_timing(folder: Path) -> dict[str, float]:
    """Milliseconds of an agent step of all seeds, by part, averaged over the run; empty where it logged none."""
    path = folder / METRICS
    by_step: dict[int, dict[str, float]] = {}  # every seed's row has the same times
    for line, row in _whole_rows(path).numbered():
        times = [name for name in row if name and name.startswith("ms_")]
        _check_row(row, {"agent_steps": int, **{name: float for name in times if row[name]}}, path, line)
        if not has_learnt(row):
            continue
        parts: dict[str, float] = {}
        for name in times:  # a run that was resumed by a newer version has columns of both
            called: str = name.removeprefix("ms_")
            part: str = _RENAMED_TIMES.get(called, called)
            parts[part] = parts.get(part, 0.0) + float(row[name] or 0)
        by_step[int(row["agent_steps"])] = parts
    steps = list(by_step.values())
    return {part: sum(times[part] for times in steps) / len(steps) for part in (steps[0] if steps else {})}


def seed_steps_per_s(milliseconds: Iterable[float], seeds: int) -> float | None:
    """How fast a run is, from the milliseconds of the parts of an agent step of all seeds; None where they are 0."""
    total = sum(milliseconds)
    return 1000 * seeds / total if total > 0 else None


def last_evaluations(folder: Path) -> list[dict[str, str]]:
    """The rows of evals.csv of the newest agent step, as far as they are written."""
    return _last_rows(folder / EVALS, {"seed": int, "agent_steps": int, "return_mean": float})


def last_metrics(folder: Path) -> list[dict[str, str]]:
    """The rows of metrics.csv of the newest agent step, as far as they are written."""
    return _last_rows(folder / METRICS, {"seed": int, "agent_steps": int})


def _last_rows(path: Path, needed: _Kinds) -> list[dict[str, str]]:
    """The rows of the newest agent step; a damaged line is no reason to stop."""
    rows = [row for row in _whole_rows(path, _TAIL).rows if has_every_value(row) and all(map(_is_number, row.values()))]
    rows = [row for row in rows if not _wrong(row, needed)]
    return [row for row in rows if row["agent_steps"] == rows[-1]["agent_steps"]]


def _whole_rows(path: Path, tail: int | None = None) -> Table:
    """The rows of a file that may be growing: a last line without an end is being written, or was at a kill.

    Args:
        path: The file; one that is not there has no rows.
        tail: Read only the header and that many bytes at the end.
    """
    if not path.exists():
        return Table([], [], [])
    check_is_file(path)
    with path.open("rb") as file:
        header = file.readline()
        size = file.seek(0, os.SEEK_END)
        begin = len(header) if tail is None else max(len(header), size - tail)
        file.seek(begin)
        rest = file.read()
    if begin > len(header):
        rest = rest[rest.find(b"\n") + 1 :]
    content = header + rest
    return parse_table(content[: content.rfind(b"\n") + 1], path)


def _check_row(row: dict[Any, Any], needed: _Kinds, path: Path, line: int) -> None:
    """Refuse a row of a file that has not as many values as columns, or lacks a number."""
    check_values(row, path, line)
    for name in _wrong(row, needed):
        what = "whole" if needed[name] is int else "finite"
        raise damaged_line(path, line, f"{name} must be a {what} number, got {shortened(row.get(name))}")


def _wrong(row: dict[Any, Any], needed: _Kinds) -> list[str]:
    """The columns in which a row lacks a number."""
    return [n for n, kind in needed.items() if (whole_number if kind is int else finite_number)(row.get(n)) is None]


def _is_number(text: str) -> bool:
    """Whether a value of a table is one, or empty; it may be NaN."""
    try:
        float(text or 0)
    except ValueError:
        return False
    return True
