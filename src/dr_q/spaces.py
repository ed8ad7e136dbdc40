"""What an agent observes and how it acts. Environments, replay, networks, packets and policies derive from this.

An observation is a dict of arrays, one for each named part; that of a plain vector or image has one part, `SINGLE`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

SINGLE = "obs"
"""Name of the part of an observation that has only one."""


@dataclasses.dataclass(frozen=True)
class Vector:
    """A part of an observation that is a float32 vector."""

    size: int
    """Length of one step's vector."""
    stack: int = 1
    """Steps joined in one observation, oldest first."""
    fields: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """What the vector is joined from, where the environment itself gives something else: paths (`at_path`) and shapes
    in a Dict or Tuple, or one field without a path for what is no vector."""
    choices: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = ()
    """Which of the fields are choices, given as joined one-hot vectors: path, how many values each has, and the first
    value of each."""

    def sizes(self) -> "Vector":
        """The same without its fields, unless they say which numbers are one-hot."""
        return self if self.choices else dataclasses.replace(self, fields=())

    @property
    def is_number(self) -> np.ndarray:
        """Which entries of one step's vector are numbers; the others are of one-hot vectors. What noise adds are."""
        hot = {path: sum(choices) for path, choices, _ in self.choices}
        found = [np.full(hot.get(path, math.prod(shape)), path not in hot) for path, shape in self.fields if hot]
        known = np.concatenate([np.zeros(0, bool), *found])
        return np.concatenate([known, np.ones(self.size - known.size, bool)])

    def component(self, index: int, name: str) -> str:
        """A name of one entry, for messages: its key in the environment's Dict where it has one, `'arm/speed'[1]`."""
        hot = {path: sum(choices) for path, choices, _ in self.choices}
        at = index % self.size
        for path, shape in self.fields:
            size = hot.get(path, math.prod(shape))
            if at < size and path:
                return f"'{path}'[{at}]" if size > 1 else f"'{path}'"
            if at < size:
                break
            at -= size
        return f"component {index}" if name == SINGLE else f"'{name}'[{index}]"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the part in an observation."""
        return (self.size * self.stack,)

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of what the replay stores of it for each step."""
        return (self.size,)

    @property
    def dtype(self) -> np.dtype:
        """Type of its values."""
        return np.dtype(np.float32)


