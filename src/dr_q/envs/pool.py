"""Simulators of all seeds, stepped together: one in this process, or one process each.

A pool holds, for each seed, one training environment and any number of evaluation environments. Each training step
adds exactly one transition per seed; an episode that ends is followed by the next one's first observation within the
same step. Worker processes are plain `python -m dr_q.envs.worker`: they import neither jax nor the caller's script, so
a pool works from an unguarded script and a notebook. Arrays travel through shared memory; the pipes carry one byte
per step.
"""

import contextlib
import dataclasses
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing import shared_memory
from typing import IO, Any, NamedTuple, Protocol, runtime_checkable

import cloudpickle
import gymnasium
import numpy as np

from dr_q.envs.protocol import EnvSpec, TaskError
from dr_q.envs.seat import Seat, SeatArrays
from dr_q.envs.tasks import make_env

DEFAULT_TIMEOUT = 300.0


class WorkerError(RuntimeError):
    """A simulator process that died or hung."""


@dataclasses.dataclass(frozen=True)
class Source:
    """Where environments come from."""

    task: str | Callable[[], gymnasium.Env]
    noise_dims: int = 0

    def make(self) -> Any:
        """A fresh environment."""
        return make_env(self.task, noise_dims=self.noise_dims)


class Transitions(NamedTuple):
    """One training step of every seed; a leading axis of seeds."""

    obs: np.ndarray
    """Observations to act on next; of the next episode where one ended."""
    next_obs: np.ndarray
    """Where the step led."""
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


