"""Any Gymnasium environment with a finite Box of actions, or with choices, behind the protocol of this package."""

import contextlib
import math
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces
from gymnasium.envs.mujoco import MujocoEnv

from dr_q.envs.protocol import EnvSpec, Step, failure
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
    to_env_action,
)

STACKED_FRAMES = 3
SMALLEST_IMAGE = 31
"""What four convolutions of 3 x 3, three of them with stride 2, leave something of."""


class GymEnv:
    """A Gymnasium environment behind our protocol.

    Observations may be a Box of any shape (flattened), a Dict of such boxes (flattened and joined in the order of the
    space's keys), or a uint8 image (height, width, channels), of which the last 3 are stacked.
    """

    def __init__(self, make: Callable[[], gymnasium.Env], name: str):
        try:
            self._env = make()
            box, self._space = self._env.action_space, self._env.observation_space
        except TaskError:
            raise
        except (Exception, SystemExit) as error:  # anything may go wrong in other people's code
            raise TaskError(f"{name} cannot be made: {failure(error)}") from error
        self._name = name
        _check_not_in_use(self._env, name)
        try:
            actions, image = _actions(box, name), _image(self._space, name)
            obs = ObsSpec.single(image or _vector(self._space, name))
        except TaskError:
            self.close()
            raise
        self._to_env = to_env_action(actions)
        self._frames: deque[np.ndarray] | None = deque(maxlen=STACKED_FRAMES) if image else None
        self.spec = EnvSpec(
            Spaces(obs, actions),
            episode_length=_episode_length(self._env),
            step_seconds=_step_seconds(self._env),
        )
        _IN_USE[id(self._env.unwrapped)] = self._env.unwrapped

    def reset(self, seed: int) -> dict[str, np.ndarray]:
        """Start an episode."""
        obs, _ = self._call("reset(seed=...)", ("obs", "info"), lambda: self._env.reset(seed=seed))
        if self._frames is not None:
            self._frames.extend([self._frame(obs)] * STACKED_FRAMES)
        seen = self._observe(obs)
        if not np.isfinite(seen[SINGLE]).all():
            raise EnvError(f"{self._name}: reset(seed={seed}) gave an observation with NaN or infinite values")
        return seen

    def step(self, action: np.ndarray) -> Step:
        """One agent step."""
        own = self._to_env(action)
        given = ("obs", "reward", "terminated", "truncated", "info")
        obs, reward, terminated, truncated, _ = self._call("step(action)", given, lambda: self._env.step(own))
        if self._frames is not None:
            self._frames.append(self._frame(obs))
        try:
            number = float(reward)
        except (TypeError, ValueError):
            raise EnvError(f"{self._name}: step(action) gave {reward!r} as a reward, expected a number") from None
        return Step(self._observe(obs), number, bool(terminated), bool(truncated))

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
        except (Exception, SystemExit) as error:
            # Gymnasium's own wrappers unpack what an environment gives.
            unpacked = isinstance(error, ValueError) and "values to unpack" in str(error)
            hint = f"; {what} must give ({', '.join(gives)})" if unpacked else ""
            raise EnvError(f"{self._name} failed in {what}: {failure(error)}{hint}") from error
        if not isinstance(found, tuple) or len(found) != len(gives):
            got = f"{len(found)} values" if isinstance(found, tuple) else type(found).__name__
            raise EnvError(f"{self._name}: {what} gave {got}, expected ({', '.join(gives)}), as Gymnasium has it")
        return found

    def _observe(self, obs: Any) -> dict[str, np.ndarray]:
        if self._frames is not None:
            return {SINGLE: np.concatenate(list(self._frames))}
        try:
            return {SINGLE: flat_observation(obs, self._space)}
        except (TypeError, ValueError, KeyError, IndexError):
            pass
        raise EnvError(f"{self._name} gave an observation {_described(obs)}; its observation space is {self._space}")

    def _frame(self, image: Any) -> np.ndarray:
        if np.shape(image) != self._space.shape:
            raise EnvError(f"{self._name} gave an image {_described(image)}; its space has {self._space.shape}")
        return channels_first(image)


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
    """As one vector: a Dict's boxes in the order of its keys; ValueError or the like where it is not of the space."""
    if isinstance(space, spaces.Dict):
        return np.concatenate([flat_observation(obs[key], box) for key, box in space.spaces.items()])
    vector = np.asarray(obs, np.float32).reshape(-1)
    if vector.size != int(np.prod(space.shape or ())):
        raise ValueError("another size")
    return vector


def _described(obs: Any) -> str:
    """What it looks like."""
    return f"with {', '.join(map(str, obs))}" if isinstance(obs, dict) else f"of shape {np.shape(obs)}"


