"""Environments that die, hang or raise are started again as often as that is allowed; nothing outlives a run."""

import functools
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dr_q
from dr_q.envs import CallWatchdog, Pool, ProcessPool, RestartedError, Restarts, Source, interrupting
from dr_q.envs.processes import watchdog
from dr_q.envs.processes.pool import InProcessPool
from dr_q.kit import EnvError, WorkerError
from dr_q.spaces import SINGLE
from dr_q.training.signals import Signals
from tests.envs import toys

SEEDS = [3, 4]
HERE = Path(__file__).parents[2]
KINDS = ["in this process", "waiting", "polling"]


@pytest.fixture
def signals() -> Iterator[Signals]:
    with Signals() as taken:
        yield taken


def open_kind(kind: str, source: Source, restarts: Restarts, signals: Signals) -> Pool:
    """A pool in which a second and a half are too long, once it is made."""
    if kind == "in this process":
        watching = CallWatchdog(1.5)
        watching.interrupt = signals.call_in_main
        return InProcessPool(source, SEEDS, 2, restarts=restarts, watchdog=watching)
    pool = ProcessPool(source, SEEDS, 2, restarts=restarts, spin=kind == "polling")
    if "hang" in str(source.task):
        pool._timeout = 3.0  # pyright: ignore[reportPrivateUsage]
    return pool


def failing(how: str, file: Path) -> Source:
    return Source(functools.partial(toys.Fails, how, str(file)))


def steps(pool: Pool, count: int) -> None:
    pool.begin()
    for _ in range(count):
        pool.send(np.zeros((len(pool.open_episodes()), 1), np.float32))
        pool.receive()


def actions() -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    while True:
        yield rng.uniform(-1, 1, (2, 1)).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["dies", "hangs", "raises"])
def test_a_simulator_that_fails_is_started_again_and_its_episode_truncated(how, kind, tmp_path, signals):
    said: list[str] = []
    restarts = Restarts(1, said.append)
    pool, whole = (
        open_kind(kind, failing(how, tmp_path / "x"), restarts, signals),
        InProcessPool(Source(toys.Walk), SEEDS, 2),
    )
    try:
        before = pool.begin()[SINGLE]
        np.testing.assert_array_equal(before, whole.begin()[SINGLE])
        for count, action in zip(range(5), actions(), strict=False):
            pool.send(action)
            whole.send(action)
            outcome, right = pool.receive(), whole.receive()
            assert not right.truncated.any(), count
            np.testing.assert_array_equal(outcome.packet, right.packet)
            before = outcome.obs[SINGLE].copy()
        pool.send(np.zeros((2, 1), np.float32))
        whole.send(np.zeros((2, 1), np.float32))
        outcome, right = pool.receive(), whole.receive()
        (lost,) = np.flatnonzero(outcome.truncated)
        np.testing.assert_array_equal(outcome.numbers[lost], [0, 0, 1])
        np.testing.assert_array_equal(outcome.next_obs[SINGLE][lost], before[lost])
        np.testing.assert_array_equal(outcome.obs[SINGLE][lost], whole.restart(int(lost), 1)[SINGLE])
        np.testing.assert_array_equal(outcome.packet[1 - lost], right.packet[1 - lost])
        for _, action in zip(range(60), actions(), strict=False):  # both go on as if nothing had been
            pool.send(action)
            whole.send(action)
            np.testing.assert_array_equal(pool.receive().packet, whole.receive().packet)
        assert pool.open_episodes()[0][0] == whole.open_episodes()[0][0]
        assert pool.reward_range()[0] < 0
    finally:
        pool.close()
        whole.close()
    assert restarts.of_seed == {SEEDS[lost]: 1}
    (line,) = said
    assert f"seed {SEEDS[lost]}" in line
    assert line.endswith("; its simulator is started again (1 of 1), in a new episode")
    assert restarts.summary() == f"simulators were started again 1 time (seed {SEEDS[lost]}: 1)"


@pytest.mark.parametrize("kind", KINDS)
def test_an_evaluation_in_which_a_simulator_fails_is_begun_again(kind, tmp_path, signals):
    restarts = Restarts(1, lambda _: None)
    pool, whole = (
        open_kind(kind, failing("dies", tmp_path / "x"), restarts, signals),
        InProcessPool(Source(toys.Walk), SEEDS, 2),
    )

    def evaluate(pool: Pool) -> list[np.ndarray]:
        pool.evaluate_begin(np.array([[11, 12], [13, 14]]))
        return [pool.evaluate_step(np.zeros((2, 2, 1), np.float32))[1] for _ in range(10)]

    try:
        for each in (pool, whole):
            each.begin()
            each.send(np.ones((2, 1), np.float32))
            first = each.receive()
        with pytest.raises(RestartedError):
            evaluate(pool)
        np.testing.assert_array_equal(evaluate(pool), evaluate(whole))
        pool.send(np.ones((2, 1), np.float32))
        whole.send(np.ones((2, 1), np.float32))
        outcome, right = pool.receive(), whole.receive()
        (lost,) = np.flatnonzero(outcome.truncated)  # its training episode was lost with it
        np.testing.assert_array_equal(outcome.next_obs[SINGLE][lost], first.obs[SINGLE][lost])
        np.testing.assert_array_equal(outcome.obs[SINGLE][lost], whole.restart(int(lost), 1)[SINGLE])
        np.testing.assert_array_equal(outcome.packet[1 - lost], right.packet[1 - lost])
    finally:
        pool.close()
        whole.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_simulator_that_fails_always_uses_up_its_restarts(kind, signals):
    pool = open_kind(kind, Source(toys.Breaks), Restarts(2, lambda _: None), signals)
    try:
        with pytest.raises(EnvError, match=r"Breaks failed in step\(action\): .*; all 2 of max_env_restarts are used$"):
            steps(pool, 40)
    finally:
        pool.close()


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ("interrupts", EnvError, r"^seed 3: the environment raised KeyboardInterrupt: \(.*toys.py, line \d+\)$"),
        (
            "exits",
            EnvError,
            r"^seed 3: your environment failed in step\(action\): GeneratorExit: \(.*toys.py, line \d+\)$",
        ),
    ],
)
def test_whatever_an_environment_raises_in_its_own_process_is_one_line(how, error, said, tmp_path, capfd):
    """No signal is a KeyboardInterrupt there; and no traceback is printed."""
    pool = ProcessPool(failing(how, tmp_path / "x"), [3], 1)
    try:
        with pytest.raises(error, match=said):
            steps(pool, 10)
    finally:
        pool.close()
    assert capfd.readouterr().err == ""


