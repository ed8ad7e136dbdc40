"""What a report says, as plain data. The page, PNG, CSV and LaTeX are all made from this, and cannot disagree."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dr_q.paper import (
    PRINT_NOTES,
    SUITES,
    Published,
    TaskInfo,
    algorithms,
    paper_tasks,
    published_aggregates,
    published_score,
)
from dr_q.report.compare import Comparison, compare
from dr_q.report.results import Result
from dr_q.report.statistics import (
    Estimate,
    Scores,
    aggregates,
    mean,
    mean_over_tasks,
    means,
    normalised,
    profile,
    scores_in_budget,
)
from dr_q.run_folder import RunRecord, run_timing

VERDICT_SEEDS = 5
"""Under which no verdict is given."""
OTHER = "other"
"""The suite of tasks that are not the paper's."""
SUITE_TITLES = {
    "gym": "Gym MuJoCo",
    "dmc-easy": "DMC easy",
    "dmc-hard": "DMC hard",
    "dmc-visual": "DMC visual",
    "hbench": "HumanoidBench",
    "hbench-hand": "HumanoidBench hands",
    OTHER: "Other tasks",
}
STATISTICS = ("Mean", "Median", "IQM")
PROFILE_POINTS = 61
_SCHEDULE = ("steps", "eval_every", "eval_episodes")
"""Of a run, not of the algorithm."""
_RUN_SETTINGS = (*_SCHEDULE, "noise_dims")
_NAMED_TASKS = 3


class Verdict(NamedTuple):
    """Our mean against the published interval of the same algorithm."""

    what: str
    """inside, above, below, or why nothing can be said."""
    why: str
    """The figures behind it."""


Cell = str | int | float | Estimate | Published | Verdict | None


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


class Series(NamedTuple):
    """What can be shown and hidden: a preset of ours, or an algorithm of the paper's."""

    key: str
    """Its name after `ours` or `paper`: a preset may be called what an algorithm is."""
    name: str
    ours: bool
    counterpart: str
    """The published algorithm that a preset is, or the preset that an algorithm is; empty if none is here."""
    style: int
    """Which colour, dash and marker; -1: grey."""


class Task(NamedTuple):
    """A task with runs."""

    name: str
    suite: str
    budget: int | None
    """The paper's agent steps."""
    published: dict[str, Published]


class Curve(NamedTuple):
    """Mean over seeds at every step that all of them have."""

    task: str
    suite: str
    preset: str
    seeds: int
    steps: list[int]
    values: list[Estimate]


class Profile(NamedTuple):
    """The share of a preset's runs above each threshold."""

    suite: str
    preset: str
    seeds: int
    tasks: int
    thresholds: list[float]
    shares: list[Estimate]


class Report(NamedTuple):
    """All of it."""

    facts: list[str]
    """What the report is made from."""
    findings: list[str]
    warnings: list[str]
    early: str
    """Where our runs are, if not at the end of the paper's budget."""
    suites: list[tuple[str, str]]
    """(name, title) of those with runs, in the paper's order."""
    series: list[Series]
    base: str
    """The preset that the others are compared with."""
    tasks: list[Task]
    curves: list[Curve]
    profiles: list[Profile]
    tables: list[Table]

    def table(self, name: str) -> Table:
        """A table by its name."""
        return next(table for table in self.tables if table.name == name)


