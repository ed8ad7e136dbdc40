"""The driver: gives each job its share of the cluster, starts lost ones again, keeps nothing that is not on disk."""

import contextlib
import os
import signal
import socket
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dr_q.envs import cores
from dr_q.kit import ConfigError, DamagedFileError, MissingPackageError, RunFolderError, replace_file, spelled, try_lock
from dr_q.report import read_results, write_results
from dr_q.sweep.job import Ended, Share, attempt_under_way, run_job
from dr_q.sweep.progress import checkpoint_of, progress_of
from dr_q.sweep.spec import LOCK_FILE, RESULTS_FILE, Job, SweepOptions, SweepSpec, check_folder, check_tasks, write_spec
from dr_q.sweep.table import Board, Row
from dr_q.training.signals import Signals

_LOOK_EVERY = 1.0
"""Seconds between looks at the runs' folders."""
_OBJECT_STORE = 80 * 2**20
"""Bytes. Jobs hand nothing over but how they ended; Ray takes no less."""
_CPUS_BESIDE_SIMULATORS = 2
"""Of a job on a GPU: the loop, and what drives the device."""
_KNOCK = 10.0
"""Seconds to wait for an answer at a cluster's address."""


class SweepFailed(RuntimeError):  # noqa: N818  # what became of the sweep
    """All else is done, and these jobs failed: a line for each."""

    def __init__(self, failures: list[str], results: Path):
        self.failures = failures
        self.results = results
        super().__init__("; ".join(failures))


class SweepInterrupted(RuntimeError):  # noqa: N818
    """A signal came; jobs wrote checkpoints and stopped, and the same call continues them."""

    def __init__(self, number: int, out: Path):
        self.signal = number
        super().__init__(f"stopped by {signal.Signals(number).name}; the same command continues {out}")


def run_sweep(spec: SweepSpec, out: Path, options: SweepOptions) -> Path:
    """Train what is not trained yet; the tidy file of results. Started again after anything, it continues."""
    _need_ray()
    out = Path(out).resolve()
    record = check_folder(spec, out)
    check_tasks(spec)
    with _ray(options):
        jobs = spec.jobs(out)
        before = (record or {}).get("cpu_threads")
        share = share_of(_nodes(), len(jobs), spec.seeds, options, before)
        with _only_driver(out):
            write_spec(spec, out, before or share.cpu_threads)
            rows = [Row(job, progress_of(job)) for job in jobs]
            second_signal = contextlib.suppress(KeyboardInterrupt)
            with Board(rows) as board, Signals() as signals, second_signal:
                _Sweep(rows, share, options, board, out).go(signals)
            results = collect(jobs, out)
        failures = [f"{row.job.name}: {row.note} (log: {row.job.log})" for row in rows if row.state == "failed"]
        if signals.received and not all(row.state == "finished" for row in rows):
            raise SweepInterrupted(signals.received, out)
        if failures:
            raise SweepFailed(failures, results)
        return results


def collect(jobs: list[Job], out: Path) -> Path:
    """Every evaluation of the finished runs in one tidy file, which is there whole or not at all."""
    results = read_results([job.folder for job in jobs if progress_of(job).finished])
    with replace_file(out / RESULTS_FILE) as part:
        write_results(results, part)
    return out / RESULTS_FILE


