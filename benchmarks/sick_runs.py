"""The runs of docs/reading-a-run.md: a healthy one and six that go wrong, each on the same small task.

    python benchmarks/sick_runs.py --out runs/sick

It trains the runs that the folder does not have yet, prints the numbers that the page states, and draws the figures
`docs/images/reading-*.png`. All runs together take about 4 minutes of CPU time.
"""

import argparse
import csv
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from gymnasium import spaces
from matplotlib.axes import Axes
from PIL import Image

import dr_q

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SEEDS = 3
STEPS = 3_000
EXPLORATION = 500
DISCOUNT = 0.95
EPISODE = 50
SIZES = {
    "batch_size": 64,
    "zs_dim": 64,
    "zsa_dim": 64,
    "za_dim": 32,
    "encoder_hidden": 64,
    "actor_hidden": 64,
    "critic_hidden": 64,
    "target_period": 100,
}
RUN: dict[str, Any] = {
    "seeds": SEEDS,
    "steps": STEPS,
    "exploration_steps": EXPLORATION,
    "discount": DISCOUNT,
    "eval_every": 250,
    "eval_episodes": 10,
    "log_every": 50,
    "in_process": True,
    "keep_best": False,
    **SIZES,
}


class Puck(gymnasium.Env):
    """A puck on a table: push it to the middle and keep it there; an episode has 50 steps.

    The reward is 1 in the middle and falls to 0 at a distance of 1.
    """

    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)

    def __init__(
        self,
        reward_scale: float = 1.0,
        reward_shift: float = 0.0,
        observation_scale: float = 1.0,
        origin: float = 0.0,
        goal: float | None = None,
        edge: float = math.inf,
        limit_terminates: bool = False,
    ):
        """
        Args:
            reward_scale: Factor of the reward.
            reward_shift: Added to the reward.
            observation_scale: Factor of the observation.
            origin: Coordinates of the middle, as observations give them: 5,000 is a place on a map in metres.
            goal: With it the reward is sparse: 1 within this distance of the middle and 0 elsewhere.
            edge: Distance from the middle at which the puck falls off the table, which terminates the episode.
            limit_terminates: Whether the time limit is reported as a termination.
        """
        self.reward_scale, self.reward_shift = reward_scale, reward_shift
        self.observation_scale, self.origin = observation_scale, origin
        self.goal, self.edge, self.limit_terminates = goal, edge, limit_terminates

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Put the puck somewhere on the table."""
        super().reset(seed=seed)
        direction, distance = self.np_random.uniform(-np.pi, np.pi), self.np_random.uniform(0.5, 1.0)
        self._place = distance * np.array([np.cos(direction), np.sin(direction)])
        self._speed, self._step = np.zeros(2), 0
        return self._observe(), {}

    def step(self, action: np.ndarray):
        """Push it for a tenth of a second."""
        self._speed = 0.9 * self._speed + 0.1 * np.clip(np.asarray(action, np.float64), -1, 1)
        self._place = self._place + 0.1 * self._speed
        self._step += 1
        distance = float(np.linalg.norm(self._place))
        reward = max(0.0, 1.0 - distance) if self.goal is None else float(distance < self.goal)
        over = self._step >= EPISODE
        terminated = distance > self.edge or (over and self.limit_terminates)
        reward = self.reward_scale * (reward + self.reward_shift)
        return self._observe(), reward, terminated, over and not terminated, {}

    def _observe(self) -> np.ndarray:
        seen = np.concatenate([self.origin + self._place, self._speed])
        return (self.observation_scale * seen).astype(np.float32)


class DiscountedReturns(dr_q.Callback):
    """Writes what the critics should predict: discounted returns of training, to compare with `q_mean`."""

    def __init__(self, path: Path):
        self._path = path
        self._rewards: list[list[float]] = [[] for _ in range(SEEDS)]
        self._rows: list[tuple[int, float]] = []

    def on_step(self, event: dr_q.StepEvent) -> None:
        """Follow the rewards; at the end of an episode, average over the steps of its first half."""
        for mine, reward, ended in zip(self._rewards, event.rewards, event.ended, strict=True):
            mine.append(float(reward))
            if ended:
                value, values = 0.0, []
                for x in reversed(mine):
                    value = x + DISCOUNT * value
                    values.append(value)
                first_half = values[::-1][: max(1, len(values) // 2)]
                self._rows.append((event.agent_steps, float(np.mean(first_half))))
                mine.clear()

    def on_end(self, event: dr_q.EndEvent) -> None:
        """Write them."""
        lines = [f"{steps},{value:.6g}" for steps, value in self._rows]
        self._path.write_text("\n".join(["agent_steps,discounted_return", *lines]) + "\n")


class Case(NamedTuple):
    """A run, by what differs from the healthy one."""

    env: Callable[[], gymnasium.Env]
    settings: Mapping[str, Any] = MappingProxyType({})


HIGH = 0.1
CASES = {
    "healthy": Case(Puck),
    "rewards": Case(partial(Puck, reward_scale=1e6)),
    "observations": Case(partial(Puck, origin=5_000.0)),
    "normalised": Case(partial(Puck, origin=5_000.0), {"normalise_observations": "all"}),
    "exploration": Case(Puck, {"exploration_steps": 10_000}),
    "learning-rate": Case(Puck, {f"{part}_learning_rate": HIGH for part in ("encoder", "critic", "actor")}),
    "termination": Case(partial(Puck, reward_shift=-1.5, edge=1.2)),
    "sparse": Case(partial(Puck, goal=0.02)),
    "scaled": Case(partial(Puck, observation_scale=5_000.0)),
    "limit": Case(partial(Puck, limit_terminates=True)),
    "capacity": Case(Puck, {"replay_capacity": 200}),
}


def train(out: Path, name: str) -> None:
    """Train a run, unless the folder has it already."""
    folder = out / name
    if (folder / "run.json").exists():
        return
    case = CASES[name]
    print(f"--- {name}")
    callbacks = [DiscountedReturns(out / f"{name}-returns.csv")]
    try:
        dr_q.train(case.env, out=folder, callbacks=callbacks, **{**RUN, **case.settings})
    except dr_q.DrQError as error:  # a sick run may end so
        print(f"dr-q: {error}")


class Column(NamedTuple):
    """A column of a run's table, without empty values: [N] agent steps and [N, seeds] values."""

    steps: np.ndarray
    values: np.ndarray

    def near_the_end(self) -> float:
        """Mean over seeds and the last 500 steps; NaN for an empty column."""
        return float(self.values[self.steps > STEPS - 500].mean()) if len(self.steps) else math.nan


