"""The one small protocol behind which every simulator stands: numpy in, numpy out, no jax."""

import dataclasses
import sysconfig
import traceback
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

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

    obs_shape: tuple[int, ...]
    """(dim,), or (stacked channels, height, width)."""
    action_low: tuple[float, ...]
    """Lower bounds of the environment's own action units, one per dimension."""
    action_high: tuple[float, ...]
    """Upper bounds, one per dimension."""
    history: int = 1
    """Frames stacked into one observation, oldest first; 1 for vectors."""
    action_repeat: int = 1
    """Simulator frames for each agent step."""
    episode_length: int | None = None
    """Agent steps after which an episode is truncated, where that is known."""
    can_terminate: bool = True
    """Whether an episode may end before `episode_length`, but for a simulator that fails: then the replay, sized by
    this, forgets one of the oldest transitions early."""
    step_seconds: float | None = None
    """Simulated time of an agent step, where that is known."""
    obs_parts: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """What a vector is joined from, where the environment itself gives something else: keys and shapes of a Dict, or
    one part without a key for a Box that is no vector."""
    action_shape: tuple[int, ...] | None = None
    """Of the environment's own actions, where they are not vectors."""

    @property
    def pixels(self) -> bool:
        """Whether observations are uint8 images; vectors are float32."""
        return len(self.obs_shape) == 3

    @property
    def obs_dtype(self) -> np.dtype:
        """What observations are made of."""
        return np.dtype(np.uint8 if self.pixels else np.float32)

    @property
    def action_dim(self) -> int:
        """Dimensions of an action."""
        return len(self.action_low)


class Step(NamedTuple):
    """What one agent step leads to."""

    obs: np.ndarray
    reward: float
    terminated: bool
    truncated: bool


@runtime_checkable
class Env(Protocol):
    """One simulator. Actions are in [-1, 1]; the adapter scales them to the environment's bounds."""

    @property
    def spec(self) -> EnvSpec:
        """Shapes and bounds."""
        ...

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode. The same seed gives the same episode for the same actions, whatever came before."""
        ...

    def step(self, action: np.ndarray) -> Step:
        """One agent step."""
        ...

    def render(self, size: tuple[int, int]) -> np.ndarray:
        """The current state as an RGB picture of (height, width)."""
        ...

    def close(self) -> None:
        """Free what the simulator holds."""
        ...


class ActionScale:
    """[-1, 1] to an environment's bounds and back, per dimension (D4)."""

    def __init__(self, low: np.ndarray | tuple[float, ...], high: np.ndarray | tuple[float, ...]):
        self.low = np.asarray(low, np.float64)
        self.high = np.asarray(high, np.float64)
        # The outermost numbers of float32 inside: rounding a bound may lead out, and some environments check.
        self._lowest, self._highest = (bound.astype(np.float32) for bound in (self.low, self.high))
        self._lowest = np.where(self._lowest < self.low, np.nextafter(self._lowest, np.float32(np.inf)), self._lowest)
        outside = self._highest > self.high
        self._highest = np.where(outside, np.nextafter(self._highest, np.float32(-np.inf)), self._highest)

    def to_env(self, action: np.ndarray) -> np.ndarray:
        """From [-1, 1] to the environment's units, never outside its bounds."""
        scaled = self.low + (np.asarray(action, np.float64) + 1) * 0.5 * (self.high - self.low)
        return np.clip(scaled.astype(np.float32), self._lowest, self._highest)

    def to_unit(self, action: np.ndarray) -> np.ndarray:
        """From the environment's units to [-1, 1]."""
        return (2 * (np.asarray(action, np.float64) - self.low) / (self.high - self.low) - 1).astype(np.float32)