def share_of(
    nodes: list[dict[str, float]], jobs: int, seeds: int, options: SweepOptions, cpu_threads: int | None
) -> Share:
    """What each job gets of the nodes; on the CPU as many threads as this sweep's jobs had before."""
    with_gpus = [node for node in nodes if node.get("GPU", 0) > 0]
    gpus = options.gpus_per_job if options.gpus_per_job is not None else float(bool(with_gpus))
    if gpus > 0:
        most = max((node["GPU"] for node in with_gpus), default=0)
        if gpus > most:
            raise ConfigError(
                f"{spelled('gpus_per_job')} {gpus:g} is more than any node has: {most:g}; 0 trains on the CPU"
            )
        fitting = [node for node in with_gpus if node["GPU"] >= gpus]
        fair = min(node.get("CPU", 1) * gpus / node["GPU"] for node in fitting)
        cpus = options.cpus_per_job or max(1.0, min(float(seeds + _CPUS_BESIDE_SIMULATORS), fair // 1))
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

    def __init__(self, rows: list[Row], share: Share, options: SweepOptions, board: Board, out: Path):
        import ray

        self._rows, self._options, self._board, self._out = rows, options, board, out
        self._share = share
        # A fresh process for each job; what becomes of a lost one is decided here.
        self._remote: Any = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_retries=0, max_calls=1)(run_job)
        self._pending: dict[Any, Row] = {}
        self._attempts: dict[str, list[str]] = {row.job.name: [] for row in rows}

    def go(self, signals: Signals) -> None:
        """Until every job finished or failed, or, after a signal, stopped."""
        import ray

        todo = [row for row in self._rows if row.state != "finished"]
        done = len(self._rows) - len(todo)
        self._board.say(
            f"{len(self._rows)} jobs, {done} finished before; each has {self._share.cpus:g} CPUs"
            + (f", {self._share.gpus:g} GPUs" if self._share.gpus else f", {self._share.cpu_threads} threads")
        )
        for row in todo:
            self._submit(row)
        stopping = False
        while self._pending:
            if signals.received and not stopping:
                stopping = True
                self._stop()
            ready, _ = ray.wait(list(self._pending), num_returns=1, timeout=_LOOK_EVERY)
            for reference in ready:
                self._take(reference, self._pending.pop(reference), stopping)
            self._look()
            self._board.show()

    def _submit(self, row: Row) -> None:
        attempt = uuid.uuid4().hex
        self._attempts[row.job.name].append(attempt)
        self._pending[self._remote.remote(row.job, self._share, attempt)] = row

    def _stop(self) -> None:
        """Ask for checkpoints: a running job takes it as it takes Ctrl-C, a waiting one is not started."""
        import ray

        self._board.say("stopping: running jobs write checkpoints; a second signal stops at once")
        for reference, row in self._pending.items():
            row.state = "stopping" if row.state == "running" else "stopped"
            ray.cancel(reference, force=False)

    def _take(self, reference: Any, row: Row, stopping: bool) -> None:
        """How a job ended, or that it was lost."""
        import ray
        from ray.exceptions import RayError, RayTaskError, TaskCancelledError

        try:
            ended: Ended = ray.get(reference)
        except TaskCancelledError:
            ended = Ended("interrupted")
        except RayTaskError as error:  # before the job could catch it: a node without dr-q, say
            ended = Ended("failed", " ".join(str(error.cause or error).split()))
        except RayError as error:
            ended = Ended("lost", type(error).__name__)
        row.progress = progress_of(row.job)
        if ended.status == "finished":
            row.state, row.note = "finished", ""
            self._collect()
            self._board.show()
            self._board.say(f"{row.job.name}: finished")
        elif ended.status == "failed":
            row.state, row.note = "failed", ended.why
            self._board.say(f"{row.job.name}: failed: {ended.why}")
        elif stopping:
            row.state = "stopped"
        else:
            self._retry(row, "its worker was told to stop" if ended.status == "interrupted" else ended.why)

    def _collect(self) -> None:
        """Write the results so far; a run with a damaged file does not stop the others."""
        try:
            collect([row.job for row in self._rows], self._out)
        except DamagedFileError as error:
            self._board.say(f"{RESULTS_FILE} is not written: {error}")

    def _retry(self, row: Row, why: str) -> None:
        again, allowed = len(self._attempts[row.job.name]), self._options.retries
        if again > allowed:
            row.state, row.note = "failed", f"lost {again} times, the last time by {why}"
            self._board.say(f"{row.job.name}: failed: {row.note}")
            return
        row.state, row.note = "retrying", f"{again} of {allowed}"
        step = checkpoint_of(row.job)
        self._board.say(f"{row.job.name}: lost ({why}); again from step {step:,}, retry {again} of {allowed}")
        self._submit(row)

    def _look(self) -> None:
        for row in self._pending.values():
            if row.state in ("waiting", "retrying") and attempt_under_way(row.job) == self._attempts[row.job.name][-1]:
                row.state = "running"
                self._board.say(f"{row.job.name}: running")
            if row.state in ("running", "stopping"):
                row.progress = progress_of(row.job)


def _need_ray() -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray  # noqa: F401
    except ImportError as error:
        raise MissingPackageError("a sweep needs ray, which is not installed: pip install 'dr-q[ray]'") from error


@contextlib.contextmanager
def _ray(options: SweepOptions) -> Iterator[None]:
    """A cluster: the caller's if it has one, the one at the address, or one on this machine for as long as it takes."""
    import ray

    if ray.is_initialized():
        yield
        return
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if options.address is None:
        with warnings.catch_warnings():
            # A caller may have loaded jax, which warns of every fork; Ray's processes exec at once, so no lock is met.
            warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
            ray.init("local", num_cpus=cores(), include_dashboard=False, object_store_memory=_OBJECT_STORE, **quiet)
    else:
        try:
            _knock(options.address)
            ray.init(options.address, **quiet)
        except (OSError, ValueError, RuntimeError) as error:
            said = " ".join(str(error).split())
            raise ConfigError(
                f"no Ray cluster at '{options.address}' ({said}); start one: ray start --head --disable-usage-stats, "
                "or leave --address out"
            ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raise OSError where nothing listens: Ray would end this process."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=_KNOCK).close()


def _nodes() -> list[dict[str, float]]:
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]


@contextlib.contextmanager
def _only_driver(out: Path) -> Iterator[None]:
    """Two drivers of one sweep would train its runs twice."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / LOCK_FILE).open("a") as file:
        if not try_lock(file.fileno()):
            raise RunFolderError(f"another dr-q sweep is at work in {out}; wait for it, or choose another --out")
        yield
