"""docs/results.md, its figures and README's results, from the runs in this folder.

    python results/make.py                                  # or: make results
    python results/make.py --authors PATH/results/drq.csv   # compare with the authors' seeds anew first

Everything is made by the features of `dr-q report` (docs/report.md). Runs are those of runs/ and breadth/. A seed that
runs/ has is not taken from breadth/ again. The authors' seeds are not in this repository: comparison.csv and
comparison_suites.csv have what comparing gave, and without --authors they stay as they are.
"""

import dataclasses
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import tyro

from dr_q.kit import ConfigError
from dr_q.paper import SUITES, paper_tasks, published_score
from dr_q.report import Result, build_report, compare_with_reference, read_references, read_results, write_results
from dr_q.report.comparison_files import read_comparisons, reference_curves, write_comparisons
from dr_q.report.figures import curve_grids, draw_reference
from dr_q.report.model import Report
from dr_q.report.numbers import count, with_interval
from dr_q.report.reference import ReferenceComparison
from dr_q.report.results import labelled_runs
from dr_q.report.statistics import FEWEST_SEEDS, mean
from dr_q.report.table_files import markdown_text
from dr_q.report.tables import ablation_table, reference_table, reference_task_table, runs_table
from dr_q.report.wording import reference_sentence, shown_share, suite_title

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
PRESET = "dr.q"
HEADLINE = (25_000, 50_000)
"""The steps of the summary. A run that was cut off between them counts at the first alone."""
README_TASKS = (
    "dmc/walker-run", "dmc/cheetah-run", "dmc/humanoid-walk", "dmc/hopper-stand",
    "gym/Ant-v4", "gym/Hopper-v4", "dmc-visual/walker-run", "hbench/h1-walk-v0",
)  # fmt: skip
"""Those of README's table: all with 100,000 steps or more, and the one with the most seeds of the two other suites."""
LATER_EVERY = 100_000
"""Steps between rows of the table of runs that continue to the end of the budget."""


@dataclasses.dataclass
class Arguments:
    """What to make."""

    authors: Path | None = None
    """The authors' seeds: results/drq.csv of their repository."""
    out: Path = DOCS
    """Where results.md is, and its figures and other pages go."""


def main() -> int:
    arguments = tyro.cli(Arguments, description=__doc__)
    try:
        return make(arguments)
    except (ValueError, OSError) as error:  # ConfigError is one
        print(f"results/make.py: {error}", file=sys.stderr)
        return 2


def make(arguments: Arguments) -> int:
    results = our_results()
    write_results(results, HERE / "evaluations.csv")
    again = labelled_runs([HERE / "repeats"])
    repeats = [
        r._replace(more={**r.more, "run": run.folder.name}) for run, _ in again for r in read_results([run.folder])
    ]
    write_results(repeats, HERE / "repeats.csv")
    files = HERE / "comparison.csv", HERE / "comparison_suites.csv"
    if arguments.authors is not None:
        write_comparisons(compare_with(results, arguments.authors), *files)
    compared = read_comparisons(*files)
    report = build_report(results, labelled_runs([HERE / "runs", HERE / "breadth", HERE / "repeats"]))
    report = report._replace(
        references=list(dict.fromkeys(found.reference for found in compared)),
        reference_curves=reference_curves(compared),
        reference_comparisons=compared,
    )
    figures = arguments.out / "results"
    headline = [found for found in compared if found.preset == PRESET and found.agent_steps in HEADLINE]
    draw_reference(headline, figures / "differences.png")
    list(curve_grids(report, figures))
    pages = {
        "results.md": {"answer": answer(headline, results), "suites": suites(report), "missing": missing(headline)}
        | {"budget": to_the_end(report, results), "ablations": ablations(report)},
        "results/tasks.md": {"curves": curves(report), "tasks": tasks(report)},
        "results/runs.md": {"runs": markdown_text(runs_table(report))},
    }
    pages["../README.md"] = readme(headline, compared)
    for name, sections in pages.items():
        page = (arguments.out / name).resolve()
        page.write_text(fill(page.read_text(), sections))
        print(page)
    return 0


def our_results() -> list[Result]:
    """Of runs/, and of breadth/ the seeds that runs/ does not have."""
    found = read_results([HERE / "runs"])
    have = {r[:3] for r in found}
    more = [r for r in read_results([HERE / "breadth"]) if r[:3] not in have]
    return sorted(found + more, key=lambda r: r[:4])


