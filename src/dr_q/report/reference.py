"""Reference curves: single seeds of an algorithm that our runs are compared with at equal steps.

A file is either in our tidy format (`dr-q results`) or as the authors of DR.Q publish theirs: `drq.csv`, `fog.csv` and
`simbaV2_utd2.csv` in `results/` of their repository, which name tasks in their own way and count frames.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from dr_q.kit import ConfigError, shortened, spelled
from dr_q.paper import SUITES, TaskInfo, algorithms, paper_tasks, published_score
from dr_q.report.compare import Comparison, TaskComparison, compare
from dr_q.report.results import COLUMNS, Result, read_results
from dr_q.report.statistics import (
    Estimate,
    Scores,
    bootstrap_difference,
    by_seed,
    mean_with_bootstrap,
    overall,
)
from dr_q.run_folder import RunRecord, Table, finite_number, read_table, whole_number

AUTHORS_COLUMNS = ("env_name", "seed", "env_step", "value")
"""Of the authors' files; `env_step` counts frames. `exp_name` and `metric` are used where they are there."""
AGENT_STEP_COLUMNS = ("env_id", "seed", "agent_step", "value")
"""The same data, counted in agent steps."""
RETURN_METRIC = "avg_return"
ALL_SUITES = "all"
EARLY = 0.05
"""Share of the published score under which neither side has learnt anything yet."""


class Reference(NamedTuple):
    """Single seeds of one algorithm, read from a file: what our runs are compared with."""

    name: str
    """Its name in comparisons: the algorithm and the file."""
    algorithm: str | None
    """The published algorithm that it is; None if it is none."""
    results: list[Result]
    """Its results. Their preset is `name`."""
    unknown_tasks: list[str]
    """Tasks of the file that are not in the paper, as the file names them. Their results are left out."""


class SuiteDifference(NamedTuple):
    """A preset and a reference over the tasks of a suite, in shares of DR.Q's published final scores."""

    suite: str
    """The suite; `"all"` for all tasks that are compared, each with the same weight."""
    tasks: int
    """Number of tasks."""
    seeds: tuple[tuple[int, int], tuple[int, int]]
    """Smallest and largest number of seeds of a task, of our runs and of the reference."""
    ours: Estimate
    """Mean over tasks of our runs."""
    theirs: Estimate
    """Mean over tasks of the reference."""
    difference: Estimate
    """Our mean minus the reference's; the interval is by a stratified bootstrap over the seeds of both sides."""
    improvement: Estimate
    """Probability that a run of ours is better than a run of the reference."""


class ReferenceComparison(NamedTuple):
    """A preset and a reference at equal steps: what `compare_with_reference` returns."""

    preset: str
    """The preset."""
    reference: str
    """Name of the reference."""
    agent_steps: int | None
    """Agent steps at which all tasks are compared; None if each is compared at the last step that both sides have."""
    pair: Comparison
    """The comparison task by task, in the task's own units; p-values are Holm-corrected for all tasks."""
    shares: dict[str, Estimate]
    """The difference by task, as a share of DR.Q's published final score."""
    too_early: set[str]
    """Tasks on which neither mean has reached 5% of the published score."""
    suites: list[SuiteDifference]
    """The difference over all tasks, then over those of each suite."""
    missing: list[str]
    """The paper's tasks that are not compared, because a side has no runs of them at that step."""

    def sorted_tasks(self) -> list[TaskComparison]:
        """The tasks that have a published score, sorted by their difference as a share of it, largest first.

        Returns:
            The comparisons of these tasks.
        """
        rows = [row for row in self.pair.tasks if row.task in self.shares]
        return sorted(rows, key=lambda row: -self.shares[row.task].value)

    def verdict(self, row: TaskComparison) -> str:
        """The verdict on a task.

        Args:
            row: The comparison of a task, from `pair.tasks`.

        Returns:
            `"too early"` if neither side has reached 5% of the published score, otherwise `row.verdict`.
        """
        return "too early" if row.task in self.too_early else row.verdict


def read_references(paths: Sequence[str | Path]) -> list[Reference]:
    """Read reference curves: single seeds that our runs are compared with.

    Args:
        paths: CSV files, in our tidy format or as the authors of DR.Q publish theirs (`results/drq.csv` of their
            repository).

    Returns:
        A reference for each algorithm, or preset, of each file.

    Raises:
        ConfigError: A file does not exist, is in no known format, has none of the paper's tasks, or has two values for
            one evaluation.
        DamagedFileError: A file is not CSV, or a line has too many or too few values.

    Example:
        ```python
        (reference,) = dr_q.report.read_references(["DR.Q/results/drq.csv"])
        print(reference.name, len(reference.results))
        ```
    """
    return [found for path in map(Path, paths) for found in _read(path)]


