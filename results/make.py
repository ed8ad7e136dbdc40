"""Everything in docs/results.md, from the runs in this folder.

    python results/make.py                                  # or: make results
    python results/make.py --authors PATH/results/drq.csv   # compare with the authors' seeds anew first

A run's folder (run.json, evals.csv, metrics.csv of `dr-q train`) goes under runs/; shorter runs of the same task,
preset and seeds under repeats/. Writes evaluations.csv, repeats.csv, the tables between the markers of docs/results.md,
and docs/results/*.png. The authors' seeds are not in this repository; comparison.csv has what comparing gave.
"""

import contextlib
import csv
import dataclasses
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro

from dr_q.kit import ConfigError
from dr_q.paper import paper_tasks, published_score
from dr_q.report import Result, compare, read_results, write_results
from dr_q.report.canvas import new_figure, save_figure, short_count
from dr_q.report.compare import holm_corrected
from dr_q.report.numbers import count, with_interval
from dr_q.report.results import changes_of, train_command
from dr_q.report.statistics import (
    FEWEST_SEEDS,
    Estimate,
    Sample,
    by_seed,
    difference_p,
    mean,
    mean_curve,
    sample,
    sample_difference,
    sample_mean,
    satterthwaite,
)
from dr_q.report.style import style
from dr_q.report.table_files import markdown_table
from dr_q.report.verdicts import difference_verdict
from dr_q.run_folder import RunRecord, find_runs, read_run, run_timing
from dr_q.sweep.estimate import expected_rate, nearest

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
COMPARED = "dr.q"
AUTHORS = "the authors' runs"
EARLY = 0.05
"""Share of the published score under which neither side has learnt anything yet."""
FIRST_STEPS = 100_000
"""What every task is run to; one continues to the end of the paper's budget."""
LATER_EVERY = 100_000
"""Steps between rows of the table of that one; where a difference is significant, there are more."""


SIDE_BY_SIDE = (
    ("humanoid-walk-mr.q", "humanoid-walk-no-infonce", "humanoid-walk-only-lap"),
    ("hopper-stand-more", "ant-v4-more", "hopper-v4-more"),
)
"""Runs that shared one GPU from their beginning to their end."""
AUTHORS_STUCK = 2
"""Of the authors' ten seeds of humanoid-walk those that have not begun to walk at 100,000 steps: 1.6 and 1.8."""
NOTHING_YET = "Not run yet."
ABLATION_COLUMNS = (
    "task",
    "agent steps",
    "preset",
    "its score",
    "dr.q",
    "it minus dr.q, 95% interval",
    "p",
    "p, Holm",
    "it is",
    "it minus the authors' dr.q",
)


class Wanted(NamedTuple):
    """A run that the proof asks for."""

    task: str
    preset: str
    seeds: int
    steps: int
    first_seed: int = 0


WANTED = (
    Wanted("gym/Hopper-v4", "dr.q", 10, 100_000),
    Wanted("dmc/humanoid-walk", "dr.q", 10, 100_000),
    Wanted("dmc/cheetah-run", "dr.q", 10, 100_000),
    Wanted("gym/Ant-v4", "dr.q", 10, 100_000),
    Wanted("dmc/hopper-stand", "dr.q", 10, 100_000),
    Wanted("hbench/h1-walk-v0", "dr.q", 10, 50_000),
    Wanted("dmc-visual/walker-run", "dr.q", 5, 50_000),
    Wanted("dmc/humanoid-walk", "no-infonce", 10, 100_000),
    Wanted("dmc/humanoid-walk", "only-lap", 10, 100_000),
    Wanted("dmc/humanoid-walk", "only-forget", 10, 100_000),
    Wanted("dmc/humanoid-walk", "mr.q", 10, 100_000),
    Wanted("dmc/walker-run", "dr.q", 3, 500_000),
    Wanted("dmc/hopper-stand", "dr.q", 10, 100_000, first_seed=10),
    Wanted("gym/Ant-v4", "dr.q", 10, 100_000, first_seed=10),
    Wanted("gym/Hopper-v4", "dr.q", 10, 100_000, first_seed=10),
    # What would say more.
    Wanted("dmc/humanoid-walk", "dr.q", 10, 100_000, first_seed=10),
    Wanted("hbench/h1-walk-v0", "dr.q", 10, 50_000, first_seed=10),
    Wanted("dmc-visual/walker-run", "dr.q", 5, 50_000, first_seed=5),
    Wanted("dmc/walker-run", "dr.q", 7, 500_000, first_seed=3),
    *(
        Wanted("dmc/humanoid-walk", preset, 10, 500_000)
        for preset in ("dr.q", "no-infonce", "only-lap", "only-forget", "mr.q")
    ),
    Wanted("dmc-visual/walker-run", "dr.q", 5, 500_000),
)


