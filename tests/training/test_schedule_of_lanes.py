"""Which updates follow which transitions, with several environments for each seed and any replay ratio."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dr_q import replay as rp
from dr_q.config import Config, preset
from dr_q.kit import ConfigError
from dr_q.learner import LearnerSpec, root_keys
from dr_q.learner.steps import _update_key  # pyright: ignore[reportPrivateUsage]
from dr_q.settings import make_settings
from dr_q.training.schedule import Schedule
from tests.learner.test_places import VECTOR


def rounds(config: Config, lanes: int, steps: int, prefilled: int = 0) -> list[tuple[int, int | None, int]]:
    """Transitions of the run that are there, first update and number of updates of every round."""
    schedule = Schedule(config, lanes, prefilled=prefilled)
    return [(step, *schedule.updates(step)) for step in range(0, steps, lanes)]


@pytest.mark.parametrize("ratio", [1, 2, 1 / 2, 1 / 3, 1 / 5])
@pytest.mark.parametrize("lanes", [1, 2, 3, 8])
def test_updates_are_numbered_one_after_the_other(lanes, ratio):
    config = preset("dr.q", exploration_steps=20, replay_ratio=ratio)
    numbers, starts = [], -(-20 // lanes) * lanes
    for seen, first, count in rounds(config, lanes, 200):
        assert (first is None) == (seen < starts), "exploration ends with the first round that reaches 20"
        if first is not None:
            assert ratio < 1 or count == lanes * ratio
            numbers += range(first, first + count)
    assert numbers == list(range(len(numbers)))
    learning = -(-200 // lanes) * lanes - starts
    assert abs(len(numbers) - learning * ratio) < 1


def test_one_lane_is_the_paper_s_schedule():
    config = preset("dr.q", exploration_steps=20)
    assert [(first, seen) for seen, first, _ in rounds(config, 1, 24)[20:]] == [(0, 20), (1, 21), (2, 22), (3, 23)]


def test_one_update_for_every_k_transitions():
    config = preset("dr.q", exploration_steps=6, replay_ratio=0.25)
    found = [(seen, first) for seen, first, count in rounds(config, 1, 24) if count and first is not None]
    assert found == [(8, 0), (12, 1), (16, 2), (20, 3)]
    with_lanes = [(seen, first, count) for seen, first, count in rounds(config, 6, 36) if first is not None]
    assert with_lanes == [(6, 0, 1), (12, 1, 2), (18, 3, 1), (24, 4, 2), (30, 6, 1)]


@pytest.mark.parametrize(
    ("lanes", "ratio", "prefilled"),
    [
        *((lanes, ratio, 0) for lanes in (1, 4) for ratio in (1, 3, 1 / 3)),
        (1, 1, 5), (1, 1 / 4, 6), (4, 3, 8), (6, 1 / 4, 6), (6, 1 / 4, 12), (4, 1 / 3, 8),
    ],
)  # fmt: skip
def test_keys_count_updates(lanes, ratio, prefilled):
    """No two updates have the same key, and that of an update depends on its place alone.

    The replay counts the transitions that were there before step 0.
    """
    config = preset("dr.q", exploration_steps=8, replay_ratio=ratio)
    spec = LearnerSpec(config, VECTOR, 96, lanes=lanes)
    root = root_keys([0])[0]
    places = []

    empty = rp.init_replay(config, VECTOR, 96, lanes=lanes)

    def place(clock: int, number: int) -> int:
        storage = dataclasses.replace(empty.storage, clock=jnp.asarray(clock))
        replay = dataclasses.replace(empty, storage=storage)
        key = _update_key(spec, "update", replay, root, jnp.asarray(number))
        stream = jax.random.fold_in(root, 3)
        guesses = jax.vmap(lambda where: jax.random.key_data(jax.random.fold_in(stream, where)))(jnp.arange(400))
        return int(np.flatnonzero((np.asarray(guesses) == np.asarray(jax.random.key_data(key))).all(1))[0])

    numbers = []
    for seen, first, count in rounds(config, lanes, 28, prefilled):
        if first is not None:
            places += [place(prefilled + seen, number) for number in range(count)]
            numbers += range(first, first + count)
    assert np.diff(places).tolist() == [1] * (len(places) - 1)
    assert numbers == list(range(len(places)))
    at = 8 + prefilled
    assert lanes > 1 or ratio != 1 or places[0] == at, "with one environment keys are what they always were"


def test_what_is_due_every_so_many_steps_happens_in_the_first_round_that_reaches_the_step():
    settings = make_settings("dmc/walker-walk", num_envs=3)
    due = [step for step in range(0, 40, 3) if settings.is_due(10, step)]
    assert due == [0, 12, 21, 30]
    assert [step for step in range(0, 10, 3) if settings.is_due(2, step)] == [0, 3, 6, 9]
    one = make_settings("dmc/walker-walk")
    assert [step for step in range(40) if one.is_due(10, step)] == [0, 10, 20, 30]
    assert make_settings("dmc/walker-walk", num_envs=3, steps=100).last_step == 102


@pytest.mark.parametrize("wrong", [0, -1, 0.7, 1.5, 2_000, 1 / 2_000, float("nan"), True])
def test_a_replay_ratio_is_whole_or_one_over_whole(wrong):
    with pytest.raises(ConfigError, match=r"replay_ratio must be a whole number between 1 and 1000, or 1/2, 1/3, "):
        preset("dr.q", replay_ratio=wrong)


def test_a_whole_replay_ratio_has_one_spelling():
    assert repr(preset("dr.q", replay_ratio=2.0).replay_ratio) == "2"
