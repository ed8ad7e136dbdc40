"""Atomic writes: a file is there whole or not at all, and on the disk when the call returns."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; what was written replaces `path` when the block ends without an error."""
    part = path.with_name(f"{path.name}.part")
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replace_file(path) as part:
        part.write_text(text)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk: files created in it, or renamed."""
    with contextlib.suppress(OSError):  # not every file system can
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
