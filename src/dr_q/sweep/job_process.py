"""One job in a process of its own: `python -m dr_q.sweep.job_process FILE [ATTEMPT]`.

FILE is what a sweep without Ray writes of each job (`dr-q sweep --local`, `--slurm array`). The exit code is 0 if the
run is finished, 1 if it failed, 143 if a signal stopped it; started again, it continues.
"""

import ctypes
import os
import signal
import sys
import uuid
from pathlib import Path

from dr_q.kit import DrQError
from dr_q.kit.errors import FAILURE
from dr_q.sweep.collect import collect_folder
from dr_q.sweep.job import read_job, run_job
from dr_q.sweep.progress import progress_of

_PARENT_DEATH_SIGNAL = 1
"""Linux's PR_SET_PDEATHSIG."""


def main(arguments: list[str]) -> int:
    """Train it."""
    try:
        job, share, out = read_job(Path(arguments[0]))
    except DrQError as error:
        print(f"dr-q: {error}", file=sys.stderr)
        return error.exit_code
    if len(arguments) > 1:
        _end_with_parent()
        attempt = arguments[1]
    else:
        attempt = uuid.uuid4().hex
        if progress_of(job).finished:
            print(f"{job.name}: finished before", flush=True)
            return 0
    ended = run_job(job, share, attempt)
    print(f"{job.name}: {ended.status}{': ' if ended.why else ''}{ended.why}", flush=True)
    if ended.status == "finished" and len(arguments) == 1 and out:
        collect_folder(Path(out))
    if ended.status == "failed":
        return FAILURE
    return 0 if ended.status == "finished" else 128 + signal.SIGTERM


def _end_with_parent() -> None:
    """Let this process be asked to stop when the sweep's is gone, however that happened."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:  # it went meanwhile
            os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
