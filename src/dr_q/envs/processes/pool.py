"""Simulators of all seeds, stepped together: all in this process, or one process for each seed.

A pool holds, for each seed, one training environment and any number of evaluation environments. Each training step
adds exactly one transition per seed; an episode that ends is followed by the next one's first observation within the
same step. Worker processes are plain `python -m dr_q.envs.processes.worker`: they import neither jax nor the caller's
script, so a pool works from an unguarded script and a notebook. Arrays travel through one block of shared memory. Where
there are cores to spare, both sides poll that memory for what comes next, which saves the time that waking a process
takes. Otherwise they wait on pipes that carry one byte per step.

A simulator that dies, hangs or raises is started again as often as `Restarts` allows. The outcome of its last action is
unknown, so that step is given as a truncation: reward 0, and where it led is the observation that was acted on. Neither
is ever learnt from, because no window that the replay draws reaches an episode's last transition if that was truncated.
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
from dr_q.envs.processes.restarts import FAILED, RestartedError, Restarts
from dr_q.envs.processes.seed_envs import Command, SeedEnvs, SharedArrays
from dr_q.envs.processes.watchdog import CallInterruptedError, CallWatchdog, keep_from_exiting
from dr_q.envs.protocol import Env, EnvSpec
from dr_q.kit import EnvError, TaskError, WorkerError

DEFAULT_TIMEOUT = 300.0
_WORKER = "dr_q.envs.processes.worker"
_CORES_TO_SPARE = 4
"""Beyond one for each simulator: the loop, and what drives the device."""
_START_SECONDS = 10.0
"""What a process may take to start, besides making its environment."""
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

    def reward_range(self) -> tuple[float, float]:
        """Lowest and highest reward of training so far, of all seeds."""
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
    restarts: Restarts | None = None,
    watchdog: CallWatchdog | None = None,
) -> Pool:
    """Make a pool for the seeds.

    Args:
        source: Where environments come from.
        seeds: One for each group of environments.
        eval_episodes: Evaluation episodes of each seed.
        in_process: Whether all simulators run in this process; otherwise each seed has a process.
        timeout: Seconds after which a simulator that does not answer is given up.
        spin: Whether to poll shared memory rather than wait on pipes; by default if there are cores to spare.
        accept: Called with what the first seed's environment is, before those of other seeds are started.
        restarts: How often simulators that fail may be started again; by default never.
        watchdog: Of environments in this process, where the caller can interrupt them; `timeout` is then its own.
    """
    if in_process:
        watchdog = watchdog or CallWatchdog(timeout)
        return InProcessPool(source, seeds, eval_episodes, accept=accept, restarts=restarts, watchdog=watchdog)
    return ProcessPool(source, seeds, eval_episodes, timeout, spin=spin, accept=accept, restarts=restarts)


def check_same(spec: EnvSpec, first: EnvSpec, seed: int) -> None:
    """Refuse an environment that is not like the first seed's: their packets would be taken for each other's."""
    if spec != first:
        raise TaskError(f"the environment of seed {seed} has {spec.spaces}, that of the first seed {first.spaces}")


class _WithArrays:
    """What both kinds of pool do alike with their arrays."""

    spec: EnvSpec
    _arrays: SharedArrays
    _layout: PacketLayout

    def __init__(self, seeds: Sequence[int], restarts: Restarts | None):
        self._seeds = list(seeds)
        self._restarts = restarts or Restarts()
        self._last: Transitions | None = None
        """What was handed out last in training; None before that begins."""
        self._lost: set[int] = set()
        """Seeds, by index, whose simulators were started again, in an episode that the agent does not know of yet."""

    def _transitions(self) -> Transitions:
        return Transitions(self._arrays.packet.copy(), self._layout)

    def _first(self) -> Observations:
        """What to act on, of all seeds; nothing that came before counts."""
        self._last = self._transitions()
        self._lost.clear()
        return self._last.obs

    def _obs_of(self, seed_index: int) -> Observations:
        self._last = self._transitions()
        return {name: values[seed_index] for name, values in self._last.obs.items()}

    def _step_outcome(self) -> Transitions:
        """The outcome of a step; seeds whose simulators were started again truncated their episodes in it."""
        outcome = self._transitions()
        if self._lost:
            assert self._last is not None
            acted_on, led_to = self._last.obs, outcome.next_obs
            for index in self._lost:
                outcome.numbers[index] = 0, 0, 1
                for name, values in led_to.items():
                    values[index] = acted_on[name][index]
            self._lost.clear()
        self._last = outcome
        return outcome

    def _others(self) -> list[int]:
        """Seeds whose simulators take the next action."""
        return [index for index in range(len(self._seeds)) if index not in self._lost]

    def _replace(self, index: int, error: WorkerError | EnvError) -> None:
        """Start a seed's simulators again, in its next episode, after an error; raises it if that may not be."""
        while True:
            self._restarts.take(self._seeds[index], error)
            try:
                self._start_again(index)
            except FAILED as again:
                error = again
                continue
            if self._last is not None:
                self._lost.add(index)
            return

    def _start_again(self, index: int) -> None:
        raise NotImplementedError  # each kind has its own

    def _no_evaluation(self, replaced: list[int]) -> None:
        """Have an evaluation begin again in which simulators were replaced: theirs do not know of it."""
        if replaced:
            raise RestartedError

    def _eval_obs(self) -> Observations:
        return {name: values.copy() for name, values in self._arrays.eval_obs.items()}

    def _evaluation(self) -> tuple[Observations, np.ndarray, np.ndarray]:
        return self._eval_obs(), self._arrays.eval_reward.copy(), self._arrays.eval_running.astype(bool)

    def reward_range(self) -> tuple[float, float]:
        """Lowest and highest reward of training so far, of all seeds."""
        return float(self._arrays.reward_range[:, 0].min()), float(self._arrays.reward_range[:, 1].max())


