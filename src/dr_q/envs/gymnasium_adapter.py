"""Any Gymnasium environment with a finite Box of actions, or with choices, behind the protocol of this package."""

import contextlib
import importlib
import json
import math
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces
from gymnasium.envs import registration
from gymnasium.envs.mujoco import MujocoEnv

from dr_q.envs.probe import where_not_finite
from dr_q.envs.protocol import EnvSpec, Step, VectorEnvError, VectorEnvGivenError, failure, message_of
from dr_q.kit import EnvError, TaskError
from dr_q.spaces import (
    SINGLE,
    ActionSpec,
    ContinuousActions,
    DiscreteActions,
    Image,
    ObsSpec,
    Spaces,
    Vector,
    at_path,
    one_hot,
    to_env_action,
)

STACKED_FRAMES = 3
SMALLEST_IMAGE = 31
"""What four convolutions of 3 x 3, three of them with stride 2, leave something of."""
LARGEST_BOUND = 1e6
"""Larger bounds stand for none: nearly all uniform actions between them would be huge."""


class GymEnv:
    """A Gymnasium environment behind our protocol.

    Observations may be numbers (a Box of any shape), choices (`Discrete`, `MultiDiscrete`, `MultiBinary`), images (a
    uint8 Box of height, width, channels), and Dicts and Tuples of these, nested ones too. Without images they are one
    vector, flattened and joined in the space's order, choices as one-hot vectors. With images each entry is a part of
    its own, named by its path; of images the last 3 are stacked.
    """

    def __init__(self, make: Callable[[], gymnasium.Env], name: str):
        try:
            self._env = make()
            if self._env is None:
                raise TaskError(f"{name} cannot be made: it gave None; is its return missing?")
            if isinstance(self._env, gymnasium.vector.VectorEnv):
                raise VectorEnvGivenError(self._env, name)
            box, self._space = self._env.action_space, self._env.observation_space
        except TaskError:
            raise
        except (Exception, SystemExit) as error:  # anything may go wrong in other people's code
            raise TaskError(f"{name} cannot be made: {failure(error)}") from error
        self._name = name
        _check_not_in_use(self._env, name)
        try:
            actions, obs = _actions(box, name), _obs_spec(self._space, name)
        except TaskError:
            self.close()
            raise
        self._to_env = to_env_action(actions)
        self._half = box.dtype == np.float16
        """Whether actions are float16, to which float32 does not convert by itself."""
        self._is_whole = not obs.images or not isinstance(self._space, spaces.Dict | spaces.Tuple)
        """Whether the one part is all of the environment's observation, and not an entry of it."""
        self._leaves = {SINGLE: self._space} if self._is_whole else dict(_leaves(self._space, name))
        self._frames: dict[str, deque[np.ndarray]] = {image: deque(maxlen=STACKED_FRAMES) for image in obs.images}
        self.spec = EnvSpec(
            Spaces(obs, actions),
            episode_length=_episode_length(self._env),
            step_seconds=_step_seconds(self._env),
            made_from=_made_from(self._env),
        )
        _IN_USE[id(self._env.unwrapped)] = self._env.unwrapped

    def reset(self, seed: int) -> dict[str, np.ndarray]:
        """Start an episode."""
        obs, _ = self._call("reset(seed=...)", ("obs", "info"), lambda: self._env.reset(seed=seed))
        for frames in self._frames.values():
            frames.clear()
        seen = self._observe(obs)
        for name, x in seen.items():
            part = self.spec.obs[name]
            if isinstance(part, Vector) and not np.isfinite(x).all():
                where = where_not_finite(name, part, x)
                raise EnvError(f"{self._name}: reset(seed={seed}) gave an observation that is {where}")
        return seen

    def step(self, action: np.ndarray) -> Step:
        """One agent step."""
        own = self._to_env(action).astype(np.float16) if self._half else self._to_env(action)
        given = ("obs", "reward", "terminated", "truncated", "info")
        obs, reward, terminated, truncated, info = self._call("step(action)", given, lambda: self._env.step(own))
        try:
            number = float(reward)
        except (TypeError, ValueError):
            raise EnvError(f"{self._name}: step(action) gave {reward!r} as a reward, expected a number") from None
        ends = []
        for name, value in (("terminated", terminated), ("truncated", truncated)):
            try:
                ends.append(bool(value))
            except (TypeError, ValueError):
                raise EnvError(f"{self._name}: step(action) gave {value!r} as {name}, expected True or False") from None
        said = info if isinstance(info, dict) else {}
        return Step(self._observe(obs), number, ends[0], ends[1], said)

    def bounds(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """The lowest and the highest values of each vector part that the observation space declares."""
        parts = {name: space for name, space in self._leaves.items() if name not in self._frames}
        return {name: (_flat_bounds(space, low=True), _flat_bounds(space, low=False)) for name, space in parts.items()}

    def render(self, size: tuple[int, int]) -> np.ndarray:
        """What the environment draws itself; it must have been made with render_mode='rgb_array'."""
        if self._env.render_mode != "rgb_array":
            raise TaskError(
                f"{self._name} cannot be drawn: its render_mode is {self._env.render_mode!r}; "
                "make it with render_mode='rgb_array'"
            )
        try:
            frame: Any = self._env.render()
        except Exception as error:
            raise EnvError(f"{self._name} failed in render(): {failure(error)}") from error
        if np.ndim(frame) != 3 or np.shape(frame)[-1] != 3:
            raise EnvError(
                f"{self._name}: render() gave an image {_described(frame)}, expected (height, width, 3): RGB"
            )
        if np.asarray(frame).dtype != np.uint8:
            raise EnvError(f"{self._name}: render() gave {np.asarray(frame).dtype}, expected uint8, from 0 to 255")
        return np.asarray(frame)

    def close(self) -> None:
        """Close the environment."""
        _IN_USE.pop(id(self._env.unwrapped), None)
        try:
            self._env.close()
        except Exception as error:  # everything is done by then: no reason to lose it
            print(f"dr-q: {self._name} failed in close(): {failure(error)}", file=sys.stderr)

    def _call(self, what: str, gives: tuple[str, ...], call: Callable[[], Any]) -> Any:
        """What the environment's own code gives; its errors in one line."""
        try:
            found = call()
        except VectorEnvError:  # of which this is one environment
            raise
        except (Exception, SystemExit, GeneratorExit) as error:
            # Gymnasium's own wrappers unpack what an environment gives.
            unpacked = isinstance(error, ValueError) and "values to unpack" in message_of(error)
            hint = f"; {what} must give ({', '.join(gives)})" if unpacked else ""
            raise EnvError(f"{self._name} failed in {what}: {failure(error)}{hint}") from error
        if not isinstance(found, tuple) or len(found) != len(gives):
            got = f"{len(found)} values" if isinstance(found, tuple) else type(found).__name__
            raise EnvError(f"{self._name}: {what} gave {got}, expected ({', '.join(gives)}), as Gymnasium has it")
        return found

    def _observe(self, obs: Any) -> dict[str, np.ndarray]:
        try:
            if self._is_whole:
                return {SINGLE: self._part(SINGLE, obs)}
            return {name: self._part(name, at_path(obs, name)) for name in self._leaves}
        except (TypeError, ValueError, KeyError, IndexError):
            pass
        wrong = _wrong_entry(obs, self._space) or f"{_described(obs)}; its observation space is {self._space}"
        raise EnvError(f"{self._name} gave an observation {wrong}")

    def _part(self, name: str, value: Any) -> np.ndarray:
        """A part of the next observation; its stack of frames if it is an image."""
        if name not in self._frames:
            return flat_observation(value, self._leaves[name])
        shape, frames = self._leaves[name].shape, self._frames[name]
        if np.shape(value) != shape:
            raise EnvError(f"{self._name} gave an image {_described(value)}; its space has {shape}")
        if np.asarray(value).dtype != np.uint8:
            raise EnvError(
                f"{self._name} gave an image of {np.asarray(value).dtype}; its space has uint8, from 0 to 255; wrap it "
                "to convert its images: gymnasium.wrappers.TransformObservation"
            )
        frames.extend([channels_first(value)] * (1 if frames else STACKED_FRAMES))
        return np.concatenate(list(frames))


def _made_from(env: gymnasium.Env) -> str:
    """Which code an environment is: its registered id and arguments, its wrappers and its class; no addresses."""
    layers, inner = [], env
    while isinstance(inner, gymnasium.Wrapper):
        layers.append(type(inner).__name__)
        inner = inner.env
    code = "<".join([*layers, type(inner).__qualname__])
    with contextlib.suppress(Exception):  # other people's code
        spec = inner.spec
        if spec is not None:
            given = {name: x for name, x in spec.kwargs.items() if name != "render_mode"}
            plain = json.dumps(given, sort_keys=True, default=lambda x: type(x).__qualname__)
            return f"{spec.id}{plain if given else ''}: {code}"
    return code


_IN_USE: "weakref.WeakValueDictionary[int, gymnasium.Env]" = weakref.WeakValueDictionary()
"""The environments of this process that are not closed yet, by identity."""


def _check_not_in_use(env: gymnasium.Env, name: str) -> None:
    """Refuse an environment that is in use: one object cannot play two episodes."""
    if id(env.unwrapped) in _IN_USE:
        raise TaskError(
            f"{name} gave the same environment twice; each call must make a new one, because training and every "
            "evaluation episode need their own"
        )


def flat_observation(obs: Any, space: spaces.Space) -> np.ndarray:
    """As one vector, as `gymnasium.spaces.flatten` does; ValueError or the like where it is not of the space."""
    if isinstance(space, spaces.Dict):
        return np.concatenate([flat_observation(obs[key], inner) for key, inner in space.spaces.items()])
    if isinstance(space, spaces.Tuple):
        return np.concatenate([flat_observation(x, inner) for x, inner in zip(obs, space.spaces, strict=True)])
    if (found := _choices(space)) is not None:
        return one_hot(np.asarray(obs).reshape(len(found[0])), *found)
    if np.shape(obs) != (space.shape or ()):  # a policy is given what the environment gives, and knows the space alone
        raise ValueError("another shape")
    return np.asarray(obs, np.float32).reshape(-1)


def _flat_bounds(space: spaces.Space, *, low: bool) -> np.ndarray:
    """The bounds of each number of `flat_observation`."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return np.concatenate([_flat_bounds(x, low=low) for x in inner])
    if isinstance(space, spaces.Box):
        return np.asarray(space.low if low else space.high, np.float64).reshape(-1)
    found = _choices(space)
    size = math.prod(space.shape or ()) if found is None else sum(found[0])
    return np.full(size, 0.0 if low else 1.0)


def _wrong_entry(obs: Any, space: spaces.Space, path: str = "") -> str:
    """The first entry of a Dict or Tuple that is not of its space, in words; nothing for other spaces."""
    if isinstance(space, spaces.Dict) and isinstance(obs, Mapping):
        missing = [key for key in space.spaces if key not in obs]
        if missing:
            return f"without '{path}{missing[0]}'; its keys are {', '.join(map(str, obs))}"
        inner = [(key, obs[key], of) for key, of in space.spaces.items()]
    elif isinstance(space, spaces.Tuple) and isinstance(obs, tuple | list):
        if len(obs) != len(space.spaces):
            where = f" in '{path[:-1]}'" if path else ""
            return f"with {len(obs)} entries{where}; its space has {len(space.spaces)}"
        inner = [(str(i), x, of) for i, (x, of) in enumerate(zip(obs, space.spaces, strict=True))]
    elif not path:
        return ""
    else:
        try:
            flat_observation(obs, space)
        except (TypeError, ValueError, KeyError, IndexError):
            return f"whose '{path[:-1]}' is {_described(obs)}; its space is {space}"
        return ""
    return next((found for key, x, of in inner if (found := _wrong_entry(x, of, f"{path}{key}/"))), "")


def _described(obs: Any) -> str:
    """What it looks like."""
    return f"with {', '.join(map(str, obs))}" if isinstance(obs, dict) else f"of shape {np.shape(obs)}"


def make_registered(env_id: str, render: bool = False) -> gymnasium.Env:
    """A registered environment, `module:Id` included; errors say what to do."""
    drawing: dict[str, Any] = {"render_mode": "rgb_array"} if render else {}
    _check_module(env_id)
    with warnings.catch_warnings(), _known_to_mujoco():
        # The paper's Gym tasks are the v4 ones, which Gymnasium keeps and calls out of date.
        warnings.filterwarnings("ignore", message=r".*The environment .* is out of date.*", category=DeprecationWarning)
        try:
            env = gymnasium.make(env_id, **drawing)
        except gymnasium.error.Error as error:
            unknown = ":" not in env_id and isinstance(error, gymnasium.error.UnregisteredEnv)
            own = "; an environment of your own is module:Id, with the module that registers it" if unknown else ""
            raise TaskError(f"Gymnasium cannot make '{env_id}': {_one_line(error)}{own}") from error
        except ImportError as error:
            raise TaskError(f"Gymnasium cannot make '{env_id}': {_one_line(error)}; install what it names") from error
    if render:
        _follow(env)
    return env


def _check_module(env_id: str) -> None:
    """Import the module of `module:Id`, and refuse one that cannot be found or registers nothing of that name."""
    module, colon, name = env_id.rpartition(":")
    if not colon:
        return
    if module.endswith(".py") or not all(part.isidentifier() for part in module.split(".")):
        plain = module.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise TaskError(f"'{module}' is not the name of a module; write {plain}:{name}, as in `import {plain}`")
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            return  # something that the module imports: Gymnasium's own message names it
        here = Path.cwd()
        raise TaskError(
            f"there is no module {module}, neither in this folder ({here}) nor among installed packages; change to the "
            f"folder of {error.name}, or give it in PYTHONPATH"
        ) from None
    except (Exception, SystemExit) as error:
        raise TaskError(f"{module} cannot be imported: {failure(error)}") from error
    if name in gymnasium.registry or registration.find_highest_version(*_id_parts(name)) is not None:
        return
    entries = {known: spec.entry_point for known, spec in gymnasium.registry.items()}
    own = [known for known, entry in entries.items() if _module_of(entry) == module]
    others = f"; it registers {', '.join(own[:5])}" if own else ""
    raise TaskError(
        f"{module} was imported and registers no {name}{others}; it must call "
        f'gymnasium.register("{name}", ITS_CLASS, max_episode_steps=...)'
    )


def _id_parts(name: str) -> tuple[str | None, str]:
    try:
        namespace, plain, _ = registration.parse_env_id(name)
    except gymnasium.error.Error:
        return None, name
    return namespace, plain


def _module_of(entry: Any) -> str:
    """The module of an entry point of Gymnasium's registry: a text, or the class or function itself."""
    return entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")


@contextlib.contextmanager
def _known_to_mujoco() -> Iterator[None]:
    """Silence what MuJoCo says of HalfCheetah's model; it would also leave a file MUJOCO_LOG.TXT behind."""
    handlers: Any = mujoco  # the bindings' stubs lack these two
    before = handlers.get_mju_user_warning()

    def hear(message: str) -> None:
        if "settotalmass" not in message:
            print(f"mujoco: {message}", file=sys.stderr)

    handlers.set_mju_user_warning(hear)
    try:
        yield
    finally:
        handlers.set_mju_user_warning(before)


def _follow(env: gymnasium.Env) -> None:
    """Draw with the camera that moves along, where the model has one: Gymnasium's own stays where the robot started."""
    renderer, model = (getattr(env.unwrapped, name, None) for name in ("mujoco_renderer", "model"))
    if renderer is None or model is None:
        return
    with contextlib.suppress(KeyError):  # no such camera
        renderer.camera_id = model.camera("track").id


def _one_line(error: Exception) -> str:
    return " ".join(str(error).replace("\x1b[33m", "").replace("\x1b[0m", "").split())


def _actions(space: spaces.Space, name: str) -> ActionSpec:
    if math.prod(space.shape or ()) == 0:
        raise TaskError(
            f"{name} has actions in {space}, which is empty; DR.Q needs at least one number or choice; wrap it: "
            "gymnasium.wrappers.TransformAction(env, TO_ITS_ACTION, gymnasium.spaces.Box(...))"
        )
    if (found := _choices(space)) is not None:
        choices, start = found
        return DiscreteActions(choices, start if any(start) else (), tuple(space.shape or ()))
    if isinstance(space, spaces.MultiBinary):
        return DiscreteActions((2,) * math.prod(space.shape), (), tuple(space.shape))
    if not isinstance(space, spaces.Box):
        raise TaskError(
            f"{name} has actions in {space}; DR.Q needs a Box with finite bounds, Discrete, MultiDiscrete or "
            "MultiBinary; wrap it: gymnasium.wrappers.TransformAction(env, TO_ITS_ACTION, gymnasium.spaces.Box(...))"
        )
    return _continuous_actions(space, name)


def _continuous_actions(space: spaces.Box, name: str) -> ContinuousActions:
    if not np.issubdtype(space.dtype, np.floating):
        raise TaskError(
            f"{name} has actions in {space}; DR.Q needs floats in a Box; wrap it: gymnasium.wrappers.TransformAction("
            "env, lambda a: a.round().astype(env.action_space.dtype), gymnasium.spaces.Box(LOW, HIGH, SHAPE))"
        )
    low, high = space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)
    if not ((np.abs(low) <= LARGEST_BOUND).all() and (np.abs(high) <= LARGEST_BOUND).all() and (low < high).all()):
        raise TaskError(
            f"{name} has actions in {space}; DR.Q needs finite bounds within +-{LARGEST_BOUND:g}, low < high, in every "
            "dimension; wrap it, for instance: gymnasium.wrappers.TransformAction(env, lambda a: a, Box(-1, 1, SHAPE))"
        )
    shape = None if len(space.shape) == 1 else space.shape
    return ContinuousActions(tuple(map(float, low)), tuple(map(float, high)), shape)


