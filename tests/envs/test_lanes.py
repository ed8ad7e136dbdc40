"""Several environments of each seed in a pool: in one process, in several, shared evaluation, failures."""

import functools

import numpy as np
import pytest

from dr_q.envs import ProcessPool, Restarts, Source
from dr_q.envs.processes.pool import InProcessPool, groups_of, usual_envs_per_process
from dr_q.spaces import SINGLE
from tests.envs import toys

SEEDS, LANES = [3, 4], 3


def walk(pool, steps: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    seen = [pool.begin()[SINGLE]]
    for _ in range(steps):
        pool.send(rng.uniform(-1, 1, (len(SEEDS) * LANES, 1)).astype(np.float32))
        seen.append(pool.receive().packet)
    return seen


def evaluate(pool) -> list[np.ndarray]:
    """Five episodes of each seed: three lanes have two, two and one."""
    obs = pool.evaluate_begin(np.arange(10).reshape(2, 5))[SINGLE]
    seen, running = [obs], np.ones((2, 5), bool)
    while running.any():
        obs, reward, running = pool.evaluate_step(0.1 * np.ones((2, 5, 1), np.float32))
        seen += [np.where(running[..., None], obs[SINGLE], 0), reward, running]
    return seen


@pytest.mark.parametrize("together", [1, 2, 3])
def test_lanes_do_the_same_in_any_number_of_processes(together):
    inside = InProcessPool(Source(toys.Walk), SEEDS, 5, lanes=LANES)
    pool = ProcessPool(Source(toys.Walk), SEEDS, 5, lanes=LANES, envs_per_process=together)
    alone = InProcessPool(Source(toys.Walk), SEEDS, 5)
    try:
        assert len(pool._workers) == 2 * -(-LANES // together)  # pyright: ignore[reportPrivateUsage]
        for a, b in zip(walk(inside, 60), walk(pool, 60), strict=True):
            np.testing.assert_array_equal(a, b)
        for a, b, c in zip(evaluate(inside), evaluate(pool), evaluate(alone), strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(a, c)
        for a, b in zip(inside.open_episodes(), pool.open_episodes(), strict=True):
            assert a[0] == b[0]
            np.testing.assert_array_equal(a[1], b[1])
        reached = pool.restore(inside.open_episodes())[SINGLE]
        np.testing.assert_array_equal(reached, inside.restore(inside.open_episodes())[SINGLE])
        np.testing.assert_array_equal(pool.restart(4, 7)[SINGLE], inside.restart(4, 7)[SINGLE])
    finally:
        pool.close()


def test_the_first_lane_does_not_depend_on_the_number_of_lanes_and_others_have_streams_of_their_own():
    one, three = (InProcessPool(Source(toys.Walk), SEEDS, 1, lanes=lanes) for lanes in (1, LANES))
    first = three.begin()[SINGLE].reshape(2, LANES)
    np.testing.assert_array_equal(one.begin()[SINGLE].reshape(2), first[:, 0])
    assert len(np.unique(first)) == 6


@pytest.mark.parametrize("together", [1, 2])
def test_a_process_that_dies_truncates_its_own_lanes_and_no_others(together, tmp_path):
    said: list[str] = []
    source = Source(functools.partial(toys.Fails, "dies", str(tmp_path / "x")))
    pool = ProcessPool(source, [3], 1, lanes=LANES, envs_per_process=together, restarts=Restarts(1, said.append))
    try:
        pool.begin()
        for _ in range(5):
            pool.send(np.zeros((LANES, 1), np.float32))
            pool.receive()
        pool.send(np.zeros((LANES, 1), np.float32))
        after = pool.receive()
        lost = np.flatnonzero(after.truncated)
        assert len(lost) in ((1,) if together == 1 else (1, 2))
        assert (after.reward[lost] == 0).all()
        assert (after.reward[~after.truncated] != 0).all()
        assert len(said) == 1
        assert said[0].startswith("the simulator of seed 3, environment ")
        pool.send(np.zeros((LANES, 1), np.float32))
        assert not pool.receive().truncated.any()
    finally:
        pool.close()


def test_groups():
    groups = groups_of([5, 6], 3, 2)
    assert [(g.seed, list(g.lanes), list(g.rows)) for g in groups] == [
        (5, [0, 1], [0, 1]), (5, [2], [2]), (6, [0, 1], [3, 4]), (6, [2], [5]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cores", "seeds", "lanes", "together"), [(16, 1, 8, 1), (16, 5, 8, 3), (2, 1, 8, 4), (2, 5, 4, 4), (1, 1, 1, 1)]
)
def test_environments_share_processes_where_cores_are_few(cores, seeds, lanes, together, monkeypatch):
    monkeypatch.setattr("dr_q.envs.processes.pool.cores", lambda: cores)
    assert usual_envs_per_process(seeds, lanes) == together