def build_report(
    results: Iterable[Result],
    labelled: Sequence[tuple[RunRecord, str]] = (),
    defaults: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None,
    say: Callable[[str], None] = lambda line: None,
    base: str | None = None,
) -> Report:
    """What results and the runs they are from (`labelled_runs`) say; ValueError in one line where there are none.

    Presets are compared with `base`, by default dr.q, or the first where that is not among them.
    `defaults` gives, for a run's recorded settings, what they would be by its preset alone, None if that is not known.
    """
    results, runs, labels = list(results), [run for run, _ in labelled], [label for _, label in labelled]
    if not results:
        raise ValueError("there is no evaluation to report on yet")
    presets = sorted({result.preset for result in results}, key=_preset_order)
    if base is not None and base not in presets:
        raise ValueError(f"no results of preset '{base}' to compare with; there are {', '.join(presets)}")
    base = base or ("dr.q" if "dr.q" in presets else presets[0])
    by: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        by.setdefault((result.task, result.preset), []).append(result)
    tasks = sorted({result.task for result in results}, key=_task_order)
    suites = [name for name in (*SUITES, OTHER) if any(_suite(task) == name for task in tasks)]
    say(f"learning curves of {_count(len(tasks), 'task')}")
    curves = [_curve(task, preset, by[task, preset]) for task in tasks for preset in presets if (task, preset) in by]
    uneven = [curve for curve in curves if not curve.steps]
    curves = [curve for curve in curves if curve.steps]
    finals = {(c.task, c.preset): _Final.of(c, by[c.task, c.preset]) for c in curves}
    shown = [name for name in algorithms() if any(name in algorithms(suite) for suite in suites if suite != OTHER)]
    series = _series(presets, shown)
    say(f"aggregates and profiles of {_count(len(suites), 'suite')}")
    overall = _aggregate_table(suites, presets, finals)
    profiles = _profiles(suites, presets, finals)
    say(f"comparisons with {base}")
    comparisons = _comparisons(suites, presets, base, results)
    final = _final_table(finals)
    tables = [
        *(_score_table(suite, presets, finals, overall) for suite in suites),
        final,
        overall,
        _improvement_table(comparisons, base),
        _ablation_table(comparisons, base),
        _speed_table(runs, labels),
        _settings_table(runs, labels, defaults),
        _versions_table(runs),
    ]
    warnings = [
        f"{curve.task}, {curve.preset}: its seeds have no evaluated step in common, so it is left out."
        for curve in uneven
    ]
    changed = sorted({str(row.cells[0]) for row in tables[-2].rows if row.cells[1] not in _SCHEDULE})
    if changed:
        warnings.append(f"Some runs of {', '.join(changed)} have other settings than their preset: see Settings.")
    return Report(
        facts=_facts(results, runs, tasks, presets),
        findings=[*_verdict_findings(final), *_comparison_findings(comparisons, base)],
        warnings=warnings,
        early=_how_early(finals.values()),
        suites=[(name, SUITE_TITLES[name]) for name in suites],
        series=series,
        base=base,
        tasks=[_task(name) for name in tasks],
        curves=curves,
        profiles=profiles,
        tables=tables,
    )


def ours(preset: str) -> str:
    """A preset's key."""
    return f"ours {preset}"


def paper(algorithm: str) -> str:
    """A published algorithm's key."""
    return f"paper {algorithm}"


def counterpart(preset: str) -> str | None:
    """The published algorithm that a preset is."""
    return next((name for name in algorithms() if name.lower() == preset.lower()), None)


def verdict(ours: Estimate, seeds: int, step: int, budget: int | None, published: Published | None) -> Verdict:
    """Whether our mean lies in the published interval, if that can be said."""
    if published is None or budget is None:
        return Verdict("not in the paper", "the paper prints no score to compare with")
    why = f"{_count(seeds, 'seed')} at {step:,} of {budget:,} steps"
    if step < budget:
        return Verdict("too few steps", why)
    if seeds < VERDICT_SEEDS:
        return Verdict("too few seeds", f"{why}; {VERDICT_SEEDS} seeds are needed")
    if math.isnan(published.low):
        return Verdict("no published interval", why)
    side = "above" if ours.value > published.high else "below" if ours.value < published.low else "inside"
    overlap = ours.low <= published.high and ours.high >= published.low
    return Verdict(side, f"{why}; the two intervals {'overlap' if overlap else 'do not overlap'}")


