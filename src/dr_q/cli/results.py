"""Commands on evaluations: results, compare, report."""

import dataclasses
import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from dr_q.cli.options import argument, option
from dr_q.cli.output import print_table, say_what_is_left_out
from dr_q.config import MOST_STEPS
from dr_q.kit import ConfigError, check_can_write


@dataclasses.dataclass(kw_only=True)
class Results:
    """Collect evaluations into one tidy CSV file: task, preset, seed, agent_steps, return, and what runs add."""

    sources: tuple[Path, ...] = argument(
        (), "runs, folders of runs, CSV files with those columns", metavar="RUN|FOLDER|FILE..."
    )
    out: Path = option(Path("results.csv"), "the file to write", metavar="FILE")

    def run(self) -> int:
        """Collect."""
        from dr_q.report import read_results, write_results
        from dr_q.report.numbers import count
        from dr_q.report.results import changes_of, labelled_runs, preset_of

        if not self.sources:
            raise ConfigError("nothing to collect; name runs, folders of runs, or CSV files of results")
        check_can_write(self.out)
        results = read_results(self.sources)
        if not results:
            raise ConfigError(f"no evaluation in {', '.join(map(str, self.sources))} yet; nothing was written")
        say_what_is_left_out(self.sources)
        write_results(results, self.out)
        for run, label in labelled_runs(self.sources):
            changed = changes_of(run.info)
            if changed and label == preset_of(run):
                print(f"dr-q: {run.folder} is listed as {label}, but changed {', '.join(changed)}", file=sys.stderr)
        seeds = {result[:3] for result in results}
        tasks, presets = {r.task for r in results}, {r.preset for r in results}
        amounts = {"evaluation": results, "task": tasks, "preset": presets, "seed": seeds}
        print(f"{self.out}: " + ", ".join(count(len(found), what) for what, found in amounts.items()))
        return 0


