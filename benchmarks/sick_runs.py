"""The runs of docs/reading-a-run.md: a healthy one and six that go wrong, each on the same small task.

    python benchmarks/sick_runs.py --out runs/sick

It trains the runs that the folder does not have yet, prints the numbers that the page states, and draws the figures
`docs/images/reading-*.png`. All runs together take about 5 minutes of one CPU core.
"""

import argparse
import csv
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from gymnasium import spaces
from matplotlib.axes import Axes

import dr_q

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
SEEDS = 3
STEPS = 4_000
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
        goal: float | None = None,
        edge: float = math.inf,
        limit_terminates: bool = False,
    ):
        """
        Args:
            reward_scale: Factor of the reward.
            reward_shift: Added to the reward.
            observation_scale: Factor of the observation.
            goal: With it the reward is sparse: 1 within this distance of the middle and 0 elsewhere.
            edge: Distance from the middle at which the puck falls off the table, which terminates the episode.
            limit_terminates: Whether the time limit is reported as a termination.
        """
        self.reward_scale, self.reward_shift, self.observation_scale = reward_scale, reward_shift, observation_scale
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
        return (self.observation_scale * np.concatenate([self._place, self._speed])).astype(np.float32)


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
    """A run: what is wrong with it."""

    env: Callable[[], gymnasium.Env]
    settings: dict[str, Any] = {}


CASES = {
    "healthy": Case(Puck),
    "rewards": Case(partial(Puck, reward_scale=1e6)),
    "observations": Case(partial(Puck, observation_scale=5_000)),
    "normalised": Case(partial(Puck, observation_scale=5_000), {"normalise_observations": "all"}),
    "exploration": Case(Puck, {"exploration_steps": 10_000}),
    "learning-rate": Case(
        Puck, {"critic_learning_rate": 0.1, "actor_learning_rate": 0.1, "encoder_learning_rate": 0.1}
    ),
    "termination": Case(partial(Puck, reward_shift=-1.5, edge=1.2)),
    "limit": Case(partial(Puck, limit_terminates=True)),
    "sparse": Case(partial(Puck, goal=0.02)),
    "capacity": Case(Puck, {"replay_capacity": 200}),
}


def train(out: Path, name: str) -> Path:
    """Train a run, unless the folder has it already."""
    folder = out / name
    if not (folder / "run.json").exists():
        case = CASES[name]
        print(f"--- {name}")
        callbacks = [DiscountedReturns(out / f"{name}-returns.csv")]
        try:
            dr_q.train(case.env, out=folder, callbacks=callbacks, **{**RUN, **case.settings})
        except dr_q.DrQError as error:  # a sick run may end so
            print(f"dr-q: {error}")
    return folder


if __name__ == "__main__":
    import sys
    for n in sys.argv[2:]:
        train(Path(sys.argv[1]), n)