def test_a_constructor_that_hangs_is_said_with_the_time_that_was_allowed(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("dr_q.envs.processes.pool._START_SECONDS", 3.0)
    start = time.monotonic()
    with pytest.raises(WorkerError) as error:
        ProcessPool(Source(toys.HangsWhenMade), [3, 4], 1, timeout=1.0)
    assert str(error.value) == (
        "the simulator of seed 3 could not be made in 1 s (env_timeout) and 3 s in which its process starts; its "
        "environment hangs or is very slow"
    )
    assert time.monotonic() - start < 8, "and its process is ended at once"


def test_a_constructor_that_hangs_in_this_process_is_interrupted(tmp_path):
    """Also before the run takes the user's signals; nothing is left behind."""
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(WorkerError, match=r"the environment of seed 0 has not answered for 0.5 s \(env_timeout\)"):
        dr_q.train(toys.HangsWhenMade, out=tmp_path / "runs" / "x", env_timeout=0.5, in_process=True, quiet=True)
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGALRM) == before


def test_an_interrupt_that_comes_too_late_does_nothing():
    """The call has ended, and with it the block: a signal on its way must not end the process."""
    watching = CallWatchdog(60.0)
    for _ in range(200):
        with interrupting(watching):
            interrupt = watching.interrupt
            late = threading.Thread(target=lambda i=interrupt: i(lambda: None))
            late.start()
        late.join()
        interrupt(lambda: pytest.fail("it was called"))
    assert watching.interrupt(lambda: None) is None


def test_an_environment_in_this_process_cannot_end_it():
    pool = InProcessPool(Source(toys.Dies), [0], 1)
    try:
        with pytest.raises(EnvError, match=r"Dies failed in step\(action\): EnvError: it called os._exit\(7\)"):
            steps(pool, 4)
        with warnings.catch_warnings(action="ignore"):  # this process has threads; the child needs none
            child = os.fork()
        if not child:
            os._exit(5)  # a child's own end is nobody else's business
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    finally:
        pool.close()
    assert pool._watchdog not in watchdog._watchdogs  # pyright: ignore[reportPrivateUsage]


ORPHANS = """
import functools, sys
import numpy as np
from dr_q.envs import ProcessPool, Source
from tests.envs import toys
pool = ProcessPool(Source(functools.partial(toys.Fails, "computes", sys.argv[1])), [3, 4], 1)
pool.begin()
for _ in range(6):
    pool.send(np.zeros((2, 1), np.float32))
    pool.receive()
"""


def processes_of(group: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=,stat=", "-g", str(group)], capture_output=True, text=True, check=False)
    rows = [row.split() for row in found.stdout.splitlines()]
    return [int(pid) for pid, state in rows if not state.startswith("Z")]


def test_simulators_end_with_the_process_that_started_them(tmp_path):
    """Also one whose environment computes forever without letting any other thread of Python run."""
    file = tmp_path / "hangs"
    loop = subprocess.Popen([sys.executable, "-c", ORPHANS, str(file)], cwd=HERE, start_new_session=True)
    until = time.monotonic() + 60
    while (not file.exists() or not file.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    assert len(processes_of(loop.pid)) >= 3
    loop.kill()
    loop.wait()
    while processes_of(loop.pid) and time.monotonic() < until:
        time.sleep(0.05)
    try:
        assert processes_of(loop.pid) == []
    finally:
        for pid in processes_of(loop.pid):
            os.kill(pid, signal.SIGKILL)


def test_simulators_do_not_end_with_the_thread_that_started_them():
    """As the kernel would have it; evaluation in the background starts them from a thread."""
    opened: list[ProcessPool] = []
    thread = threading.Thread(target=lambda: opened.append(ProcessPool(Source(toys.Walk), SEEDS, 1)))
    thread.start()
    thread.join()
    (pool,) = opened
    try:
        pool.begin()
        time.sleep(0.2)
        pool.send(np.zeros((2, 1), np.float32))
        assert pool.receive().packet.shape[0] == 2
    finally:
        pool.close()


def test_simulators_that_hang_together_are_given_up_together():
    """At one time for all, and not each a timeout after the one before."""
    pool = ProcessPool(Source(toys.Hangs), SEEDS, 1, spin=False)
    try:
        steps(pool, 2)
        pool.send(np.zeros((2, 1), np.float32))
        for worker in pool._workers:  # pyright: ignore[reportPrivateUsage]
            start = time.monotonic()
            with pytest.raises(WorkerError, match=r"has not answered for 300 s \(env_timeout\)"):
                worker.read_done(start, 300.0)
            assert time.monotonic() - start < 30
    finally:
        pool.close()
