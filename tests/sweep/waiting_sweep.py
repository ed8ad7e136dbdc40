"""`dr-q sweep` whose jobs train nothing: each waits for a file. For tests of what starts and ends jobs.

DRQ_WAIT_FOR=FILE python -m tests.sweep.waiting_sweep sweep TASKS... --out DIR
"""

import os
import sys
import time
from pathlib import Path

from dr_q.sweep.job import Ended, Share, _alone  # pyright: ignore[reportPrivateUsage]
from dr_q.sweep.spec import Job

WAIT_FOR = "DRQ_WAIT_FOR"


def wait(job: Job, share: Share, attempt: str) -> Ended:
    """In place of `run_job`: holds the job's lock until the file is there."""
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(job, attempt):
        while not Path(os.environ[WAIT_FOR]).exists():
            time.sleep(0.02)
    return Ended("finished")


if __name__ == "__main__":
    from dr_q.cli import main
    from dr_q.sweep import on_ray
    from tests.sweep import waiting_sweep  # noqa: PLW0406 - workers import it by this name, not as __main__

    on_ray.run_job = waiting_sweep.wait
    sys.exit(main(sys.argv[1:]))
