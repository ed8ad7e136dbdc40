"""The protocol that every simulator implements: numpy in, numpy out, no jax."""

import dataclasses
import math
import sysconfig
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from dr_q.kit import EnvError, TaskError
from dr_q.spaces import ActionSpec, ObsSpec, Spaces

SUCCESS = "is_success"
"""The entry of `info` that says at an episode's end whether it succeeded."""
_OURS = Path(__file__).parents[1]
_PYTHON, _INSTALLED = (Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib"))


def failure(error: BaseException) -> str:
    """What went wrong, with the place in the code of whoever wrote the environment."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if _is_theirs(Path(f.filename))]
    place = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {message_of(error)}{place}"


def message_of(error: BaseException) -> str:
    """The text of an error; an error of somebody's own may fail to give one."""
    try:
        return str(error)
    except Exception as why:
        return f"its text cannot be shown ({type(why).__name__})"


def _is_theirs(file: Path) -> bool:
    """Whether code is an environment's, and not ours, Gymnasium's or Python's own."""
    if file.is_relative_to(_INSTALLED):
        return file.relative_to(_INSTALLED).parts[0] not in ("dr_q", "gymnasium", "numpy")
    return file.is_absolute() and not file.is_relative_to(_OURS) and not file.is_relative_to(_PYTHON)


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """The properties of an environment that the agent, the replay and the simulator processes need."""

    spaces: Spaces
    """Its observations and actions."""
    action_repeat: int = 1
    """Simulator frames for each agent step."""
    episode_length: int | None = None
    """Agent steps after which an episode is truncated; None if that is not known."""
    can_terminate: bool = True
    """Whether an episode may end before `episode_length`. A simulator that fails does not count: the replay, which is
    sized by this, then forgets one of the oldest transitions early."""
    step_seconds: float | None = None
    """Simulated time of an agent step; None if that is not known."""
    eval_epsilon: float = 0.0
    """Probability of a random action in evaluations; not 0 in Atari."""
    made_from: str = ""
    """What identifies its code: a registered id with its arguments, the wrappers and the class."""
    notes: tuple[str, ...] = dataclasses.field(default=(), compare=False)
    """Messages for the user from the check of the environment before training."""
    vector_lanes: int = 0
    """Number of environments of the Gymnasium `VectorEnv` that it belongs to; 0 if it belongs to none."""
    can_resume: bool = True
    """Whether an episode can be repeated from its seed and actions, which an exact resume needs."""

    @property
    def obs(self) -> ObsSpec:
        """The parts of an observation."""
        return self.spaces.obs

    @property
    def action(self) -> ActionSpec:
        """The kind of actions, with their bounds."""
        return self.spaces.action


class VectorEnvGivenError(TaskError):
    """A callable gave a Gymnasium `VectorEnv` where one environment is needed."""

    def __init__(self, env: Any, name: str):
        super().__init__(
            f"{name} gives a VectorEnv, which only training uses; give a callable that makes a single environment"
        )
        self.env, self.name = env, name


class VectorEnvError(EnvError):
    """A Gymnasium `VectorEnv` failed; the message names it."""


class Step(NamedTuple):
    """The result of one agent step."""

    obs: dict[str, np.ndarray]
    """The next observation, an array for each part."""
    reward: float
    """The reward."""
    terminated: bool
    """Whether the episode ended in a terminal state."""
    truncated: bool
    """Whether the episode was cut off, for instance by a time limit."""
    info: Mapping[str, Any] = MappingProxyType({})
    """The environment's `info`. Only the entries that callbacks ask for are read."""


@runtime_checkable
class Env(Protocol):
    """The protocol of an environment in this package: numpy in, numpy out.

    Actions are in [-1, 1], or one-hot; the adapter converts them to the environment's own. `make_env` wraps any
    Gymnasium environment in it.
    """

    @property
    def spec(self) -> EnvSpec:
        """Its spaces and other properties."""
        ...

    def reset(self, seed: int) -> dict[str, np.ndarray]:
        """Start an episode. The same seed and actions give the same episode, whatever came before.

        Args:
            seed: Decides the episode.

        Returns:
            The first observation, an array for each part.
        """
        ...

    def step(self, action: np.ndarray) -> Step:
        """Make one agent step.

        Args:
            action: An action in [-1, 1], or one-hot.

        Returns:
            The next observation, the reward, and whether the episode ended.
        """
        ...

    def render(self, size: tuple[int, int]) -> np.ndarray:
        """Draw the current state.

        Args:
            size: Height and width in pixels. Environments that draw themselves may ignore it.

        Returns:
            An RGB image, uint8 [height, width, 3].
        """
        ...

    def close(self) -> None:
        """Free the simulator's resources."""
        ...


def closed(made_from: str) -> str:
    """`EnvSpec.made_from`, `Id: A<B<C`, with its brackets closed, for people."""
    return made_from + ">" * made_from.rpartition(": ")[2].count("<")


def scalar(value: Any) -> float:
    """A number, a bool or an array of one; NaN for anything else."""
    if value is None or isinstance(value, str | bytes) or np.size(value) != 1:
        return math.nan
    try:
        return float(np.reshape(value, ()))
    except (TypeError, ValueError):
        return math.nan
