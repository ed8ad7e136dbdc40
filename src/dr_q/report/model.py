"""What a report says, as numbers: computed here from results and runs, once, and written by no one else.

Tables (`tables.py`), sentences (`wording.py`), figures (`figures.py`) and the page (`html.py`) are made from a `Report`
and read nothing from each other.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dr_q.config import PRESETS
from dr_q.envs.families import known_tasks
from dr_q.kit import ConfigError
from dr_q.paper import (
    SUITES,
    Published,
    TaskInfo,
    algorithms,
    published_aggregates,
    published_score,
)
from dr_q.report.compare import Comparison, TaskComparison, compare, holm_corrected
from dr_q.report.results import Result, changes_of
from dr_q.report.statistics import (
    Estimate,
    Scores,
    aggregates,
    by_seed,
    mean,
    mean_curve,
    mean_over_tasks,
    normalised,
    profile,
    scores_in_budget,
)
from dr_q.report.verdicts import DIFFERENCE_VERDICTS, PublishedVerdict, published_verdict
from dr_q.run_folder import RunRecord, run_timing
from dr_q.settings import SCHEDULE, usual_settings

OTHER = "other"
"""The suite of tasks that are not the paper's."""
STATISTICS = ("Mean", "Median", "IQM")
PROFILE_POINTS = 61


class Task(NamedTuple):
    """A task with results."""

    name: str
    suite: str
    budget: int | None
    """The paper's agent steps; None: the task is not in the paper."""
    published: dict[str, Published]
    """By algorithm."""


class Curve(NamedTuple):
    """Mean over seeds at every step that all of them have."""

    task: str
    suite: str
    preset: str
    seeds: int
    steps: list[int]
    values: list[Estimate]


class Final(NamedTuple):
    """A preset on a task at the last step of the paper's budget that all seeds have."""

    task: str
    suite: str
    preset: str
    step: int
    budget: int | None
    scores: dict[int, float]
    """By seed."""
    estimate: Estimate
    normalised: Estimate | None
    """None: the task is not in the paper."""
    published: Published | None
    """The score of the algorithm that the preset is."""
    verdict: PublishedVerdict

    @property
    def at_budget(self) -> bool:
        """Whether the score is that of the paper's budget."""
        return self.step == self.budget


class SuiteAggregate(NamedTuple):
    """Mean, median and IQM of normalised scores over tasks of a suite: of a preset's runs, or published."""

    suite: str
    name: str
    """A preset, or an algorithm of the paper's."""
    ours: bool
    tasks: int
    complete: bool
    """Over all tasks of the suite. What is published over some of them is computed from published means."""
    at_budget: int | None
    """Tasks whose runs are at the paper's budget; None: published."""
    seeds: int | None
    mean: Estimate | Published | None
    median: Estimate | Published | None
    iqm: Estimate | Published | None
    """None: it needs single runs, and those of the paper are not published."""

    def value(self, statistic: str) -> Estimate | Published | None:
        """One of STATISTICS."""
        return (self.mean, self.median, self.iqm)[STATISTICS.index(statistic)]


class SuiteMeans(NamedTuple):
    """Everyone's mean normalised score over the same tasks of a suite."""

    suite: str
    tasks: int
    complete: bool
    """Over all tasks of the suite."""
    ours: dict[str, Estimate | Published]
    """By preset."""
    published: dict[str, Estimate | Published]
    """By algorithm."""


class Profile(NamedTuple):
    """The share of a preset's runs above each threshold."""

    suite: str
    preset: str
    seeds: int
    tasks: int
    thresholds: list[float]
    shares: list[Estimate]


class PresetComparison(NamedTuple):
    """A preset and the base on the tasks of a suite that both have."""

    suite: str
    preset: str
    pair: Comparison
    """The preset minus the base. p-values are Holm-corrected for the tasks of all suites."""


class RunSummary(NamedTuple):
    """How fast a run was, and on what."""

    name: str
    """Its folder; with the one above it where two have the same."""
    task: str
    suite: str
    preset: str
    seeds: int
    milliseconds: dict[str, float]
    """Of an agent step of all seeds, by part; empty: not recorded."""
    versions: dict[str, Any]
    """Of packages, the device and the source, as run.json says."""

    @property
    def step_milliseconds(self) -> float:
        """Of an agent step of all seeds; 0: not recorded."""
        return sum(self.milliseconds.values(), 0.0)


class ChangedSetting(NamedTuple):
    """A setting of a run that is not its preset's."""

    preset: str
    task: str
    name: str | None
    """None: this version does not know the preset, and so cannot compare."""
    value: Any
    default: Any

    @property
    def of_algorithm(self) -> bool:
        """Whether scores depend on it by more than the length of the run."""
        return self.name is not None and self.name not in SCHEDULE


