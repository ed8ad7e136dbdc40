"""The protocol that every simulator implements: numpy in, numpy out, no jax."""

import dataclasses
import sysconfig
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from dr_q.kit import EnvError, TaskError
from dr_q.spaces import ActionSpec, ObsSpec, Spaces

_OURS = Path(__file__).parents[1]
_PYTHON, _INSTALLED = (Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib"))


def failure(error: BaseException) -> str:
    """What went wrong, with the place in the code of whoever wrote the environment."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if _is_theirs(Path(f.filename))]
    place = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {error}{place}"


def _is_theirs(file: Path) -> bool:
    """Whether code is an environment's, and not ours, Gymnasium's or Python's own."""
    if file.is_relative_to(_INSTALLED):
        return file.relative_to(_INSTALLED).parts[0] not in ("dr_q", "gymnasium", "numpy")
    return file.is_absolute() and not file.is_relative_to(_OURS) and not file.is_relative_to(_PYTHON)


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """What the agent, the replay and the worker processes must know of an environment."""

    spaces: Spaces
    """What it observes and how it acts."""
    action_repeat: int = 1
    """Simulator frames for each agent step."""
    episode_length: int | None = None
    """Agent steps after which an episode is truncated, where that is known."""
    can_terminate: bool = True
    """Whether an episode may end before `episode_length`. A simulator that fails does not count: the replay, which is
    sized by this, then forgets one of the oldest transitions early."""
    step_seconds: float | None = None
    """Simulated time of an agent step, where that is known."""
    eval_epsilon: float = 0.0
    """Probability with which an evaluation acts at random; not 0 in Atari."""
    made_from: str = ""
    """Which code it is, as far as that can be known: a registered id with its arguments, the wrappers and the class."""
    notes: tuple[str, ...] = dataclasses.field(default=(), compare=False)
    """What a look at it found that its user should know (`probe.py`)."""
    vector_lanes: int = 0
    """Environments of the Gymnasium `VectorEnv` that it is one of; 0 if it stands alone."""
    can_resume: bool = True
    """Whether an episode can be played again from its seed and actions, which an exact resume needs."""

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
    """The outcome of one agent step."""

    obs: dict[str, np.ndarray]
    """An array for each part of the observation."""
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any] = MappingProxyType({})
    """What else the environment says of the step; read where somebody asked for it."""


@runtime_checkable
class Env(Protocol):
    """One simulator. Actions are in [-1, 1], or one-hot; the adapter turns them into the environment's own."""

    @property
    def spec(self) -> EnvSpec:
        """Shapes and bounds."""
        ...

    def reset(self, seed: int) -> dict[str, np.ndarray]:
        """Start an episode. The same seed gives the same episode for the same actions, whatever came before."""
        ...

    def step(self, action: np.ndarray) -> Step:
        """One agent step."""
        ...

    def render(self, size: tuple[int, int]) -> np.ndarray:
        """The current state as an RGB image of (height, width)."""
        ...

    def close(self) -> None:
        """Free what the simulator holds."""
        ...
