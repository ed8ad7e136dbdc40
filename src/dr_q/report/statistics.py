"""Statistics over seeds and tasks: what a few runs can say, and what they cannot.

Aggregates are those of Agarwal et al. (2021), with intervals by a stratified bootstrap: seeds are drawn anew within
each task. All seeds count and every task has the same weight. Where tasks have equally many seeds, the values are
rliable's.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dr_q.envs.families import known_tasks
from dr_q.report.results import Result

CONFIDENCE = 0.95
REPETITIONS = 2_000
"""Of the bootstrap."""
FEWEST_SEEDS = 3
"""Under which no interval is given."""
Scores = dict[str, dict[int, float]]
"""For each task the score of each seed."""
Curves = Mapping[int, Mapping[int, float]]
"""For each seed its score by agent steps."""


class Estimate(NamedTuple):
    """A value with its 95% confidence interval."""

    value: float
    """The value."""
    low: float
    """Lower end of the interval; NaN if there are too few seeds for one."""
    high: float
    """Upper end of the interval; NaN if there are too few seeds for one."""


class Aggregates(NamedTuple):
    """Of normalised scores over the tasks of one suite."""

    mean: Estimate
    """Over tasks, of each task's mean over its seeds."""
    median: Estimate
    """Over tasks, of each task's mean over its seeds."""
    iqm: Estimate
    """Interquartile mean: of the middle half of all runs, each task with the same weight."""
    optimality_gap: Estimate
    """How far runs fall short of a normalised score of 1, on average; lower is better."""
    seeds: tuple[int, int]
    """The fewest and the most that a task has."""
    tasks: int


class MeanCurve(NamedTuple):
    """A learning curve: the mean over seeds at every step that all of them were evaluated at."""

    steps: list[int]
    values: list[Estimate]
    """One for each step."""
    seeds: int


class Sample(NamedTuple):
    """The scores of several seeds, summarised."""

    mean: float
    """Mean over seeds."""
    deviation: float
    """Standard deviation over seeds; NaN for one seed."""
    seeds: int
    """Number of seeds."""


def by_seed(results: Iterable[Result]) -> Curves:
    """Results of one task and preset as one learning curve for each seed."""
    found: dict[int, dict[int, float]] = {}
    for result in results:
        found.setdefault(result.seed, {})[result.agent_steps] = result.score
    return found


def common_steps(seeds: Iterable[Mapping[int, float]], at: int | None = None) -> list[int]:
    """The steps that every seed was evaluated at, in order; with `at` those up to it.

    Args:
        seeds: of each its score by agent steps; those of several presets may be given together.
        at: agent steps.
    """
    steps = [set(points) for points in seeds]
    return sorted(step for step in set.intersection(*steps) if at is None or step <= at) if steps else []


def scores_at(curves: Curves, step: int) -> dict[int, float]:
    """The score of each seed at a step that all of them have."""
    return {seed: points[step] for seed, points in sorted(curves.items())}


def mean_curve(curves: Curves) -> MeanCurve:
    """Mean over seeds with its 95% interval, at every step that all seeds have.

    Args:
        curves: for each seed its score by agent steps; `by_seed` makes them from results.
    """
    steps = common_steps(curves.values())
    return MeanCurve(steps, [mean(scores_at(curves, step).values()) for step in steps], len(curves))


def final_scores(results: Iterable[Result], at: int | None = None) -> tuple[Scores, dict[str, int]]:
    """The score of each seed at one step, the same for all seeds of a task, and that step.

    It is the last that every seed of the task has, or the last of those up to `at`.
    """
    by_task: dict[str, list[Result]] = {}
    for result in results:
        by_task.setdefault(result.task, []).append(result)
    scores, steps = {}, {}
    for task, own in sorted(by_task.items()):
        curves = by_seed(own)
        common = common_steps(curves.values(), at)
        if common:
            steps[task], scores[task] = common[-1], scores_at(curves, common[-1])
    return scores, steps


def scores_in_budget(results: Sequence[Result], budget: int | None) -> tuple[Scores, dict[str, int]]:
    """`final_scores` up to the paper's budget; where all common steps lie behind it, the last."""
    scores, steps = final_scores(results, budget)
    return (scores, steps) if scores else final_scores(results)


def normalised(scores: Scores) -> Scores:
    """Scores as the paper normalises them; only tasks that a family knows can be."""
    tasks = known_tasks()
    return {
        task: {seed: tasks[task].normalise(score) for seed, score in seeds.items()}
        for task, seeds in scores.items()
        if task in tasks
    }