class VerdictCounts(NamedTuple):
    """On how many tasks each verdict is given."""

    preset: str
    compared_with: str
    """The published algorithm, or the base."""
    counts: dict[str, int]

    @property
    def tasks(self) -> int:
        """All of them."""
        return sum(self.counts.values())


class Report(NamedTuple):
    """All of it."""

    base: str
    """The preset that the others are compared with."""
    presets: list[str]
    suites: list[str]
    """Those with results, in the paper's order."""
    algorithms: list[str]
    """The published ones of these suites."""
    tasks: list[Task]
    curves: list[Curve]
    without_common_step: list[tuple[str, str]]
    """(task, preset) whose seeds share no evaluated step; they are nowhere else."""
    finals: list[Final]
    aggregates: list[SuiteAggregate]
    """Of each preset, followed by the published ones of the algorithm that it is, over the same tasks."""
    published_aggregates: list[SuiteAggregate]
    """Of every algorithm, over all tasks of a suite."""
    common_means: list[SuiteMeans]
    """Of suites of which all presets have run some tasks, and not all: over these."""
    profiles: list[Profile]
    comparisons: list[PresetComparison]
    runs: list[RunSummary]
    changed: list[ChangedSetting]
    evaluations: int
    trained_seeds: int
    updated: str
    """When the last run was; empty: not recorded."""

    def published_counts(self) -> list[VerdictCounts]:
        """For each preset that the paper has a score of: where its means lie against the published intervals."""
        by_preset: dict[str, list[str]] = {}
        for final in self.finals:
            if final.published is not None:
                by_preset.setdefault(final.preset, []).append(final.verdict.what)
        return [
            VerdictCounts(preset, counterpart(preset) or "", _counted(whats, ("inside", "above", "below", *whats)))
            for preset, whats in by_preset.items()
        ]

    def difference_counts(self) -> list[VerdictCounts]:
        """For each preset that is compared with the base: on how many tasks they differ."""
        by_preset: dict[str, list[str]] = {}
        for found in self.comparisons:
            by_preset.setdefault(found.preset, []).extend(row.verdict for row in found.pair.tasks)
        return [
            VerdictCounts(preset, self.base, _counted(whats, DIFFERENCE_VERDICTS))
            for preset, whats in by_preset.items()
        ]

    def means_of(self, suite: str) -> SuiteMeans | None:
        """Everyone's mean over the same tasks: of those that all presets have run, else of all; None: no runs count."""
        for found in self.common_means:
            if found.suite == suite:
                return found
        whole = [a for a in (*self.aggregates, *self.published_aggregates) if a.suite == suite and a.complete]
        ours = {a.name: a.mean for a in whole if a.ours and a.mean is not None}
        theirs = {a.name: a.mean for a in whole if not a.ours and a.mean is not None}
        return SuiteMeans(suite, len(tasks_of(suite)), True, ours, theirs) if ours else None


def build_report(
    results: Iterable[Result],
    labelled: Sequence[tuple[RunRecord, str]] = (),
    say: Callable[[str], None] = lambda line: None,
    base: str | None = None,
) -> Report:
    """The numbers of a report.

    Args:
        results: evaluations, of any tasks and presets.
        labelled: the runs that they are from, each with what its results are listed under (`labelled_runs`).
        say: called with a line for each part that is computed.
        base: the preset that others are compared with; by default dr.q, or the first where that is not among them.

    Raises:
        ConfigError: there are no results, or none of `base`.
    """
    results = list(results)
    if not results:
        raise ConfigError("there is no evaluation to report on yet")
    presets = sorted({result.preset for result in results}, key=_preset_order)
    if base is not None and base not in presets:
        raise ConfigError(f"no results of preset '{base}' to compare with; there are {', '.join(presets)}")
    base = base or ("dr.q" if "dr.q" in presets else presets[0])
    by: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        by.setdefault((result.task, result.preset), []).append(result)
    tasks = sorted({result.task for result in results}, key=task_order)
    suites = [name for name in (*known_suites(), OTHER) if any(suite_of(task) == name for task in tasks)]
    say(f"learning curves of {len(tasks):,} task{'' if len(tasks) == 1 else 's'}")
    pairs = [(task, preset) for task in tasks for preset in presets if (task, preset) in by]
    curves = [_curve(*pair, by[pair]) for pair in pairs]
    finals = {(c.task, c.preset): _final(c.task, c.preset, by[c.task, c.preset]) for c in curves if c.steps}
    say(f"aggregates and profiles of {len(suites):,} suite{'' if len(suites) == 1 else 's'}")
    papers = [suite for suite in suites if suite != OTHER]
    published = [_published_whole(suite, name) for suite in papers for name in algorithms(suite)]
    overall = [found for suite in papers for found in _aggregates(suite, presets, finals, published)]
    profiles = _profiles(suites, presets, finals)
    say(f"comparisons with {base}")
    return Report(
        base=base,
        presets=presets,
        suites=suites,
        algorithms=[name for name in algorithms() if any(name in algorithms(suite) for suite in papers)],
        tasks=[_task(name) for name in tasks],
        curves=[curve for curve in curves if curve.steps],
        without_common_step=[(curve.task, curve.preset) for curve in curves if not curve.steps],
        finals=list(finals.values()),
        aggregates=overall,
        published_aggregates=published,
        common_means=[found for suite in papers if (found := _common_means(suite, presets, finals))],
        profiles=profiles,
        comparisons=_comparisons(suites, presets, base, results),
        runs=_runs(labelled),
        changed=[found for run, label in labelled for found in _changed(run, label)],
        evaluations=len(results),
        trained_seeds=len({result[:3] for result in results}),
        updated=max((str(run.info.get("updated", "")) for run, _ in labelled), default=""),
    )