@dataclasses.dataclass(kw_only=True)
class Compare:
    """Compare two sets of runs, task by task and over all, and say what can be concluded."""

    first: str = argument(
        help="a run, a folder of runs, or a CSV file of results; one preset of several: results.csv@dr.q",
        metavar="FIRST",
    )
    second: str | None = argument(
        None, "the same, to compare with: results.csv@mr.q; not needed with --reference", metavar="SECOND"
    )
    reference: tuple[Path, ...] = option(
        (),
        "compare with single seeds of others at equal steps: CSV files of dr-q results, or results/drq.csv of the "
        "authors' repository",
        metavar="FILE...",
    )
    at: int | None = option(
        None,
        "agent steps at which to compare, or the last evaluation before",
        metavar="STEP", least=0, most=MOST_STEPS, otherwise="the last that all seeds have",
    )  # fmt: skip
    json: bool = option(False, "print JSON")

    def run(self) -> int:
        """Compare."""
        from dr_q.report import compare, other_differences

        if self.reference:
            return self._with_references()
        if self.second is None:
            raise ConfigError(f"nothing to compare {self.first} with; name a second set of results, or a --reference")
        sources = [_split_source(source) for source in (self.first, self.second)]
        sides = [_results_of(*source) for source in sources]
        presets = [", ".join(sorted({result.preset for result in side})) for side in sides]
        for source, side in zip((self.first, self.second), sides, strict=True):
            if not side:
                raise ConfigError(f"no evaluation in {source} yet: there is nothing to compare")
        if sides[0] == sides[1]:
            raise ConfigError(f"{self.first} and {self.second} have the same results: there is nothing to compare")
        names = presets if presets[0] != presets[1] else _shorter(self.first, self.second)
        found = compare(sides[0], sides[1], (names[0], names[1]), self.at)
        tasks = [row.task for row in found.tasks]
        sentences = [*found.sentences(), *other_differences([_runs_of(*source) for source in sources], tasks)]
        if self.json:
            record = {**found._asdict(), "tasks": list(map(_as_record, found.tasks)), "sentences": sentences}
            print(json.dumps(_without_nan(record), indent=1))
            return 0
        print_table(_heads(names), map(_compared, found.tasks), width=160)
        for sentence in sentences:
            print(sentence)
        return 0

    def _with_references(self) -> int:
        """Compare with each reference, suite by suite and task by task."""
        from dr_q.report import compare_with_reference, read_references
        from dr_q.report.wording import reference_sentence, reference_title

        if self.second is not None:
            raise ConfigError(f"both {self.second} and a --reference are given to compare with; leave one of them out")
        ours = _results_of(*_split_source(self.first))
        if not ours:
            raise ConfigError(f"no evaluation in {self.first} yet: there is nothing to compare")
        records = []
        for reference in read_references(self.reference):
            found = compare_with_reference(ours, reference, ours[0].preset, self.at)
            if found is None:
                at = "" if self.at is None else f" at {self.at:,} steps"
                raise ConfigError(f"{self.first} and {reference.name} have no task in common{at}; nothing to compare")
            if self.json:
                tasks = [
                    {**_as_record(row), "share": found.shares.get(row.task), "verdict": found.verdict(row)}
                    for row in found.pair.tasks
                ]
                suites = [one._asdict() for one in found.suites]
                record = {"preset": found.preset, "reference": found.reference, "at": found.agent_steps}
                records.append({**record, "suites": suites, "tasks": tasks, "missing": found.missing})
                continue
            print(f"{reference_title(found)}\n")
            columns = ("suite", "tasks", "seeds", "share of the published final score", "P(better)", "")
            print_table(columns, map(_suite_row, found.suites), width=160)
            print()
            known = found.sorted_tasks()
            rows = [*known, *(row for row in found.pair.tasks if row.task not in found.shares)]
            lines = ((*_compared(row)[:-1], found.verdict(row)) for row in rows)
            print_table(_heads((found.preset, found.reference)), lines, width=180)
            print(reference_sentence(found))
            if found.missing:
                print(f"Tasks of the paper that are not compared ({len(found.missing)}): {', '.join(found.missing)}.\n")
        if self.json:
            print(json.dumps(_without_nan(records), indent=1))
        return 0


def _suite_row(one: Any) -> tuple[str, ...]:
    """A suite's line of the comparison with a reference."""
    from dr_q.report.numbers import with_interval
    from dr_q.report.verdicts import interval_verdict
    from dr_q.report.wording import shown_share, span, suite_title

    return (
        suite_title(one.suite),
        str(one.tasks),
        ", ".join(span(seeds) or "" for seeds in one.seeds),
        shown_share(one.difference),
        with_interval(one.improvement, ".2f"),
        interval_verdict(one.difference),
    )


def _as_record(row: Any) -> dict[str, Any]:
    """A task's numbers as JSON has them."""
    return {**row._asdict(), "samples": [of._asdict() for of in row.samples], "verdict": row.verdict}


def _heads(names: Iterable[str]) -> tuple[str, ...]:
    """Of the columns of `_compared`, with the names of both sides."""
    sides = (f"{name}, mean +- sd" for name in names)
    return ("task", "agent steps", "seeds", *sides, "difference", "95% interval", "p", "p, Holm", "P(better)", "")


def _compared(row: Any) -> tuple[str, ...]:
    """A task's line of the comparison."""
    gap = row.difference
    return (
        row.task,
        f"{row.agent_steps:,}",
        ", ".join(str(of.seeds) for of in row.samples),
        *map(_mean_and_deviation, row.samples),
        f"{gap.value:+.4g}",
        "" if math.isnan(gap.low) else f"[{gap.low:+.4g}, {gap.high:+.4g}]",
        *(_chance(p) for p in (row.p, row.p_holm)),
        "" if math.isnan(gap.low) else f"{row.improvement:.2f}",
        row.verdict,
    )


