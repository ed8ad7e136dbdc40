"""Draws follow Eq. 10: against its definition, its theorem, and by counting."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dr_q import replay as rp
from dr_q.equations import faded_probability
from dr_q.replay.sampling.faded_lap import FadedLap
from dr_q.replay.sampling.uniform import Uniform
from tests.replay.logs import (
    add_all,
    add_and_watch,
    draw,
    empty,
    probability,
    random_log,
    set_priority,
    transitions,
    write_priority,
)


def by_definition(replay: rp.Replay) -> np.ndarray:
    """Eq. 10 in float64 over every slot."""
    capacity, sampler = replay.spec.capacity, replay.sampler
    assert isinstance(sampler, FadedLap)
    by_slot = (replay.sampling.priority, replay.storage.stamp, replay.storage.valid)
    priority, stamp, valid = (np.asarray(x).reshape(-1)[:capacity] for x in by_slot)
    age = int(replay.storage.clock) - 1 - stamp.astype(np.int64)
    fade = np.maximum(sampler.floor, (1 - sampler.decay) ** age.astype(np.float64))
    weight = np.where(valid, priority.astype(np.float64) * fade, 0)
    return weight / weight.sum()


@jax.jit
def busy(replay: rp.Replay, log: rp.Transition, key: jax.Array):
    """Add, draw and re-prioritise at every step, as training does; the states on the way."""

    def step(carry, item):
        state, key = carry
        key, key_draw, key_priority = jax.random.split(key, 3)
        state = rp.add(state, item)
        slots = rp.draw(state, key_draw, 8)
        new = set_priority(state, slots, 1 + 3 * jax.random.uniform(key_priority, (8,)))
        can = rp.has_valid_start(state)
        state = jax.tree.map(lambda a, b: jnp.where(can, a, b), new, state)
        return (state, key), (slots, can, state.storage.valid.reshape(-1))

    (state, _), seen = jax.lax.scan(step, (replay, key), log)
    return state, seen


@pytest.mark.parametrize(
    ("capacity", "decay", "floor"),
    [
        (300, 1e-4, 0.1),  # the floor is never reached
        (300, 0.02, 0.2),  # it is, long before the ring is overwritten
        (300, 0.004, 0.3),  # it is, just about when slots are overwritten
        (40, 0.02, 0.2),  # slots are overwritten before they reach it
        (300, 0.5, 0.4),  # it is reached at age 2
        (300, 0.0, 0.1),  # only-lap
        (300, 0.02, 0.0),  # Eq. 4
        (300, 0.02, 1.0),
    ],
)
def test_probabilities_are_eq_10_after_much_use(capacity, decay, floor):
    replay, (slots, can, valid) = busy(
        empty(capacity, decay=decay, floor=floor), random_log(1000, seed=0), jax.random.key(0)
    )
    np.testing.assert_allclose(probability(replay), by_definition(replay), rtol=2e-5)
    slots, can, valid = np.asarray(slots), np.asarray(can), np.asarray(valid)
    # No draw of the whole run, its start and every wrap-around included, was invalid.
    assert can.any()
    assert not can[0]
    assert (slots[~can] == -1).all()
    assert np.take_along_axis(valid, slots, axis=1)[can].all()


def test_the_definition_in_float32_agrees():
    replay, _ = busy(empty(300, decay=0.02), random_log(400, seed=1), jax.random.key(0))
    by_slot = (replay.sampling.priority, replay.storage.stamp, replay.storage.valid)
    priority, stamp, valid = (x.reshape(-1)[:300] for x in by_slot)
    got = faded_probability(priority, replay.storage.clock - 1 - stamp, valid, replay.sampler.decay, 0.1)
    np.testing.assert_allclose(got, by_definition(replay), rtol=2e-5)


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_probabilities_are_right_after_every_single_addition(seed):
    log = random_log(120, seed=seed, end=0.1)
    _, (valid, _, chance) = add_and_watch(empty(40, decay=0.1, floor=0.3), log)
    valid, chance = np.asarray(valid), np.asarray(chance)
    ended = np.asarray(log.terminated | log.truncated)
    slot_of, cursor = [], 0
    for t, end in enumerate(ended):  # all priorities are 1: weights are the ages' alone
        slot_of.append(cursor)
        cursor = (cursor + 1 + end) % 40
        age = np.full(40, -1)
        for number, slot in enumerate(slot_of):
            age[slot] = t - number
        weight = np.where(valid[t][:40], np.maximum(0.3, 0.9 ** age.astype(float)), 0)
        np.testing.assert_allclose(chance[t], weight / max(weight.sum(), 1e-9), rtol=2e-5)


@settings(max_examples=40)
@given(
    st.lists(st.floats(0.0625, 16, width=32), min_size=40, max_size=40),
    st.integers(0, 33),
    st.integers(0, 33),
)
def test_theorem_4_3(errors, first, second):
    """(i)-(iii) on the sampler's own probabilities, for Eq. 4: no floor, priority |delta|^alpha."""
    decay, alpha, batch = 0.05, 0.4, 256
    none = [False] * 40
    replay = add_all(empty(64, decay=decay, floor=0.0), transitions(none, none))
    priority = jnp.asarray(errors, jnp.float32) ** alpha
    slots = np.arange(35)  # 35..39 cannot start a window yet
    chance = np.asarray(probability(write_priority(replay, jnp.arange(40), priority)), np.float64)[slots]
    lap = np.asarray(priority, np.float64)[slots]
    age = 39 - slots
    assert np.isclose(chance.sum(), 1, atol=1e-5)

    # (i) equal errors: the newer is likelier.
    even = np.asarray(probability(write_priority(replay, jnp.arange(40), jnp.full(40, priority[0]))))
    assert (np.diff(even[:35]) > 0).all()

    # (ii) PER's probability x fade <= P(i) <= 1 / (1 + C (1 - eps)^(k - i)), i and k ages, for any k != i.
    per = lap / lap.sum()
    assert (per * (1 - decay) ** age <= chance * (1 + 1e-5)).all()
    i, k = first, second if second != first else first + 1
    ratio = lap[k] / lap[i]
    upper = 1 / (1 + ratio * (1 - decay) ** float(age[k] - age[i]))
    assert chance[i] <= upper * (1 + 1e-5)

    # (iii) the expected number of draws in a batch.
    expected = batch * chance[i]
    assert 0 < expected <= batch * upper * (1 + 1e-5)
    assert batch * upper < batch


