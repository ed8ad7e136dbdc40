"""The sentences of a report, made from its numbers."""

import math
from collections.abc import Iterable
from typing import Any

from dr_q.paper import SUITES, paper_tasks
from dr_q.report.compare import holm_note
from dr_q.report.grids import Grid, Values
from dr_q.report.model import (
    OTHER,
    CommonGround,
    Final,
    Report,
    SuiteAggregate,
    SuiteMeans,
    VerdictCounts,
    budget_shares,
)
from dr_q.report.numbers import count, number, with_interval
from dr_q.report.reference import ALL_SUITES, ReferenceComparison, SuiteDifference
from dr_q.report.statistics import Estimate
from dr_q.report.verdicts import PUBLISHED_SEEDS, PublishedVerdict, interval_verdict, ranks_differ

SUITE_TITLES = {
    "gym": "Gym MuJoCo",
    "dmc-easy": "DMC easy",
    "dmc-hard": "DMC hard",
    "dmc-visual": "DMC visual",
    "hbench": "HumanoidBench",
    "hbench-hand": "HumanoidBench hands",
    OTHER: "Other tasks",
    ALL_SUITES: "All tasks",
}


def suite_title(name: str) -> str:
    """A suite for people; one of another package's family has its own name."""
    return SUITE_TITLES.get(name, name)


_NAMED_TASKS = 3


def facts(report: Report) -> list[str]:
    """What the report is made from."""
    known = sum(task.name in paper_tasks() for task in report.tasks)
    found = [
        f"{count(len(report.tasks), 'task')}, {known} of the paper's {len(paper_tasks())}",
        f"{count(len(report.presets), 'preset')}: {', '.join(report.presets)}",
        f"{count(report.trained_seeds, 'trained seed')}, {count(report.evaluations, 'evaluation')}",
    ]
    if report.updated:
        found.append(f"last run updated {report.updated[:10]}")
    return found


def findings(report: Report) -> list[str]:
    """What the report found, a sentence for each preset and what it is compared with."""
    return [
        *(_counts(found, f"the published {found.compared_with}") for found in report.published_counts()),
        *(_counts(found, found.compared_with) + _correction(found) for found in report.difference_counts()),
        *(reference_sentence(found) for found in report.reference_comparisons if found.preset == report.base),
    ]


def reference_title(found: ReferenceComparison) -> str:
    """What is compared, and where."""
    at = "the last step that both have" if found.agent_steps is None else f"{found.agent_steps:,} steps"
    return f"{found.preset} minus {found.reference}, at {at}"


def suite_label(found: SuiteDifference) -> str:
    """A suite with its number of tasks."""
    return f"{suite_title(found.suite)} ({found.tasks})"


def reference_sentence(found: ReferenceComparison) -> str:
    """The answer of a comparison with a reference, over all tasks."""
    if not found.suites:
        return f"{reference_title(found)}: no task has a published score to compare by."
    over = found.suites[0]
    verdicts = [row.verdict for row in found.pair.tasks]
    differing = [f"{row.task} ({row.verdict})" for row in found.pair.tasks if row.verdict in ("above", "below")]
    gap = shown_share(over.difference)
    text = (
        f"{reference_title(found)}, over {count(over.tasks, 'task')}: {gap} of the published final score; a run of "
        f"ours is better with probability {with_interval(over.improvement, '.2f')}."
    )
    if interval_verdict(over.difference) != "too few seeds":
        text += f" On average: {interval_verdict(over.difference)}."
    if ranks_differ(over.difference, over.improvement):
        text += " (The probability counts how often a run is better, the difference also by how much.)"
    tested = len(verdicts) - verdicts.count("too few seeds")
    if tested:
        which = some(differing) if differing else "none"
        text += f" Single tasks with a significant difference (Holm-corrected for {count(tested, 'task')}): {which}."
    return text


def shown_share(estimate: Estimate) -> str:
    """`-1.7% [-5.7%, +1.9%]`."""
    value, low, high = (number(x, "share") for x in estimate)
    return value if math.isnan(estimate.low) else f"{value} [{low}, {high}]"


def _counts(found: VerdictCounts, compared_with: str) -> str:
    parts = ", ".join(f"{amount} {what}" for what, amount in found.counts.items())
    return f"{found.preset} compared with {compared_with}, {count(found.tasks, 'task')}: {parts}."


def _correction(found: VerdictCounts) -> str:
    note = holm_note(found.tasks - found.counts.get("too few seeds", 0))
    return f" {note[0].upper()}{note[1:]}." if note else ""


