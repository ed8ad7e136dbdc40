"""Atomic writes: a file is there whole or not at all, and on the disk when the call returns. Checksums, names."""

import contextlib
import csv
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

from dr_q.kit.errors import DamagedFileError

_LONGEST_NAME = 255
"""Bytes of a file's name that file systems allow."""


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A path next to `path` to write to; what was written replaces `path` when the block ends without an error."""
    part = path.with_name(f"{path.name}.part")
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        _name(error, path)
        raise
    sync_folder(path.parent)


def _name(error: BaseException, path: Path) -> None:
    """Say in an error which file it is of: writing itself does not."""
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        error.filename = str(path)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replace_file(path) as part:
        part.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def output_file(path: Path) -> Iterator[Path]:
    """A path to write what a user asked for to: `replace_file` through links, devices and pipes as they are."""
    if path.exists() and not path.is_file():
        yield path
        return
    with replace_file(full_path(path)) as part:
        yield part


@contextlib.contextmanager
def output_csv(path: Path) -> Iterator[Any]:
    """A writer of CSV rows to an `output_file`."""
    with output_file(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        yield csv.writer(file, lineterminator="\n")


def check_is_file(path: Path) -> None:
    """Refuse a pipe or a device in place of a file: reading it may never end.

    Raises:
        DamagedFileError: There is one.
    """
    if not path.is_file() and not path.is_dir() and path.exists():
        raise DamagedFileError(f"{path} is not a regular file; remove it, or restore the file from a backup")


def read_file(path: Path) -> bytes:
    """What a file holds; raises what `check_is_file` does."""
    check_is_file(path)
    return path.read_bytes()


def read_small(path: Path, most: int = 2**20) -> bytes:
    """What a small file holds.

    Raises:
        OSError: It cannot be read, is not a regular file (a device may never end), or has more bytes than `most`.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return data


def check_can_write(path: Path) -> None:
    """Refuse a file that cannot be written, before the work whose result it takes; nothing is made.

    Raises:
        OSError: It is a folder, lies below something that is none, may not be written, or cannot have that name.
    """
    _check_place(path, is_folder=False)


def check_can_make(folder: Path) -> None:
    """Refuse a folder that cannot be made or written into; nothing is made.

    Raises:
        OSError: It is a file, lies below one, may not be written, or cannot have that name.
    """
    _check_place(folder, is_folder=True)


def _check_place(path: Path, *, is_folder: bool) -> None:
    """Look at a path, or at what is nearest above it."""
    real = full_path(path)
    wrong = errno.ENAMETOOLONG if any(len(os.fsencode(part)) > _LONGEST_NAME for part in real.parts) else 0
    if not wrong:
        there = next(place for place in (real, *real.parents) if os.path.lexists(place))
        needs_folder = is_folder or there != real
        try:
            if needs_folder != stat.S_ISDIR(there.stat().st_mode):
                wrong = errno.ENOTDIR if needs_folder else errno.EISDIR
            elif not os.access(there, os.W_OK):
                wrong = errno.EACCES
        except OSError as error:  # links that lead in a circle
            wrong = error.errno or errno.EIO
    if wrong:
        raise OSError(wrong, os.strerror(wrong), str(path))


def full_path(path: str | Path) -> Path:
    """An absolute path without links; one whose links lead in a circle is left to whoever uses it."""
    return Path(os.path.realpath(path))  # `Path.resolve` raises RuntimeError for those


def append_whole(path: Path, data: bytes) -> None:
    """Append to a file of lines: all of `data` or, if that fails, none of it.

    A last line without an end, which a kill or a full disk left, is removed first.
    """
    with path.open("r+b" if path.exists() else "x+b", buffering=0) as file:
        size = _whole_lines(file)
        file.truncate(size)
        file.seek(size)
        try:
            view = memoryview(data)
            while view:
                view = view[file.write(view) or 0 :]
        except BaseException as error:
            with contextlib.suppress(OSError):
                file.truncate(size)
            _name(error, path)
            raise


def _whole_lines(file: FileIO, block: int = 65_536) -> int:
    """Bytes of a file up to the end of its last whole line."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        begin = max(0, end - block)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def sha256_of(file: BufferedReader) -> str:
    """SHA-256 of what an open file holds, in hexadecimal; other threads run meanwhile."""
    return hashlib.file_digest(file, "sha256").hexdigest()


def folder_name(text: str, most: int = _LONGEST_NAME - 55) -> str:
    """A text as the name of a folder: file systems allow 255 bytes, with what is added to it."""
    data = text.encode()
    if len(data) <= most:
        return text
    return f"{data[:most].decode(errors='ignore')}-{hashlib.sha256(data).hexdigest()[:8]}"


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk: files created in it, or renamed."""
    with contextlib.suppress(OSError):  # not every file system can
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