class Compared(NamedTuple):
    """Our scores and the authors' scores at one checkpoint of one task; a row of comparison.csv."""

    task: str
    agent_steps: int
    ours: float
    ours_sd: float
    ours_seeds: int
    authors: float
    authors_sd: float
    authors_seeds: int
    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    """Holm-corrected for the number of tasks at that checkpoint."""

    def verdict(self) -> str:
        if hardly_begun(self.task, max(self.ours, self.authors)):
            return "too early"
        return difference_verdict(self.difference, self.p_holm)

    def our_sample(self) -> Sample:
        return Sample(self.ours, self.ours_sd, self.ours_seeds)

    def authors_sample(self) -> Sample:
        return Sample(self.authors, self.authors_sd, self.authors_seeds)


def hardly_begun(task: str, score: float) -> bool:
    published = published_score(task)
    return published is not None and score < EARLY * published.mean


def emphasised(verdict: str) -> str:
    return "**below**" if verdict == "below" else verdict


@dataclasses.dataclass
class Arguments:
    """What to make."""

    authors: Path | None = None
    """The authors' seeds: results/drq.csv of their repository."""
    out: Path = DOCS
    """Where results.md is, and its figures go."""


def main() -> int:
    arguments = tyro.cli(Arguments, description=__doc__)
    try:
        return make(arguments)
    except (ValueError, OSError) as error:  # ConfigError is one
        print(f"results/make.py: {error}", file=sys.stderr)
        return 2


def make(arguments: Arguments) -> int:
    results = read_results([HERE / "runs"])
    again = find_runs(HERE / "repeats")
    repeats = {folder.name: read_results([folder]) for folder in again}
    write_results(results, HERE / "evaluations.csv")
    named = [r._replace(more={**r.more, "run": name}) for name, found in repeats.items() for r in found]
    write_results(named, HERE / "repeats.csv")
    if arguments.authors is not None:
        write_comparison(compare_with(results, arguments.authors))
    runs = [read_run(folder) for folder in (*find_runs(HERE / "runs"), *again)]
    compared = read_comparison()
    figures = arguments.out / "results"
    draw_curves([r for r in results if r.agent_steps <= FIRST_STEPS], compared, figures / "curves.png")
    draw_differences([c for c in compared if c.agent_steps <= FIRST_STEPS], figures / "differences.png")
    whole_runs = {r.task for r in results if r.agent_steps > FIRST_STEPS}
    if whole_runs:
        to_the_end = [r for r in results if r.task in whole_runs]
        draw_curves(to_the_end, compared, figures / "budget.png")
    if {r.preset for r in results} > {COMPARED}:
        draw_ablations(results, figures / "ablations.png")
    page = arguments.out / "results.md"
    sections = tables(runs, results, compared) | {
        "repeats": repeats_table(repeats, results),
        "text": text_table(runs, repeats, results, compared),
    }
    page.write_text(fill(page.read_text(), sections))
    print(page)
    return 0


# Numbers.


def scores(results: Iterable[Result], task: str, preset: str, agent_steps: int) -> list[float]:
    """Of each seed that has an evaluation there."""
    return [r.score for r in results if (r.task, r.preset, r.agent_steps) == (task, preset, agent_steps)]