def _obs_spec(space: spaces.Space, name: str) -> ObsSpec:
    """The parts of an observation: each entry by itself where there are images, else one vector of all.

    Without images it is one vector because a run and its policies must stay what they were before there were parts.
    """
    image = _image(space, name)
    if image is not None:
        return ObsSpec.single(image)
    leaves = _leaves(space, name)
    if len({path for path, _ in leaves}) < len(leaves):
        raise TaskError(f"{name} has observations in {space}, where two entries have the same path; rename one")
    images = {path: _image(leaf, name) for path, leaf in leaves if not _is_small(leaf)}
    if not any(images.values()):
        whole = _vector(leaves)
        _check_not_empty(whole.size, space, name)
        return ObsSpec.single(whole)
    for path, leaf in leaves:
        _check_not_empty(math.prod(leaf.shape or ()), leaf, name, f" '{path}'")
    parts = [(path, images.get(path) or _vector([("", leaf)])) for path, leaf in leaves]
    return ObsSpec(tuple(parts))


def _check_not_empty(size: int, space: spaces.Space, name: str, which: str = "") -> None:
    if size == 0:
        raise TaskError(
            f"{name} has observations{which} in {space}, which is empty; DR.Q needs at least one number; wrap it to "
            "leave that out: gymnasium.wrappers.TransformObservation"
        )


