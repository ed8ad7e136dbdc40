"""A report's figures: the page's charts as PNG files, legible without colour. They are drawn from the model."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dr_q.paper import SUITES
from dr_q.report.canvas import draw_mean_curve, grid, new_figure, plain_text, save_figure, short_count
from dr_q.report.claims import Judgement, preset_curve
from dr_q.report.grids import Grid, Values
from dr_q.report.model import STATISTICS, Curve, Report, Task
from dr_q.report.numbers import count as amount
from dr_q.report.numbers import number
from dr_q.report.reference import EARLY, ReferenceComparison
from dr_q.report.results import Result
from dr_q.report.series import Series, ours, paper, series_of
from dr_q.report.statistics import Estimate
from dr_q.report.style import style
from dr_q.report.wording import (
    grid_charts,
    grid_note,
    how_early,
    mean_label,
    reference_title,
    setting_text,
    suite_label,
    suite_title,
)

_LEGEND = 6
"""Entries of a legend in one row, at most."""
_LEGEND_ROW = 0.18
"""Its height in inches."""
_LEGEND_ENTRY = 1.9
"""The width in inches of one entry, a preset with its seeds."""
_GREY = "0.35"
_GRID_PANELS = 9
"""Of a figure of settings that vary."""
_SUITE_COLOUR, _TASK_COLOUR, _TOO_EARLY = "black", style(0)["color"], "0.6"
_STATISTIC_TITLES = {"Optimality gap": "Optimality gap (lower is better)"}
_TALL = 34
"""Rows of one column of a dot plot."""


def curve_grids(report: Report, folder: Path) -> Iterator[str]:
    """curves-SUITE.png: a panel for each task; yields the suite that was drawn."""
    for suite in report.suites:
        tasks = [task for task in report.tasks if task.suite == suite]
        every = (*report.curves, *report.reference_curves)
        curves = {(curve.task, curve.preset): curve for curve in every if curve.suite == suite}
        tasks = [task for task in tasks if any(task.name == curve.task for curve in report.curves)]
        if not tasks:
            continue
        rows, columns = grid(len(tasks))
        figure, axes = new_figure(max(5.2, 2.9 * columns), 2.2 * rows + 0.9, rows, columns, len(tasks))
        for panel, task in zip(axes, tasks, strict=True):
            _curve_panel(panel, report, task, curves)
        shown = {preset for _, preset in curves}
        _legend(figure, report, shown, paper=suite in SUITES)
        save_figure(
            figure,
            f"{suite_title(suite)}: return (mean over seeds, 95% interval) by agent steps",
            folder / f"curves-{suite}.png",
        )
        yield suite


def _curve_panel(panel: Any, report: Report, task: Task, curves: dict[tuple[str, str], Curve]) -> None:
    last = 0
    every_series = series_of(report)
    for series in every_series:
        curve = curves.get((task.name, series.name)) if series.ours else None
        if curve is None:
            continue
        draw_mean_curve(panel, curve.steps, curve.values, series.style, width=1.3, marker=3.2, markers=4)
        last = max(last, curve.steps[-1])
    published = [s for s in every_series if not s.ours and s.counterpart and s.name in task.published]
    end = last or 1  # not the budget: early runs would be a stripe at the left
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
    """aggregates.png: for each suite the aggregates over tasks and steps in common, of our runs and published."""
    suites = [name for name in report.suites if any(found.suite == name for found in report.aggregates)]
    if not suites:
        return
    count = max(sum(found.suite == name for found in report.aggregates) for name in suites)
    figure, axes = new_figure(12.0, (0.24 * count + 0.55) * len(suites) + 0.6, len(suites), len(STATISTICS))
    styles = {series.key: series for series in series_of(report)}
    for i, suite in enumerate(suites):
        mine = [found for found in report.aggregates if found.suite == suite]
        looks = [styles[(ours if found.ours else paper)(found.name)] for found in mine]
        labels = [f"{found.name} ({'ours' if found.ours else 'paper'})" for found in mine]
        for j, statistic in enumerate(STATISTICS):
            panel = axes[i * len(STATISTICS) + j]
            values = [found.value(statistic) for found in mine]
            _dots(panel, list(zip(values, looks, strict=True)), labels if j == 0 else None)
            title = (
                f"{_ground_title(report, suite)}: {statistic}"
                if j == 0
                else _STATISTIC_TITLES.get(statistic, statistic)
            )
            panel.set_title(title, fontsize=8, loc="left", pad=3)
    save_figure(figure, _titled(report, "Normalised scores with 95% intervals"), path)


def comparison_figure(report: Report, path: Path) -> None:
    """Our runs among all published algorithms: the mean normalised score of each suite, best first.

    Where only some of a suite's tasks have runs, everyone's mean is of these tasks; the paper has no interval for that.
    """
    shown = [found for suite in report.suites if (found := report.means_of(suite))]
    if not shown:
        return
    bars = [
        [
            (name, is_ours, Estimate(*mean))
            for is_ours, means in ((True, found.ours), (False, found.published))
            for name, mean in means.items()
            if not math.isnan(mean[0])
        ]
        for found in shown
    ]
    rows, columns = grid(len(shown), 3)
    height = (0.19 * max(map(len, bars)) + 0.75) * rows + 0.5
    figure, axes = new_figure(max(5.2, 3.3 * columns), height, rows, columns, len(shown))
    for panel, found, means in zip(axes, shown, bars, strict=True):
        ordered = sorted(means, key=lambda bar: -bar[2].value)
        for y, (_, is_ours, mean) in enumerate(ordered):
            fill = "0.35" if is_ours else "0.85"
            panel.barh(y, mean.value, height=0.62, color=fill, edgecolor="0.35", linewidth=0.6)
            if not math.isnan(mean.low):
                reach = [[mean.value - mean.low], [mean.high - mean.value]]
                panel.errorbar(mean.value, y, xerr=reach, color="black", linewidth=1, capsize=1.5)
        labels = [f"{name} (ours)" if is_ours else name for name, is_ours, _ in ordered]
        panel.set_yticks(range(len(ordered)), [plain_text(label) for label in labels], fontsize=7)
        for tick, (_, is_ours, _) in zip(panel.get_yticklabels(), ordered, strict=True):
            tick.set_fontweight("bold" if is_ours else "normal")
        panel.set_ylim(len(ordered) - 0.4, -0.6)
        panel.grid(axis="y", visible=False)
        which = mean_label(found)
        title = f"{suite_title(found.suite)}, {which[0].lower()}{which[1:]}"
        panel.set_title(title, fontsize=8, loc="left", pad=3)
    save_figure(figure, _titled(report, "Normalised scores: dark, our runs; light, published; 95% intervals"), path)


def _ground_title(report: Report, suite: str) -> str:
    """A suite, and over how many tasks and at which steps its presets are compared."""
    steps = sorted(report.ground_of(suite).steps.values())
    at = "-".join(dict.fromkeys(short_count(step) for step in (steps[0], steps[-1])))
    return f"{suite_title(suite)} ({amount(len(steps), 'task')}, {at} steps)"


def _titled(report: Report, title: str) -> str:
    """With a warning where scores are early ones; published ones are of the end."""
    early = how_early(report.finals)
    return f"{title} (early: {early})" if early else title


def profile_figure(report: Report, path: Path) -> None:
    """profiles.png: the share of runs above each normalised score."""
    suites = [name for name in report.suites if any(p.suite == name for p in report.profiles)]
    if not suites:
        return
    rows, columns = grid(len(suites), 3)
    figure, axes = new_figure(max(5.2, 3.4 * columns), 2.5 * rows + 0.9, rows, columns, len(suites))
    styles = {series.name: series.style for series in series_of(report) if series.ours}
    for panel, suite in zip(axes, suites, strict=True):
        for found in (p for p in report.profiles if p.suite == suite):
            look = style(styles[found.preset])
            share, low, high = zip(*found.shares, strict=True)
            panel.plot(
                found.thresholds, share, linewidth=1.4, markersize=3.4, markevery=(styles[found.preset] * 3, 12), **look
            )
            panel.fill_between(found.thresholds, low, high, color=look["color"], alpha=0.15, linewidth=0)
        panel.set_ylim(-0.03, 1.03)
        panel.set_title(_ground_title(report, suite), fontsize=8, loc="left", pad=3)
    _legend(figure, report, {found.preset for found in report.profiles}, paper=False)
    save_figure(figure, _titled(report, "Share of runs above a normalised score"), path)


def improvement_figure(report: Report, path: Path) -> None:
    """improvement.png: the chance that a run of a preset beats one of the base."""
    found = [one for one in report.comparisons if one.pair.improvement is not None]
    if not found:
        return
    figure, axes = new_figure(6.4, 0.24 * len(found) + 1.1, 1, 1)
    styles = {series.key: series for series in series_of(report)}
    dots = [(one.pair.improvement, styles[ours(one.preset)]) for one in found]
    _dots(axes[0], dots, [f"{suite_title(one.suite)}: {one.preset}" for one in found])
    axes[0].axvline(0.5, color=_GREY, linewidth=0.8, linestyle="--")
    axes[0].set_xlim(-0.02, 1.02)
    title = f"Probability that a run is better than one of {report.base}, 95% interval"
    save_figure(figure, _titled(report, title), path)


def ablation_figure(report: Report, path: Path) -> None:
    """ablations.png: the normalised score of every preset, task by task, at steps that all presets of a task have."""
    if len(report.presets) < 2:
        return
    units = {(f.task, f.preset): f.normalised for f in report.side_by_side if f.normalised is not None}
    tasks = list(dict.fromkeys(task for task, _ in units))
    if not tasks:
        return
    presets = [series for series in series_of(report) if series.ours and any(p == series.name for _, p in units)]
    columns = math.ceil(len(tasks) / _TALL)
    tall = math.ceil(len(tasks) / columns)
    figure, axes = new_figure(max(5.6, 4.6 * columns), tall * (0.11 * len(presets) + 0.09) + 1.1, 1, columns)
    for i, panel in enumerate(axes):
        part = tasks[i * tall : (i + 1) * tall]
        for row, task in enumerate(part):
            here = [series for series in presets if (task, series.name) in units]
            for place, series in enumerate(here):
                y = row + (place - (len(here) - 1) / 2) / (len(presets) + 1)
                _dot(panel, units[task, series.name], y, series.style)
        _row_labels(panel, part)
        panel.set_ylim(tall - 0.4, -0.6)
    _legend(figure, report, {series.name for series in presets}, paper=False, lines=False)
    save_figure(
        figure,
        _titled(report, "Normalised scores at the last step that all presets of a task have, 95% interval"),
        path,
    )


def reference_figures(report: Report, folder: Path) -> Iterator[str]:
    """reference-N.png: each reference and the base preset, a panel for each step; yields the reference."""
    for i, name in enumerate(report.references):
        found = [c for c in report.reference_comparisons if (c.reference, c.preset) == (name, report.base)]
        if found:
            draw_reference(found, folder / f"reference-{i + 1}.png")
            yield name


def draw_reference(comparisons: Sequence[ReferenceComparison], path: Path) -> None:
    """A forest plot for each comparison: suites, then tasks sorted by difference; significant ones are filled."""
    tall = max(len(found.suites) + len(found.shares) for found in comparisons)
    figure, axes = new_figure(max(6.4, 5.2 * len(comparisons)), 0.165 * tall + 1.5, 1, len(comparisons))
    for panel, found in zip(axes, comparisons, strict=True):
        tasks = found.sorted_tasks()
        for y, one in enumerate(found.suites):
            _interval(panel, one.difference, y, _SUITE_COLOUR, "D", filled=True, width=2.2)
        for y, row in enumerate(tasks, start=len(found.suites) + 1):
            colour = _TOO_EARLY if row.task in found.too_early else _TASK_COLOUR
            _interval(panel, found.shares[row.task], y, colour, "o", row.verdict in ("above", "below"))
        labels = [*(suite_label(one) for one in found.suites), "", *(row.task for row in tasks)]
        panel.set_yticks(range(len(labels)), [plain_text(label) for label in labels], fontsize=7)
        for tick, _ in zip(panel.get_yticklabels(), found.suites, strict=False):
            tick.set_fontweight("bold")
        panel.axvline(0, color="black", linewidth=0.8)
        panel.set_ylim(len(labels) - 0.4, -0.7)
        panel.grid(axis="y", visible=False)
        panel.tick_params(axis="y", length=0)
        panel.xaxis.set_major_formatter(lambda x, _: f"{100 * x:g}%")
        panel.set_xlabel("difference, in shares of the published final score", fontsize=7.5)
        panel.set_title(reference_title(found), fontsize=8, loc="left", pad=4)
    title = (
        "Differences with 95% intervals. Diamonds: means over tasks (stratified bootstrap). Dots: single tasks (Welch, "
        "not corrected for their number); filled if significant after Holm's correction, grey if neither side has "
        f"reached {100 * EARLY:g}% of the published score."
    )
    save_figure(figure, title, path)


def _interval(panel: Any, at: Estimate, y: int, colour: str, marker: str, filled: bool, width: float = 1.2) -> None:
    if not math.isnan(at.low):
        panel.plot([at.low, at.high], [y, y], color=colour, linewidth=width, solid_capstyle="butt")
    face = colour if filled else "white"
    panel.plot([at.value], [y], marker=marker, color=colour, markerfacecolor=face, markersize=4, linestyle="")


def grid_figures(report: Report, folder: Path) -> Iterator[str]:
    """grid-N.png: scores of a preset by one setting (slices) or two (heat maps); yields the preset."""
    for i, grid_found in enumerate(report.grids):
        draw_grid(grid_found, folder / f"grid-{i + 1}.png")
        yield grid_found.preset


def draw_grid(found: Grid, path: Path) -> None:
    """A panel for the mean over tasks, if there is one, and one for each of the first tasks."""
    every = grid_charts(found)
    shown = every[:_GRID_PANELS]
    rows, columns = grid(len(shown), 3)
    two = len(found.settings) > 1
    figure, axes = new_figure(max(5.2, 3.6 * columns), (2.9 if two else 2.4) * rows + 0.7, rows, columns, len(shown))
    for panel, (title, kind, cells) in zip(axes, shown, strict=True):
        if two:
            _heat_map(figure, panel, found, cells, kind)
        else:
            _slice(panel, found, cells)
        panel.set_title(plain_text(title), fontsize=8, loc="left", pad=4)
    left = len(every) - len(shown)
    more = f" ({left} more tasks are in the table)" if left else ""
    save_figure(figure, f"{grid_note(found)} Mean over seeds{'' if two else ', 95% interval'}{more}", path)


def _slice(panel: Any, found: Grid, cells: dict[Values, Estimate]) -> None:
    """Scores by one setting; its values stand at equal distances."""
    (axis,) = found.axes
    for x, value in enumerate(axis):
        at = cells[(value,)]
        if not math.isnan(at.low):
            panel.plot([x, x], [at.low, at.high], color=style(0)["color"], linewidth=1.6)
        panel.plot([x], [at.value], "o", color=style(0)["color"], markersize=4.5)
    panel.plot(range(len(axis)), [cells[(value,)].value for value in axis], color=style(0)["color"], linewidth=0.8)
    panel.set_xticks(range(len(axis)), [plain_text(setting_text(value)) for value in axis], fontsize=7)
    panel.set_xlabel(found.settings[0], fontsize=7.5)


def _heat_map(figure: Any, panel: Any, found: Grid, cells: dict[Values, Estimate], kind: str) -> None:
    """Scores by two settings; cells without runs stay white."""
    across, down = found.axes
    table = np.array([[cells[x, y].value if (x, y) in cells else math.nan for x in across] for y in down])
    image = panel.imshow(table, cmap="viridis", aspect="auto")
    middle = np.nanmean([np.nanmin(table), np.nanmax(table)])
    for i, y in enumerate(down):
        for j, x in enumerate(across):
            if (x, y) in cells:
                colour = "white" if table[i, j] <= middle else "black"
                panel.text(j, i, number(float(table[i, j]), kind), ha="center", va="center", fontsize=7.5, color=colour)
    panel.grid(visible=False)
    panel.set_xticks(range(len(across)), [plain_text(setting_text(x)) for x in across], fontsize=7)
    panel.set_yticks(range(len(down)), [plain_text(setting_text(y)) for y in down], fontsize=7)
    panel.set_xlabel(found.settings[0], fontsize=7.5)
    panel.set_ylabel(found.settings[1], fontsize=7.5)
    figure.colorbar(image, ax=panel, shrink=0.85).ax.tick_params(labelsize=6.5)


def draw_claims(
    results: Sequence[Result], presets: Sequence[str], judged: Sequence[Judgement], title: str, path: Path
) -> None:
    """Learning curves of every task judged, a line for each preset; under each panel what is seen."""
    from matplotlib.lines import Line2D

    known = {result.task for result in results}
    tasks = [task for task in dict.fromkeys(j.task for j in judged) if task in known]
    rows, columns = grid(len(tasks))
    figure, panels = new_figure(max(5.6, 3.3 * columns), 3.1 * rows + 0.9, rows, columns, len(tasks))
    for panel, task in zip(panels, tasks, strict=True):
        for index, preset in enumerate(presets):
            found = preset_curve(results, task, preset)
            if found.steps:
                draw_mean_curve(panel, found.steps, found.values, index, markers=6, edges=True)
        panel.set_title(plain_text(task), fontsize=8.5, loc="left", pad=4)
        said = [f"{j.says}: {j.seen}" for j in judged if j.task == task]
        panel.set_xlabel("\n".join(["agent steps", *map(plain_text, said)]), fontsize=7)
        panel.xaxis.set_major_formatter(lambda x, _: short_count(x))
        panel.locator_params(axis="x", nbins=5)
        panel.set_xlim(left=0)
    for row in range(rows):
        panels[row * columns].set_ylabel("return", fontsize=8)
    handles = [
        Line2D(
            [],
            [],
            linewidth=1.5,
            markersize=4.5,
            label=plain_text(f"{name} ({_seed_counts(results, name)})"),
            **style(i),
        )
        for i, name in enumerate(presets)
    ]
    fitting = max(1, int(figure.get_figwidth() / _LEGEND_ENTRY))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(fitting, len(handles)), frameon=False, fontsize=8
    )
    save_figure(figure, title, path)


def _seed_counts(results: Iterable[Result], preset: str) -> str:
    by_task: dict[str, set[int]] = {}
    for result in results:
        if result.preset == preset:
            by_task.setdefault(result.task, set()).add(result.seed)
    counts = sorted({len(seeds) for seeds in by_task.values()}) or [0]
    text = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{text} seed{'' if counts == [1] else 's'}"


FIGURES: dict[str, Callable[[Report, Path], None]] = {
    "aggregates": aggregate_figure,
    "profiles": profile_figure,
    "improvement": improvement_figure,
    "ablations": ablation_figure,
}


def _dots(panel: Any, dots: Sequence[tuple[Sequence[float] | None, Series]], labels: list[str] | None) -> None:
    """A value with its interval in each row, hollow where it is the paper's."""
    for y, (value, series) in enumerate(dots):
        if value is not None:
            _dot(panel, Estimate(*value), y, series.style, hollow=not series.ours)
    _row_labels(panel, labels or [""] * len(dots))


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
    for series in series_of(report):
        if series.ours and series.name in shown:
            look = style(series.style) if lines else {**style(series.style), "linestyle": ""}
            handles.append(Line2D([], [], linewidth=1.4, markersize=4, label=plain_text(series.name), **look))
    for series in series_of(report):
        if paper and not series.ours and series.counterpart:
            look = {**style(series.style), "linestyle": "-"}
            label = f"published {series.name}: mean at the end, 95% interval"
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
