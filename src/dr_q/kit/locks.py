"""Advisory locks of the operating system. They end with the process that holds them, however it ends."""

import errno

UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EINVAL)
"""What file systems answer that cannot lock a file, or not a folder."""


def try_lock(handle: int) -> bool:
    """Lock an open file or folder; False if another process holds the lock.

    True where there are no locks (other systems, some network file systems): then nothing is guarded.
    """
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
    return True
