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
_LARGEST_SIZE = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Vector:
    """A part of an observation that is a float32 vector."""

    size: int
    """Length of the vector of one step."""
    stack: int = 1
    """Steps joined in one observation, oldest first."""
    fields: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """The entries of the environment's Dict or Tuple that are joined to the vector: path (keys with / between) and
    shape of each. One entry with an empty path stands for an array of another shape. Empty for a plain vector."""
    choices: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = ()
    """The discrete fields, which are joined one-hot vectors in this vector. For each: its path, the number of values of
    each choice, and the first value of each choice."""

    def sizes(self) -> "Vector":
        """The same part without `fields`, unless these say which numbers are one-hot.

        Returns:
            The part that compiled functions depend on.
        """
        return self if self.choices else dataclasses.replace(self, fields=())

    @property
    def is_number(self) -> np.ndarray:
        """For each entry of one step's vector, whether it is a number; the others are entries of one-hot vectors."""
        hot = {path: sum(choices) for path, choices, _ in self.choices}
        found = [np.full(hot.get(path, math.prod(shape)), path not in hot) for path, shape in self.fields if hot]
        known = np.concatenate([np.zeros(0, bool), *found])
        return np.concatenate([known, np.ones(self.size - known.size, bool)])

    def component(self, index: int, name: str) -> str:
        """The name of one entry, for messages: its key in the environment's Dict if it has one, `'arm/speed'[1]`.

        Args:
            index: Index of the entry in the vector.
            name: Name of the part.

        Returns:
            The name.
        """
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
        """Shape of the part in an observation: (size x stack,)."""
        return (self.size * self.stack,)

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of what the replay stores for each step: (size,)."""
        return (self.size,)

    @property
    def dtype(self) -> np.dtype:
        """Data type of its values: float32."""
        return np.dtype(np.float32)


@dataclasses.dataclass(frozen=True)
class Image:
    """A part of an observation that is a stack of uint8 frames, joined along the channel axis, oldest first."""

    channels: int
    """Channels of one frame."""
    height: int
    """Height of a frame in pixels."""
    width: int
    """Width of a frame in pixels."""
    stack: int = 1
    """Frames in one observation."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the part in an observation: (channels x stack, height, width)."""
        return (self.channels * self.stack, self.height, self.width)

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of what the replay stores for each step, one frame: (channels, height, width)."""
        return (self.channels, self.height, self.width)

    @property
    def dtype(self) -> np.dtype:
        """Data type of its values: uint8."""
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
            if path == str(key):  # a key that is no text
                return inner
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
    """The named parts of an observation, in the environment's order.

    An observation is a dict with an array for each part. An observation that is one vector or one image has a single
    part, `"obs"`.

    Example:
        ```python
        plain = dr_q.ObsSpec.vector(17)
        both = dr_q.ObsSpec((("camera", dr_q.Image(3, 84, 84, stack=3)), ("joints", dr_q.Vector(7))))
        shape = both["camera"].shape  # (9, 84, 84)
        ```
    """

    parts: tuple[tuple[str, Part], ...]
    """Name and `Vector` or `Image` of each part."""

    @staticmethod
    def single(part: Part) -> "ObsSpec":
        """An observation with one part, named `"obs"`.

        Args:
            part: The part.

        Returns:
            The specification.
        """
        return ObsSpec(((SINGLE, part),))

    @staticmethod
    def vector(size: int) -> "ObsSpec":
        """An observation that is one vector.

        Args:
            size: Its length.

        Returns:
            The specification.
        """
        return ObsSpec.single(Vector(size))

    @staticmethod
    def image(channels: int, height: int, width: int, stack: int) -> "ObsSpec":
        """An observation that is one stack of frames.

        Args:
            channels: Channels of one frame.
            height: Height of a frame in pixels.
            width: Width of a frame in pixels.
            stack: Frames in one observation.

        Returns:
            The specification.
        """
        return ObsSpec.single(Image(channels, height, width, stack))

    def __getitem__(self, name: str) -> Part:
        """The part with a name.

        Args:
            name: The name of a part.

        Returns:
            The part.
        """
        return dict(self.parts)[name]

    @property
    def images(self) -> tuple[str, ...]:
        """Names of the parts that are images."""
        return tuple(name for name, part in self.parts if isinstance(part, Image))

    @property
    def stack(self) -> int:
        """The longest stack among the parts; 1 if nothing is stacked."""
        return max(part.stack for _, part in self.parts)

    @property
    def frame_bytes(self) -> int:
        """Bytes that the replay stores of an observation for each step."""
        return sum(math.prod(part.frame_shape) * part.dtype.itemsize for _, part in self.parts)

    def zero_frames(self, *leading: int) -> dict[str, np.ndarray]:
        """Arrays of zeros with the shapes that the replay stores.

        Args:
            *leading: Sizes of leading axes.

        Returns:
            An array for each part, [*leading, *frame_shape].
        """
        return {name: np.zeros((*leading, *part.frame_shape), part.dtype) for name, part in self.parts}

    def newest_frames(self, obs: Obs, axis: int = 0) -> dict[str, Any]:
        """The newest step of each part, as the replay stores it.

        Args:
            obs: Observations, an array for each part.
            axis: The axis of an image's channels and of a vector's entries; the axes before it are batch axes.

        Returns:
            The newest frame of each part.
        """
        before = (slice(None),) * axis
        return {
            name: obs[name][(*before, slice(obs[name].shape[axis] - part.frame_shape[0], None))]
            for name, part in self.parts
        }


@dataclasses.dataclass(frozen=True)
class ContinuousActions:
    """Real-valued actions with bounds. Agents act in [-1, 1] in every dimension (D4)."""

    low: tuple[float, ...]
    """Lower bounds in the environment's own units, one for each dimension."""
    high: tuple[float, ...]
    """Upper bounds in the environment's own units."""
    shape: tuple[int, ...] | None = None
    """Shape of the environment's own actions; None for vectors."""

    @property
    def dim(self) -> int:
        """Size of the vector that the networks return and take."""
        return len(self.low)


