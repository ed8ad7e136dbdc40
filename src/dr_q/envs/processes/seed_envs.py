"""One lane's environments, for training and evaluation, and the arrays through which they are stepped."""

import dataclasses
import enum
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dr_q.envs.probe import where_not_finite
from dr_q.envs.processes.packet import PacketLayout
from dr_q.envs.protocol import SUCCESS, Env, EnvSpec, Step, scalar
from dr_q.envs.seeding import stream_seed
from dr_q.kit import EnvError
from dr_q.spaces import Vector

LARGEST = float(np.finfo(np.float32).max)
"""Largest reward, positive or negative: rewards are stored in float32."""
MOST_INFO_KEYS = 32
"""Entries of `info` that can be asked for."""


class Command(enum.IntEnum):
    """What a worker is told to do: the methods of `Lanes`."""

    BEGIN = 1
    STEP = 2
    EVALUATE_BEGIN = 3
    EVALUATE_STEP = 4
    OPEN_EPISODE = 5
    """Answered with a message."""
    RESTORE = 6
    """Its arguments come as a message."""


@dataclasses.dataclass
class SharedArrays:
    """Everything that passes between the loop and simulators; may lie in shared memory.

    Either of all lanes of all seeds, along a leading axis, or of one lane (`row`). Counters of commands are those of a
    process; one that has several lanes uses its first one's.
    """

    action: np.ndarray
    packet: np.ndarray
    """The outcome of the last step: see `PacketLayout`."""
    eval_seed: np.ndarray
    eval_action: np.ndarray
    eval_obs: dict[str, np.ndarray]
    """Observations of the evaluation episodes, an array for each part."""
    eval_reward: np.ndarray
    eval_running: np.ndarray
    """Whether each evaluation episode runs; before it begins, whether it is to be played."""
    eval_success: np.ndarray
    """Whether each evaluation episode succeeded, once it has ended; NaN where the environment does not say."""
    command: np.ndarray
    """What to do: a `Command`."""
    order: np.ndarray
    """Number of commands given."""
    answer: np.ndarray
    """Number of commands carried out."""
    asleep: np.ndarray
    """Whether the simulator's process waits on its pipe and must be woken."""
    seconds: np.ndarray
    """Time that the last command took by itself."""
    episode: np.ndarray
    """Number of the training episode."""
    reward_range: np.ndarray
    """Lowest and highest reward of training so far."""
    info: np.ndarray
    """Whether the last episode succeeded, then the entries of `info` that were asked for, of the last training step;
    NaN where the environment does not say."""

    @staticmethod
    def layout(spec: EnvSpec, seeds: int, episodes: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and type of each array; those of `eval_obs` are named `eval_obs/PART`."""
        flag, count, real = np.dtype(np.uint8), np.dtype(np.uint32), np.dtype(np.float32)
        of_one: dict[str, tuple[tuple[int, ...], np.dtype]] = {
            "action": ((spec.action.dim,), real),
            "packet": ((PacketLayout(spec.obs).size,), flag),
            "eval_seed": ((episodes,), count),
            "eval_action": ((episodes, spec.action.dim), real),
            **{f"eval_obs/{name}": ((episodes, *part.shape), part.dtype) for name, part in spec.obs.parts},
            "eval_reward": ((episodes,), np.dtype(np.float64)),
            "eval_running": ((episodes,), flag),
            "eval_success": ((episodes,), np.dtype(np.float64)),
            "command": ((), flag),
            "order": ((), count),
            "answer": ((), count),
            "asleep": ((), flag),
            "seconds": ((), np.dtype(np.float64)),
            "episode": ((), count),
            "reward_range": ((2,), np.dtype(np.float64)),
            "info": ((1 + MOST_INFO_KEYS,), np.dtype(np.float64)),
        }
        return {name: ((seeds, *shape), dtype) for name, (shape, dtype) in of_one.items()}

    @staticmethod
    def bytes_needed(spec: EnvSpec, seeds: int, episodes: int) -> int:
        """Size of a block that holds them all."""
        return sum(_padded(shape, dtype) for shape, dtype in SharedArrays.layout(spec, seeds, episodes).values())

    @staticmethod
    def over(block: Any, spec: EnvSpec, seeds: int, episodes: int) -> "SharedArrays":
        """Arrays laid over a block of memory."""
        arrays, offset = {}, 0
        for name, (shape, dtype) in SharedArrays.layout(spec, seeds, episodes).items():
            arrays[name] = np.ndarray(shape, dtype, buffer=block, offset=offset)
            offset += _padded(shape, dtype)
        eval_obs = {name: arrays.pop(f"eval_obs/{name}") for name, _ in spec.obs.parts}
        return SharedArrays(**arrays, eval_obs=eval_obs)

    @staticmethod
    def allocate(spec: EnvSpec, seeds: int, episodes: int) -> "SharedArrays":
        """Arrays of this process's own."""
        return SharedArrays.over(bytearray(SharedArrays.bytes_needed(spec, seeds, episodes)), spec, seeds, episodes)

    def row(self, index: int) -> "SharedArrays":
        """The arrays of one seed, as views."""

        def row_of(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: row_of(array) for name, array in value.items()}
            return value[index : index + 1].reshape(value.shape[1:])  # not [index]: a number would be a copy

        return SharedArrays(**{name: row_of(value) for name, value in vars(self).items()})


_Views = tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]
"""Where the step led, what to act on next, and the three numbers."""


