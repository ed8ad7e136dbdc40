"""A report's tables, made from its numbers. What the page, CSV and LaTeX show is in them; nothing is read from them."""

import math
from collections.abc import Callable
from typing import NamedTuple

from dr_q.paper import SUITES, TABLE_NOTES, Published, algorithms, paper_tasks, published_score
from dr_q.report.model import (
    OTHER,
    PUBLISHED_STATISTICS,
    STATISTICS,
    Final,
    Report,
    SuiteAggregate,
    counterpart,
    suite_of,
    task_order,
    tasks_of,
)
from dr_q.report.numbers import count
from dr_q.report.reference import ALL_SUITES, EARLY
from dr_q.report.series import ours, paper
from dr_q.report.statistics import Estimate
from dr_q.report.verdicts import SIGNIFICANT, PublishedVerdict, interval_verdict
from dr_q.report.wording import (
    aggregate_source,
    compared_over,
    grid_note,
    how_early,
    how_late,
    mean_label,
    reference_title,
    setting_text,
    some,
    span,
    suite_title,
)

Cell = str | int | float | Estimate | Published | PublishedVerdict | None


class Column(NamedTuple):
    """One column of a table."""

    label: str
    kind: str
    """text, count, score, signed, unit (normalised scores, shares), rate or verdict."""
    series: str = ""
    """Key of the preset or algorithm that it belongs to; it can be hidden with it."""
    group: str = ""
    """ours or paper, where a table has both."""


class Row(NamedTuple):
    """One row, and what it can be filtered by."""

    cells: list[Cell]
    suite: str = ""
    task: str = ""
    series: str = ""
    has_runs: bool = True


class Table(NamedTuple):
    """A table of the page, a CSV file and a LaTeX table."""

    name: str
    title: str
    columns: list[Column]
    rows: list[Row]
    footer: list[Row]
    """Aggregates under it; not sorted."""
    notes: list[str]
    missing: str
    """What to say where there are no rows."""


def tables_of(report: Report) -> list[Table]:
    """All of them, in the order of the page."""
    return [*(score_table(report, suite) for suite in report.suites), *(make(report) for make in TABLES.values())]


def score_table(report: Report, suite: str) -> Table:
    """Our scores of a suite, and the paper's."""
    here = [final for final in report.finals if final.suite == suite]
    mine = [preset for preset in report.presets if any(final.preset == preset for final in here)]
    in_paper, theirs = suite in SUITES, list(algorithms(suite))
    columns = [Column("task", "text"), Column("agent steps", "count")]
    for preset in mine:
        columns.append(Column(preset, "score", ours(preset), "ours"))
        if counterpart(preset) in theirs:
            columns.append(Column(f"{preset} verdict", "verdict", ours(preset), "ours"))
    columns += [Column(name, "score", paper(name), "paper") for name in theirs]
    finals = {(final.task, final.preset): final for final in here}
    names = [task.name for task in tasks_of(suite)] or list(dict.fromkeys(final.task for final in here))
    rows = []
    for name in names:
        own = [finals.get((name, preset)) for preset in mine]
        steps = sorted({final.step for final in own if final is not None})
        cells: list[Cell] = [name, steps[0] if len(steps) == 1 else " / ".join(f"{x:,}" for x in steps) or None]
        for preset, final in zip(mine, own, strict=True):
            cells.append(final.estimate if final else None)
            if counterpart(preset) in theirs:
                cells.append(final.verdict if final else None)
        cells += [published_score(name, algorithm) for algorithm in theirs]
        rows.append(Row(cells, suite, name, has_runs=any(own)))
    seeds = [_seed_range(preset, [final for final in here if final.preset == preset]) for preset in mine]
    notes = [f"Seeds of each task: {', '.join(seeds)}."]
    notes += [f"{task.name}: {task.note}." for task in tasks_of(suite) if task.note]
    if in_paper:
        notes += [f"In the paper: {note.what}" for note in TABLE_NOTES if note.suite in (suite, "all")]
    footer = _footer(report, suite, columns) if suite != OTHER else []
    early, late = how_early(here), how_late(here)
    if late:
        notes.insert(0, late)
    if early:
        arrive = " Published scores are of the end: they show where our runs should arrive, not how they compare."
        notes.insert(0, f"{early[0].upper()}{early[1:]}.{arrive if in_paper else ''}")
    title = f"{suite_title(suite)}: {'' if early else 'final '}scores"
    title += (" compared with the paper's" if in_paper else "") + (f" ({early})" if early else "")
    return Table(f"scores-{suite}", title, columns, rows, footer, notes, "")


