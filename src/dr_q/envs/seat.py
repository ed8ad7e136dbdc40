"""What one seed has: its training environment, its evaluation environments, and the arrays they are exchanged in."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from dr_q.envs.protocol import Env, EnvSpec, Step
from dr_q.envs.seeding import stream_seed
from dr_q.kit import EnvError

ENV_FAILED = 3
"""A process's exit code where the environment's own code failed."""
UNSHOWN = "\0"
"""Begins a line that a process prints for the loop and not for people: why it ends."""
LARGEST = float(np.finfo(np.float32).max)
"""Of a reward's size: rewards are kept in float32."""
LOOK_EVERY = 20e-6
"""Seconds between looks at shared memory, on both sides."""
WAKE, MESSAGE, DONE = b"w", b"m", b"k"
"""On the pipe to a process: a command waits, a message follows; and from it: the command is carried out."""


@dataclasses.dataclass(frozen=True)
class PacketLayout:
    """How a step's outcome lies in bytes: three numbers (reward, terminated, truncated), then two observations.

    One array, because every array sent to a device costs the same again.
    """

    obs_shape: tuple[int, ...]
    pixels: bool
    numbers_bytes: ClassVar[int] = 12

    @staticmethod
    def of(spec: EnvSpec) -> "PacketLayout":
        """The layout of an environment's packets."""
        return PacketLayout(spec.obs_shape, spec.pixels)

    @property
    def dtype(self) -> np.dtype:
        """What observations are made of."""
        return np.dtype(np.uint8 if self.pixels else np.float32)

    @property
    def observations_bytes(self) -> int:
        """Bytes of both observations."""
        return 2 * math.prod(self.obs_shape) * self.dtype.itemsize

    @property
    def size(self) -> int:
        """Bytes of one seed's packet, in whole numbers."""
        return -(-(self.numbers_bytes + self.observations_bytes) // 4) * 4

    def numbers(self, packet: np.ndarray) -> np.ndarray:
        """A view of [..., 3] numbers."""
        return packet[..., : self.numbers_bytes].view(np.float32)

    def observations(self, packet: np.ndarray) -> np.ndarray:
        """A view of [..., 2, *obs] observations: where the step led, and what to act on next."""
        flat = packet[..., self.numbers_bytes : self.numbers_bytes + self.observations_bytes].view(self.dtype)
        return flat.reshape(*packet.shape[:-1], 2, *self.obs_shape)


@dataclasses.dataclass
class SeatArrays:
    """Everything that passes between the loop and simulators; may lie in shared memory.

    Of all seeds along a leading axis, or of one (`row`).
    """

    action: np.ndarray
    packet: np.ndarray
    """What came of the last step: see `PacketLayout`."""
    eval_seed: np.ndarray
    eval_action: np.ndarray
    eval_obs: np.ndarray
    eval_reward: np.ndarray
    eval_running: np.ndarray
    command: np.ndarray
    """What to do, as a letter's code."""
    order: np.ndarray
    """How many commands were given."""
    answer: np.ndarray
    """How many were carried out."""
    asleep: np.ndarray
    """Whether the simulator's process waits on its pipe and must be woken."""
    seconds: np.ndarray
    """What the last command took by itself."""

    @staticmethod
    def layout(spec: EnvSpec, seeds: int, episodes: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and type of each array."""
        flag, count, real, obs = np.dtype(np.uint8), np.dtype(np.uint32), np.dtype(np.float32), spec.obs_dtype
        of_one: dict[str, tuple[tuple[int, ...], np.dtype]] = {
            "action": ((spec.action_dim,), real),
            "packet": ((PacketLayout.of(spec).size,), flag),
            "eval_seed": ((episodes,), count),
            "eval_action": ((episodes, spec.action_dim), real),
            "eval_obs": ((episodes, *spec.obs_shape), obs),
            "eval_reward": ((episodes,), np.dtype(np.float64)),
            "eval_running": ((episodes,), flag),
            "command": ((), flag),
            "order": ((), count),
            "answer": ((), count),
            "asleep": ((), flag),
            "seconds": ((), np.dtype(np.float64)),
        }
        return {name: ((seeds, *shape), dtype) for name, (shape, dtype) in of_one.items()}

    @staticmethod
    def bytes_needed(spec: EnvSpec, seeds: int, episodes: int) -> int:
        """Size of a block that holds them all."""
        return sum(_padded(shape, dtype) for shape, dtype in SeatArrays.layout(spec, seeds, episodes).values())

    @staticmethod
    def over(block: Any, spec: EnvSpec, seeds: int, episodes: int) -> "SeatArrays":
        """Arrays laid over a block of memory."""
        arrays, offset = {}, 0
        for name, (shape, dtype) in SeatArrays.layout(spec, seeds, episodes).items():
            arrays[name] = np.ndarray(shape, dtype, buffer=block, offset=offset)
            offset += _padded(shape, dtype)
        return SeatArrays(**arrays)

    @staticmethod
    def allocate(spec: EnvSpec, seeds: int, episodes: int) -> "SeatArrays":
        """Arrays of this process's own."""
        return SeatArrays.over(bytearray(SeatArrays.bytes_needed(spec, seeds, episodes)), spec, seeds, episodes)

    def row(self, index: int) -> "SeatArrays":
        """One seed's, as views."""
        return SeatArrays(
            **{name: array[index : index + 1].reshape(array.shape[1:]) for name, array in vars(self).items()}
        )


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
        self._layout = PacketLayout.of(self.spec)

    def _outcome(self, arrays: SeatArrays) -> tuple[np.ndarray, np.ndarray]:
        return self._layout.observations(arrays.packet), self._layout.numbers(arrays.packet)

    def begin(self, arrays: SeatArrays) -> None:
        """Start the first training episode."""
        self.restore(arrays, 0, np.zeros((0, self.spec.action_dim), np.float32))

    def step(self, arrays: SeatArrays) -> None:
        """One training step; at an episode's end the next one starts at once."""
        action = _usable(arrays.action)
        step = self._env.step(action)
        if not self._is_usable(step):
            raise _unusable(step, f"step {len(self._actions)} of training episode {self._episode}")
        self._actions.append(action)
        observations, numbers = self._outcome(arrays)
        observations[0] = step.obs
        numbers[:] = step.reward, step.terminated, step.truncated
        if step.terminated or step.truncated:
            self._episode += 1
            self._actions = []
            observations[1] = self._env.reset(self._episode_seed())
        else:
            observations[1] = step.obs

    def open_episode(self) -> tuple[int, np.ndarray]:
        """The training episode's number and its actions so far."""
        if not self._actions:
            return self._episode, np.zeros((0, self.spec.action_dim), np.float32)
        return self._episode, np.stack(self._actions)

    def restore(self, arrays: SeatArrays, episode: int, actions: np.ndarray) -> None:
        """Start an episode and take the given actions; what they lead to is acted on next."""
        self._episode, self._actions = episode, []
        observations, _ = self._outcome(arrays)
        observations[1] = self._env.reset(self._episode_seed())
        for action in actions:
            step = self._env.step(action)
            self._actions.append(np.asarray(action, np.float32))
            observations[1] = step.obs
            if step.terminated or step.truncated:
                break  # it went another way: the caller compares observations

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
            step = self._eval[i].step(_usable(arrays.eval_action[i]))
            if not self._is_usable(step):
                raise _unusable(step, f"the evaluation episode of seed {int(arrays.eval_seed[i])}")
            arrays.eval_obs[i] = step.obs
            arrays.eval_reward[i] = step.reward
            arrays.eval_running[i] = not (step.terminated or step.truncated)

    def _is_usable(self, step: Step) -> bool:
        """Numbers that are none would spread through the networks in silence."""
        return (self.spec.pixels or _all_finite(step.obs)) and abs(step.reward) <= LARGEST  # false for nan

    def close(self) -> None:
        """Close all environments."""
        for env in (self._env, *self._eval):
            env.close()

    def _episode_seed(self) -> int:
        return stream_seed(self._seed, "train", self._episode)


def _usable(action: np.ndarray) -> np.ndarray:
    """A copy; zeros for numbers that are none, so that a seed that has diverged does not end the others' run."""
    return action.copy() if _all_finite(action) else np.zeros_like(action)


def _all_finite(values: np.ndarray) -> bool:
    """As `isfinite(values).all()`, in a third of its time: it is asked twice in every step of every simulator."""
    return bool(np.count_nonzero(np.isfinite(values)) == values.size)


def _unusable(step: Step, when: str) -> EnvError:
    if step.obs.dtype != np.uint8 and not _all_finite(step.obs):
        what = f"an observation that is not finite in its components {_where_not(step.obs)}"
    else:
        limits = "" if not math.isfinite(step.reward) else f", more than float32 holds ({LARGEST:.0e}): scale it"
        what = f"a reward of {step.reward}{limits}"
    return EnvError(f"the environment gave {what}, in {when}")


def _where_not(obs: np.ndarray) -> str:
    found = np.flatnonzero(~np.isfinite(obs))
    return ", ".join(map(str, found[:5])) + (f" and {len(found) - 5} more places" if len(found) > 5 else "")


def _padded(shape: tuple[int, ...], dtype: np.dtype) -> int:
    size = int(np.prod(shape)) * dtype.itemsize
    return -(-size // 64) * 64