def column(out: Path, run: str, table: str, name: str) -> Column:
    """A column of evals.csv or metrics.csv."""
    with (out / run / table).open(newline="") as file:
        rows = [(int(row["agent_steps"]), float(row[name])) for row in csv.DictReader(file) if row[name]]
    steps = sorted({step for step, _ in rows})
    values = [[value for step, value in rows if step == wanted] for wanted in steps]
    return Column(np.array(steps), np.array(values))


def discounted(out: Path, run: str) -> Column:
    """Discounted returns of training, averaged over seeds and 250 steps."""
    with (out / f"{run}-returns.csv").open(newline="") as file:
        rows = np.array([(float(row["agent_steps"]), float(row["discounted_return"])) for row in csv.DictReader(file)])
    ends = np.arange(250, STEPS + 1, 250)
    means = [rows[(rows[:, 0] > end - 250) & (rows[:, 0] <= end), 1].mean() for end in ends]
    return Column(ends, np.array(means)[:, None])


GREY, BLUE, RED, GREEN = "#777777", "#0072b2", "#d55e00", "#009e73"


def draw(axes: Axes, data: Column, colour: str, label: str, *, scale: float = 1.0, style: str = "-") -> None:
    """The mean over seeds, and the range from the lowest to the highest seed."""
    if not len(data.steps):
        return
    values = data.values * scale
    axes.plot(data.steps, values.mean(axis=1), style, color=colour, label=label, linewidth=1.8)
    if values.shape[1] > 1:
        axes.fill_between(data.steps, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.18, linewidth=0)


def figure(name: str, panels: int) -> tuple[list[Axes], Callable[..., None]]:
    """Axes under each other, which a phone shows at a size to read, and what saves them."""
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    made, axes = plt.subplots(panels, 1, figsize=(4.8, 0.5 + 1.75 * panels), dpi=130, sharex=True, squeeze=False)
    every = list(axes[:, 0])

    def save(places: Mapping[Axes, str] = MappingProxyType({})) -> None:
        for one in every:
            one.axvline(EXPLORATION, color="#bbbbbb", linewidth=1, linestyle=":")
            one.grid(axis="y", color="#e6e6e6", linewidth=0.6)
            one.legend(fontsize=8.5, frameon=False, loc=places.get(one, "best"))
        every[-1].set_xlabel("agent steps")
        every[-1].set_xlim(0, STEPS)
        made.tight_layout()
        made.canvas.draw()
        pixels = Image.fromarray(np.asarray(made.canvas.buffer_rgba())[..., :3])  # pyright: ignore
        pixels.quantize(64).save(IMAGES / f"reading-{name}.png", optimize=True)
        plt.close(made)

    return every, save


