"""Comparisons with a reference as two CSV files, and back: what can be shown without the reference's own seeds."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dr_q.kit import output_csv, shortened
from dr_q.paper import paper_tasks, published_score
from dr_q.report.compare import Comparison, TaskComparison
from dr_q.report.model import Curve, suite_of
from dr_q.report.reference import ReferenceComparison, SuiteDifference, is_too_early, shares_of
from dr_q.report.statistics import Estimate, Sample, sample_mean
from dr_q.run_folder import damaged_line, read_table

TASK_COLUMNS = (
    *("preset", "reference", "task", "agent_steps", "ours", "ours_sd", "ours_seeds"),
    *("theirs", "theirs_sd", "theirs_seeds", "difference", "low", "high", "p", "p_holm", "improvement"),
)
SUITE_COLUMNS = (
    *(
        "preset",
        "reference",
        "agent_steps",
        "suite",
        "tasks",
        "ours_fewest",
        "ours_most",
        "theirs_fewest",
        "theirs_most",
    ),
    *(f"{name}{end}" for name in ("ours", "theirs", "difference", "improvement") for end in ("", "_low", "_high")),
)
_TEXT = ("preset", "reference", "task", "suite")
_COUNTS = ("agent_steps", "tasks", "seeds", "fewest", "most")
"""With these words names of whole numbers end."""


def write_comparisons(comparisons: Iterable[ReferenceComparison], tasks: Path, suites: Path) -> None:
    """Two files: a row for each task and step, and one for each suite and step. Each comparison must have a step."""
    comparisons = list(comparisons)
    _write(tasks, TASK_COLUMNS, (_task_row(found, row) for found in comparisons for row in found.pair.tasks))
    _write(suites, SUITE_COLUMNS, (_suite_row(found, one) for found in comparisons for one in found.suites))


def read_comparisons(tasks: Path, suites: Path) -> list[ReferenceComparison]:
    """What `write_comparisons` wrote."""
    by_key: dict[tuple[str, str, int], list[TaskComparison]] = {}
    for row in _read(tasks):
        key = (row["preset"], row["reference"], row["agent_steps"])
        by_key.setdefault(key, []).append(_task_comparison(row))
    overall: dict[tuple[str, str, int], list[SuiteDifference]] = {}
    for row in _read(suites):
        overall.setdefault((row["preset"], row["reference"], row["agent_steps"]), []).append(_suite_difference(row))
    found = []
    for (preset, reference, step), rows in by_key.items():
        published = {row.task: score.mean for row in rows if (score := published_score(row.task)) is not None}
        pair = Comparison((preset, reference), rows, None, None, [])
        have = {row.task for row in rows}
        found.append(
            ReferenceComparison(
                preset,
                reference,
                step,
                pair,
                shares_of(rows, published),
                {row.task for row in rows if is_too_early(row, published)},
                overall.get((preset, reference, step), []),
                [task for task in paper_tasks() if task not in have],
            )
        )
    return found


def reference_curves(comparisons: Sequence[ReferenceComparison]) -> list[Curve]:
    """The reference's mean curves, at the steps of the comparisons."""
    points: dict[tuple[str, str], dict[int, Sample]] = {}
    for found in comparisons:
        for row in found.pair.tasks:
            points.setdefault((found.reference, row.task), {})[row.agent_steps] = row.samples[1]
    return [
        Curve(
            task,
            suite_of(task),
            reference,
            max(of.seeds for of in by_step.values()),
            sorted(by_step),
            [sample_mean(by_step[step]) for step in sorted(by_step)],
        )
        for (reference, task), by_step in points.items()
    ]


def _task_row(found: ReferenceComparison, row: TaskComparison) -> list[Any]:
    ours, theirs = row.samples
    head = [found.preset, found.reference, row.task, row.agent_steps, *ours, *theirs]
    return [*head, *row.difference, row.p, row.p_holm, row.improvement]


def _suite_row(found: ReferenceComparison, one: SuiteDifference) -> list[Any]:
    head = [found.preset, found.reference, found.agent_steps, one.suite, one.tasks, *one.seeds[0], *one.seeds[1]]
    return [*head, *one.ours, *one.theirs, *one.difference, *one.improvement]


def _task_comparison(row: dict[str, Any]) -> TaskComparison:
    samples = tuple(Sample(row[side], row[f"{side}_sd"], row[f"{side}_seeds"]) for side in ("ours", "theirs"))
    gap = Estimate(row["difference"], row["low"], row["high"])
    return TaskComparison(
        row["task"], row["agent_steps"], (samples[0], samples[1]), gap, row["improvement"], row["p"], row["p_holm"]
    )


def _suite_difference(row: dict[str, Any]) -> SuiteDifference:
    seeds = ((row["ours_fewest"], row["ours_most"]), (row["theirs_fewest"], row["theirs_most"]))
    values = [
        Estimate(row[name], row[f"{name}_low"], row[f"{name}_high"])
        for name in ("ours", "theirs", "difference", "improvement")
    ]
    return SuiteDifference(row["suite"], row["tasks"], seeds, *values)


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with output_csv(path) as writer:
        writer.writerow(columns)
        for row in rows:
            writer.writerow([f"{x:.9g}" if isinstance(x, float) else x for x in row])


def _read(path: Path) -> list[dict[str, Any]]:
    """Rows with their numbers as numbers."""
    return [
        {name: _value(name, text, path, line) for name, text in row.items()}
        for line, row in read_table(path).numbered()
    ]


def _value(name: str, text: str, path: Path, line: int) -> str | int | float:
    if name in _TEXT:
        return text
    try:
        return int(text) if name.endswith(_COUNTS) else float(text)
    except ValueError:
        raise damaged_line(path, line, f"{name} must be a number, got {shortened(text)}") from None
