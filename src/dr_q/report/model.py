"""What a report says, as numbers: computed here from results and runs, once, and written by no one else.

Tables (`tables.py`), sentences (`wording.py`), figures (`figures.py`) and the page (`html.py`) are made from a `Report`
and read nothing from each other.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dr_q.config import PRESETS, is_built_in
from dr_q.envs.families import known_tasks
from dr_q.kit import ConfigError, spelled
from dr_q.paper import (
    SUITES,
    Published,
    TaskInfo,
    algorithms,
    published_aggregates,
    published_score,
)
from dr_q.report.compare import Comparison, TaskComparison, compare, holm_corrected
from dr_q.report.grids import Grid, grids_of
from dr_q.report.numbers import count
from dr_q.report.reference import Reference, ReferenceComparison, compare_with_reference
from dr_q.report.results import Result, changes_of, train_command
from dr_q.report.statistics import (
    Estimate,
    Scores,
    aggregates,
    by_seed,
    common_steps,
    mean,
    mean_curve,
    normalised,
    profile,
    scores_in_budget,
)
from dr_q.report.verdicts import DIFFERENCE_VERDICTS, BudgetStage, PublishedVerdict, budget_stage, published_verdict
from dr_q.run_folder import RunRecord, run_timing, seed_steps_per_s
from dr_q.settings import SCHEDULE, STOP_RULES, is_complete, usual_settings

OTHER = "other"
"""The suite of tasks that no family knows."""
STATISTICS = ("Mean", "Median", "IQM", "Optimality gap")
PUBLISHED_STATISTICS = STATISTICS[:3]
PROFILE_POINTS = 61


class Task(NamedTuple):
    """A task with results."""

    name: str
    suite: str
    budget: int | None
    """Agent steps, the paper's for its tasks; None: no family knows the task."""
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
    """None: no family knows the task."""
    published: Published | None
    """The score of the algorithm that the preset is."""
    verdict: PublishedVerdict

    @property
    def stage(self) -> BudgetStage | None:
        """Where the score is against the budget; None: there is none."""
        return None if self.budget is None else budget_stage(self.step, self.budget)


class CommonGround(NamedTuple):
    """Where all presets of a suite can be compared: the tasks that all of them have, each at one step."""

    suite: str
    presets: list[str]
    steps: dict[str, int]
    """By task: the last step that all seeds of all these presets have. Empty: no task is common to all."""
    left_out: list[str]
    """Tasks that only some of the presets have, or that have no step in common."""
    own_steps_differ: bool
    """Whether some preset has later scores on these tasks than those that are compared."""


class SuiteAggregate(NamedTuple):
    """Aggregates of normalised scores over tasks of a suite: of a preset's runs, or published."""

    suite: str
    name: str
    """A preset, or an algorithm of the paper's."""
    ours: bool
    tasks: int
    complete: bool
    """Over all tasks of the suite. What is published over some of them is computed from published means."""
    at_budget: int | None
    """Tasks whose runs are at the paper's budget; None: published."""
    seeds: tuple[int, int] | None
    """The fewest and the most that a task has; None: published."""
    steps: tuple[int, int] | None
    """The fewest and the most agent steps at which a task is taken; None: published."""
    mean: Estimate | Published | None
    median: Estimate | Published | None
    iqm: Estimate | Published | None
    """None: it needs single runs, and those of the paper are not published."""
    optimality_gap: Estimate | None

    def value(self, statistic: str) -> Estimate | Published | None:
        """One of STATISTICS."""
        return (self.mean, self.median, self.iqm, self.optimality_gap)[STATISTICS.index(statistic)]


class SuiteMeans(NamedTuple):
    """Everyone's mean normalised score over the same tasks of a suite."""

    suite: str
    tasks: int
    complete: bool
    """Over all tasks of the suite."""
    same_steps: bool
    """Whether these are the last scores of every preset; otherwise some have later ones."""
    ours: dict[str, Estimate | Published]
    """By preset."""
    published: dict[str, Estimate | Published]
    """By algorithm."""


