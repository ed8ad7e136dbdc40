"""Simulators of all seeds, stepped together: all in this process, or one process for each seed.

A pool holds, for each seed, one training environment and any number of evaluation environments. Each training step
adds exactly one transition per seed; an episode that ends is followed by the next one's first observation within the
same step. Worker processes are plain `python -m dr_q.envs.processes.worker`: they import neither jax nor the caller's
script, so a pool works from an unguarded script and a notebook. Arrays travel through one block of shared memory. Where
there are cores to spare, both sides poll that memory for what comes next, which saves the time that waking a process
takes. Otherwise they wait on pipes that carry one byte per step.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from multiprocessing import shared_memory
from typing import Protocol, runtime_checkable

import numpy as np

from dr_q.envs.families import EnvFactory, make_env
from dr_q.envs.processes import flags
from dr_q.envs.processes.channel import WorkerProcess
from dr_q.envs.processes.packet import PacketLayout, Transitions
from dr_q.envs.processes.seed_envs import Command, SeedEnvs, SharedArrays
from dr_q.envs.protocol import Env, EnvSpec
from dr_q.kit import TaskError

DEFAULT_TIMEOUT = 300.0
_WORKER = "dr_q.envs.processes.worker"
_CORES_TO_SPARE = 4
"""Beyond one for each simulator: the loop, and what drives the device."""
_POLL_FOR = 0.02
"""Seconds that a worker polls for its next command before it sleeps."""

Observations = dict[str, np.ndarray]
"""An array for each part of the observation, with leading axes."""
Accept = Callable[[EnvSpec], None]
"""Raises an error if the run must not be started with such environments."""


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclasses.dataclass(frozen=True)
class Source:
    """Where environments come from."""

    task: str | EnvFactory
    noise_dims: int = 0

    def make(self) -> Env:
        """A fresh environment."""
        return make_env(self.task, noise_dims=self.noise_dims)


@runtime_checkable
class Pool(Protocol):
    """Simulators of all seeds. Arrays handed out are copies. Observations are dicts of arrays [S, ...] by part."""

    spec: EnvSpec

    def begin(self) -> Observations:
        """First observations of every seed's training."""
        ...

    def send(self, actions: np.ndarray) -> None:
        """Start a training step of every seed, actions in [-1, 1]."""
        ...

    def receive(self) -> Transitions:
        """The outcome of the step."""
        ...

    def evaluate_begin(self, episode_seeds: np.ndarray) -> Observations:
        """Start evaluation episodes, seeds [S, E]; their first observations [S, E, ...]."""
        ...

    def evaluate_step(self, actions: np.ndarray) -> tuple[Observations, np.ndarray, np.ndarray]:
        """Step the evaluation episodes that still run: observations, rewards (0 if ended), whether each still runs."""
        ...

    def open_episodes(self) -> list[tuple[int, np.ndarray]]:
        """For each seed its training episode's number and the actions since its start: enough to restore it."""
        ...

    def restore(self, episodes: Sequence[tuple[int, np.ndarray]]) -> Observations:
        """Replay open episodes on fresh environments; the observations reached."""
        ...

    def restart(self, seed_index: int, episode: int) -> Observations:
        """Start a given training episode of one seed; its first observation, without an axis of seeds."""
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
    accept: Accept = lambda _: None,
) -> Pool:
    """Make a pool for the seeds.

    Args:
        source: Where environments come from.
        seeds: One for each group of environments.
        eval_episodes: Evaluation episodes of each seed.
        in_process: Whether all simulators run in this process; otherwise each seed has a process.
        timeout: Seconds after which a process that does not answer is given up.
        spin: Whether to poll shared memory rather than wait on pipes; by default if there are cores to spare.
        accept: Called with what the first seed's environment is, before those of other seeds are started.
    """
    if in_process:
        return InProcessPool(source, seeds, eval_episodes, accept=accept)
    return ProcessPool(source, seeds, eval_episodes, timeout, spin=spin, accept=accept)


def check_same(spec: EnvSpec, first: EnvSpec, seed: int) -> None:
    """Refuse an environment that is not like the first seed's: their packets would be taken for each other's."""
    if spec != first:
        raise TaskError(f"the environment of seed {seed} has {spec.spaces}, that of the first seed {first.spaces}")


