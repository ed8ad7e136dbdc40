"""Runs whose environments fail: they end with a word, or go on where that is allowed."""

import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dr_q
from dr_q.kit import EnvError, WorkerError
from dr_q.run_folder import read_rows, read_run_json
from tests.envs import toys
from tests.training import tiny


def test_a_run_goes_on_after_its_simulator_died(tmp_path, capsys):
    out, make = tmp_path / "run", functools.partial(toys.Fails, "dies", str(tmp_path / "x"))
    settings = {**tiny.RUN, **tiny.SIZES, "quiet": False, "in_process": False, "max_env_restarts": 3, "log_every": 20}
    result = dr_q.train(make, steps=80, out=out, **settings)
    assert (result.status, result.env_restarts) == ("finished", 1)
    told = capsys.readouterr().out
    assert "the simulator of seed 0 died (exit code 7); its simulator is started again (1 of 3), in a new epi" in told
    assert "simulators were started again 1 time (seed 0: 1)" in told
    rows = read_rows(out / "metrics.csv")
    assert [row["env_restarts"] for row in rows] == ["1"] * len(rows)
    assert rows
    again = dr_q.train(make, steps=120, resume=out, max_env_restarts=3, log_every=20)
    assert again.env_restarts == 0
    assert read_rows(out / "metrics.csv")[-1]["env_restarts"] == "1"


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ("hangs", WorkerError, r"the environment of seed 0 has not answered for 1.5 s \(env_timeout\); it hangs or is"),
        ("dies", EnvError, r"failed in step\(action\): EnvError: it called os._exit\(7\), which would end the run"),
    ],
)
def test_an_environment_in_this_process_that_fails_ends_the_run_with_a_word(how, error, said, tmp_path, capsys):
    out, make = tmp_path / "run", functools.partial(toys.Fails, how, str(tmp_path / "x"))
    settings = {**tiny.RUN, **tiny.SIZES, "quiet": False, "env_timeout": 1.5}
    with pytest.raises(error, match=said):
        dr_q.train(make, steps=80, out=out, **settings)
    assert read_run_json(out, "status")["status"] == "failed"
    assert "start again (there is no checkpoint yet) with: dr_q.train(THE_SAME" in capsys.readouterr().out


STUBBORN = """
import functools, sys
import gymnasium
from dr_q.cli import main
from tests.envs import toys
from tests.training import tiny
gymnasium.register("Stubborn-v0", functools.partial(toys.Fails, "is stubborn", sys.argv[2]))
flags = tiny.flags(steps=80)
sys.exit(main(["train", "gym/Stubborn-v0", "--out", sys.argv[1], "--env-timeout", "1.5", *flags]))
"""


def test_an_environment_that_cannot_be_interrupted_ends_the_command(tmp_path):
    """It catches everything: the watchdog writes down what happened and ends the process."""
    out = tmp_path / "run"
    home = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", STUBBORN, str(out), str(tmp_path / "x")],
        cwd=home, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    told = "dr-q: the environment of seed 0 has not answered for 1.5 s (--env-timeout); it hangs or is very slow\n"
    assert done.stderr.endswith(told)
    assert f"start again (there is no checkpoint yet) with: dr-q train --resume {out}" in done.stdout
    assert json.loads((out / "run.json").read_text())["status"] == "failed"


class FailsAlways(toys.Walk):
    """Raises in the sixth step of every episode."""

    def outcome(self, action):
        if self.t == 5:
            raise RuntimeError("lost a leg")
        return super().outcome(action)


class Lingers(toys.Walk):
    """Does not close as it should, once it has been trained on."""

    def __init__(self, how: str):
        super().__init__()
        self.how, self.steps = how, 0

    def outcome(self, action):
        self.steps += 1
        return super().outcome(action)

    def close(self) -> None:
        if self.steps < 30:
            return
        if self.how == "hangs":
            time.sleep(60)
        os._exit(5)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            "hangs",
            "the environment of seed 0 has not answered for 1 s (env_timeout); it hangs or is very slow, in close",
        ),
        ("exits", "failed in close(): EnvError: it called os._exit(5), which would end the run"),
    ],
)
def test_an_environment_that_does_not_close_keeps_no_finished_run_from_ending(how, said, tmp_path, capsys):
    settings = {**tiny.RUN, **tiny.SIZES, "quiet": False, "env_timeout": 1.0, "keep_best": False}
    begin = time.monotonic()
    result = dr_q.train(functools.partial(Lingers, how), steps=50, out=tmp_path / "run", **settings)
    assert result.status == read_run_json(tmp_path / "run", "status")["status"] == "finished"
    assert time.monotonic() - begin < 50
    told = capsys.readouterr()
    assert said in told.out + told.err


def test_restarts_are_counted_in_the_last_lines_of_a_run_that_fails(tmp_path, capsys):
    settings = {**tiny.RUN, **tiny.SIZES, "quiet": False, "in_process": False, "max_env_restarts": 1}
    with pytest.raises(EnvError):
        dr_q.train(FailsAlways, steps=80, out=tmp_path / "run", **settings)
    assert "simulators were started again 1 time (seed 0: 1)" in capsys.readouterr().out
