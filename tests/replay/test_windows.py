"""Which starts are valid and what windows hold, against a plain Python model of the same rules."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_q import replay as rp
from dr_q.replay.storage import init_storage
from dr_q.spaces import SINGLE, ObsSpec
from tests.replay.logs import HORIZON, add_all, add_and_watch, empty, random_log, transitions

CAPACITY, LENGTH = 29, 70
ends = st.lists(st.sampled_from(["", "", "", "", "terminated", "truncated", "both"]), min_size=LENGTH, max_size=LENGTH)


class PlainRing:
    """The rules, said as plainly as possible: what each slot holds, and validity found anew from that."""

    def __init__(self, capacity: int, stack_size: int):
        self.capacity, self.stack_size = capacity, stack_size
        self.slots: list[tuple[int, int, str] | None] = [None] * capacity  # episode, step, end or "final"
        self.cursor = self.episode = self.step = 0

    def add(self, end: str) -> None:
        self._put((self.episode, self.step, "terminated" if end == "both" else end))
        self.step += 1
        if end:
            self._put((self.episode, self.step, "final"))
            self.episode, self.step = self.episode + 1, 0

    def _put(self, what: tuple[int, int, str]) -> None:
        self.slots[self.cursor] = what
        self.cursor = (self.cursor + 1) % self.capacity

    def at(self, slot: int) -> tuple[int, int, str] | None:
        return self.slots[slot % self.capacity]

    def valid(self, slot: int) -> bool:
        content = self.slots[slot]
        if content is None or content[2] == "final":
            return False
        if (slot - self.cursor) % self.capacity < self.stack_size - 1:
            return False  # an older frame of its stack is overwritten
        episode, step, _ = content
        for offset in range(HORIZON):
            there = self.at(slot + offset)
            if there is None or there[:2] != (episode, step + offset):
                return False
            if there[2] == "terminated":
                return True
        later = self.at(slot + HORIZON)
        return later is not None and later[:2] == (episode, step + HORIZON) and later[2] != "final"


def log_of(flags: list[str]) -> rp.Transition:
    return transitions([f in ("terminated", "both") for f in flags], [f in ("truncated", "both") for f in flags])


@pytest.mark.parametrize("stack_size", [1, 3])
@settings(max_examples=60)
@given(flags=ends)
def test_valid_windows_never_cross_a_truncation_or_the_cursor(stack_size, flags):
    ring = PlainRing(CAPACITY, stack_size)
    _, (valid, cursor, probability) = add_and_watch(empty(CAPACITY, stack_size), log_of(flags))
    for t, flag in enumerate(flags):
        ring.add(flag)
        expected = [ring.valid(slot) for slot in range(CAPACITY)]
        np.testing.assert_array_equal(np.asarray(valid[t])[:CAPACITY], expected, err_msg=f"after {t}")
        assert int(cursor[t]) == ring.cursor
        np.testing.assert_array_equal(np.asarray(probability[t]) > 0, expected)


@pytest.mark.parametrize("stack_size", [1, 3])
@settings(max_examples=30)
@given(flags=ends)
def test_windows_hold_what_was_added(stack_size, flags):
    replay = add_all(empty(CAPACITY, stack_size), log_of(flags))
    ring = PlainRing(CAPACITY, stack_size)
    numbers = {}  # (episode, step) -> transition number
    for number, flag in enumerate(flags):
        numbers[ring.episode, ring.step] = number
        ring.add(flag)
    slots = jnp.arange(CAPACITY)
    window = rp.sample_subtrajectory(replay.storage, slots, HORIZON)
    n_step = rp.sample_n_step(replay.storage, slots, 3)

    def obs(episode: int, step: int) -> float:
        return numbers[episode, step] if (episode, step) in numbers else numbers[episode, step - 1] + 0.5

    for slot in range(CAPACITY):
        if not ring.valid(slot):
            continue
        content = ring.at(slot)
        assert content is not None
        episode, step, _ = content
        for t in range(HORIZON):
            there = ring.at(slot + t)
            assert there is not None
            number = numbers[episode, step + t]
            assert float(window.action[t, slot, 0]) == float(window.reward[t, slot]) == number
            for k in (0, 1):  # the state, and D8: the true next state
                stack = [obs(episode, max(step + t + k - back, 0)) for back in range(stack_size - 1, -1, -1)]
                np.testing.assert_array_equal(window.obs[SINGLE][t + k, slot], stack)
            assert float(window.not_done[t, slot]) == (there[2] != "terminated")
            if there[2] == "terminated":
                break
        np.testing.assert_array_equal(n_step.obs[SINGLE][slot], window.obs[SINGLE][0, slot])
        np.testing.assert_array_equal(n_step.reward[:, slot], window.reward[:3, slot])
        if np.asarray(window.not_done[:3, slot]).all():
            np.testing.assert_array_equal(n_step.next_obs[SINGLE][slot], window.obs[SINGLE][3, slot])


@pytest.mark.parametrize("stack_size", [1, 3])
@settings(max_examples=30)
@given(flags=ends)
def test_the_last_transition_of_a_truncated_episode_is_never_read(stack_size, flags):
    """Neither its reward nor where it led: of a simulator that failed both are made up."""
    flags = ["truncated" if flag == "both" else flag for flag in flags]
    replay = add_all(empty(CAPACITY, stack_size), log_of(flags))
    starts = jnp.flatnonzero(replay.storage.valid.reshape(-1)[:CAPACITY], size=CAPACITY, fill_value=-1)
    count = int(jnp.sum(starts >= 0))
    made_up = [number for number, flag in enumerate(flags) if flag == "truncated"]
    for horizon in (HORIZON, 3):
        window = rp.sample_subtrajectory(replay.storage, starts, horizon)
        before_end = np.cumprod(np.concatenate([np.ones((1, CAPACITY)), window.not_done[:-1]]), axis=0) > 0
        read = np.asarray(window.reward)[:, :count][before_end[:, :count]]
        assert not set(made_up) & set(read.tolist())
        seen = np.asarray(window.obs[SINGLE])[1:, :count][before_end[:, :count]]
        assert not {number + 0.5 for number in made_up} & set(seen.reshape(-1).tolist())


def test_d3_terminated_and_truncated_at_once_counts_as_terminated():
    both = add_all(empty(CAPACITY), log_of(["", "", "", "both"]))
    only = add_all(empty(CAPACITY), log_of(["", "", "", "terminated"]))
    np.testing.assert_array_equal(both.storage.valid, only.storage.valid)
    assert int(jnp.sum(both.storage.valid)) == 4
    assert float(both.storage.not_done[3]) == 0


def test_d8_the_next_state_of_a_terminal_step_is_the_true_final_observation():
    replay = add_all(empty(CAPACITY), log_of(["", "", "terminated", "", ""]))
    window = rp.sample_subtrajectory(replay.storage, jnp.asarray([0]), HORIZON)
    np.testing.assert_array_equal(window.obs[SINGLE][:4, 0, 0], [0.0, 1.0, 2.0, 2.5])


def test_each_observation_is_stored_once_and_frames_as_bytes():
    storage = init_storage(rp.StorageSpec(100, ObsSpec.image(3, 84, 84, stack=3), 2, HORIZON))
    assert storage.obs is not None
    assert storage.obs[SINGLE].shape == (100, 3, 84, 84)
    assert storage.obs[SINGLE].dtype == jnp.uint8
    fields = (storage.action, storage.reward, storage.not_done, storage.frames_before, storage.is_transition)
    assert sum(x.nbytes for x in fields) == 100 * (2 * 4 + 4 + 4 + 1 + 1)


@pytest.mark.parametrize(
    ("steps", "capacity", "shortest", "slots"),
    [(1_000, 1_000_000, 1, 2_000), (500_000, 1_000_000, 500, 501_000), (1_000_000, 1_000_000, 1, 1_000_000)],
)
def test_memory_is_for_what_the_run_can_fill(steps, capacity, shortest, slots):
    assert rp.slots_to_fill(steps, capacity, shortest) == slots


def test_runs_of_other_lengths_have_the_same_number_of_slots_where_that_costs_little():
    vector, image = ObsSpec.vector(24), ObsSpec.image(3, 84, 84, stack=3)
    assert [rp.slots_to_allocate(slots, vector, 6) for slots in (1, 200, 16_384, 16_385)] == [16_384] * 3 + [32_768]
    assert rp.slots_to_allocate(501_000, vector, 6) == 507_904
    assert rp.slots_to_allocate(501_000, image, 6) == 501_000, "16,384 images would be 331 MiB"
    assert rp.slots_to_allocate(300, vector, 6, lanes=3) == 16_383
    assert rp.slots_to_allocate(16_386, vector, 6, lanes=3) == 32_766


def test_slots_to_fill_are_enough():
    log = random_log(300, seed=3, end=0.4)
    slots = rp.slots_to_fill(300, 1_000_000)
    replay = add_all(empty(slots), log)
    assert int(replay.storage.clock) == 300
    assert float(replay.storage.reward[0]) == 0.0  # nothing has been overwritten
    assert float(replay.storage.obs[SINGLE][0, 0]) == 0.0


def test_too_small_a_ring_is_refused():
    with pytest.raises(ValueError, match=r"replay capacity 10 is too small .* use at least 14"):
        empty(10)


def test_mean_abs_reward_counts_transitions_only():
    log = random_log(200, seed=1)
    log = log._replace(reward=log.reward - 100)
    replay = add_all(empty(64), log)
    stored = np.asarray(replay.storage.reward)[np.asarray(replay.storage.is_transition)]
    newest_first = np.asarray(log.reward)[::-1][: len(stored)]
    np.testing.assert_array_equal(np.sort(stored), np.sort(newest_first))
    np.testing.assert_allclose(rp.mean_abs_reward(replay.storage), np.abs(stored).mean(), rtol=1e-6)
