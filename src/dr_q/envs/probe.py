"""A look at an environment before anything is trained on it: made, reset, stepped, and compared with a second one."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dr_q.envs.protocol import Env, EnvSpec, Step
from dr_q.kit import EnvError, TaskError
from dr_q.spaces import ObsSpec, Vector, random_unit_action

PROBE_STEPS = 3
"""Random steps that a probe takes before a run."""
LARGE = 1_000.0
"""Absolute values of observations above this are hard to learn from as they are."""
_SEED = 12_345
_LARGEST_REWARD = float(np.finfo(np.float32).max)


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing looked at."""

    what: str
    ok: bool
    found: str
    fix: str = ""


def probe(make: Callable[[], Env]) -> tuple[str, ...]:
    """Play a few steps in two fresh environments.

    Returns:
        What the user should know, a line each.

    Raises:
        TaskError, EnvError: It cannot be trained on.
    """
    return tuple(f"{finding.found}; {finding.fix}" for finding in examine(make, PROBE_STEPS) if not finding.ok)


def examine(make: Callable[[], Env], steps: int) -> Iterator[Finding]:
    """Look at an environment, one thing after the other; the first error ends it.

    Args:
        make: Makes a new environment each time.
        steps: Random steps to take.
    """
    first = make()
    try:
        yield Finding("made", True, first.spec.made_from or "yes")
        yield from _spaces(first.spec)
        seen, seconds = _play(first, steps, _SEED)
        yield Finding("reset and stepped", True, f"{len(seen) - 1} random steps, {seconds * 1000:.2f} ms each")
        yield from _values(first.spec.obs, seen)
        yield from _episodes(first.spec, seen)
        second = make()
        try:
            if second.spec != first.spec:
                raise TaskError(
                    f"a second environment has {second.spec.spaces}, the first {first.spec.spaces}; each call must "
                    "make the same kind"
                )
            yield _compared(seen, _play(second, steps, _SEED)[0])
            other = _play(second, 1, _SEED + 1)[0][0]
        finally:
            second.close()
        same = all(np.array_equal(other.obs[name], x) for name, x in seen[0].obs.items())
        found = "every seed gives the same first observation" if same else "seeds give different first observations"
        yield Finding("starts", True, found)
    finally:
        first.close()


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


def _spaces(spec: EnvSpec) -> Iterator[Finding]:
    parts = ", ".join(f"{name} {type(part).__name__.lower()} {part.shape}" for name, part in spec.obs.parts)
    yield Finding("observations", True, parts)
    action: Any = spec.action
    bounds = f"{action.dim} numbers" if hasattr(action, "low") else f"choices of {action.choices}"
    yield Finding("actions", True, bounds)
    known = spec.episode_length is not None
    found = f"truncated after {spec.episode_length:,} steps" if known else "no limit is known"
    yield Finding("episode length", True, found)


def _values(obs: ObsSpec, seen: list[Step]) -> Iterator[Finding]:
    for name, part in obs.parts:
        if not isinstance(part, Vector):
            continue
        values = np.abs(np.stack([step.obs[name] for step in seen]))
        place = int(values.max(axis=0).argmax())
        most = float(values.max())
        found = f"observations reach {most:.4g} in {part.component(place, name)}"
        fix = "normalise them: normalise_observations=all (--normalise-observations all), or scale them"
        yield Finding("size of observations", most <= LARGE, found, fix)
    rewards = [step.reward for step in seen[1:]]
    if rewards:
        yield Finding("rewards", True, f"from {min(rewards):.4g} to {max(rewards):.4g}")


def _episodes(spec: EnvSpec, seen: list[Step]) -> Iterator[Finding]:
    ended = sum(step.terminated or step.truncated for step in seen)
    endless = spec.episode_length is None and not ended
    found = f"{ended} ended in these steps"
    if endless:
        found = f"no episode ended in {len(seen) - 1} random steps, and the environment declares no limit"
    yield Finding("ends of episodes", True, found)


def _compared(seen: list[Step], again: list[Step]) -> Finding:
    """Whether the same seed and actions give the same again, in another environment."""
    fix = "give reset(seed=...) all of its randomness (self.np_random); resuming a run is not exact without"
    for number, (one, other) in enumerate(zip(seen, again, strict=True)):
        same = all(np.array_equal(other.obs[name], x) for name, x in one.obs.items())
        if not same or one[1:] != other[1:]:
            when = "at the reset" if number == 0 else f"at step {number}"
            found = f"a second environment with the same seed and actions gave something else {when}"
            return Finding("repeated", False, found, fix)
    return Finding("repeated", True, "a second environment with the same seed and actions gave the same")