def _seed_range(preset: str, finals: list[Final]) -> str:
    counts = sorted({len(final.scores) for final in finals})
    return f"{preset} {counts[0]}" + (f" to {counts[-1]}" if len(counts) > 1 else "")


def _footer(report: Report, suite: str, columns: list[Column]) -> list[Row]:
    """Aggregates over all tasks, of those who have all; and where presets have some only, means of the same tasks."""
    whole: dict[str, SuiteAggregate] = {
        (ours if found.ours else paper)(found.name): found
        for found in (*report.aggregates, *report.own_aggregates, *report.published_aggregates)
        if found.suite == suite and found.complete
    }

    def row(label: str, cell: Callable[[str], Cell]) -> Row:
        # A verdict has no aggregate.
        cells = [cell(c.series) if c.series and c.kind != "verdict" else None for c in columns[2:]]
        return Row([label, None, *cells], suite)

    rows = [
        row(
            f"{statistic} of all {len(tasks_of(suite))}",
            lambda key, statistic=statistic: whole[key].value(statistic) if key in whole else None,
        )
        for statistic in PUBLISHED_STATISTICS
    ]
    for means in report.common_means:
        if means.suite == suite:
            by_key = {ours(name): mean for name, mean in means.ours.items()}
            by_key |= {paper(name): mean for name, mean in means.published.items()}
            rows.append(row(mean_label(means), by_key.__getitem__))
    return rows


def finals_table(report: Report) -> Table:
    """Every final score, and where it lies against the published one."""
    columns = [
        Column("task", "text"),
        Column("preset", "text"),
        Column("agent steps", "count"),
        Column("budget", "count"),
        Column("seeds", "count"),
        Column("score", "score"),
        Column("normalised", "unit"),
        Column("published", "score"),
        Column("verdict", "verdict"),
    ]
    rows = []
    for final in report.finals:
        cells: list[Cell] = [final.task, final.preset, final.step, final.budget, len(final.scores), final.estimate]
        cells += [final.normalised, final.published, final.verdict if final.published else None]
        rows.append(Row(cells, final.suite, final.task, ours(final.preset)))
    return Table("finals", "Final scores and verdicts", columns, rows, [], [], "")


def aggregate_table(report: Report) -> Table:
    """Mean, median, IQM and optimality gap of each suite, of our runs and published."""
    columns = [
        Column("suite", "text"),
        Column("scores of", "text"),
        Column("from", "text"),
        Column("tasks", "count"),
        Column("at budget", "count"),
        Column("agent steps", "text"),
        Column("seeds", "text"),
        *(Column(name, "unit") for name in STATISTICS),
    ]
    rows = []
    sources = [(found, aggregate_source(found)) for found in report.aggregates]
    sources += [(found, "runs, all its own tasks and last steps") for found in report.own_aggregates]
    for found, source in sources:
        cells: list[Cell] = [suite_title(found.suite), found.name, source, found.tasks]
        cells += [found.at_budget, span(found.steps), span(found.seeds), *(found.value(name) for name in STATISTICS)]
        rows.append(Row(cells, found.suite, series=(ours if found.ours else paper)(found.name)))
    notes = [compared_over(ground) for ground in report.grounds]
    if report.own_aggregates:
        notes.append(
            "Rows of all a preset's own tasks and last steps are not to be compared with other rows: they are over "
            "other tasks or later steps."
        )
    notes += [
        "Every task has the same weight and all its seeds count, also where tasks have different numbers of seeds.",
        "Over all tasks of a suite the paper's aggregates are as published. Over some of its tasks they are computed "
        "from the published means of the same tasks. An IQM needs single runs, which are not published.",
    ]
    early, late = sorted({final.task for final in report.finals if final.stage == "before"}), how_late(report.finals)
    if early:
        notes.append(
            f"Before the budget's end: {count(len(early), 'task')} ({some(early)}). Aggregates with them are of "
            "early scores. Published ones are of the end: they show where our runs should arrive, not how they compare."
        )
    if late:
        notes.append(late)
    missing = "No task that a family knows: there is no normalisation to average with."
    return Table("aggregates", "Normalised aggregates", columns, rows, [], notes if rows else [], missing)


