"""Simulators of all seeds, stepped together: one in this process, or one process each.

A pool holds, for each seed, one training environment and any number of evaluation environments. Each training step
adds exactly one transition per seed; an episode that ends is followed by the next one's first observation within the
same step. Worker processes are plain `python -m dr_q.envs.worker`: they import neither jax nor the caller's script, so
a pool works from an unguarded script and a notebook. Arrays travel through one block of shared memory. Where there are
cores to spare, both sides look there again and again for what comes next, which saves the time that waking a process
takes; else they wait on pipes that carry one byte per step.
"""

import contextlib
import dataclasses
import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing import shared_memory
from typing import IO, Any, NamedTuple, Protocol, runtime_checkable

import cloudpickle
import gymnasium
import numpy as np

from dr_q.envs.protocol import EnvSpec
from dr_q.envs.seat import DONE, ENV_FAILED, LOOK_EVERY, MESSAGE, UNSHOWN, WAKE, PacketLayout, Seat, SeatArrays
from dr_q.envs.tasks import make_env
from dr_q.kit import EnvError, TaskError, WorkerError

DEFAULT_TIMEOUT = 300.0
_CORES_TO_SPARE = 4
"""Beyond one for each simulator: the loop, and what drives the device."""
MOST_LINES = 200
"""That a simulator's process prints and that are shown."""
LONGEST_LINE = 10_000
_PATIENCE = 0.02
"""Seconds that a simulator's process looks for its next command before it sleeps."""


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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

    packet: np.ndarray
    """Everything, as the bytes of one array: see `PacketLayout`."""
    layout: PacketLayout

    @staticmethod
    def of(layout: PacketLayout, observations: np.ndarray, numbers: np.ndarray) -> "Transitions":
        """A packet of [S, 2, *obs] observations and [S, 3] numbers."""
        made = Transitions(np.zeros((len(numbers), layout.size), np.uint8), layout)
        made.observations[...], made.numbers[...] = observations, numbers
        return made

    @property
    def observations(self) -> np.ndarray:
        """[S, 2, *obs]: where the step led, and what to act on next."""
        return self.layout.observations(self.packet)

    @property
    def numbers(self) -> np.ndarray:
        """[S, 3]: reward, terminated, truncated."""
        return self.layout.numbers(self.packet)

    @property
    def next_obs(self) -> np.ndarray:
        """Where the step led."""
        return self.observations[:, 0]

    @property
    def obs(self) -> np.ndarray:
        """Observations to act on next; of the next episode where one ended."""
        return self.observations[:, 1]

    @property
    def reward(self) -> np.ndarray:
        """Rewards of the step."""
        return self.numbers[:, 0]

    @property
    def terminated(self) -> np.ndarray:
        """Whether the episode ended for good."""
        return self.numbers[:, 1] > 0

    @property
    def truncated(self) -> np.ndarray:
        """Whether the episode was cut off."""
        return self.numbers[:, 2] > 0


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
    source: Source,
    seeds: Sequence[int],
    eval_episodes: int,
    *,
    in_process: bool,
    timeout: float = DEFAULT_TIMEOUT,
    spin: bool | None = None,
) -> Pool:
    """A pool for the seeds; in this process if asked for, else a process for each seed."""
    if in_process:
        return InProcessPool(source, seeds, eval_episodes)
    return ProcessPool(source, seeds, eval_episodes, timeout, spin=spin)