def reference_records(references: Iterable[Reference], runs: Iterable[RunRecord]) -> list[RunRecord]:
    """References as if they had been runs, on the tasks of these runs and up to their last steps."""
    last: dict[str, int] = {}
    for run in runs:
        task = run.info["settings"]["task"]
        steps = [step for points in run.evaluations.values() for step, _ in points]
        last[task] = max([last.get(task, 0), *steps])
    found = []
    for reference in references:
        for task, end in last.items():
            own = by_seed(r for r in reference.results if r.task == task and r.agent_steps <= end)
            seeds = {seed: sorted(points.items()) for seed, points in own.items()}
            if seeds:
                settings = {"task": task, "preset": reference.name}
                found.append(RunRecord(Path(reference.name), {"settings": settings}, seeds))
    return found


def compare_with_reference(
    results: Sequence[Result], reference: Reference, preset: str, at: int | None = None
) -> ReferenceComparison | None:
    """Compare our results of one preset with a reference at equal steps.

    Args:
        results: Our results, of any presets.
        reference: The reference.
        preset: The preset whose results are compared.
        at: Agent steps. Tasks without an evaluation of both sides there are left out. Default: for each task the last
            step that both sides have.

    Returns:
        The comparison; None if the two have no task and step in common.

    Example:
        ```python
        (reference,) = dr_q.report.read_references(["DR.Q/results/drq.csv"])
        results = dr_q.report.read_results(["runs"])
        found = dr_q.report.compare_with_reference(results, reference, "dr.q", at=50_000)
        if found is not None:
            print(found.suites[0].difference)
        ```
    """
    ours = [r for r in results if r.preset == preset and (at is None or r.agent_steps == at)]
    theirs = [r for r in reference.results if at is None or r.agent_steps == at]
    ours, theirs = ([r for r in side if r.agent_steps > 0] for side in (ours, theirs))
    try:
        pair = compare(ours, theirs, (preset, reference.name))
    except ConfigError:  # no task in common
        return None
    published = {row.task: score.mean for row in pair.tasks if (score := published_score(row.task)) is not None}
    early = {row.task for row in pair.tasks if is_too_early(row, published)}
    steps = {row.task: row.agent_steps for row in pair.tasks}
    sides = [_shares(side, steps, published) for side in (ours, theirs)]
    compared = set(steps)
    return ReferenceComparison(
        preset,
        reference.name,
        at,
        pair,
        shares_of(pair.tasks, published),
        early,
        _suite_differences(sides[0], sides[1]),
        [task for task in paper_tasks() if task not in compared],
    )


def shares_of(rows: Iterable[TaskComparison], published: dict[str, float]) -> dict[str, Estimate]:
    """Differences by task as shares of published scores; only of tasks that have one."""
    return {
        row.task: Estimate(*(x / published[row.task] for x in row.difference)) for row in rows if row.task in published
    }


def is_too_early(row: TaskComparison, published: dict[str, float]) -> bool:
    """Whether neither side has reached EARLY of the published score."""
    score = published.get(row.task)
    return score is not None and max(of.mean for of in row.samples) < EARLY * score


def _shares(results: Iterable[Result], steps: dict[str, int], published: dict[str, float]) -> Scores:
    """Scores at these steps as shares of the published final scores."""
    found: Scores = {}
    for r in results:
        if r.task in published and r.agent_steps == steps.get(r.task):
            found.setdefault(r.task, {})[r.seed] = r.score / published[r.task]
    return dict(sorted(found.items()))


def _suite_differences(ours: Scores, theirs: Scores) -> list[SuiteDifference]:
    """Over all tasks, and over those of each suite."""
    by_suite: dict[str, list[str]] = {ALL_SUITES: list(ours)}
    for suite in SUITES:
        by_suite[suite] = [name for name in ours if paper_tasks()[name].suite == suite]
    found = []
    for suite, tasks in by_suite.items():
        sides = [{task: side[task] for task in tasks} for side in (ours, theirs)]
        if not tasks:
            continue
        counts = [[len(seeds) for seeds in side.values()] for side in sides]
        found.append(
            SuiteDifference(
                suite,
                len(tasks),
                ((min(counts[0]), max(counts[0])), (min(counts[1]), max(counts[1]))),
                mean_with_bootstrap(sides[0]),
                mean_with_bootstrap(sides[1]),
                bootstrap_difference(sides[0], sides[1]),
                overall(sides[0], sides[1])[1],
            )
        )
    return found