def compare_with(results: list[Result], path: Path) -> list[Compared]:
    """Every checkpoint after the first that both sides have, Holm-corrected over the tasks at each.

    Of fewer than 3 seeds nothing can be said.
    """
    theirs = [
        Result(task, AUTHORS, seed, steps, score, {})
        for (task, steps), found in authors_seeds(path).items()
        for seed, score in enumerate(found)
    ]
    if not theirs:
        raise ConfigError(f"{path} has none of the paper's tasks; give results/drq.csv of the authors' repository")
    rows = []
    ours = [r for r in results if r.preset == COMPARED and r.agent_steps > 0]
    for steps in sorted({r.agent_steps for r in ours} & {r.agent_steps for r in theirs}):
        sides = [[r for r in side if r.agent_steps == steps] for side in (ours, theirs)]
        if not {r.task for r in sides[0]} & {r.task for r in sides[1]}:
            continue
        for row in compare(sides[0], sides[1], (COMPARED, AUTHORS)).tasks:
            if min(row.seeds) >= FEWEST_SEEDS:
                (a, b), (a_sd, b_sd), (a_seeds, b_seeds) = row.means, row.deviations, row.seeds
                rows.append(
                    Compared(row.task, steps, a, a_sd, a_seeds, b, b_sd, b_seeds, *row.difference, row.p, row.p_holm)
                )
    return rows


def authors_seeds(path: Path) -> dict[tuple[str, int], list[float]]:
    """Scores by task and agent steps: of the authors' own file, which counts frames, or of one with agent steps."""
    tasks = {authors_name(task): info for task, info in paper_tasks().items()}
    found: dict[tuple[str, int], list[float]] = {}
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        columns = set(reader.fieldnames or ())
        in_frames = {"env_name", "env_step", "value"} <= columns
        if not in_frames and not {"env_id", "agent_step", "value"} <= columns:
            raise ConfigError(
                f"{path} has the columns {', '.join(sorted(columns))}; expected env_name, env_step, value "
                "(results/drq.csv of the authors' repository) or env_id, agent_step, value"
            )
        for row in reader:
            info = tasks.get((row["env_name"] if in_frames else row["env_id"]).replace("-", "_"))
            if info is None:
                continue
            steps = int(row["env_step"]) // info.action_repeat if in_frames else int(row["agent_step"])
            found.setdefault((info.name, steps), []).append(float(row["value"]))
    return found


def authors_name(task: str) -> str:
    family, _, name = task.partition("/")
    return (f"visual-{name}" if family == "dmc-visual" else name).replace("-", "_")