def improvement_table(report: Report) -> Table:
    """The chance that a run of a preset is better than one of the base."""
    columns = [
        Column("suite", "text"),
        Column("preset", "text"),
        Column("compared with", "text"),
        Column("tasks", "count"),
        Column("agent steps", "text"),
        Column("difference, normalised", "unit"),
        Column("says", "text"),
        Column("probability of improvement", "unit"),
    ]
    rows, notes = [], []
    for suite, preset, pair in report.comparisons:
        if pair.difference is None:
            continue
        steps = [row.agent_steps for row in pair.tasks]
        cells: list[Cell] = [suite_title(suite), preset, report.base, len(pair.tasks), span((min(steps), max(steps)))]
        cells += [pair.difference, interval_verdict(pair.difference), pair.improvement]
        rows.append(Row(cells, suite, series=ours(preset)))
        if pair.ranks_differ:
            notes.append(
                f"{suite_title(suite)}, {preset}: the probability's interval excludes 0.5, so single runs of one side "
                "are better more often than not; the mean scores are still not significantly different."
            )
    if rows:
        notes.append(
            f"Each preset and {report.base} are compared over the tasks that both have, at the last step that all "
            "their seeds have. The column 'says' is by the interval of the difference."
        )
    missing = (
        "It compares single runs of two presets on the same tasks, and there is only one preset here. It cannot be "
        "computed against the paper, which publishes means and no single runs."
    )
    return Table("improvement", "Probability of improvement", columns, rows, [], notes, missing)


def ablation_table(report: Report) -> Table:
    """Every preset and the base, task by task."""
    columns = [
        Column("task", "text"),
        Column("preset", "text"),
        Column("agent steps", "count"),
        Column("seeds", "text"),
        Column("mean", "score"),
        Column(f"{report.base} mean", "score"),
        Column("difference", "signed"),
        Column("p, Holm", "unit"),
        Column("says", "text"),
        Column("P(better)", "unit"),
    ]
    rows = []
    for suite, preset, pair in report.comparisons:
        for row in pair.tasks:
            first, second = row.samples
            p = None if math.isnan(row.p_holm) else row.p_holm
            cells: list[Cell] = [row.task, preset, row.agent_steps, f"{first.seeds} and {second.seeds}"]
            cells += [first.mean, second.mean, row.difference]
            rows.append(Row([*cells, p, row.verdict, row.improvement], suite, row.task, ours(preset)))
    rows.sort(key=lambda row: task_order(row.task))
    notes = [
        f"Above and below: the difference is significant (p < {SIGNIFICANT:g}). p-values are Holm-corrected for the "
        f"number of tasks on which a preset and {report.base} are compared."
    ]
    missing = "Only one preset, or no task that two have: nothing to compare."
    return Table("ablations", f"Presets compared with {report.base}", columns, rows, [], notes if rows else [], missing)


def speed_table(report: Report) -> Table:
    """How fast each run was, and in which parts of a step its time went."""
    parts = list(dict.fromkeys(part for run in report.runs for part in run.milliseconds))
    columns = [
        Column("run", "text"),
        Column("task", "text"),
        Column("preset", "text"),
        Column("device", "text"),
        Column("seeds", "count"),
        Column("seed-steps/s", "rate"),
        Column("ms per step", "rate"),
        *(Column(f"{part}, ms", "rate") for part in parts),
    ]
    rows = []
    for run in report.runs:
        rate = run.seed_steps_per_s
        speed: list[Cell] = [rate, sum(run.milliseconds.values())] if rate else ["not recorded", None]
        device = str(run.versions.get("device", "not recorded"))
        cells: list[Cell] = [run.name, run.task, run.preset, device, run.seeds, *speed]
        cells += [run.milliseconds.get(part) for part in parts]
        rows.append(Row(cells, run.suite, run.task, ours(run.preset)))
    missing = "Not recorded: results from CSV files say nothing about speed."
    notes = [
        "By the clock of the loop: a part is what it waited for, so the device's work shows where it is first needed. "
        "Runs that shared a device with others have the rates of sharing it."
    ]
    return Table("speed", "Speed", columns, rows, [], notes if rows else [], missing)