def compare_with(results: Sequence[Result], path: Path) -> list[ReferenceComparison]:
    """Every preset at every step after the first that both sides have; tasks of too few seeds are left out."""
    (reference,) = read_references([path])
    counts: dict[tuple[str, str, int], int] = {}
    for r in results:
        counts[r.task, r.preset, r.agent_steps] = counts.get((r.task, r.preset, r.agent_steps), 0) + 1
    enough = [r for r in results if r.agent_steps > 0 and counts[r.task, r.preset, r.agent_steps] >= FEWEST_SEEDS]
    presets = sorted({r.preset for r in enough}, key=lambda name: (name != PRESET, name))
    steps = sorted({r.agent_steps for r in enough} & {r.agent_steps for r in reference.results})
    found = [compare_with_reference(enough, reference, preset, at) for preset in presets for at in steps]
    if not any(found):
        raise ConfigError(f"{path} and our runs have no task and step in common")
    return [one for one in found if one is not None]


# The parts of the pages.


def answer(headline: Sequence[ReferenceComparison], results: Sequence[Result]) -> str:
    """Three sentences: on average, task by task, and to the end of the budget."""
    early, late = headline[0], headline[-1]
    tasks, gap = len(late.pair.tasks), shown_share(late.suites[0].difference)
    more = len(early.pair.tasks)
    over = "" if more == tasks else f" over {more} tasks"
    first = (
        f"Over {tasks} of the paper's {len(paper_tasks())} tasks, our runs differ from the authors' runs by **{gap}** "
        f"of the published final score at {late.agent_steps:,} agent steps, and by "
        f"{shown_share(early.suites[0].difference)} at {early.agent_steps:,}{over} (mean over tasks, 95% interval)."
    )
    names = [
        f"`{row.task}` ({row.verdict} at {c.agent_steps:,})"
        for c in headline
        for row in c.pair.tasks
        if row.verdict in ("above", "below")
    ]
    second = "No single task is significantly different after Holm's correction for the number of tasks."
    if names:
        second = f"Significantly different after Holm's correction for the number of tasks: {', '.join(names)}."
    ended = []
    for task, info in paper_tasks().items():
        published = published_score(task)
        own = [r.score for r in results if (r.task, r.preset, r.agent_steps) == (task, PRESET, info.agent_steps)]
        if published is not None and len(own) >= FEWEST_SEEDS:
            ours, theirs = with_interval(mean(own), ".0f"), with_interval(published, ".0f")
            ended.append(f"`{task}` reaches {ours} ({len(own)} seeds; paper: {theirs})")
    ran = f"{count(len(ended), 'task')} {'was' if len(ended) == 1 else 'were'} run to the end of the paper's budget"
    third = f"{ran}: {'; '.join(ended)}." if ended else ""
    return " ".join(filter(None, (first, second, third)))


def readme(headline: Sequence[ReferenceComparison], compared: Sequence[ReferenceComparison]) -> dict[str, str]:
    """README's sentence, table and status."""
    early, late = headline[0], headline[-1]
    total, gap = len(paper_tasks()), late.suites[0].difference
    learns = (
        f"- **It learns as the authors' code does.** At {late.agent_steps:,} agent steps, over "
        f"{len(late.pair.tasks)} of the paper's {total} tasks, the mean difference from\n  the authors' runs is "
        f"{gap.value:+.1%} of a task's published final score (95% CI {gap.low:+.1%} to {gap.high:+.1%};\n  "
        "[results](docs/results.md))."
    )
    last = {row.task: row for one in compared if one.preset == PRESET for row in one.pair.tasks}
    rows = ["| task | dr-q | authors' runs | agent steps | seeds |", "|---|---|---|---|---|"]
    for task in README_TASKS:
        row, budget = last[task], paper_tasks()[task].agent_steps
        ours, theirs = row.samples
        steps = f"{row.agent_steps:,}" + (" (the paper's budget)" if row.agent_steps == budget else "")
        rows.append(f"| `{task}` | {ours.mean:,.0f} | {theirs.mean:,.0f} | {steps} | {ours.seeds} and {theirs.seeds} |")
    ended = [row.task for row in last.values() if row.agent_steps == paper_tasks()[row.task].agent_steps]
    cut_off = len(early.pair.tasks) - len(late.pair.tasks)
    status = (
        f"**Status.** {len(last)} of the paper's {total} tasks have been run, {len(late.pair.tasks)} of them to at "
        f"least {late.agent_steps:,} agent steps (5 to 10% of the paper's\nbudgets)"
        + (f" and {cut_off} to {early.agent_steps:,}" if cut_off > 0 else "")
        + f". To the full budget: {', '.join(f'`{task}`' for task in ended) or 'none'}."
    )
    return {"learns": learns, "table": "\n".join(rows), "status": status}