@dataclasses.dataclass(frozen=True)
class Image:
    """A part of an observation that is a stack of uint8 frames, joined along the channels, oldest first."""

    channels: int
    """Channels of one frame."""
    height: int
    width: int
    stack: int = 1
    """Frames in one observation."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the part in an observation: (stacked channels, height, width)."""
        return (self.channels * self.stack, self.height, self.width)

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of what the replay stores of it for each step: one frame."""
        return (self.channels, self.height, self.width)

    @property
    def dtype(self) -> np.dtype:
        """Type of its values."""
        return np.dtype(np.uint8)


Part = Vector | Image
Obs = Mapping[str, Any]
"""An observation: an array for each part."""


def at_path(obs: Any, path: str) -> Any:
    """What a nested observation has at a path: keys of Dicts and indices of Tuples, with / between.

    Raises:
        KeyError: There is nothing.
    """
    if isinstance(obs, Mapping):
        if path in obs:
            return obs[path]
        for key, inner in obs.items():
            if path.startswith(f"{key}/"):
                return at_path(inner, path.removeprefix(f"{key}/"))
    elif isinstance(obs, tuple | list):
        index, _, rest = path.partition("/")
        if index.isdecimal() and int(index) < len(obs):
            return at_path(obs[int(index)], rest) if rest else obs[int(index)]
    raise KeyError(path)


def one_hot(values: Any, choices: tuple[int, ...], start: tuple[int, ...]) -> np.ndarray:
    """Joined one-hot vectors, [..., sum of choices], of [..., number of choices] values.

    Raises:
        ValueError: A value is not among the choices.
    """
    index = np.asarray(values) - np.asarray(start)
    if not (np.equal(index, np.round(index)).all() and (index >= 0).all() and (index < np.asarray(choices)).all()):
        raise ValueError(f"{np.asarray(values).tolist()} is not among {choices} choices")
    hot = np.zeros((*index.shape[:-1], sum(choices)), np.float32)
    first = np.cumsum((0, *choices[:-1]))
    np.put_along_axis(hot, index.astype(np.int64) + first, 1.0, axis=-1)
    return hot


@dataclasses.dataclass(frozen=True)
class ObsSpec:
    """The named parts of an observation, in the environment's order."""

    parts: tuple[tuple[str, Part], ...]

    @staticmethod
    def single(part: Part) -> "ObsSpec":
        """An observation of one part."""
        return ObsSpec(((SINGLE, part),))

    @staticmethod
    def vector(size: int) -> "ObsSpec":
        """A plain vector."""
        return ObsSpec.single(Vector(size))

    @staticmethod
    def image(channels: int, height: int, width: int, stack: int) -> "ObsSpec":
        """A plain stack of frames."""
        return ObsSpec.single(Image(channels, height, width, stack))

    def __getitem__(self, name: str) -> Part:
        """The part of that name."""
        return dict(self.parts)[name]

    @property
    def images(self) -> tuple[str, ...]:
        """Names of the parts that are images."""
        return tuple(name for name, part in self.parts if isinstance(part, Image))

    @property
    def stack(self) -> int:
        """The longest stack among the parts; 1 where nothing is stacked."""
        return max(part.stack for _, part in self.parts)

    @property
    def frame_bytes(self) -> int:
        """Bytes that the replay stores of an observation for each step."""
        return sum(math.prod(part.frame_shape) * part.dtype.itemsize for _, part in self.parts)

    def zero_frames(self, *leading: int) -> dict[str, np.ndarray]:
        """What the replay stores of observations, zeros, with leading axes."""
        return {name: np.zeros((*leading, *part.frame_shape), part.dtype) for name, part in self.parts}

    def newest_frames(self, obs: Obs, axis: int = 0) -> dict[str, Any]:
        """The newest step of each part, as the replay stores it; `axis` is that of channels or the vector's entries."""
        before = (slice(None),) * axis
        return {
            name: obs[name][(*before, slice(obs[name].shape[axis] - part.frame_shape[0], None))]
            for name, part in self.parts
        }


@dataclasses.dataclass(frozen=True)
class ContinuousActions:
    """Real numbers with bounds; agents act in [-1, 1] in every dimension (D4)."""

    low: tuple[float, ...]
    """Lower bounds in the environment's own units, one for each dimension."""
    high: tuple[float, ...]
    """Upper bounds."""
    shape: tuple[int, ...] | None = None
    """Shape of the environment's own actions, where they are not vectors."""

    @property
    def dim(self) -> int:
        """Size of the vector that the networks give and take."""
        return len(self.low)


@dataclasses.dataclass(frozen=True)
class DiscreteActions:
    """Choices; agents act in one-hot vectors, joined where there are several choices at once."""

    choices: tuple[int, ...]
    """How many values each choice has."""
    start: tuple[int, ...] = ()
    """The first value of each, where it is not 0."""
    shape: tuple[int, ...] = ()
    """Shape of the environment's own actions; () for a single number."""

    @property
    def dim(self) -> int:
        """Size of the vector that the networks give and take."""
        return sum(self.choices)


ActionSpec = ContinuousActions | DiscreteActions


class Spaces(NamedTuple):
    """What an agent must know of an environment; hashable."""

    obs: ObsSpec
    action: ActionSpec

    def sizes(self) -> "Spaces":
        """The same without what adapters alone need (bounds, fields, first values); what programs are compiled for."""
        parts = tuple((name, part.sizes() if isinstance(part, Vector) else part) for name, part in self.obs.parts)
        action = self.action
        if isinstance(action, ContinuousActions):
            action = ContinuousActions((-1.0,) * action.dim, (1.0,) * action.dim)
        else:
            action = DiscreteActions(action.choices)
        return Spaces(ObsSpec(parts), action)


