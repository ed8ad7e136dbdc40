"""The noisy-state study: Gaussian noise appended to each observation, redrawn each step."""

import dataclasses

import numpy as np

from dr_q.envs.protocol import Env, EnvSpec, Step
from dr_q.envs.seeding import stream_seed
from dr_q.kit import TaskError
from dr_q.spaces import ObsSpec, Vector

NOISE_DIMS = 50
NOISE_STD = 0.2


class NoisyState:
    """An environment whose observations end in noise (50 dimensions of standard deviation 0.2 in the paper).

    Where they have several parts, the first vector ends in it.
    """

    def __init__(self, env: Env, dims: int = NOISE_DIMS, std: float = NOISE_STD):
        vectors = [(name, p) for name, p in env.spec.obs.parts if isinstance(p, Vector) and p.stack == 1]
        if not vectors:
            env.close()
            parts = ", ".join(f"{name} {part.shape}" for name, part in env.spec.obs.parts)
            raise TaskError(f"noise can be appended to state vectors only; this task's observations are {parts}")
        name, part = vectors[0]
        self._env, self._part, self._dims, self._std = env, name, dims, std
        self._rng = np.random.default_rng(0)
        # Its fields stay as they are: they are what the environment itself gives, and that has no noise.
        wider = dataclasses.replace(part, size=part.size + dims)
        noisy = ObsSpec(tuple((other, wider if other == name else p) for other, p in env.spec.obs.parts))
        self.spec: EnvSpec = dataclasses.replace(env.spec, spaces=env.spec.spaces._replace(obs=noisy))

    def reset(self, seed: int) -> dict[str, np.ndarray]:
        """Start an episode; its noise follows from its seed."""
        self._rng = np.random.default_rng(stream_seed(seed, "noise"))
        return self._append(self._env.reset(seed))

    def step(self, action: np.ndarray) -> Step:
        """One agent step, with fresh noise."""
        step = self._env.step(action)
        return step._replace(obs=self._append(step.obs))

    def render(self, size: tuple[int, int]) -> np.ndarray:
        """The environment's image."""
        return self._env.render(size)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _append(self, obs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        noise = self._rng.normal(0, self._std, self._dims).astype(np.float32)
        return {**obs, self._part: np.concatenate([obs[self._part], noise])}