class _SharedPart:
    """What both kinds of pool do alike with their arrays."""

    spec: EnvSpec
    _arrays: SeatArrays

    def _transitions(self) -> Transitions:
        return Transitions(self._arrays.packet.copy(), PacketLayout.of(self.spec))

    def _next_obs(self) -> np.ndarray:
        return self._transitions().obs

    def _evaluation(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        arrays = self._arrays
        return arrays.eval_obs.copy(), arrays.eval_reward.copy(), arrays.eval_running.astype(bool)


class InProcessPool(_SharedPart):
    """All simulators in this process, one after the other."""

    def __init__(self, source: Source, seeds: Sequence[int], eval_episodes: int):
        self._seats = [Seat(source.make, seed) for seed in seeds]
        self.spec = self._seats[0].spec
        self._arrays = SeatArrays.allocate(self.spec, len(seeds), eval_episodes)
        self._rows = [self._arrays.row(i) for i in range(len(seeds))]

    def begin(self) -> np.ndarray:
        """First observations."""
        for seat, row in zip(self._seats, self._rows, strict=True):
            seat.begin(row)
        return self._next_obs()

    def send(self, actions: np.ndarray) -> None:
        """Keep the actions; the step happens in `receive`, while the device may be busy."""
        self._arrays.action[:] = actions

    def receive(self) -> Transitions:
        """Step every simulator."""
        for seat, row in zip(self._seats, self._rows, strict=True):
            seat.step(row)
        return self._transitions()

    def evaluate_begin(self, episode_seeds: np.ndarray) -> np.ndarray:
        """Start evaluation episodes."""
        self._arrays.eval_seed[:] = episode_seeds
        for seat, row in zip(self._seats, self._rows, strict=True):
            seat.evaluate_begin(row)
        return self._arrays.eval_obs.copy()

    def evaluate_step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Step evaluation episodes."""
        self._arrays.eval_action[:] = actions
        for seat, row in zip(self._seats, self._rows, strict=True):
            seat.evaluate_step(row)
        return self._evaluation()

    def open_episodes(self) -> list[tuple[int, np.ndarray]]:
        """Episode numbers and actions."""
        return [seat.open_episode() for seat in self._seats]

    def restore(self, episodes: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
        """Replay open episodes."""
        for seat, row, (episode, actions) in zip(self._seats, self._rows, episodes, strict=True):
            seat.restore(row, episode, actions)
        return self._next_obs()

    def restart(self, seed_index: int, episode: int) -> np.ndarray:
        """Start an episode of one seed."""
        self._seats[seed_index].restore(self._rows[seed_index], episode, np.zeros((0, self.spec.action_dim)))
        return self._next_obs()[seed_index]

    def close(self) -> None:
        """Close the environments."""
        for seat in self._seats:
            seat.close()


class _Prints:
    """What a simulator process prints, passed on with its seed, though not for ever; the last lines are kept."""

    def __init__(self, seed: int, pipe: IO[bytes]):
        self.last: deque[str] = deque(maxlen=20)
        self._seed, self._pipe = seed, pipe
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        self._thread.start()

    def _pass_on(self) -> None:
        shown = 0
        for raw in iter(lambda: self._pipe.readline(LONGEST_LINE), b""):
            line = raw.decode(errors="replace").rstrip()
            if not line:
                continue
            self.last.append(line.removeprefix(UNSHOWN))
            if line.startswith(UNSHOWN) or shown > MOST_LINES:
                continue
            shown += 1
            if shown > MOST_LINES:
                line = f"(more is printed there, and not shown after {MOST_LINES} lines)"
            with contextlib.suppress(Exception):  # nobody reads it; the pipe must be read all the same
                sys.stderr.write(f"seed {self._seed}: {line}\n")
                sys.stderr.flush()

    def wait(self, seconds: float = 2) -> None:
        """Until all is read that a process has printed which has ended."""
        self._thread.join(seconds)

    def close(self, seconds: float) -> None:
        """After the process; a grandchild may hold the pipe still."""
        self.wait(seconds)
        if not self._thread.is_alive():
            self._pipe.close()


@dataclasses.dataclass
class _Worker:
    """A simulator process."""

    seed: int
    process: "subprocess.Popen[bytes]"
    prints: _Prints


class ProcessPool(_SharedPart):
    """A simulator process for each seed."""

    def __init__(
        self,
        source: Source,
        seeds: Sequence[int],
        eval_episodes: int,
        timeout: float = DEFAULT_TIMEOUT,
        *,
        spin: bool | None = None,
    ):
        """`spin`: look for answers again and again rather than wait to be woken; by default if cores allow."""
        self._timeout = timeout
        self._spin = cores() >= len(seeds) + _CORES_TO_SPARE if spin is None else spin
        self._workers: list[_Worker] = []
        self._memory: shared_memory.SharedMemory | None = None
        try:
            self._start(source, seeds, eval_episodes)
        except BaseException:
            self.close()
            raise

    def _start(self, source: Source, seeds: Sequence[int], eval_episodes: int) -> None:
        for index, seed in enumerate(seeds):  # all start at once; each answers with its spec, or with why it cannot
            process = subprocess.Popen(
                [sys.executable, "-m", "dr_q.envs.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            assert process.stderr is not None
            worker = _Worker(seed, process, _Prints(seed, process.stderr))
            self._workers.append(worker)
            self._write_message(worker, (source, index, seed))
        specs = []
        for worker in self._workers:
            answer = self._read_message(worker)
            if isinstance(answer, str):
                raise TaskError(answer)
            specs.append(answer)
        self.spec: EnvSpec = specs[0]
        count = len(self._workers)
        self._memory = shared_memory.SharedMemory(
            create=True, size=SeatArrays.bytes_needed(self.spec, count, eval_episodes)
        )
        self._arrays = SeatArrays.over(self._memory.buf, self.spec, count, eval_episodes)
        for worker in self._workers:
            self._write_message(worker, (self._memory.name, count, eval_episodes, _PATIENCE if self._spin else 0.0))

    def begin(self) -> np.ndarray:
        """First observations."""
        self._all(b"b")
        return self._next_obs()

    def send(self, actions: np.ndarray) -> None:
        """Start a step in every process."""
        self._arrays.action[:] = actions
        self._order(b"s")

    def receive(self) -> Transitions:
        """Wait for every process."""
        self._await_all()
        return self._transitions()

    def evaluate_begin(self, episode_seeds: np.ndarray) -> np.ndarray:
        """Start evaluation episodes."""
        self._arrays.eval_seed[:] = episode_seeds
        self._all(b"e")
        return self._arrays.eval_obs.copy()

    def evaluate_step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Step evaluation episodes."""
        self._arrays.eval_action[:] = actions
        self._all(b"v")
        return self._evaluation()

    def open_episodes(self) -> list[tuple[int, np.ndarray]]:
        """Episode numbers and actions."""
        self._order(b"o")
        return [self._read_message(worker) for worker in self._workers]

    def restore(self, episodes: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
        """Replay open episodes, all processes at once."""
        self._order(b"r")
        for worker, episode in zip(self._workers, episodes, strict=True):
            self._write_message(worker, episode)
        self._await_all()
        return self._next_obs()

    def restart(self, seed_index: int, episode: int) -> np.ndarray:
        """Start an episode of one seed."""
        self._order(b"r", slice(seed_index, seed_index + 1))
        self._write_message(self._workers[seed_index], (episode, np.zeros((0, self.spec.action_dim), np.float32)))
        self._await_all(slice(seed_index, seed_index + 1))
        return self._next_obs()[seed_index]

    def seconds(self) -> np.ndarray:
        """What each simulator's last command took by itself."""
        return self._arrays.seconds.copy()

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
            worker.prints.close(max(0.1, deadline - time.monotonic()))
        self._workers = []
        if self._memory is not None:
            del self._arrays
            with contextlib.suppress(BufferError):  # a view of it is still alive somewhere: freed with that
                self._memory.close()
            self._memory.unlink()
            self._memory = None

    def _all(self, command: bytes) -> None:
        self._order(command)
        self._await_all()

    def _order(self, command: bytes, which: slice = slice(None)) -> None:
        self._arrays.command[which] = ord(command)
        self._arrays.order[which] += 1
        for worker, asleep in zip(self._workers[which], self._arrays.asleep[which], strict=True):
            if asleep or not self._spin:
                self._write(worker, WAKE)

    def _await_all(self, which: slice = slice(None)) -> None:
        if not self._spin:
            for worker in self._workers[which]:
                if self._read(worker, 1) != DONE:
                    raise self._died(worker)
            return
        given_up = time.monotonic() + self._timeout
        looked_after = time.monotonic() + 1
        order, answer = self._arrays.order[which], self._arrays.answer[which]
        while not (order == answer).all():
            time.sleep(LOOK_EVERY)  # without Python's lock: another thread is dispatching work for the device
            now = time.monotonic()
            if now > looked_after:
                looked_after = now + 1
                for worker, waits in zip(self._workers[which], order != answer, strict=True):
                    if waits and worker.process.poll() is not None:
                        raise self._died(worker)
                    if waits and now > given_up:
                        raise self._hangs(worker)

    def _write(self, worker: _Worker, data: bytes) -> None:
        assert worker.process.stdin is not None
        try:
            worker.process.stdin.write(data)
            worker.process.stdin.flush()
        except OSError:
            raise self._died(worker) from None

    def _read(self, worker: _Worker, count: int) -> bytes:
        """Exactly `count` bytes from a worker, or an error that says what became of it."""
        assert worker.process.stdout is not None
        pipe = worker.process.stdout.fileno()
        data = b""
        while len(data) < count:
            ready, _, _ = select.select([pipe], [], [], self._timeout)
            if not ready:
                raise self._hangs(worker)
            part = os.read(pipe, count - len(data))
            if not part:
                raise self._died(worker)
            data += part
        return data

    def _hangs(self, worker: _Worker) -> WorkerError:
        return WorkerError(
            f"the simulator of seed {worker.seed} has not answered for {self._timeout:.0f} s; "
            "its environment hangs or is very slow; the last checkpoint can be resumed"
        )

    def _died(self, worker: _Worker) -> WorkerError | EnvError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.process.wait(2)
        worker.prints.wait()
        lines = [line for line in worker.prints.last if line.strip()]
        code = worker.process.returncode
        if code == ENV_FAILED and lines:
            return EnvError(f"seed {worker.seed}: {lines[-1]}")
        said = f"; it said: {lines[-1]}" if lines else ""
        return WorkerError(f"the simulator of seed {worker.seed} died (exit code {code}){said}")

    def _write_message(self, worker: _Worker, message: Any) -> None:
        data = cloudpickle.dumps(message)
        self._write(worker, MESSAGE + len(data).to_bytes(8, "little") + data)

    def _read_message(self, worker: _Worker) -> Any:
        size = int.from_bytes(self._read(worker, 8), "little")
        return cloudpickle.loads(self._read(worker, size))