def _is_image(space: spaces.Space) -> bool:
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3


def _is_small(space: spaces.Space) -> bool:
    """Whether the space is of arrays too small for an image, in any order of their axes: a board, for instance."""
    return len(space.shape or ()) == 3 and sorted(space.shape or ())[1] < SMALLEST_IMAGE


def _image(space: spaces.Space, name: str) -> Image | None:
    if not _is_image(space):
        return None
    assert space.shape is not None
    height, width, channels = space.shape
    _check_not_empty(channels, space, name)
    if min(height, width) < SMALLEST_IMAGE:
        turned = min(space.shape[1:]) >= SMALLEST_IMAGE
        fix = "channels come last: wrap it to move them" if turned else "wrap it to give larger ones, or plain numbers"
        raise TaskError(
            f"{name} has images of {space.shape} (height, width, channels); the convolutions need at least "
            f"{SMALLEST_IMAGE} x {SMALLEST_IMAGE}; {fix}: gymnasium.wrappers.TransformObservation"
        )
    return Image(channels, height, width, STACKED_FRAMES)


def channels_first(image: Any) -> np.ndarray:
    """An image (height, width, channels) as networks take it."""
    return np.array(np.moveaxis(np.asarray(image), -1, 0), order="C")  # a copy: some reuse the image's memory


