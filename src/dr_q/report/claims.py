"""What the paper says of two presets on a task, and whether results show it; the figure with all of them."""

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dr_q.paper import paper_tasks, published_score
from dr_q.report.canvas import new_figure, plain_text, save_figure, short_count
from dr_q.report.compare import compare
from dr_q.report.numbers import with_interval
from dr_q.report.results import Result
from dr_q.report.statistics import FEWEST_SEEDS, Estimate, MeanCurve, by_seed, mean, mean_curve, scores_in_budget
from dr_q.report.style import style
from dr_q.report.verdicts import published_verdict

LITTLE = 0.1
"""The share of a score under which a difference is called little."""
_COLUMNS = 4
_LEGEND_ENTRY = 1.9
"""Inches that one takes."""

Seen = Literal["seen", "not seen", "not decidable"]


class Claim(NamedTuple):
    """A statement of the paper about two presets."""

    says: str
    """In our words."""
    first: str
    second: str
    kind: Literal["above", "little"] = "above"
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


def judge(results: Iterable[Result], claim: Claim, task: str, budget: int) -> Judgement:
    """Whether results show one claim on one task, at the last step that all seeds have; the paper's is at `budget`.

    It is judged by Welch's 95% interval of the difference. One claim on one task is a single test, so that it is not
    corrected for a number of tasks, as the verdicts of `compare` and of a report are.
    """
    mine = [[r for r in results if r.task == task and r.preset == name] for name in (claim.first, claim.second)]
    nothing = Estimate(math.nan, math.nan, math.nan)
    for name, side in zip((claim.first, claim.second), mine, strict=True):
        if not side:
            return Judgement(task, claim.says, "not decidable", f"no results of {name}", 0, nothing)
    try:
        row = compare(mine[0], mine[1], (claim.first, claim.second)).tasks[0]
    except ValueError:
        why = f"{claim.first} and {claim.second} were never evaluated at the same step"
        return Judgement(task, claim.says, "not decidable", why, 0, nothing)
    margin = LITTLE * abs(row.means[0])
    found = f"{claim.first} minus {claim.second} is {with_interval(row.difference, '+.4g')}"
    if claim.kind == "little":
        found += f", and up to {margin:.4g} is called little"
    seen, why = _seen(claim, row.difference, margin)
    if row.agent_steps < budget:
        seen, why = "not decidable", f"only {row.agent_steps:,} of {budget:,} steps were run"
    return Judgement(task, claim.says, seen, f"{why}; {found}", row.agent_steps, row.difference)


def _seen(claim: Claim, gap: Estimate, margin: float) -> tuple[Seen, str]:
    if math.isnan(gap.low):
        return "not decidable", f"a side has fewer than {FEWEST_SEEDS} seeds"
    if claim.kind == "above":
        if gap.low > 0:
            return "seen", "the interval is above 0"
        return "not seen", "the reverse is seen" if gap.high < 0 else "the interval has 0 in it"
    if max(abs(gap.low), abs(gap.high)) <= margin:
        return "seen", "the whole interval is little"
    if gap.low > margin or gap.high < -margin:
        return "not seen", "the whole interval is more"
    return "not decidable", "the interval is too wide to tell"


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


def draw_claims(
    results: Sequence[Result], presets: Sequence[str], judged: Sequence[Judgement], title: str, path: Path
) -> None:
    """Learning curves of every task judged, a line for each preset; under each panel what is seen."""
    from matplotlib.lines import Line2D

    known = {result.task for result in results}
    tasks = [task for task in dict.fromkeys(j.task for j in judged) if task in known]
    columns = min(_COLUMNS, len(tasks))
    rows = math.ceil(len(tasks) / columns)
    figure, panels = new_figure(max(5.6, 3.3 * columns), 3.1 * rows + 0.9, rows, columns, len(tasks))
    for panel, task in zip(panels, tasks, strict=True):
        for index, preset in enumerate(presets):
            found = _curve(results, task, preset)
            if found.steps:
                _line(panel, found, index)
        panel.set_title(plain_text(task), fontsize=8.5, loc="left", pad=4)
        said = [f"{j.says}: {j.seen}" for j in judged if j.task == task]
        panel.set_xlabel("\n".join(["agent steps", *map(plain_text, said)]), fontsize=7)
        panel.xaxis.set_major_formatter(lambda x, _: short_count(x))
        panel.locator_params(axis="x", nbins=5)
        panel.set_xlim(left=0)
    for row in range(rows):
        panels[row * columns].set_ylabel("return", fontsize=8)
    handles = [
        Line2D([], [], linewidth=1.5, markersize=4.5, label=plain_text(f"{name} ({_seeds(results, name)})"), **style(i))
        for i, name in enumerate(presets)
    ]
    fitting = max(1, int(figure.get_figwidth() / _LEGEND_ENTRY))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(fitting, len(handles)), frameon=False, fontsize=8
    )
    save_figure(figure, title, path)


def _curve(results: Iterable[Result], task: str, preset: str) -> MeanCurve:
    return mean_curve(by_seed(r for r in results if (r.task, r.preset) == (task, preset)))


def _line(panel: Any, curve: MeanCurve, index: int) -> None:
    look, steps = style(index), curve.steps
    middle, low, high = zip(*curve.values, strict=True)
    every = max(1, len(steps) // 6)
    panel.plot(steps, middle, linewidth=1.5, markersize=4.2, markevery=(index % every, every), **look)
    if not math.isnan(low[-1]):
        panel.fill_between(steps, low, high, color=look["color"], alpha=0.13, linewidth=0)
        for edge in (low, high):
            panel.plot(steps, edge, linewidth=0.5, color=look["color"], linestyle=look["linestyle"], alpha=0.7)


def _seeds(results: Iterable[Result], preset: str) -> str:
    by_task: dict[str, set[int]] = {}
    for result in results:
        if result.preset == preset:
            by_task.setdefault(result.task, set()).add(result.seed)
    counts = sorted({len(seeds) for seeds in by_task.values()}) or [0]
    text = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{text} seed{'' if counts == [1] else 's'}"


def write_curves(results: Sequence[Result], presets: Sequence[str], path: Path) -> None:
    """Every point of the figure."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["task", "preset", "agent_steps", "seeds", "mean", "low", "high"])
        for task in dict.fromkeys(result.task for result in results):
            for preset in presets:
                found = _curve(results, task, preset)
                for step, value in zip(found.steps, found.values, strict=True):
                    writer.writerow([task, preset, step, found.seeds, *(f"{x:.6g}" for x in value)])


def write_verdicts(judged: Iterable[Judgement], path: Path) -> None:
    """Every verdict, with the difference behind it."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["task", "statement", "verdict", "why", "agent_steps", "difference", "low", "high"])
        for j in judged:
            writer.writerow([*j[:5], *(f"{x:.6g}" for x in j.difference)])