def _read(path: Path) -> list[Reference]:
    if not path.is_file():
        raise ConfigError(
            f"{spelled('reference')} {path} is not a file; give a CSV file of dr-q results, or results/drq.csv "
            "of the authors' repository"
        )
    table = read_table(path)
    have = set(table.columns)
    if have >= set(COLUMNS):
        results, unknown = read_results([path]), []
    elif have >= set(AUTHORS_COLUMNS) or have >= set(AGENT_STEP_COLUMNS):
        results, unknown = _read_authors(path, table, in_frames=have >= set(AUTHORS_COLUMNS))
    else:
        raise ConfigError(
            f"{path} has the columns {', '.join(sorted(have)) or '(none)'}; a reference needs {', '.join(COLUMNS)} "
            f"(dr-q results) or {', '.join(AUTHORS_COLUMNS)} (results/drq.csv of the authors' repository)"
        )
    if not results:
        raise ConfigError(f"{path} has none of the paper's tasks; it has {', '.join(unknown[:5]) or 'no rows'}")
    by_name: dict[str, list[Result]] = {}
    for result in results:
        by_name.setdefault(result.preset, []).append(result)
    found = []
    for given, own in by_name.items():
        algorithm = _algorithm(given)
        name = f"{algorithm or given} ({path.name})"
        found.append(Reference(name, algorithm, [r._replace(preset=name) for r in own], unknown))
    return found


def _read_authors(path: Path, table: Table, in_frames: bool) -> tuple[list[Result], list[str]]:
    """Results of a file of the authors' repository, and its tasks that are not in the paper."""
    tasks = {_authors_name(task): info for task, info in paper_tasks().items()}
    task_column, step_column = ("env_name", "env_step") if in_frames else ("env_id", "agent_step")
    found: dict[tuple[str, str, int, int], Result] = {}
    unknown: dict[str, None] = {}
    for line, row in table.numbered():
        info = tasks.get(row[task_column].replace("-", "_"))
        if info is None:
            unknown[row[task_column]] = None
        elif row.get("metric", RETURN_METRIC) == RETURN_METRIC:
            result = _authors_result(path, line, row, info, step_column, in_frames)
            key = result[:4]
            if key in found and found[key].score != result.score:
                raise ConfigError(
                    f"{path}, line {line}: a second value for {row[task_column]}, seed {result.seed} at "
                    f"{row[step_column]}; each evaluation must be there once"
                )
            found[key] = result
    return sorted(found.values(), key=lambda r: r[:4]), list(unknown)


def _authors_result(
    path: Path, line: int, row: dict[str, str], info: TaskInfo, step_column: str, in_frames: bool
) -> Result:
    # Their tables have seeds and steps as 10.0 and 50000.0.
    seed, steps = (whole_number(finite_number(row[name])) for name in ("seed", step_column))
    score = finite_number(row["value"])
    if seed is None or steps is None or score is None:
        got = ", ".join(shortened(row[name]) for name in ("seed", step_column, "value"))
        raise ConfigError(
            f"{path}, line {line}: seed, {step_column} and value must be numbers, finite and at most 2^63; got {got}; "
            "fix or remove that line"
        )
    name = row.get("exp_name") or path.stem
    return Result(info.name, name, seed, steps // info.action_repeat if in_frames else steps, score, {})


def _authors_name(task: str) -> str:
    """dmc-visual/walker-run is visual_walker_run there."""
    family, _, name = task.partition("/")
    return (f"visual-{name}" if family == "dmc-visual" else name).replace("-", "_")


def _algorithm(name: str) -> str | None:
    """The published algorithm whose name a name begins with: DR.Q of drq, SimBaV2 of simbaV2_utd2."""
    plain = _plain(name)
    fitting = [algorithm for algorithm in algorithms() if plain.startswith(_plain(algorithm))]
    return max(fitting, key=len, default=None)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


__all__ = [
    "ALL_SUITES",
    "EARLY",
    "Reference",
    "ReferenceComparison",
    "SuiteDifference",
    "compare_with_reference",
    "read_references",
    "reference_records",
]
