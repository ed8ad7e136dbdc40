"""What one seed has: its training environment, its evaluation environments, and the arrays they are exchanged in."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from dr_q.envs.protocol import Env, EnvSpec
from dr_q.envs.seeding import stream_seed


@dataclasses.dataclass
class SeatArrays:
    """Everything that passes between the loop and one seed's simulators; may lie in shared memory."""

    action: np.ndarray
    obs: np.ndarray
    next_obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    eval_seed: np.ndarray
    eval_action: np.ndarray
    eval_obs: np.ndarray
    eval_reward: np.ndarray
    eval_running: np.ndarray

    @staticmethod
    def layout(spec: EnvSpec, episodes: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and type of each array."""
        flag, real, obs = np.dtype(np.uint8), np.dtype(np.float32), spec.obs_dtype
        return {
            "action": ((spec.action_dim,), real),
            "obs": (spec.obs_shape, obs),
            "next_obs": (spec.obs_shape, obs),
            "reward": ((1,), np.dtype(np.float64)),
            "terminated": ((1,), flag),
            "truncated": ((1,), flag),
            "eval_seed": ((episodes,), np.dtype(np.uint32)),
            "eval_action": ((episodes, spec.action_dim), real),
            "eval_obs": ((episodes, *spec.obs_shape), obs),
            "eval_reward": ((episodes,), np.dtype(np.float64)),
            "eval_running": ((episodes,), flag),
        }

    @staticmethod
    def bytes_needed(spec: EnvSpec, episodes: int) -> int:
        """Size of a block that holds them all."""
        return sum(_padded(shape, dtype) for shape, dtype in SeatArrays.layout(spec, episodes).values())

    @staticmethod
    def over(block: Any, spec: EnvSpec, episodes: int) -> "SeatArrays":
        """Arrays laid over a block of memory."""
        arrays, offset = {}, 0
        for name, (shape, dtype) in SeatArrays.layout(spec, episodes).items():
            arrays[name] = np.ndarray(shape, dtype, buffer=block, offset=offset)
            offset += _padded(shape, dtype)
        return SeatArrays(**arrays)

    @staticmethod
    def allocate(spec: EnvSpec, episodes: int) -> "SeatArrays":
        """Arrays of this process's own."""
        return SeatArrays.over(bytearray(SeatArrays.bytes_needed(spec, episodes)), spec, episodes)


class Seat:
    """One seed's simulators."""

    def __init__(self, make: Callable[[], Env], seed: int):
        self._make = make
        self._seed = seed
        self._env = make()
        self._eval: list[Env] = []
        self._episode = 0
        self._actions: list[np.ndarray] = []
        self.spec = self._env.spec

    def begin(self, arrays: SeatArrays) -> None:
        """Start the first training episode."""
        self.restore(arrays, 0, np.zeros((0, self.spec.action_dim), np.float32))

    def step(self, arrays: SeatArrays) -> None:
        """One training step; at an episode's end the next one starts at once."""
        action = arrays.action.copy()
        step = self._env.step(action)
        self._actions.append(action)
        arrays.next_obs[...] = step.obs
        arrays.reward[0], arrays.terminated[0], arrays.truncated[0] = step.reward, step.terminated, step.truncated
        if step.terminated or step.truncated:
            self._episode += 1
            self._actions = []
            arrays.obs[...] = self._env.reset(self._episode_seed())
        else:
            arrays.obs[...] = step.obs

    def open_episode(self) -> tuple[int, np.ndarray]:
        """The training episode's number and its actions so far."""
        if not self._actions:
            return self._episode, np.zeros((0, self.spec.action_dim), np.float32)
        return self._episode, np.stack(self._actions)

    def restore(self, arrays: SeatArrays, episode: int, actions: np.ndarray) -> None:
        """Start an episode and take the given actions; `obs` is what they lead to."""
        self._episode, self._actions = episode, []
        arrays.obs[...] = self._env.reset(self._episode_seed())
        for action in actions:
            step = self._env.step(action)
            self._actions.append(np.asarray(action, np.float32))
            arrays.obs[...] = step.obs
            if step.terminated or step.truncated:
                break  # it went another way: the caller compares `obs`

    def evaluate_begin(self, arrays: SeatArrays) -> None:
        """Start one evaluation episode for each seed given."""
        while len(self._eval) < len(arrays.eval_seed):
            self._eval.append(self._make())
        for i, seed in enumerate(arrays.eval_seed):
            arrays.eval_obs[i] = self._eval[i].reset(int(seed))
        arrays.eval_running[:] = 1
        arrays.eval_reward[:] = 0

    def evaluate_step(self, arrays: SeatArrays) -> None:
        """One step of the evaluation episodes that still run."""
        arrays.eval_reward[:] = 0
        for i in np.flatnonzero(arrays.eval_running):
            step = self._eval[i].step(arrays.eval_action[i].copy())
            arrays.eval_obs[i] = step.obs
            arrays.eval_reward[i] = step.reward
            arrays.eval_running[i] = not (step.terminated or step.truncated)

    def close(self) -> None:
        """Close all environments."""
        for env in (self._env, *self._eval):
            env.close()

    def _episode_seed(self) -> int:
        return stream_seed(self._seed, "train", self._episode)


def _padded(shape: tuple[int, ...], dtype: np.dtype) -> int:
    size = int(np.prod(shape)) * dtype.itemsize
    return -(-size // 64) * 64
