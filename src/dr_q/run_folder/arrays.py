"""Files of arrays by name (safetensors)."""

import contextlib
import errno
import stat
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from dr_q.kit import DamagedFileError, replace_file


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file of arrays atomically."""
    with replace_file(path) as part:
        part.touch()
        mode = stat.S_IMODE(part.stat().st_mode)  # as for other files; safetensors lets nobody else read its own
        try:
            save_file({name: np.ascontiguousarray(x) for name, x in arrays.items()}, part)
        except SafetensorError as error:
            raise OSError(errno.EIO, f"could not be written ({error}); is there space left?", str(path)) from None
        with contextlib.suppress(OSError):  # not every file system has modes
            part.chmod(mode)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file.

    Raises:
        DamagedFileError: If it is missing or not such a file.
    """
    try:
        return load_file(path)
    except (SafetensorError, FileNotFoundError) as error:
        raise DamagedFileError(f"{path} cannot be read ({error})") from None
