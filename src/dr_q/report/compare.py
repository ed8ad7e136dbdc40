"""Two sets of results against each other."""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from dr_q.envs.families import known_tasks
from dr_q.kit import ConfigError
from dr_q.report.numbers import count, with_interval
from dr_q.report.results import Result, deciding_settings
from dr_q.report.statistics import (
    FEWEST_SEEDS,
    Estimate,
    Sample,
    by_seed,
    common_steps,
    difference_p,
    holm,
    improvement,
    normalised,
    overall,
    sample,
    sample_difference,
    scores_at,
)
from dr_q.report.verdicts import DifferenceVerdict, difference_verdict, interval_verdict, ranks_differ
from dr_q.run_folder import RunRecord


class TaskComparison(NamedTuple):
    """Two sets of results on one task, at the last step that all seeds of both have."""

    task: str
    """The task's name."""
    agent_steps: int
    """Agent steps at which the scores are compared."""
    samples: tuple[Sample, Sample]
    """The scores of the first and of the second set."""
    difference: Estimate
    """Mean of the first set minus mean of the second, with Welch's interval."""
    improvement: float
    """Probability that a run of the first set is better than a run of the second."""
    p: float
    """p-value of Welch's test; NaN for too few seeds."""
    p_holm: float
    """p-value, Holm-corrected for the number of tasks that are compared; NaN for too few seeds."""

    @property
    def fewest_seeds(self) -> int:
        """Number of seeds of the set that has fewer."""
        return min(of.seeds for of in self.samples)

    @property
    def verdict(self) -> DifferenceVerdict:
        """Whether the first set is above or below the second, after Holm's correction.

        One of `"above"`, `"below"`, `"no significant difference"` (p >= 0.05) and `"too few seeds"`.
        """
        return difference_verdict(self.difference.value, self.p_holm)


class Comparison(NamedTuple):
    """Two sets of results on all tasks that both have: what `compare` returns."""

    names: tuple[str, str]
    """Names of the two sets."""
    tasks: list[TaskComparison]
    """The comparison of each task."""
    difference: Estimate | None
    """Difference of the mean normalised scores, over the tasks that a family of environments knows; None if there are
    none."""
    improvement: Estimate | None
    """Probability that a run of the first set is better than a run of the second, over the same tasks."""
    left_out: list[str]
    """Tasks that are not compared, because only one set has them or no step is common to all seeds."""

    @property
    def ranks_differ(self) -> bool:
        """Whether single runs of one side are better more often, while the means are not significantly different."""
        return (
            self.difference is not None
            and self.improvement is not None
            and ranks_differ(self.difference, self.improvement)
        )

    def sentences(self) -> list[str]:
        """What can be concluded from the comparison, and what cannot.

        Returns:
            Sentences.
        """
        first, second = self.names
        said = []
        if self.difference is not None and self.improvement is not None:
            known = sum(task.task in known_tasks() for task in self.tasks)
            chance = ""
            if not math.isnan(self.difference.low):
                chance = f", and a run of {first} is better than one of {second} with probability "
                chance += with_interval(self.improvement, ".2f")
            said.append(
                f"Over {count(known, 'task')}, {first} minus {second} is "
                f"{with_interval(self.difference, '+.3f')} in normalised score{chance}: "
                f"{_conclusion(self.difference, first, second)}."
            )
            if self.ranks_differ:
                better, other = (first, second) if self.improvement.value > 0.5 else (second, first)
                said.append(
                    f"A single run of {better} is better than one of {other} more often than not (the interval of the "
                    f"probability excludes 0.5), but not by enough to make the means significantly different."
                )
        clear = [task for task in self.tasks if task.verdict in ("above", "below")]
        unclear = [task for task in self.tasks if task.verdict == "no significant difference"]
        few = [task for task in self.tasks if task.verdict == "too few seeds"]
        note = holm_note(len(clear) + len(unclear))
        corrected = f" ({note})" if note else ""
        if clear:
            parts = [f"{task.verdict} on {task.task}" for task in clear]
            said.append(f"{first} is {', '.join(parts)}{corrected}.")
        if unclear:
            widest = max(unclear, key=lambda task: task.difference.high - task.difference.low)
            said.append(
                f"On {count(len(unclear), 'task')} there is no significant difference{corrected}. This does not "
                f"mean that there is none: the 95% interval on {widest.task} goes from {widest.difference.low:+.4g} to "
                f"{widest.difference.high:+.4g}."
            )
        if few:
            said.append(
                f"On {count(len(few), 'task')} one side has fewer than {FEWEST_SEEDS} seeds: nothing can be said."
            )
        if self.left_out:
            said.append(f"Not compared, because only one side has them: {', '.join(self.left_out)}.")
        said.append("Nothing follows for other tasks, other budgets, or settings in which the two sets also differ.")
        return said