def test_theorem_4_3_i_with_the_floor():
    none = [False] * 200
    replay = add_all(empty(300, decay=0.02, floor=0.2), transitions(none, none))
    chance = np.asarray(probability(replay), np.float64)[:195][::-1]  # newest first
    newest_age, floor_age = 5, replay.sampler.watch_age
    assert (np.diff(chance[: floor_age - newest_age]) < 0).all()
    np.testing.assert_allclose(chance[floor_age - newest_age :], chance[-1], rtol=1e-6)


def count_draws(replay: rp.Replay, batches: int, size: int, seed: int) -> np.ndarray:
    keys = jax.random.split(jax.random.key(seed), batches)
    counts = np.zeros(replay.spec.capacity, np.int64)
    for key in keys:
        counts += np.bincount(np.asarray(draw(replay, key, size)), minlength=replay.spec.capacity)
    return counts


@pytest.fixture(scope="module")
def paper_size() -> rp.Replay:
    """40,000 transitions with the paper's fading: fresh, fading and floored ones, over three groups of rows."""
    replay = add_all(empty(40_000), random_log(39_000, seed=5, end=0.01))
    slots = jnp.arange(0, 39_000)
    is_transition = (replay.sampling.priority.reshape(-1)[:39_000] > 0).astype(jnp.float32)
    return write_priority(replay, slots, is_transition * 10 ** (0.4 * jax.random.uniform(jax.random.key(1), (39_000,))))


def test_chi_square_of_drawn_frequencies(paper_size):
    expected = by_definition(paper_size)
    counts = count_draws(paper_size, batches=40, size=20_000, seed=2)
    possible = expected > 0
    assert counts[~possible].sum() == 0
    assert stats.chisquare(counts[possible], expected[possible] * counts.sum()).pvalue > 1e-3
    # By age, where a wrong fade would show as a trend.
    order = np.argsort(np.asarray(paper_size.storage.stamp).reshape(-1)[:40_000])
    by_age = [part for part in np.array_split(order, 40) if expected[part].sum() > 0]
    seen = np.array([counts[part].sum() for part in by_age])
    want = np.array([expected[part].sum() for part in by_age]) * counts.sum()
    assert stats.chisquare(seen, want).pvalue > 1e-3


def test_a_wrong_distribution_would_be_noticed(paper_size):
    counts = count_draws(paper_size, batches=40, size=20_000, seed=2)
    wrong = np.asarray(paper_size.sampling.priority, np.float64).reshape(-1)[:40_000] * (by_definition(paper_size) > 0)
    wrong /= wrong.sum()
    possible = wrong > 0
    assert stats.chisquare(counts[possible], wrong[possible] * counts.sum()).pvalue < 1e-6


