"""An export compared with the policy that it was made of, and its time for one action."""

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from dr_q import agent as drq
from dr_q.kit import ToolError
from dr_q.networks import DiscreteActor
from dr_q.policies.policy import Policy
from dr_q.policies.portable.forms import Runner
from dr_q.spaces import ContinuousActions, Image, ObsSpec, Vector, one_hot, to_env_action

OBSERVATIONS = 1_000
"""What an export is compared on."""
LARGEST_DIFFERENCE = 1e-5
"""Of actions in [-1, 1] from those of our own policy with the same weights; of logits, relative to the largest.

Both are compared with the exact actions, and our own policy's rounding (`own_rounding`) is allowed for.
"""
LARGEST_FLOAT16_DIFFERENCE = 3e-2
"""The same from our own policy before its weights were rounded to float16.

About twice the largest that was measured (benchmarks/results/float16.md).
"""
_ROWS = 125
"""Observations computed at once."""
_TIMED = 300
_WARM_UP = 30
_ROUNDINGS = 4
"""Steps of float32 by which actions in the environment's units may differ besides."""

Parts = Mapping[str, np.ndarray]
"""A batch of observations by part, frames stacked."""


class Latency(NamedTuple):
    """Of one action, in milliseconds."""

    median: float
    slow: float
    """The 99th percentile."""

    def __str__(self) -> str:
        """As it is printed."""
        return f"{self.median:.3g} ms per action (99% within {self.slow:.3g} ms)"


class Difference(NamedTuple):
    """How an export's actions differ from our own policy's."""

    largest: float
    """In [-1, 1]; of logits relative to the largest one, or to 1."""
    observations: int


