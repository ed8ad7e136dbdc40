"""What the paper says of two presets on a task, and whether results show it."""

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from dr_q.kit import ConfigError
from dr_q.paper import paper_tasks, published_score
from dr_q.report.compare import compare
from dr_q.report.numbers import with_interval
from dr_q.report.results import Result
from dr_q.report.statistics import FEWEST_SEEDS, Estimate, MeanCurve, by_seed, mean, mean_curve, scores_in_budget
from dr_q.report.verdicts import DifferenceVerdict, interval_verdict, is_little, published_verdict

LITTLE = 0.1
"""The share of a score under which a difference is called little."""

Seen = Literal["seen", "not seen", "not decidable"]
Kind = Literal["above", "little"]
_FEW: tuple[Seen, str] = ("not decidable", f"a side has fewer than {FEWEST_SEEDS} seeds")
_SAID: dict[Kind, dict[DifferenceVerdict, tuple[Seen, str]]] = {
    "above": {
        "above": ("seen", "the interval is above 0"),
        "below": ("not seen", "the reverse is seen"),
        "no significant difference": ("not seen", "the interval has 0 in it"),
        "too few seeds": _FEW,
    },
    "little": {
        "above": ("not seen", "the whole interval is more"),
        "below": ("not seen", "the whole interval is more"),
        "no significant difference": ("not decidable", "the interval is too wide to tell"),
        "too few seeds": _FEW,
    },
}
"""What the verdict on a difference says of a claim."""


class Claim(NamedTuple):
    """A statement of the paper about two presets."""

    says: str
    """In our words."""
    first: str
    second: str
    kind: Kind = "above"
    """The first scores higher than the second; or there is little between them."""
    tasks: tuple[str, ...] = ()
    """The tasks that it names; none: it is said of tasks in general."""


class Judgement(NamedTuple):
    """What results say of a claim on one task."""

    task: str
    says: str
    seen: Seen
    why: str
    agent_steps: int
    difference: Estimate
    """First minus second; of a published score, ours minus the paper's."""


def claims_on(task: str, claims: Sequence[Claim]) -> list[Claim]:
    """Those that name the task, else those made in general."""
    named = [claim for claim in claims if task in claim.tasks]
    return named or [claim for claim in claims if not claim.tasks] or list(claims)


def judge(results: Sequence[Result], claim: Claim, task: str, budget: int) -> Judgement:
    """Whether results show one claim on one task, at the last step up to `budget`, the paper's, that all seeds have.

    It is judged by Welch's 95% interval of the difference. One claim on one task is a single test, so that it is not
    corrected for a number of tasks, as the verdicts of `compare` and of a report are.
    """
    mine = [[r for r in results if r.task == task and r.preset == name] for name in (claim.first, claim.second)]
    nothing = Estimate(math.nan, math.nan, math.nan)
    for name, side in zip((claim.first, claim.second), mine, strict=True):
        if not side:
            return Judgement(task, claim.says, "not decidable", f"no results of {name}", 0, nothing)
    try:
        row = compare(mine[0], mine[1], (claim.first, claim.second), budget or None).tasks[0]
    except ConfigError:
        within = f" up to {budget:,}" if budget else ""
        why = f"{claim.first} and {claim.second} were never evaluated at the same step{within}"
        return Judgement(task, claim.says, "not decidable", why, 0, nothing)
    margin = LITTLE * abs(row.samples[0].mean) if claim.kind == "little" else 0.0
    found = f"{claim.first} minus {claim.second} is {with_interval(row.difference, '+.4g')}"
    if claim.kind == "little":
        found += f", and up to {margin:.4g} is called little"
    return judge_difference(task, claim, row.difference, row.agent_steps, budget, found, margin)


def judge_difference(
    task: str, claim: Claim, gap: Estimate, agent_steps: int, budget: int, found: str, margin: float = 0.0
) -> Judgement:
    """Whether a difference shows a claim; before the budget it shows nothing.

    Args:
        task: that the claim is judged on.
        claim: that the difference is about.
        gap: first minus second.
        agent_steps: at which the difference is.
        budget: agent steps that the claim is about.
        found: the figures, in words.
        margin: up to which a difference is called little.
    """
    seen, why = _seen(claim, gap, margin)
    if agent_steps < budget:
        seen, why = "not decidable", f"only {agent_steps:,} of {budget:,} steps were run"
    return Judgement(task, claim.says, seen, f"{why}; {found}", agent_steps, gap)


def _seen(claim: Claim, gap: Estimate, margin: float) -> tuple[Seen, str]:
    if claim.kind == "little" and is_little(gap, margin):
        return "seen", "the whole interval is little"
    return _SAID[claim.kind][interval_verdict(gap, margin)]


def judge_published(results: Iterable[Result], task: str, preset: str = "dr.q") -> Judgement:
    """Whether our mean is at least the published one's interval, at the paper's budget."""
    says = "the published score is reached"
    mine = [r for r in results if r.task == task and r.preset == preset]
    known = paper_tasks().get(task)
    scores, steps = scores_in_budget(mine, known.agent_steps if known else None)
    published = published_score(task)
    if task not in scores or published is None or known is None:
        why = "no results yet" if published else "the paper has no score of it"
        return Judgement(task, says, "not decidable", why, 0, Estimate(math.nan, math.nan, math.nan))
    ours = mean(scores[task].values())
    found = published_verdict(ours, len(scores[task]), steps[task], known.agent_steps, published)
    by_verdict: dict[str, Seen] = {"inside": "seen", "above": "seen", "below": "not seen"}
    seen = by_verdict.get(found.what, "not decidable")
    gap = Estimate(*(x - published.mean for x in ours))
    own, theirs = with_interval(ours, ".4g"), with_interval(published, ".4g")
    text = f"ours is {own} at {steps[task]:,} steps, the paper's {theirs} at {known.agent_steps:,}: {found.what}"
    return Judgement(task, says, seen, text, steps[task], gap)


def sentence(task: str, judged: Sequence[Judgement]) -> str:
    """One for a task."""
    return f"{task}: " + "; ".join(f"{j.says}: {j.seen} ({j.why})" for j in judged) + "."


def preset_curve(results: Iterable[Result], task: str, preset: str) -> MeanCurve:
    """The learning curve of one preset on one task."""
    return mean_curve(by_seed(r for r in results if (r.task, r.preset) == (task, preset)))