def draw_healthy(out: Path) -> None:
    """Return, values against returns, losses and priorities of the healthy run."""
    (returns, values, losses, priorities), save = figure("healthy", 4)
    draw(returns, column(out, "healthy", "evals.csv", "return_mean"), BLUE, "return_mean (evals.csv)")
    draw(returns, column(out, "healthy", "metrics.csv", "episode_return"), GREY, "episode_return", style="--")
    returns.set_ylabel("return")
    draw(values, column(out, "healthy", "metrics.csv", "q_mean"), BLUE, "q_mean")
    draw(values, discounted(out, "healthy"), RED, "discounted return of training", style="--")
    values.set_ylabel("value")
    for name, colour in (("critic_loss", BLUE), ("encoder_loss", RED), ("encoder_reward", GREEN)):
        draw(losses, column(out, "healthy", "metrics.csv", name), colour, name)
    losses.set_ylabel("loss")
    losses.set_yscale("log")
    for name, colour in (("priority_max", BLUE), ("priority_mean", RED)):
        draw(priorities, column(out, "healthy", "metrics.csv", name), colour, name)
    priorities.set_ylabel("priority")
    save({values: "lower right", priorities: "center right"})


class Panel(NamedTuple):
    """One panel: a column of metrics.csv in a sick run and in the healthy one."""

    name: str
    log: bool = False


SICK = {
    "observations": Panel("encoder_reward"),
    "exploration": Panel("q_mean"),
    "learning-rate": Panel("encoder_loss", log=True),
    "termination": Panel("episode_length"),
    "sparse": Panel("critic_loss", log=True),
}


def draw_sick(out: Path, run: str) -> None:
    """The return and another column of a sick run next to the healthy one."""
    (returns, other), save = figure(run, 2)
    healthy = column(out, "healthy", "evals.csv", "return_mean")
    scale = 1e-6 if run == "rewards" else 1.0
    draw(returns, healthy, GREY, "healthy")
    draw(returns, column(out, run, "evals.csv", "return_mean"), RED, "sick", scale=scale)
    returns.set_ylabel("return" if scale == 1 else "return / reward scale")
    if run == "observations":
        draw(returns, column(out, "normalised", "evals.csv", "return_mean"), GREEN, "normalised")
    if run == "rewards":
        draw(other, column(out, run, "metrics.csv", "q_mean"), RED, "q_mean, sick")
        draw(other, discounted(out, run), BLUE, "discounted return, sick", style="--")
        other.set_yscale("log")
        other.set_ylabel("value")
        return save()
    panel = SICK[run]
    draw(other, column(out, "healthy", "metrics.csv", panel.name), GREY, "healthy")
    draw(other, column(out, run, "metrics.csv", panel.name), RED, "sick")
    if run == "observations":
        draw(other, column(out, "normalised", "metrics.csv", panel.name), GREEN, "normalised")
    if run == "exploration":
        other.plot([], [], color=RED, label="sick: no values")
    if panel.log:
        other.set_yscale("log")
    other.set_ylabel(panel.name)
    return save()


def summary(out: Path, run: str) -> str:
    """The means over seeds and the last 500 steps, in a line."""
    columns = ("q_mean", "q_target_mean", "td_error_mean", "critic_loss", "encoder_loss", "encoder_reward")
    columns += ("priority_mean", "priority_max", "age_mean", "episode_return", "episode_length", "obs_absmax")
    found = {name: column(out, run, "metrics.csv", name).near_the_end() for name in columns}
    found = {"return_mean": column(out, run, "evals.csv", "return_mean").near_the_end(), **found}
    found["discounted_return"] = discounted(out, run).near_the_end()
    return f"{run}: " + ", ".join(f"{name} {value:.4g}" for name, value in found.items())


def main() -> None:
    """Train, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for run in CASES:
        train(out, run)
    for run in CASES:
        print(summary(out, run))
    draw_healthy(out)
    for run in ("rewards", *SICK):
        draw_sick(out, run)


if __name__ == "__main__":
    main()
