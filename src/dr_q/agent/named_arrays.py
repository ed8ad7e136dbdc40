"""Pytrees as arrays by name, for files: an array's name is its path."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from dr_q.kit import RunFolderError

_OTHER_VERSION = "it belongs to another environment, or another version of dr-q: use that one, or train again"


def named_arrays(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a pytree by name."""
    return {name: np.asarray(leaf) for name, leaf in named_leaves(tree).items()}


def named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a pytree by name: arrays, or the shapes and types that stand for them."""
    return {_name(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}


def fill_tree(template: Any, arrays: Mapping[str, np.ndarray], what: str) -> Any:
    """A pytree like the template with the arrays of the same names.

    Args:
        template: Anything with the shapes and types, for instance of `jax.eval_shape`.
        arrays: By name; more than the template has are passed over.
        what: Where they are from, for the error.

    Raises:
        RunFolderError: If an array is missing or has another shape.
    """

    def one(path: Any, leaf: Any) -> np.ndarray:
        name = _name(path)
        if name not in arrays:
            raise RunFolderError(f"{what} has no array '{name}'; {_OTHER_VERSION}")
        shape = arrays[name].shape
        if shape != leaf.shape:
            raise RunFolderError(f"{what}: '{name}' has shape {shape}, expected {leaf.shape}; {_OTHER_VERSION}")
        return arrays[name].astype(leaf.dtype, copy=False)

    return jax.tree.map_with_path(one, template)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
