"""Commands that look things up: tasks, published, presets."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from dr_q.cli.help import as_text
from dr_q.cli.options import argument, option, preset_file, use_presets
from dr_q.cli.output import print_table
from dr_q.config import PRESETS, Config, settings_of
from dr_q.kit import ConfigError, TaskError, did_you_mean
from dr_q.paper import SUITES, TABLE_NOTES, TaskInfo, algorithms, paper_tasks, published_aggregates, published_score

_SUITES = (
    "gym, dmc-easy, dmc-hard, dmc, dmc-visual, hbench, hbench-hand, atari, paper, all, or a suite of another family"
)


@dataclasses.dataclass(kw_only=True)
class Tasks:
    """List the tasks by name: those of the paper and of installed families."""

    suite: str = argument("all", f"one of {_SUITES}", metavar="SUITE")
    json: bool = option(False, "print JSON")

    def run(self) -> int:
        """Print them."""
        from dr_q.envs import suite_tasks

        tasks = suite_tasks(self.suite)
        if self.json:
            print(json.dumps([dataclasses.asdict(task) for task in tasks], indent=1))
            return 0
        rows = []
        for task in tasks:
            score = published_score(task.name)
            rows.append(
                (
                    task.name,
                    task.suite,
                    f"{task.agent_steps:,}",
                    str(task.action_repeat),
                    str(task.episode_length),
                    "" if task.random_score is None else f"{task.random_score:g}",
                    f"{score.mean:g}" if score else "",
                )
            )
        columns = ("task", "suite", "agent steps", "repeat", "episode", "random", "paper's DR.Q")
        print_table(columns, rows, width=120)
        return 0


@dataclasses.dataclass(kw_only=True)
class PublishedScores:
    """Print the paper's scores of a task, of a suite or of all, and known mistakes in the published tables."""

    what: str = argument("all", f"a task (dmc/cheetah-run), or {_SUITES}", metavar="TASK|SUITE")
    algorithm: str | None = option(None, "one algorithm only", otherwise="all")
    json: bool = option(False, "print JSON")

    def run(self) -> int:
        """Print them."""
        from dr_q.envs import canonical, suite_tasks

        name = canonical(self.what)
        tasks = [paper_tasks()[name]] if name in paper_tasks() else suite_tasks(self._suite())
        tasks = [task for task in tasks if task.name in paper_tasks()]
        if not tasks:
            raise TaskError(f"the paper has no task of the suite '{self.what}'; its suites: {', '.join(SUITES)}")
        suites = list(dict.fromkeys(task.suite for task in tasks))
        columns = [name for name in algorithms() if any(name in algorithms(suite) for suite in suites)]
        if self.algorithm is not None:
            columns = [self._known_algorithm()]
        if self.json:
            print(json.dumps(self._records(tasks, columns), indent=1))
            return 0
        if len(tasks) == 1:
            _print_cells(tasks[0].name, "algorithm", [(name, tasks[0], name) for name in columns])
        for suite in suites if len(tasks) > 1 else ():
            mine = [task for task in tasks if task.suite == suite]
            if len(columns) == 1:
                _print_cells(f"{suite}: {columns[0]}", "task", [(t.name, t, columns[0]) for t in mine])
            else:
                _print_means(suite, mine)
            _print_aggregates(suite, columns)
        notes = [(task.name, task.note) for task in tasks if task.note]
        notes += [(note.suite, note.what) for note in TABLE_NOTES if note.suite in ("all", *suites)]
        if notes:
            print("About the published tables:")
            for where, what in notes:
                print(f"- {where}: {what}")
        return 0

    def _suite(self) -> str:
        if "/" in self.what:
            hint = did_you_mean(self.what, paper_tasks())
            raise TaskError(f"the paper has no task '{self.what}'{f'{hint} List' if hint else '; list'}: dr-q tasks")
        return "paper" if self.what == "all" else self.what

    def _known_algorithm(self) -> str:
        for name in algorithms():
            if name.lower() == str(self.algorithm).lower():
                return name
        raise ConfigError(f"no scores of '{self.algorithm}' in the paper; it has {', '.join(algorithms())}")

    @staticmethod
    def _records(tasks: list[TaskInfo], columns: list[str]) -> list[dict[str, Any]]:
        found = []
        for task in tasks:
            for name in columns:
                score = published_score(task.name, name)
                if score is not None:
                    low, high = (None if math.isnan(x) else x for x in score[1:])
                    cell = {"task": task.name, "suite": task.suite, "algorithm": name, "mean": score.mean}
                    found.append({**cell, "low": low, "high": high, "normalised": task.normalise(score.mean)})
        return found


def _print_cells(title: str, of: str, cells: list[tuple[str, TaskInfo, str]]) -> None:
    """Print scores with their intervals, one to a line: (label, task, algorithm)."""
    rows = []
    for label, task, algorithm in cells:
        score = published_score(task.name, algorithm)
        if score is not None:
            rows.append((label, f"{score.mean:g}", _interval(score), f"{task.normalise(score.mean):.3f}"))
    if rows:
        print_table((of, "mean", "95% interval", "normalised"), rows, width=250, title=title)
    else:
        print(f"{title}: no published score")
    print()


def _print_means(suite: str, tasks: list[TaskInfo]) -> None:
    shown = algorithms(suite)
    rows = []
    for task in tasks:
        scores = [published_score(task.name, name) for name in shown]
        rows.append((task.name, *("" if score is None else f"{score.mean:g}" for score in scores)))
    print_table(("task", *shown), rows, width=250, title=f"{suite}: means")
    print()


def _print_aggregates(suite: str, columns: list[str]) -> None:
    published = {(a.algorithm, a.statistic): a for a in published_aggregates() if a.suite == suite}
    names = ("Mean", "Median", "IQM")
    rows = []
    for name in columns:
        cells = [published.get((name, statistic)) for statistic in names]
        if any(cells):
            rows.append((name, *("" if a is None else f"{a.value:g} {_interval(a)}" for a in cells)))
    if rows:
        print_table(("algorithm", *names), rows, width=250, title=f"{suite}: normalised, over all its tasks")
        print()


def _interval(published: Any) -> str:
    return "" if math.isnan(published.low) else f"[{published.low:g}, {published.high:g}]"


@dataclasses.dataclass(kw_only=True)
class Presets:
    """List the presets and the settings that each changes from DR.Q."""

    preset_file: Path | None = preset_file()

    def run(self) -> int:
        """Print the table."""
        use_presets(self.preset_file)
        declared = settings_of(Config)
        rows: list[tuple[str, ...]] = []
        for name, changes in PRESETS.items():
            if not changes:
                rows.append((name, "(none)", "", "", "the paper's DR.Q"))
            for i, (setting, value) in enumerate(changes.items()):
                field, about = declared[setting]
                first = name if i == 0 else ""
                rows.append((first, setting, as_text(value), as_text(field.default), about.describe()))
        print_table(("preset", "setting", "value", "dr.q", "what it is"), rows, width=160)
        return 0