class InProcessPool(_WithArrays):
    """All simulators in this process, one after the other."""

    def __init__(
        self,
        source: Source,
        seeds: Sequence[int],
        eval_episodes: int,
        *,
        accept: Accept = lambda _: None,
        restarts: Restarts | None = None,
        watchdog: CallWatchdog | None = None,
    ):
        super().__init__(seeds, restarts)
        self._source = source
        self._envs: list[SeedEnvs] = []
        self._watchdog = watchdog or CallWatchdog(DEFAULT_TIMEOUT)
        self._cleanup = contextlib.ExitStack()
        self._cleanup.enter_context(keep_from_exiting(self._watchdog))
        try:
            for seed in seeds:
                self._envs.append(self._make(seed))
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
        self._all(SeedEnvs.begin)
        return self._first()

    def send(self, actions: np.ndarray) -> None:
        """Keep the actions; the step happens in `receive`, while the device may be busy."""
        self._arrays.action[:] = actions

    def receive(self) -> Transitions:
        """Step every simulator."""
        for index in self._others():
            self._call(index, SeedEnvs.step)
        return self._step_outcome()

    def evaluate_begin(self, episode_seeds: np.ndarray) -> Observations:
        """Start evaluation episodes."""
        self._arrays.eval_seed[:] = episode_seeds
        self._no_evaluation(self._all(SeedEnvs.evaluate_begin))
        return self._eval_obs()

    def evaluate_step(self, actions: np.ndarray) -> tuple[Observations, np.ndarray, np.ndarray]:
        """Step evaluation episodes."""
        self._arrays.eval_action[:] = actions
        self._no_evaluation(self._all(SeedEnvs.evaluate_step))
        return self._evaluation()

    def open_episodes(self) -> list[tuple[int, np.ndarray]]:
        """Episode numbers and actions."""
        return [envs.open_episode() for envs in self._envs]

    def restore(self, episodes: Sequence[tuple[int, np.ndarray]]) -> Observations:
        """Replay open episodes."""
        for index, (episode, actions) in enumerate(episodes):
            self._call(index, SeedEnvs.restore, episode, actions)
        return self._first()

    def restart(self, seed_index: int, episode: int) -> Observations:
        """Start an episode of one seed."""
        self._call(seed_index, SeedEnvs.restore, episode)
        return self._obs_of(seed_index)

    def close(self) -> None:
        """Close the environments."""
        try:
            for envs in self._envs:
                envs.close()
        finally:
            self._envs = []
            self._watchdog.close()
            self._cleanup.close()

    def _make(self, seed: int) -> SeedEnvs:
        self._watchdog.begin(seed)
        try:
            return SeedEnvs(self._source.make, seed)
        except CallInterruptedError:
            raise self._watchdog.error(seed) from None
        finally:
            self._watchdog.end()

    def _all(self, method: Callable[..., None]) -> list[int]:
        """Call a method of every seed's environments; the seeds whose simulators had to be started again."""
        return [index for index in range(len(self._seeds)) if not self._call(index, method)]

    def _call(self, index: int, method: Callable[..., None], *arguments: object) -> bool:
        """Call a method of a seed's environments; False if they failed and were started again."""
        self._watchdog.begin(self._seeds[index])
        try:
            method(self._envs[index], self._rows[index], *arguments)
            return True
        except FAILED as error:
            failed = error
        except CallInterruptedError:
            failed = self._watchdog.error(self._seeds[index])
        finally:
            self._watchdog.end()
        self._replace(index, failed)
        return False

    def _start_again(self, index: int) -> None:
        seed, row = self._seeds[index], self._rows[index]
        before, episode = self._envs[index], int(row.episode) + 1
        self._watchdog.begin(seed)
        try:
            with contextlib.suppress(Exception):  # it has failed already
                before.close()
            self._envs[index] = SeedEnvs(self._source.make, seed)
            self._envs[index].restore(row, episode)
        except CallInterruptedError:
            raise self._watchdog.error(seed) from None
        except TaskError as error:
            raise EnvError(str(error)) from error
        finally:
            self._watchdog.end()
        check_same(self._envs[index].spec, self.spec, seed)


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
        restarts: Restarts | None = None,
    ):
        """`spin`: poll shared memory rather than wait to be woken; by default if cores allow."""
        super().__init__(seeds, restarts)
        self._source, self._eval_episodes = source, eval_episodes
        self._timeout = timeout
        self._spin = cores() >= len(seeds) + _CORES_TO_SPARE if spin is None else spin
        self._workers: list[WorkerProcess] = []
        self._training = False
        self._stepping: list[int] | None = None
        """Seeds, by index, that take part in the step under way; None for all."""
        self._memory: shared_memory.SharedMemory | None = None
        try:
            self._start(accept)
        except BaseException:
            self.close()
            raise

    def _start(self, accept: Accept) -> None:
        self.spec: EnvSpec = self._start_workers(range(1))[0]
        accept(self.spec)
        count = len(self._seeds)
        for seed, spec in zip(self._seeds[1:], self._start_workers(range(1, count)), strict=True):
            check_same(spec, self.spec, seed)
        self._layout = PacketLayout(self.spec.obs)
        size = SharedArrays.bytes_needed(self.spec, count, self._eval_episodes)
        self._memory = shared_memory.SharedMemory(create=True, size=size)
        self._arrays = SharedArrays.over(self._memory.buf, self.spec, count, self._eval_episodes)
        for worker in self._workers:
            self._share_memory(worker)

    def _start_workers(self, which: range) -> list[EnvSpec]:
        """Start these, all at once; each answers with its spec, or with why it cannot."""
        for index in which:
            worker = WorkerProcess(self._seeds[index], _WORKER)
            self._workers.append(worker)
            worker.write_message((self._source, index, self._seeds[index]))
        return [self._spec_of(self._workers[index]) for index in which]

    def _spec_of(self, worker: WorkerProcess) -> EnvSpec:
        answer = worker.read_message(self._timeout + _START_SECONDS)
        if isinstance(answer, str):
            raise TaskError(answer)
        return answer

    def _share_memory(self, worker: WorkerProcess) -> None:
        assert self._memory is not None
        poll_for = _POLL_FOR if self._spin else 0.0
        worker.write_message((self._memory.name, len(self._seeds), self._eval_episodes, poll_for))

    def _start_again(self, index: int) -> None:
        self._workers[index].kill()
        for counter in (self._arrays.order, self._arrays.answer, self._arrays.asleep):
            counter[index] = 0
        worker = self._workers[index] = WorkerProcess(self._seeds[index], _WORKER)
        worker.write_message((self._source, index, self._seeds[index]))
        try:
            check_same(self._spec_of(worker), self.spec, self._seeds[index])
        except TaskError as error:
            raise EnvError(str(error)) from error
        self._share_memory(worker)
        if self._training:
            self._order(Command.RESTORE, [index])
            worker.write_message((int(self._arrays.episode[index]) + 1,))
            self._await_one(index)

    def begin(self) -> Observations:
        """First observations."""
        self._training = True
        self._all(Command.BEGIN)
        return self._first()

    def send(self, actions: np.ndarray) -> None:
        """Start a step in every process."""
        self._arrays.action[:] = actions
        self._stepping = self._others() if self._lost else None
        self._order(Command.STEP, self._stepping)

    def receive(self) -> Transitions:
        """Wait for every process."""
        self._await_answers(self._stepping)
        return self._step_outcome()

    def evaluate_begin(self, episode_seeds: np.ndarray) -> Observations:
        """Start evaluation episodes."""
        self._arrays.eval_seed[:] = episode_seeds
        self._no_evaluation(self._all(Command.EVALUATE_BEGIN))
        return self._eval_obs()

    def evaluate_step(self, actions: np.ndarray) -> tuple[Observations, np.ndarray, np.ndarray]:
        """Step evaluation episodes."""
        self._arrays.eval_action[:] = actions
        self._no_evaluation(self._all(Command.EVALUATE_STEP))
        return self._evaluation()

    def open_episodes(self) -> list[tuple[int, np.ndarray]]:
        """Episode numbers and actions."""
        self._order(Command.OPEN_EPISODE)
        return [self._open_episode(index) for index in range(len(self._seeds))]

    def _open_episode(self, index: int) -> tuple[int, np.ndarray]:
        try:
            return self._workers[index].read_message(self._timeout)
        except FAILED as error:
            self._replace(index, error)
        return int(self._arrays.episode[index]), np.zeros((0, self.spec.action.dim), np.float32)

    def restore(self, episodes: Sequence[tuple[int, np.ndarray]]) -> Observations:
        """Replay open episodes, all processes at once."""
        self._training = True
        self._order(Command.RESTORE)
        for worker, episode in zip(self._workers, episodes, strict=True):
            with contextlib.suppress(*FAILED):  # whoever waits for it finds out
                worker.write_message(episode)
        self._await_answers()
        return self._first()

    def restart(self, seed_index: int, episode: int) -> Observations:
        """Start an episode of one seed."""
        self._order(Command.RESTORE, [seed_index])
        self._workers[seed_index].write_message((episode,))
        self._await_answers([seed_index])
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

    def _all(self, command: Command) -> list[int]:
        self._order(command)
        return self._await_answers()

    def _order(self, command: Command, which: list[int] | None = None) -> None:
        """Give all workers, or some, a command."""
        flags.give_order(self._arrays, command, flags.ALL if which is None else which)
        for index in range(len(self._workers)) if which is None else which:
            if not self._spin or self._arrays.asleep[index]:
                with contextlib.suppress(*FAILED):  # whoever waits for its answer finds out
                    self._workers[index].wake()

    def _await_answers(self, which: list[int] | None = None) -> list[int]:
        """Wait for the workers that have a command; the seeds whose workers failed and were started again."""
        replaced: list[int] = []
        now = time.monotonic()
        given_up, look_at_processes = now + self._timeout, now + 1
        if not self._spin:
            for index in range(len(self._workers)) if which is None else which:
                try:
                    self._workers[index].read_done(given_up, self._timeout)
                except FAILED as error:
                    self._replace(index, error)
                    replaced.append(index)
        while (waits := flags.waiting_for(self._arrays)).any():
            time.sleep(flags.POLL_EVERY)  # without Python's lock: another thread is dispatching work for the device
            now = time.monotonic()
            if now <= look_at_processes:
                continue
            look_at_processes = now + 1
            for index in map(int, np.flatnonzero(waits)):
                error = self._failure(index, late=now > given_up)
                if error is not None:
                    self._replace(index, error)
                    replaced.append(index)
        return replaced

    def _await_one(self, index: int) -> None:
        """Wait for one worker's answer, without starting it again."""
        given_up = time.monotonic() + self._timeout
        if not self._spin:
            self._workers[index].read_done(given_up, self._timeout)
        while flags.waiting_for(self._arrays, [index]).any():
            time.sleep(flags.POLL_EVERY)
            error = self._failure(index, late=time.monotonic() > given_up)
            if error is not None:
                raise error

    def _failure(self, index: int, *, late: bool) -> WorkerError | EnvError | None:
        """What became of a worker that has not answered, if anything did."""
        worker = self._workers[index]
        if worker.ended:
            return worker.death()
        return worker.silence(self._timeout) if late else None
