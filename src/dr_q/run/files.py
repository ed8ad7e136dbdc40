"""Files that are there whole or not at all, written through to the disk."""

import contextlib
import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file beside its old self, then put it in its place."""
    part = path.with_name(f"{path.name}.part")
    with part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make sure that what was put into a folder, or renamed in it, stays."""
    with contextlib.suppress(OSError):  # not every file system lets a folder be synchronised
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