def counterpart(preset: str) -> str | None:
    """The published algorithm that a preset is."""
    return next((name for name in algorithms() if name.lower() == preset.lower()), None)


def suite_of(task: str) -> str:
    """The suite of a task that a family knows, or OTHER."""
    known = known_tasks().get(task)
    return known.suite if known else OTHER


def tasks_of(suite: str) -> list[TaskInfo]:
    """The tasks of a suite, in its order."""
    return [task for task in known_tasks().values() if task.suite == suite]


def known_suites() -> list[str]:
    """The paper's suites in its order, then those of other families."""
    return list(dict.fromkeys((*SUITES, *(task.suite for task in known_tasks().values()))))


def task_order(name: str) -> tuple:
    """By which tasks are sorted: those of suites in their order, then others by name."""
    order, suites = list(known_tasks()), known_suites()
    return (suites.index(suite_of(name)), order.index(name)) if name in order else (len(suites), name)


def budget_shares(finals: Iterable[Final]) -> tuple[float, float] | None:
    """The least and the largest share of the paper's budget that scores are at; None: all are at its end."""
    known = [(final.step, final.budget) for final in finals if final.budget]
    if all(step >= budget for step, budget in known):
        return None
    shares = [step / budget for step, budget in known]
    return min(shares), max(shares)


def _preset_order(name: str) -> tuple:
    return (name != "dr.q", counterpart(name) is None, name.lower(), name)


def _counted(whats: Sequence[str], order: Iterable[str]) -> dict[str, int]:
    return {what: whats.count(what) for what in dict.fromkeys(order) if what in whats}


def _task(name: str) -> Task:
    known = known_tasks().get(name)
    cells = {algorithm: published_score(name, algorithm) for algorithm in algorithms()}
    published = {algorithm: cell for algorithm, cell in cells.items() if cell is not None}
    return Task(name, suite_of(name), known.agent_steps if known else None, published)


def _curve(task: str, preset: str, results: list[Result]) -> Curve:
    found = mean_curve(by_seed(results))
    return Curve(task, suite_of(task), preset, found.seeds, found.steps, found.values)


def _final(task: str, preset: str, results: list[Result]) -> Final:
    known, name = known_tasks().get(task), counterpart(preset)
    budget = known.agent_steps if known else None
    scores, steps = scores_in_budget(results, budget)
    estimate = mean(scores[task].values())
    unit = Estimate(*map(known.normalise, estimate)) if known else None
    published = published_score(task, name) if name else None
    verdict = published_verdict(estimate, len(scores[task]), steps[task], budget, published)
    return Final(task, suite_of(task), preset, steps[task], budget, scores[task], estimate, unit, published, verdict)


_Finals = dict[tuple[str, str], Final]


def _normalised(finals: _Finals, suite: str, preset: str) -> Scores:
    return normalised({f.task: f.scores for f in finals.values() if f.preset == preset and f.suite == suite})


def _aggregates(
    suite: str, presets: list[str], finals: _Finals, published: list[SuiteAggregate]
) -> Iterable[SuiteAggregate]:
    every = len(tasks_of(suite))
    for preset in presets:
        scores = _normalised(finals, suite, preset)
        if not scores:
            continue
        found, complete = aggregates(scores), len(scores) == every
        at_budget = sum(finals[task, preset].at_budget for task in scores)
        yield SuiteAggregate(
            suite, preset, True, found.tasks, complete, at_budget, found.seeds, found.mean, found.median, found.iqm
        )
        name = counterpart(preset)
        if name in algorithms(suite):
            whole = next(a for a in published if (a.suite, a.name) == (suite, name))
            yield whole if complete else _published_part(suite, name, sorted(scores))


