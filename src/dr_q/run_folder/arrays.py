"""Files of arrays by name (safetensors), each with a record of what it belongs to."""

import concurrent.futures
import contextlib
import errno
import hashlib
import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from dr_q.kit import DamagedFileError, check_is_file, replace_file, sha256_of

_OWN = "dr_q"
"""The one entry of a file's metadata: several would be written in any order, and files must be the same to the byte."""


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], belongs_to: Mapping[str, Any] | None = None) -> str:
    """Write a file of arrays atomically.

    Args:
        path: Where to.
        arrays: By name.
        belongs_to: What the file says of itself: its format, step, seeds.

    Returns:
        The file's SHA-256.
    """
    with contextlib.ExitStack() as stack:
        with replace_file(path) as part:
            part.touch()
            mode = stat.S_IMODE(part.stat().st_mode)  # as for other files; safetensors lets nobody else read its own
            own = None if belongs_to is None else {_OWN: json.dumps(belongs_to)}
            try:
                save_file({name: np.ascontiguousarray(x) for name, x in arrays.items()}, part, own)
            except SafetensorError as error:
                raise OSError(errno.EIO, f"could not be written ({error}); is there space left?", str(path)) from None
            with contextlib.suppress(OSError):  # not every file system has modes
                part.chmod(mode)
            # While the disk takes the file.
            file = stack.enter_context(part.open("rb"))
            thread = stack.enter_context(concurrent.futures.ThreadPoolExecutor(1))
            digest = thread.submit(sha256_of, file)
        return digest.result()


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file.

    Raises:
        DamagedFileError: If it is missing or not such a file.
    """
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict


def arrays_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of arrays by name, wherever they are kept."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        x = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {x.dtype} {x.shape}\n".encode())
        digest.update(x.tobytes())
    return digest.hexdigest()


def read_belongs_to(path: Path) -> dict[str, Any]:
    """What a file of arrays says of itself; empty if it says nothing.

    Raises:
        DamagedFileError: If it is missing or not such a file.
    """
    with _opened(path) as file:
        own = (file.metadata() or {}).get(_OWN, "{}")
    try:
        said = json.loads(own)
    except (ValueError, RecursionError):
        said = {}
    return said if isinstance(said, dict) else {}


@contextlib.contextmanager
def _opened(path: Path):
    check_is_file(path)
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except (SafetensorError, FileNotFoundError, IsADirectoryError, KeyError) as error:
        raise DamagedFileError(f"{path} cannot be read ({error})") from None
