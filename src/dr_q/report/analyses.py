"""Figures and tables of the paper's analyses: latent state-actions, priorities by age, information."""

import itertools
import math
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dr_q.kit import output_csv
from dr_q.report.canvas import draw_mean_curve, grid, new_figure, plain_text, save_figure, short_count
from dr_q.report.numbers import with_interval
from dr_q.report.statistics import FEWEST_SEEDS, MeanCurve, mean, mean_curve
from dr_q.report.style import style
from dr_q.report.verdicts import DifferenceVerdict, interval_verdict

_GREY = "0.35"
_POINTS = 20_000
"""Dots of a scatter at most; beyond, they only hide each other."""
_PARTS = 25
"""Of a scatter's ages, whose quantiles are drawn."""
_DIRECTION: dict[DifferenceVerdict, str] = {
    "above": "it rises",
    "below": "it falls",
    "no significant difference": "no change is seen",
    "too few seeds": f"with fewer than {FEWEST_SEEDS} seeds, not decidable",
}
_THIN = {"color": "black", "linewidth": 1, "linestyle": (0, (3, 1.5))}


class Origin(NamedTuple):
    """What a panel or a line was made from."""

    name: str
    """The run's folder."""
    task: str
    preset: str
    seed: int | None
    """None where all seeds are meant."""
    agent_steps: int

    def lines(self) -> str:
        """For a panel's title."""
        seed = "" if self.seed is None else f"seed {self.seed}, "
        return plain_text(f"{self.name}\n{self.task}, {self.preset}\n{seed}{self.agent_steps:,} agent steps")


class Embedding(NamedTuple):
    """z_sa of transitions of a replay, in two dimensions."""

    origin: Origin
    points: np.ndarray
    """[N, 2]."""
    colour: np.ndarray
    """[N], in the unit that the figure names."""
    age: np.ndarray
    """[N], transitions added since."""
    perplexity: float


class AgeBucket(NamedTuple):
    """Transitions of a range of ages."""

    first: int
    """Youngest age in it."""
    last: int
    """Oldest age in it."""
    transitions: int
    """How many of them a window may start at."""
    td_error: tuple[float, float, float]
    """10%, 50% and 90% of |TD error|; nan where none was computed."""
    faded: tuple[float, float, float]
    """The same of |TD error| x fade weight."""
    probability: float
    """The chance that a draw falls here, by the stored priorities."""


class Priorities(NamedTuple):
    """|TD error| x fade weight by age, and how a replay is drawn from."""

    origin: Origin
    fading: bool
    """Whether age takes anything."""
    age: np.ndarray
    """[N], of the newest transitions."""
    faded: np.ndarray
    """[N], |TD error| x fade weight."""
    buckets: list[AgeBucket]
    """The last one holds what is older than the newest N, if anything is."""


class Measure(NamedTuple):
    """What one checkpoint of one seed says of held-out transitions."""

    agent_steps: int
    seed: int
    held_out: bool
    negatives: int
    """N of the bound."""
    information: float
    """log N - InfoNCE loss, in nats."""
    latent_mse: float
    reward_error: float
    """Mean |predicted - true reward|."""


class Information(NamedTuple):
    """All checkpoints of a run."""

    origin: Origin
    measures: list[Measure]

    def sentence(self) -> str:
        """Whether the information rose from the first to the last checkpoint, by each seed's own difference."""
        steps = sorted({m.agent_steps for m in self.measures})
        found = {(m.agent_steps, m.seed): m.information for m in self.measures}
        seeds = sorted({m.seed for m in self.measures})
        begin = f"{self.origin.name} ({self.origin.task}, {self.origin.preset}): "
        if len(steps) < 2:
            more = "keep more with --keep-checkpoints"
            return f"{begin}one checkpoint, at {steps[0]:,} steps: nothing can be said of a change; {more}"
        gap = mean([found[steps[-1], seed] - found[steps[0], seed] for seed in seeds])
        change = f"the information bound changes by {with_interval(gap, '+.3f')} nats"
        return f"{begin}{change} from {steps[0]:,} to {steps[-1]:,} steps: {_DIRECTION[interval_verdict(gap)]}."