def _published_whole(suite: str, name: str) -> SuiteAggregate:
    printed = {a.statistic: Published(*a[3:]) for a in published_aggregates() if a[:2] == (suite, name)}
    values = [printed.get(statistic) for statistic in STATISTICS]
    return SuiteAggregate(suite, name, False, len(tasks_of(suite)), True, None, None, *values)


def _published_part(suite: str, name: str, tasks: Sequence[str]) -> SuiteAggregate:
    values = _published_values(name, tasks)
    average, median = _bare(np.mean(values)), _bare(np.median(values))
    return SuiteAggregate(suite, name, False, len(tasks), False, None, None, average, median, None)


def _published_values(name: str, tasks: Iterable[str]) -> list[float]:
    scores = {task: published_score(task, name) for task in tasks}
    return [known_tasks()[task].normalise(score.mean) for task, score in scores.items() if score is not None]


def _bare(value: Any) -> Estimate:
    return Estimate(float(value), math.nan, math.nan)


def _common_means(suite: str, presets: list[str], finals: _Finals) -> SuiteMeans | None:
    """Over the tasks that every preset of the suite has; None where these are none, or all."""
    every = [task.name for task in tasks_of(suite)]
    mine = [preset for preset in presets if any((task, preset) in finals for task in every)]
    common = [task for task in every if all((task, preset) in finals for preset in mine)]
    if not 0 < len(common) < len(every):
        return None
    ours: dict[str, Estimate | Published] = {
        preset: mean_over_tasks(normalised({task: finals[task, preset].scores for task in common})) for preset in mine
    }
    theirs: dict[str, Estimate | Published] = {
        name: _bare(np.mean(_published_values(name, common))) for name in algorithms(suite)
    }
    return SuiteMeans(suite, len(common), False, ours, theirs)


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


def _comparisons(suites: list[str], presets: list[str], base: str, results: list[Result]) -> list[PresetComparison]:
    """Of each suite and preset that has tasks in common with the base, up to the paper's budget."""
    budgets = {name: task.agent_steps for name, task in known_tasks().items()}
    sides: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        if result.agent_steps <= budgets.get(result.task, result.agent_steps):
            sides.setdefault((suite_of(result.task), result.preset), []).append(result)
    found = []
    for suite in suites:
        for preset in presets:
            if preset == base or (suite, preset) not in sides or (suite, base) not in sides:
                continue
            try:
                pair = compare(sides[suite, preset], sides[suite, base], (preset, base))
            except ValueError:  # no task in common
                continue
            found.append(PresetComparison(suite, preset, pair))
    return _corrected_over_suites(found)


def _corrected_over_suites(comparisons: list[PresetComparison]) -> list[PresetComparison]:
    """p-values corrected for all tasks of a preset, as in `dr-q compare` with the base, and not for one suite's."""
    corrected: dict[tuple[str, str], TaskComparison] = {}
    for preset in dict.fromkeys(found.preset for found in comparisons):
        rows = [row for found in comparisons if found.preset == preset for row in found.pair.tasks]
        corrected |= {(preset, row.task): row for row in holm_corrected(rows)}
    return [
        found._replace(pair=found.pair._replace(tasks=[corrected[found.preset, row.task] for row in found.pair.tasks]))
        for found in comparisons
    ]


def _runs(labelled: Sequence[tuple[RunRecord, str]]) -> list[RunSummary]:
    names = [run.folder.resolve().name for run, _ in labelled]
    found = []
    for (run, label), name in zip(labelled, names, strict=True):
        alone = name if names.count(name) == 1 else f"{run.folder.resolve().parent.name}/{name}"
        task, versions = run.info["settings"]["task"], run.info.get("versions", {})
        timing = run_timing(run.folder)
        found.append(RunSummary(alone, task, suite_of(task), label, len(run.evaluations), timing, versions))
    return found


def _changed(run: RunRecord, label: str) -> Iterable[ChangedSetting]:
    settings = run.info["settings"]
    usual = usual_settings(settings["task"], settings["preset"])
    if settings["preset"] not in PRESETS and "changed" not in run.info:
        yield ChangedSetting(label, settings["task"], None, None, None)
    of_run = {name: settings[name] for name in (*SCHEDULE, "noise_dims") if name in settings}
    of_run = {name: value for name, value in of_run.items() if value != usual[name]}
    for name, value in {**changes_of(run.info), **of_run}.items():
        yield ChangedSetting(label, settings["task"], name, value, usual.get(name))


__all__ = ["Report", "build_report", "counterpart"]
