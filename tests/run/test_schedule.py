"""When the loop explores, updates and copies targets, and what each update sees."""

import csv

import numpy as np
import pytest
from dr_q.run import seeds as axis

import dr_q
from tests.envs import toys
from tests.run import tiny


@pytest.fixture
def watched(monkeypatch):
    """What happens in a run, in order: ("random"|"explore"|"renew"|"update", number, transitions there)."""
    events = []
    made = {name: getattr(axis.Seeds, name) for name in ("begin", "act", "renew", "update")}

    def count(agents) -> int:
        return int(np.asarray(agents.states.replays.clock)[0])

    def index(agents, number: int) -> int:
        config = agents.task.config
        return (count(agents) - config.exploration_steps) * config.replay_ratio + number

    def begin(agents, obs):
        made["begin"](agents, obs)
        events.append(("random" if agents.task.config.exploration_steps else "explore", 0, 0))

    def act(agents, arrived, *, exploring):
        made["act"](agents, arrived, exploring=exploring)
        events.append(("random" if exploring else "explore", count(agents) + 1, count(agents) + 1))

    def renew(agents, number):
        agents.add()
        events.append(("renew", index(agents, number), count(agents)))
        return made["renew"](agents, number)

    def update(agents, number):
        agents.add()
        events.append(("update", index(agents, number), count(agents)))
        return made["update"](agents, number)

    for function in (begin, act, renew, update):
        monkeypatch.setattr(axis.Seeds, function.__name__, function)
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
    renewals = [(number + 1, seen) for kind, number, seen in watched if kind == "renew"]
    assert renewals == [(k, 39 + k) for k in range(1, tiny.STEPS - 40 + 1, 10)]
    # Targets are copied, and the encoder trained, before the RL update of the same number.
    order = [(kind, number) for kind, number, _ in watched if kind in ("renew", "update")]
    assert order.index(("renew", 10)) + 1 == order.index(("update", 10))


def test_replay_ratio_gives_that_many_updates_for_each_step(watched, tmp_path):
    run(tmp_path, replay_ratio=2, steps=60)
    assert [number for kind, number, _ in watched if kind == "update"] == list(range(40))
    assert [number for kind, number, _ in watched if kind == "renew"] == [0, 10, 20, 30]


def test_learning_starts_with_the_first_window_that_is_complete(watched, tmp_path):
    """The horizon is 5: six transitions of one episode make one start, and that is what update 0 must find."""
    run(tmp_path, exploration_steps=6, steps=12, eval_every=12, checkpoint_every=12)
    assert [(number, seen) for kind, number, seen in watched if kind == "update"] == [(k, 6 + k) for k in range(6)]


def test_metrics_say_how_old_and_how_faded_the_drawn_transitions_are(tmp_path, monkeypatch):
    monkeypatch.setattr("dr_q.training.loop.LOG_EVERY", 60)
    sizes = {**tiny.SIZES, "fade_decay": 0.1, "fade_floor": 0.01}
    dr_q.train(toys.Walk, steps=tiny.STEPS, seeds=2, out=tmp_path / "run", **{**tiny.RUN, **sizes})
    with (tmp_path / "run" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["seed"], row["agent_steps"]) for row in rows] == [("0", "60"), ("1", "60"), ("0", "120"), ("1", "120")]
    for row in rows:
        # With 0.9^age a transition of 30 steps ago has a chance of 1 in 20 of the newest.
        assert 4 < float(row["age_mean"]) < 30
        assert 0.9 ** float(row["age_mean"]) < float(row["fade_mean"]) < 0.9**4  # its mean is above the mean's
        assert float(row["td_error_mean"]) > 0
        assert float(row["ms_update"]) > 0