def draw_embeddings(found: Sequence[Embedding], colour: str, path: Path) -> None:
    """A panel for each run; `colour` names what colours mean, the same scale for the same task."""
    rows, columns = grid(len(found))
    figure, panels = new_figure(max(5.0, 3.3 * columns + 0.9), 3.65 * rows + 1.1, rows, columns, len(found))
    tasks = list(dict.fromkeys(e.origin.task for e in found))
    drawn: dict[str, Any] = {}
    where: dict[str, list[Any]] = {task: [] for task in tasks}
    for panel, embedding in zip(panels, found, strict=True):
        task = embedding.origin.task
        together = np.concatenate([e.colour for e in found if e.origin.task == task])
        low, high = np.percentile(together, [2, 98])
        order = np.argsort(embedding.age)[::-1]
        size = float(np.clip(15_000 / len(order), 3, 14))
        drawn[task] = panel.scatter(
            *embedding.points[order].T,
            c=embedding.colour[order],
            s=size,
            cmap=_colours(),
            vmin=low,
            vmax=high,
            linewidths=0,
        )
        where[task].append(panel)
        low, high = embedding.points.min(axis=0), embedding.points.max(axis=0)
        middle, half = (low + high) / 2, 0.53 * float(np.max(high - low))
        panel.set_xlim(middle[0] - half, middle[0] + half)
        panel.set_ylim(middle[1] - half, middle[1] + half)
        panel.set_aspect("equal")
        panel.set_xticks([])
        panel.set_yticks([])
        panel.grid(False)
        for side in ("left", "bottom", "top", "right"):
            panel.spines[side].set_visible(True)
            panel.spines[side].set_color("0.8")
        panel.set_title(embedding.origin.lines(), fontsize=8, loc="left", pad=4)
    for task in tasks:
        bar = figure.colorbar(drawn[task], ax=where[task], shrink=0.8, pad=0.02, aspect=30)
        bar.ax.tick_params(labelsize=7, length=2)
        bar.set_label(colour if len(tasks) == 1 else plain_text(f"{colour}, {task}"), fontsize=8)
        bar.outline.set_visible(False)
    counts = " or ".join(dict.fromkeys(f"{len(e.points):,}" for e in found))
    perplexity = " or ".join(dict.fromkeys(f"{e.perplexity:.3g}" for e in found))
    _note(
        figure,
        f"{counts} transitions drawn uniformly from the replay; t-SNE of each run by itself, perplexity {perplexity}. "
        "Positions have no unit; sizes of clusters and distances between them mean little. Colours end at the 2nd and "
        "98th percentile of the task.",
    )
    save_figure(figure, "z_sa of replay samples in two dimensions (t-SNE)", path)


def _colours() -> Any:
    """Dark to light in grey too, and without the end that white paper hides."""
    import matplotlib as mpl
    from matplotlib.colors import ListedColormap

    return ListedColormap(mpl.colormaps["viridis"](np.linspace(0, 0.92, 256)))


def write_embeddings(found: Iterable[Embedding], colour: str, path: Path) -> None:
    """Every point."""
    rows = (
        [*e.origin, f"{x:.6g}", f"{y:.6g}", f"{value:.6g}", int(age)]
        for e in found
        for (x, y), value, age in zip(e.points, e.colour, e.age, strict=True)
    )
    _write(path, [*Origin._fields, "x", "y", colour, "age"], rows)


def draw_priorities(found: Sequence[Priorities], path: Path) -> None:
    """For each run the scatter over its newest transitions, and under it the sampling probability by age."""
    bands, columns = grid(len(found))
    figure, panels = new_figure(max(5.0, 3.4 * columns), 4.9 * bands + 0.7, 2 * bands, columns)
    for panel in panels:
        panel.set_visible(False)
    scattered = []
    for i, priorities in enumerate(found):
        band, column = divmod(i, columns)
        above = panels[2 * band * columns + column]
        below = panels[(2 * band + 1) * columns + column]
        _scatter(above, priorities, first=i == 0)
        scattered.append(above)
        _bars(below, priorities, first=i == 0)
        if column == 0:
            above.set_ylabel("|TD error| x fade weight", fontsize=8)
            below.set_ylabel("sampling probability", fontsize=8)
    limits = np.array([panel.get_ylim() for panel in scattered])
    for panel in scattered:  # to be compared by eye
        panel.set_ylim(limits[:, 0].min(), limits[:, 1].max())
    _note(
        figure,
        "Dots: |TD error| recomputed with the checkpoint's networks, the larger of the two critics, times the fade "
        f"weight; at most {_POINTS:,} are drawn, lines are of all, in {_PARTS} parts. MR.Q's errors are in units of "
        "its reward scale. Bars: by the priorities stored in the replay, as training would draw next.",
    )
    save_figure(figure, "Priorities by age (0 = newest transition)", path)


