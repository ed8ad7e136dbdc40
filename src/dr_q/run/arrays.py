"""Pytrees as safetensors: one array per path, nothing else."""

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from dr_q.kit import ConfigError

_OTHER_VERSION = "it belongs to another environment, or another version of dr-q: use that one, or train again"


class DamagedError(ConfigError):
    """A file that is not what was once written."""


def named(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a pytree under their paths."""
    return {_name(path): np.asarray(leaf) for path, leaf in jax.tree.leaves_with_path(tree)}


def fill(template: Any, arrays: dict[str, np.ndarray], what: str) -> Any:
    """A pytree like the template with the arrays of the same paths; shapes must agree."""

    def one(path: Any, leaf: Any) -> np.ndarray:
        name = _name(path)
        if name not in arrays:
            raise ConfigError(f"{what} has no array '{name}'; {_OTHER_VERSION}")
        shape = arrays[name].shape
        if shape != leaf.shape:
            raise ConfigError(f"{what}: '{name}' has shape {shape}, expected {leaf.shape}; {_OTHER_VERSION}")
        return arrays[name].astype(leaf.dtype, copy=False)

    return jax.tree.map_with_path(one, template)


def write(path: Path, arrays: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> None:
    """Write a file so that it is there whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.touch()
    mode = stat.S_IMODE(part.stat().st_mode)  # as for other files; safetensors lets nobody else read its own
    try:
        save_file({name: np.ascontiguousarray(x) for name, x in arrays.items()}, part, metadata)
    except SafetensorError as error:
        raise OSError(errno.EIO, f"could not be written ({error}); is there space left?", str(path)) from None
    with contextlib.suppress(OSError):  # not every file system has modes
        part.chmod(mode)
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path)


def read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file; DamagedError where it has none."""
    try:
        return load_file(path)
    except (SafetensorError, FileNotFoundError) as error:
        raise DamagedError(f"{path} cannot be read ({error})") from None


def shapes(tree: Any) -> dict[str, Any]:
    """Shapes and types of a pytree's arrays, by path."""
    return {_name(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
