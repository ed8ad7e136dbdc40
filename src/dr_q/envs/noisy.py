"""The noisy-state study: Gaussian noise appended to each observation, redrawn each step."""

import dataclasses

import numpy as np

from dr_q.envs.protocol import Env, EnvSpec, Step
from dr_q.envs.seeding import stream_seed
from dr_q.kit import TaskError

NOISE_DIMS = 50
NOISE_STD = 0.2


class NoisyState:
    """An environment whose observations end in noise (50 dimensions of standard deviation 0.2 in the paper)."""

    def __init__(self, env: Env, dims: int = NOISE_DIMS, std: float = NOISE_STD):
        if env.spec.pixels:
            raise TaskError("noise can be appended to state vectors only, and this task is seen in pixels")
        self._env, self._dims, self._std = env, dims, std
        self._rng = np.random.default_rng(0)
        self.spec: EnvSpec = dataclasses.replace(env.spec, obs_shape=(env.spec.obs_shape[0] + dims,))

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode; its noise follows from its seed."""
        self._rng = np.random.default_rng(stream_seed(seed, "noise"))
        return self._append(self._env.reset(seed))

    def step(self, action: np.ndarray) -> Step:
        """One agent step, with fresh noise."""
        step = self._env.step(action)
        return step._replace(obs=self._append(step.obs))

    def render(self, size: tuple[int, int]) -> np.ndarray:
        """The environment's picture."""
        return self._env.render(size)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _append(self, obs: np.ndarray) -> np.ndarray:
        noise = self._rng.normal(0, self._std, self._dims).astype(np.float32)
        return np.concatenate([obs, noise])