def _leaves(space: spaces.Space, name: str, path: str = "") -> list[tuple[str, spaces.Space]]:
    """The entries of nested Dicts and Tuples, by path, in order."""
    inner: list[tuple[str, spaces.Space]] | None = None
    if isinstance(space, spaces.Dict):
        inner = [(str(key), x) for key, x in space.spaces.items()]
    elif isinstance(space, spaces.Tuple):
        inner = [(str(index), x) for index, x in enumerate(space.spaces)]
    if inner:
        return [leaf for key, x in inner for leaf in _leaves(x, name, f"{path}/{key}" if path else key)]
    if inner is not None or not (isinstance(space, spaces.Box | spaces.MultiBinary) or _choices(space) is not None):
        where, without = "", ""
        if path:  # of a Dict or Tuple
            where, without = f" at '{path}'", "gymnasium.wrappers.FilterObservation(env, KEYS) leaves it out, or "
        raise TaskError(
            f"{name} has observations in {space}{where}; DR.Q needs Box, Discrete, MultiDiscrete, MultiBinary, and "
            f"Dicts and Tuples of these; wrap it: {without}gymnasium.wrappers.TransformObservation(env, TO_ARRAY, "
            "spaces.Box(...))"
        )
    return [(path, space)]


def _choices(space: spaces.Space) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """How many values each choice has, and its first value; None where there is no choice.

    Bits are numbers: 0 and 1 say as much as two entries would.
    """
    if isinstance(space, spaces.Discrete):
        return (int(space.n),), (int(space.start),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(map(int, space.nvec.reshape(-1))), tuple(map(int, space.start.reshape(-1)))
    return None


def _vector(leaves: list[tuple[str, spaces.Space]]) -> Vector:
    """The vector of all these entries."""
    fields, choices, size = [], [], 0
    for path, space in leaves:
        shape = tuple(space.shape or ())
        fields.append((path, shape))
        found = _choices(space)
        if found is not None:
            choices.append((path, *found))
        size += math.prod(shape) if found is None else sum(found[0])
    plain = fields == [("", (size,))] and not choices
    return Vector(size, fields=() if plain else tuple(fields), choices=tuple(choices))


def _episode_length(env: Any) -> int | None:
    """What the environment is registered with, or what a `TimeLimit` around one that is not registered has."""
    spec = getattr(env, "spec", None)
    if spec is not None and spec.max_episode_steps is not None:
        return spec.max_episode_steps
    while env is not None:
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            return env._max_episode_steps  # Gymnasium shows it nowhere else
        env = getattr(env, "env", None)
    return None


def _step_seconds(env: gymnasium.Env) -> float | None:
    """What Gymnasium's MuJoCo tasks say; of others, the rate at which Gymnasium shows every step."""
    rate = env.metadata.get("render_fps")
    if isinstance(env.unwrapped, MujocoEnv):
        return float(env.unwrapped.dt)
    return 1 / rate if isinstance(rate, int | float) and rate > 0 else None
