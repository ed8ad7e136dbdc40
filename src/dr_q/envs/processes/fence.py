"""A memory fence without compiled code."""

from threading import Lock


def full_fence() -> None:
    """Make everything written and read before this call take effect before everything that comes after it.

    Processors with weak ordering (ARM, POWER) may let other processes see a later write before an earlier one, and may
    read earlier than the program says. Taking a lock keeps later accesses after it; releasing a lock keeps earlier
    accesses before it. One pair is not a fence: an earlier access may move down into the locked section and a later
    one up into it, and there they may pass each other. Of two pairs in sequence, the first release comes before the
    second acquisition of the same lock. Whatever came earlier is done before that release, and whatever comes later
    begins after that acquisition. (POWER promises this for all but a write before and a read after it; the counters
    need no more, and a worker that misses its waking byte for that reason polls again after a nap.)
    """
    lock = Lock()  # a new one: always free, whatever other threads, interrupts and forks do
    lock.acquire()
    lock.release()
    lock.acquire()
    lock.release()
