"""A report's pictures: the page's charts for print, told apart without colour."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dr_q.paper import Published
from dr_q.report.canvas import new_figure, plain_text, save_figure, short_count
from dr_q.report.content import OTHER, STATISTICS, Column, Curve, Report, Row, Task
from dr_q.report.statistics import Estimate
from dr_q.report.style import style

_COLUMNS = 4
_LEGEND = 6
"""Entries of a legend in one row, at most."""
_LEGEND_ROW = 0.18
"""Its height in inches."""
_GREY = "0.35"
_TALL = 34
"""Rows of one column of a dot plot."""


def curve_grids(report: Report, folder: Path) -> Iterator[str]:
    """curves-SUITE.png: a panel for each task; yields the suite that was drawn."""
    for suite, title in report.suites:
        tasks = [task for task in report.tasks if task.suite == suite]
        curves = {(curve.task, curve.preset): curve for curve in report.curves if curve.suite == suite}
        tasks = [task for task in tasks if any(task.name == name for name, _ in curves)]
        if not tasks:
            continue
        columns = min(_COLUMNS, len(tasks))
        rows = math.ceil(len(tasks) / columns)
        figure, axes = new_figure(max(5.2, 2.9 * columns), 2.2 * rows + 0.9, rows, columns, len(tasks))
        for panel, task in zip(axes, tasks, strict=True):
            _curve_panel(panel, report, task, curves)
        shown = {preset for _, preset in curves}
        _legend(figure, report, shown, paper=suite != OTHER)
        save_figure(
            figure, f"{title}: return (mean over seeds, 95% interval) by agent steps", folder / f"curves-{suite}.png"
        )
        yield suite


def _curve_panel(panel: Any, report: Report, task: Task, curves: dict[tuple[str, str], Curve]) -> None:
    last = 0
    for series in report.series:
        curve = curves.get((task.name, series.name)) if series.ours else None
        if curve is None:
            continue
        look = style(series.style)
        mean, low, high = zip(*curve.values, strict=True)
        every = max(1, len(curve.steps) // 4)
        panel.plot(curve.steps, mean, linewidth=1.3, markersize=3.2, markevery=(series.style % every, every), **look)
        if not math.isnan(low[-1]):
            panel.fill_between(curve.steps, low, high, color=look["color"], alpha=0.18, linewidth=0)
        last = max(last, curve.steps[-1])
    published = [s for s in report.series if not s.ours and s.counterpart and s.name in task.published]
    end = max(last, task.budget or 0) or 1
    for i, series in enumerate(published):
        score = task.published[series.name]
        at = end * (1.05 + 0.05 * i)
        look = style(series.style)
        panel.plot(
            [at, at], [score.low, score.high], color=look["color"], linewidth=2.6, solid_capstyle="butt", alpha=0.75
        )
        panel.plot(
            [at], [score.mean], color=look["color"], marker=look["marker"], markersize=4, markeredgecolor="white"
        )
    panel.set_xlim(0, end * (1.05 + 0.05 * max(1, len(published))))
    panel.set_title(plain_text(task.name), fontsize=8, loc="left", pad=3)
    panel.xaxis.set_major_formatter(lambda x, _: short_count(x))
    panel.locator_params(axis="x", nbins=4)
    panel.locator_params(axis="y", nbins=4)


def aggregate_figure(report: Report, path: Path) -> None:
    """aggregates.png: for each suite mean, median and IQM, of runs and in print."""
    rows = report.table("aggregates").rows
    suites = [(name, title) for name, title in report.suites if any(row.suite == name for row in rows)]
    if not suites:
        return
    count = max(sum(row.suite == name for row in rows) for name, _ in suites)
    figure, axes = new_figure(9.5, (0.24 * count + 0.55) * len(suites) + 0.6, len(suites), len(STATISTICS))
    for i, (suite, title) in enumerate(suites):
        mine = [row for row in rows if row.suite == suite]
        for j, statistic in enumerate(STATISTICS):
            panel = axes[i * len(STATISTICS) + j]
            _dots(
                panel, report, mine, -len(STATISTICS) + j, [_aggregate_label(row) for row in mine] if j == 0 else None
            )
            panel.set_title(f"{title}: {statistic}" if j == 0 else statistic, fontsize=8, loc="left", pad=3)
    save_figure(figure, _titled(report, "Normalised scores with 95% intervals"), path)


def comparison_figure(report: Report, path: Path) -> None:
    """Our runs among all printed algorithms: the mean normalised score of each suite, best first.

    Where only some of a suite's tasks have runs, everyone's mean is that of these tasks; print has no interval for it.
    """
    shown = [(suite, *found) for suite in report.suites if (found := means_of(report, suite[0]))]
    if not shown:
        return
    columns = min(3, len(shown))
    rows = math.ceil(len(shown) / columns)
    tallest = max(len(means) for _, _, means in shown)
    figure, axes = new_figure(max(5.2, 3.3 * columns), (0.19 * tallest + 0.75) * rows + 0.5, rows, columns, len(shown))
    for panel, ((_, title), which, means) in zip(axes, shown, strict=True):
        ordered = sorted(means, key=lambda found: -found[1].value)
        for y, (column, mean) in enumerate(ordered):
            ours = column.group == "ours"
            panel.barh(y, mean.value, height=0.62, color="0.35" if ours else "0.85", edgecolor="0.35", linewidth=0.6)
            if not math.isnan(mean.low):
                reach = [[mean.value - mean.low], [mean.high - mean.value]]
                panel.errorbar(mean.value, y, xerr=reach, color="black", linewidth=1, capsize=1.5)
        labels = [column.label if column.group == "paper" else f"{column.label} (ours)" for column, _ in ordered]
        panel.set_yticks(range(len(ordered)), [plain_text(label) for label in labels], fontsize=7)
        for tick, (column, _) in zip(panel.get_yticklabels(), ordered, strict=True):
            tick.set_fontweight("bold" if column.group == "ours" else "normal")
        panel.set_ylim(len(ordered) - 0.4, -0.6)
        panel.grid(axis="y", visible=False)
        panel.set_title(f"{title}, {which[0].lower()}{which[1:]}", fontsize=8, loc="left", pad=3)
    save_figure(figure, _titled(report, "Normalised scores: dark, our runs; light, in print; 95% intervals"), path)


def _titled(report: Report, title: str) -> str:
    """With a warning where scores are early ones; those in print are of the end."""
    return f"{title} (early: {report.early})" if report.early else title


def means_of(report: Report, suite: str) -> tuple[str, list[tuple[Column, Estimate]]] | None:
    """What the mean is of, and the columns that have one; None where no run counts."""
    tables = [table for table in report.tables if table.name == f"scores-{suite}"]
    for footer in reversed(tables[0].footer if tables else []):  # of the same tasks first, where that differs
        cells = list(zip(tables[0].columns, footer.cells, strict=True))
        label = str(footer.cells[0])
        means = [(column, _as_estimate(cell)) for column, cell in cells if isinstance(cell, Estimate | Published)]
        if label.startswith("Mean") and any(column.group == "ours" for column, _ in means):
            return label, [(column, mean) for column, mean in means if not math.isnan(mean.value)]
    return None


def _as_estimate(cell: Estimate | Published) -> Estimate:
    return Estimate(*cell)


def profile_figure(report: Report, path: Path) -> None:
    """profiles.png: the share of runs above each normalised score."""
    suites = [(name, title) for name, title in report.suites if any(p.suite == name for p in report.profiles)]
    if not suites:
        return
    columns = min(3, len(suites))
    rows = math.ceil(len(suites) / columns)
    figure, axes = new_figure(max(5.2, 3.4 * columns), 2.5 * rows + 0.9, rows, columns, len(suites))
    styles = {series.name: series.style for series in report.series if series.ours}
    for panel, (suite, title) in zip(axes, suites, strict=True):
        for found in (p for p in report.profiles if p.suite == suite):
            look = style(styles[found.preset])
            share, low, high = zip(*found.shares, strict=True)
            panel.plot(
                found.thresholds, share, linewidth=1.4, markersize=3.4, markevery=(styles[found.preset] * 3, 12), **look
            )
            panel.fill_between(found.thresholds, low, high, color=look["color"], alpha=0.15, linewidth=0)
        panel.set_ylim(-0.03, 1.03)
        panel.set_title(title, fontsize=8, loc="left", pad=3)
    _legend(figure, report, {found.preset for found in report.profiles}, paper=False)
    save_figure(figure, _titled(report, "Share of runs above a normalised score"), path)


def improvement_figure(report: Report, path: Path) -> None:
    """improvement.png: the chance that a run of a preset beats one of the base."""
    rows = report.table("improvement").rows
    if not rows:
        return
    figure, axes = new_figure(6.4, 0.24 * len(rows) + 1.1, 1, 1)
    _dots(axes[0], report, rows, -1, [f"{row.cells[0]}: {row.cells[1]}" for row in rows])
    axes[0].axvline(0.5, color=_GREY, linewidth=0.8, linestyle="--")
    axes[0].set_xlim(-0.02, 1.02)
    title = f"Probability that a run is better than one of {report.base}, 95% interval"
    save_figure(figure, _titled(report, title), path)


def ablation_figure(report: Report, path: Path) -> None:
    """ablations.png: the normalised score of every preset, task by task."""
    if sum(series.ours for series in report.series) < 2:
        return
    rows = [row for row in report.table("finals").rows if row.cells[6] is not None]
    tasks = list(dict.fromkeys(row.task for row in rows))
    if not tasks:
        return
    presets = [series for series in report.series if any(row.series == series.key for row in rows)]
    columns = math.ceil(len(tasks) / _TALL)
    tall = math.ceil(len(tasks) / columns)
    figure, axes = new_figure(max(5.6, 4.6 * columns), tall * (0.11 * len(presets) + 0.09) + 1.1, 1, columns)
    for i, panel in enumerate(axes):
        part = tasks[i * tall : (i + 1) * tall]
        for row in rows:
            unit = row.cells[6]
            if row.task in part and isinstance(unit, Estimate):
                here = [s for s in presets if any((other.task, other.series) == (row.task, s.key) for other in rows)]
                place = [series.key for series in here].index(row.series)
                y = part.index(row.task) + (place - (len(here) - 1) / 2) / (len(presets) + 1)
                _dot(panel, unit, y, here[place].style)
        _row_labels(panel, part)
        panel.set_ylim(tall - 0.4, -0.6)
    _legend(figure, report, {series.name for series in presets}, paper=False, lines=False)
    save_figure(figure, _titled(report, "Normalised score of every preset, 95% interval"), path)


FIGURES: dict[str, Callable[[Report, Path], None]] = {
    "aggregates": aggregate_figure,
    "profiles": profile_figure,
    "improvement": improvement_figure,
    "ablations": ablation_figure,
}


def _aggregate_label(row: Row) -> str:
    return f"{row.cells[1]} ({'ours' if row.cells[2] == 'runs' else 'paper'})"


def _dots(panel: Any, report: Report, rows: Sequence[Row], column: int, labels: list[str] | None) -> None:
    styles = {series.key: series for series in report.series}
    for y, row in enumerate(rows):
        cell = row.cells[column]
        if isinstance(cell, Estimate | Published):
            _dot(panel, Estimate(*cell), y, styles[row.series].style, hollow=not styles[row.series].ours)
    _row_labels(panel, labels or [""] * len(rows))


def _dot(panel: Any, estimate: Estimate, y: int | float, index: int, hollow: bool = False) -> None:
    look = style(index)
    if not math.isnan(estimate.low):
        panel.plot([estimate.low, estimate.high], [y, y], color=look["color"], linewidth=1.4, solid_capstyle="butt")
    face = "white" if hollow else look["color"]
    panel.plot(
        [estimate.value],
        [y],
        marker=look["marker"],
        markersize=4.2,
        color=look["color"],
        markerfacecolor=face,
        linestyle="",
    )


def _row_labels(panel: Any, labels: list[str]) -> None:
    panel.set_yticks(range(len(labels)), [plain_text(label) for label in labels], fontsize=7)
    panel.set_ylim(len(labels) - 0.4, -0.6)
    panel.tick_params(axis="y", length=0)
    panel.locator_params(axis="x", nbins=5)


def _legend(figure: Any, report: Report, shown: set[str], paper: bool, lines: bool = True) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for series in report.series:
        if series.ours and series.name in shown:
            look = style(series.style) if lines else {**style(series.style), "linestyle": ""}
            handles.append(Line2D([], [], linewidth=1.4, markersize=4, label=plain_text(series.name), **look))
    for series in report.series:
        if paper and not series.ours and series.counterpart:
            look = {**style(series.style), "linestyle": "-"}
            label = f"{series.name} in print: mean at the end, 95% interval"
            handles.append(
                Line2D([], [], linewidth=2.6, alpha=0.75, markersize=5, markeredgecolor="white", label=label, **look)
            )
    columns = 1
    for columns in range(min(len(handles), _LEGEND), 0, -1):
        legend = figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
        if columns == 1 or legend.get_window_extent().width < 0.97 * figure.bbox.width:
            break
        legend.remove()
    more = max(0, math.ceil(len(handles) / columns) - 1)
    figure.set_figheight(figure.get_figheight() + _LEGEND_ROW * more)