class _WithArrays:
    """What both kinds of pool do alike with their arrays."""

    spec: EnvSpec
    _arrays: SharedArrays
    _layout: PacketLayout

    def _transitions(self) -> Transitions:
        return Transitions(self._arrays.packet.copy(), self._layout)

    def _obs(self) -> Observations:
        return self._transitions().obs

    def _obs_of(self, seed_index: int) -> Observations:
        return {name: values[seed_index] for name, values in self._obs().items()}

    def _eval_obs(self) -> Observations:
        return {name: values.copy() for name, values in self._arrays.eval_obs.items()}

    def _evaluation(self) -> tuple[Observations, np.ndarray, np.ndarray]:
        return self._eval_obs(), self._arrays.eval_reward.copy(), self._arrays.eval_running.astype(bool)


class InProcessPool(_WithArrays):
    """All simulators in this process, one after the other."""

    def __init__(self, source: Source, seeds: Sequence[int], eval_episodes: int, *, accept: Accept = lambda _: None):
        self._envs: list[SeedEnvs] = []
        try:
            for seed in seeds:
                self._envs.append(SeedEnvs(source.make, seed))
                if len(self._envs) == 1:
                    accept(self._envs[0].spec)
                check_same(self._envs[-1].spec, self._envs[0].spec, seed)
        except BaseException:
            self.close()
            raise
        self.spec = self._envs[0].spec
        self._layout = PacketLayout(self.spec.obs)
        self._arrays = SharedArrays.allocate(self.spec, len(seeds), eval_episodes)
        self._rows = [self._arrays.row(i) for i in range(len(seeds))]

    def begin(self) -> Observations:
        """First observations."""
        for envs, row in zip(self._envs, self._rows, strict=True):
            envs.begin(row)
        return self._obs()

    def send(self, actions: np.ndarray) -> None:
        """Keep the actions; the step happens in `receive`, while the device may be busy."""
        self._arrays.action[:] = actions

    def receive(self) -> Transitions:
        """Step every simulator."""
        for envs, row in zip(self._envs, self._rows, strict=True):
            envs.step(row)
        return self._transitions()

    def evaluate_begin(self, episode_seeds: np.ndarray) -> Observations:
        """Start evaluation episodes."""
        self._arrays.eval_seed[:] = episode_seeds
        for envs, row in zip(self._envs, self._rows, strict=True):
            envs.evaluate_begin(row)
        return self._eval_obs()

    def evaluate_step(self, actions: np.ndarray) -> tuple[Observations, np.ndarray, np.ndarray]:
        """Step evaluation episodes."""
        self._arrays.eval_action[:] = actions
        for envs, row in zip(self._envs, self._rows, strict=True):
            envs.evaluate_step(row)
        return self._evaluation()

    def open_episodes(self) -> list[tuple[int, np.ndarray]]:
        """Episode numbers and actions."""
        return [envs.open_episode() for envs in self._envs]

    def restore(self, episodes: Sequence[tuple[int, np.ndarray]]) -> Observations:
        """Replay open episodes."""
        for envs, row, (episode, actions) in zip(self._envs, self._rows, episodes, strict=True):
            envs.restore(row, episode, actions)
        return self._obs()

    def restart(self, seed_index: int, episode: int) -> Observations:
        """Start an episode of one seed."""
        self._envs[seed_index].restore(self._rows[seed_index], episode)
        return self._obs_of(seed_index)

    def close(self) -> None:
        """Close the environments."""
        for envs in self._envs:
            envs.close()


