"""When the loop explores, updates and copies targets, and what each update sees."""

import csv

import jax
import numpy as np
import pytest

import dr_q
from dr_q import agent as drq
from dr_q.learner import Learner, root_keys
from tests.envs import toys
from tests.training import tiny

ENCODER = "sync_targets_and_train_encoder"


@pytest.fixture
def watched(monkeypatch):
    """What happens in a run, in order: ("random"|"explore"|"encoder"|"update", number, transitions there)."""
    events = []
    made = {name: getattr(Learner, name) for name in ("begin_acting", "act", "act_randomly", ENCODER, "update")}

    def count(learner) -> int:
        return int(np.asarray(learner.states.replays.storage.clock)[0])

    def index(learner, number: int) -> int:
        config = learner.spec.config
        return (count(learner) - config.exploration_steps) * config.replay_ratio + number

    def begin_acting(learner, obs, *, at_random=True):
        made["begin_acting"](learner, obs, at_random=at_random)
        key = jax.random.fold_in(jax.random.fold_in(root_keys([0])[0], 2), 0)  # seed 0, "random", step 0
        first = drq.random_action(learner.spec.spaces.action, key)
        is_random = np.array_equal(learner.actions()[0], first)
        events.append(("random" if is_random else "explore", 0, 0))

    def act(learner, arrived):
        made["act"](learner, arrived)
        events.append(("explore", count(learner) + 1, count(learner) + 1))

    def act_randomly(learner, arrived):
        made["act_randomly"](learner, arrived)
        events.append(("random", count(learner) + 1, count(learner) + 1))

    def sync_targets_and_train_encoder(learner, number, roots=None):
        learner.add()
        events.append(("encoder", index(learner, number), count(learner)))
        return made[ENCODER](learner, number, roots)

    def update(learner, number, roots=None):
        learner.add()
        events.append(("update", index(learner, number), count(learner)))
        return made["update"](learner, number, roots)

    for function in (begin_acting, act, act_randomly, sync_targets_and_train_encoder, update):
        monkeypatch.setattr(Learner, function.__name__, function)
    return events


def run(tmp_path, **more) -> None:
    dr_q.train(toys.Walk, out=tmp_path / "run", **{"steps": tiny.STEPS, **tiny.RUN, **tiny.SIZES, **more})


def test_d9_exploration_counts_agent_steps(watched, tmp_path):
    run(tmp_path)
    assert [number for kind, number, _ in watched if kind == "random"] == list(range(40))
    assert [number for kind, number, _ in watched if kind == "explore"] == list(range(40, tiny.STEPS))


def test_d10_update_k_sees_exploration_steps_minus_1_plus_k_transitions(watched, tmp_path):
    run(tmp_path)
    updates = [(number + 1, seen) for kind, number, seen in watched if kind == "update"]
    assert updates == [(k, 39 + k) for k in range(1, tiny.STEPS - 40 + 1)]
    target_updates = [(number + 1, seen) for kind, number, seen in watched if kind == "encoder"]
    assert target_updates == [(k, 39 + k) for k in range(1, tiny.STEPS - 40 + 1, 10)]
    # Targets are copied, and the encoder trained, before the RL update of the same number.
    order = [(kind, number) for kind, number, _ in watched if kind in ("encoder", "update")]
    assert order.index(("encoder", 10)) + 1 == order.index(("update", 10))


def test_replay_ratio_gives_that_many_updates_for_each_step(watched, tmp_path):
    run(tmp_path, replay_ratio=2, steps=60)
    assert [number for kind, number, _ in watched if kind == "update"] == list(range(40))
    assert [number for kind, number, _ in watched if kind == "encoder"] == [0, 10, 20, 30]


def test_learning_starts_with_the_first_window_that_is_complete(watched, tmp_path):
    """The horizon is 5: six transitions of one episode make one start, and that is what update 0 must find."""
    run(tmp_path, exploration_steps=6, steps=12, eval_every=12, checkpoint_every=12)
    assert [(number, seen) for kind, number, seen in watched if kind == "update"] == [(k, 6 + k) for k in range(6)]


def test_metrics_say_how_old_and_how_faded_the_drawn_transitions_are(tmp_path):
    sizes = {**tiny.SIZES, "log_every": 60, "fade_decay": 0.1, "fade_floor": 0.01}
    dr_q.train(toys.Walk, steps=tiny.STEPS, seeds=2, out=tmp_path / "run", **{**tiny.RUN, **sizes})
    with (tmp_path / "run" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["seed"], row["agent_steps"]) for row in rows] == [("0", "60"), ("1", "60"), ("0", "120"), ("1", "120")]
    for row in rows:
        # With 0.9^age a transition of 30 steps ago has a chance of 1 in 20 of the newest.
        assert 4 < float(row["age_mean"]) < 30
        assert 0.9 ** float(row["age_mean"]) < float(row["fade_mean"]) < 0.9**4  # its mean is above the mean's
        assert float(row["td_error_mean"]) > 0
        assert float(row["ms_wait_for_actions"]) > 0