class Profile(NamedTuple):
    """The share of a preset's runs above each threshold."""

    suite: str
    preset: str
    seeds: tuple[int, int]
    """The fewest and the most that a task has."""
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
    command: str
    """That makes such a run."""
    agent_steps: int | None
    """How many it made; None: not recorded."""
    finished: bool
    seconds: float | None
    """Of the whole command; None: not recorded."""

    @property
    def seed_steps_per_s(self) -> float | None:
        """None: not recorded."""
        return seed_steps_per_s(self.milliseconds.values(), self.seeds)


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
        return self.name is not None and self.name not in (*SCHEDULE, *STOP_RULES)


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
    """The numbers of a report: what `build_report` returns and `write_report` takes."""

    base: str
    """The preset that the others are compared with."""
    presets: list[str]
    """All presets with results."""
    suites: list[str]
    """Suites with results, in the paper's order."""
    algorithms: list[str]
    """The published algorithms of these suites."""
    tasks: list[Task]
    """Tasks with results."""
    curves: list[Curve]
    """Learning curves, one for each task and preset."""
    without_common_step: list[tuple[str, str]]
    """(task, preset) whose seeds have no evaluated step in common; they are nowhere else in the report."""
    finals: list[Final]
    """Scores of each task and preset at the last step of the paper's budget that all its seeds have."""
    side_by_side: list[Final]
    """Scores of tasks that several presets have, each at the last step that all of these presets have."""
    grounds: list[CommonGround]
    """For each suite that a family of environments knows, the tasks and steps at which its presets are compared."""
    aggregates: list[SuiteAggregate]
    """Aggregates of each preset over the suite's common tasks, followed by those published for its algorithm."""
    own_aggregates: list[SuiteAggregate]
    """Aggregates over all own tasks of presets that have more tasks or later steps than the common ones. They are not
    comparable with others."""
    published_aggregates: list[SuiteAggregate]
    """Published aggregates of every algorithm, over all tasks of a suite."""
    common_means: list[SuiteMeans]
    """Means over the tasks that all presets have, for suites of which these are some and not all."""
    profiles: list[Profile]
    """Performance profiles of each suite and preset."""
    comparisons: list[PresetComparison]
    """Comparisons of each preset with the base, by suite."""
    grids: list[Grid]
    """Scores by setting, for presets whose runs differ in one or two settings."""
    references: list[str]
    """Names of the references."""
    reference_curves: list[Curve]
    """Curves of the references on tasks with results, up to the last step of our runs."""
    reference_comparisons: list[ReferenceComparison]
    """Comparisons of each preset with each reference."""
    runs: list[RunSummary]
    """Speed, versions and command of each run."""
    changed: list[ChangedSetting]
    """Settings of runs that differ from those of their preset."""
    evaluations: int
    """Number of results."""
    trained_seeds: int
    """Number of seeds, over all tasks and presets."""
    updated: str
    """When the last run was updated; empty if that is not recorded."""

    def published_counts(self) -> list[VerdictCounts]:
        """Count the tasks on which the mean of a preset is inside, above or below the published interval.

        Returns:
            Counts of verdicts, by preset.
        """
        by_preset: dict[str, list[str]] = {}
        for final in self.finals:
            if final.published is not None:
                by_preset.setdefault(final.preset, []).append(final.verdict.what)
        return [
            VerdictCounts(preset, counterpart(preset) or "", _counted(whats, ("inside", "above", "below", *whats)))
            for preset, whats in by_preset.items()
        ]

    def difference_counts(self) -> list[VerdictCounts]:
        """Count the tasks with each verdict, for each preset that is compared with the base.

        Returns:
            Counts of verdicts, by preset.
        """
        by_preset: dict[str, list[str]] = {}
        for found in self.comparisons:
            by_preset.setdefault(found.preset, []).extend(row.verdict for row in found.pair.tasks)
        return [
            VerdictCounts(preset, self.base, _counted(whats, DIFFERENCE_VERDICTS))
            for preset, whats in by_preset.items()
        ]

    def means_of(self, suite: str) -> SuiteMeans | None:
        """Mean normalised scores of all presets and published algorithms over the same tasks of a suite.

        Args:
            suite: The suite.

        Returns:
            The means over the tasks that all presets have; None if no runs count.
        """
        for found in self.common_means:
            if found.suite == suite:
                return found
        whole = [a for a in (*self.aggregates, *self.published_aggregates) if a.suite == suite and a.complete]
        ours = {a.name: a.mean for a in whole if a.ours and a.mean is not None}
        theirs = {a.name: a.mean for a in whole if not a.ours and a.mean is not None}
        if not ours:
            return None
        return SuiteMeans(suite, len(tasks_of(suite)), True, not self.ground_of(suite).own_steps_differ, ours, theirs)

    def ground_of(self, suite: str) -> CommonGround:
        """The tasks and steps at which the presets of a suite are compared.

        Args:
            suite: A suite that a family of environments knows.

        Returns:
            The tasks and steps.
        """
        return next(ground for ground in self.grounds if ground.suite == suite)


