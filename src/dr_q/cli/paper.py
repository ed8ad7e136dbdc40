"""Commands that look things up: tasks, published, presets."""

import dataclasses
import json
import math
from typing import Any

from rich.console import Console
from rich.table import Table

from dr_q.agent import PRESETS, Config, ConfigError
from dr_q.cli.options import Tables, named, optional
from dr_q.envs import TaskError, canonical, suite_tasks
from dr_q.kit import did_you_mean
from dr_q.paper import PRINT_NOTES, TaskInfo, algorithms, paper_tasks, published_aggregates, published_score


@dataclasses.dataclass
class Tasks:
    """List the tasks by name: those of the paper and of installed families."""

    suite: named(str, "[SUITE]") = "all"  # pyright: ignore
    """gym, dmc-easy, dmc-hard, dmc, dmc-visual, hbench, hbench-hand, paper, all, or a suite of an installed family."""
    json: bool = False
    """As JSON."""

    def run(self) -> int:
        """Print them."""
        rows = suite_tasks(self.suite)
        if self.json:
            print(json.dumps([dataclasses.asdict(task) for task in rows], indent=1))
            return 0
        table = Table(
            "task", "suite", "agent steps", "repeat", "episode", "random", "paper's DR.Q", box=None, pad_edge=False
        )
        for task in rows:
            score = published_score(task.name)
            table.add_row(
                task.name,
                task.suite,
                f"{task.agent_steps:,}",
                str(task.action_repeat),
                str(task.episode_length),
                "" if task.random_score is None else f"{task.random_score:g}",
                f"{score.mean:g}" if score else "",
            )
        Tables(120).print(table)
        return 0


@dataclasses.dataclass
class PublishedScores:
    """Print the paper's scores, of a task, of a suite or of all, with what is wrong in print."""

    what: named(str, "[TASK|SUITE]") = "all"  # pyright: ignore
    """A task (dmc/cheetah-run), or gym, dmc-easy, dmc-hard, dmc, dmc-visual, hbench, hbench-hand, all."""
    algorithm: optional(str, "NAME") = None  # pyright: ignore
    """One algorithm only."""
    json: bool = False
    """As JSON."""

    def run(self) -> int:
        """Print them."""
        name = canonical(self.what)
        tasks = [paper_tasks()[name]] if name in paper_tasks() else suite_tasks(self._suite())
        suites = list(dict.fromkeys(task.suite for task in tasks))
        columns = [name for name in algorithms() if any(name in algorithms(suite) for suite in suites)]
        if self.algorithm is not None:
            columns = [self._known_algorithm()]
        if self.json:
            print(json.dumps(self._records(tasks, columns), indent=1))
            return 0
        console = Tables(250)
        if len(tasks) == 1:
            _print_cells(console, tasks[0].name, "algorithm", [(name, tasks[0], name) for name in columns])
        for suite in suites if len(tasks) > 1 else ():
            mine = [task for task in tasks if task.suite == suite]
            if len(columns) == 1:
                _print_cells(console, f"{suite}: {columns[0]}", "task", [(t.name, t, columns[0]) for t in mine])
            else:
                _print_means(console, suite, mine)
            _print_aggregates(console, suite, columns)
        notes = [(task.name, task.note) for task in tasks if task.note]
        notes += [(note.suite, note.what) for note in PRINT_NOTES if note.suite in ("all", *suites)]
        if notes:
            print("In print:")
            for where, what in notes:
                print(f"- {where}: {what}")
        return 0

    def _suite(self) -> str:
        if "/" in self.what:
            hint = did_you_mean(self.what, paper_tasks())
            raise TaskError(f"the paper has no task '{self.what}'{hint} List: dr-q tasks")
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


def _print_cells(console: Console, title: str, of: str, rows: list[tuple[str, TaskInfo, str]]) -> None:
    """Scores with their intervals, one to a line: (label, task, algorithm)."""
    table = Table(of, "mean", "95% interval", "normalised", box=None, pad_edge=False, title=title, title_justify="left")
    for label, task, algorithm in rows:
        score = published_score(task.name, algorithm)
        if score is not None:
            table.add_row(label, f"{score.mean:g}", _interval(score), f"{task.normalise(score.mean):.3f}")
    console.print(table if table.row_count else f"{title}: no score in print")
    console.print()


def _print_means(console: Console, suite: str, tasks: list[TaskInfo]) -> None:
    shown = algorithms(suite)
    table = Table("task", *shown, box=None, pad_edge=False, title=f"{suite}: means", title_justify="left")
    for task in tasks:
        scores = [published_score(task.name, name) for name in shown]
        table.add_row(task.name, *("" if score is None else f"{score.mean:g}" for score in scores))
    console.print(table)
    console.print()


def _print_aggregates(console: Console, suite: str, columns: list[str]) -> None:
    printed = {(a.algorithm, a.statistic): a for a in published_aggregates() if a.suite == suite}
    names = ("Mean", "Median", "IQM")
    title = f"{suite}: normalised, over all its tasks"
    table = Table("algorithm", *names, box=None, pad_edge=False, title=title, title_justify="left")
    for name in columns:
        cells = [printed.get((name, statistic)) for statistic in names]
        if any(cells):
            table.add_row(name, *("" if a is None else f"{a.value:g} {_interval(a)}" for a in cells))
    if table.row_count:
        console.print(table)
        console.print()


def _interval(printed: Any) -> str:
    return "" if math.isnan(printed.low) else f"[{printed.low:g}, {printed.high:g}]"


@dataclasses.dataclass
class Presets:
    """List the presets and what each changes from DR.Q."""

    def run(self) -> int:
        """Print the table."""
        base = Config()
        table = Table("preset", "setting", "value", "dr.q", box=None, pad_edge=False)
        for name, changes in PRESETS.items():
            if not changes:
                table.add_row(name, "(none)", "", "")
            for i, (setting, value) in enumerate(changes.items()):
                table.add_row(name if i == 0 else "", setting, str(value), str(getattr(base, setting)))
        Tables(120).print(table)
        return 0
