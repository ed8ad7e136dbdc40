"""A look at an environment before anything is trained on it: made, reset, stepped, and compared with a second one."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dr_q.envs.protocol import SUCCESS, Env, EnvSpec, Step, closed
from dr_q.kit import EnvError, TaskError
from dr_q.spaces import ContinuousActions, Image, ObsSpec, Vector, random_unit_action

PROBE_STEPS = 3
"""Random steps that a probe takes before a run."""
LARGE = 1_000.0
"""Absolute values of observations above this are hard to learn from as they are."""
_IMAGE_SIDE = 31
"""The smallest height and width that convolutions take."""
_MOST_CHANNELS = 16
"""Of an image; more are taken for a mistaken order of axes."""
_MOST_SHOWN = 6
_LIKE_SUCCESS = ("success", "is_successful", "succeeded", "solved")
_TOGETHER = 50
"""Steps at most in which a second environment is stepped in between."""
_SEED = 12_345
_LARGEST_REWARD = float(np.finfo(np.float32).max)


@dataclasses.dataclass(frozen=True)
class Finding:
    """One result of a check: an element of what `check_env` returns, and a line of `dr-q check` and `dr-q doctor`."""

    what: str
    """What was checked."""
    ok: bool
    """Whether nothing needs to be done."""
    found: str
    """What the check found."""
    fix: str = ""
    """What to do; empty if it is ok."""
    warning: bool = False
    """Whether training is possible although it is not ok."""

    def __str__(self) -> str:
        """The line that `dr-q check` prints. It begins with `ok`, `!` (a warning) or `--` (an error)."""
        mark = "ok  " if self.ok else "!   " if self.warning else "--  "
        return f"{mark}{self.what}: {self.found}" + (f"  ->  {self.fix}" if self.fix else "")

    def __post_init__(self) -> None:
        """A result that is ok needs no fix."""
        if self.ok:
            object.__setattr__(self, "fix", "")
            object.__setattr__(self, "warning", False)


_NOT_IN_A_RUN = ("size of observations", "bounds of observations", "ends of episodes")
"""What a few steps cannot say, a run warns of itself, or makes no difference to it."""


def probe(make: Callable[[], Env]) -> tuple[str, ...]:
    """Play a few steps in two fresh environments.

    Returns:
        What the user should know, a line each.

    Raises:
        TaskError, EnvError: It cannot be trained on.
    """
    found = (finding for finding in examine(make, PROBE_STEPS) if not finding.ok)
    return tuple(f"{finding.found}; {finding.fix}" for finding in found if finding.what not in _NOT_IN_A_RUN)


def examine(make: Callable[[], Env], steps: int) -> Iterator[Finding]:
    """Look at an environment, one thing after the other; the first error ends it.

    Args:
        make: Makes a new environment each time.
        steps: Random steps to take.
    """
    first = make()
    try:
        yield Finding("made", True, closed(first.spec.made_from) or "yes")
        yield from _spaces(first.spec)
        seen, seconds = _play(first, steps, _SEED)
        yield Finding("reset and stepped", True, f"{len(seen) - 1} random steps, {seconds * 1000:.2f} ms each")
        yield from _values(first.spec.obs, seen)
        if isinstance(first, Bounded):
            yield from _in_bounds(first.spec.obs, first.bounds(), seen)
        yield from _episodes(first.spec, seen)
        second = make()
        try:
            if second.spec != first.spec:
                raise TaskError(
                    f"a second environment has {second.spec.spaces}, the first {first.spec.spaces}; each call must "
                    "make the same kind"
                )
            repeated = _compared(seen, _play(second, steps, _SEED)[0])
            yield repeated
            if repeated.ok and steps > PROBE_STEPS:
                yield _independent(make, second, seen[: _TOGETHER + 1])
            other = _play(second, 1, _SEED + 1)[0][0]
        finally:
            second.close()
        same = all(np.array_equal(other.obs[name], x) for name, x in seen[0].obs.items())
        found = "every seed gives the same first observation" if same else "seeds give different first observations"
        yield Finding("starts", True, found)
    finally:
        first.close()


def _independent(make: Callable[[], Env], other: Env, alone: list[Step]) -> Finding:
    """Whether a new environment gives what one gave alone, also if another is stepped in between."""
    found, fix = "stepping another environment in the same process changes nothing", ""
    rng, between = np.random.default_rng(_SEED), np.random.default_rng(_SEED + 1)
    env = make()
    try:
        now = Step(env.reset(_SEED), 0.0, False, False)
        other.reset(_SEED + 1)
        for number, before in enumerate(alone):
            if number:
                now = env.step(np.asarray(random_unit_action(env.spec.action, rng), np.float32))
            same = all(np.array_equal(now.obs[name], x) for name, x in before.obs.items())
            if not same or now[1:4] != before[1:4]:
                when = f"step {number}" if number else "the reset"
                found = f"stepping another environment in the same process changed this one, at {when}"
                fix = "give each its own state and random numbers: environments of several seeds, lanes and evaluations"
                return Finding("independent", False, found, f"{fix} disturb each other without", warning=True)
            disturbed = other.step(np.asarray(random_unit_action(other.spec.action, between), np.float32))
            if disturbed.terminated or disturbed.truncated:
                other.reset(_SEED + 2)
            if now.terminated or now.truncated:
                break
    finally:
        env.close()
    return Finding("independent", True, found)


def _play(env: Env, steps: int, seed: int) -> tuple[list[Step], float]:
    """The first observation and what each random step gave; seconds of a step."""
    rng = np.random.default_rng(seed)
    seen = [Step(env.reset(seed), 0.0, False, False)]
    check_finite(env.spec.obs, seen[0].obs, f"reset(seed={seed})")
    start = time.perf_counter()
    for number in range(steps):
        action = np.asarray(random_unit_action(env.spec.action, rng), np.float32)
        step = env.step(action)
        check_finite(env.spec.obs, step.obs, f"step {number} of random actions")
        if not abs(step.reward) <= _LARGEST_REWARD:
            raise EnvError(f"the environment gave a reward of {step.reward}, in step {number} of random actions")
        seen.append(Step({name: x.copy() for name, x in step.obs.items()}, *step[1:]))
        if step.terminated or step.truncated:
            seed += 1
            env.reset(seed)
    return seen, (time.perf_counter() - start) / max(1, steps)


def check_finite(obs: ObsSpec, values: dict[str, np.ndarray], when: str) -> None:
    """EnvError for an observation that is NaN or infinite, with the names of its components."""
    for name, part in obs.parts:
        x = values[name]
        if isinstance(part, Vector) and not np.isfinite(x).all():
            raise EnvError(f"the environment gave an observation that is {where_not_finite(name, part, x)}, in {when}")


def where_not_finite(name: str, part: Vector, values: np.ndarray) -> str:
    """`NaN or infinite in 'arm/speed'[1]`: which components of a part are, by the keys of the environment's Dict."""
    found = np.flatnonzero(~np.isfinite(values))
    shown = ", ".join(part.component(int(index), name) for index in found[:5])
    return f"NaN or infinite in {shown}" + (f" and {len(found) - 5} more places" if len(found) > 5 else "")