class _Final(NamedTuple):
    """A preset on a task at the last step of the paper's budget that all seeds have."""

    task: str
    preset: str
    step: int
    budget: int | None
    scores: dict[int, float]
    estimate: Estimate

    @staticmethod
    def of(curve: Curve, results: list[Result]) -> "_Final":
        known = paper_tasks().get(curve.task)
        budget = known.agent_steps if known else None
        scores, steps = scores_in_budget(results, budget)
        found = scores[curve.task]
        return _Final(curve.task, curve.preset, steps[curve.task], budget, found, mean(found.values()))

    @property
    def at_budget(self) -> bool:
        return self.step == self.budget

    @property
    def verdict(self) -> Verdict:
        name = counterpart(self.preset)
        published = published_score(self.task, name) if name else None
        return verdict(self.estimate, len(self.scores), self.step, self.budget, published)


_Finals = dict[tuple[str, str], _Final]


def _how_early(finals: Iterable[_Final]) -> str:
    """At what share of the paper's steps runs are; nothing where all are at its end."""
    known = [(f.step, f.budget) for f in finals if f.budget]
    if all(step >= budget for step, budget in known):
        return ""
    low, high = (f"{100 * choose(step / budget for step, budget in known):.3g}" for choose in (min, max))
    return f"our runs are at {low if low == high else f'{low} to {high}'}% of the paper's steps"


def _preset_order(name: str) -> tuple:
    found = counterpart(name)
    return (name != "dr.q", found is None, name.lower(), name)


def _task_order(name: str) -> tuple:
    order = list(paper_tasks())
    return (SUITES.index(_suite(name)), order.index(name)) if name in paper_tasks() else (len(SUITES), name)


def _suite(task: str) -> str:
    known = paper_tasks().get(task)
    return known.suite if known else OTHER


def _tasks_of(suite: str) -> list[TaskInfo]:
    return [task for task in paper_tasks().values() if task.suite == suite]


def _task(name: str) -> Task:
    known = paper_tasks().get(name)
    cells = {algorithm: published_score(name, algorithm) for algorithm in algorithms()}
    published = {algorithm: cell for algorithm, cell in cells.items() if cell is not None}
    return Task(name, _suite(name), known.agent_steps if known else None, published)


def _series(presets: list[str], shown: list[str]) -> list[Series]:
    mine = [Series(ours(name), name, True, counterpart(name) or "", i) for i, name in enumerate(presets)]
    same = {series.counterpart: series for series in reversed(mine) if series.counterpart}
    theirs = [
        Series(
            paper(name), name, False, same[name].name if name in same else "", same[name].style if name in same else -1
        )
        for name in shown
    ]
    return mine + theirs


def _curve(task: str, preset: str, results: list[Result]) -> Curve:
    by_seed: dict[int, dict[int, float]] = {}
    for result in results:
        by_seed.setdefault(result.seed, {})[result.agent_steps] = result.score
    steps = sorted(set.intersection(*(set(points) for points in by_seed.values())))
    values = means(np.array([[points[step] for step in steps] for points in by_seed.values()])) if steps else []
    return Curve(task, _suite(task), preset, len(by_seed), steps, values)


def _normalised(finals: _Finals, suite: str, preset: str) -> Scores:
    scores = {f.task: f.scores for f in finals.values() if f.preset == preset and _suite(f.task) == suite}
    return normalised(scores)


def _profiles(suites: list[str], presets: list[str], finals: _Finals) -> list[Profile]:
    found = []
    for suite in suites:
        scores = {preset: _normalised(finals, suite, preset) for preset in presets}
        values = [x for side in scores.values() for seeds in side.values() for x in seeds.values()]
        if not values:
            continue
        low, high = min(0, math.floor(10 * min(values)) / 10), max(1, math.ceil(10 * max(values)) / 10)
        thresholds = np.linspace(low, high, PROFILE_POINTS)
        for preset, side in scores.items():
            if side:
                seeds = min(len(seeds) for seeds in side.values())
                shares = profile(side, thresholds)
                found.append(Profile(suite, preset, seeds, len(side), [float(x) for x in thresholds], shares))
    return found


