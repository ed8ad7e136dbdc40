"""What cannot be trained is refused before any process starts, in one line, from the command line and from Python."""

from pathlib import Path
from typing import Any

import pytest

import dr_q
from dr_q.cli import main
from dr_q.envs import Source, open_pool
from dr_q.envs.processes.channel import WorkerProcess
from dr_q.kit import DamagedFileError, TaskError
from dr_q.report.results import read_results
from dr_q.training.plan import GIB
from tests.envs import toys
from tests.training import tiny


@pytest.fixture
def started(monkeypatch) -> list[int]:
    """The seeds whose simulators were started."""
    seeds: list[int] = []

    def start(self, seed, *rest):
        seeds.append(seed)
        return kept(self, seed, *rest)

    kept = WorkerProcess.__init__
    monkeypatch.setattr(WorkerProcess, "__init__", start)
    return seeds


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("seeds", "100000000", "a whole number between 1 and 1000"),
        ("steps", "99999999999999999999", "a whole number between 1 and 1000000000"),
        ("steps", "9" * 400, "a whole number between 1 and 1000000000"),
        ("steps", "9" * 5_000, "a whole number between 1 and 1000000000"),
        ("eval-episodes", "100000000", "a whole number between 1 and 1000"),
        ("noise-dims", "1000000000", "a whole number between 0 and 100000"),
        ("replay-capacity", "10000000000", "a whole number between 1 and 1000000000"),
        ("batch-size", "10000000000", "a whole number between 1 and 65536"),
        ("zs-dim", "10000000000000", "a whole number between 1 and 16384"),
        ("encoder-learning-rate", "1e300", "a number between 0 and 1"),
    ],
)
def test_a_value_beyond_its_limit_is_refused(option, value, allowed, tmp_path, capsys, started):
    out = tmp_path / "run"
    assert main(["train", "gym/Hopper-v4", f"--{option}", value, "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert f"--{option} must be {allowed}, got " in said
    assert said.count("\n") == 1
    assert len(said) < 500
    assert not out.exists()
    if len(value) <= 400:
        name = option.replace("-", "_")
        given: dict[str, Any] = {name: float(value) if "e" in value else int(value)}
        with pytest.raises(dr_q.ConfigError, match=f"^{name} must be {allowed}, got "):
            dr_q.train(toys.Walk, out=out, **given)
    assert started == []


def test_a_replay_too_small_for_a_window_is_refused(tmp_path, capsys):
    assert main(["train", "gym/Hopper-v4", "--replay-capacity", "1", "--out", str(tmp_path / "run")]) == 2
    told = "--replay-capacity must be at least 14 for windows of 5 transitions, got 1\n"
    assert capsys.readouterr().err == f"dr-q: {told}"
    assert not (tmp_path / "run").exists()


def test_one_simulator_is_enough_to_plan_with(tmp_path, monkeypatch, started):
    """A run that does not fit is refused before the simulators of its other seeds are started."""
    monkeypatch.setattr("dr_q.training.plan.main_memory", lambda: GIB // 100)
    settings = {**tiny.RUN, **tiny.SIZES, "seeds": 900}
    with pytest.raises(dr_q.ConfigError, match=r"900 seeds with .* slots each need"):
        dr_q.train(toys.Walk, steps=200, out=tmp_path / "run", **settings)
    assert started == [0]
    assert not (tmp_path / "run").exists()
    with pytest.raises(dr_q.ConfigError, match=r"900 seeds with .* slots each need"):
        dr_q.train(toys.Walk, steps=200, out=tmp_path / "run", **settings, in_process=True)


@pytest.mark.parametrize("in_process", [True, False])
def test_environments_of_different_seeds_must_be_alike(in_process, tmp_path):
    made = tmp_path / "made"

    def make():
        env = toys.Walk()
        with made.open("a") as file:
            file.write("x")
        if made.stat().st_size > 1:
            env.observation_space = toys.Toy.observation_space
        return env

    with pytest.raises(TaskError, match=r"the environment of seed 4 has .*, that of the first seed"):
        open_pool(Source(make), [3, 4], 1, in_process=in_process)


def test_a_table_with_an_endless_field_is_refused(tmp_path):
    file: Path = tmp_path / "results.csv"
    file.write_text("task,preset,seed,agent_steps,return\n" + "x" * 200_000 + ",dr.q,0,1,1\n")
    with pytest.raises(DamagedFileError, match="field larger than field limit"):
        read_results([file])