def suites(report: Report) -> str:
    """Both headline steps by suite, and what the comparisons say of all tasks."""
    shown = report._replace(reference_comparisons=at_headline(report))
    said = [f"- {reference_sentence(found)}" for found in shown.reference_comparisons]
    return markdown_text(reference_table(shown), leave_out=("preset", "reference")) + "\n\n" + "\n".join(said)


def at_headline(report: Report) -> list[ReferenceComparison]:
    return [c for c in report.reference_comparisons if c.preset == PRESET and c.agent_steps in HEADLINE]


def missing(headline: Sequence[ReferenceComparison]) -> str:
    """The paper's tasks without runs, by suite, and those whose runs were cut off."""
    absent = {found.agent_steps: {task for task in paper_tasks() if task in found.missing} for found in headline}
    never = set.intersection(*absent.values())
    cut_off = absent[headline[-1].agent_steps] - never
    lines = [f"None: all {len(paper_tasks())} tasks of the paper have runs."]
    if never:
        lines = [f"{count(len(never), 'task')} of {len(paper_tasks())}:", "", *_by_suite(never)]
    if cut_off:
        steps = f"{headline[0].agent_steps:,} steps but not {headline[-1].agent_steps:,}"
        lines += [
            "",
            f"Runs of {count(len(cut_off), 'task')} were cut off: they have {steps}.",
            "",
            *_by_suite(cut_off),
        ]
    return "\n".join(lines)


def _by_suite(tasks: Collection[str]) -> list[str]:
    lines = []
    for suite in SUITES:
        own = [task.partition("/")[2] for task, info in paper_tasks().items() if task in tasks and info.suite == suite]
        if own:
            lines.append(f"- {suite_title(suite)} ({len(own)}): {', '.join(own)}")
    return lines


def tasks(report: Report) -> str:
    """Every task at every step up to LATER_EVERY, in the paper's order."""
    shown = [c for c in report.reference_comparisons if c.preset == PRESET and (c.agent_steps or 0) <= LATER_EVERY]
    table = reference_task_table(report._replace(reference_comparisons=shown))
    order = list(paper_tasks())
    table.rows.sort(key=lambda row: order.index(row.task))  # steps of a task stay in their order
    return markdown_text(table, leave_out=("preset", "reference"))


def to_the_end(report: Report, results: Sequence[Result]) -> str:
    """Tasks that were run further: every LATER_EVERY steps, and steps with a significant difference."""
    shown = [
        c
        for c in report.reference_comparisons
        if c.preset == PRESET
        and (c.agent_steps or 0) > LATER_EVERY
        and ((c.agent_steps or 0) % LATER_EVERY == 0 or any(row.verdict in ("above", "below") for row in c.pair.tasks))
    ]
    return markdown_text(
        reference_task_table(report._replace(reference_comparisons=shown)), leave_out=("preset", "reference")
    )


def ablations(report: Report) -> str:
    """Other presets and dr.q, and other presets and the authors' dr.q at their last step."""
    last: dict[str, ReferenceComparison] = {}
    for found in report.reference_comparisons:
        if found.preset != PRESET:
            last[found.preset] = found
    theirs = reference_task_table(report._replace(reference_comparisons=list(last.values())))
    ours = markdown_text(ablation_table(report))
    return f"{ours}\n\nThe same presets compared with the authors' runs of DR.Q:\n\n" + markdown_text(
        theirs, leave_out=("reference",)
    )


def curves(report: Report) -> str:
    """The figures of every suite with runs."""
    shown = dict.fromkeys(curve.suite for curve in report.curves)
    order = [suite for suite in SUITES if suite in shown]
    return "\n\n".join(f"![learning curves, {suite_title(suite)}](curves-{suite}.png)" for suite in order)


def fill(page: str, sections: dict[str, str]) -> str:
    """The page with what stands between each pair of markers made anew."""
    for name, text in sections.items():
        pattern = re.compile(rf"(<!-- made: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page, amount = pattern.subn(lambda found, text=text: f"{found[1]}{text}\n{found[2]}", page)
        if amount != 1:
            raise ValueError(f"the page has {amount} pairs of markers for '{name}', expected 1")
    return page


if __name__ == "__main__":
    sys.exit(main())