def _aggregate_table(suites: list[str], presets: list[str], finals: _Finals) -> Table:
    columns = [
        Column("suite", "text"),
        Column("scores of", "text"),
        Column("from", "text"),
        Column("tasks", "count"),
        Column("at budget", "count"),
        Column("seeds", "count"),
        *(Column(name, "unit") for name in STATISTICS),
    ]
    rows = []
    for suite in (name for name in suites if name != OTHER):
        every = [task.name for task in _tasks_of(suite)]
        for preset in presets:
            scores = _normalised(finals, suite, preset)
            if not scores:
                continue
            found = aggregates(scores)
            at_budget = sum(finals[task, preset].at_budget for task in scores)
            cells: list[Cell] = [SUITE_TITLES[suite], preset, "runs", found.tasks, at_budget, found.seeds]
            rows.append(Row([*cells, found.mean, found.median, found.iqm], suite, series=ours(preset)))
            name = counterpart(preset)
            if name in algorithms(suite):
                rows.append(_published_aggregate(suite, name, sorted(scores), complete=len(scores) == len(every)))
    notes = [
        "Over all tasks of a suite the paper's are as printed. Over some of its tasks they are computed anew from the "
        "printed means of the same tasks; an IQM needs single runs, which are not in print."
    ]
    early = sorted({f.task for f in finals.values() if f.budget is not None and not f.at_budget})
    if early:
        notes.append(
            f"Not at the paper's budget: {_count(len(early), 'task')} ({_some(early)}). Aggregates with them are of "
            "early scores; print beside them is of the end: where the runs should arrive, not how they compare."
        )
    missing = "No task of the paper's: there is no normalisation to average with."
    return Table("aggregates", "Normalised aggregates", columns, rows, [], notes if rows else [], missing)


def _published_aggregate(suite: str, name: str, tasks: list[str], complete: bool) -> Row:
    if complete:
        printed = {a.statistic: Published(*a[3:]) for a in published_aggregates() if a[:2] == (suite, name)}
        cells = [printed.get(statistic) for statistic in STATISTICS]
    else:
        values = _published_values(name, tasks)
        cells = [_bare(np.mean(values)), _bare(np.median(values)), None]
    source = "print" if complete else "print, same tasks"
    return Row([SUITE_TITLES[suite], name, source, len(tasks), None, None, *cells], suite, series=paper(name))


def _published_values(name: str, tasks: Iterable[str]) -> list[float]:
    scores = {task: published_score(task, name) for task in tasks}
    return [paper_tasks()[task].normalise(score.mean) for task, score in scores.items() if score is not None]


def _bare(value: Any) -> Estimate:
    return Estimate(float(value), math.nan, math.nan)


def _score_table(suite: str, presets: list[str], finals: _Finals, overall: Table) -> Table:
    mine = [
        preset for preset in presets if any(f.preset == preset and _suite(f.task) == suite for f in finals.values())
    ]
    theirs = list(algorithms(suite)) if suite != OTHER else []
    columns = [Column("task", "text"), Column("agent steps", "count")]
    for preset in mine:
        columns.append(Column(preset, "score", ours(preset), "ours"))
        if counterpart(preset) in theirs:
            columns.append(Column(f"{preset} verdict", "verdict", ours(preset), "ours"))
    columns += [Column(name, "score", paper(name), "paper") for name in theirs]
    names = [task.name for task in _tasks_of(suite)] or list(dict.fromkeys(f.task for f in finals.values()))
    if suite == OTHER:
        names = [name for name in names if _suite(name) == OTHER]
    rows = []
    for name in names:
        here = [finals.get((name, preset)) for preset in mine]
        steps = sorted({final.step for final in here if final is not None})
        cells: list[Cell] = [name, steps[0] if len(steps) == 1 else " / ".join(f"{x:,}" for x in steps) or None]
        for preset, final in zip(mine, here, strict=True):
            cells.append(final.estimate if final else None)
            if counterpart(preset) in theirs:
                cells.append(final.verdict if final else None)
        cells += [published_score(name, algorithm) for algorithm in theirs]
        rows.append(Row(cells, suite, name, has_runs=any(here)))
    seeds = [
        _seed_range(preset, [f for f in finals.values() if f.preset == preset and f.task in names]) for preset in mine
    ]
    notes = [f"Seeds of each task: {', '.join(seeds)}."]
    footer = []
    if suite != OTHER:
        notes += [f"{task.name}: {task.note}." for task in _tasks_of(suite) if task.note]
        notes += [f"In print: {note.what}" for note in PRINT_NOTES if note.suite in (suite, "all")]
        footer = _footer(suite, mine, theirs, finals, overall, columns)
    early = _how_early(f for f in finals.values() if f.task in names)
    if early:
        arrive = "what is in print says where they should arrive, not how they compare."
        notes.insert(0, f"{early[0].upper()}{early[1:]}; {arrive}")
    title = f"{SUITE_TITLES[suite]}: {'' if early else 'final '}scores"
    title += ("" if suite == OTHER else " beside the paper's") + (f" ({early})" if early else "")
    return Table(f"scores-{suite}", title, columns, rows, footer, notes, "")