class SeedEnvs:
    """The environments of one lane of a seed: one for training, and those of its evaluation episodes."""

    def __init__(self, make: Callable[[], Env], seed: int, lane: int = 0, info_keys: tuple[str, ...] = ()):
        """`info_keys`: entries of `info` to read in every training step."""
        self._make = make
        self._seed, self._lane = seed, lane
        self._info_keys = info_keys
        self._env = make()
        self._eval: list[Env] = []
        self._eval_steps: dict[int, int] = {}
        """Steps that each evaluation episode has taken."""
        self._episode = 0
        self._lowest = self._highest = 0.0
        self._actions: list[np.ndarray] = []
        self.spec = self._env.spec
        self._layout = PacketLayout(self.spec.obs)
        self._viewed: tuple[SharedArrays, _Views] | None = None
        self._vectors = tuple(name for name, part in self.spec.obs.parts if part.dtype != np.uint8)

    def begin(self, arrays: SharedArrays) -> None:
        """Start the first training episode."""
        self.restore(arrays, 0)

    def step(self, arrays: SharedArrays) -> None:
        """One training step; at an episode's end the next one starts at once."""
        action = _usable(arrays.action)
        step = self._env.step(action)
        self._check(step, lambda: f"step {len(self._actions)} of training episode {self._episode}")
        self._actions.append(action)
        next_obs, obs, numbers = self._views(arrays)
        _write(next_obs, step.obs)
        numbers[:] = step.reward, step.terminated, step.truncated
        if not self._lowest <= step.reward <= self._highest:  # seldom: from then on it is within
            self._lowest, self._highest = min(self._lowest, step.reward), max(self._highest, step.reward)
            arrays.reward_range[:] = self._lowest, self._highest
        if self._info_keys:
            arrays.info[1 : 1 + len(self._info_keys)] = [scalar(step.info.get(key)) for key in self._info_keys]
        if step.terminated or step.truncated:
            arrays.info[0] = scalar(step.info.get(SUCCESS))
            self._episode += 1
            self._actions = []
            _write(obs, self._reset(arrays))
        else:
            _write(obs, step.obs)

    def open_episode(self) -> tuple[int, np.ndarray]:
        """The training episode's number and its actions so far."""
        return self._episode, np.array(self._actions, np.float32).reshape(-1, self.spec.action.dim)

    def restore(self, arrays: SharedArrays, episode: int, actions: Iterable[np.ndarray] = ()) -> None:
        """Start an episode and take the given actions; the observation they lead to is acted on next."""
        self._episode, self._actions = episode, []
        _, obs, _ = self._views(arrays)
        _write(obs, self._reset(arrays))
        for action in actions:
            step = self._env.step(action)
            self._actions.append(np.asarray(action, np.float32))
            _write(obs, step.obs)
            if step.terminated or step.truncated:
                break  # the episode went another way: the caller compares observations

    def evaluate_begin(self, arrays: SharedArrays) -> None:
        """Start the evaluation episodes that `eval_running` marks, each with its seed."""
        for i in np.flatnonzero(arrays.eval_running).tolist():
            while len(self._eval) <= i:
                self._eval.append(self._make())
            seed = int(arrays.eval_seed[i])
            obs = self._eval[i].reset(seed)
            self._eval_steps[i], arrays.eval_success[i] = 0, np.nan
            self._check_obs(obs, lambda seed=seed: f"reset(seed={seed}), in an evaluation")
            _write(arrays.eval_obs, obs, i)
        arrays.eval_reward[:] = 0

    def evaluate_step(self, arrays: SharedArrays) -> None:
        """One step of the evaluation episodes that still run."""
        arrays.eval_reward[:] = 0
        for i in np.flatnonzero(arrays.eval_running).tolist():
            step = self._eval[i].step(_usable(arrays.eval_action[i]))
            seed, n = int(arrays.eval_seed[i]), self._eval_steps[i]
            self._check(step, lambda n=n, seed=seed: f"step {n} after reset(seed={seed}), in an evaluation")
            self._eval_steps[i] += 1
            _write(arrays.eval_obs, step.obs, i)
            arrays.eval_reward[i] = step.reward
            arrays.eval_running[i] = not (step.terminated or step.truncated)
            if not arrays.eval_running[i]:
                arrays.eval_success[i] = scalar(step.info.get(SUCCESS))

    def close(self) -> None:
        """Close all environments."""
        for env in (self._env, *self._eval):
            env.close()

    def episode_seed(self, episode: int) -> int:
        """What a training episode is reset with. The first lane's do not depend on the number of lanes."""
        return stream_seed(self._seed, "train", episode, *((self._lane,) if self._lane else ()))

    def _views(self, arrays: SharedArrays) -> "_Views":
        """Of the packet; made once, because it takes longer than writing through them."""
        if self._viewed is None or self._viewed[0] is not arrays:
            views = (*self._layout.observations(arrays.packet), self._layout.numbers(arrays.packet))
            self._viewed = arrays, views
        return self._viewed[1]

    def _reset(self, arrays: SharedArrays) -> dict[str, np.ndarray]:
        """Start the training episode whose number is `_episode`."""
        arrays.episode[...] = self._episode  # before it, for whoever replaces a simulator that fails in it
        obs = self._env.reset(self.episode_seed(self._episode))
        self._check_obs(obs, lambda: f"the reset of training episode {self._episode}")
        return obs

    def _check(self, step: Step, when: Callable[[], str]) -> None:
        """Refuse NaN and infinite values: they would spread through the networks without a message."""
        self._check_obs(step.obs, when)
        if not abs(step.reward) <= LARGEST:  # true for nan
            limits = "" if not math.isfinite(step.reward) else f", more than float32 holds ({LARGEST:.0e}): scale it"
            raise EnvError(f"the environment gave a reward of {step.reward}{limits}, in {when()}")

    def _check_obs(self, obs: dict[str, np.ndarray], when: Callable[[], str]) -> None:
        for name in self._vectors:
            if not _all_finite(obs[name]):
                part = self.spec.obs[name]
                assert isinstance(part, Vector)
                what = f"an observation that is {where_not_finite(name, part, obs[name])}"
                raise EnvError(f"the environment gave {what}, in {when()}")


def _write(views: dict[str, np.ndarray], obs: dict[str, np.ndarray], where: Any = ...) -> None:
    for name, view in views.items():
        view[where] = obs[name]


def _usable(action: np.ndarray) -> np.ndarray:
    """A copy; zeros in place of NaN and infinite values, so that a seed that has diverged does not end the others."""
    return action.copy() if _all_finite(action) else np.zeros_like(action)


def _all_finite(values: np.ndarray) -> bool:
    """As `isfinite(values).all()`, in a third of its time: it is called twice in every step of every simulator."""
    return bool(np.count_nonzero(np.isfinite(values)) == values.size)


def _padded(shape: tuple[int, ...], dtype: np.dtype) -> int:
    size = int(np.prod(shape)) * dtype.itemsize
    return -(-size // 64) * 64