class ProcessPool(_WithArrays):
    """A worker process for each seed."""

    def __init__(
        self,
        source: Source,
        seeds: Sequence[int],
        eval_episodes: int,
        timeout: float = DEFAULT_TIMEOUT,
        *,
        spin: bool | None = None,
        accept: Accept = lambda _: None,
    ):
        """`spin`: poll shared memory rather than wait to be woken; by default if cores allow."""
        self._timeout = timeout
        self._spin = cores() >= len(seeds) + _CORES_TO_SPARE if spin is None else spin
        self._workers: list[WorkerProcess] = []
        self._memory: shared_memory.SharedMemory | None = None
        try:
            self._start(source, seeds, eval_episodes, accept)
        except BaseException:
            self.close()
            raise

    def _start(self, source: Source, seeds: Sequence[int], eval_episodes: int, accept: Accept) -> None:
        self.spec: EnvSpec = self._start_workers(source, seeds, range(1))[0]
        accept(self.spec)
        for seed, spec in zip(seeds[1:], self._start_workers(source, seeds, range(1, len(seeds))), strict=True):
            check_same(spec, self.spec, seed)
        self._layout = PacketLayout(self.spec.obs)
        count = len(self._workers)
        size = SharedArrays.bytes_needed(self.spec, count, eval_episodes)
        self._memory = shared_memory.SharedMemory(create=True, size=size)
        self._arrays = SharedArrays.over(self._memory.buf, self.spec, count, eval_episodes)
        for worker in self._workers:
            worker.write_message((self._memory.name, count, eval_episodes, _POLL_FOR if self._spin else 0.0))

    def _start_workers(self, source: Source, seeds: Sequence[int], which: range) -> list[EnvSpec]:
        """Start these, all at once; each answers with its spec, or with why it cannot."""
        for index in which:
            worker = WorkerProcess(seeds[index], _WORKER)
            self._workers.append(worker)
            worker.write_message((source, index, seeds[index]))
        specs = []
        for index in which:
            answer = self._workers[index].read_message(self._timeout)
            if isinstance(answer, str):
                raise TaskError(answer)
            specs.append(answer)
        return specs

    def begin(self) -> Observations:
        """First observations."""
        self._all(Command.BEGIN)
        return self._obs()

    def send(self, actions: np.ndarray) -> None:
        """Start a step in every process."""
        self._arrays.action[:] = actions
        self._order(Command.STEP)

    def receive(self) -> Transitions:
        """Wait for every process."""
        self._await_answers()
        return self._transitions()

    def evaluate_begin(self, episode_seeds: np.ndarray) -> Observations:
        """Start evaluation episodes."""
        self._arrays.eval_seed[:] = episode_seeds
        self._all(Command.EVALUATE_BEGIN)
        return self._eval_obs()

    def evaluate_step(self, actions: np.ndarray) -> tuple[Observations, np.ndarray, np.ndarray]:
        """Step evaluation episodes."""
        self._arrays.eval_action[:] = actions
        self._all(Command.EVALUATE_STEP)
        return self._evaluation()

    def open_episodes(self) -> list[tuple[int, np.ndarray]]:
        """Episode numbers and actions."""
        self._order(Command.OPEN_EPISODE)
        return [worker.read_message(self._timeout) for worker in self._workers]

    def restore(self, episodes: Sequence[tuple[int, np.ndarray]]) -> Observations:
        """Replay open episodes, all processes at once."""
        self._order(Command.RESTORE)
        for worker, episode in zip(self._workers, episodes, strict=True):
            worker.write_message(episode)
        self._await_answers()
        return self._obs()

    def restart(self, seed_index: int, episode: int) -> Observations:
        """Start an episode of one seed."""
        which = slice(seed_index, seed_index + 1)
        self._order(Command.RESTORE, which)
        self._workers[seed_index].write_message((episode,))
        self._await_answers(which)
        return self._obs_of(seed_index)

    def seconds(self) -> np.ndarray:
        """Time that each simulator's last command took by itself."""
        return self._arrays.seconds.copy()

    def close(self) -> None:
        """End all processes and free what they share."""
        for worker in self._workers:
            worker.hang_up()
        deadline = time.monotonic() + 5
        for worker in self._workers:
            worker.end(deadline)
        self._workers = []
        if self._memory is not None:
            del self._arrays
            with contextlib.suppress(BufferError):  # a view of it is still alive somewhere: freed with that
                self._memory.close()
            self._memory.unlink()
            self._memory = None

    def _all(self, command: Command) -> None:
        self._order(command)
        self._await_answers()

    def _order(self, command: Command, which: slice = flags.ALL) -> None:
        flags.give_order(self._arrays, command, which)
        for worker, asleep in zip(self._workers[which], self._arrays.asleep[which], strict=True):
            if asleep or not self._spin:
                worker.wake()

    def _await_answers(self, which: slice = flags.ALL) -> None:
        if not self._spin:
            for worker in self._workers[which]:
                worker.read_done(self._timeout)
        now = time.monotonic()
        given_up, look_at_processes = now + self._timeout, now + 1
        while (waits := flags.waiting_for(self._arrays, which)).any():
            time.sleep(flags.POLL_EVERY)  # without Python's lock: another thread is dispatching work for the device
            now = time.monotonic()
            if now > look_at_processes:
                look_at_processes = now + 1
                for worker, waiting in zip(self._workers[which], waits, strict=True):
                    if waiting and worker.ended:
                        raise worker.death()
                    if waiting and now > given_up:
                        raise worker.silence(self._timeout)
