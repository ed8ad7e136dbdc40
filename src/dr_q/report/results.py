"""Results in one tidy format, task, preset, seed, agent_steps, return: from runs, from folders of runs, from files."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dr_q.config import Config, changed_settings, is_built_in, settings_of
from dr_q.kit import ConfigError, output_csv, shortened
from dr_q.run_folder import (
    RunRecord,
    find_runs,
    finite_number,
    own_evaluation_rows,
    read_run,
    read_table,
    whole_number,
)
from dr_q.settings import STARTING, STOP_RULES, callable_name, option_name, usual_settings

COLUMNS = ("task", "preset", "seed", "agent_steps", "return")
EXTRA_COLUMNS = ("env_frames", "return_std", "length_mean", "episodes")
"""What runs of ours add."""


class Result(NamedTuple):
    """One evaluation of one seed: a row of a tidy CSV file of results."""

    task: str
    """The task's name."""
    preset: str
    """The label of the run: its preset, and what distinguishes it from other runs."""
    seed: int
    """The seed."""
    agent_steps: int
    """Agent steps before the evaluation."""
    score: float
    """Mean return of the evaluation: the column `return`."""
    more: dict[str, str]
    """Optional columns, as text."""


_OF_RUN = ("num_envs", *STARTING, *STOP_RULES)
"""Settings of a run, besides those of the algorithm, that decide its results."""


def preset_of(run: RunRecord) -> str:
    """What its results are listed under: its preset, the noise that was added, and whether it had a start."""
    return _label(run, [])


def deciding_settings(run: RunRecord) -> dict[str, Any]:
    """The settings that decide a run's results; earlier versions recorded not all, and had the usual values of them."""
    settings, usual = run.info["settings"], usual_settings(run.info["settings"]["task"], run.info["settings"]["preset"])
    own = {name: settings.get(name, usual[name]) for name in _OF_RUN}
    if not own["init"]:
        own["warmup_steps"] = usual["warmup_steps"]  # which only `init` makes use of
    recorded = settings.get("config", {})
    added = (
        {name: usual[name] for name in usual.keys() & settings_of(Config).keys() - recorded.keys()} if recorded else {}
    )
    return {**added, **recorded, **own}


def changes_of(info: dict[str, Any]) -> dict[str, Any]:
    """What a run changed from its preset, as its run.json says or, of older ones, as this version's presets do."""
    settings = info["settings"]
    return info.get("changed", changed_settings(settings["preset"], settings.get("config", {})))


def run_labels(runs: Sequence[RunRecord]) -> list[str]:
    """What the results of several runs are listed under: `preset_of`, and the settings that distinguish runs of a task.

    A setting counts for all runs of a preset if it differs between two of them on the same task. A run that has there
    what its preset has (`changes_of`) keeps the preset's name, if that is enough to distinguish them. Runs that are
    still alike and have other evaluations of one seed are repetitions: their folders distinguish them.
    """
    labels = [preset_of(run) for run in runs]
    differing = _differing(runs, labels)
    named = [
        [name for name in differing[label] if name in _changed_of(run)] for run, label in zip(runs, labels, strict=True)
    ]
    labels = [_label(run, names) for run, names in zip(runs, named, strict=True)]
    differing = _differing(runs, labels)
    named = [[*names, *differing[label]] for names, label in zip(named, labels, strict=True)]
    return _with_folders(runs, [_label(run, names) for run, names in zip(runs, named, strict=True)])


def _changed_of(run: RunRecord) -> set[str]:
    """The settings in which it differs from its preset and from the usual ones of a run."""
    usual, own = usual_settings(run.info["settings"]["task"], run.info["settings"]["preset"]), deciding_settings(run)
    return {*changes_of(run.info), *(name for name in _OF_RUN if own[name] != usual[name])}


def _with_folders(runs: Sequence[RunRecord], labels: list[str]) -> list[str]:
    """The labels, with the folders of runs that disagree with another run of the same label."""
    alike: dict[tuple[str, str], list[int]] = {}
    for i, (run, label) in enumerate(zip(runs, labels, strict=True)):
        alike.setdefault((run.info["settings"]["task"], label), []).append(i)
    found = list(labels)
    for group in alike.values():
        scores = [
            {(seed, step): score for seed, points in runs[i].evaluations.items() for step, score in points}
            for i in group
        ]
        apart = [i for i, own in zip(group, scores, strict=True) if any(_disagree(own, other) for other in scores)]
        if apart:
            folders = [runs[i].folder.resolve() for i in apart]
            shared = os.path.commonpath(folders)
            for i, folder in zip(apart, folders, strict=True):
                found[i] = f"{labels[i]} ({folder.relative_to(shared)})"
    return found