def _seed_range(preset: str, finals: list[_Final]) -> str:
    counts = sorted({len(final.scores) for final in finals})
    return f"{preset} {counts[0]}" + (f" to {counts[-1]}" if len(counts) > 1 else "")


def _footer(
    suite: str, mine: list[str], theirs: list[str], finals: _Finals, overall: Table, columns: list[Column]
) -> list[Row]:
    """The paper's aggregates and ours over all tasks; and where ours has some only, means of the same tasks."""
    every = _tasks_of(suite)
    runs = {row.series: row for row in overall.rows if row.suite == suite and row.cells[2] == "runs"}
    printed = {(a.algorithm, a.statistic): Published(*a[3:]) for a in published_aggregates() if a.suite == suite}
    first = len(overall.columns) - len(STATISTICS)

    def row(label: str, cell: Callable[[Column], Cell]) -> Row:
        # A verdict has no aggregate.
        cells = [cell(c) if c.series and c.kind != "verdict" else None for c in columns[2:]]
        return Row([label, None, *cells], suite)

    def whole(statistic: str) -> Callable[[Column], Cell]:
        def cell(column: Column) -> Cell:
            if column.group == "paper":
                return printed.get((column.label, statistic))
            found = runs[column.series]
            return found.cells[first + STATISTICS.index(statistic)] if found.cells[3] == len(every) else None

        return cell

    rows = [row(f"{statistic} of all {len(every)}", whole(statistic)) for statistic in STATISTICS]
    common = [task.name for task in every if all((task.name, preset) in finals for preset in mine)]
    if 0 < len(common) < len(every):

        def some(column: Column) -> Cell:
            if column.group == "paper":
                return _bare(np.mean(_published_values(column.label, common)))
            return mean_over_tasks(normalised({t: finals[t, column.label].scores for t in common}))

        rows.append(row(f"Mean of the {len(common)} with runs", some))
    return rows


def _final_table(finals: _Finals) -> Table:
    columns = [
        Column("task", "text"),
        Column("preset", "text"),
        Column("agent steps", "count"),
        Column("budget", "count"),
        Column("seeds", "count"),
        Column("score", "score"),
        Column("normalised", "unit"),
        Column("in print", "score"),
        Column("verdict", "verdict"),
    ]
    rows = []
    for final in finals.values():
        name, known = counterpart(final.preset), paper_tasks().get(final.task)
        published = published_score(final.task, name) if name else None
        unit = Estimate(*map(known.normalise, final.estimate)) if known else None
        cells: list[Cell] = [final.task, final.preset, final.step, final.budget, len(final.scores), final.estimate]
        said = final.verdict if published else None
        rows.append(Row([*cells, unit, published, said], _suite(final.task), final.task, ours(final.preset)))
    return Table("finals", "Final scores and verdicts", columns, rows, [], [], "")


