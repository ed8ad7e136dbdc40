"""Runs that compute with NaN or infinite numbers stop at once; rewards beyond the bins are warned of."""

import re
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dr_q
from dr_q.kit import TrainingError
from dr_q.run_folder import checkpoint_steps, read_run_json
from dr_q.training import loop
from dr_q.training.health import Health, reward_bounds
from tests.envs import toys
from tests.training import tiny


class Rich(toys.Walk):
    """Rewards grow with the number of steps, up to what float32 holds."""

    taken = 0

    def outcome(self, action):
        Rich.taken += 1
        _, terminated, truncated = super().outcome(action)
        return 3e38 if Rich.taken % 2 else -3e38, terminated, truncated


def test_a_run_that_diverges_stops_at_once_and_says_why(tmp_path):
    settings = {**tiny.RUN, **tiny.SIZES, "checkpoint_every": 20, "eval_every": 10_000}
    out = tmp_path / "run"
    with pytest.raises(TrainingError) as raised:
        dr_q.train(Rich, steps=400, out=out, **settings)
    said = str(raised.value)
    assert said.startswith("seed 0 has diverged at step 4")  # which begins to learn after 40
    assert "critic_loss" in said
    assert "are NaN or infinite; the largest reward in its replay is 3e+38, the largest observation " in said
    assert said.endswith("; the last good checkpoint is of step 40")
    assert checkpoint_steps(out) == [20, 40]
    assert read_run_json(out, "status")["status"] == "failed"


class Generous(toys.Walk):
    def outcome(self, action):
        _, terminated, truncated = super().outcome(action)
        return 1e20, terminated, truncated


def test_rewards_beyond_the_bins_are_warned_of_once(tmp_path, capsys):
    settings = {**tiny.RUN, **tiny.SIZES, "quiet": False}
    dr_q.train(Generous, steps=120, out=tmp_path / "run", **settings)
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("rewards")]
    assert told == [
        "rewards as large as 1e+20 are outside the range of the reward bins, -22,025 to 22,025 (reward_range -10 10): "
        "the encoder takes them for the outermost bin, and values of that size make learning unstable; scale the "
        "environment's rewards down, or train with reward_range -10 47"
    ]


def health(said: list[str], **config: Any) -> Health:
    storage = SimpleNamespace(reward=np.array([[1.0], [-7.0]]), obs={"obs": np.array([[[1.0]], [[-9.0]]])})
    learner: Any = SimpleNamespace(states=SimpleNamespace(replays=SimpleNamespace(storage=storage)), frames=None)
    made: Any = object.__new__(Health)  # a real learner would compile for seconds
    made._config, made._seeds, made._learner, made._warned = dr_q.Config(**config), [3, 4], learner, False
    made._say, made._last_checkpoint = said.append, lambda: "there is no checkpoint"
    return made


def test_what_diverged_is_named():
    """The first seed that did, what of it, and the size of what it learns from."""
    watched = health([])
    watched.check({"q": np.array([1.0, 2.0])}, 2_000)
    message = (
        "seed 4 has diverged at step 2,000: loss is NaN or infinite; the largest reward in its replay is 7, the "
        "largest observation 9; scale rewards and observations that are very large, or give smaller learning rates; "
        "there is no checkpoint"
    )
    with pytest.raises(TrainingError) as raised:
        watched.check({"q": np.array([1.0, 2.0]), "loss": np.array([1.0, np.nan])}, 2_000)
    assert str(raised.value) == message
    names = {f"loss {i}": np.array([[1.0], [np.inf]]) for i in range(6)}
    with pytest.raises(TrainingError, match="loss 0, loss 1, loss 2, loss 3 and 2 more are NaN or infinite"):
        watched.check(names, 1)


@pytest.mark.parametrize(
    ("lowest", "highest", "bounds", "said"),
    [
        (-22_025.0, 22_025.0, (-10.0, 10.0), None),
        (0.0, 0.5, (0.0, 1.0), None),
        (-0.1, 0.5, (0.0, 1.0), "rewards as large as -0.1 .*train with reward_range -1 1$"),
        (-1e30, 0.0, (-10.0, 10.0), "rewards as large as -1e.30 .*train with reward_range -70 10$"),
        (0.0, 1e36, (-10.0, 10.0), "rewards as large as 1e.36 .*scale the environment's rewards down$"),
    ],
)
def test_the_range_that_would_do_is_named(lowest, highest, bounds, said):
    told: list[str] = []
    watched = health(told, reward_range=bounds)
    for _ in range(2):
        watched.check_rewards(lowest, highest)
    assert len(told) == (said is not None)
    if said is not None:
        assert re.search(said, told[0])
        needed = [float(word) for word in told[0].split("train with reward_range ")[1:] for word in word.split()]
        if needed:
            low, high = reward_bounds(dr_q.Config(reward_range=(needed[0], needed[1])))
            assert low <= lowest
            assert highest <= high
    unused: list[str] = []
    health(unused, reward_range=bounds, reward_weight=0.0).check_rewards(-1e30, 1e30)
    assert unused == []


class Spoils(dr_q.Callback):
    """Makes one weight of a critic NaN, before the checkpoint that is due at a step."""

    def __init__(self, step: int):
        self.step, self.learners = step, []

    def on_step(self, event):
        if event.agent_steps == self.step:
            (learner,) = self.learners
            states = learner.states
            weight = jax.tree.leaves(states.agents.online.critic)[0]
            spoilt = jax.tree.map(lambda x: x.at[(0,) * x.ndim].set(jnp.nan) if x is weight else x, states)
            learner.restore(spoilt, learner.pending)


def test_a_checkpoint_never_holds_weights_that_are_nan(tmp_path, monkeypatch):
    """A real run. Neither its actions nor its losses show it: it explores when the weight is spoilt."""
    spoils, out, made = Spoils(40), tmp_path / "run", loop.Learner.__init__

    def remember(self, *arguments, **named):
        made(self, *arguments, **named)
        spoils.learners.append(self)

    monkeypatch.setattr(loop.Learner, "__init__", remember)
    settings = {**tiny.RUN, **tiny.SIZES, "checkpoint_every": 20, "eval_every": 10_000}
    with pytest.raises(TrainingError) as raised:
        dr_q.train(toys.Walk, steps=tiny.STEPS, out=out, callbacks=[spoils], in_process=True, **settings)
    said = str(raised.value)
    assert said.startswith("seed 0 has diverged at step 40: weights critic"), said
    assert said.endswith("; the last good checkpoint is of step 20")
    assert checkpoint_steps(out) == [20]
    assert read_run_json(out, "status")["status"] == "failed"