_KINDS: dict[str, Any] = {
    "vector": Vector, "image": Image, "continuous": ContinuousActions, "discrete": DiscreteActions
}  # fmt: skip


def spaces_to_json(spaces: Spaces) -> dict[str, Any]:
    """For a policy's record."""
    kinds = {kind: name for name, kind in _KINDS.items()}
    return {
        "obs": {name: {"kind": kinds[type(part)], **dataclasses.asdict(part)} for name, part in spaces.obs.parts},
        "action": {"kind": kinds[type(spaces.action)], **dataclasses.asdict(spaces.action)},
    }


def spaces_from_json(record: Mapping[str, Any]) -> Spaces:
    """What `spaces_to_json` wrote; KeyError, TypeError or ValueError where it did not."""

    def build(fields: Mapping[str, Any]) -> Any:
        values = {name: _hashable(value) for name, value in fields.items() if name != "kind"}
        return _KINDS[fields["kind"]](**values)

    parts = tuple((name, build(fields)) for name, fields in record["obs"].items())
    return Spaces(ObsSpec(parts), build(record["action"]))


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def random_unit_action(spec: ActionSpec, rng: np.random.Generator) -> np.ndarray:
    """A uniform action as agents give it: in [-1, 1], or one-hot."""
    if isinstance(spec, ContinuousActions):
        return rng.uniform(-1, 1, spec.dim)
    return one_hot([rng.integers(count) for count in spec.choices], spec.choices, (0,) * len(spec.choices))


def to_env_action(spec: ActionSpec) -> Callable[[np.ndarray], Any]:
    """The function from what agents give, with any leading axes, to an environment's own actions.

    One `Discrete` action is a number, as in Gymnasium: an array of no dimensions cannot be the key of a dict.
    """
    if isinstance(spec, DiscreteActions):
        return functools.partial(_chosen, spec)
    scale, shape = ActionScale(spec), (spec.dim,) if spec.shape is None else spec.shape

    def scaled(action: np.ndarray) -> np.ndarray:
        own = scale.to_env(action)
        return own.reshape((*own.shape[:-1], *shape))

    return scaled


def _chosen(spec: DiscreteActions, action: np.ndarray) -> np.ndarray | np.int64:
    """The values of joined one-hot vectors."""
    ends = np.cumsum(spec.choices)[:-1]
    picked = np.stack([part.argmax(-1) for part in np.split(np.asarray(action), ends, axis=-1)], axis=-1)
    values = picked + np.asarray(spec.start or (0,) * len(spec.choices))
    return values.reshape((*values.shape[:-1], *spec.shape))[()]


class ActionScale:
    """From [-1, 1] to an environment's bounds, per dimension (D4)."""

    def __init__(self, spec: ContinuousActions):
        self.low = np.asarray(spec.low, np.float64)
        self.high = np.asarray(spec.high, np.float64)
        # The outermost numbers of float32 inside: rounding a bound may lead out, and some environments check.
        self._lowest, self._highest = (bound.astype(np.float32) for bound in (self.low, self.high))
        self._lowest = np.where(self._lowest < self.low, np.nextafter(self._lowest, np.float32(np.inf)), self._lowest)
        outside = self._highest > self.high
        self._highest = np.where(outside, np.nextafter(self._highest, np.float32(-np.inf)), self._highest)

    @property
    def within(self) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and the largest numbers of float32 inside the bounds."""
        return self._lowest, self._highest

    def to_env(self, action: np.ndarray) -> np.ndarray:
        """From [-1, 1] to the environment's units, never outside its bounds."""
        scaled = self.low + (np.asarray(action, np.float64) + 1) * 0.5 * (self.high - self.low)
        return np.clip(scaled.astype(np.float32), self._lowest, self._highest)
