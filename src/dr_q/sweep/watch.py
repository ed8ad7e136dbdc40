"""The table of any sweep or folder of runs, from the files that are there; nothing of it is in the way of training."""

import time
from pathlib import Path

from dr_q.kit import DamagedFileError
from dr_q.run_folder import find_runs, read_json, read_run_json, runs_without_evaluations
from dr_q.settings import Settings, callable_name
from dr_q.sweep.job import last_end
from dr_q.sweep.progress import progress_of
from dr_q.sweep.spec import SPEC_FILE, STATUS_FILE, Job, jobs_of_folder
from dr_q.sweep.table import Board, Row

_SILENT = 600.0
"""Seconds without a change of its files after which a run that says it is running is doubted."""
_STATES = {"running": "running", "failed": "failed", "damaged": "failed", "new": "waiting"}


def watch(folder: Path, every: float, *, once: bool = False) -> None:
    """Show the table until all runs are finished; without a terminal, or if asked for, once."""
    folder = Path(folder)
    rows = read_rows(folder)
    board = Board(rows, why=True)
    if once or not board.is_live:
        board.print_once()
        return
    with board:
        while True:
            board.show()
            if all(row.state == "finished" for row in rows):
                return
            time.sleep(every)
            rows[:] = read_rows(folder)


def read_rows(folder: Path) -> list[Row]:
    """A row for each job of the sweep in this folder, or of each run in it or under it.

    Raises:
        RunFolderError: If there is neither.
    """
    jobs = jobs_of_folder(folder) if (folder / SPEC_FILE).exists() else _jobs_of_runs(folder)
    said = _status(folder)
    return [_row(job, said.get(_below(job.folder, folder), {})) for job in jobs]


def _jobs_of_runs(folder: Path) -> list[Job]:
    found = sorted({*find_runs(folder), *runs_without_evaluations([folder])})
    return [job for run in found if (job := _job_of_run(run)) is not None]


def _job_of_run(folder: Path) -> Job | None:
    """None where run.json is damaged or being written for the first time."""
    try:
        record = read_run_json(folder)["settings"]
        own = callable_name(record["task"])
        return Job(Settings.from_json({**record, "task": own or record["task"]}), folder)
    except (DamagedFileError, ValueError, TypeError, KeyError):
        return None


def _status(folder: Path) -> dict[str, dict[str, str]]:
    """What the driver of a sweep says of each job, by folder."""
    try:
        record = read_json(folder / STATUS_FILE)
        return {job["folder"]: job for job in record["jobs"]} if record["state"] in ("running", "stopping") else {}
    except (OSError, KeyError, TypeError):
        return {}


def _row(job: Job, said: dict[str, str]) -> Row:
    """What its files say, and, of a job that does not run, what the driver said."""
    row = Row(job, progress_of(job))
    row.state = "finished" if row.progress.finished else _STATES.get(row.progress.status, "stopped")
    if row.progress.finished and row.progress.stopped_by:
        row.note = f"stopped by --{row.progress.stopped_by.replace('_', '-')}"
    if row.state == "running":
        quiet = time.time() - _last_change(job.folder)
        if quiet > _SILENT:
            row.state, row.note = "silent", f"for {quiet / 60:.0f} minutes"
    elif row.state != "finished" and said.get("state") in ("retrying", "failed", "stopping"):
        row.state, row.note = said["state"], str(said.get("note", ""))
    if row.state == "failed" and not row.note:
        ended = last_end(job)
        row.note = ended.why if ended is not None and ended.status == "failed" else ""
    return row


def _last_change(folder: Path) -> float:
    files = [path for path in folder.iterdir() if path.is_file()]
    return max((path.stat().st_mtime for path in files), default=0.0)


def _below(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else ""