def sample(values: Iterable[float]) -> Sample:
    """Mean, standard deviation and number of scores, one of each seed."""
    given = np.asarray(list(values), float)
    return Sample(float(given.mean()), float(given.std(ddof=1)) if len(given) > 1 else np.nan, len(given))


def sample_mean(of: Sample) -> Estimate:
    """Its mean with its interval, by Student's t."""
    return _welch([(of.mean, of)])


def sample_difference(a: Sample, b: Sample) -> Estimate:
    """Mean of a minus mean of b, by Welch's t."""
    return _welch([(a.mean - b.mean, a, b)])


def mean(values: Iterable[float]) -> Estimate:
    """Mean over seeds with its interval, by Student's t."""
    return sample_mean(sample(values))


def aggregates(scores: Scores) -> Aggregates:
    """Mean, median, IQM and optimality gap of normalised scores, from all seeds of all tasks."""
    functions = (aggregate_mean, aggregate_median, aggregate_iqm, aggregate_optimality_gap)
    estimates = _bootstrap(scores, lambda runs: np.stack([function(runs) for function in functions]))
    counts = [len(seeds) for seeds in scores.values()]
    return Aggregates(*estimates, seeds=(min(counts), max(counts)), tasks=len(counts))


def profile(scores: Scores, thresholds: np.ndarray) -> list[Estimate]:
    """The share of runs above each threshold, each task with the same weight (a performance profile)."""

    def shares(runs: Runs) -> np.ndarray:
        above = [np.mean(own[..., None, :] > thresholds[:, None], axis=-1) for own in runs]
        return np.moveaxis(np.mean(above, axis=0), -1, 0)

    return _bootstrap(scores, shares)


def mean_with_bootstrap(scores: Scores) -> Estimate:
    """The mean of `aggregates` alone."""
    return _bootstrap(scores, lambda runs: aggregate_mean(runs)[None])[0]


def bootstrap_difference(a: Scores, b: Scores) -> Estimate:
    """Mean of a minus mean of b over the tasks of both, each with the same weight; seeds of both are drawn anew."""
    tasks = [task for task in a if task in b]
    sides = {f"{side} {task}": scores[task] for side, scores in (("a", a), ("b", b)) for task in tasks}

    def gap(runs: Runs) -> np.ndarray:
        return (aggregate_mean(runs[: len(tasks)]) - aggregate_mean(runs[len(tasks) :]))[None]

    return _bootstrap(sides, gap)[0]


Runs = list[np.ndarray]
"""For each task [draws, seeds] of scores; draws are those of a bootstrap."""


def aggregate_mean(runs: Runs) -> np.ndarray:
    """The mean over tasks of each task's mean."""
    return np.mean([own.mean(axis=-1) for own in runs], axis=0)


def aggregate_median(runs: Runs) -> np.ndarray:
    """The median over tasks of each task's mean."""
    return np.median([own.mean(axis=-1) for own in runs], axis=0)


def aggregate_optimality_gap(runs: Runs) -> np.ndarray:
    """1 minus the mean over tasks of each task's mean score, no run counted as more than 1."""
    return 1.0 - np.mean([np.minimum(own, 1.0).mean(axis=-1) for own in runs], axis=0)


def aggregate_iqm(runs: Runs) -> np.ndarray:
    """The weighted mean of all runs but the lowest and the highest, a quarter of the weight each.

    A run weighs 1 / (tasks * seeds of its task). As in rliable, only whole runs are left out.
    """
    values = np.concatenate(runs, axis=-1)
    weights = np.concatenate([np.full(own.shape[-1], 1.0 / (len(runs) * own.shape[-1])) for own in runs])
    order = np.argsort(values, axis=-1)
    ordered = weights[order]
    below = np.cumsum(ordered, axis=-1)
    above = np.cumsum(ordered[..., ::-1], axis=-1)[..., ::-1]
    quarter = 0.25 + 1e-9  # sums of weights are rounded
    kept = ordered * (below > quarter) * (above > quarter)
    return np.sum(kept * np.take_along_axis(values, order, axis=-1), axis=-1) / np.sum(kept, axis=-1)


def difference(a: Iterable[float], b: Iterable[float]) -> Estimate:
    """Mean of a minus mean of b, by Welch's t."""
    return sample_difference(sample(a), sample(b))


