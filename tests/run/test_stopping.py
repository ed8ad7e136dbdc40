"""Runs that cannot go on, and those that are asked to stop, say so."""

import os
import signal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dr_q
from dr_q.run import evaluate, loop
from dr_q.run.errors import TrainingError
from dr_q.run.signals import Signals
from tests.envs import toys
from tests.run import tiny


class Endless(toys.Toy):
    """No end, no time limit."""

    def outcome(self, action):
        return 1.0, False, False


def test_an_evaluation_without_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluate, "LONGEST_EPISODE", 50)
    with pytest.raises(TrainingError, match=r"not ended after 50 steps.*gymnasium\.wrappers\.TimeLimit"):
        dr_q.train(Endless, steps=40, out=tmp_path / "run", **tiny.RUN, **tiny.SIZES)


def test_too_little_exploration_is_called_that(tmp_path):
    with pytest.raises(TrainingError, match="no window of 5 transitions to learn from: too few steps yet"):
        dr_q.train(toys.Walk, steps=40, out=tmp_path / "run", **{**tiny.RUN, **tiny.SIZES, "exploration_steps": 5})
    with pytest.raises(dr_q.ConfigError, match="exploration_steps must be a whole number, at least 1, got 0"):
        dr_q.train(toys.Walk, exploration_steps=0)


def test_seeds_that_diverge_are_named_and_the_run_ends_with_the_last():
    said: list[str] = []
    run: Any = SimpleNamespace(seeds=[3, 4], diverged=set(), step=2_000, display=SimpleNamespace(say=said.append))
    look = loop._Run._look_for_divergence  # pyright: ignore[reportPrivateUsage]
    fine, lost = np.array([1.0, 2.0]), np.array([1.0, np.nan])
    look(run, {"q": fine, "loss": fine})
    assert said == []
    for _ in range(2):
        look(run, {"q": fine, "loss": lost})
    assert said == ["seed 4 has diverged: loss is not finite at step 2,000"]
    with pytest.raises(TrainingError, match=r"every seed has diverged by step 2,000 \(q is not finite\)"):
        look(run, {"q": np.array([np.inf, np.nan]), "loss": fine})


def test_the_first_signal_is_answered_and_the_second_ends(capfd):
    with Signals("stopping") as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received == signal.SIGINT
        assert capfd.readouterr().err == "stopping\n"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert capfd.readouterr().err == ""