def _scatter(panel: Any, found: Priorities, first: bool) -> None:
    panel.set_visible(True)
    every = np.random.default_rng(0).permutation(len(found.age))[:_POINTS]
    shown = np.maximum(found.faded[every], 1e-4)  # a logarithm's axis has no 0
    size = float(np.clip(20_000 / max(1, len(every)), 1.2, 9))
    panel.scatter(found.age[every], shown, s=size, color="#56a0d0", alpha=0.35, linewidths=0, rasterized=True)
    end = int(found.age.max(initial=0)) + 1
    edges = np.linspace(0, end, min(_PARTS, end) + 1)
    quantiles = [_quantiles_between(found, low, high) for low, high in itertools.pairwise(edges)]
    for values, label, look in zip(
        np.maximum(quantiles, 1e-4).T,
        ("10% and 90%", "median", None),
        (_THIN, {"color": "black", "linewidth": 1.8}, _THIN),
        strict=True,
    ):
        panel.stairs(values, edges, baseline=None, label=label, **look)
    panel.set_yscale("log")
    low, high = np.percentile(shown, [0.5, 100])
    panel.set_ylim(low / 1.5, high * (high / low) ** 0.25)  # room for the legend
    panel.set_xlim(0, end)
    panel.xaxis.set_major_formatter(lambda x, _: short_count(x))
    panel.set_xlabel("age: transitions added since", fontsize=8)
    panel.set_title(found.origin.lines() + ("" if found.fading else ", no fading"), fontsize=8, loc="left", pad=4)
    if first:
        panel.legend(fontsize=7, loc="upper right", frameon=False, ncols=2)


def _quantiles_between(found: Priorities, low: float, high: float) -> np.ndarray:
    inside = found.faded[(found.age >= low) & (found.age < high)]
    return np.quantile(inside, [0.1, 0.5, 0.9]) if len(inside) else np.full(3, np.nan)


def _bars(panel: Any, found: Priorities, first: bool) -> None:
    panel.set_visible(True)
    places = np.arange(len(found.buckets))
    share = np.array([bucket.probability for bucket in found.buckets])
    count = np.array([bucket.transitions for bucket in found.buckets])
    panel.bar(places, share, width=0.8, color="#56a0d0", edgecolor="#1f5f8b", linewidth=0.8, label="as drawn")
    panel.plot(
        places, count / count.sum(), linestyle="", marker="_", markersize=15, markeredgewidth=2, color="black",
        label="if drawn uniformly",
    )  # fmt: skip
    for x, y, even in zip(places, share, count / count.sum(), strict=True):
        text = f"{100 * y:.0f}" if y >= 0.01 or y == 0 else "<1"
        panel.annotate(text, (x, max(y, even)), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=6.5)
    panel.set_xticks(
        places, [_ages(bucket) for bucket in found.buckets], rotation=45, ha="right", rotation_mode="anchor"
    )
    panel.set_ylim(0, 1.15 * max(share.max(), (count / count.sum()).max()))
    panel.yaxis.set_major_formatter(lambda x, _: f"{100 * x:.0f}%")
    panel.grid(False, axis="x")
    panel.set_xlabel("age", fontsize=8)
    if first:
        panel.legend(fontsize=7, loc="upper left", frameon=False, handlelength=1.4)


def _ages(bucket: AgeBucket) -> str:
    first, end = (short_count(float(f"{age:.3g}")) for age in (bucket.first, bucket.last + 1))
    return f"{first} and older" if math.isnan(bucket.td_error[1]) and bucket.transitions else f"{first}-{end}"


def write_priorities(found: Iterable[Priorities], path: Path) -> None:
    """Every bucket."""
    names = [f"{what}_{share}" for what in ("td_error", "faded") for share in ("10", "50", "90")]
    rows = (
        [*p.origin, b.first, b.last, b.transitions, *(f"{x:.6g}" for x in (*b.td_error, *b.faded)), repr(b.probability)]
        for p in found
        for b in p.buckets
    )
    _write(path, [*Origin._fields, "age_first", "age_last", "transitions", *names, "probability"], rows)


