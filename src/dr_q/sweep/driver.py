"""The driver: gives each job its share of the machines, starts lost ones again, keeps nothing that is not on disk."""

import contextlib
import dataclasses
import json
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from dr_q.kit import ConfigError, DamagedFileError, RunFolderError, full_path, spelled, try_lock, write_text
from dr_q.sweep import on_ray
from dr_q.sweep.collect import collect
from dr_q.sweep.estimate import longest_first
from dr_q.sweep.job import Ended, Share, attempt_under_way, end_process
from dr_q.sweep.processes import MultiProcessService, ProcessJobs, this_machine
from dr_q.sweep.progress import checkpoint_of, progress_of
from dr_q.sweep.spec import (
    LOCK_FILE,
    RESULTS_FILE,
    STATUS_FILE,
    Job,
    SweepOptions,
    SweepSpec,
    check_folder,
    check_tasks,
    jobs_of_folder,
    write_spec,
)
from dr_q.sweep.table import Board, Row
from dr_q.training.signals import Signals

_LOOK_EVERY = 1.0
"""Seconds between reads of the runs' folders."""
CPUS_BESIDE_SIMULATORS = 2
"""Of a job on a GPU: the loop, and what drives the device."""
_MOST_NODES_LOST = 20
"""By one job, before it is given up: machines come and go, and that is not its fault."""
_NODE_LOST = "node lost"


class SweepFailed(RuntimeError):  # noqa: N818  # what became of the sweep
    """All else is done, and these jobs failed: a line for each."""

    def __init__(self, failures: list[str], results: Path):
        self.failures = failures
        self.results = results
        super().__init__("; ".join(failures))


class SweepInterrupted(RuntimeError):  # noqa: N818
    """A signal came, or the time given is up (then `signal` is 0); jobs wrote checkpoints, the same call continues."""

    def __init__(self, number: int, out: Path):
        self.signal = number
        why = f"stopped by {signal.Signals(number).name}" if number else "stopped: the time given is up"
        super().__init__(f"{why}; the same command continues {out}")


@runtime_checkable
class Jobs(Protocol):
    """Where jobs run: `RayJobs`, `ProcessJobs`."""

    def submit(self, job: Job, attempt: str) -> str:
        """Let it be started as soon as there is room."""
        ...

    def ended(self, timeout: float) -> list[tuple[str, Ended]]:
        """Those that have ended, by attempt, at the latest after so many seconds."""
        ...

    def stop(self) -> None:
        """Ask all for checkpoints; those that wait are not started."""
        ...

    def restart(self, say: Callable[[str], None]) -> bool:
        """Start again what all jobs were lost with; False if that cannot be."""
        ...

    def close(self) -> None:
        """End what still runs."""
        ...


def run_sweep(spec: SweepSpec, out: Path, options: SweepOptions, execution: dict[str, Any] | None = None) -> Path:
    """Train what is not trained yet; the tidy file of results. Started again after anything, it continues.

    Args:
        spec: What to train.
        out: The sweep's folder. More tasks, presets, values or seeds than it has are added to it.
        options: Where and how.
        execution: Fields of `dr_q.settings.Execution` for every run, such as `wandb`.

    Returns:
        `results.csv`, with every finished run of the folder.

    Raises:
        SweepFailed: After all other jobs are done, if some failed.
        SweepInterrupted: After a signal, or `max_minutes`.
    """
    if not options.local:
        on_ray.need_ray()
    out = full_path(out)
    record = check_folder(spec, out)
    check_tasks(spec)
    with contextlib.nullcontext(False) if options.local else on_ray.cluster(options) as ours:
        nodes = [this_machine()] if options.local else on_ray.nodes()
        before = (record or {}).get("cpu_threads")
        share = share_of(nodes, len(spec.jobs(out)), spec.seeds, options, before)
        with only_driver(out):
            write_spec(spec, out, before or share.cpu_threads)
            jobs = [dataclasses.replace(job, execution=execution or {}) for job in spec.jobs(out)]
            rows = [Row(job, progress_of(job)) for job in longest_first(jobs, on_gpu=share.gpus > 0)]
            stopped = _train(rows, share, options, out, ours)
            results = collect(jobs_of_folder(out), out)
        failures = [f"{row.job.name}: {row.note} (log: {row.job.log})" for row in rows if row.state == "failed"]
        if stopped is not None and not all(row.state in ("finished", "failed") for row in rows):
            raise SweepInterrupted(stopped, out)
        if failures:
            raise SweepFailed(failures, results)
        return results


