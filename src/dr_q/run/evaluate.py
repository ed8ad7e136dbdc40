"""Evaluation: episodes without noise on environments of their own, seeded from (seed, step, episode) (D5)."""

from typing import NamedTuple

import numpy as np

from dr_q import agent as drq
from dr_q.envs import Pool, stream_seed
from dr_q.run import seeds as axis


class Evaluation(NamedTuple):
    """One evaluation of one seed."""

    seed: int
    agent_steps: int
    env_frames: int
    return_mean: float
    return_std: float
    length_mean: float
    """Agent steps."""
    episodes: int


def evaluate(pool: Pool, networks: drq.Networks, seeds: list[int], agent_steps: int, episodes: int) -> list[Evaluation]:
    """Run all episodes of all seeds side by side."""
    episode_seeds = np.array([[stream_seed(s, "evaluation", agent_steps, e) for e in range(episodes)] for s in seeds])
    obs = pool.evaluate_begin(episode_seeds)
    running = np.ones(episode_seeds.shape, bool)
    returns, lengths = np.zeros(running.shape), np.zeros(running.shape, np.int64)
    while running.any():
        lengths += running
        obs, reward, running = pool.evaluate_step(np.asarray(axis.greedy(networks, obs)))
        returns += reward
    return [
        Evaluation(
            seed=seed,
            agent_steps=agent_steps,
            env_frames=agent_steps * pool.spec.action_repeat,
            return_mean=float(np.mean(returns[i])),
            return_std=float(np.std(returns[i])),
            length_mean=float(np.mean(lengths[i])),
            episodes=episodes,
        )
        for i, seed in enumerate(seeds)
    ]
