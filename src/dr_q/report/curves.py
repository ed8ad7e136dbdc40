"""Learning curves as a figure."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dr_q.kit import ConfigError, did_you_mean
from dr_q.paper import paper_tasks, published_score
from dr_q.report.canvas import draw_mean_curve, grid, new_figure, plain_text, save_figure, short_count
from dr_q.report.model import counterpart
from dr_q.report.numbers import count
from dr_q.report.results import preset_of
from dr_q.report.statistics import FEWEST_SEEDS, mean_curve
from dr_q.run_folder import RunRecord, metric_columns, metric_curves

RETURN = "return"
"""What is drawn if nothing else is asked for."""


def plot_curves(runs: Sequence[RunRecord], path: Path, metric: str = RETURN) -> None:
    """Draw learning curves: the mean return over seeds with its 95% interval, and the published score.

    Each task has a panel. It needs matplotlib (`pip install 'dr-q[plot]'`).

    Args:
        runs: The runs. Those without evaluations are left out.
        path: The file to write.
        metric: What the runs' `evaluations` are, if they are not returns (`with_metric`).

    Raises:
        ConfigError: No run has an evaluation.

    Example:
        ```python
        runs = [run for run, label in dr_q.report.labelled_runs([Path("runs")])]
        dr_q.report.plot_curves(runs, Path("curves.png"))
        ```
    """
    by_task: dict[str, list[RunRecord]] = {}
    for run in runs:
        if run.evaluations:
            by_task.setdefault(run.info["settings"]["task"], []).append(run)
    if not by_task:
        what = "an evaluation" if metric == RETURN else f"a value of {metric}"
        raise ConfigError(f"no run has {what} yet: nothing to draw; wait for its first")
    rows, columns = grid(len(by_task))
    size = (7.0, 4.4) if len(by_task) == 1 else (3.6 * columns, 2.9 * rows + 0.4)
    figure, panels = new_figure(*size, rows, columns, len(by_task))
    order = list(dict.fromkeys(preset_of(run) for run in runs))
    for panel, (task, of_task) in zip(panels, by_task.items(), strict=True):
        _draw_task(panel, task, of_task, order, metric)
    panels[0].set_ylabel(plain_text(metric), fontsize=8)
    panels[0].set_xlabel("agent steps", fontsize=8)
    certain = any(len(run.evaluations) >= FEWEST_SEEDS for run in runs)
    title = "Return" if metric == RETURN else plain_text(metric)
    save_figure(figure, f"{title} against agent steps: mean over seeds{', 95% interval' if certain else ''}", path)


def with_metric(runs: Sequence[RunRecord], metric: str) -> list[RunRecord]:
    """The runs with the values of a metric in place of returns.

    Args:
        runs: The runs.
        metric: A column of `metrics.csv`, or `"success"`, the share of successful evaluation episodes.

    Raises:
        ConfigError: A run has no such metric.
    """
    found = []
    for run in runs:
        curves = metric_curves(run.folder, metric)
        if curves is None:
            known = [RETURN, *metric_columns(run.folder)]
            hint = did_you_mean(metric, known) or ";"
            raise ConfigError(f"{run.folder} has no metric '{metric}'{hint} it has {', '.join(known)}")
        found.append(run._replace(evaluations=curves))
    return found


def _draw_task(panel: Any, task: str, runs: list[RunRecord], order: list[str], metric: str) -> None:
    """A preset looks the same in every panel; its second run in one takes a style that no preset has."""
    taken: set[int] = set()
    for run, name in zip(runs, _names(runs), strict=True):
        curve = mean_curve({seed: dict(points) for seed, points in run.evaluations.items()})
        i = order.index(preset_of(run))
        i = i if i not in taken else max(*taken, len(order) - 1) + 1
        taken.add(i)
        label = plain_text(f"{name} ({count(curve.seeds, 'seed')})")
        draw_mean_curve(panel, curve.steps, curve.values, i, width=1.6, marker=3, label=label)
    if metric == RETURN:
        _published_lines(panel, task, [preset_of(run) for run in runs])
    panel.set_title(plain_text(task), fontsize=8.5, loc="left")
    panel.xaxis.set_major_formatter(lambda x, _: short_count(x))
    panel.legend(frameon=False, loc="best", fontsize=7)


def _names(runs: list[RunRecord]) -> list[str]:
    """Presets; of those that several runs have also where they are, below what all their folders share."""
    presets = [preset_of(run) for run in runs]
    folders = [run.folder.resolve() for run in runs]

    def name(folder: Path, preset: str) -> str:
        alike = [f for f, p in zip(folders, presets, strict=True) if p == preset]
        return preset if len(alike) == 1 else f"{preset}, {folder.relative_to(os.path.commonpath(alike))}"

    return [name(*pair) for pair in zip(folders, presets, strict=True)]


def _published_lines(panel: Any, task: str, presets: list[str]) -> None:
    """The published scores of the algorithms that the presets are; of DR.Q where they are none of them."""
    known = dict.fromkeys(name for preset in presets if (name := counterpart(preset)))
    for name in known or {"DR.Q": None}:
        score = published_score(task, name)
        if score is None:
            continue
        panel.axhline(score.mean, color="0.35", linewidth=1, linestyle=(0, (6, 3)))
        panel.axhspan(score.low, score.high, color="0.5", alpha=0.12, linewidth=0)
        panel.annotate(
            f"the paper's {name} after {short_count(paper_tasks()[task].agent_steps)}: {score.mean:g}",
            (0.01, score.mean),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            fontsize=7,
            color="0.3",
        )