def _train(rows: list[Row], share: Share, options: SweepOptions, out: Path, ours: bool) -> int | None:
    """Run all jobs; the signal that stopped them, 0 if the time was up, None if nothing did."""
    second_signal = contextlib.suppress(KeyboardInterrupt)
    shared_gpu = ours and 0 < share.gpus < 1
    with Board(rows) as board, Signals() as signals, contextlib.ExitStack() as stack:
        if shared_gpu:
            stack.callback(MultiProcessService(board.say).close)
        jobs: Jobs = ProcessJobs(share, board.say) if options.local else on_ray.RayJobs(share, ours=ours)
        sweep = _Sweep(rows, share, options, board, out, jobs)
        with second_signal:
            try:
                sweep.go(signals)
            finally:
                jobs.close()
                sweep.write_status("stopped" if sweep.stopping else "ended")
    if signals.received:
        return signals.received
    return 0 if sweep.stopping else None


def share_of(
    nodes: list[dict[str, float]], jobs: int, seeds: int, options: SweepOptions, cpu_threads: int | None
) -> Share:
    """What each job gets of the nodes; on the CPU as many threads as this sweep's jobs had before."""
    with_gpus = [node for node in nodes if node.get("GPU", 0) > 0]
    gpus = options.gpus if options.gpus is not None else float(bool(with_gpus))
    if gpus > 0:
        most = max((node["GPU"] for node in with_gpus), default=0)
        if gpus > most:
            if options.jobs_per_gpu is not None:
                raise ConfigError(f"{spelled('jobs_per_gpu')} needs a GPU, and there is none; leave it out")
            raise ConfigError(
                f"{spelled('gpus_per_job')} {gpus:g} is more than any node has: {most:g}; 0 trains on the CPU"
            )
        fitting = [node for node in with_gpus if node["GPU"] >= gpus]
        fair = min(node.get("CPU", 1) * gpus / node["GPU"] for node in fitting)
        cpus = options.cpus_per_job or max(1.0, min(float(seeds + CPUS_BESIDE_SIMULATORS), fair // 1))
        _check_cpus(cpus, fitting)
        return Share(cpus, gpus)
    smallest = min(node.get("CPU", 1.0) for node in nodes) // 1
    cpus = float(options.cpus_per_job or cpu_threads or max(1, smallest // min(jobs, max(1, smallest))))
    if options.cpus_per_job is None:
        cpus = min(cpus, max(1.0, smallest))
    _check_cpus(cpus, nodes)
    return Share(cpus, cpu_threads=cpu_threads or max(1, int(cpus)))


def _check_cpus(cpus: float, nodes: list[dict[str, float]]) -> None:
    most = max(node.get("CPU", 0) for node in nodes)
    if cpus > most:
        raise ConfigError(f"{spelled('cpus_per_job')} {cpus:g} is more than any node has: {most:g}")


class _Sweep:
    """One call of `run_sweep`."""

    def __init__(self, rows: list[Row], share: Share, options: SweepOptions, board: Board, out: Path, jobs: Jobs):
        self._rows, self._options, self._board, self._out = rows, options, board, out
        self._share, self._jobs = share, jobs
        self._pending: dict[str, Row] = {}
        self._attempts: dict[Path, str] = {}
        self._lost: dict[Path, int] = {row.job.folder: 0 for row in rows}
        self._nodes_lost: dict[Path, int] = {row.job.folder: 0 for row in rows}
        self._status: tuple[str, list[dict[str, Any]]] = ("", [])
        self.stopping = False

    def go(self, signals: Signals) -> None:
        """Until every job finished or failed, or, after a signal, stopped."""
        start = time.monotonic()
        limit = self._options.max_minutes
        todo = [row for row in self._rows if row.state != "finished"]
        done = len(self._rows) - len(todo)
        self._board.say(
            f"{len(self._rows)} jobs, {done} finished before; each has {self._share.cpus:g} CPUs"
            + (f", {self._share.gpus:g} GPUs" if self._share.gpus else f", {self._share.cpu_threads} threads")
        )
        for row in todo:
            self._submit(row)
        while self._pending:
            out_of_time = limit is not None and time.monotonic() - start > 60 * limit
            if (signals.received or out_of_time) and not self.stopping:
                self.stopping = True
                self._stop()
            for attempt, ended in self._jobs.ended(_LOOK_EVERY):
                row = self._pending.pop(attempt, None)
                if row is not None:  # it may have been given up
                    self._take(row, ended)
            self._look()
            self._board.show()
            self.write_status("stopping" if self.stopping else "running")

    def write_status(self, state: str) -> None:
        """status.json: what the table shows, for other terminals."""
        jobs = [
            {
                "folder": row.job.folder.relative_to(self._out).as_posix(),
                "state": row.state,
                "note": row.note,
                "agent_steps": row.progress.agent_steps,
                "steps": row.job.settings.steps,
                "return": row.progress.score,
            }
            for row in self._rows
        ]
        if (state, jobs) == self._status:
            return
        self._status = (state, jobs)
        process = {"host": socket.gethostname(), "pid": os.getpid()}
        record = {"state": state, **process, "updated": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "jobs": jobs}
        with contextlib.suppress(OSError):  # a full disk does not stop jobs
            write_text(self._out / STATUS_FILE, json.dumps(record, indent=1) + "\n")

    def _submit(self, row: Row) -> None:
        attempt = uuid.uuid4().hex
        self._attempts[row.job.folder] = attempt
        self._pending[self._jobs.submit(row.job, attempt)] = row

    def _stop(self) -> None:
        self._board.say("stopping: running jobs write checkpoints; a second signal stops at once")
        for row in self._pending.values():
            row.state = "stopping" if row.state == "running" else "stopped"
        self._jobs.stop()

    def _take(self, row: Row, ended: Ended) -> None:
        """How a job ended, or that it was lost."""
        row.progress = progress_of(row.job)
        if ended.status == "finished":
            row.state, row.note = "finished", ""
            self._collect()
            self._board.show()
            by = f" at step {row.progress.agent_steps:,}, stopped by {row.progress.stopped_by}"
            self._board.say(f"{row.job.name}: finished{by if row.progress.stopped_by else ''}")
        elif ended.status == "failed":
            self._fail(row, ended.why)
        elif self.stopping:
            row.state = "stopped"
        elif ended.status == _NODE_LOST:
            self._node_lost(row, ended)
        else:
            self._retry(row, "its worker was told to stop" if ended.status == "interrupted" else ended.why)

    def _fail(self, row: Row, why: str) -> None:
        row.state, row.note = "failed", why
        self._board.say(f"{row.job.name}: failed: {row.note}")

    def _collect(self) -> None:
        """Write the results so far; a run with a damaged file does not stop the others."""
        try:
            collect(jobs_of_folder(self._out), self._out)
        except DamagedFileError as error:
            self._board.say(f"{RESULTS_FILE} is not written: {error}")

    def _retry(self, row: Row, why: str) -> None:
        folder, allowed = row.job.folder, self._options.retries
        self._lost[folder] += 1
        again = self._lost[folder]
        if again > allowed:
            self._fail(row, f"lost {again} times, the last time by {why}")
            return
        row.state, row.note = "retrying", f"{again} of {allowed}"
        step = checkpoint_of(row.job)
        self._board.say(f"{row.job.name}: lost ({why}); again from step {step:,}, retry {again} of {allowed}")
        self._submit(row)

    def _node_lost(self, row: Row, ended: Ended) -> None:
        """Start a job elsewhere whose machine was lost; where that is this one, all jobs were."""
        lost = [row]
        if ended.why == on_ray.OWN_NODE:
            lost += list(self._pending.values())
            self._pending.clear()
            if not self._may_restart(lost):
                return
        for one in lost:
            self._nodes_lost[one.job.folder] += 1
            if self._nodes_lost[one.job.folder] > _MOST_NODES_LOST:
                self._fail(one, f"its node was lost {_MOST_NODES_LOST + 1} times")
                continue
            one.state, one.note = "retrying", ended.why
            step = checkpoint_of(one.job)
            self._board.say(f"{one.job.name}: {ended.why}; again from step {step:,}, which is no retry")
            self._submit(one)

    def _may_restart(self, lost: list[Row]) -> bool:
        """Start this machine's node again, after what is left of its jobs has ended."""
        for row in lost:
            end_process(row.job, self._attempts[row.job.folder])
        if self._jobs.restart(self._board.say):
            return True
        for row in lost:
            self._fail(row, f"{on_ray.OWN_NODE}; start Ray on this machine again, and the same command continues")
        return False

    def _look(self) -> None:
        for row in self._pending.values():
            if row.state in ("waiting", "retrying") and attempt_under_way(row.job) == self._attempts[row.job.folder]:
                row.state = "running"
                self._board.say(f"{row.job.name}: running")
            if row.state in ("running", "stopping"):
                row.progress = progress_of(row.job)


@contextlib.contextmanager
def only_driver(out: Path) -> Iterator[None]:
    """Two drivers of one sweep would train its runs twice."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / LOCK_FILE).open("a") as file:
        if not try_lock(file.fileno()):
            raise RunFolderError(f"another dr-q sweep is at work in {out}; wait for it, or choose another --out")
        yield