@runtime_checkable
class Bounded(Protocol):
    """An environment that knows the bounds which its observation space declares."""

    def bounds(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """The lowest and the highest values of each vector part."""
        ...


def _spaces(spec: EnvSpec) -> Iterator[Finding]:
    yield Finding("observations", True, ", ".join(_part(name, part) for name, part in spec.obs.parts))
    for name, part in spec.obs.parts:
        for path, shape in part.fields if isinstance(part, Vector) else ():
            if 2 <= len(shape) <= 4 and sorted(shape)[-2] >= _IMAGE_SIDE:
                found = f"{path or name} of shape {tuple(shape)} is taken for {math.prod(shape):,} plain numbers"
                fix = (
                    "if it is an image, give uint8 from 0 to 255 (height, width, channels), one frame without a stack: "
                    "convolutions read those (gymnasium.wrappers.GrayscaleObservation needs keep_dim=True)"
                )
                yield Finding("images", False, found, fix, warning=True)
        if isinstance(part, Image) and part.channels > _MOST_CHANNELS:
            found = f"{name} is an image of {part.channels} channels, {part.height} x {part.width} pixels"
            fix = "images are (height, width, channels); for another order use gymnasium.wrappers.TransformObservation"
            yield Finding("images", False, found, fix, warning=True)
    action: Any = spec.action
    yield Finding("actions", True, _bounds(action) if hasattr(action, "low") else f"choices of {action.choices}")
    known = spec.episode_length is not None
    found = f"truncated after {spec.episode_length:,} steps" if known else "no limit is known"
    yield Finding("episode length", True, found)


def _part(name: str, part: Vector | Image) -> str:
    """`obs vector (6,): goal (2,), joints (4,)`: entries of a Dict in the order in which they are joined."""
    entries = [f"{path} {tuple(shape)}" for path, shape in part.fields if path] if isinstance(part, Vector) else []
    return f"{name} {type(part).__name__.lower()} {part.shape}" + (f": {', '.join(entries)}" if entries else "")


def _bounds(action: ContinuousActions) -> str:
    """`3 numbers from -1 to 1`; bounds of each where they differ."""
    count = f"{action.dim} number{'s' if action.dim > 1 else ''}"
    pairs = list(dict.fromkeys(zip(action.low, action.high, strict=True)))
    if len(pairs) == 1:
        return f"{count} from {pairs[0][0]:g} to {pairs[0][1]:g}"
    shown = [f"{low:g} to {high:g}" for low, high in zip(action.low, action.high, strict=True)]
    more = f" and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
    return f"{count}: {', '.join(shown[:_MOST_SHOWN])}{more}"


def _values(obs: ObsSpec, seen: list[Step]) -> Iterator[Finding]:
    for name, part in obs.parts:
        if not isinstance(part, Vector):
            continue
        values = np.abs(np.stack([step.obs[name] for step in seen]))
        place = int(values.max(axis=0).argmax())
        most = float(values.max())
        found = f"observations reach {most:.4g} in {part.component(place, name)}"
        fix = "normalise them: normalise_observations=all (--normalise-observations all), or scale them"
        yield Finding("size of observations", most <= LARGE, found, fix, warning=True)
    rewards = [step.reward for step in seen[1:]]
    if rewards:
        yield Finding("rewards", True, f"from {min(rewards):.4g} to {max(rewards):.4g}")


def _in_bounds(
    obs: ObsSpec, bounds: Mapping[str, tuple[np.ndarray, np.ndarray]], seen: list[Step]
) -> Iterator[Finding]:
    """Whether vectors stay within the declared space, up to rounding."""
    for name, (low, high) in bounds.items():
        part, values = obs[name], np.stack([step.obs[name] for step in seen])
        least, most = values.min(axis=0), values.max(axis=0)
        outside = (least < low - _rounding(low)) | (most > high + _rounding(high))
        found = "within the declared space" if len(bounds) == 1 else f"{name} is within the declared space"
        if outside.any():
            at = int(np.argmax(outside))
            assert isinstance(part, Vector)
            got = f"{part.component(at, name)} reaches {least[at]:.4g} to {most[at]:.4g}"
            found = f"{got}, the observation space declares {low[at]:.4g} to {high[at]:.4g}"
        fix = "correct the observation space; dr-q does not clip, so training is the same"
        yield Finding("bounds of observations", not outside.any(), found, fix, warning=True)


def _rounding(bound: np.ndarray) -> np.ndarray:
    return 1e-5 * (1 + np.where(np.isfinite(bound), np.abs(bound), 0))


def _episodes(spec: EnvSpec, seen: list[Step]) -> Iterator[Finding]:
    ended = sum(step.terminated or step.truncated for step in seen)
    endless = spec.episode_length is None and not ended
    found = f"{ended} ended in these steps"
    if endless:
        found = f"no episode ended in {len(seen) - 1} random steps, and the environment declares no limit"
    fix = "evaluations need episodes that end; gymnasium.wrappers.TimeLimit(env, STEPS) limits them, or check longer"
    yield Finding("ends of episodes", not endless, found, fix, warning=True)
    returns, total = [], 0.0
    for step in seen[1:]:
        total += step.reward
        if step.terminated or step.truncated:
            returns.append(total)
            total = 0.0
    if returns:
        of = f"{len(returns)} episode{'s' if len(returns) > 1 else ''}"
        yield Finding("random actions", True, f"mean return {np.mean(returns):.4g} over {of}")
    yield from _success(seen)


def _success(seen: list[Step]) -> Iterator[Finding]:
    """Whether the environment says that an episode succeeded, in a way that is understood."""
    said = [step.info[SUCCESS] for step in seen if step.info and SUCCESS in step.info]
    if not said:
        other = next((name for step in seen for name in _LIKE_SUCCESS if name in (step.info or ())), None)
        if other is not None:
            found, fix = f"info['{other}'] is not read", f"call it '{SUCCESS}' for success rates in evaluations"
            yield Finding("success", False, found, fix, warning=True)
        return
    wrong = next((x for x in said if isinstance(x, str | bytes) or np.size(x) != 1), None)
    found = "info['is_success'] is given" if wrong is None else f"info['is_success'] is {wrong!r}"
    fix = "give True or False in an episode's last step; it is left out of evaluations otherwise"
    yield Finding("success", wrong is None, found, fix, warning=True)


def _compared(seen: list[Step], again: list[Step]) -> Finding:
    """Whether the same seed and actions give the same again, in another environment."""
    fix = "give reset(seed=...) all of its randomness (self.np_random); resuming a run is not exact without"
    for number, (one, other) in enumerate(zip(seen, again, strict=True)):
        same = all(np.array_equal(other.obs[name], x) for name, x in one.obs.items())
        if not same or one[1:4] != other[1:4]:  # not info, which may hold arrays
            when = "at the reset" if number == 0 else f"at step {number}"
            found = f"a second environment with the same seed and actions gave something else {when}"
            return Finding("repeated", False, found, fix, warning=True)
    return Finding("repeated", True, "a second environment with the same seed and actions gave the same")
