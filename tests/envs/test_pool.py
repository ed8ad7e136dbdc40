"""Simulators of several seeds, in this process and in processes of their own."""

import functools
import subprocess
import sys
import time

import numpy as np
import pytest

from dr_q.envs import Pool, ProcessPool, Source, make_env
from dr_q.envs.processes.pool import InProcessPool
from dr_q.envs.processes.seed_envs import SeedEnvs, SharedArrays
from dr_q.kit import EnvError, TaskError, WorkerError
from dr_q.spaces import SINGLE
from tests.envs import toys

SEEDS = [3, 4]


KINDS = {
    "in this process": InProcessPool,
    "waiting": functools.partial(ProcessPool, spin=False),
    "polling": functools.partial(ProcessPool, spin=True),
}


@pytest.fixture(params=KINDS)
def pool(request):
    opened = KINDS[request.param](Source(toys.Walk), SEEDS, 3)
    yield opened
    opened.close()


def walk(pool, steps: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    seen = [pool.begin()]
    for _ in range(steps):
        pool.send(rng.uniform(-1, 1, (2, 1)).astype(np.float32))
        seen.append(pool.receive())
    return [
        seen[0][SINGLE],
        *(np.concatenate([t.next_obs[SINGLE], t.obs[SINGLE], t.numbers], axis=1) for t in seen[1:]),
    ]


def test_all_kinds_of_pool_do_the_same(pool):
    inside = InProcessPool(Source(toys.Walk), SEEDS, 3)
    assert inside.spec == pool.spec
    for a, b in zip(walk(inside, 120), walk(pool, 120), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_simulator_that_fell_asleep_is_woken():
    pool = ProcessPool(Source(toys.Walk), SEEDS, 1, spin=True)
    try:
        walk(pool, 3)
        time.sleep(0.2)  # longer than it polls for commands
        assert len(walk(pool, 3)) == 4
        time.sleep(0.2)
        assert len(pool.open_episodes()) == 2
    finally:
        pool.close()


def test_an_episode_ends_and_the_next_begins_in_the_same_step(pool):
    obs = pool.begin()[SINGLE]
    ends = [0, 0]
    for _ in range(150):
        pool.send(np.zeros((2, 1), np.float32))
        result = pool.receive()
        done = result.terminated | result.truncated
        for i in range(2):
            ends[i] += done[i]
            same = np.array_equal(result.obs[SINGLE][i], result.next_obs[SINGLE][i])
            assert same != done[i]  # after an end `obs` is the next episode's, `next_obs` the last one's
        obs = result.obs[SINGLE]
    assert obs.shape == (2, 1)
    assert ends[0] != ends[1], "seeds should end episodes at different times"


def test_evaluation_episodes_follow_from_their_seeds_alone(pool):
    def evaluate(seeds):
        pool.evaluate_begin(np.array(seeds))
        total = np.zeros((2, 3))
        running = np.ones((2, 3), bool)
        while running.any():
            _, reward, running = pool.evaluate_step(np.zeros((2, 3, 1), np.float32))
            total += reward
        return total

    pool.begin()
    first = evaluate([[1, 2, 3], [4, 5, 6]])
    evaluate([[7, 8, 9], [1, 1, 1]])
    np.testing.assert_array_equal(first, evaluate([[1, 2, 3], [4, 5, 6]]))
    assert len(set(first.ravel())) == 6


def test_open_episodes_are_restored(pool):
    seen = walk(pool, 75)
    episodes = pool.open_episodes()
    assert any(len(actions) for _, actions in episodes)
    walk(pool, 10)
    np.testing.assert_array_equal(pool.restore(episodes)[SINGLE][:, 0], seen[-1][:, 1])  # what to act on next
    pool.send(np.ones((2, 1), np.float32))
    after = pool.receive()
    pool.restore(episodes)
    pool.send(np.ones((2, 1), np.float32))
    np.testing.assert_array_equal(after.packet, pool.receive().packet)


def test_one_seed_is_restarted_alone(pool):
    untouched = InProcessPool(Source(toys.Walk), SEEDS, 3)
    for either in (untouched, pool):
        walk(either, 3)
    first = pool.restart(1, 7)[SINGLE]
    (episode, actions), (expected, expected_actions) = pool.open_episodes()[0], untouched.open_episodes()[0]
    assert episode == expected
    np.testing.assert_array_equal(actions, expected_actions)
    for either in (untouched, pool):
        either.send(np.ones((2, 1), np.float32))
    np.testing.assert_array_equal(pool.receive().packet[0], untouched.receive().packet[0])
    untouched.close()
    pool.restore([(0, np.zeros((0, 1), np.float32)), (7, np.zeros((0, 1), np.float32))])
    pool.send(np.ones((2, 1), np.float32))
    after = pool.receive()
    assert first.shape == (1,)
    np.testing.assert_array_equal(pool.restart(1, 7)[SINGLE], first)
    after.replace_obs(1, {SINGLE: first})
    np.testing.assert_array_equal(after.obs[SINGLE][1], first)


@pytest.mark.parametrize("spin", [False, True])
def test_a_dead_worker_is_named(spin):
    pool = ProcessPool(Source(toys.Dies), SEEDS, 1, spin=spin)
    try:
        with pytest.raises(WorkerError, match=r"the simulator of seed 3 died \(exit code 7\)"):
            walk(pool, 10)
    finally:
        pool.close()


def steps(pool: Pool, count: int) -> None:
    pool.begin()
    for _ in range(count):
        pool.send(np.zeros((1, 1), np.float32))
        pool.receive()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("raises", r"Breaks failed in step\(action\): JSONDecodeError: .* \(.*toys.py, line \d+\)$"),
        ("four values", r"Breaks: step\(action\) gave 4 values, expected \(obs, reward, terminated, truncated, info\)"),
        ("another size", r"Breaks gave an observation of shape \(3,\); its observation space is Box"),
        ("no reward", r"Breaks: step\(action\) gave None as a reward, expected a number"),
        ("nan reward", "the environment gave a reward of nan, in step 9 of training episode 0"),
        ("inf", "gave an observation that is NaN or infinite in component 0, in step 9 of training episode 0"),
    ],
)
def test_what_an_environment_does_wrong_is_said_in_one_line(wrong, message, monkeypatch):
    """In this process, and in processes of their own."""
    environment = type("Breaks", (toys.Breaks,), {"wrong": wrong})
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    for pool in (InProcessPool(Source(environment), [3], 1), ProcessPool(Source(environment), [3], 1)):
        try:
            with pytest.raises(EnvError, match=message) as error:
                steps(pool, 12)
            assert "\n" not in str(error.value)
        finally:
            pool.close()
    assert str(error.value).startswith("seed 3: ")