@pytest.fixture(scope="module")
def million() -> rp.Replay:
    """A full ring of 1e6, written directly: every age, priorities between 1 and 10."""
    replay = empty(1_000_000)
    spec = replay.spec
    slot = jnp.arange(spec.rows * 128).reshape(spec.rows, 128)
    inside = slot < spec.capacity
    priority = 10 ** jax.random.uniform(jax.random.key(0), slot.shape)
    storage = dataclasses.replace(
        replay.storage,
        valid=inside & (slot < spec.capacity - 5),
        stamp=jnp.where(inside, slot, 0).astype(jnp.int32),
        clock=jnp.asarray(spec.capacity, jnp.int32),
    )
    full = dataclasses.replace(replay, storage=storage)
    slots = jnp.arange(spec.capacity, dtype=jnp.int32)
    return write_priority(full, slots, priority.reshape(-1)[: spec.capacity])


@pytest.mark.slow
def test_float32_does_not_bias_a_million_entries(million):
    expected = by_definition(million)
    np.testing.assert_allclose(probability(million), expected, rtol=2e-5)
    counts = count_draws(million, batches=100, size=20_000, seed=3)
    assert counts[-5:].sum() == 0
    for groups in (np.arange(0, expected.size, 1000), np.arange(0, expected.size, 50)):
        seen = np.add.reduceat(counts, groups)
        want = np.add.reduceat(expected, groups) * counts.sum()
        assert stats.chisquare(seen, want).pvalue > 1e-3
    # One float32 number per draw could reach only every so many slots: here all that are expected are reached.
    distinct = np.sum(counts > 0)
    chance_of_none = np.exp(-expected * counts.sum())
    deviation = np.sqrt(np.sum(chance_of_none * (1 - chance_of_none)))
    assert abs(distinct - np.sum(1 - chance_of_none)) < 5 * deviation


def test_new_transitions_get_the_largest_priority_seen():
    none = [False] * 20
    replay = add_all(empty(64), transitions(none, none))
    replay = write_priority(replay, jnp.asarray([3, 4]), jnp.asarray([5.0, 2.0]))
    replay = write_priority(replay, jnp.asarray([3]), jnp.asarray([1.0]))
    replay = add_all(replay, transitions([False], [False]))
    priority = np.asarray(replay.sampling.priority).reshape(-1)
    assert (priority[3], priority[4], priority[19], priority[20]) == (1.0, 2.0, 1.0, 5.0)


def test_of_two_priorities_for_one_slot_the_larger_is_written():
    none = [False] * 20
    replay = add_all(empty(64), transitions(none, none))
    for order in ([4.0, 2.0, 3.0], [2.0, 3.0, 4.0]):
        new = write_priority(replay, jnp.asarray([7, 7, 7]), jnp.asarray(order))
        assert float(new.sampling.priority.reshape(-1)[7]) == 4.0
    lower = write_priority(new, jnp.asarray([7, 7, 7]), jnp.asarray([1.5, 1.0, 1.25]))
    assert float(lower.sampling.priority.reshape(-1)[7]) == 1.5


def test_an_empty_replay_draws_nothing():
    replay = empty(64)
    assert not bool(rp.has_valid_start(replay))
    assert (np.asarray(draw(replay, jax.random.key(0), 16)) == -1).all()
    # Episodes truncated within the horizon never give a start.
    replay = add_all(replay, transitions([False] * 20, [i % 5 == 4 for i in range(20)]))
    assert not bool(rp.has_valid_start(replay))


def test_an_update_that_drew_nothing_writes_nothing_and_is_counted():
    """-1 would be the last slot: its priority, and the sums over it, must stay as they are."""
    replay = empty(64)
    write = jax.jit(rp.write_priority)
    after = write(replay, draw(replay, jax.random.key(0), 16), jnp.full(16, 9.0))
    assert int(after.empty_draws) == 1
    assert not np.asarray(after.sampling.priority).any()
    assert float(after.sampling.max_priority) == float(replay.sampling.max_priority)
    assert not np.asarray(after.sampling.row_sums.young).any()
    full = add_all(replay, transitions([False] * 20, [False] * 20))
    assert int(write(full, jnp.arange(3), jnp.ones(3)).empty_draws) == 0


def test_uniform_is_faded_lap_without_priorities_and_fading():
    """The same draws for the same keys; every valid start has the same chance."""
    log = random_log(400, seed=2, end=0.1)
    lap = rp.init(empty(100).spec, FadedLap(exponent=0.0, min_priority=1.0, decay=0.0, floor=0.1))
    faded, plain = add_all(lap, log), add_all(rp.init(empty(100).spec, Uniform()), log)
    np.testing.assert_array_equal(draw(faded, jax.random.key(0), 500), draw(plain, jax.random.key(0), 500))
    chance, valid = np.asarray(probability(plain)), np.asarray(plain.storage.valid).reshape(-1)[:100]
    np.testing.assert_allclose(chance, valid / valid.sum(), rtol=1e-6)
    written = rp.write_priority(plain, draw(plain, jax.random.key(0), 8), jnp.full(8, 9.0))
    np.testing.assert_array_equal(probability(written), chance)
