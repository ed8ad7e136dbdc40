"""The rules by which a score or a difference is called above, below, inside, or nothing is said."""

import math
from typing import Literal, NamedTuple

from dr_q.paper import Published
from dr_q.report.statistics import Estimate

PUBLISHED_SEEDS = 5
"""Under which a mean is not judged by the published interval."""
DifferenceVerdict = Literal["above", "below", "no difference seen", "too few seeds"]
DIFFERENCE_VERDICTS: tuple[DifferenceVerdict, ...] = ("above", "below", "no difference seen", "too few seeds")


def interval_verdict(difference: Estimate) -> DifferenceVerdict:
    """What the 95% interval of a single difference says; nan: seeds were too few for one."""
    if math.isnan(difference.low):
        return "too few seeds"
    if difference.low > 0:
        return "above"
    return "below" if difference.high < 0 else "no difference seen"


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
    elif step < budget:
        what, overlap = "too few steps", None
    elif seeds < PUBLISHED_SEEDS:
        what, overlap = "too few seeds", None
    elif math.isnan(published.low):
        what, overlap = "no published interval", None
    else:
        what = "above" if ours.value > published.high else "below" if ours.value < published.low else "inside"
        overlap = ours.low <= published.high and ours.high >= published.low
    return PublishedVerdict(what, seeds, step, budget, overlap)