class LostAtReset:
    """Behind the protocol, as a family's are; its second reset gives NaN."""

    def __init__(self):
        self._env, self._resets = make_env(toys.Walk), 0
        self.spec, self.step, self.close = self._env.spec, self._env.step, self._env.close

    def reset(self, seed: int) -> dict[str, np.ndarray]:
        self._resets += 1
        return {name: x * (np.nan if self._resets == 2 else 1) for name, x in self._env.reset(seed).items()}

    def render(self, size: tuple[int, int]) -> np.ndarray:
        return self._env.render(size)


def test_a_reset_to_nan_is_refused():
    envs = SeedEnvs(LostAtReset, 3)
    arrays = SharedArrays.allocate(envs.spec, 1, 1).row(0)
    envs.begin(arrays)
    what = "gave an observation that is NaN or infinite in component 0, in"
    with pytest.raises(EnvError, match=f"{what} the reset of training episode 1$"):
        any(envs.step(arrays) for _ in range(50))
    arrays.eval_seed[:], arrays.eval_running[:] = 8, 1
    envs.evaluate_begin(arrays)
    with pytest.raises(EnvError, match=rf"{what} reset\(seed=8\), in an evaluation$"):
        envs.evaluate_begin(arrays)
    envs.close()
    again = SeedEnvs(LostAtReset, 3)
    again.begin(arrays)
    with pytest.raises(EnvError, match=f"{what} the reset of training episode 4$"):
        again.restore(arrays, 4)
    again.close()


def test_a_seed_that_has_diverged_does_not_end_the_others_run():
    pools = [InProcessPool(Source(toys.Walk), [0], 1) for _ in range(2)]
    for pool, action in zip(pools, (np.nan, 0.0), strict=True):
        pool.begin()
        pool.send(np.full((1, 1), action, np.float32))
    lost, still = (pool.receive().packet for pool in pools)
    np.testing.assert_array_equal(lost, still)


@pytest.mark.parametrize("spin", [False, True])
def test_a_hanging_worker_is_given_up(spin):
    pool = ProcessPool(Source(toys.Hangs), SEEDS, 1, spin=spin)
    pool._timeout = 1.5  # pyright: ignore[reportPrivateUsage] - from here on: a busy machine takes longer to start them
    try:
        with pytest.raises(WorkerError, match=r"the simulator of seed 3 has not answered for 1.5 s"):
            walk(pool, 10)
    finally:
        pool.close()


def test_a_task_that_cannot_be_is_said_before_anything_starts():
    with pytest.raises(TaskError, match="did you mean 'dmc/dog-run'"):
        ProcessPool(Source("dmc/dog-rum"), SEEDS, 1)


def test_workers_do_not_import_jax():
    code = (
        "import sys, dr_q.envs.processes.worker, dr_q.envs as e\n"
        "for t in ('gym/Hopper-v4', 'dmc/walker-run'):\n"
        "    e.make_env(t).reset(0)\n"
        "assert not {'jax', 'torch', 'equinox'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_simulators_print_is_passed_on_but_not_for_ever(monkeypatch, capsys):
    monkeypatch.setattr("dr_q.envs.processes.channel.MOST_LINES", 4)
    pool = ProcessPool(Source(toys.Talks), [3, 4], 1)
    try:
        walk(pool, 6)
    finally:
        pool.close()
    said = capsys.readouterr().err.splitlines()
    for seed in (3, 4):
        mine = [line.removeprefix(f"seed {seed}: ") for line in said if line.startswith(f"seed {seed}: ")]
        assert mine[0] == "reset"
        assert mine[1:4] == ["to stdout 0", "to stderr 0", "to stdout 1"]
        assert mine[4:] == ["(more is printed there, and not shown after 4 lines)"]
    assert len(said) == 10
