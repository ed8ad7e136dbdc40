"""Arrays from files of `torch.save`, without PyTorch and without running anything that a file asks for.

A file is a ZIP archive: a pickle of the values, in which storages stand by number, and the bytes of each storage. Only
the few names that a `state_dict` needs are resolved; any other is refused. A few bytes of a pickle can ask for an array
of any size, so nothing is made that is larger than what the file holds.
"""

import collections
import io
import math
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from dr_q.kit import DamagedFileError

_TYPES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
}
_MOST_BYTES = 8 * 2**30
"""What all storages of a file may hold: agents of this family have tens of megabytes."""
_MOST_VARIABLES = 64 * 2**20
"""Bytes that are read of a file of variables."""


def read_state_dict(file: Path) -> dict[str, np.ndarray]:
    """The arrays of a saved `state_dict`, by name.

    Raises:
        DamagedFileError: If the file is not one of `torch.save`, or holds anything but a flat dict of tensors.
    """
    with file.open("rb") as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                return _arrays(archive)
        except Exception as error:  # a damaged archive, or a damaged pickle, may raise anything
            raise DamagedFileError(
                f"{file} cannot be read as a file of torch.save(network.state_dict(), ...): {type(error).__name__}: "
                f"{str(error)[:200]}"
            ) from error


def _arrays(archive: zipfile.ZipFile) -> dict[str, np.ndarray]:
    (listed,) = [name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"]
    if sum(info.file_size for info in archive.infolist()) > _MOST_BYTES:
        raise pickle.UnpicklingError("more bytes than an agent has")
    found = _Unpickler(archive.read(listed), archive, listed.removesuffix("data.pkl")).load()
    if not isinstance(found, dict) or not all(isinstance(x, np.ndarray) for x in found.values()):
        raise pickle.UnpicklingError("no state_dict: a dict of tensors")
    return {str(name): x for name, x in found.items()}


_SafeUnpickler: Any = pickle._Unpickler  # pyright: ignore[reportAttributeAccessIssue]
"""Python's own: that in C makes room for as many objects as a damaged number says."""


class _Unpickler(_SafeUnpickler):
    def __init__(self, data: bytes, archive: zipfile.ZipFile, folder: str):
        super().__init__(io.BytesIO(data))
        self._archive, self._folder = archive, folder

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        name = f"{module_name}.{global_name}"
        if name == "collections.OrderedDict":
            return collections.OrderedDict
        if name == "torch._utils._rebuild_tensor_v2":
            return _rebuild_tensor
        if name == "torch._utils._rebuild_parameter":
            return lambda tensor, *_: tensor
        if module_name == "torch" and global_name in _TYPES:
            return np.dtype(_TYPES[global_name])
        raise pickle.UnpicklingError(f"it asks for {name}, which weights do not need")

    def persistent_load(self, pid: Any, /) -> np.ndarray:
        kind, dtype, key, _, count = pid
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise pickle.UnpicklingError(f"a storage of kind {kind}")
        return np.frombuffer(self._archive.read(f"{self._folder}data/{key}"), dtype)[:count]


def _rebuild_tensor(storage: np.ndarray, offset: int, shape: Any, strides: Any, *_: Any) -> np.ndarray:
    """A tensor's view of its storage, copied."""
    shape, strides = tuple(map(int, shape)), tuple(map(int, strides))
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if min((*shape, 1)) < 1 or min((offset, *strides)) < 0 or max(last, math.prod(shape) - 1) >= storage.size:
        raise pickle.UnpicklingError(f"a tensor of shape {shape} outside its storage of {storage.size} numbers")
    size = storage.itemsize
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, [size * step for step in strides]).copy()


class _Inert:
    """Stands for an object of any class that is not numpy's own; keeps its fields, and runs nothing."""

    def __new__(cls, *_: Any) -> "_Inert":
        made = super().__new__(cls)
        made.fields = {}
        return made

    def __init__(self, *_: Any):
        self.fields: dict[str, Any]

    def __call__(self, *_: Any) -> "_Inert":
        """What a file calls a function for."""
        return _Inert()

    def __setstate__(self, state: Any) -> None:
        self.fields = state if isinstance(state, dict) else {}


class _Array(_Inert):
    """Stands for an array; keeps what it holds as the file has it."""

    def __init__(self, *_: Any):
        self.held: Any = None

    def __setstate__(self, state: Any) -> None:
        self.held = state[-1] if isinstance(state, tuple) and state else None


class _InertUnpickler(_SafeUnpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name.partition(".")[0] == "numpy":
            if global_name in ("_reconstruct", "ndarray"):
                return _Array
            if global_name in ("dtype", "scalar"):
                return super().find_class(module_name, global_name)
        return _Inert


def read_saved_variables(file: Path) -> dict[str, Any]:
    """The dict in a file of `np.save(file, dict)`: numbers, and the fields of objects as dicts; {} if it has none.

    Objects are not made: of each only its fields are read.
    """
    with file.open("rb") as stream:
        try:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            read(stream)
            found = _InertUnpickler(io.BytesIO(stream.read(_MOST_VARIABLES))).load()
            values = found.held[0] if isinstance(found, _Array) else found
        except Exception as error:
            raise DamagedFileError(f"{file} cannot be read: {type(error).__name__}: {str(error)[:200]}") from error
    if not isinstance(values, dict):
        return {}
    return {str(name): x.fields if isinstance(x, _Inert) else x for name, x in values.items()}