def build_report(
    results: Iterable[Result],
    labelled: Sequence[tuple[RunRecord, str]] = (),
    say: Callable[[str], None] = lambda line: None,
    base: str | None = None,
    at: int | None = None,
    references: Sequence[Reference] = (),
    compare_at: Sequence[int] = (),
) -> Report:
    """Compute the numbers of a report.

    Args:
        results: Evaluations, of any tasks and presets.
        labelled: The runs that they are from, with their labels: what `labelled_runs` returned.
        say: A function that is called with a line for each part that is computed.
        base: The preset that others are compared with. Default: `"dr.q"`; where that is missing, the first
            preset that is built in, or the first.
        at: Agent steps at which scores are taken, or the last evaluation before. Default: the last that all seeds have.
        references: What `read_references` returned; every preset is compared with each.
        compare_at: Agent steps at which references are compared. Default: for each task the last that both sides have.

    Returns:
        The numbers, for `write_report`.

    Raises:
        ConfigError: There are no results, or none of `base`, none up to `at`, or none in common with a reference.

    Example:
        ```python
        results = dr_q.report.read_results(["runs"])
        report = dr_q.report.build_report(results, dr_q.report.labelled_runs([Path("runs")]), at=100_000)
        for final in report.finals:
            print(final.task, final.preset, final.estimate)
        ```
    """
    results = list(results)
    if not results:
        raise ConfigError("there is no evaluation to report on yet")
    presets = sorted({result.preset for result in results}, key=_preset_order)
    if base is not None and base not in presets:
        raise ConfigError(f"no results of preset '{base}' to compare with; there are {', '.join(presets)}")
    base = base or next((name for name in presets if name == "dr.q"), None)
    base = base or next((name for name in presets if is_built_in(name)), presets[0])  # one's own is not the baseline
    if at is not None and not any(result.agent_steps <= at for result in results):
        first = min(result.agent_steps for result in results)
        raise ConfigError(f"no evaluation up to {at:,} steps; the first is at {first:,}")
    by: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        by.setdefault((result.task, result.preset), []).append(result)
    tasks = sorted({result.task for result in results}, key=task_order)
    suites = [name for name in (*known_suites(), OTHER) if any(suite_of(task) == name for task in tasks)]
    say(f"learning curves of {count(len(tasks), 'task')}")
    pairs = [(task, preset) for task in tasks for preset in presets if (task, preset) in by]
    curves = [_curve(*pair, by[pair]) for pair in pairs]
    finals = {
        (c.task, c.preset): _final(c.task, c.preset, by[c.task, c.preset], at)
        for c in curves
        if c.steps and (at is None or c.steps[0] <= at)
    }
    say(f"aggregates and profiles of {count(len(suites), 'suite')}")
    known = [suite for suite in suites if suite != OTHER]
    published = [_published_whole(suite, name) for suite in known for name in algorithms(suite)]
    grounds = [_common_ground(suite, presets, by, finals, at) for suite in known]
    compared = {
        (task, preset): _final(task, preset, by[task, preset], step)
        for ground in grounds
        for task, step in ground.steps.items()
        for preset in ground.presets
    }
    overall = [found for suite in known for found in _aggregates(suite, presets, compared, published)]
    profiles = _profiles(known, presets, compared)
    say(f"comparisons with {base}")
    return Report(
        base=base,
        presets=presets,
        suites=suites,
        algorithms=[name for name in algorithms() if any(name in algorithms(suite) for suite in known)],
        tasks=[_task(name) for name in tasks],
        curves=[curve for curve in curves if curve.steps],
        without_common_step=[(curve.task, curve.preset) for curve in curves if not curve.steps],
        finals=list(finals.values()),
        side_by_side=_side_by_side(by, finals, at),
        grounds=grounds,
        aggregates=overall,
        own_aggregates=[found for ground in grounds for found in _own_aggregates(ground, finals, published)],
        published_aggregates=published,
        common_means=[found for ground in grounds if (found := _common_means(ground, overall))],
        profiles=profiles,
        comparisons=_comparisons(suites, presets, base, results, at),
        grids=grids_of(labelled, results, at),
        references=[reference.name for reference in references],
        reference_curves=_reference_curves(references, results),
        reference_comparisons=_reference_comparisons(results, presets, references, compare_at or (None,)),
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
    """The least and the largest share of the budget that scores are at; None: none is before its end."""
    finals = list(finals)
    if not any(final.stage == "before" for final in finals):
        return None
    shares = [final.step / final.budget for final in finals if final.budget]
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


def _final(task: str, preset: str, results: list[Result], at: int | None = None) -> Final:
    known, name = known_tasks().get(task), counterpart(preset)
    budget = known.agent_steps if known else None
    early = [result for result in results if at is None or result.agent_steps <= at]
    scores, steps = scores_in_budget(early, budget)
    estimate = mean(scores[task].values())
    unit = Estimate(*map(known.normalise, estimate)) if known else None
    published = published_score(task, name) if name else None
    verdict = published_verdict(estimate, len(scores[task]), steps[task], budget, published)
    return Final(task, suite_of(task), preset, steps[task], budget, scores[task], estimate, unit, published, verdict)


_Finals = dict[tuple[str, str], Final]


def _common_ground(
    suite: str,
    presets: list[str],
    by: dict[tuple[str, str], list[Result]],
    finals: _Finals,
    at: int | None,
) -> CommonGround:
    """The tasks and steps that all presets of a suite have, within the budget where there are such steps."""
    mine = [preset for preset in presets if any(f.preset == preset and f.suite == suite for f in finals.values())]
    steps: dict[str, int] = {}
    left_out = []
    for info in tasks_of(suite):
        having = [preset for preset in mine if (info.name, preset) in finals]
        step = _last_in_budget(info.name, [by[info.name, preset] for preset in having], at)
        if len(having) == len(mine) and step is not None:
            steps[info.name] = step
        elif having:
            left_out.append(info.name)
    differ = any(finals[task, preset].step != step for task, step in steps.items() for preset in mine)
    return CommonGround(suite, mine, steps, left_out, differ)


def _normalised(finals: _Finals, suite: str, preset: str) -> Scores:
    return normalised({f.task: f.scores for f in finals.values() if f.preset == preset and f.suite == suite})


def _side_by_side(by: dict[tuple[str, str], list[Result]], finals: _Finals, at: int | None) -> list[Final]:
    presets: dict[str, list[str]] = {}
    for task, preset in finals:
        presets.setdefault(task, []).append(preset)
    found = []
    for task, having in presets.items():
        step = _last_in_budget(task, [by[task, preset] for preset in having], at)
        if len(having) > 1 and step is not None:
            found += [_final(task, preset, by[task, preset], step) for preset in having]
    return found


def _last_in_budget(task: str, sides: Iterable[list[Result]], at: int | None) -> int | None:
    """The last step that all seeds of all sides have, within the budget where there is one; None: there is none."""
    known = known_tasks().get(task)
    shared = common_steps([curve for side in sides for curve in by_seed(side).values()], at)
    within = [step for step in shared if known is None or step <= known.agent_steps] or shared
    return within[-1] if within else None


def _aggregates(
    suite: str, presets: list[str], finals: _Finals, published: list[SuiteAggregate]
) -> Iterable[SuiteAggregate]:
    every = len(tasks_of(suite))
    for preset in presets:
        scores = _normalised(finals, suite, preset)
        if not scores:
            continue
        found, complete = aggregates(scores), len(scores) == every
        at_budget = sum(finals[task, preset].stage == "at" for task in scores)
        steps = [finals[task, preset].step for task in scores]
        about = (suite, preset, True, found.tasks, complete, at_budget, found.seeds, (min(steps), max(steps)))
        yield SuiteAggregate(*about, found.mean, found.median, found.iqm, found.optimality_gap)
        name = counterpart(preset)
        if name in algorithms(suite):
            whole = next(a for a in published if (a.suite, a.name) == (suite, name))
            yield whole if complete else _published_part(suite, name, sorted(scores))


def _own_aggregates(ground: CommonGround, finals: _Finals, published: list[SuiteAggregate]) -> Iterable[SuiteAggregate]:
    """Of the presets that have other tasks or steps than the common ground."""
    for preset in ground.presets:
        own = {f.task: f.step for f in finals.values() if f.preset == preset and f.suite == ground.suite}
        if own != ground.steps:
            yield from (found for found in _aggregates(ground.suite, [preset], finals, published) if found.ours)


def _published_whole(suite: str, name: str) -> SuiteAggregate:
    printed = {a.statistic: Published(*a[3:]) for a in published_aggregates() if a[:2] == (suite, name)}
    mean, median, iqm = (printed.get(statistic) for statistic in PUBLISHED_STATISTICS)
    return SuiteAggregate(suite, name, False, len(tasks_of(suite)), True, None, None, None, mean, median, iqm, None)


def _published_part(suite: str, name: str, tasks: Sequence[str]) -> SuiteAggregate:
    values = _published_values(name, tasks)
    average, median = _bare(np.mean(values)), _bare(np.median(values))
    return SuiteAggregate(suite, name, False, len(tasks), False, None, None, None, average, median, None, None)


def _published_values(name: str, tasks: Iterable[str]) -> list[float]:
    scores = {task: published_score(task, name) for task in tasks}
    return [known_tasks()[task].normalise(score.mean) for task, score in scores.items() if score is not None]


def _bare(value: Any) -> Estimate:
    return Estimate(float(value), math.nan, math.nan)


def _common_means(ground: CommonGround, overall: list[SuiteAggregate]) -> SuiteMeans | None:
    """Over the tasks that every preset of the suite has; None where these are none, or all."""
    if not 0 < len(ground.steps) < len(tasks_of(ground.suite)):
        return None
    ours = {a.name: a.mean for a in overall if a.suite == ground.suite and a.ours and a.mean is not None}
    theirs: dict[str, Estimate | Published] = {
        name: _bare(np.mean(_published_values(name, ground.steps))) for name in algorithms(ground.suite)
    }
    return SuiteMeans(ground.suite, len(ground.steps), False, not ground.own_steps_differ, ours, theirs)


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
                counts = [len(seeds) for seeds in side.values()]
                seeds, shares = (min(counts), max(counts)), profile(side, thresholds)
                found.append(Profile(suite, preset, seeds, len(side), [float(x) for x in thresholds], shares))
    return found


def _comparisons(
    suites: list[str], presets: list[str], base: str, results: list[Result], at: int | None
) -> list[PresetComparison]:
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
                pair = compare(sides[suite, preset], sides[suite, base], (preset, base), at)
            except ConfigError:  # no task in common
                continue
            found.append(PresetComparison(suite, preset, pair))
    return _corrected_over_suites(found)


def _reference_curves(references: Sequence[Reference], results: list[Result]) -> list[Curve]:
    last: dict[str, int] = {}
    for result in results:
        last[result.task] = max(last.get(result.task, 0), result.agent_steps)
    found = []
    for reference in references:
        by: dict[str, list[Result]] = {}
        for result in reference.results:
            if result.agent_steps <= last.get(result.task, -1):
                by.setdefault(result.task, []).append(result)
        curves = [_curve(task, reference.name, own) for task, own in by.items()]
        found += [curve for curve in curves if curve.steps]
    return found


def _reference_comparisons(
    results: list[Result], presets: list[str], references: Sequence[Reference], steps: Sequence[int | None]
) -> list[ReferenceComparison]:
    found = []
    for reference in references:
        of_one = [compare_with_reference(results, reference, preset, at) for preset in presets for at in steps]
        if not any(of_one):
            at = " or ".join(f"{step:,}" for step in steps if step is not None)
            raise ConfigError(
                f"our results and {reference.name} have no task in common"
                + (f" at {at} steps" if at else "")
                + "; compare other steps, or give another "
                + spelled("reference")
            )
        found += [one for one in of_one if one is not None]
    return found


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
        task, versions = run.info["settings"]["task"], _versions(run.info)
        timing, info = run_timing(run.folder), run.info
        found.append(
            RunSummary(
                alone,
                task,
                suite_of(task),
                label,
                len(run.evaluations),
                timing,
                versions,
                _command(info),
                info.get("agent_steps"),
                is_complete(info),
                info.get("seconds"),
            )
        )
    return found


def _versions(info: dict[str, Any]) -> dict[str, Any]:
    """Those of run.json; the source with those before it, where a run was resumed with another."""
    versions = info.get("versions", {})
    before = [(part["source"], part["until"]) for part in info.get("earlier_versions", []) if "source" in part]
    earlier = [f"{source} until step {until:,}" for source, until in before if source != versions.get("source")]
    if not earlier:
        return versions
    return {**versions, "source": f"{', '.join(earlier)}, then {versions.get('source', 'not recorded')}"}


def _command(info: dict[str, Any]) -> str:
    """What makes such a run; nothing where the record is too old to say."""
    if not {"seeds", "first_seed"} <= info["settings"].keys():
        return ""
    return train_command({**info, "changed": changes_of(info)})


def _changed(run: RunRecord, label: str) -> Iterable[ChangedSetting]:
    settings = run.info["settings"]
    usual = usual_settings(settings["task"], settings["preset"])
    if settings["preset"] not in PRESETS and "changed" not in run.info:
        yield ChangedSetting(label, settings["task"], None, None, None)
    of_run = {name: settings[name] for name in (*SCHEDULE, *STOP_RULES, "num_envs", "noise_dims") if name in settings}
    of_run = {name: value for name, value in of_run.items() if value != usual[name]}
    for name, value in {**changes_of(run.info), **of_run}.items():
        yield ChangedSetting(label, settings["task"], name, value, usual.get(name))