def draw_information(found: Sequence[Information], path: Path, note: str) -> None:
    """A column for each task: the bound, the latent error and the reward error by agent steps, a line for each run."""
    tasks = list(dict.fromkeys(run.origin.task for run in found))
    figure, panels = new_figure(3.8 * len(tasks) + 2.4, 6.9, 3, len(tasks))
    quantities = (
        ("information", "log N - InfoNCE loss (nats)"),
        ("latent_mse", "latent MSE"),
        ("reward_error", "|predicted - true reward|"),
    )
    for row, (name, label) in enumerate(quantities):
        for column, task in enumerate(tasks):
            panel = panels[row * len(tasks) + column]
            for index, run in enumerate(found):
                if run.origin.task == task:
                    _line(panel, run, name, index)
            if name == "information":
                _ceiling(panel, found, task)
                panel.set_title(plain_text(task), fontsize=8.5, loc="left", pad=4)
            else:
                panel.set_yscale("log")
                curves = [_curve(run, name) for run in found if run.origin.task == task]
                values = [value.value for curve in curves for value in curve.values]
                panel.set_ylim(min(values) / 2, max(panel.get_ylim()[1], max(values) * 1.5))
                panel.tick_params(axis="y", which="minor", labelsize=7)
            if column == 0:
                panel.set_ylabel(label, fontsize=8)
            if row == len(quantities) - 1:
                panel.set_xlabel("agent steps", fontsize=8)
            panel.xaxis.set_major_formatter(lambda x, _: short_count(x))
            panel.locator_params(axis="x", nbins=5)
    _run_legend(figure, found)
    _note(figure, note)
    save_figure(figure, "Information between predicted and true next latent states", path)


def _line(panel: Any, run: Information, name: str, index: int) -> None:
    curve = _curve(run, name)
    values = curve.values
    if name != "information":  # a logarithm's axis has no 0
        values = [value._replace(low=max(value.low, 1e-9)) for value in values]
    draw_mean_curve(panel, curve.steps, values, index, marker=4.5, edges=True)
    seen = [(s, value.value) for s, value in zip(curve.steps, values, strict=True) if not _held_out(run, s)]
    if seen:
        hollow = {**style(index), "linestyle": "", "markerfacecolor": "white"}
        panel.plot(*zip(*seen, strict=True), markersize=4.5, **hollow)


def _curve(run: Information, name: str) -> MeanCurve:
    """One quantity over checkpoints, which all seeds share."""
    by_seed: dict[int, dict[int, float]] = {}
    for m in run.measures:
        by_seed.setdefault(m.seed, {})[m.agent_steps] = getattr(m, name)
    return mean_curve(by_seed)


def _held_out(run: Information, step: int) -> bool:
    return all(m.held_out for m in run.measures if m.agent_steps == step)


def _ceiling(panel: Any, found: Sequence[Information], task: str) -> None:
    """log N, which the bound cannot pass, if it is near enough to be drawn without hiding the rest."""
    largest = max(math.log(m.negatives) for run in found if run.origin.task == task for m in run.measures)
    panel.axhline(largest, color=_GREY, linewidth=1, linestyle=(0, (6, 3)))
    panel.annotate(
        f"log N = {largest:.2f}, the most this bound can show",
        (0.01, largest),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        fontsize=7,
        color="0.3",
    )
    panel.margins(y=0.12)


def _run_legend(figure: Any, found: Sequence[Information]) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for index, run in enumerate(found):
        count = len({m.seed for m in run.measures})
        name = run.origin.name if run.origin.name == run.origin.preset else f"{run.origin.name}: {run.origin.preset}"
        label = plain_text(f"{name} ({count} seed{'s' if count > 1 else ''})")
        handles.append(Line2D([], [], linewidth=1.5, markersize=4.5, label=label, **style(index)))
    figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=8, handlelength=3)


def write_information(found: Iterable[Information], path: Path) -> None:
    """Every checkpoint of every seed."""
    head = ["name", "task", "preset", *Measure._fields]
    rows = (
        [run.origin.name, run.origin.task, run.origin.preset, *m[:4], *(f"{x:.6g}" for x in m[4:])]
        for run in found
        for m in run.measures
    )
    _write(path, head, rows)


def _note(figure: Any, text: str) -> None:
    """What was done, under the figure."""
    width = int(figure.get_figwidth() * 17.5)
    figure.supxlabel("\n".join(textwrap.wrap(plain_text(text), width)), fontsize=7, color="0.3", x=0.01, ha="left")


def _write(path: Path, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with output_csv(path) as writer:
        writer.writerow(head)
        writer.writerows(rows)
