"""The rules by which a score or a difference is called above, below, inside, or nothing is said."""

import math
from typing import Literal, NamedTuple, get_args

from dr_q.paper import Published
from dr_q.report.statistics import Estimate

PUBLISHED_SEEDS = 5
"""Under which a mean is not judged by the published interval."""
SIGNIFICANT = 0.05
"""p-values below it, after Holm's correction, are called significant."""
DifferenceVerdict = Literal["above", "below", "no significant difference", "too few seeds"]
DIFFERENCE_VERDICTS: tuple[DifferenceVerdict, ...] = get_args(DifferenceVerdict)


def difference_verdict(difference: float, p_holm: float) -> DifferenceVerdict:
    """The rule for one of several differences: it is called only if significant after Holm's correction.

    Args:
        difference: of the two means.
        p_holm: its p-value, Holm-corrected (`holm`) for the number of differences that are tested together: those on
            all tasks that two sets have in common. nan: a side has too few seeds for a test.
    """
    if math.isnan(p_holm):
        return "too few seeds"
    if p_holm >= SIGNIFICANT:
        return "no significant difference"
    return "above" if difference > 0 else "below"


def interval_verdict(difference: Estimate, margin: float = 0.0) -> DifferenceVerdict:
    """The rule for a single difference, such as a mean over all tasks: its 95% interval excludes 0, or does not.

    Args:
        difference: with its interval.
        margin: what is called little; the interval must lie beyond it.
    """
    if math.isnan(difference.low):
        return "too few seeds"
    if difference.low <= margin and difference.high >= -margin:
        return "no significant difference"
    return "above" if difference.low > margin else "below"


def ranks_differ(difference: Estimate, improvement: Estimate) -> bool:
    """Whether single runs of one side are better more often than not, while the means are not significantly different.

    This is no contradiction: the chance of improvement counts how often, a mean also counts by how much.
    """
    unclear = interval_verdict(difference) == "no significant difference"
    return unclear and (improvement.low > 0.5 or improvement.high < 0.5)


def is_little(difference: Estimate, margin: float) -> bool:
    """Whether the whole 95% interval of a difference lies within a margin; without an interval it is not known to."""
    return -margin <= difference.low and difference.high <= margin


BudgetStage = Literal["before", "at", "after"]


def budget_stage(step: int, budget: int) -> BudgetStage:
    """Where agent steps are against a budget."""
    return "before" if step < budget else "at" if step == budget else "after"


class PublishedVerdict(NamedTuple):
    """Our mean against the published interval of the same algorithm."""

    what: str
    """inside, above, below, or why nothing can be said."""
    seeds: int
    step: int
    budget: int | None
    overlap: bool | None = None
    """Whether our interval and the published one overlap; None where nothing can be said."""


def published_verdict(
    ours: Estimate, seeds: int, step: int, budget: int | None, published: Published | None
) -> PublishedVerdict:
    """Whether our mean lies in the published interval, if that can be said.

    Single runs of the paper are not published, so that no test of the difference is possible.
    """
    if published is None or budget is None:
        what, overlap = "not in the paper", None
    elif (stage := budget_stage(step, budget)) != "at":
        what, overlap = "too few steps" if stage == "before" else "after the budget", None
    elif seeds < PUBLISHED_SEEDS:
        what, overlap = "too few seeds", None
    elif math.isnan(published.low):
        what, overlap = "no published interval", None
    else:
        what = "above" if ours.value > published.high else "below" if ours.value < published.low else "inside"
        overlap = ours.low <= published.high and ours.high >= published.low
    return PublishedVerdict(what, seeds, step, budget, overlap)
