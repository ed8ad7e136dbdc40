"""Learning curves as a picture."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dr_q.paper import published_score
from dr_q.report.results import RunRecord
from dr_q.report.statistics import means

_STYLES = ("-", "--", "-.", ":")
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")


def plot_curves(runs: Sequence[RunRecord], path: Path) -> None:
    """Mean return over seeds with its 95% interval, a line for each run, the published score beside it."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 10}):
        figure = Figure(figsize=(7, 4.2), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        tasks = {run.info["settings"]["task"] for run in runs}
        for i, run in enumerate(runs):
            steps, mean, half, count = _summary(run)
            settings = run.info["settings"]
            name = settings["preset"] if len(tasks) == 1 else f"{settings['task']} {settings['preset']}"
            colour = _COLOURS[i % len(_COLOURS)]
            label = f"{name} ({count} seed{'s' if count > 1 else ''})"
            axes.plot(steps, mean, _STYLES[i % len(_STYLES)], color=colour, label=label, linewidth=1.8)
            if count > 1:
                axes.fill_between(steps, mean - half, mean + half, color=colour, alpha=0.2, linewidth=0)
        if len(tasks) == 1:
            _published_line(axes, next(iter(tasks)))
            axes.set_title(next(iter(tasks)))
        axes.set_xlabel("agent steps")
        axes.set_ylabel("return (mean over seeds, 95% interval)")
        axes.grid(alpha=0.25, linewidth=0.6)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.legend(frameon=False, loc="best")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)


def _published_line(axes, task: str) -> None:
    score = published_score(task)
    if score is not None:
        axes.axhline(score.mean, color="0.35", linewidth=1, linestyle=(0, (6, 3)))
        axes.axhspan(score.low, score.high, color="0.5", alpha=0.12, linewidth=0)
        axes.annotate(
            f"paper's final score, {score.mean:g}",
            (0.01, score.mean),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            fontsize=8,
            color="0.3",
        )


def _summary(run: RunRecord) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Steps that every seed was evaluated at, mean, half of the 95% interval, and how many seeds."""
    curves = [dict(points) for points in run.evaluations.values()]
    steps = sorted(set.intersection(*(set(curve) for curve in curves)))
    values = np.array([[curve[step] for step in steps] for curve in curves])
    found = means(values)
    half = np.nan_to_num([estimate.high - estimate.value for estimate in found])  # none of fewer than 3 seeds
    return np.array(steps), values.mean(axis=0), half, len(curves)