def _comparisons(
    suites: list[str], presets: list[str], base: str, results: list[Result]
) -> list[tuple[str, str, Comparison]]:
    """(suite, preset, its comparison with the base), where they have tasks in common."""
    budgets = {name: task.agent_steps for name, task in paper_tasks().items()}
    sides: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        if result.agent_steps <= budgets.get(result.task, result.agent_steps):
            sides.setdefault((_suite(result.task), result.preset), []).append(result)
    found = []
    for suite in suites:
        for preset in presets:
            if preset == base or (suite, preset) not in sides or (suite, base) not in sides:
                continue
            try:
                pair = compare(sides[suite, preset], sides[suite, base], (preset, base))
            except ValueError:  # no task in common
                continue
            found.append((suite, preset, pair))
    return found


def _improvement_table(comparisons: list[tuple[str, str, Comparison]], base: str) -> Table:
    columns = [
        Column("suite", "text"),
        Column("preset", "text"),
        Column("compared with", "text"),
        Column("tasks", "count"),
        Column("difference, normalised", "unit"),
        Column("probability of improvement", "unit"),
    ]
    rows = [
        Row(
            [SUITE_TITLES[suite], preset, base, len(pair.tasks), pair.difference, pair.improvement],
            suite,
            series=ours(preset),
        )
        for suite, preset, pair in comparisons
        if pair.difference is not None
    ]
    missing = (
        "It compares single runs of two presets on the same tasks, and there is only one preset here. The paper prints "
        "means, not runs, so it cannot be had against the paper."
    )
    return Table("improvement", "Probability of improvement", columns, rows, [], [], missing)


def _ablation_table(comparisons: list[tuple[str, str, Comparison]], base: str) -> Table:
    columns = [
        Column("task", "text"),
        Column("preset", "text"),
        Column("agent steps", "count"),
        Column("seeds", "text"),
        Column("mean", "score"),
        Column(f"{base} mean", "score"),
        Column("difference", "signed"),
        Column("says", "text"),
        Column("P(better)", "unit"),
    ]
    rows = []
    for suite, preset, pair in comparisons:
        for row in pair.tasks:
            seeds = f"{row.seeds[0]} and {row.seeds[1]}"
            cells: list[Cell] = [row.task, preset, row.agent_steps, seeds, *row.means, row.difference, row.verdict]
            rows.append(Row([*cells, row.improvement], suite, row.task, ours(preset)))
    rows.sort(key=lambda row: _task_order(row.task))
    title = f"Presets beside {base}"
    return Table(
        "ablations",
        title,
        columns,
        rows,
        [],
        [],
        "Only one preset, or no task that two have: nothing to set side by side.",
    )


def _speed_table(runs: Sequence[RunRecord], labels: list[str]) -> Table:
    timings = [run_timing(run.folder) for run in runs]
    parts = list(dict.fromkeys(part for timing in timings for part in timing))
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
    for run, name, label, timing in zip(runs, _run_names(runs), labels, timings, strict=True):
        settings, seeds, total = run.info["settings"], len(run.evaluations), sum(timing.values())
        device = str(run.info.get("versions", {}).get("device", "not recorded"))
        speed: list[Cell] = [1000 * seeds / total, total] if total else ["not recorded", None]
        cells: list[Cell] = [name, settings["task"], label, device, seeds, *speed]
        cells += [timing.get(part) for part in parts]
        rows.append(Row(cells, _suite(settings["task"]), settings["task"], ours(label)))
    missing = "Not recorded: results from CSV files say nothing about speed."
    notes = [
        "By the clock of the loop: a part is what it waited for, so the device's work shows where it is first needed. "
        "Runs that shared a device with others have the rates of sharing it."
    ]
    return Table("speed", "Speed", columns, rows, [], notes if rows else [], missing)


