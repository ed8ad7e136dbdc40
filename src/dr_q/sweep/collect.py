"""results.csv: every evaluation of the finished runs of a sweep's folder."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from dr_q.kit import replace_file, try_lock
from dr_q.report import read_results, write_results
from dr_q.sweep.progress import progress_of
from dr_q.sweep.spec import COLLECT_LOCK_FILE, RESULTS_FILE, Job, jobs_of_folder

_PATIENCE = 60.0
"""Seconds to wait for another process that writes the same file."""


def collect(jobs: list[Job], out: Path) -> Path:
    """Every evaluation of the finished runs in one tidy file, which is there whole or not at all."""
    with _alone(out):  # of two jobs that end together, the later one reads both
        results = read_results([job.folder for job in jobs if progress_of(job).finished])
        with replace_file(out / RESULTS_FILE) as part:
            write_results(results, part)
    return out / RESULTS_FILE


def collect_folder(out: Path) -> Path:
    """The same of all jobs that the folder has."""
    return collect(jobs_of_folder(out), out)


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    with (out / COLLECT_LOCK_FILE).open("a") as file:
        deadline = time.monotonic() + _PATIENCE
        while not try_lock(file.fileno()) and time.monotonic() < deadline:
            time.sleep(0.05)
        yield