def _disagree(one: dict[tuple[int, int], float], other: dict[tuple[int, int], float]) -> bool:
    """Whether the scores by (seed, step) of two runs cannot be those of one run, or of a shorter copy of it."""
    if any(one[key] != other[key] for key in one.keys() & other.keys()):
        return True
    for seed in {seed for seed, _ in one} & {seed for seed, _ in other}:
        steps, others = ({step for s, step in scores if s == seed} for scores in (one, other))
        if not (steps <= others or others <= steps):
            return True
    return False


def labelled_runs(paths: Iterable[Path]) -> list[tuple[RunRecord, str]]:
    """Find every run in some folders, with the label under which its results are listed.

    A label is the preset's name. Runs of one preset and task that differ in a setting have the setting in it
    (`dr.q+infonce_weight=0`), and repeated runs have their folder.

    Args:
        paths: Folders of runs, or folders that contain runs. Files are ignored.

    Returns:
        Each run with its label.

    Raises:
        RunFolderError: A folder does not exist or contains no run.
        DamagedFileError: A file of a run is damaged.

    Example:
        ```python
        for run, label in dr_q.report.labelled_runs([Path("runs")]):
            print(label, run.folder, run.evaluations[0][-1])
        ```
    """
    folders = {run.resolve(): run for path in paths if not path.is_file() for run in find_runs(path)}
    runs = [read_run(folder) for folder in folders.values()]
    return list(zip(runs, run_labels(runs), strict=True))


def varying_settings(runs: Sequence[RunRecord]) -> list[str]:
    """The settings in which runs of one task differ, of runs of one preset."""
    return _differing(runs, [""] * len(runs)).get("", [])


def _differing(runs: Sequence[RunRecord], labels: list[str]) -> dict[str, list[str]]:
    """For each label the settings in which its runs of one task differ; only those that all of them record."""
    by_task: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run, label in zip(runs, labels, strict=True):
        by_task.setdefault((label, run.info["settings"]["task"]), []).append(deciding_settings(run))
    found: dict[str, set[str]] = {label: set() for label in labels}
    for (label, _), configs in by_task.items():
        names = set.intersection(*(set(config) for config in configs))
        found[label] |= {name for name in names if any(config[name] != configs[0][name] for config in configs)}
    return {label: sorted(names) for label, names in found.items()}


