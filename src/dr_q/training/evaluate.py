"""Evaluation: episodes without noise on environments of their own, seeded from (seed, step, episode) (D5).

A policy is evaluated as a copy, so training may continue meanwhile; what comes out is the same either way.
"""

import concurrent.futures
import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dr_q.agent import PolicyNetworks
from dr_q.envs import Pool, RestartedError, stream_seed
from dr_q.learner import Learner
from dr_q.policies.episodes import EvaluationNoise, check_length, success_rate
from dr_q.run_folder import Evaluation


class Evaluated(NamedTuple):
    """The policies at a step, and how they did."""

    agent_steps: int
    policies: PolicyNetworks
    results: list[Evaluation]


class Played(NamedTuple):
    """Episodes of all seeds, [S, E] each."""

    returns: np.ndarray
    lengths: np.ndarray
    success: np.ndarray
    """NaN where the environment does not say."""


def evaluate(
    pool: Pool,
    learner: Learner,
    policies: PolicyNetworks,
    seeds: list[int],
    agent_steps: int,
    episodes: int,
    given_up: Callable[[], bool] = lambda: False,
) -> Evaluated:
    """Run all episodes of all seeds side by side; CancelledError once it is given up.

    Where simulators had to be started again, all episodes are played again: they follow from their seeds, so the
    results are those of an evaluation in which nothing failed.
    """
    episode_seeds = np.array([[stream_seed(s, "evaluation", agent_steps, e) for e in range(episodes)] for s in seeds])
    returns, lengths, success = play(pool, learner, policies, episode_seeds, given_up)
    results = [
        Evaluation(
            seed=seed,
            agent_steps=agent_steps,
            env_frames=agent_steps * pool.spec.action_repeat,
            return_mean=float(np.mean(returns[i])),
            return_std=float(np.std(returns[i])),
            length_mean=float(np.mean(lengths[i])),
            episodes=episodes,
            success_mean=success_rate(success[i]),
        )
        for i, seed in enumerate(seeds)
    ]
    return Evaluated(agent_steps, policies, results)


def play(
    pool: Pool,
    learner: Learner,
    policies: PolicyNetworks,
    episode_seeds: np.ndarray,
    given_up: Callable[[], bool] = lambda: False,
) -> Played:
    """Play episodes of these seeds; CancelledError once it is given up."""
    while True:
        try:
            return _play(pool, learner, policies, episode_seeds, given_up)
        except RestartedError:
            continue


def _play(
    pool: Pool,
    learner: Learner,
    policies: PolicyNetworks,
    episode_seeds: np.ndarray,
    given_up: Callable[[], bool],
) -> Played:
    obs, noise = pool.evaluate_begin(episode_seeds), EvaluationNoise(pool.spec, episode_seeds)
    running = np.ones(episode_seeds.shape, bool)
    returns, lengths = np.zeros(running.shape), np.zeros(running.shape, np.int64)
    while running.any():
        if given_up():
            raise concurrent.futures.CancelledError
        lengths += running
        check_length(pool.spec, int(lengths.max()))
        obs, reward, running = pool.evaluate_step(noise(learner.greedy(policies, obs)))
        returns += reward
    return Played(returns, lengths, pool.eval_success())


class Evaluator:
    """Evaluates now, or in the background on simulators of its own; one evaluation at a time."""

    def __init__(
        self, learner: Learner, seeds: list[int], episodes: int, open_pool: Callable[[], Pool] | None, pool: Pool
    ):
        """`open_pool` makes simulators for the background; without it `pool`, training's own, is used at once."""
        self._learner, self._seeds, self._episodes = learner, seeds, episodes
        self._open_pool, self._pool = open_pool, pool
        self._own: Pool | None = None
        self._thread = concurrent.futures.ThreadPoolExecutor(1) if open_pool is not None else None
        self._pending: concurrent.futures.Future[Evaluated] | None = None
        self._closing = threading.Event()

    def start(self, agent_steps: int) -> None:
        """Evaluate the policies as they are now. What was started before must have been taken."""
        assert self._pending is None
        policies = self._learner.policies()
        if self._thread is not None:
            self._pending = self._thread.submit(self._evaluate, policies, agent_steps)
        else:
            self._pending = concurrent.futures.Future()
            self._pending.set_result(self._evaluate(policies, agent_steps))

    def take(self, *, wait: bool) -> Evaluated | None:
        """What was started, if it is done; or once it is."""
        if self._pending is None or not (wait or self._pending.done()):
            return None
        result, self._pending = self._pending.result(), None
        return result

    def play(self, policies: PolicyNetworks, episode_seeds: np.ndarray, given_up: Callable[[], bool]) -> np.ndarray:
        """Returns of other episodes, [S, E], now; nothing may be under way. CancelledError once they are given up."""
        assert self._pending is None
        return play(self._pool_to_use(), self._learner, policies, episode_seeds, given_up).returns

    def give_up(self) -> None:
        """Let what is under way end at its next step, because nobody will take it; returns at once."""
        self._closing.set()

    def close(self) -> None:
        """End the simulators that are its own, and what they are at."""
        self.give_up()
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        if self._own is not None:
            self._own.close()

    def _evaluate(self, policies: PolicyNetworks, agent_steps: int) -> Evaluated:
        pool, given_up = self._pool_to_use(), self._closing.is_set
        return evaluate(pool, self._learner, policies, self._seeds, agent_steps, self._episodes, given_up)

    def _pool_to_use(self) -> Pool:
        if self._open_pool is not None and self._own is None:
            self._own = self._open_pool()
        return self._own or self._pool