def _settings_table(
    runs: Sequence[RunRecord], labels: list[str], defaults: Callable[[dict[str, Any]], dict[str, Any] | None] | None
) -> Table:
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for run, label in zip(runs, labels, strict=True):
        settings = run.info["settings"]
        usual = defaults(settings) if defaults else None
        here = {**settings.get("config", {}), **{name: settings[name] for name in _RUN_SETTINGS if name in settings}}
        if usual is None:
            groups.setdefault((label, "(preset)", "unknown to this version", ""), []).append(settings["task"])
            continue
        for name, value in here.items():
            before = usual.get(name)
            if _plain(value) != _plain(before):
                key = (label, name, _text(value), _text(before))
                groups.setdefault(key, []).append(settings["task"])
    columns = [
        Column("preset", "text"),
        Column("setting", "text"),
        Column("here", "text"),
        Column("by default", "text"),
        Column("runs", "count"),
        Column("tasks", "text"),
    ]
    rows = [Row([*key, len(tasks), _some(tasks)], series=ours(key[0])) for key, tasks in groups.items()]
    missing = (
        "None: every run has its preset's settings." if runs else "Not recorded: results from CSV files have none."
    )
    return Table("settings", "Settings that differ from the preset", columns, rows, [], [], missing)


def _versions_table(runs: Sequence[RunRecord]) -> Table:
    groups: dict[tuple[tuple[str, str], ...], int] = {}
    for run in runs:
        found = {name: _text(value) for name, value in run.info.get("versions", {}).items()}
        key = tuple(found.items())
        groups[key] = groups.get(key, 0) + 1
    names = list(dict.fromkeys(name for key in groups for name, _ in key))
    columns = [Column("runs", "count"), *(Column(name, "text") for name in names)]
    rows = [Row([count, *(dict(key).get(name) for name in names)]) for key, count in groups.items()]
    missing = "Not recorded: results from CSV files have none."
    return Table("versions", "Versions", columns, rows, [], [], missing)


def _run_names(runs: Sequence[RunRecord]) -> list[str]:
    """A run's folder; with the one above it where two have the same."""
    names = [run.folder.resolve().name for run in runs]
    return [
        name if names.count(name) == 1 else f"{run.folder.resolve().parent.name}/{name}"
        for run, name in zip(runs, names, strict=True)
    ]


def _facts(results: list[Result], runs: Sequence[RunRecord], tasks: list[str], presets: list[str]) -> list[str]:
    seeds = len({result[:3] for result in results})
    known = sum(task in paper_tasks() for task in tasks)
    facts = [
        f"{_count(len(tasks), 'task')}, {known} of the paper's {len(paper_tasks())}",
        f"{_count(len(presets), 'preset')}: {', '.join(presets)}",
        f"{_count(seeds, 'trained seed')}, {_count(len(results), 'evaluation')}",
    ]
    updated = max((str(run.info.get("updated", "")) for run in runs), default="")
    if updated:
        facts.append(f"last run updated {updated[:10]}")
    return facts


def _verdict_findings(final: Table) -> list[str]:
    by_preset: dict[str, list[str]] = {}
    for row in final.rows:
        said = row.cells[-1]
        if isinstance(said, Verdict):
            by_preset.setdefault(str(row.cells[1]), []).append(said.what)
    found = []
    for preset, whats in by_preset.items():
        order = [what for what in dict.fromkeys(("inside", "above", "below", *whats)) if what in whats]
        parts = ", ".join(f"{whats.count(what)} {what}" for what in order)
        found.append(f"{preset} beside the published {counterpart(preset)}, {_count(len(whats), 'task')}: {parts}.")
    return found


def _comparison_findings(comparisons: list[tuple[str, str, Comparison]], base: str) -> list[str]:
    found = []
    for preset in dict.fromkeys(preset for _, preset, _ in comparisons):
        rows = [row for _, name, pair in comparisons if name == preset for row in pair.tasks]
        says = [row.verdict for row in rows]
        parts = [
            f"{says.count(what)} {what}"
            for what in ("above", "below", "no difference seen", "too few seeds")
            if what in says
        ]
        found.append(f"{preset} beside {base}, {_count(len(rows), 'task')}: {', '.join(parts)}.")
    return found


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | list) else value


def _text(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _some(tasks: list[str]) -> str:
    names = list(dict.fromkeys(tasks))
    more = len(names) - _NAMED_TASKS
    return ", ".join(names[:_NAMED_TASKS]) + (f" and {more} more" if more > 0 else "")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


__all__ = ["Report", "build_report", "counterpart", "verdict"]
