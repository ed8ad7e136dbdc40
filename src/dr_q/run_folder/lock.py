"""One process to a run's folder."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from dr_q.kit import RunFolderError, spelled, try_lock


@contextlib.contextmanager
def lock_run_folder(folder: Path) -> Iterator[None]:
    """Make the folder if need be, and refuse it to every other process meanwhile.

    Folders that were made are removed again if nothing came into them. The lock is the system's, on the folder itself:
    it ends with the process, however that ends, and leaves no file.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a name that is too long, for instance, below a folder that could be made
        _remove_empty(made)
        raise
    handle = os.open(folder, os.O_RDONLY)
    try:
        if not try_lock(handle):
            raise RunFolderError(
                f"{folder} is being trained by another process; wait for it or stop it, or choose another "
                f"{spelled('out')}"
            )
        try:
            yield
        finally:
            _remove_empty(made)
    finally:
        os.close(handle)


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders, the innermost first, as far as they are empty."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENAMETOOLONG):
                return  # not empty, as it should be
