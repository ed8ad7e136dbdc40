"""One process to a run's folder."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from dr_q.kit import ConfigError

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EINVAL)
"""What file systems say that cannot lock a file, or not a folder."""


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Make the folder if need be, and refuse it to every other process meanwhile.

    What was made is gone again if nothing came into it. The lock is the system's, on the folder itself: it ends with
    the process, however that ends, and leaves no file.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle, folder)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # not empty, as it should be
                for empty in made:
                    empty.rmdir()
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(
            f"{folder} is being trained by another process; wait for it or stop it, or choose another --out"
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
