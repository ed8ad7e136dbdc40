"""What all figures share: their panels, mean curves, letters and file format."""

import math
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dr_q.kit import output_file
from dr_q.report.statistics import Estimate
from dr_q.report.style import style

DPI = 130
MOST_COLUMNS = 4
_LETTERS_PER_INCH = 13
"""Of a title."""


def new_figure(
    width: int | float, height: int | float, rows: int, columns: int, count: int | None = None
) -> tuple[Any, list[Any]]:
    """An empty figure and its panels, row by row; with `count` the first so many, the others left white."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for panel in axes:
        panel.grid(alpha=0.25, linewidth=0.5)
        panel.tick_params(labelsize=7, length=2)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    count = len(axes) if count is None else count
    for panel in axes[count:]:
        panel.set_visible(False)
    return figure, axes[:count]


def grid(count: int, most: int = MOST_COLUMNS) -> tuple[int, int]:
    """Rows and columns of so many panels."""
    columns = min(most, count)
    return math.ceil(count / columns), columns


def draw_mean_curve(
    panel: Any,
    steps: Sequence[int | float],
    values: Sequence[Estimate],
    index: int,
    *,
    width: int | float = 1.5,
    marker: int | float = 4.2,
    markers: int | None = None,
    edges: bool = False,
    label: str | None = None,
) -> None:
    """A mean over seeds with its interval as a band, if there is one.

    Args:
        panel: to draw on.
        steps: agent steps, or seconds.
        values: one for each step.
        index: of its style.
        width: of its line.
        marker: size of its markers.
        markers: about how many there are; by default one at each step.
        edges: draw the band's edges in the line's dashes, where bands of several curves lie over each other.
        label: for the legend.
    """
    look = style(index)
    every = None if markers is None else max(1, len(steps) // markers)
    place = None if every is None else (index % every, every)
    middle, low, high = ([value[i] for value in values] for i in range(3))
    panel.plot(steps, middle, linewidth=width, markersize=marker, markevery=place, label=label, **look)
    if not values or math.isnan(low[-1]):
        return
    panel.fill_between(steps, low, high, color=look["color"], alpha=0.13 if edges else 0.18, linewidth=0)
    for edge in (low, high) if edges else ():
        panel.plot(steps, edge, linewidth=0.5, color=look["color"], linestyle=look["linestyle"], alpha=0.7)


def save_figure(figure: Any, title: str, path: Path) -> None:
    """Write a figure, with its title."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = textwrap.wrap(title, int(figure.get_figwidth() * _LETTERS_PER_INCH))
    figure.suptitle(plain_text("\n".join(lines)), fontsize=9.5, x=0.01, ha="left")
    with warnings.catch_warnings():
        # A letter that the font does not have is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        about = {"Software": "dr-q report"} if path.suffix == ".png" else {}
        with output_file(path) as part:
            figure.savefig(part, dpi=DPI, metadata=about, format=path.suffix.removeprefix(".") or "png")


def plain_text(text: str) -> str:
    """Text as it is: no formula between dollar signs, and no name that a legend leaves out."""
    plain = text.replace("$", r"\$")
    return f"\N{HAIR SPACE}{plain}" if plain.startswith("_") else plain


def short_count(x: int | float) -> str:
    """12k for 12,000."""
    if abs(x) >= 1e6:
        return f"{x / 1e6:g}M"
    return f"{x / 1e3:g}k" if abs(x) >= 1e3 else f"{x:g}"