def warnings(report: Report) -> list[str]:
    """What a reader should know before the numbers."""
    found = [
        f"{task}, {preset}: its seeds have no evaluated step in common, so it is left out."
        for task, preset in report.without_common_step
    ]
    changed = sorted({setting.preset for setting in report.changed if setting.of_algorithm})
    if changed:
        found.append(f"Some runs of {', '.join(changed)} have other settings than their preset: see Settings.")
    return found


def how_early(finals: Iterable[Final]) -> str:
    """At what share of the budget's steps runs are; nothing where none is before its end."""
    finals = list(finals)
    shares = budget_shares(finals)
    if shares is None:
        return ""
    low, high = (f"{100 * share:.3g}" for share in shares)
    whose = "the paper's" if all(final.suite in SUITES for final in finals if final.budget) else "their budget's"
    return f"our runs are at {low if low == high else f'{low} to {high}'}% of {whose} steps"


def how_late(finals: Iterable[Final]) -> str:
    """Which scores are after the budget; nothing where none is."""
    late = sorted({final.task for final in finals if final.stage == "after"})
    if not late:
        return ""
    return f"After the budget: {count(len(late), 'task')} ({some(late)}). Seeds share no earlier evaluation."


def why(verdict: PublishedVerdict) -> str:
    """The figures behind a verdict."""
    if verdict.what == "not in the paper":
        return "the paper has no score to compare with"
    seeds = count(verdict.seeds, "seed")
    if verdict.what == "after the budget":
        return f"{seeds} at {verdict.step:,} steps, which share no evaluation up to the budget of {verdict.budget:,}"
    text = f"{seeds} at {verdict.step:,} of {verdict.budget:,} steps"
    if verdict.what == "too few seeds":
        text += f"; {PUBLISHED_SEEDS} seeds are needed"
    if verdict.overlap is not None:
        text += f"; the two intervals {'overlap' if verdict.overlap else 'do not overlap'}"
    return text


def aggregate_source(found: SuiteAggregate) -> str:
    """What an aggregate is computed from."""
    return "runs" if found.ours else "published" if found.complete else "published, same tasks"


def mean_label(means: SuiteMeans) -> str:
    """What a suite's means are of."""
    which = f"all {means.tasks}" if means.complete else f"the {means.tasks} with runs"
    return f"Mean of {which}" if means.same_steps else f"Mean of {which}, at common steps"


def span(values: tuple[int, int] | None) -> str | None:
    """`3` or `3 to 20`."""
    if values is None:
        return None
    low, high = values
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def grid_charts(grid: Grid) -> list[tuple[str, str, dict[Values, Estimate]]]:
    """What is charted of a grid: a name, the kind of its numbers, and the values of each combination."""
    charts = [("Mean over tasks, normalised", "unit", grid.overall)] if grid.overall else []
    return charts + [(task, "score", cells) for task, cells in grid.by_task.items()]


def grid_note(grid: Grid) -> str:
    """Over what a grid's scores are."""
    steps = sorted(grid.steps.values())
    combinations = math.prod(len(axis) for axis in grid.axes)
    missing = combinations - len(grid.labels)
    text = f"{grid.preset} by {' and '.join(grid.settings)}: {count(len(grid.labels), 'combination')} over "
    text += f"{count(len(steps), 'task')} that all of them have, at {span((steps[0], steps[-1]))} steps"
    return text + (f"; {missing} of {combinations} have no runs." if missing else ".")


def compared_over(ground: CommonGround) -> str:
    """Over which tasks and at which steps the presets of a suite are compared."""
    if not ground.steps:
        return f"{suite_title(ground.suite)}: {', '.join(ground.presets)} have no task and step in common."
    steps = sorted(ground.steps.values())
    at = f"at {span((steps[0], steps[-1]))} steps"
    tasks = count(len(ground.steps), "task")
    if len(ground.presets) == 1:
        return f"{suite_title(ground.suite)}: {tasks} {at}."
    left = f" Left out, because not all have them: {some(ground.left_out)}." if ground.left_out else ""
    return (
        f"{suite_title(ground.suite)}: compared over {tasks} that all {len(ground.presets)} presets have, {at}.{left}"
    )


def some(tasks: Iterable[str]) -> str:
    """The first names of a list, and how many more there are."""
    names = list(dict.fromkeys(tasks))
    more = len(names) - _NAMED_TASKS
    return ", ".join(names[:_NAMED_TASKS]) + (f" and {more} more" if more > 0 else "")


def setting_text(value: Any) -> str:
    """A setting's value."""
    if isinstance(value, tuple | list):
        return ", ".join(map(setting_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