def sample_observations(policy: Policy, seen: Parts | None) -> dict[str, np.ndarray]:
    """1,000 observations: half of them seen in episodes, if there are any, the others random.

    Args:
        policy: What observes.
        seen: Observations of its episodes.
    """
    have = 0 if seen is None else min(OBSERVATIONS // 2, len(next(iter(seen.values()))))
    rng = np.random.default_rng(0)
    drawn = _random_observations(policy, OBSERVATIONS - have, rng)
    if seen is None:
        return drawn
    rows, order = rng.permutation(len(next(iter(seen.values()))))[:have], rng.permutation(OBSERVATIONS)
    return {name: np.concatenate([seen[name][rows], x])[order] for name, x in drawn.items()}


def _random_observations(policy: Policy, count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    normaliser = policy.networks.normaliser
    for name, part in policy.spaces.obs.parts:
        if isinstance(part, Image):
            found[name] = _random_images(part, count, rng)
            continue
        x = rng.normal(size=(count, *part.shape)) * 10.0 ** rng.uniform(-1, 1, (count, 1))
        if normaliser is not None and name in normaliser.mean:
            mean, variance = (np.tile(np.asarray(y[name]), part.stack) for y in (normaliser.mean, normaliser.variance))
            x = mean + np.sqrt(variance) * x
        found[name] = _with_choices(part, x, rng).astype(np.float32)
    return found


def _random_images(part: Image, count: int, rng: np.random.Generator) -> np.ndarray:
    """Noise in every other image, areas of one colour in the others."""
    images = rng.integers(0, 256, (count, *part.shape), np.uint8)
    sides = math.ceil(part.height / 8), math.ceil(part.width / 8)
    coarse = rng.integers(0, 256, (len(images[::2]), part.shape[0], *sides), np.uint8)
    images[::2] = coarse.repeat(8, axis=2).repeat(8, axis=3)[:, :, : part.height, : part.width]
    return images


def _with_choices(part: Vector, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One-hot vectors where the part has choices."""
    hot = {path: choices for path, choices, _ in part.choices}
    at = 0
    for path, shape in part.fields if hot else ():
        for count in hot.get(path, ()):
            x[:, at : at + count] = one_hot(rng.integers(count, size=(len(x), 1)), (count,), (0,))
            at += count
        at += 0 if path in hot else math.prod(shape)
    return x


def compare_with_policy(policy: Policy, spec: dict[str, Any], runner: Runner, observations: Parts) -> Difference:
    """Run an export on observations and compare its actions with the policy's.

    Stacks of frames are given to it frame by frame, as episodes that begin with the oldest.

    Args:
        policy: Our own policy, with the same weights.
        spec: What the export observes (`PortablePolicy.spec`).
        runner: The export.
        observations: By part.

    Raises:
        ToolError: If an action in the environment's units is another than that in [-1, 1] says.
    """
    largest, compared = 0.0, 0
    for rows in _chunks(observations):
        runner.reset()
        for frame in range(policy.spaces.obs.stack):
            own, unit = runner.act(_entries(spec, policy.spaces.obs, rows, frame))
            expected = reference_actions(policy.networks, _stacks_until(policy.spaces.obs, rows, frame))
            if unit.shape != expected.shape:
                raise ToolError(f"the export gives actions of shape {unit.shape}, our own policy {expected.shape}")
            largest = max(largest, _difference(policy, unit, expected))
            _check_env_actions(policy, own, unit)
            compared += len(unit)
        if compared >= OBSERVATIONS:
            break
    return Difference(largest, compared)


def compare_networks(policy: Policy, other: Policy, observations: Parts) -> Difference:
    """The difference of two policies of the same spaces."""
    largest, compared = 0.0, 0
    for rows in _chunks(observations):
        ours, theirs = (reference_actions(one.networks, rows) for one in (policy, other))
        largest, compared = max(largest, _difference(policy, theirs, ours)), compared + len(ours)
    return Difference(largest, compared)


def own_rounding(policy: Policy, observations: Parts) -> float:
    """How far our own float32 policy is from the exact actions: no export can be closer to it than that."""
    return max(
        _difference(policy, np.asarray(_forward(policy.networks, dict(rows))), reference_actions(policy.networks, rows))
        for rows in _chunks(observations)
    )


def latency(spec: dict[str, Any], runner: Runner, obs: ObsSpec, observations: Parts) -> Latency:
    """The time for one action of one observation after the other, here and now."""
    one = {name: x[:1] for name, x in observations.items()}
    entries = _entries(spec, obs, one, 0)
    runner.reset()
    return timed(lambda: runner.act(entries))


def timed(act: Any) -> Latency:
    """The time of a call."""
    seconds = []
    for _ in range(_WARM_UP + _TIMED):
        start = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - start)
    median, slow = np.quantile(seconds[_WARM_UP:], [0.5, 0.99])
    return Latency(1000 * float(median), 1000 * float(slow))


def reference_actions(networks: drq.PolicyNetworks, parts: Parts) -> np.ndarray:
    """What a policy's networks give, in [-1, 1] or as logits: on the CPU and in float64.

    Our float32 policy is up to 2.9e-5 from these actions for a trained policy (results/policies/walker-run); NumPy,
    PyTorch and ONNX Runtime are up to 1.8e-5.
    """
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        wide = jax.tree.map(_in_float64, networks)
        return np.asarray(_forward(wide, {name: _in_float64(x) for name, x in parts.items()}))


def _in_float64(x: Any) -> np.ndarray:
    """The same numbers; images stay as they are."""
    return np.asarray(x, np.float64) if np.asarray(x).dtype == np.float32 else np.asarray(x)


@jax.jit
def _forward(networks: drq.PolicyNetworks, parts: dict[str, jax.Array]) -> jax.Array:
    z_s = networks.z_s(parts)
    return networks.actor.pre_activation(z_s) if isinstance(networks.actor, DiscreteActor) else networks.actor(z_s)


def _difference(policy: Policy, unit: np.ndarray, expected: np.ndarray) -> float:
    if not np.isfinite(unit).all():
        return math.inf
    found = np.abs(unit.astype(np.float64) - expected)
    if not isinstance(policy.spaces.action, ContinuousActions):
        found = found / np.maximum(1, np.abs(expected).max(axis=-1, keepdims=True))
    return float(found.max(initial=0.0))


def _check_env_actions(policy: Policy, own: np.ndarray, unit: np.ndarray) -> None:
    """Refuse actions in the environment's units that do not follow from those in [-1, 1]."""
    action = policy.spaces.action
    expected = to_env_action(action)(unit)
    allowed = np.zeros(())
    if isinstance(action, ContinuousActions):
        low, high = (np.reshape(x, expected.shape[1:]) for x in (action.low, action.high))
        outermost = np.maximum(np.abs(low), np.abs(high))
        allowed = _ROUNDINGS * np.spacing(outermost.astype(np.float32)) + LARGEST_DIFFERENCE * (high - low) / 2
        outside = (own < low) | (own > high)
        if outside.any():
            raise ToolError(f"the export gives an action outside the environment's bounds: {own[outside.any(-1)][0]}")
    if own.shape != expected.shape or (np.abs(own - expected) > allowed).any():
        raise ToolError("the export's actions in the environment's units are not those that [-1, 1] says")


def _chunks(observations: Parts) -> Iterator[dict[str, np.ndarray]]:
    count = len(next(iter(observations.values())))
    for start in range(0, count, _ROWS):
        yield {name: x[start : start + _ROWS] for name, x in observations.items()}


def _stacks_until(obs: ObsSpec, rows: Parts, frame: int) -> dict[str, np.ndarray]:
    """What is observed after that many further frames, if the episode begins with the oldest."""
    found = {}
    for name, part in obs.parts:
        frames = np.split(rows[name], part.stack, axis=1)
        seen = frames[: min(frame, part.stack - 1) + 1]
        later = [frames[-1]] * (frame - part.stack + 1)  # of a part with a shorter stack: it stays as it is
        stack = [seen[0]] * part.stack + seen[1:] + later
        found[name] = np.concatenate(stack[-part.stack :], axis=1)
    return found


def _entries(spec: dict[str, Any], obs: ObsSpec, rows: Parts, frame: int) -> dict[str, np.ndarray]:
    """One frame of each part as the environment gives it: arrays by path."""
    found: dict[str, np.ndarray] = {}
    for (name, part), described in zip(obs.parts, spec["parts"], strict=True):
        x = np.split(rows[name], part.stack, axis=1)[min(frame, part.stack - 1)]
        at = 0
        for field in described["fields"]:
            if field["kind"] == "image":
                found[field["path"]] = np.ascontiguousarray(np.moveaxis(x, 1, -1))
                continue
            length = len(field["values"]) if field["kind"] == "choice" else math.prod(field["shape"])
            own = x[:, at : at + length]
            at += length
            if field["kind"] == "choice":
                own = _chosen(own, field)
            found[field["path"]] = own.reshape(len(x), *field["shape"])
    return found


def _chosen(hot: np.ndarray, field: dict[str, Any]) -> np.ndarray:
    """The values of joined one-hot vectors, [rows, number of choices]."""
    columns, values = np.array(field["columns"]), np.array(field["values"])
    picked = [values[columns == i][hot[:, columns == i].argmax(axis=1)] for i in range(columns.max() + 1)]
    return np.stack(picked, axis=1)
