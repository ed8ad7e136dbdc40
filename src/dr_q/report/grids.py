"""Scores by the settings that vary: of runs of one preset that differ in one or two settings, as of a sweep's grid."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from dr_q.envs.families import known_tasks
from dr_q.report.results import Result, deciding_settings, preset_of, varying_settings
from dr_q.report.statistics import (
    Estimate,
    Scores,
    by_seed,
    common_steps,
    mean,
    mean_with_bootstrap,
    normalised,
    scores_at,
)
from dr_q.run_folder import RunRecord

MOST_SETTINGS = 2
"""That a grid can show."""
Values = tuple[Any, ...]
"""One for each setting that varies."""


class Grid(NamedTuple):
    """The scores of one preset by one or two of its settings."""

    preset: str
    settings: tuple[str, ...]
    axes: tuple[list[Any], ...]
    """The values of each setting, in order."""
    labels: dict[Values, str]
    """What the runs of each combination are listed under; combinations without runs are not in it."""
    steps: dict[str, int]
    """The tasks that all combinations have, each with the last step that all their seeds have."""
    by_task: dict[str, dict[Values, Estimate]]
    """Mean over seeds in the task's own units."""
    overall: dict[Values, Estimate]
    """Mean of normalised scores over these tasks; empty where no family knows one of them."""
    seeds: dict[Values, tuple[int, int]]
    """The fewest and the most of a task."""


def grids_of(labelled: Sequence[tuple[RunRecord, str]], results: Sequence[Result], at: int | None = None) -> list[Grid]:
    """A grid for each preset whose runs differ in one or two settings.

    Args:
        labelled: runs, each with what its results are listed under.
        results: theirs.
        at: agent steps at which scores are taken, or the last evaluation before.
    """
    found = []
    for preset in dict.fromkeys(preset_of(run) for run, _ in labelled):
        mine = [(run, label) for run, label in labelled if preset_of(run) == preset]
        names = varying_settings([run for run, _ in mine])
        if 0 < len(names) <= MOST_SETTINGS and (grid := _grid(preset, names, mine, results, at)):
            found.append(grid)
    return found


def _grid(
    preset: str,
    names: Sequence[str],
    labelled: Sequence[tuple[RunRecord, str]],
    results: Sequence[Result],
    at: int | None,
) -> Grid | None:
    labels: dict[Values, str] = {}
    for run, label in labelled:
        own = deciding_settings(run)
        labels.setdefault(tuple(_hashable(own[name]) for name in names), label)
    by: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        by.setdefault((result.task, result.preset), []).append(result)
    steps = {}
    for task in dict.fromkeys(task for task, label in by if label in labels.values()):
        sides = [by.get((task, label), []) for label in labels.values()]
        shared = common_steps([curve for side in sides for curve in by_seed(side).values()], at) if all(sides) else []
        if shared:
            steps[task] = shared[-1]
    if not steps or len(labels) < 2:
        return None
    scores: dict[Values, Scores] = {
        values: {task: scores_at(by_seed(by[task, label]), step) for task, step in steps.items()}
        for values, label in labels.items()
    }
    known = [task for task in steps if task in known_tasks()]
    overall = {}
    if known:
        overall = {
            values: mean_with_bootstrap(normalised({t: own[t] for t in known})) for values, own in scores.items()
        }
    counts = {values: [len(seeds) for seeds in own.values()] for values, own in scores.items()}
    return Grid(
        preset,
        tuple(names),
        tuple(sorted({values[i] for values in labels}, key=_order) for i in range(len(names))),
        labels,
        steps,
        {task: {values: mean(own[task].values()) for values, own in scores.items()} for task in steps},
        overall,
        {values: (min(own), max(own)) for values, own in counts.items()},
    )


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _order(value: Any) -> tuple[bool, float, str]:
    """Numbers by size, then words."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return (not number, float(value) if number else 0.0, str(value))