def _label(run: RunRecord, names: Sequence[str]) -> str:
    """Its preset, the noise that was added, what it started from, and these settings with their values."""
    settings, own = run.info["settings"], deciding_settings(run)
    starts = [name for name in ("init", "prefill") if own[name]]
    said = [f"{name}={_short(own[name])}" if name in names else name for name in starts]
    said += ["new_environment"] if run.info.get("earlier_environments") else []
    said += [f"{name}={_short(own.get(name))}" for name in names if name not in starts]
    return "+".join([listed_as(settings["preset"], settings.get("noise_dims", 0)), *said])


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "..".join(map(_short, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def train_command(info: dict[str, Any]) -> str:
    """What makes a run like this one, from its run.json: a command, or a call for a task from a callable."""
    settings, changed = info["settings"], info.get("changed", {})
    given = {"preset": settings["preset"]} if settings["preset"] != "dr.q" else {}
    if not is_built_in(settings["preset"]):  # one of a file: what it changes from DR.Q, which everybody has
        given, changed = {}, changed_settings("dr.q", settings.get("config", {}))
    given["seeds"] = settings["seeds"]
    given |= {"seed": settings["first_seed"]} if settings["first_seed"] else {}
    given |= {name: settings[name] for name in ("steps", "eval_every") if name in settings}
    usual = usual_settings(settings["task"], settings["preset"])
    others = ("eval_episodes", "num_envs", "noise_dims", *STOP_RULES, *STARTING)
    given |= {name: settings[name] for name in others if settings.get(name, usual[name]) != usual[name]}
    given |= changed
    if own := callable_name(settings["task"]):
        arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return f"dr_q.train({own}, {arguments})"

    def words(value: Any) -> str:
        return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

    options = " ".join(f"{option_name(name)} {words(value)}" for name, value in given.items())
    return f"dr-q train {settings['task']} {options}"


def listed_as(preset: str, noise_dims: int) -> str:
    """A preset's name in results: with noise in the state it is another."""
    return f"{preset}+noise{noise_dims}" if noise_dims else preset


def read_results(paths: Sequence[str | Path]) -> list[Result]:
    """Read the evaluations of runs and of tidy CSV files.

    An evaluation that occurs twice is kept once. Runs are listed under the labels of `labelled_runs`. If a file has
    other values for evaluations that were read before, its name is added to the label.

    Args:
        paths: Folders of runs, folders that contain runs, and CSV files with the columns task, preset, seed,
            agent_steps and return.

    Returns:
        The evaluations, sorted by task, label, seed and agent steps.

    Raises:
        ConfigError: A file lacks a column, has a value that is not a number, or has two values for one evaluation.
        RunFolderError: A folder does not exist or contains no run.
        DamagedFileError: A file of a run is damaged, or a file is not CSV.

    Example:
        ```python
        results = dr_q.report.read_results(["runs", "theirs.csv"])
        frame = pandas.DataFrame(results).drop(columns="more")
        ```
    """
    found: dict[_Key, Result] = {}
    for path, own in _read(list(map(Path, paths))):
        apart = {r[:2] for r in own if r[:4] in found and found[r[:4]].score != r.score}
        here: dict[_Key, Result] = {}
        for result in own:
            if result[:2] in apart:
                result = result._replace(preset=f"{result.preset} ({path.name})")  # noqa: PLW2901
            before = here.setdefault(result[:4], result)
            if before.score != result.score:
                raise ConfigError(
                    f"{path} has two values for {result.task}, {result.preset}, seed {result.seed} at "
                    f"{result.agent_steps:,} steps: {before.score:g} and {result.score:g}; keep one of them"
                )
        for key, result in here.items():
            found.setdefault(key, result)
    return sorted(found.values(), key=lambda result: result[:4])


_Key = tuple[str, str, int, int]


def read_records(path: Path) -> list[RunRecord]:
    """A file of results as if each task and preset in it had been a run of its own."""
    by: dict[tuple[str, str], dict[int, list[tuple[int, float]]]] = {}
    for result in read_results([path]):
        seeds = by.setdefault((result.task, result.preset), {})
        seeds.setdefault(result.seed, []).append((result.agent_steps, result.score))
    return [
        RunRecord(path, {"settings": {"task": task, "preset": preset}}, seeds) for (task, preset), seeds in by.items()
    ]


def write_results(results: Iterable[Result], path: Path) -> None:
    """Write results to a tidy CSV file: task, preset, seed, agent_steps, return, then optional columns.

    Args:
        results: The results.
        path: The file. Its folder is created if it does not exist.

    Example:
        ```python
        results = dr_q.report.read_results(["runs"])
        dr_q.report.write_results(results, Path("results.csv"))
        ```
    """
    results = list(results)
    extra = list(dict.fromkeys(name for result in results for name in result.more))
    path.parent.mkdir(parents=True, exist_ok=True)
    with output_csv(path) as writer:
        writer.writerow([*COLUMNS, *extra])
        for result in results:
            writer.writerow([*result[:4], repr(float(result.score)), *(result.more.get(name, "") for name in extra)])


def _read(paths: list[Path]) -> Iterator[tuple[Path, list[Result]]]:
    """Each run and file with its results."""
    for run, label in labelled_runs(paths):
        yield run.folder, _of_run(run, label)
    for path in {path.resolve(): path for path in paths if path.is_file()}.values():
        yield path, _read_file(path)


def _of_run(run: RunRecord, label: str) -> list[Result]:
    return [
        Result(
            run.info["settings"]["task"],
            label,
            int(row["seed"]),
            int(row["agent_steps"]),
            float(row["return_mean"]),
            {name: row[name] for name in EXTRA_COLUMNS if name in row},
        )
        for row in own_evaluation_rows(run.folder, run.info)
    ]


def _read_file(path: Path) -> list[Result]:
    table = read_table(path)
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise ConfigError(
            f"{path} has no column {', '.join(missing)}; got {', '.join(table.columns) or 'nothing'}; results need "
            f"{', '.join(COLUMNS)}, a row for each evaluation of each seed"
        )
    found = []
    for line, row in table.numbered():
        seed, steps, score = whole_number(row["seed"]), whole_number(row["agent_steps"]), finite_number(row["return"])
        if seed is None or steps is None or steps < 0 or score is None:
            got = ", ".join(shortened(row[name]) for name in ("seed", "agent_steps", "return"))
            raise ConfigError(
                f"{path}, line {line}: seed and agent_steps must be whole numbers, agent_steps at least 0, and return "
                f"a finite number; got {got}"
            )
        more = {name: value for name, value in row.items() if name not in COLUMNS and value}
        found.append(Result(row["task"], row["preset"], seed, steps, score, more))
    return found
