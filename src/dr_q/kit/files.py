"""Atomic writes: a file is there whole or not at all, and on the disk when the call returns. Checksums of files."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from io import BufferedReader, FileIO
from pathlib import Path


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
        part.write_text(text)


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


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk: files created in it, or renamed."""
    with contextlib.suppress(OSError):  # not every file system can
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