@runtime_checkable
class Pool(Protocol):
    """Simulators of all seeds. Arrays handed out are copies."""

    spec: EnvSpec

    def begin(self) -> np.ndarray:
        """First observations of every seed's training."""
        ...

    def send(self, actions: np.ndarray) -> None:
        """Start a training step of every seed, actions in [-1, 1]."""
        ...

    def receive(self) -> Transitions:
        """What the step led to."""
        ...

    def evaluate_begin(self, episode_seeds: np.ndarray) -> np.ndarray:
        """Start evaluation episodes, seeds [S, E]; their first observations [S, E, ...]."""
        ...

    def evaluate_step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Step the evaluation episodes that still run: observations, rewards (0 if ended), whether each still runs."""
        ...

    def open_episodes(self) -> list[tuple[int, np.ndarray]]:
        """For each seed its training episode's number and the actions since its start: enough to restore it."""
        ...

    def restore(self, episodes: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
        """Replay open episodes on fresh environments; the observations reached."""
        ...

    def restart(self, seed_index: int, episode: int) -> np.ndarray:
        """Start a given training episode of one seed; its first observation."""
        ...

    def close(self) -> None:
        """End all simulators."""
        ...


def open_pool(
    source: Source, seeds: Sequence[int], eval_episodes: int, *, in_process: bool, timeout: float = DEFAULT_TIMEOUT
) -> Pool:
    """A pool for the seeds; in this process if asked for, else a process for each seed."""
    if in_process:
        return InProcessPool(source, seeds, eval_episodes)
    return ProcessPool(source, seeds, eval_episodes, timeout)


class InProcessPool:
    """All simulators in this process, one after the other."""

    def __init__(self, source: Source, seeds: Sequence[int], eval_episodes: int):
        self._seats = [Seat(source.make, seed) for seed in seeds]
        self.spec = self._seats[0].spec
        self._arrays = [SeatArrays.allocate(self.spec, eval_episodes) for _ in seeds]

    def begin(self) -> np.ndarray:
        """First observations."""
        for seat, arrays in zip(self._seats, self._arrays, strict=True):
            seat.begin(arrays)
        return np.stack([arrays.obs for arrays in self._arrays])

    def send(self, actions: np.ndarray) -> None:
        """Keep the actions; the step happens in `receive`, while the device may be busy."""
        for arrays, action in zip(self._arrays, actions, strict=True):
            arrays.action[:] = action

    def receive(self) -> Transitions:
        """Step every simulator."""
        for seat, arrays in zip(self._seats, self._arrays, strict=True):
            seat.step(arrays)
        return _gather(self._arrays)

    def evaluate_begin(self, episode_seeds: np.ndarray) -> np.ndarray:
        """Start evaluation episodes."""
        for seat, arrays, seeds in zip(self._seats, self._arrays, episode_seeds, strict=True):
            arrays.eval_seed[:] = seeds
            seat.evaluate_begin(arrays)
        return np.stack([arrays.eval_obs for arrays in self._arrays])

    def evaluate_step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Step evaluation episodes."""
        for seat, arrays, action in zip(self._seats, self._arrays, actions, strict=True):
            arrays.eval_action[:] = action
            seat.evaluate_step(arrays)
        return _gather_evaluation(self._arrays)

    def open_episodes(self) -> list[tuple[int, np.ndarray]]:
        """Episode numbers and actions."""
        return [seat.open_episode() for seat in self._seats]

    def restore(self, episodes: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
        """Replay open episodes."""
        for seat, arrays, (episode, actions) in zip(self._seats, self._arrays, episodes, strict=True):
            seat.restore(arrays, episode, actions)
        return np.stack([arrays.obs for arrays in self._arrays])

    def restart(self, seed_index: int, episode: int) -> np.ndarray:
        """Start an episode of one seed."""
        self._seats[seed_index].restore(self._arrays[seed_index], episode, np.zeros((0, self.spec.action_dim)))
        return self._arrays[seed_index].obs.copy()

    def close(self) -> None:
        """Close the environments."""
        for seat in self._seats:
            seat.close()


@dataclasses.dataclass
class _Worker:
    """A simulator process and what it shares with us."""

    seed: int
    process: "subprocess.Popen[bytes]"
    errors: IO[bytes]
    memory: shared_memory.SharedMemory | None = None
    arrays: SeatArrays | None = None


class ProcessPool:
    """A simulator process for each seed."""

    def __init__(self, source: Source, seeds: Sequence[int], eval_episodes: int, timeout: float = DEFAULT_TIMEOUT):
        self._timeout = timeout
        self._workers: list[_Worker] = []
        try:
            self._start(source, seeds, eval_episodes)
        except BaseException:
            self.close()
            raise

    def _start(self, source: Source, seeds: Sequence[int], eval_episodes: int) -> None:
        for seed in seeds:  # all start at once; each answers with its spec, or with why it cannot
            errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the pool
            process = subprocess.Popen(
                [sys.executable, "-m", "dr_q.envs.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            worker = _Worker(seed, process, errors)
            self._workers.append(worker)
            self._write_message(worker, (source, seed))
        specs = []
        for worker in self._workers:
            answer = self._read_message(worker)
            if isinstance(answer, str):
                raise TaskError(answer)
            specs.append(answer)
        self.spec: EnvSpec = specs[0]
        for worker in self._workers:
            size = SeatArrays.bytes_needed(self.spec, eval_episodes)
            worker.memory = shared_memory.SharedMemory(create=True, size=size)
            worker.arrays = SeatArrays.over(worker.memory.buf, self.spec, eval_episodes)
            self._write_message(worker, (worker.memory.name, eval_episodes))

    def begin(self) -> np.ndarray:
        """First observations."""
        self._all(b"b")
        return np.stack([arrays.obs for arrays in self._arrays])

    def send(self, actions: np.ndarray) -> None:
        """Start a step in every process."""
        for worker, action in zip(self._workers, actions, strict=True):
            assert worker.arrays is not None
            worker.arrays.action[:] = action
            self._command(worker, b"s")

    def receive(self) -> Transitions:
        """Wait for every process."""
        for worker in self._workers:
            self._await(worker)
        return _gather(self._arrays)

    def evaluate_begin(self, episode_seeds: np.ndarray) -> np.ndarray:
        """Start evaluation episodes."""
        for arrays, seeds in zip(self._arrays, episode_seeds, strict=True):
            arrays.eval_seed[:] = seeds
        self._all(b"e")
        return np.stack([arrays.eval_obs for arrays in self._arrays])

    def evaluate_step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Step evaluation episodes."""
        for arrays, action in zip(self._arrays, actions, strict=True):
            arrays.eval_action[:] = action
        self._all(b"v")
        return _gather_evaluation(self._arrays)

    def open_episodes(self) -> list[tuple[int, np.ndarray]]:
        """Episode numbers and actions."""
        for worker in self._workers:
            self._command(worker, b"o")
        return [self._read_message(worker) for worker in self._workers]

    def restore(self, episodes: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
        """Replay open episodes, all processes at once."""
        for worker, episode in zip(self._workers, episodes, strict=True):
            self._command(worker, b"r")
            self._write_message(worker, episode)
        for worker in self._workers:
            self._await(worker)
        return np.stack([arrays.obs for arrays in self._arrays])

    def restart(self, seed_index: int, episode: int) -> np.ndarray:
        """Start an episode of one seed."""
        worker = self._workers[seed_index]
        self._command(worker, b"r")
        self._write_message(worker, (episode, np.zeros((0, self.spec.action_dim), np.float32)))
        self._await(worker)
        return self._arrays[seed_index].obs.copy()

    def close(self) -> None:
        """End all processes and free what they share."""
        for worker in self._workers:
            for pipe in (worker.process.stdin, worker.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()  # a worker ends when its input does
        deadline = time.monotonic() + 5
        for worker in self._workers:
            try:
                worker.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            worker.errors.close()
            worker.arrays = None
            if worker.memory is not None:
                with contextlib.suppress(BufferError):  # a view of it is still alive somewhere: freed with that
                    worker.memory.close()
                worker.memory.unlink()
        self._workers = []

    @property
    def _arrays(self) -> list[SeatArrays]:
        return [worker.arrays for worker in self._workers if worker.arrays is not None]

    def _all(self, command: bytes) -> None:
        for worker in self._workers:
            self._command(worker, command)
        for worker in self._workers:
            self._await(worker)

    def _command(self, worker: _Worker, command: bytes) -> None:
        assert worker.process.stdin is not None
        try:
            worker.process.stdin.write(command)
            worker.process.stdin.flush()
        except OSError:
            raise self._died(worker) from None

    def _await(self, worker: _Worker) -> None:
        if self._read(worker, 1) != b"k":
            raise self._died(worker)

    def _read(self, worker: _Worker, count: int) -> bytes:
        """Exactly `count` bytes from a worker, or an error that says what became of it."""
        assert worker.process.stdout is not None
        pipe = worker.process.stdout.fileno()
        data = b""
        while len(data) < count:
            ready, _, _ = select.select([pipe], [], [], self._timeout)
            if not ready:
                raise WorkerError(
                    f"the simulator of seed {worker.seed} has not answered for {self._timeout:.0f} s; "
                    "its environment hangs or is very slow; the last checkpoint can be resumed"
                )
            part = os.read(pipe, count - len(data))
            if not part:
                raise self._died(worker)
            data += part
        return data

    def _died(self, worker: _Worker) -> WorkerError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.process.wait(2)
        worker.errors.seek(0)
        lines = worker.errors.read().decode(errors="replace").strip().splitlines()
        said = f"; it said: {lines[-1]}" if lines else ""
        code = worker.process.returncode
        return WorkerError(f"the simulator of seed {worker.seed} died (exit code {code}){said}")

    def _write_message(self, worker: _Worker, message: Any) -> None:
        data = cloudpickle.dumps(message)
        self._command(worker, len(data).to_bytes(8, "little") + data)

    def _read_message(self, worker: _Worker) -> Any:
        size = int.from_bytes(self._read(worker, 8), "little")
        return cloudpickle.loads(self._read(worker, size))


def _gather(seats: list[SeatArrays]) -> Transitions:
    return Transitions(
        obs=np.stack([arrays.obs for arrays in seats]),
        next_obs=np.stack([arrays.next_obs for arrays in seats]),
        reward=np.array([arrays.reward[0] for arrays in seats], np.float32),
        terminated=np.array([arrays.terminated[0] for arrays in seats], bool),
        truncated=np.array([arrays.truncated[0] for arrays in seats], bool),
    )


def _gather_evaluation(seats: list[SeatArrays]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        np.stack([arrays.eval_obs for arrays in seats]),
        np.stack([arrays.eval_reward for arrays in seats]),
        np.stack([arrays.eval_running for arrays in seats]).astype(bool),
    )