def write_comparison(rows: list[Compared]) -> None:
    with (HERE / "comparison.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Compared._fields)
        writer.writerows([f"{x:.9g}" if isinstance(x, float) else x for x in row] for row in rows)


def read_comparison() -> list[Compared]:
    kinds = Compared.__annotations__
    with (HERE / "comparison.csv").open(newline="") as file:
        return [Compared(**{k: kinds[k](v) for k, v in row.items()}) for row in csv.DictReader(file)]


def rate_of(run: RunRecord) -> float | None:
    """Seed-steps/s of the steps that the run logged, exploration apart."""
    milliseconds = sum(run_timing(run.folder).values())
    return 1000 * len(run.info["seeds"]) / milliseconds if milliseconds else None


# Tables.


def tables(runs: list[RunRecord], results: list[Result], compared: list[Compared]) -> dict[str, str]:
    later = [
        c
        for c in compared
        if c.agent_steps > FIRST_STEPS and (c.agent_steps % LATER_EVERY == 0 or c.verdict() in ("above", "below"))
    ]
    return {
        "comparison": comparison_table(c for c in compared if c.agent_steps <= FIRST_STEPS),
        "relative": relative_table(compared, runs, results),
        "fresh": fresh_table(runs, results, compared),
        "budget": figure_link("budget") + comparison_table(later) + at_the_end(results) if later else NOTHING_YET,
        "ablations": figure_link("ablations") + markdown_table(ABLATION_COLUMNS, ablation_rows(results, compared))
        if {r.preset for r in results} > {COMPARED}
        else NOTHING_YET,
        "runs": markdown_table(
            ("run", "command", "agent steps", "minutes", "seed-steps/s", "source", "versions"),
            (run_row(run) for run in runs),
        ),
        "missing": markdown_table(
            ("what", "command", "minutes on one H200, about"), map(missing_row, missing(results))
        ),
    }


def comparison_table(compared: Iterable[Compared]) -> str:
    return markdown_table(
        (
            "task",
            "agent steps (of the budget)",
            "ours",
            AUTHORS,
            "difference, 95% interval",
            "p",
            "p, Holm",
            "verdict",
        ),
        (
            (
                f"`{c.task}`",
                f"{c.agent_steps:,} ({100 * share_of_budget(c):g}%)",
                mean_and_sd(c.our_sample()),
                mean_and_sd(c.authors_sample()),
                with_interval((c.difference, c.low, c.high), "+.1f"),
                chance(c.p),
                chance(c.p_holm),
                emphasised(c.verdict()),
            )
            for c in sorted(compared, key=lambda c: (c.task, c.agent_steps))
        ),
    )


def first_and_fresh(
    runs: list[RunRecord], results: list[Result], task: str, at: int
) -> tuple[list[float], list[float]]:
    """Scores of the seeds of a task's first run, and of all later ones."""
    begins = sorted(
        run.info["settings"]["first_seed"]
        for run in runs
        if run.folder.parent.name == "runs"
        and (run.info["settings"]["task"], run.info["settings"]["preset"]) == (task, COMPARED)
    )
    second = begins[1] if begins[1:] else np.inf
    ours = [r for r in results if (r.task, r.preset, r.agent_steps) == (task, COMPARED, at)]
    return [r.score for r in ours if r.seed < second], [r.score for r in ours if r.seed >= second]


def fresh_table(runs: list[RunRecord], results: list[Result], compared: list[Compared]) -> str:
    """The first and the later seeds of each task that has runs of both, each compared with the authors' runs."""
    rows = []
    for c in sorted(compared, key=lambda c: (c.task, c.agent_steps)):
        sides = first_and_fresh(runs, results, c.task, c.agent_steps)
        if c.agent_steps <= FIRST_STEPS and min(map(len, sides)) >= FEWEST_SEEDS:
            row = [f"`{c.task}`", f"{c.agent_steps:,}", mean_and_sd(c.authors_sample())]
            for side in sides:
                gap = sample_difference(sample(side), c.authors_sample())
                share = ", ".join(f"{100 * x / c.authors:+.0f}%" for x in (gap.low, gap.high))
                row += [mean_and_sd(sample(side)), f"{gap.value:+.1f}, {100 * gap.value / c.authors:+.0f}% [{share}]"]
            rows.append(row)
    gap = "minus the authors' mean, 95% interval"
    head = ("task", "agent steps", AUTHORS, "first seeds", gap, "fresh seeds", gap)
    return markdown_table(head, rows) if rows else NOTHING_YET


def at_the_end(results: list[Result]) -> str:
    """Ours and the published score, for each task that was run to the end of the paper's budget."""
    lines = []
    for task, info in paper_tasks().items():
        published, ours = published_score(task), scores(results, task, COMPARED, info.agent_steps)
        if published is not None and len(ours) >= FEWEST_SEEDS:
            theirs, own = (with_interval(x, ".0f") for x in (published, mean(ours)))
            lines.append(
                f"\n\nThe paper's score is {theirs} for `{task}` after {info.agent_steps:,} steps; "
                f"ours is {own}, {len(ours)} seeds."
            )
    return "".join(lines)


def relative_table(compared: list[Compared], runs: list[RunRecord], results: list[Result]) -> str:
    """Differences as shares of the authors' mean, at each task's last checkpoint up to FIRST_STEPS, and their mean.

    Also that of the first seeds alone: seeds that were added where the first were low would lift it.
    """
    last = {c.task: c for c in sorted(compared, key=lambda c: c.agent_steps) if c.agent_steps <= FIRST_STEPS}
    rows = [
        (f"`{c.task}`", f"{c.agent_steps:,}", *(f"{100 * x / c.authors:+.0f}%" for x in (c.difference, c.low, c.high)))
        for _, c in sorted(last.items())
    ]
    counted = [c for c in last.values() if c.verdict() != "too early"]
    if counted:
        of_first = [first_seeds_only(c, runs, results) for c in counted]
        for what, given in (("", counted), (", first seeds alone", of_first)):
            gap = mean_difference(given)
            rows.append((f"mean of {len(given)}, not too early{what}", "", *(f"{100 * x:+.1f}%" for x in gap)))
    return markdown_table(("task", "agent steps", "ours minus the authors' mean, relative to it", "from", "to"), rows)


def first_seeds_only(c: Compared, runs: list[RunRecord], results: list[Result]) -> Compared:
    first, _ = first_and_fresh(runs, results, c.task, c.agent_steps)
    ours = sample(first)
    return c._replace(ours=ours.mean, ours_sd=ours.deviation, ours_seeds=ours.seeds, difference=ours.mean - c.authors)


def mean_difference(compared: list[Compared]) -> Estimate:
    """Of shares of the authors' means; 95% interval by the delta method, with Satterthwaite's degrees of freedom."""
    value = float(np.mean([c.difference / c.authors for c in compared]))
    parts = [
        ((sd / c.authors / len(compared)) ** 2 / seeds, seeds - 1)
        for c in compared
        for sd, seeds in (
            (c.ours_sd, c.ours_seeds),
            (c.authors_sd * c.ours / c.authors, c.authors_seeds),
        )
    ]
    return satterthwaite(value, parts)


def chance(p: float) -> str:
    return f"{p:.2f}" if p >= 0.005 else "<0.01"


def figure_link(name: str) -> str:
    return f"![{name}](results/{name}.png)\n\n"


def share_of_budget(row: Compared) -> float:
    return row.agent_steps / paper_tasks()[row.task].agent_steps


def ablation_rows(results: list[Result], compared: list[Compared]) -> Iterator[tuple[str, ...]]:
    """Every other preset and DR.Q, at the last step that all seeds of both have.

    p-values are Holm-corrected for all rows: on one task it is presets that are many. The last column compares with the
    authors' own seeds of DR.Q at that step, where they are known.
    """
    theirs = {(c.task, c.agent_steps): c.authors_sample() for c in compared}
    whole = {r.task: [x for x in results if (x.task, x.preset) == (r.task, COMPARED)] for r in results}
    found = []
    for task, preset in sorted({(r.task, r.preset) for r in results if r.preset != COMPARED}):
        if whole[task]:
            less = [r for r in results if (r.task, r.preset) == (task, preset)]
            with contextlib.suppress(ValueError):  # no step that all seeds of both have
                found += [(preset, row) for row in compare(less, whole[task], (preset, COMPARED)).tasks]
    found = [(preset, row) for preset, row in found if min(row.seeds) >= FEWEST_SEEDS]
    for (preset, _), row in zip(found, holm_corrected([row for _, row in found]), strict=True):
        less, full = (Sample(*side) for side in zip(row.means, row.deviations, row.seeds, strict=True))
        authors = theirs.get((row.task, row.agent_steps))
        yield (
            f"`{row.task}`",
            f"{row.agent_steps:,}",
            preset,
            mean_and_sd(less),
            mean_and_sd(full),
            with_interval(row.difference, "+.1f"),
            chance(row.p),
            chance(row.p_holm),
            emphasised(row.verdict),
            with_interval(sample_difference(less, authors), "+.1f") if authors else "",
        )


def mean_and_sd(of: Sample) -> str:
    return f"{of.mean:.1f} +- {of.deviation:.1f} ({of.seeds})"


def repeats_table(repeats: dict[str, list[Result]], results: list[Result]) -> str:
    """Runs that were made more than once, by name, and those that the comparison takes, seed by seed."""
    from scipy import stats

    rows = []
    for name, other in sorted(repeats.items()):
        for task, preset, steps in sorted({(r.task, r.preset, r.agent_steps) for r in other if r.agent_steps > 0}):
            sides = [
                {r.seed: r.score for r in x if (r.task, r.preset, r.agent_steps) == (task, preset, steps)}
                for x in (results, other)
            ]
            both = sorted(sides[0].keys() & sides[1].keys())
            if len(both) < FEWEST_SEEDS:
                continue
            gaps = [sides[0][seed] - sides[1][seed] for seed in both]
            gap, p = mean(gaps), float(stats.ttest_1samp(gaps, 0.0).pvalue)  # pyright: ignore[reportAttributeAccessIssue]
            scored = [mean_and_sd(sample(side[seed] for seed in both)) for side in sides]
            row = (f"`{task}`", f"{steps:,}", scored[0], f"`{name}`", scored[1])
            rows.append((*row, with_interval(gap, "+.1f"), chance(p)))
    head = ("task", "agent steps", "these seeds in the comparison", "the other run", "its score")
    return markdown_table((*head, "difference by seed", "p"), rows)


def text_table(
    runs: list[RunRecord], repeats: dict[str, list[Result]], results: list[Result], compared: list[Compared]
) -> str:
    """What the page's sentences say and no other table has."""
    from scipy import stats

    walk, at = "dmc/humanoid-walk", FIRST_STEPS
    by_preset = {r.preset: scores(results, walk, r.preset, at) for r in results if r.task == walk}
    theirs = {(c.task, c.agent_steps): c for c in compared}
    rows = []
    if {"mr.q", "only-lap", "no-infonce", "only-forget"} <= by_preset.keys():
        row = theirs[walk, at]
        both = pooled(row.our_sample(), row.authors_sample())
        gap = with_interval(sample_difference(sample(by_preset["mr.q"]), both), "+.1f")
        rows.append((f"`{walk}`, {at:,}: mr.q minus dr.q, our and the authors' seeds ({both.seeds})", gap))
        without, having = (
            [x for preset in group for x in by_preset[preset]]
            for group in (("mr.q", "only-lap"), (COMPARED, "no-infonce", "only-forget"))
        )
        for most in (20, 10):
            stuck, others = (sum(x < most for x in group) for group in (without, having))
            table = [[stuck, len(without) - stuck], [others + AUTHORS_STUCK, len(having) + 10 - others - AUTHORS_STUCK]]
            p = float(stats.fisher_exact(table).pvalue)  # pyright: ignore[reportAttributeAccessIssue]
            shares = f"{stuck} of {len(without)}, {others} of {len(having)}"
            shares += f"; with {AUTHORS_STUCK} of the authors' 10 seeds: p = {p:.3f}"
            rows.append((f"`{walk}`, {at:,}: seeds under {most}, without the fade and with it", shares))
    for task in ("dmc/hopper-stand", "gym/Hopper-v4"):
        if values := scores(results, task, COMPARED, at):
            rows.append((f"`{task}`, {at:,}: our seeds", " ".join(f"{x:.0f}" for x in sorted(values))))
    if cheetahs := [r for name, found in repeats.items() for r in found if name == "cheetah-run-first"]:
        sides = [scores(x, "dmc/cheetah-run", COMPARED, 25_000) for x in (results, cheetahs)]
        rows.append(("`cheetah-run` and `cheetah-run-first`, 25,000: p, not by seed", chance(difference_p(*sides))))
    of = {run.folder.name: run for run in runs}
    for names in SIDE_BY_SIDE:
        rates = [rate_of(of[name]) for name in names if name in of]
        rows.append(
            (" + ".join(f"`{name}`" for name in names) + ": seed-steps/s", f"{sum(rate or 0 for rate in rates):,.0f}")
        )
    return markdown_table(("what", "figure"), rows)


def pooled(a: Sample, b: Sample) -> Sample:
    """The seeds of both as one sample."""
    seeds = a.seeds + b.seeds
    squares = (a.seeds - 1) * a.deviation**2 + (b.seeds - 1) * b.deviation**2
    squares += a.seeds * b.seeds / seeds * (a.mean - b.mean) ** 2
    return Sample((a.seeds * a.mean + b.seeds * b.mean) / seeds, (squares / (seeds - 1)) ** 0.5, seeds)


def run_row(run: RunRecord) -> tuple[str, ...]:
    info, rate = run.info, rate_of(run)
    versions = info["versions"]
    source = versions.get("source")
    command = train_command({**info, "changed": changes_of(info)})
    return (
        f"`{run.folder.name}`",
        f"`{command} --checkpoint-every {info['settings']['checkpoint_every']}`",
        f"{info['agent_steps']:,}" + ("" if info["status"] == "finished" else " (stopped)"),
        f"{info['seconds'] / 60:.1f}",
        "not kept" if rate is None else f"{rate:,.0f}",
        f"`{source}`" if source else "older, not recorded",
        f"{versions['device']}, jax {versions['jax']}, mujoco {versions['mujoco']}",
    )


def missing(results: list[Result]) -> list[Wanted]:
    """What was asked for and is not there, or not with as many seeds and steps."""

    def done(wanted: Wanted) -> bool:
        reached = {r.seed for r in results if r[:2] == wanted[:2] and r.agent_steps >= wanted.steps}
        return reached >= set(range(wanted.first_seed, wanted.first_seed + wanted.seeds))

    return [wanted for wanted in WANTED if not done(wanted)]


def missing_row(wanted: Wanted) -> tuple[str, ...]:
    settings = {**wanted._asdict(), "eval_every": 25_000}
    near = nearest(wanted.task, wanted.seeds)
    assert near is not None
    return (
        f"`{wanted.task}`, {wanted.preset}, {count(wanted.seeds, 'seed')} to {wanted.steps:,}",
        f"`{train_command({'settings': settings})} --checkpoint-every {FIRST_STEPS}`",
        f"{wanted.seeds * wanted.steps / expected_rate(near, wanted.seeds) / 60:.0f}",
    )


def fill(page: str, sections: dict[str, str]) -> str:
    """The page with what stands between each pair of markers made anew."""
    for name, text in sections.items():
        pattern = re.compile(rf"(<!-- made: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page, count = pattern.subn(lambda found, text=text: f"{found[1]}{text}\n{found[2]}", page)
        if count != 1:
            raise ValueError(f"the page has {count} pairs of markers for '{name}', expected 1")
    return page


# Figures.


def draw_curves(results: list[Result], compared: list[Compared], path: Path) -> None:
    """A panel for each task: our seeds, their mean with its interval, and the authors' runs."""
    tasks = sorted({r.task for r in results if r.preset == COMPARED})
    columns = min(4, len(tasks))
    rows = -(-len(tasks) // columns)
    figure, panels = new_figure(max(6.4, 3.1 * columns), 2.6 * rows + 0.5, rows, columns, len(tasks))
    for panel, task in zip(panels, tasks, strict=True):
        mine = [r for r in results if (r.task, r.preset) == (task, COMPARED)]
        for seed in sorted({r.seed for r in mine}):
            own = sorted((r.agent_steps, r.score) for r in mine if r.seed == seed)
            panel.plot(*zip(*own, strict=True), color=style(0)["color"], alpha=0.22, linewidth=0.8)
        last = draw_mean(panel, mine, 0, "ours")
        theirs = [c for c in compared if c.task == task and c.agent_steps <= last]
        half = [at.high - at.value for at in (sample_mean(c.authors_sample()) for c in theirs)]
        panel.errorbar(
            [c.agent_steps + 0.012 * last for c in theirs],
            [c.authors for c in theirs],
            yerr=half,
            **{**style(1), "linestyle": "none"},
            markersize=4,
            capsize=3,
            label=AUTHORS,
        )
        seeds = [len({r.seed for r in mine}), *{c.authors_seeds for c in theirs}]
        panel.set_title(f"{task}, {' and '.join(map(str, seeds))} seeds", fontsize=8.5, loc="left")
        panel.xaxis.set_major_formatter(lambda x, _: short_count(x))
        panel.set_ylim(bottom=min(0.0, panel.get_ylim()[0]))
    panels[0].legend(frameon=False, fontsize=7, loc="best")
    panels[0].set_ylabel("return", fontsize=8)
    title = "Mean return and its 95% interval (the authors' runs a little to the right); thin lines are our seeds"
    save_figure(figure, title, path)


def draw_mean(panel: Any, mine: list[Result], index: int, label: str) -> int:
    """The mean over seeds of one task and preset, and its interval; the last step."""
    curve = mean_curve(by_seed(mine))
    middle, low, high = zip(*curve.values, strict=True)
    panel.fill_between(curve.steps, low, high, color=style(index)["color"], alpha=0.18, linewidth=0)
    panel.plot(curve.steps, middle, **style(index), linewidth=1.8, markersize=4, label=label)
    return curve.steps[-1]


def draw_ablations(results: list[Result], path: Path) -> None:
    """A panel for each task that has another preset: their means and intervals, up to the last step of the shortest."""
    tasks = sorted({r.task for r in results if r.preset != COMPARED})
    figure, panels = new_figure(6.4 * len(tasks), 4.0, 1, len(tasks))
    for panel, task in zip(panels, tasks, strict=True):
        by_preset = {name: [r for r in results if (r.task, r.preset) == (task, name)] for name in preset_order(results)}
        by_preset = {name: mine for name, mine in by_preset.items() if mine}
        last = min(max(r.agent_steps for r in mine) for mine in by_preset.values())
        for index, (name, mine) in enumerate(by_preset.items()):
            seeds = len({r.seed for r in mine if r.agent_steps == last})
            draw_mean(panel, [r for r in mine if r.agent_steps <= last], index, f"{name} ({seeds} seeds)")
        panel.set_title(task, fontsize=8.5, loc="left")
        panel.xaxis.set_major_formatter(lambda x, _: short_count(x))
        panel.legend(frameon=False, fontsize=7.5, loc="upper left")
    panels[0].set_ylabel("return", fontsize=8)
    save_figure(figure, "Return against agent steps: mean over seeds, 95% intervals", path)


def preset_order(results: list[Result]) -> list[str]:
    """DR.Q first."""
    return [COMPARED, *sorted({r.preset for r in results} - {COMPARED})]


def draw_differences(compared: list[Compared], path: Path) -> None:
    """Our mean minus the authors' mean, as a share of the latter, where that is more than next to nothing."""
    rows = sorted(compared, key=lambda c: (c.task, c.agent_steps), reverse=True)
    rows = [c for c in rows if not hardly_begun(c.task, c.authors)]
    figure, (panel,) = new_figure(7.0, 0.24 * len(rows) + 1.3, 1, 1)
    for place, c in enumerate(rows):
        ends = [100 * x / c.authors for x in (c.low, c.difference, c.high)]
        panel.plot(ends[::2], [place, place], color=style(0)["color"], linewidth=1.6)
        panel.plot(ends[1], place, "o", color=style(0)["color"], markersize=4.5)
    panel.axvline(0, color="black", linewidth=0.8)
    panel.set_yticks(range(len(rows)), [f"{c.task}, {short_count(c.agent_steps)}" for c in rows])
    panel.set_xlabel("below the authors' mean  <  difference, % of it  >  above", fontsize=8)
    title = (
        "Our mean minus the authors' mean, 95% intervals (Welch), not corrected for their number; "
        f"where the authors' seeds have {100 * EARLY:g}% of the published score"
    )
    save_figure(figure, title, path)


if __name__ == "__main__":
    sys.exit(main())