def grid_table(report: Report) -> Table:
    """The score of every combination of settings that vary."""
    columns = [
        Column("preset", "text"),
        Column("setting", "text"),
        Column("value", "text"),
        Column("second setting", "text"),
        Column("second value", "text"),
        Column("task", "text"),
        Column("agent steps", "text"),
        Column("seeds", "text"),
        Column("score", "score"),
        Column("normalised, mean over tasks", "unit"),
    ]
    rows, notes = [], []
    for grid in report.grids:
        for values in sorted(grid.labels, key=lambda v: [axis.index(x) for axis, x in zip(grid.axes, v, strict=True)]):
            words = [word for pair in zip(grid.settings, map(setting_text, values), strict=True) for word in pair]
            head: list[Cell] = [grid.preset, *words, *([None] * (4 - len(words)))]
            seeds, steps = span(grid.seeds[values]), sorted(grid.steps.values())
            if grid.overall:
                cells = [*head, "all", span((steps[0], steps[-1])), seeds, None, grid.overall[values]]
                rows.append(Row(cells, series=ours(grid.labels[values])))
            for task, step in grid.steps.items():
                cells = [*head, task, f"{step:,}", seeds, grid.by_task[task][values], None]
                rows.append(Row(cells, suite_of(task), task, ours(grid.labels[values])))
        notes.append(grid_note(grid))
    missing = "No preset has runs of one task that differ in one or two settings."
    return Table("grid", "Settings that vary", columns, rows, [], notes, missing)


def runs_table(report: Report) -> Table:
    """How each run was made, and how long it took."""
    columns = [
        Column("run", "text"),
        Column("command", "text"),
        Column("agent steps", "count"),
        Column("minutes", "rate"),
        Column("seed-steps/s", "rate"),
        Column("source", "text"),
        Column("versions", "text"),
    ]
    rows = []
    for run in report.runs:
        named = {name: str(value) for name, value in run.versions.items()}
        versions = [named.get("device", "")] + [f"{name} {named[name]}" for name in ("jax", "mujoco") if name in named]
        steps = run.agent_steps if run.finished else f"{run.agent_steps or 0:,} (not finished)"
        cells: list[Cell] = [run.name, run.command or "not recorded", steps]
        cells += [None if run.seconds is None else run.seconds / 60, run.seed_steps_per_s]
        cells += [named.get("source", "not recorded"), ", ".join(filter(None, versions)) or "not recorded"]
        rows.append(Row(cells, run.suite, run.task, ours(run.preset)))
    missing = "Not recorded: results from CSV files do not say how they were made."
    notes = ["Source is the digest of the package's source; `dr-q doctor` prints that of this version."]
    return Table("runs", "Runs", columns, rows, [], notes if rows else [], missing)


