"""A run whose disk is full between two steps of its environments.

    python -m tests.faults.full_disk_run OUT FILE FULL EMPTY [SIGTERM]

FILE says that the disk is full while it exists (`shim.c`). FULL, EMPTY and SIGTERM are numbers of steps of the
environments, those of evaluations too; 0 for never.
"""

import signal
import sys
from pathlib import Path

from dr_q.cli import main
from dr_q.training import failed_writes, writers
from tests.faults import envs
from tests.training import tiny

if __name__ == "__main__":
    out, file = sys.argv[1], Path(sys.argv[2])
    full, empty, stop = map(int, sys.argv[3:])
    failed_writes._PAUSE_S, writers.RETRY_S = 0.1, 0.2  # pyright: ignore[reportPrivateUsage]
    envs.AT.update({full: envs.fills(file), empty: envs.empties(file), stop: envs.signals(signal.SIGTERM)})
    sys.exit(main(["train", "tests.faults.envs:drq-watched-v0", "--out", out, "--in-process", "True", *tiny.flags()]))