def difference_p(a: Iterable[float], b: Iterable[float]) -> float:
    """The chance of a difference at least as large if both had the same mean, by Welch's t; nan of too few seeds."""
    from scipy import stats

    first, second = (np.asarray(list(values), float) for values in (a, b))
    if min(len(first), len(second)) < FEWEST_SEEDS:
        return np.nan
    sides = [sample(first), sample(second)]
    parts = [(of.deviation**2 / of.seeds, of.seeds - 1) for of in sides]
    total = sum(variance for variance, _ in parts)
    if total == 0:
        return float(first.mean() == second.mean())
    degrees = total**2 / sum(variance**2 / free for variance, free in parts)
    return float(2 * stats.t.sf(abs(sides[0].mean - sides[1].mean) / total**0.5, degrees))


def holm(chances: Sequence[float]) -> list[float]:
    """p-values of several comparisons, corrected for their number by Holm's method.

    nan, where no test was possible, stays nan and does not count. (statsmodels is too large for this.)
    """
    given = np.asarray(chances, float)
    order = [int(i) for i in np.argsort(given) if not np.isnan(given[i])]
    factors = len(order) - np.arange(len(order))
    corrected = np.full(len(given), np.nan)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(factors * given[order]))
    return corrected.tolist()


def improvement(a: Iterable[float], b: Iterable[float]) -> float:
    """The chance that a run of a is better than one of b; ties count half."""
    first, second = (np.asarray(list(values), float) for values in (a, b))
    return float(_better(first, second).mean())


def overall(a: Scores, b: Scores) -> tuple[Estimate, Estimate]:
    """Over all tasks of both: difference of mean scores, and chance of improvement, each averaged over tasks.

    All seeds count, however many a task has. Of one task the difference is Welch's; the chance is rliable's, with the
    interval of Brunner and Munzel, which is too short near 0 and 1. (With few seeds a bootstrap's intervals are too
    short everywhere, and these two decide what is called better.)
    """
    pairs = [tuple(np.asarray(list(x[task].values()), float) for x in (a, b)) for task in a if task in b]
    samples = [(sample(first), sample(second)) for first, second in pairs]
    wins = [_better(first, second) for first, second in pairs]
    gap = _welch([(first.mean - second.mean, first, second) for first, second in samples])
    chance = _welch([(float(x.mean()), sample(x.mean(axis=1)), sample(x.mean(axis=0))) for x in wins])
    if chance.low == chance.high:  # 0 or 1, on which seeds of no overlap have no interval
        return gap, Estimate(chance.value, np.nan, np.nan)
    return gap, Estimate(chance.value, *np.clip(chance[1:], 0.0, 1.0).tolist())


def _better(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[a, b] of whether a run of a is better than one of b; ties are a half."""
    return 0.5 * (np.sign(a[:, None] - b[None, :]) + 1)


def _welch(tasks: Sequence[tuple[float, *tuple[Sample, ...]]]) -> Estimate:
    """The mean of values, each with the samples whose means' variances add up to its own (Welch-Satterthwaite)."""
    value = float(np.mean([x for x, *_ in tasks]))
    samples = [of for _, *own in tasks for of in own]
    if min(of.seeds for of in samples) < FEWEST_SEEDS:
        return Estimate(value, np.nan, np.nan)
    return satterthwaite(value, [(of.deviation**2 / of.seeds / len(tasks) ** 2, of.seeds - 1) for of in samples])


def satterthwaite(value: float, parts: Sequence[tuple[float, int]]) -> Estimate:
    """A value whose variance is the sum of independent ones, each estimated with so many degrees of freedom."""
    from scipy import stats

    total = sum(variance for variance, _ in parts)
    if total == 0:
        return Estimate(value, value, value)
    degrees = total**2 / sum(variance**2 / free for variance, free in parts)
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, degrees)) * total**0.5
    return Estimate(value, value - half, value + half)


def _bootstrap(scores: Scores, function: Callable[[Runs], np.ndarray]) -> list[Estimate]:
    """What a function of runs gives, with intervals (percentiles); always the same random numbers.

    Args:
        scores: seeds are drawn anew within each entry.
        function: of [draws, seeds] for each entry to [values, draws].
    """
    runs = [np.array(list(seeds.values()), float) for seeds in scores.values()]
    points = function([own[None] for own in runs])[:, 0]
    if min(map(len, runs)) < FEWEST_SEEDS:
        return [Estimate(float(value), np.nan, np.nan) for value in points]
    rng = np.random.default_rng(0)
    drawn = [own[rng.integers(len(own), size=(REPETITIONS, len(own)))] for own in runs]
    tails = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
    low, high = np.quantile(function(drawn), tails, axis=-1)
    return [Estimate(*map(float, row)) for row in zip(points, low, high, strict=True)]
