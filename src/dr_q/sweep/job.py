"""One job: all seeds of a task and preset, trained or resumed in a worker's process."""

import contextlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dr_q.config import add_presets
from dr_q.kit import DamagedFileError, DrQError, RunFolderError, try_lock, write_text
from dr_q.run_folder import Fields, is_run, read_json, read_run_json
from dr_q.settings import Settings
from dr_q.sweep.progress import progress_of
from dr_q.sweep.spec import Job

_PATIENCE = 60.0
"""Seconds to wait for a process that trained the same run and is about to end."""
_GPU_SHARE = 0.9
"""Of a shared GPU's memory, what its jobs may reserve together."""


class Share(NamedTuple):
    """What of a machine a job gets."""

    cpus: float
    gpus: float = 0
    cpu_threads: int | None = None
    """For computing on the CPU. Results depend on their number, by rounding."""


class Ended(NamedTuple):
    """How a job ended."""

    status: str
    """finished, interrupted, failed, or lost: its worker died."""
    why: str = ""
    """One line, where it failed."""


def run_job(job: Job, share: Share, attempt: str) -> Ended:
    """Train, from the last checkpoint if there is one; errors of the run's own are returned in one line."""
    _set_up(share)
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        add_presets(job.definitions)
        with _alone(job, attempt), _printing_to(job):
            ended = _train(job)
    except KeyboardInterrupt:
        ended = Ended("interrupted")
    except Exception as error:  # an environment may fail in any way, and the other jobs continue
        ended = Ended("failed", _one_line(error))
    with contextlib.suppress(OSError):  # a full disk; the caller is told all the same
        write_text(job.ended, json.dumps({**ended._asdict(), "attempt": attempt}) + "\n")
    return ended


def last_end(job: Job, attempt: str | None = None) -> Ended | None:
    """How its last process ended, or the one of an attempt; None if it did not, or left no word."""
    try:
        fields = Fields(job.ended, read_json(job.ended))
        if attempt is not None and fields.text("attempt") != attempt:
            return None
        return Ended(fields.text("status"), fields.text("why"))
    except (OSError, DamagedFileError):
        return None


def attempt_under_way(job: Job) -> str:
    """Which attempt last took the job's lock; empty if none did."""
    try:
        return _lock_fields(job).text("attempt")
    except (OSError, DamagedFileError):
        return ""


def _lock_fields(job: Job) -> Fields:
    """What the process that took the job's lock says of itself."""
    return Fields(job.lock, read_json(job.lock))


def job_file(job: Job) -> Path:
    """What a process of its own reads the job from."""
    return job.folder.with_name(f"{job.folder.name}.job")


def write_job(job: Job, share: Share, **more: str) -> None:
    """Write that file."""
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    record = {"job": job.to_json(), "share": share._asdict(), **more}
    write_text(job_file(job), json.dumps(record, indent=1) + "\n")


def read_job(file: Path) -> tuple[Job, Share, str]:
    """What `write_job` wrote: the job, its share, and the sweep's folder if that is named."""
    fields = Fields(file, read_json(file), "start the sweep again, which writes it")
    try:
        job, share = Job.from_json(fields.object("job")), Share(**fields.object("share"))
    except DrQError as error:
        raise fields.damaged(str(error)) from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise fields.damaged("it is not what a sweep writes of a job") from None
    return job, share, fields.text("out") if "out" in fields.values else ""


def end_process(job: Job, attempt: str) -> None:
    """End an attempt's process on this machine, if it is still at work: first as Ctrl-C would, with a checkpoint."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _PATIENCE / 2
        pid = _process_of(job, attempt)
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        while time.monotonic() < deadline and _process_of(job, attempt) is not None:
            time.sleep(0.2)


def _process_of(job: Job, attempt: str) -> int | None:
    """The process of an attempt that holds the job's lock on this machine."""
    try:
        fields = _lock_fields(job)
        if fields.text("attempt") != attempt or fields.text("host") != socket.gethostname():
            return None
        pid = fields.whole("pid", least=2)  # 0 and less would be groups of processes
        with job.lock.open("a") as file:
            return None if try_lock(file.fileno()) else pid
    except (OSError, DamagedFileError):
        return None


def _set_up(share: Share) -> None:
    """Before jax starts its devices in this process."""
    import jax

    if share.gpus == 0:
        jax.config.update("jax_platforms", "cpu")
    elif share.gpus < 1:
        os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{_GPU_SHARE * share.gpus:.3f}"
    if share.cpu_threads is not None:
        os.environ["NPROC"] = str(share.cpu_threads)  # the size of XLA's thread pool


def _train(job: Job) -> Ended:
    from dr_q.training.loop import Options, train

    try:
        begun = _begun(job)
        outcome = train(begun or job.settings, job.folder, Options(**job.execution), resume=job.folder.exists())
    except Exception:
        traceback.print_exc()
        raise
    return Ended("finished" if progress_of(job).finished else outcome.status)


def _begun(job: Job) -> Settings | None:
    """The settings of the run that the folder has, None if it has none yet; one with others is left alone."""
    if not is_run(job.folder):
        return None  # perhaps killed before it wrote anything: from the beginning
    was = Settings.from_json(read_run_json(job.folder, "status", "agent_steps", "seeds")["settings"])
    before, now = _comparable(was), _comparable(job.settings)
    if before != now:
        names = [name for name in now["config"] if before["config"].get(name) != now["config"][name]]
        names += [name for name in now if name != "config" and before.get(name) != now[name]]
        raise RunFolderError(
            f"{job.folder} has a run with another {', '.join(names) or 'version of the settings'}; "
            "move it away to train again"
        )
    return was


def _comparable(settings: Settings) -> dict[str, Any]:
    """What decides the results. Earlier versions drew uniformly by faded LAP without priorities and fading."""
    record = settings.to_json()
    config = record["config"]
    if config["fade_decay"] == 0 and config["priority_exponent"] == 0:
        config["sampling"] = "uniform"
    return record


@contextlib.contextmanager
def _alone(job: Job, attempt: str) -> Iterator[None]:
    """Hold the job's lock: a worker that was given up may still live for a moment, and two must not write one run."""
    with job.lock.open("a+") as file:
        deadline = time.monotonic() + _PATIENCE
        while True:
            if try_lock(file.fileno()):
                break
            if time.monotonic() > deadline:
                raise RunFolderError(f"{job.folder} is being trained by another process: {_holder(job)}")
            time.sleep(0.2)
        file.truncate(0)
        record = {"host": socket.gethostname(), "pid": os.getpid(), "attempt": attempt}
        file.write(json.dumps(record) + "\n")
        file.flush()
        yield


def _holder(job: Job) -> str:
    try:
        fields = _lock_fields(job)
        return f"process {fields.whole('pid')} on {fields.text('host')}"
    except (OSError, DamagedFileError):
        return "unknown"


@contextlib.contextmanager
def _printing_to(job: Job) -> Iterator[None]:
    """What this process prints, and what libraries under it print, goes to the job's log."""
    before = os.dup(1), os.dup(2)
    with job.log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, kept in zip((1, 2), before, strict=True):
            os.dup2(kept, number)
            os.close(kept)


def _one_line(error: BaseException) -> str:
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
