"""What playing episodes with a policy needs, in training and after it."""

import numpy as np

from dr_q.envs import EnvSpec, stream_seed
from dr_q.kit import TrainingError
from dr_q.spaces import random_unit_action

LONGEST_EPISODE = 100_000
"""Steps of an evaluation after which an environment without a time limit is taken to have no end."""


def check_length(spec: EnvSpec, steps: int) -> None:
    """End an episode that has none."""
    if spec.episode_length is None and steps > LONGEST_EPISODE:
        raise TrainingError(
            f"an evaluation episode has not ended after {LONGEST_EPISODE:,} steps, and the environment has no time "
            "limit; give it one: gymnasium.wrappers.TimeLimit(env, STEPS)"
        )


class EvaluationNoise:
    """Puts random actions in place of some, in tasks whose evaluations have them (`EnvSpec.eval_epsilon`)."""

    def __init__(self, spec: EnvSpec, episode_seeds: np.ndarray):
        """`episode_seeds`: what each episode was reset with, in an array of any shape."""
        self._spec = spec
        seeds = [int(seed) for seed in np.reshape(episode_seeds, -1)] if spec.eval_epsilon else []
        self._generators = [np.random.default_rng(stream_seed(seed, "epsilon")) for seed in seeds]

    def __call__(self, actions: np.ndarray) -> np.ndarray:
        """The actions of all episodes, [*episodes, A], some of them replaced."""
        if not self._spec.eval_epsilon:
            return actions
        played = np.array(actions).reshape(len(self._generators), -1)
        for row, rng in zip(played, self._generators, strict=True):
            if rng.random() < self._spec.eval_epsilon:
                row[:] = random_unit_action(self._spec.action, rng)
        return played.reshape(np.shape(actions))


def success_rate(success: np.ndarray) -> float | None:
    """Share of episodes that succeeded, of those of which the environment says so; None if it says so of none."""
    known = success[~np.isnan(success)]
    return float(np.mean(known > 0)) if known.size else None
