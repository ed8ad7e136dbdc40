"""A policy as plain data: arrays by name, without padding, and a description of what it observes and how it acts.

Every form of an export is made of this, so that all of them hold the same.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from dr_q.networks import DiscreteActor, ImageBranch, Linear
from dr_q.networks.layers import MLP
from dr_q.networks.normaliser import EPSILON, LARGEST, Normaliser
from dr_q.policies.policy import Policy
from dr_q.spaces import SINGLE, ActionScale, ActionSpec, ContinuousActions, Image, Part, Vector

Precision = Literal["float32", "float16"]
NORMALISER_ARRAYS = ("mean", "deviation")
"""What keeps float32 whatever the precision: observations may be large."""


class PortablePolicy(NamedTuple):
    """What a runtime needs; `spec` is of JSON's kinds alone."""

    spec: dict[str, Any]
    """`parts`: for each its kind, `stack`, the `axis` that frames are joined along, whether it is `normalised`, and its
    `fields`; `action`; `activations` of the encoder and the actor; `task`, `seed` and `agent_steps`."""
    arrays: dict[str, np.ndarray]
    """`part0_linear1_weight` [out, in], `part0_conv1_weight` [out, in, 3, 3], `part0_mean`, `actor_linear1_weight` ...;
    those of a network in the precision that was asked for."""


def portable_policy(policy: Policy, precision: Precision) -> PortablePolicy:
    """A policy as plain data."""
    networks = policy.networks
    arrays: dict[str, np.ndarray] = {}
    parts: list[dict[str, Any]] = []
    for i, (name, part) in enumerate(policy.spaces.obs.parts):
        branch = networks.state.branches[name]
        normaliser = networks.normaliser if networks.normaliser and name in networks.normaliser.mean else None
        if isinstance(branch, ImageBranch):
            for j, conv in enumerate(branch.convs, start=1):
                arrays |= _pair(f"part{i}_conv{j}", conv.weight, conv.bias)
            arrays |= _pair(f"part{i}_linear", branch.linear.weight, branch.linear.bias)
        else:
            arrays |= _mlp(f"part{i}", branch.mlp, part.shape[0])
        if normaliser is not None:
            arrays |= _normalisation(f"part{i}", normaliser, name, part)
        parts.append(_part(name, part, alone=len(policy.spaces.obs.parts) == 1, normalised=normaliser is not None))
    actor = networks.actor
    arrays |= _mlp("actor", actor.mlp, networks.state.branches[policy.spaces.obs.parts[0][0]].last.bias.size)
    kept = {name: x if name.endswith(NORMALISER_ARRAYS) else x.astype(precision) for name, x in arrays.items()}
    spec = {
        "task": policy.task,
        "seed": policy.seed,
        "agent_steps": policy.agent_steps,
        "parts": parts,
        "activations": [networks.state.activation, actor.mlp.activation],
        "action": _action(policy.spaces.action),
    }
    assert isinstance(actor, DiscreteActor) == (spec["action"]["kind"] == "discrete")
    return PortablePolicy(spec, kept)


def fields(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The fields of all parts: what an environment gives."""
    return itertools.chain.from_iterable(part["fields"] for part in spec["parts"])


def _pair(name: str, weight: Any, bias: Any) -> dict[str, np.ndarray]:
    return {f"{name}_weight": np.asarray(weight), f"{name}_bias": np.asarray(bias)}


def _mlp(name: str, mlp: MLP, n_in: int) -> dict[str, np.ndarray]:
    """The layers without padding."""

    def cut(layer: Linear, n_out: int, n_in: int) -> tuple[Any, Any]:
        return np.asarray(layer.weight)[:n_out, :n_in], np.asarray(layer.bias)[:n_out]

    width, n_out = mlp.width, mlp.output.bias.size
    sizes = {1: (mlp.hidden1, width, n_in), 2: (mlp.hidden2, width, width), 3: (mlp.output, n_out, width)}
    return {k: v for i, layer in sizes.items() for k, v in _pair(f"{name}_linear{i}", *cut(*layer)).items()}


def _normalisation(name: str, normaliser: Normaliser, part_name: str, part: Part) -> dict[str, np.ndarray]:
    assert LARGEST == 10  # as the forms have it
    variance = np.asarray(normaliser.variance[part_name])
    deviation = np.sqrt(variance + np.float32(EPSILON))
    return {
        f"{name}_mean": np.tile(np.asarray(normaliser.mean[part_name]), part.stack),
        f"{name}_deviation": np.tile(deviation, part.stack),
    }


def _part(name: str, part: Part, *, alone: bool, normalised: bool) -> dict[str, Any]:
    if isinstance(part, Image):
        image = {"path": name, "kind": "image", "shape": [part.height, part.width, part.channels]}
        return {"kind": "image", "stack": part.stack, "axis": -3, "normalised": False, "fields": [image]}
    whole = "" if alone and name == SINGLE else name
    found = [_field(whole, path, shape, part) for path, shape in part.fields]
    if sum(field_length(field) for field in found) != part.size:  # a plain vector, or one that ends in noise
        found = [{"path": whole, "kind": "number", "shape": [part.size]}]
    return {"kind": "vector", "stack": part.stack, "axis": -1, "normalised": normalised, "fields": found}


def _field(whole: str, path: str, shape: tuple[int, ...], part: Vector) -> dict[str, Any]:
    field = {"path": "/".join(x for x in (whole, path) if x), "kind": "number", "shape": list(shape)}
    for at, choices, start in part.choices:
        if at == path:
            # Entry k of the joined one-hot vectors says whether the choice in column columns[k] is values[k].
            columns = [i for i, count in enumerate(choices) for _ in range(count)]
            values = [first + j for first, count in zip(start, choices, strict=True) for j in range(count)]
            return {**field, "kind": "choice", "columns": columns, "values": values}
    return field


def field_length(field: dict[str, Any]) -> int:
    """Numbers that a field of a vector adds to it."""
    return len(field["values"]) if field["kind"] == "choice" else math.prod(field["shape"])


def _action(action: ActionSpec) -> dict[str, Any]:
    if isinstance(action, ContinuousActions):
        scale = ActionScale(action)
        shape = list(action.shape) if action.shape is not None else [action.dim]
        least, most = ([float(x) for x in bound] for bound in scale.within)
        bounds = {"low": list(action.low), "high": list(action.high), "least": least, "most": most}
        return {"kind": "continuous", "shape": shape, **bounds}
    start = list(action.start or (0,) * len(action.choices))
    return {"kind": "discrete", "shape": list(action.shape), "choices": list(action.choices), "start": start}
