"""Versions of the files, and what older ones become when they are read.

Format 1 (to 0.1.0 at 675da62) had observations without named parts and a replay in one piece.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dr_q.kit import RunFolderError
from dr_q.spaces import SINGLE, ContinuousActions, Image, ObsSpec, Part, Spaces, Vector, spaces_from_json

FORMAT = 2
"""Of what this version writes; `format` in checkpoint.json and policy.json, 1 where it is missing."""

_SAMPLING = ("priority", "row_sums", "group_sums", "max_priority")
_RENAMED = {"floor_slot": "watch_slot"}


def check_format(record: Mapping[str, Any], path: Path) -> int:
    """The format that a file's record names; RunFolderError if it is newer than this version."""
    version = record.get("format", 1)
    if not isinstance(version, int) or version > FORMAT:
        raise RunFolderError(
            f"{path} has format {version}, this version of dr-q reads formats up to {FORMAT}: use a newer version"
        )
    return version


def upgrade_weights(arrays: Mapping[str, np.ndarray], version: int) -> dict[str, np.ndarray]:
    """Weights of agents or policies: the state encoder has branches by part of the observation."""
    if version >= 2:
        return dict(arrays)
    branch = rf"\1state.branches.{SINGLE}.\2."
    return {re.sub(r"(^|\.)state\.(mlp|convs|linear)\.", branch, name): x for name, x in arrays.items()}


def upgrade_replay(arrays: Mapping[str, np.ndarray], version: int) -> dict[str, np.ndarray]:
    """What replay.safetensors holds: storage and sampler are apart."""
    if version >= 2:
        return dict(arrays)
    upgraded = {}
    for name, x in arrays.items():
        first, *rest = name.split(".")
        room = "sampling" if first in _SAMPLING else "storage"
        upgraded[".".join([room, _RENAMED.get(first, first), *rest])] = x
    return upgraded


def upgrade_chunk(arrays: Mapping[str, np.ndarray], priority: np.ndarray, version: int) -> dict[str, np.ndarray]:
    """A chunk of transitions; `priority` is that of its slots, by which final observations were known."""
    if version >= 2:
        return dict(arrays)
    upgraded = {f"obs.{SINGLE}" if name == "obs" else name: x for name, x in arrays.items()}
    return {**upgraded, "is_transition": priority[: len(arrays["reward"])] > 0}


def upgrade_step(arrays: Mapping[str, np.ndarray], version: int) -> dict[str, np.ndarray]:
    """The step under way, of episodes.safetensors."""
    if version >= 2:
        return dict(arrays)
    return {f"frame.{SINGLE}" if name == "frame" else name: x for name, x in arrays.items()}


def spaces_of(record: Mapping[str, Any]) -> Spaces:
    """What policy.json says of observations and actions; KeyError, TypeError or ValueError where it is damaged."""
    if "spaces" in record:
        return spaces_from_json(record["spaces"])
    shape, stack = tuple(record["obs_shape"]), record["history"]
    if len(shape) == 3:
        part: Part = Image(shape[0] // stack, shape[1], shape[2], stack)
    else:
        fields = tuple((key, tuple(own)) for key, own in record.get("obs_parts", ()))
        part = Vector(shape[0], fields=fields)
    own = record.get("action_shape")
    action = ContinuousActions(
        tuple(map(float, record["action_low"])),
        tuple(map(float, record["action_high"])),
        None if own is None else tuple(own),
    )
    return Spaces(ObsSpec.single(part), action)
