"""Whether episodes succeed, `info["is_success"]`: in evaluations, on the command line and in checks."""

import csv

import gymnasium
import numpy as np
import pytest

import dr_q
from dr_q.cli import main
from dr_q.policies.watch import PlayedEpisodes
from tests.envs import toys
from tests.training import tiny
from tests.training.test_callbacks import Tells

TASK = "tests.training.test_success:drq-tells-v0"
gymnasium.register("drq-tells-v0", entry_point="tests.training.test_callbacks:Tells")


class InWords(toys.Walk):
    """Says in words what must be a bool."""

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, {"is_success": "no"}


def rows(run):
    with (run / "evals.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("how", [{}, {"in_process": False}, {"num_envs": 2}])
def test_evaluations_have_the_share_of_episodes_that_succeeded(how, tmp_path, capsys):
    run = tmp_path / "run"
    result = dr_q.train(TASK, steps=80, out=run, **{**tiny.RUN, **tiny.SIZES, "quiet": False, **how})
    said = capsys.readouterr().out
    for row, evaluation in zip(rows(run), result.evaluations, strict=True):
        assert evaluation.success_mean in (0.0, 0.5, 1.0)
        assert float(row["success_mean"]) == evaluation.success_mean
    assert f", success {100 * (result.evaluations[-1].success_mean or 0):.0f}%" in said
    assert main(["eval", str(run), "--episodes", "4"]) == 0
    said = capsys.readouterr().out
    assert " (standard deviation " in said
    assert "over 4 episodes, success " in said
    assert "\nrandom " in said


def test_without_it_there_is_no_such_column(tmp_path):
    run = tmp_path / "run"
    (first, *_) = dr_q.train(toys.Walk, steps=40, out=run, **{**tiny.RUN, **tiny.SIZES}).evaluations
    assert first.success_mean is None
    assert "success_mean" not in rows(run)[0]


def test_played_episodes_say_what_they_are():
    unknown = np.full(2, np.nan)
    assert str(PlayedEpisodes(np.array([1.0, 3.0]), unknown)) == "2.0 (standard deviation 1.0) over 2 episodes"
    assert str(PlayedEpisodes(np.array([1.0]), np.array([1.0]))) == "1.0 over 1 episode, success 100%"


def test_a_check_says_whether_success_is_given_in_a_way_that_is_understood():
    (good,) = [finding for finding in dr_q.check_env(Tells, 60) if finding.what == "success"]
    assert good.ok
    (wrong,) = [finding for finding in dr_q.check_env(InWords, 60) if finding.what == "success"]
    assert (wrong.ok, wrong.warning, wrong.found) == (False, True, "info['is_success'] is 'no'")