def compare(
    first: Iterable[Result], second: Iterable[Result], names: tuple[str, str], at: int | None = None
) -> Comparison:
    """Compare two sets of results, task by task and over all tasks.

    Each task is compared at the last step that all seeds of both sets have.

    Args:
        first: The first set, of one preset.
        second: The second set, of one preset.
        names: Names of the two sets, for messages and sentences.
        at: Largest agent step to compare at. Default: no limit.

    Returns:
        The comparison.

    Raises:
        ConfigError: No task has a step that all seeds of both sets have.

    Example:
        ```python
        results = dr_q.report.read_results(["runs"])
        first, second = ([r for r in results if r.preset == name] for name in ("dr.q", "mr.q"))
        comparison = dr_q.report.compare(first, second, ("dr.q", "mr.q"))
        print("\\n".join(comparison.sentences()))
        ```
    """
    first, second = list(first), list(second)
    tasks_of = [{result.task for result in results} for results in (first, second)]
    rows, sides = [], ({}, {})
    for task in sorted(tasks_of[0] & tasks_of[1]):
        mine = [by_seed(result for result in results if result.task == task) for results in (first, second)]
        steps = common_steps([points for curves in mine for points in curves.values()], at)
        if not steps:
            continue
        sides[0][task], sides[1][task] = (scores_at(curves, steps[-1]) for curves in mine)
        a, b = sides[0][task].values(), sides[1][task].values()
        samples = (sample(a), sample(b))
        gap, chance, p = sample_difference(*samples), improvement(a, b), difference_p(a, b)
        rows.append(TaskComparison(task, steps[-1], samples, gap, chance, p, math.nan))
    if not rows:
        raise ConfigError(
            f"{names[0]} and {names[1]} have no task in common at a step that all their seeds were evaluated at; "
            f"the first has {', '.join(sorted(tasks_of[0])) or 'nothing'}, the second "
            f"{', '.join(sorted(tasks_of[1])) or 'nothing'}"
        )
    done = {row.task for row in rows}
    left_out = sorted((tasks_of[0] | tasks_of[1]) - done)
    gap = chance = None
    known = [normalised(side) for side in sides]
    if known[0]:
        gap, chance = overall(known[0], known[1])
    return Comparison(names, holm_corrected(rows), gap, chance, left_out)


def holm_corrected(rows: Sequence[TaskComparison]) -> list[TaskComparison]:
    """The same rows, with p-values corrected for the number of tests among them."""
    return [row._replace(p_holm=p) for row, p in zip(rows, holm([row.p for row in rows]), strict=True)]


def holm_note(tested: int) -> str:
    """What is said of p-values that were corrected for a number of tasks; one alone needs no correction."""
    return f"p-values are Holm-corrected for {count(tested, 'task')}" if tested > 1 else ""


def _conclusion(gap: Estimate, first: str, second: str) -> str:
    return {
        "above": f"{first} is better on average over these tasks",
        "below": f"{second} is better on average over these tasks",
        "no significant difference": "on average over these tasks there is no significant difference",
        "too few seeds": f"with fewer than {FEWEST_SEEDS} seeds a side, no interval can be given",
    }[interval_verdict(gap)]


def other_differences(sides: Sequence[Iterable[tuple[RunRecord, str]]], tasks: Collection[str]) -> list[str]:
    """In what else the runs of two sides differ on these tasks; nothing is known of a side without runs.

    Args:
        sides: of each its runs, with what their results are listed under (`labelled_runs`).
        tasks: that are compared.
    """
    found: list[dict[str, set[str]]] = []
    for side in sides:
        values: dict[str, set[str]] = {}
        for run, _ in side:
            settings, versions = run.info["settings"], run.info.get("versions", {})
            if settings["task"] not in tasks:
                continue
            record = {**deciding_settings(run), "noise_dims": settings.get("noise_dims", 0)}
            for name, value in {**record, "source": versions.get("source", "not recorded")}.items():
                values.setdefault(name, set()).add(str(value))
        found.append(values)
    if not all(found):
        return []
    names = dict.fromkeys(name for values in found for name in values)
    pairs = {name: [" or ".join(sorted(values.get(name, {"none"}))) for values in found] for name in names}
    parts = [f"{name} {' against '.join(pair)}" for name, pair in pairs.items() if pair[0] != pair[1]]
    return [f"The two differ in: {'; '.join(parts)}."] if parts else []