@dataclasses.dataclass(frozen=True)
class DiscreteActions:
    """Discrete actions. Agents act in one-hot vectors, joined if an action consists of several choices."""

    choices: tuple[int, ...]
    """Number of values of each choice."""
    start: tuple[int, ...] = ()
    """The first value of each choice; empty if all are 0."""
    shape: tuple[int, ...] = ()
    """Shape of the environment's own actions; () for a single number."""

    @property
    def dim(self) -> int:
        """Size of the vector that the networks return and take: the sum of `choices`."""
        return sum(self.choices)


ActionSpec = ContinuousActions | DiscreteActions


class Spaces(NamedTuple):
    """Observations and actions of an environment, as the agent sees them. It is hashable.

    Example:
        ```python
        spaces = dr_q.Spaces(dr_q.ObsSpec.vector(17), dr_q.ContinuousActions(low=(-1.0,) * 6, high=(1.0,) * 6))
        policy = dr_q.load("runs/walker")
        print(policy.spaces.obs.parts, policy.spaces.action.dim)
        ```
    """

    obs: ObsSpec
    """The parts of an observation."""
    action: ActionSpec
    """`ContinuousActions` or `DiscreteActions`."""

    def sizes(self) -> "Spaces":
        """The same spaces without what only adapters need: bounds, fields and first values.

        Returns:
            The spaces that compiled functions depend on. Two environments fit the same agent if theirs are equal.
        """
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
    spaces = Spaces(ObsSpec(parts), build(record["action"]))
    if not parts or not all(_is_part(part) for _, part in parts) or not _is_action(spaces.action):
        raise ValueError("sizes or bounds that no environment has")
    return spaces


def _is_part(part: Part) -> bool:
    """Whether a part from a file has sizes that fit together."""
    if isinstance(part, Image):
        return _are_sizes((part.channels, part.height, part.width, part.stack))
    fine = _are_sizes((part.size, part.stack))
    fine = fine and all(isinstance(path, str) and _are_sizes(shape, least=0) for path, shape in part.fields)
    for path, choices, start in part.choices:
        fine = fine and isinstance(path, str) and _are_sizes(choices) and len(choices) == len(start)
        fine = fine and _are_sizes(start, least=-_LARGEST_SIZE)
    hot = {path: sum(choices) for path, choices, _ in part.choices} if fine else {}
    return fine and sum(hot.get(path, math.prod(shape)) for path, shape in part.fields) <= part.size


def _is_action(spec: ActionSpec) -> bool:
    """The same for actions."""
    if isinstance(spec, DiscreteActions):
        fine = bool(spec.choices) and _are_sizes(spec.choices) and _are_sizes(spec.shape)
        fine = fine and _are_sizes(spec.start, least=-_LARGEST_SIZE) and len(spec.start) in (0, len(spec.choices))
        return fine and math.prod(spec.shape) == len(spec.choices)
    low, high = (np.array(bounds, np.float64) for bounds in (spec.low, spec.high))
    fine = low.ndim == 1 and low.size > 0 and low.shape == high.shape
    fine = fine and bool((np.isfinite(low) & np.isfinite(high) & (low < high)).all())
    shape = (low.size,) if spec.shape is None else spec.shape
    return fine and _are_sizes(shape) and math.prod(shape) == low.size


def _are_sizes(values: Any, least: int = 1) -> bool:
    """Whether these are whole numbers, none of them too large to be a size."""
    numbers = isinstance(values, tuple) and all(isinstance(n, int) and not isinstance(n, bool) for n in values)
    return numbers and all(least <= n <= _LARGEST_SIZE for n in values)


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
