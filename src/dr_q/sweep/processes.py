"""Jobs as processes of this machine, without Ray: a queue, and a slot for each job that may run at once."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from dr_q.envs import cores
from dr_q.sweep.job import Ended, Share, job_file, last_end, write_job
from dr_q.sweep.spec import Job

_POLL = 0.1
"""Seconds between polls of the processes."""
_GPU_LIST = "CUDA_VISIBLE_DEVICES"
_MPS_CONTROL = "nvidia-cuda-mps-control"


def visible_gpus() -> list[str]:
    """The GPUs of this machine that may be used, as CUDA names them. No library of CUDA is loaded here."""
    given = os.environ.get(_GPU_LIST)
    if given is not None:
        return [name for name in given.split(",") if name and name != "-1"]
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    return [str(i) for i, line in enumerate(filter(None, listed.stdout.splitlines()))] if listed.returncode == 0 else []


def this_machine() -> dict[str, float]:
    """What it has, as Ray would say it."""
    return {"CPU": float(cores()), "GPU": float(len(visible_gpus()))}


def slots(share: Share, gpus: list[str], cpus: int) -> list[dict[str, str]]:
    """One for each job that may run at once: what its environment variables say of the devices."""
    by_cpus = max(1, int(cpus // share.cpus))
    if share.gpus == 0:
        return [{} for _ in range(by_cpus)]
    if share.gpus < 1:
        on_each = round(1 / share.gpus)
        found = [{_GPU_LIST: gpu} for _ in range(on_each) for gpu in gpus]  # one on every GPU before a second on any
    else:
        whole = int(share.gpus)
        found = [{_GPU_LIST: ",".join(gpus[i : i + whole])} for i in range(0, len(gpus) - whole + 1, whole)]
    return found[:by_cpus]


class MultiProcessService:
    """CUDA's multi-process service, by which jobs that share a GPU compute side by side; ours only if none runs yet."""

    def __init__(self, say: Callable[[str], None]):
        self._control = shutil.which(_MPS_CONTROL)
        self._ours = False
        if self._control is None:
            say(f"jobs share a GPU without CUDA's multi-process service: {_MPS_CONTROL} is not on this machine")
            return
        # It must see every GPU, or it numbers them anew.
        everything = {name: value for name, value in os.environ.items() if name != _GPU_LIST}
        started = subprocess.run([self._control, "-d"], env=everything, capture_output=True, timeout=60, check=False)
        self._ours = started.returncode == 0

    def close(self) -> None:
        """End it, if it is ours."""
        if self._ours and self._control is not None:
            subprocess.run([self._control], input="quit\n", text=True, capture_output=True, timeout=60, check=False)
            self._ours = False


class _Running(NamedTuple):
    """A job in its process."""

    job: Job
    attempt: str
    process: subprocess.Popen
    slot: int


class ProcessJobs:
    """Starts jobs as processes, in order and as slots become free, and says how they ended."""

    def __init__(self, share: Share, say: Callable[[str], None]):
        self._share = share
        self._slots = slots(share, visible_gpus(), cores())
        self._free = list(range(len(self._slots)))
        self._waiting: list[tuple[Job, str]] = []
        self._running: list[_Running] = []
        self._cancelled: list[str] = []
        self._service = MultiProcessService(say) if 0 < share.gpus < 1 else None

    def submit(self, job: Job, attempt: str) -> str:
        """Let it be started as soon as a slot is free; its key is the attempt."""
        self._waiting.append((job, attempt))
        return attempt

    def ended(self, timeout: float) -> list[tuple[str, Ended]]:
        """Those that have ended, at the latest after so many seconds."""
        deadline = time.monotonic() + timeout
        while True:
            self._start()
            found = [(attempt, Ended("interrupted")) for attempt in self._cancelled]
            self._cancelled = []
            for one in [one for one in self._running if one.process.poll() is not None]:
                self._running.remove(one)
                self._free.append(one.slot)
                found.append((one.attempt, last_end(one.job, one.attempt) or _lost(one.process.returncode)))
            if found or time.monotonic() > deadline:
                self._start()
                return found
            time.sleep(_POLL)

    @property
    def capacity(self) -> int:
        """Jobs that may run at once."""
        return len(self._slots)

    def cancel(self, attempt: str) -> None:
        """Stop one job, as `stop` does all."""
        if any(attempt == waiting for _, waiting in self._waiting):
            self._waiting = [(job, waiting) for job, waiting in self._waiting if waiting != attempt]
            self._cancelled.append(attempt)
        for one in self._running:
            if one.attempt == attempt:
                one.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Ask for checkpoints; waiting jobs are not started."""
        self._cancelled += [attempt for _, attempt in self._waiting]
        self._waiting = []
        for one in self._running:
            one.process.send_signal(signal.SIGTERM)

    def restart(self, say: Callable[[str], None]) -> bool:
        """Nothing that could be lost as a whole."""
        del say
        return False

    def close(self) -> None:
        """End what still runs, at once."""
        for one in self._running:
            one.process.kill()
            one.process.wait()
        if self._service is not None:
            self._service.close()

    def _start(self) -> None:
        while self._free and self._waiting:
            job, attempt = self._waiting.pop(0)
            slot = self._free.pop(0)
            write_job(job, self._share)
            command = [sys.executable, "-m", "dr_q.sweep.job_process", str(job_file(job)), attempt]
            with job.log.open("a") as log:
                process = subprocess.Popen(
                    command,
                    env={**os.environ, **self._slots[slot]},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C reaches the driver alone, which then asks for checkpoints
                )
            self._running.append(_Running(job, attempt, process, slot))


def _lost(code: int) -> Ended:
    """A process that left no word of how it ended."""
    return Ended("lost", f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}")
