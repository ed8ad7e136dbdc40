"""Several lanes in one ring: each is a ring of its own, and all share clock, ages and draws."""

import jax.numpy as jnp
import numpy as np
import pytest

from dr_q import replay as rp
from dr_q.replay.sampling.faded_lap import FadedLap
from dr_q.spaces import SINGLE, ObsSpec, Vector
from tests.replay.logs import HORIZON, add_all, add_and_watch
from tests.replay.test_windows import PlainRing

LANES, EACH, ROUNDS = 3, 20, 60
DECAY, FLOOR = 0.05, 0.3
ENDS = ["", "", "", "", "", "terminated", "truncated", "both"]


def empty(lanes: int, capacity: int, stack: int = 1) -> rp.Replay:
    obs = ObsSpec.single(Vector(1, stack=stack))
    spec = rp.StorageSpec(capacity, obs, action_dim=1, horizon=HORIZON, lanes=lanes)
    return rp.init(spec, FadedLap(exponent=0.4, min_priority=1.0, decay=DECAY, floor=FLOOR))


def log(seed: int) -> tuple[list[list[str]], rp.Transition]:
    """Ends of each round's transitions, and the log, whose numbers count transitions over all lanes."""
    ends = np.random.default_rng(seed).choice(ENDS, (ROUNDS, LANES)).tolist()
    number = jnp.arange(ROUNDS * LANES, dtype=jnp.float32).reshape(ROUNDS, LANES)
    terminated = np.isin(ends, ["terminated", "both"])
    return ends, rp.Transition(
        obs={SINGLE: number[..., None]},
        action=number[..., None],
        reward=number,
        next_obs={SINGLE: number[..., None] + 0.5},
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(np.isin(ends, ["truncated", "both"])),
    )


@pytest.mark.parametrize("stack", [1, 3])
def test_every_lane_is_a_ring_of_its_own(stack):
    for seed in range(4):
        ends, added = log(seed)
        _, (valid, cursor, probability) = add_and_watch(empty(LANES, LANES * EACH, stack), added)
        rings = [PlainRing(EACH, stack) for _ in range(LANES)]
        for t in range(ROUNDS):
            for lane, ring in enumerate(rings):
                ring.add(ends[t][lane])
                expected = [ring.valid(slot) for slot in range(EACH)]
                mine = slice(lane, LANES * EACH, LANES)
                np.testing.assert_array_equal(np.asarray(valid[t])[mine], expected, err_msg=f"lane {lane} after {t}")
                np.testing.assert_array_equal(np.asarray(probability[t])[mine] > 0, expected)
                assert int(cursor[t, lane]) == ring.cursor * LANES + lane


def test_windows_stay_in_their_lane_and_ages_count_all_transitions():
    ends, added = log(7)
    replay = add_all(empty(LANES, LANES * EACH), added)
    assert int(replay.storage.clock) == ROUNDS * LANES
    starts = np.flatnonzero(np.asarray(replay.storage.valid).reshape(-1)[: LANES * EACH])
    window = rp.sample_subtrajectory(replay.storage, jnp.asarray(starts), HORIZON)
    reward, alive = np.asarray(window.reward), np.cumprod(np.asarray(window.not_done), axis=0) > 0
    age = np.asarray(replay.storage.age(jnp.asarray(starts)))
    assert {slot % LANES for slot in starts} == {0, 1, 2}
    for i, slot in enumerate(starts):
        lane = slot % LANES
        number = int(reward[0, i])
        assert number % LANES == lane
        assert age[i] == ROUNDS * LANES - 1 - number
        for t in range(HORIZON):
            if t and not alive[t - 1, i]:
                break
            assert reward[t, i] == number + t * LANES  # the next transition of the same lane
            ended = ends[(number + t * LANES) // LANES][lane] != ""
            assert float(window.obs[SINGLE][t + 1, i, 0]) == number + t * LANES + (0.5 if ended else LANES)


@pytest.mark.parametrize("each", [EACH, 200], ids=["full", "growing"])
def test_draws_have_the_probabilities_of_eq_10(each):
    """Ages cross the fade floor at 24 transitions, in lanes that end episodes at different times."""
    _, added = log(3)
    replay, (valid, _, probability) = add_and_watch(empty(LANES, LANES * each), added)
    stamps = np.full(LANES * each, -1)
    cursors = np.arange(LANES)
    done = np.asarray(added.terminated | added.truncated)
    for t in range(ROUNDS):
        for lane in range(LANES):
            stamps[cursors[lane]] = t * LANES + lane
            cursors[lane] = (cursors[lane] + LANES) % stamps.size
            if done[t, lane]:
                stamps[cursors[lane]] = t * LANES + lane
                cursors[lane] = (cursors[lane] + LANES) % stamps.size
        age = (t + 1) * LANES - 1 - stamps
        weight = np.where(np.asarray(valid[t])[: stamps.size], np.maximum(FLOOR, (1 - DECAY) ** age), 0.0)
        expected = weight / max(weight.sum(), 1e-30)
        np.testing.assert_allclose(probability[t], expected, rtol=1e-4, atol=1e-7, err_msg=f"after round {t}")
    assert (ROUNDS * LANES - 1 - stamps)[np.asarray(valid[-1])[: stamps.size]].max() > 24
    assert np.asarray(replay.storage.size).max() <= each


def test_a_capacity_that_lanes_cannot_share_is_refused():
    with pytest.raises(ValueError, match="replay capacity 61 is no multiple of its 3 lanes"):
        empty(3, 61)
    with pytest.raises(ValueError, match="use at least 42"):
        empty(3, 39)


def test_slots_to_fill_are_for_all_lanes_together():
    assert rp.slots_to_fill(1_000, 1_000_000, lanes=3) == 3 * 2 * 334
    assert rp.slots_to_fill(1_000, 1_000, lanes=3) == 999
