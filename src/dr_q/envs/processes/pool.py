"""Simulators of all seeds, stepped together: all in this process, or in processes of their own.

A pool holds, for each seed, its training environments (lanes) and any number of evaluation environments. Each training
step adds exactly one transition per lane; an episode that ends is followed by the next one's first observation within
the same step. Arrays have a row for each lane, one seed's after the other's. A group is the lanes of a seed that share
a process. Evaluation episodes are shared among the lanes of their seed. Worker processes are plain `python -m
dr_q.envs.processes.worker`: they import neither jax nor the caller's script, so a pool works from an unguarded script
and a notebook. Arrays travel through one block of shared memory. Where there are cores to spare, both sides poll that
memory for what comes next, which saves the time that waking a process takes. Otherwise they wait on pipes that carry
one byte per step.

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
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from dr_q.envs.processes import flags
from dr_q.envs.processes.channel import WorkerProcess
from dr_q.envs.processes.lanes import Lanes, open_lanes
from dr_q.envs.processes.packet import PacketLayout, Transitions
from dr_q.envs.processes.restarts import FAILED, RestartedError, Restarts
from dr_q.envs.processes.seed_envs import Command, SharedArrays
from dr_q.envs.processes.source import Source
from dr_q.envs.processes.watchdog import CallInterruptedError, CallWatchdog, keep_from_exiting
from dr_q.envs.protocol import EnvSpec
from dr_q.kit import EnvError, TaskError, WorkerError, spelled

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


class Group(NamedTuple):
    """Lanes of a seed that are simulated one after the other."""

    seed: int
    lanes: range
    """Their numbers."""
    rows: range
    """Where they are in the arrays of all lanes of all seeds."""

    @property
    def row(self) -> int:
        """Where the counters of its process are."""
        return self.rows.start


def groups_of(seeds: Sequence[int], lanes: int, together: int) -> list[Group]:
    """Groups of so many lanes; the last one of a seed may be smaller."""
    return [
        Group(seed, numbers, range(index * lanes + numbers.start, index * lanes + numbers.stop))
        for index, seed in enumerate(seeds)
        for start in range(0, lanes, together)
        for numbers in (range(start, min(start + together, lanes)),)
    ]


def usual_envs_per_process(seeds: int, lanes: int) -> int:
    """1, unless there are more environments than cores."""
    processes = max(1, min(lanes, cores() // seeds))
    return -(-lanes // processes)


@runtime_checkable
class Pool(Protocol):
    """Simulators of all seeds. Arrays handed out are copies.

    Observations of training are dicts of arrays [S x L, ...] by part: L lanes of each of S seeds.
    """

    spec: EnvSpec
    lanes: int
    """Training environments of each seed."""

    def begin(self) -> Observations:
        """First observations of every lane's training."""
        ...

    def send(self, actions: np.ndarray) -> None:
        """Start a training step of every lane, actions in [-1, 1]."""
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
        """For each lane its training episode's number and the actions since its start: enough to restore it."""
        ...

    def restore(self, episodes: Sequence[tuple[int, np.ndarray]]) -> Observations:
        """Replay open episodes on fresh environments; the observations reached."""
        ...

    def restart(self, row: int, episode: int) -> Observations:
        """Start a given training episode of one lane; its first observation, without an axis of lanes."""
        ...

    def eval_success(self) -> np.ndarray:
        """[S, E]: whether each episode of the last evaluation succeeded; NaN where the environment does not say."""
        ...

    def reward_range(self) -> tuple[float, float]:
        """Lowest and highest reward of training so far, of all seeds."""
        ...

    def infos(self) -> np.ndarray:
        """[S, 1 + keys]: whether the last episode succeeded, and the entries of `info` asked for; NaN if unknown."""
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
    lanes: int = 1,
    envs_per_process: int | None = None,
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
        in_process: Whether all simulators run in this process.
        lanes: Training environments of each seed. A `VectorEnv` has its own number, and 1 stands for that.
        envs_per_process: Training environments that share a process; by default 1 if there are cores for all.
        timeout: Seconds after which a simulator that does not answer is given up.
        spin: Whether to poll shared memory rather than wait on pipes; by default if there are cores to spare.
        accept: Called with what the first seed's environment is, before those of other seeds are started.
        restarts: How often simulators that fail may be started again; by default never.
        watchdog: Of environments in this process, where the caller can interrupt them; `timeout` is then its own.
    """
    if in_process:
        watchdog = watchdog or CallWatchdog(timeout)
        return InProcessPool(
            source, seeds, eval_episodes, lanes=lanes, accept=accept, restarts=restarts, watchdog=watchdog
        )
    return ProcessPool(
        source, seeds, eval_episodes, timeout,
        lanes=lanes, envs_per_process=envs_per_process, spin=spin, accept=accept, restarts=restarts,
    )  # fmt: skip


def check_same(spec: EnvSpec, first: EnvSpec, seed: int) -> None:
    """Refuse an environment that is not like the first seed's: their packets would be taken for each other's."""
    if spec != first:
        raise TaskError(f"the environment of seed {seed} has {spec.spaces}, that of the first seed {first.spaces}")


class _WithArrays:
    """What both kinds of pool do alike with their arrays."""

    spec: EnvSpec
    _source: Source
    _arrays: SharedArrays
    _layout: PacketLayout

    def __init__(self, seeds: Sequence[int], eval_episodes: int, lanes: int, together: int, restarts: Restarts | None):
        self._seeds, self._eval_episodes = list(seeds), eval_episodes
        self.lanes = lanes
        self._groups = groups_of(self._seeds, lanes, together)
        self._restarts = restarts or Restarts()
        self._last: Transitions | None = None
        """What was handed out last in training; None before that begins."""
        self._lost: set[int] = set()
        """Groups, by index, whose simulators were started again, in episodes that the agent does not know of yet."""

    def _accept_first(self, spec: EnvSpec, accept: Accept) -> None:
        """Take what the first group's environments are; a `VectorEnv` says how many lanes there are."""
        self.spec = spec
        if spec.vector_lanes:
            if self.lanes not in (1, spec.vector_lanes):
                raise TaskError(
                    f"the VectorEnv has {spec.vector_lanes} environments, and {spelled('envs')} is {self.lanes}; "
                    "leave that out"
                )
            self.lanes = spec.vector_lanes
            self._groups = groups_of(self._seeds, self.lanes, self.lanes)
        accept(spec)
        self._layout = PacketLayout(spec.obs)
        self._eval_columns = -(-self._eval_episodes // self.lanes)
        """Evaluation episodes of each lane; the last lanes may have fewer."""

    @property
    def _rows(self) -> int:
        return self.lanes * len(self._seeds)

    def _transitions(self) -> Transitions:
        return Transitions(self._arrays.packet.copy(), self._layout)

    def _first(self) -> Observations:
        """What to act on, of all seeds; nothing that came before counts."""
        self._last = self._transitions()
        self._lost.clear()
        return self._last.obs

    def _obs_of(self, row: int) -> Observations:
        self._last = self._transitions()
        return {name: values[row] for name, values in self._last.obs.items()}

    def _group_of(self, row: int) -> int:
        return next(index for index, group in enumerate(self._groups) if row in group.rows)

    def _step_outcome(self) -> Transitions:
        """The outcome of a step; lanes whose simulators were started again truncated their episodes in it."""
        outcome = self._transitions()
        if self._lost:
            assert self._last is not None
            acted_on, led_to = self._last.obs, outcome.next_obs
            for row in (row for index in self._lost for row in self._groups[index].rows):
                outcome.numbers[row] = 0, 0, 1
                self._arrays.info[row] = np.nan
                for name, values in led_to.items():
                    values[row] = acted_on[name][row]
            self._lost.clear()
        self._last = outcome
        return outcome

    def _others(self) -> list[int]:
        """Groups whose simulators take the next action."""
        return [index for index in range(len(self._groups)) if index not in self._lost]

    def _replace(self, index: int, error: WorkerError | EnvError) -> None:
        """Start a group's simulators again, in their next episodes, after an error; raises it if that may not be."""
        while True:
            self._restarts.take(self._groups[index].seed, error)
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

    def _next_episodes(self, index: int) -> dict[int, tuple[int]]:
        """Those of a group's lanes, for `Lanes.restore`."""
        return {lane: (int(self._arrays.episode[row]) + 1,) for lane, row in enumerate(self._groups[index].rows)}

    def _no_evaluation(self, replaced: list[int]) -> None:
        """Have an evaluation begin again in which simulators were replaced: theirs do not know of it."""
        if replaced:
            raise RestartedError

    def _to_lanes(self, into: np.ndarray, values: np.ndarray) -> None:
        """Share [S, E, ...] values of evaluation episodes among the lanes of each seed; 0 where there are no more."""
        of_seeds = into.reshape(len(self._seeds), -1, *into.shape[2:])
        of_seeds[:, : self._eval_episodes] = values
        of_seeds[:, self._eval_episodes :] = 0

    def _from_lanes(self, values: np.ndarray) -> np.ndarray:
        """The reverse, as a copy."""
        return values.reshape(len(self._seeds), -1, *values.shape[2:])[:, : self._eval_episodes].copy()

    def _plan_evaluation(self, episode_seeds: np.ndarray) -> None:
        self._to_lanes(self._arrays.eval_seed, episode_seeds)
        self._to_lanes(self._arrays.eval_running, np.ones(np.shape(episode_seeds), np.uint8))

    def _eval_obs(self) -> Observations:
        return {name: self._from_lanes(values) for name, values in self._arrays.eval_obs.items()}

    def _evaluation(self) -> tuple[Observations, np.ndarray, np.ndarray]:
        reward, running = self._from_lanes(self._arrays.eval_reward), self._from_lanes(self._arrays.eval_running)
        return self._eval_obs(), reward, running.astype(bool)

    def eval_success(self) -> np.ndarray:
        """Success of the last evaluation's episodes."""
        return self._from_lanes(self._arrays.eval_success)

    def reward_range(self) -> tuple[float, float]:
        """Lowest and highest reward of training so far, of all seeds."""
        return float(self._arrays.reward_range[:, 0].min()), float(self._arrays.reward_range[:, 1].max())

    def infos(self) -> np.ndarray:
        """Success and entries of `info`."""
        return self._arrays.info[:, : 1 + len(self._source.info_keys)].copy()


class InProcessPool(_WithArrays):
    """All simulators in this process, one after the other."""

    def __init__(
        self,
        source: Source,
        seeds: Sequence[int],
        eval_episodes: int,
        *,
        lanes: int = 1,
        accept: Accept = lambda _: None,
        restarts: Restarts | None = None,
        watchdog: CallWatchdog | None = None,
    ):
        super().__init__(seeds, eval_episodes, lanes, 1, restarts)
        self._source, self._unprobed = source, dataclasses.replace(source, probed=False)
        self._envs: list[Lanes] = []
        self._watchdog = watchdog or CallWatchdog(DEFAULT_TIMEOUT)
        self._cleanup = contextlib.ExitStack()
        self._cleanup.enter_context(keep_from_exiting(self._watchdog))
        try:
            self._envs.append(self._make(self._groups[0]))
            self._accept_first(self._envs[0].spec, accept)
            for group in self._groups[1:]:
                self._envs.append(self._make(group))
                check_same(self._envs[-1].spec, self.spec, group.seed)
        except BaseException:
            self.close()
            raise
        self._arrays = SharedArrays.allocate(self.spec, self._rows, self._eval_columns)
        self._of_group = [[self._arrays.row(row) for row in group.rows] for group in self._groups]

    def begin(self) -> Observations:
        """First observations."""
        self._all(Lanes.begin)
        return self._first()

    def send(self, actions: np.ndarray) -> None:
        """Keep the actions; the step happens in `receive`, while the device may be busy."""
        self._arrays.action[:] = actions

    def receive(self) -> Transitions:
        """Step every simulator."""
        for index in self._others():
            self._call(index, Lanes.step)
        return self._step_outcome()

    def evaluate_begin(self, episode_seeds: np.ndarray) -> Observations:
        """Start evaluation episodes."""
        self._plan_evaluation(episode_seeds)
        self._no_evaluation(self._all(Lanes.evaluate_begin))
        return self._eval_obs()

    def evaluate_step(self, actions: np.ndarray) -> tuple[Observations, np.ndarray, np.ndarray]:
        """Step evaluation episodes."""
        self._to_lanes(self._arrays.eval_action, actions)
        self._no_evaluation(self._all(Lanes.evaluate_step))
        return self._evaluation()

    def open_episodes(self) -> list[tuple[int, np.ndarray]]:
        """Episode numbers and actions."""
        return [episode for envs in self._envs for episode in envs.open_episodes()]

    def restore(self, episodes: Sequence[tuple[int, np.ndarray]]) -> Observations:
        """Replay open episodes."""
        for index, group in enumerate(self._groups):
            self._call(index, Lanes.restore, {lane: episodes[row] for lane, row in enumerate(group.rows)})
        return self._first()

    def restart(self, row: int, episode: int) -> Observations:
        """Start an episode of one lane."""
        index = self._group_of(row)
        self._call(index, Lanes.restore, {row - self._groups[index].row: (episode,)})
        return self._obs_of(row)

    def close(self) -> None:
        """Close the environments."""
        try:
            for group, envs in zip(self._groups, self._envs, strict=False):  # fewer, where one could not be made
                self._close(group.seed, envs)
        finally:
            self._envs = []
            self._watchdog.close()
            self._cleanup.close()

    def _close(self, seed: int, envs: Lanes) -> None:
        self._watchdog.begin(seed)
        try:
            envs.close()
        except CallInterruptedError:  # everything is done by then: no reason to lose it
            self._restarts.say(f"{self._watchdog.error(seed)}, in close(); it was left")
        finally:
            self._watchdog.end()

    def _make(self, group: Group) -> Lanes:
        self._watchdog.begin(group.seed)
        try:
            return open_lanes(self._unprobed if self._envs else self._source, group.seed, group.lanes)
        except CallInterruptedError:
            raise self._watchdog.error(group.seed) from None
        finally:
            self._watchdog.end()

    def _all(self, method: Callable[..., None]) -> list[int]:
        """Call a method of every group's environments; the groups whose simulators had to be started again."""
        return [index for index in range(len(self._groups)) if not self._call(index, method)]

    def _call(self, index: int, method: Callable[..., None], *arguments: object) -> bool:
        """Call a method of a group's environments; False if they failed and were started again."""
        seed = self._groups[index].seed
        self._watchdog.begin(seed)
        try:
            getattr(self._envs[index], method.__name__)(self._of_group[index], *arguments)
            return True
        except FAILED as error:
            failed = error
        except CallInterruptedError:
            failed = self._watchdog.error(seed)
        finally:
            self._watchdog.end()
        self._replace(index, failed)
        return False

    def _start_again(self, index: int) -> None:
        seed, episodes = self._groups[index].seed, self._next_episodes(index)
        before = self._envs[index]
        self._watchdog.begin(seed)
        try:
            with contextlib.suppress(Exception):  # it has failed already
                before.close()
            self._envs[index] = open_lanes(self._unprobed, seed, self._groups[index].lanes)
            self._envs[index].restore(self._of_group[index], episodes)
        except CallInterruptedError:
            raise self._watchdog.error(seed) from None
        except TaskError as error:
            raise EnvError(str(error)) from error
        finally:
            self._watchdog.end()
        check_same(self._envs[index].spec, self.spec, seed)


class ProcessPool(_WithArrays):
    """A worker process for each group of lanes: by default for each lane of each seed."""

    def __init__(
        self,
        source: Source,
        seeds: Sequence[int],
        eval_episodes: int,
        timeout: float = DEFAULT_TIMEOUT,
        *,
        lanes: int = 1,
        envs_per_process: int | None = None,
        spin: bool | None = None,
        accept: Accept = lambda _: None,
        restarts: Restarts | None = None,
    ):
        """`spin`: poll shared memory rather than wait to be woken; by default if cores allow."""
        together = usual_envs_per_process(len(seeds), lanes) if envs_per_process is None else envs_per_process
        super().__init__(seeds, eval_episodes, lanes, together, restarts)
        self._source, self._unprobed = source, dataclasses.replace(source, probed=False)
        self._timeout = timeout
        self._spin = cores() >= len(self._groups) + _CORES_TO_SPARE if spin is None else spin
        self._workers: list[WorkerProcess] = []
        self._training = False
        self._stepping: list[int] | None = None
        """Groups, by index, that take part in the step under way; None for all."""
        self._memory: shared_memory.SharedMemory | None = None
        try:
            self._start(accept)
        except BaseException:
            self.close()
            raise

    def _start(self, accept: Accept) -> None:
        self._accept_first(self._start_workers(range(1))[0], accept)
        others = self._start_workers(range(1, len(self._groups)))
        for group, spec in zip(self._groups[1:], others, strict=True):
            check_same(spec, self.spec, group.seed)
        size = SharedArrays.bytes_needed(self.spec, self._rows, self._eval_columns)
        self._memory = shared_memory.SharedMemory(create=True, size=size)
        self._arrays = SharedArrays.over(self._memory.buf, self.spec, self._rows, self._eval_columns)
        self._at = np.asarray([group.row for group in self._groups])
        """Where the counters of each worker are."""
        for index in range(len(self._workers)):
            self._share_memory(index)

    def _start_workers(self, which: range) -> list[EnvSpec]:
        """Start these, all at once; each answers with its spec, or with why it cannot."""
        for index in which:
            self._workers.append(self._start_worker(index, self._unprobed if index else self._source))
        return [self._spec_of(self._workers[index]) for index in which]

    def _start_worker(self, index: int, source: Source) -> WorkerProcess:
        seed, lanes, _ = self._groups[index]
        which = "" if len(lanes) == self.lanes else f", environment {lanes[0]}"
        which += f" to {lanes[-1]}" if which and len(lanes) > 1 else ""
        worker = WorkerProcess(seed, _WORKER, which)
        worker.write_message((source, seed, lanes))
        return worker

    def _spec_of(self, worker: WorkerProcess) -> EnvSpec:
        try:
            answer = worker.read_message(self._timeout, _START_SECONDS)
        except WorkerError:
            worker.kill()  # one that hangs would not end by itself
            raise
        if isinstance(answer, str):
            raise TaskError(answer)
        return answer

    def _share_memory(self, index: int) -> None:
        assert self._memory is not None
        poll_for, rows = _POLL_FOR if self._spin else 0.0, self._groups[index].rows
        self._workers[index].write_message((self._memory.name, self._rows, self._eval_columns, rows, poll_for))

    def _start_again(self, index: int) -> None:
        self._workers[index].kill()
        for counter in (self._arrays.order, self._arrays.answer, self._arrays.asleep):
            counter[self._groups[index].row] = 0
        worker = self._workers[index] = self._start_worker(index, self._unprobed)
        try:
            check_same(self._spec_of(worker), self.spec, self._groups[index].seed)
        except TaskError as error:
            raise EnvError(str(error)) from error
        self._share_memory(index)
        if self._training:
            self._order(Command.RESTORE, [index])
            worker.write_message(self._next_episodes(index))
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
        self._plan_evaluation(episode_seeds)
        self._no_evaluation(self._all(Command.EVALUATE_BEGIN))
        return self._eval_obs()

    def evaluate_step(self, actions: np.ndarray) -> tuple[Observations, np.ndarray, np.ndarray]:
        """Step evaluation episodes."""
        self._to_lanes(self._arrays.eval_action, actions)
        self._no_evaluation(self._all(Command.EVALUATE_STEP))
        return self._evaluation()

    def open_episodes(self) -> list[tuple[int, np.ndarray]]:
        """Episode numbers and actions."""
        self._order(Command.OPEN_EPISODE)
        return [episode for index in range(len(self._groups)) for episode in self._open_episodes(index)]

    def _open_episodes(self, index: int) -> list[tuple[int, np.ndarray]]:
        try:
            return self._workers[index].read_message(self._timeout)
        except FAILED as error:
            self._replace(index, error)
        none = np.zeros((0, self.spec.action.dim), np.float32)
        return [(int(self._arrays.episode[row]), none) for row in self._groups[index].rows]

    def restore(self, episodes: Sequence[tuple[int, np.ndarray]]) -> Observations:
        """Replay open episodes, all processes at once."""
        self._training = True
        self._order(Command.RESTORE)
        for worker, group in zip(self._workers, self._groups, strict=True):
            with contextlib.suppress(*FAILED):  # whoever waits for it finds out
                worker.write_message({lane: episodes[row] for lane, row in enumerate(group.rows)})
        self._await_answers()
        return self._first()

    def restart(self, row: int, episode: int) -> Observations:
        """Start an episode of one lane."""
        index = self._group_of(row)
        self._order(Command.RESTORE, [index])
        self._workers[index].write_message({row - self._groups[index].row: (episode,)})
        self._await_answers([index])
        return self._obs_of(row)

    def seconds(self) -> np.ndarray:
        """Time that each process's last command took by itself."""
        return self._arrays.seconds[self._at].copy()

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
        flags.give_order(self._arrays, command, self._at if which is None else self._at[which])
        for index in range(len(self._workers)) if which is None else which:
            if not self._spin or self._arrays.asleep[self._at[index]]:
                with contextlib.suppress(*FAILED):  # whoever waits for its answer finds out
                    self._workers[index].wake()

    def _await_answers(self, which: list[int] | None = None) -> list[int]:
        """Wait for the workers that have a command; those, by index, that failed and were started again."""
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
        while (waits := flags.waiting_for(self._arrays, self._at)).any():
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
        while flags.waiting_for(self._arrays, self._at[[index]]).any():
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
