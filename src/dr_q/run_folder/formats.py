"""Versions of the files, and what older ones become when they are read.

Format 1 (to 0.1.0 at 675da62) had observations without named parts and a replay in one piece. Format 2 had no
checksums, and its files of arrays did not say what they belong to.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dr_q.kit import DamagedFileError, RunFolderError
from dr_q.spaces import SINGLE, ContinuousActions, Image, ObsSpec, Part, Spaces, Vector, spaces_to_json

FORMAT = 3
"""Of what this version writes; `format` in checkpoint.json and policy.json, 1 where it is missing."""

CHECKSUMS_SINCE = 3
"""The first format whose checkpoints have them."""
_SAMPLING = ("priority", "row_sums", "group_sums", "max_priority")
_RENAMED = {"floor_slot": "watch_slot"}
_SPACES = ("obs_shape", "history", "obs_parts", "action_low", "action_high", "action_shape")


def check_format(record: Mapping[str, Any], path: Path) -> int:
    """The format that a file's record names; RunFolderError if it is newer than this version."""
    version = record.get("format", 1)
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise DamagedFileError(f"{path} is damaged: format must be a whole number of at least 1, got {version!r}")
    if version > FORMAT:
        raise RunFolderError(
            f"{path} has format {version}, this version of dr-q reads formats up to {FORMAT}: use a newer version"
        )
    return version


def upgrade_index(record: Mapping[str, Any], version: int) -> dict[str, Any]:
    """What checkpoint.json says."""
    if version >= 2:
        return dict(record)
    return {**record, "encoder_metrics": record.get("encoder_seen")}


def upgrade_policy_record(record: Mapping[str, Any], version: int) -> dict[str, Any]:
    """What policy.json says; its `format` stays that of the weights. KeyError, TypeError or the like if damaged."""
    if version >= 2:
        return dict(record)
    shape, stack = record["obs_shape"], record["history"]
    if len(shape) == 3:
        part: Part = Image(shape[0] // stack, shape[1], shape[2], stack)
    else:
        fields = tuple((key, tuple(own)) for key, own in record.get("obs_parts", ()))
        part = Vector(shape[0], fields=fields)
    low, high = (tuple(map(float, record[name])) for name in ("action_low", "action_high"))
    own = record.get("action_shape")
    spaces = Spaces(ObsSpec.single(part), ContinuousActions(low, high, None if own is None else tuple(own)))
    kept = {name: value for name, value in record.items() if name not in _SPACES}
    return {**kept, "spaces": spaces_to_json(spaces)}


def upgrade_weights(arrays: Mapping[str, np.ndarray], version: int) -> dict[str, np.ndarray]:
    """Weights of agents or policies: the state encoder has branches by part of the observation."""
    if version >= 2:
        return dict(arrays)
    branch = rf"\1state.branches.{SINGLE}.\2."
    return {re.sub(r"(^|\.)state\.(mlp|convs|linear)\.", branch, name): x for name, x in arrays.items()}


def upgrade_replay(arrays: Mapping[str, np.ndarray], version: int) -> dict[str, np.ndarray]:
    """What replay.safetensors holds: storage and sampler are apart, and draws from nothing are counted."""
    if version >= 2:
        return dict(arrays)
    upgraded = {"empty_draws": np.zeros(len(next(iter(arrays.values()), ())), np.int32)}
    for name, x in arrays.items():
        first, *rest = name.split(".")
        room = "sampling" if first in _SAMPLING else "storage"
        upgraded[".".join([room, _RENAMED.get(first, first), *rest])] = x
    return upgraded


def upgrade_chunk(
    arrays: Mapping[str, np.ndarray], replay: Mapping[str, np.ndarray], row: int, start: int, version: int
) -> dict[str, np.ndarray]:
    """A chunk of transitions; final observations were known by the priorities of their slots.

    Args:
        arrays: What the chunk's file holds.
        replay: What `upgrade_replay` gave.
        row: The seed's in it.
        start: The chunk's first slot.
        version: Its format.
    """
    if version >= 2:
        return dict(arrays)
    priority = replay["sampling.priority"][row].reshape(-1)[start:]
    upgraded = {f"obs.{SINGLE}" if name == "obs" else name: x for name, x in arrays.items()}
    return {**upgraded, "is_transition": priority[: len(arrays["reward"])] > 0}


def upgrade_step(arrays: Mapping[str, np.ndarray], version: int) -> dict[str, np.ndarray]:
    """The step under way, of episodes.safetensors."""
    if version >= 2:
        return dict(arrays)
    return {f"frame.{SINGLE}" if name == "frame" else name: x for name, x in arrays.items()}