def settings_table(report: Report) -> Table:
    """Settings of runs that are not their presets', with the runs that have them."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for found in report.changed:
        key = (found.preset, found.name or "", setting_text(found.value), setting_text(found.default))
        if found.name is None:
            key = (found.preset, "(preset)", "unknown to this version", "")
        groups.setdefault(key, []).append(found.task)
    columns = [
        Column("preset", "text"),
        Column("setting", "text"),
        Column("here", "text"),
        Column("by default", "text"),
        Column("runs", "count"),
        Column("tasks", "text"),
    ]
    rows = [Row([*key, len(tasks), some(tasks)], series=ours(key[0])) for key, tasks in groups.items()]
    nothing = "Not recorded: results from CSV files have none."
    missing = "None: every run has its preset's settings." if report.runs else nothing
    return Table("settings", "Settings that differ from the preset", columns, rows, [], [], missing)


def versions_table(report: Report) -> Table:
    """What the runs ran on."""
    groups: dict[tuple[tuple[str, str], ...], int] = {}
    for run in report.runs:
        key = tuple((name, setting_text(value)) for name, value in run.versions.items())
        groups[key] = groups.get(key, 0) + 1
    names = list(dict.fromkeys(name for key in groups for name, _ in key))
    columns = [Column("runs", "count"), *(Column(name, "text") for name in names)]
    rows = [Row([amount, *(dict(key).get(name) for name in names)]) for key, amount in groups.items()]
    missing = "Not recorded: results from CSV files have none."
    return Table("versions", "Versions", columns, rows, [], [], missing)


_NO_REFERENCE = "No reference was given: dr-q report RUNS --reference FILE."


def reference_table(report: Report) -> Table:
    """Presets and references over the tasks of each suite, in shares of the published final scores."""
    columns = [
        Column("preset", "text"),
        Column("reference", "text"),
        Column("at agent steps", "text"),
        Column("suite", "text"),
        Column("tasks", "count"),
        Column("seeds", "text"),
        Column("seeds, reference", "text"),
        Column("mean", "unit"),
        Column("mean, reference", "unit"),
        Column("difference", "share"),
        Column("says", "text"),
        Column("P(better)", "unit"),
    ]
    rows = []
    for found in report.reference_comparisons:
        at = "last in common" if found.agent_steps is None else f"{found.agent_steps:,}"
        for one in found.suites:
            cells: list[Cell] = [found.preset, found.reference, at, suite_title(one.suite), one.tasks]
            cells += [span(one.seeds[0]), span(one.seeds[1]), one.ours, one.theirs, one.difference]
            cells += [interval_verdict(one.difference), one.improvement]
            suite = "" if one.suite == ALL_SUITES else one.suite
            rows.append(Row(cells, suite, series=ours(found.preset)))
    notes = [
        "Scores are divided by the published final score of DR.Q on the same task; every task has the same weight. "
        "Tasks on which neither side has learnt anything yet count too. Differences have intervals by a stratified "
        "bootstrap that resamples the seeds of both sides, probabilities by Brunner and Munzel."
    ]
    for found in report.reference_comparisons:
        if found.missing and found.preset == report.base:
            what = f"{len(found.missing)} of the paper's {len(paper_tasks())} tasks are not compared"
            notes.append(f"{reference_title(found)}: {what} ({some(found.missing)}).")
    return Table("reference", "Compared with references", columns, rows, [], notes if rows else [], _NO_REFERENCE)


def reference_task_table(report: Report) -> Table:
    """Presets and references task by task, the largest difference first."""
    columns = [
        Column("task", "text"),
        Column("preset", "text"),
        Column("reference", "text"),
        Column("agent steps", "count"),
        Column("seeds", "text"),
        Column("mean", "score"),
        Column("mean, reference", "score"),
        Column("difference", "signed"),
        Column("of the published score", "share"),
        Column("p, Holm", "unit"),
        Column("says", "text"),
        Column("P(better)", "unit"),
    ]
    rows = []
    for found in report.reference_comparisons:
        known = found.sorted_tasks()
        for row in (*known, *(row for row in found.pair.tasks if row.task not in found.shares)):
            first, second = row.samples
            p = None if math.isnan(row.p_holm) else row.p_holm
            cells: list[Cell] = [row.task, found.preset, found.reference, row.agent_steps]
            cells += [f"{first.seeds} and {second.seeds}", first.mean, second.mean, row.difference]
            cells += [found.shares.get(row.task), p, found.verdict(row), row.improvement]
            rows.append(Row(cells, suite_of(row.task), row.task, ours(found.preset)))
    notes = [
        "Differences have Welch's intervals. p-values are Holm-corrected for the number of tasks of one comparison. "
        f"Too early: neither mean has reached {100 * EARLY:g}% of the published score, so equal scores say nothing."
    ]
    title = "Tasks compared with references"
    return Table("reference-tasks", title, columns, rows, [], notes if rows else [], _NO_REFERENCE)


TABLES: dict[str, Callable[[Report], Table]] = {
    "finals": finals_table,
    "aggregates": aggregate_table,
    "improvement": improvement_table,
    "ablations": ablation_table,
    "grid": grid_table,
    "reference": reference_table,
    "reference-tasks": reference_task_table,
    "runs": runs_table,
    "speed": speed_table,
    "settings": settings_table,
    "versions": versions_table,
}
"""Those of every report, by name."""


__all__ = ["TABLES", "Cell", "Column", "Row", "Table", "tables_of"]