def _chance(p: float) -> str:
    if math.isnan(p):
        return ""
    return f"{p:.3f}" if p >= 0.0005 else "<0.001"


def _mean_and_deviation(of: Any) -> str:
    return f"{of.mean:.4g}" if math.isnan(of.deviation) else f"{of.mean:.4g} +- {of.deviation:.4g}"


def _shorter(first: str, second: str) -> list[str]:
    """Two sources by their last names, where these differ."""
    last = [Path(source).name for source in (first, second)]
    return last if last[0] != last[1] else [first, second]


def _without_nan(value: Any) -> Any:
    """JSON has no such number: null."""
    if isinstance(value, dict):
        return {name: _without_nan(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _split_source(source: str) -> tuple[Path, str]:
    """A path and the preset that is named behind its last @; a path may have others, and of a whole path none is."""
    path, _, preset = source.rpartition("@")
    if path and Path(path).exists() and not Path(source).exists():
        return Path(path), preset
    return Path(source), ""


def _runs_of(path: Path, preset: str) -> list[Any]:
    """The runs of one preset with their labels; none of a file."""
    from dr_q.report.results import labelled_runs

    return [(run, label) for run, label in labelled_runs([path]) if preset in ("", label)]


def _results_of(path: Path, preset: str) -> list[Any]:
    """The results of one preset."""
    from dr_q.report import read_results

    results = read_results([path])
    presets = sorted({result.preset for result in results})
    if preset and preset not in presets:
        raise ConfigError(f"{path} has no results of preset '{preset}'; it has {', '.join(presets) or 'none'}")
    if not preset and len(presets) > 1:
        raise ConfigError(f"{path} has several presets; choose one: {', '.join(f'{path}@{name}' for name in presets)}")
    return [result for result in results if not preset or result.preset == preset]


@dataclasses.dataclass(kw_only=True)
class Report:
    """Write a page of results compared with the paper's, and the same as PNG, CSV and LaTeX."""

    extra: ClassVar = "report"
    sources: tuple[Path, ...] = argument(
        (), "runs, folders of runs, CSV files of results (dr-q results)", metavar="RUN|FOLDER|FILE..."
    )
    out: Path = option(
        Path("report"), "its folder: new, empty, or an earlier report's, which is replaced", metavar="DIR"
    )
    base: str | None = option(
        None, "the preset that the others are compared with", metavar="PRESET", otherwise="dr.q, or the first"
    )
    at: int | None = option(
        None,
        "agent steps at which scores are taken, or the last evaluation before",
        metavar="STEP", least=0, most=MOST_STEPS, otherwise="the last that all seeds of a task have",
    )  # fmt: skip
    reference: tuple[Path, ...] = option(
        (),
        "curves of others to draw and compare with at equal steps: CSV files of dr-q results, or results/drq.csv of "
        "the authors' repository",
        metavar="FILE...",
    )
    compare_at: tuple[int, ...] = option(
        (),
        "agent steps at which runs are compared with references",
        metavar="STEP...", least=0, most=MOST_STEPS, otherwise="the last that both have, task by task",
    )  # fmt: skip

    def run(self) -> int:
        """Write."""
        from dr_q.report import build_report, check_report_folder, read_references, read_results, write_report
        from dr_q.report.results import labelled_runs

        def say(line: str) -> None:
            print(f"report: {line}", file=sys.stderr, flush=True)

        if not self.sources:
            raise ConfigError("nothing to report on; name runs, folders of runs, or CSV files of results")
        check_report_folder(self.out)
        results = read_results(self.sources)
        runs = labelled_runs(self.sources)
        say_what_is_left_out(self.sources)
        references = read_references(self.reference)
        for reference in references:
            if reference.unknown_tasks:
                say(f"{reference.name}: left out {len(reference.unknown_tasks)} tasks that are not in the paper")
        report = build_report(results, runs, say, self.base, self.at, references, self.compare_at)
        page = write_report(report, results, self.out, say)
        print(page)
        return 0