def make_registered(env_id: str, render: bool = False) -> gymnasium.Env:
    """A registered environment, `module:Id` included; errors say what to do."""
    drawing: dict[str, Any] = {"render_mode": "rgb_array"} if render else {}
    with warnings.catch_warnings(), _known_to_mujoco():
        # The paper's Gym tasks are the v4 ones, which Gymnasium keeps and calls out of date.
        warnings.filterwarnings("ignore", message=r".*The environment .* is out of date.*", category=DeprecationWarning)
        try:
            env = gymnasium.make(env_id, **drawing)
        except gymnasium.error.Error as error:
            raise TaskError(f"Gymnasium cannot make '{env_id}': {_one_line(error)}") from error
        except ImportError as error:
            raise TaskError(f"Gymnasium cannot make '{env_id}': {_one_line(error)}; install what it names") from error
    if render:
        _follow(env)
    return env


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
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return DiscreteActions((int(space.n),), (start,) if start else ())
    if isinstance(space, spaces.MultiDiscrete):
        choices = tuple(int(n) for n in space.nvec.reshape(-1))
        start = tuple(int(n) for n in space.start.reshape(-1))
        return DiscreteActions(choices, start if any(start) else (), tuple(space.nvec.shape))
    if isinstance(space, spaces.MultiBinary):
        return DiscreteActions((2,) * math.prod(space.shape), (), tuple(space.shape))
    if not isinstance(space, spaces.Box):
        raise TaskError(
            f"{name} has actions in {space}; DR.Q needs a Box with finite bounds, Discrete, MultiDiscrete or "
            "MultiBinary; wrap it: gymnasium.wrappers.TransformAction(env, TO_ITS_ACTION, gymnasium.spaces.Box(...))"
        )
    return _continuous_actions(space, name)


def _continuous_actions(space: spaces.Box, name: str) -> ContinuousActions:
    if not np.issubdtype(space.dtype, np.floating) or 0 in space.shape:
        raise TaskError(
            f"{name} has actions in {space}; DR.Q gives real numbers, at least one; wrap the environment so that its "
            "action space is a Box of floats"
        )
    low, high = space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise TaskError(
            f"{name} has actions in {space}; DR.Q needs finite bounds, low < high, in every dimension; "
            "wrap it, for instance: gymnasium.wrappers.TransformAction(env, lambda a: a, Box(-1, 1, SHAPE))"
        )
    shape = None if len(space.shape) == 1 else space.shape
    return ContinuousActions(tuple(map(float, low)), tuple(map(float, high)), shape)


def _image(space: spaces.Space, name: str) -> Image | None:
    if not (isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3):
        return None
    height, width, channels = space.shape
    if min(height, width) < SMALLEST_IMAGE:
        turned = min(space.shape[1:]) >= SMALLEST_IMAGE
        fix = "channels come last: wrap it to move them" if turned else "wrap it to give larger ones, or plain numbers"
        raise TaskError(
            f"{name} has images of {space.shape} (height, width, channels); the convolutions need at least "
            f"{SMALLEST_IMAGE} x {SMALLEST_IMAGE}; {fix}"
        )
    return Image(channels, height, width, STACKED_FRAMES)


def channels_first(image: Any) -> np.ndarray:
    """An image (height, width, channels) as networks take it."""
    return np.array(np.moveaxis(np.asarray(image), -1, 0), order="C")  # a copy: some reuse the image's memory


def _vector(space: spaces.Space, name: str) -> Vector:
    boxes = list(space.spaces.values()) if isinstance(space, spaces.Dict) else [space]
    if not boxes or not all(isinstance(box, spaces.Box) and box.shape is not None for box in boxes):
        raise TaskError(
            f"{name} has observations in {space}; DR.Q needs a Box or a Dict of boxes; "
            "wrap it with gymnasium.wrappers.FlattenObservation or give vectors"
        )
    return Vector(sum(int(np.prod(box.shape or ())) for box in boxes), fields=_fields(space))


def _fields(space: spaces.Space) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if isinstance(space, spaces.Dict):
        return tuple((key, tuple(box.shape or ())) for key, box in space.spaces.items())
    return () if len(space.shape or ()) == 1 else (("", tuple(space.shape or ())),)


def _episode_length(env: gymnasium.Env) -> int | None:
    spec = getattr(env, "spec", None)
    return None if spec is None else spec.max_episode_steps


def _step_seconds(env: gymnasium.Env) -> float | None:
    """What Gymnasium's MuJoCo tasks say; of others, the rate at which Gymnasium shows every step."""
    rate = env.metadata.get("render_fps")
    if isinstance(env.unwrapped, MujocoEnv):
        return float(env.unwrapped.dt)
    return 1 / rate if isinstance(rate, int | float) and rate > 0 else None
