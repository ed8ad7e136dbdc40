"""A policy folder: a file of weights for each seed, and policy.json, which says what they are."""

import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dr_q.kit import ConfigError, DamagedFileError, RunFolderError, spelled, write_text
from dr_q.run_folder.arrays import arrays_digest, read_arrays, read_belongs_to, write_arrays
from dr_q.run_folder.formats import FORMAT, check_format, upgrade_policy_record, upgrade_weights
from dr_q.run_folder.json_files import Fields, read_json
from dr_q.spaces import Spaces, spaces_from_json, spaces_to_json

POLICY_FOLDER = "policy"
"""In a run's folder."""
BEST_FOLDER = "best"
"""In its policy folder: the best policy of each seed over time."""
_RECORD = "policy.json"
_FILE = "seed{seed}.safetensors"
_DIGEST = "weights_sha256"
"""In the metadata of a file of weights. Files of earlier versions have none."""
_EXPORTED = ("policy.onnx", "weights.npz", "weights.pt")
"""Files of exports that run without dr-q."""


def write_policies(
    folder: Path, spaces: Spaces, record: Mapping[str, Any], by_seed: Mapping[int, Mapping[str, np.ndarray]]
) -> None:
    """Write a policy folder.

    Args:
        folder: Where to.
        spaces: What the policies observe and how they act.
        record: What else is known of them: task, seeds, best_seed, agent_steps, config, ...
        by_seed: Weights of each seed, by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for seed, weights in by_seed.items():
        # In the file itself: a kill between these files and the record must not make whole files look damaged.
        write_arrays(folder / _FILE.format(seed=seed), dict(weights), {_DIGEST: arrays_digest(weights)})
    whole = {**record, "format": FORMAT, "spaces": spaces_to_json(spaces)}
    write_text(folder / _RECORD, json.dumps(whole, indent=1) + "\n")


def tidy_policies(run: Path) -> None:
    """Remove what a kill left of files that were being written in a run's policy folders."""
    for folder in (run / POLICY_FOLDER, run / POLICY_FOLDER / BEST_FOLDER):
        for kind in (".tmp*", "*.part"):  # what safetensors writes to, and what `replace_file` does
            for left in folder.glob(kind):
                with contextlib.suppress(OSError):
                    left.unlink()


def policy_record(path: str | Path) -> dict[str, Any]:
    """What a run's folder, or its `policy` folder, says of its policies, as of this format but for `format` itself."""
    file = _policy_folder(path) / _RECORD
    record = read_json(file)
    version = check_format(record, file)  # first: a newer one may have other fields
    fields = Fields(file, record, "take it from a backup or export again")
    fields.text("task")
    if fields.whole("best_seed", most=2**32 - 1) not in fields.wholes("seeds", most=2**32 - 1):
        raise fields.wrong("best_seed", f"one of the seeds {record['seeds']}")
    fields.whole("agent_steps")
    fields.object("config")
    _check_optional(fields)
    try:
        record = upgrade_policy_record(record, version)
        spaces_from_json(record["spaces"])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError):
        raise fields.damaged("it has no spaces that can be read") from None
    return record


def _check_optional(fields: Fields) -> None:
    """Refuse fields that a record may lack, where they are not what they must be."""
    kinds = {
        "preset": fields.text,
        "noise_dims": fields.whole,
        "training": fields.object,
        "reward_scale": fields.number,
    }
    for name, read in kinds.items():
        if name in fields.values:
            read(name)
    for name in ("returns", "fresh_returns", "agent_steps_of"):
        for seed in fields.object(name) if name in fields.values else ():
            if not re.fullmatch(r"[0-9]{1,10}", seed):
                raise fields.wrong(name, "a number for each seed")
            inner = fields.inner(name)
            inner.whole(seed) if name == "agent_steps_of" else inner.number(seed)


def policy_file(path: str | Path, record: Mapping[str, Any], seed: int | None) -> tuple[Path, int]:
    """The weights of a seed, by default of the one whose last evaluation was best, and which it is."""
    seed = int(record["best_seed"] if seed is None else seed)
    if seed not in record["seeds"]:
        raise RunFolderError(f"no seed {seed} in {path}; it has {', '.join(map(str, record['seeds']))}")
    file = _policy_folder(path) / _FILE.format(seed=seed)
    if not file.exists():
        raise RunFolderError(f"{file} is not there, though the folder's {_RECORD} names it; choose another seed")
    return file, seed


def step_of_seed(record: Mapping[str, Any], seed: int) -> int:
    """Agent steps of a seed's weights; the best ones over time are of different steps."""
    return int(record.get("agent_steps_of", {}).get(str(seed), record["agent_steps"]))


def read_policy_weights(file: Path, record: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The weights in a file of a policy folder, under the names of this version.

    Raises:
        DamagedFileError: If the file cannot be read, or its weights are not those that were written.
    """
    weights = read_arrays(file)
    written = read_belongs_to(file).get(_DIGEST)
    if written is not None and written != arrays_digest(weights):
        raise DamagedFileError(
            f"{file} is damaged: its weights differ from their checksum; take it from a backup, export again, or "
            "resume the run, which writes its policies at the next evaluation"
        )
    return upgrade_weights(weights, record.get("format", 1))


def policy_folder(path: str | Path, which: str = "last") -> Path:
    """The policy folder of a run, or of a policy folder itself.

    Args:
        path: A run's folder, its `policy` folder, or an exported policy.
        which: "last": as of the last evaluation; "best": the best of each seed over time.

    Raises:
        RunFolderError: If there is none.
    """
    if which not in (names := ("last", BEST_FOLDER)):
        raise ConfigError(f"{spelled('which')} must be {' or '.join(names)}, got {which!r}")
    folder = _policy_folder(path)
    if which == "last" or folder.name == BEST_FOLDER:
        return folder
    if not (folder / BEST_FOLDER / _RECORD).exists():
        raise RunFolderError(
            f"no best policy in {path}: a run keeps it in {POLICY_FOLDER}/{BEST_FOLDER} from its first evaluation on, "
            f"unless it was made by an earlier version or with keep_best off; load the last one instead"
        )
    return folder / BEST_FOLDER


def _why_no_policy(path: Path) -> str:
    """What is there instead, and what to give."""
    if not path.is_dir():
        return "there is no such folder" if not path.exists() else "it is not a folder"
    if any((path / name).exists() for name in _EXPORTED):
        return "it is an export that runs without dr-q; its README.md says how to use it"
    inside = sorted(found.parent.parent.name for found in path.glob(f"*/{POLICY_FOLDER}/{_RECORD}"))
    if inside:
        more = f" and {len(inside) - 5} more" if len(inside) > 5 else ""
        return f"give one of the runs in it: {', '.join(inside[:5])}{more}"
    return f"expected policy/{_RECORD}; give a run's folder or its policy folder"


def _policy_folder(path: str | Path) -> Path:
    folder = Path(path)
    folder = folder if (folder / _RECORD).exists() else folder / POLICY_FOLDER
    if not (folder / _RECORD).exists():
        raise RunFolderError(f"no policy in {path}: {_why_no_policy(Path(path))}")
    return folder
