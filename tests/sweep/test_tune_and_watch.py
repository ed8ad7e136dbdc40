"""The search over settings: its words, its trials on stand-ins for processes, a planted optimum; and the live table."""

import csv
import json
import math
import os
import time

import pytest

from dr_q.cli import main
from dr_q.kit import ConfigError, RunFolderError
from dr_q.run_folder import Evaluation, RunTables
from dr_q.sweep import SweepSpec
from dr_q.sweep.job import Ended
from dr_q.sweep.processes import ProcessJobs
from dr_q.sweep.spec import SweepOptions, write_spec
from dr_q.sweep.tune import Range, TuneOptions, parse_search, run_tune
from dr_q.sweep.watch import read_rows
from tests.training import tiny

SPEC = SweepSpec(("dmc/cheetah-run", "dmc/fish-swim"), ("dr.q",), 2, steps=40, eval_every=10)
SEARCH = {"infonce_weight": Range(0.01, 10.0, log=True), "batch_size": Range(choices=(64, 128))}


class Planted(ProcessJobs):
    """No processes, but evaluations whose value is largest at infonce_weight 1 with a batch of 128."""

    at_once = 4

    def __init__(self, *_):
        self.waiting, self.cancelled = [], []
        self.started = 0

    @property
    def capacity(self) -> int:
        return self.at_once

    def submit(self, job, attempt):
        self.waiting.append((job, attempt))
        self.started += 1
        return attempt

    def ended(self, timeout):
        found = [(attempt, Ended("interrupted")) for attempt in self.cancelled]
        self.cancelled = []
        for job, attempt in list(self.waiting):
            step = self.write(job)
            if step == job.settings.steps:
                self.waiting.remove((job, attempt))
                found.append((attempt, Ended("finished")))
        return found

    def write(self, job) -> int:
        config, evaluations = job.settings.config, job.folder / "evals.csv"
        job.folder.mkdir(parents=True, exist_ok=True)
        done = len(evaluations.read_text().splitlines()) // 2 if evaluations.exists() else 0
        step = 10 * (done + 1)
        value = step * (10 - math.log10(config.infonce_weight) ** 2 + (config.batch_size == 128))
        RunTables(job.folder).append_evaluations(
            Evaluation(seed, step, step, value + seed, 0.0, 1.0, 1) for seed in job.settings.seed_list
        )
        info = {"status": "finished" if step == job.settings.steps else "running", "agent_steps": step}
        record = {**info, "seeds": job.settings.seed_list, "settings": job.settings.to_json()}
        (job.folder / "run.json").write_text(json.dumps(record))
        return step

    def cancel(self, attempt):
        self.waiting = [(job, waiting) for job, waiting in self.waiting if waiting != attempt]
        self.cancelled.append(attempt)

    def stop(self):
        for _, attempt in list(self.waiting):
            self.cancel(attempt)

    def close(self):
        pass


def trials(out) -> list[dict[str, str]]:
    return list(csv.DictReader((out / "trials.csv").read_text().splitlines()))


def test_a_search_finds_a_planted_optimum_and_stops_trials_that_fall_behind(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.setattr("dr_q.sweep.tune.ProcessJobs", Planted)
    monkeypatch.setattr("dr_q.sweep.tune._LOOK_EVERY", 0.0)
    said: list[str] = []
    tuning = TuneOptions(trials=40, startup_trials=8)
    best = run_tune(SPEC, SEARCH, tmp_path / "tune", SweepOptions(local=True), tuning, said.append)
    assert best.settings["batch_size"] == 128
    assert 0.3 < best.settings["infonce_weight"] < 3
    made = trials(tmp_path / "tune")
    assert len(made) == 40
    states = {row["state"] for row in made}
    assert states == {"complete", "pruned"}
    pruned = [row for row in made if row["state"] == "pruned"]
    assert all(0 < int(row["agent_steps"]) < 40 for row in pruned)
    assert any("behind the others" in line for line in said)
    assert float(made[best.number]["return"]) == best.value
    again = run_tune(SPEC, SEARCH, tmp_path / "tune", SweepOptions(local=True), tuning, said.append)
    assert again == best, "all trials are made: nothing is started"
    with pytest.raises(RunFolderError, match="holds a search with other tasks, settings or ranges"):
        run_tune(SPEC, {"discount": Range(0.9, 0.99)}, tmp_path / "tune", SweepOptions(local=True), tuning)


class Killed(Planted):
    """The search is killed in the middle of its first trial."""

    at_once = 2

    def ended(self, timeout):
        if all((job.folder / "evals.csv").exists() for job, _ in self.waiting):
            raise KeyboardInterrupt
        return super().ended(timeout)


def test_a_killed_search_continues_with_the_trial_it_had_begun(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.setattr("dr_q.sweep.tune._LOOK_EVERY", 0.0)
    monkeypatch.setattr("dr_q.sweep.tune.ProcessJobs", Killed)
    tuning, options, said = TuneOptions(trials=3, prune=False), SweepOptions(local=True), list[str]()
    with pytest.raises(KeyboardInterrupt):
        run_tune(SPEC, SEARCH, tmp_path / "tune", options, tuning, said.append)
    (begun,) = trials(tmp_path / "tune")
    assert (begun["state"], begun["agent_steps"]) == ("running", "10")
    monkeypatch.setattr("dr_q.sweep.tune.ProcessJobs", Planted)
    run_tune(SPEC, SEARCH, tmp_path / "tune", options, tuning, said.append)
    made = trials(tmp_path / "tune")
    assert [row["state"] for row in made] == ["complete"] * 3
    assert made[0]["infonce_weight"] == begun["infonce_weight"]
    assert len((tmp_path / "tune" / "trial-0000" / "dmc-fish-swim" / "evals.csv").read_text().splitlines()) == 1 + 2 * 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to search; give --search infonce-weight=0.01..1:log"),
        (["infonce-weight"], "--search must be setting=low..high, setting=low..high:log or setting=value,value"),
        (["infonce-wait=1..2"], "unknown setting 'infonce_wait'; did you mean 'infonce_weight'?"),
        (["infonce-weight=2..1"], "--search infonce-weight needs low < high, got 2..1"),
        (["infonce-weight=0..1:log"], "--search infonce-weight needs 0 < low < high, got 0..1"),
        (["infonce-weight=0..1:cubic"], "the scale after ':' must be log, got 'cubic'"),
        (["infonce-weight=-1..1"], "--search infonce-weight must be a number"),
        (["sampling=a..b"], "--search sampling must be 'faded-lap' or 'uniform', got 'a'"),
        (["reward-range=1,2"], "reward_range has several numbers, which a search cannot vary"),
        (["discount=0.9..1", "discount=0.5..0.6"], "--search has discount twice"),
    ],
)
def test_words_of_a_search_that_are_none(words, message):
    with pytest.raises(ConfigError) as error:
        parse_search(words)
    assert message in str(error.value)


def test_words_of_a_search():
    assert parse_search(["infonce-weight=0.01..1:log", "batch-size=64..256", "sampling=uniform,faded-lap"]) == {
        "infonce_weight": Range(0.01, 1.0, True),
        "batch_size": Range(64, 256),
        "sampling": Range(choices=("uniform", "faded-lap")),
    }


@pytest.mark.slow
def test_a_search_finds_the_learning_rate_that_learns(tmp_path, capsys):
    """Real runs of a probe: the return is the action, and only one of three actors learns to give the largest."""
    pytest.importorskip("optuna")
    flags = tiny.flags(steps=240, eval_every=120, checkpoint_every=240)
    rates = "actor-learning-rate=0.0,1e-8,0.01"
    command = ["tune", "tests.sweep.toys:sweep-aim-v0", "--search", rates, "--trials", "5", "--no-prune", *flags]
    assert main([*command, "--cpus-per-job", "1", "--search-seed", "3", "--out", str(tmp_path / "tune")]) == 0
    said = capsys.readouterr().out
    made = trials(tmp_path / "tune")
    assert {row["actor_learning_rate"] for row in made} >= {"0.01"}, "tried at all"
    best = max(made, key=lambda row: float(row["return"]))
    assert best["actor_learning_rate"] == "0.01"
    assert float(best["return"]) > 15, "of 20"
    assert "--actor-learning-rate 0.01" in said.splitlines()[-1]


def made_run(job, status: str, steps: int) -> None:
    job.folder.mkdir(parents=True)
    info = {"status": status, "agent_steps": steps, "seeds": job.settings.seed_list, "versions": {}}
    (job.folder / "run.json").write_text(json.dumps({**info, "settings": job.settings.to_json()}))
    RunTables(job.folder).append_evaluations(
        Evaluation(seed, steps, steps, 100.0, 0.0, 1.0, 1) for seed in job.settings.seed_list
    )


def test_any_sweep_or_folder_of_runs_can_be_watched(tmp_path, capsys):
    out = tmp_path / "sweep"
    spec = SweepSpec(("dmc/cheetah-run", "dmc/fish-swim", "dmc/dog-run", "gym/Ant-v4"), ("dr.q",), 2, steps=40)
    write_spec(spec, out, 1)
    done, running, silent, failed = spec.jobs(out)
    made_run(done, "finished", 40)
    made_run(running, "running", 20)
    made_run(silent, "running", 10)
    for path in silent.folder.iterdir():
        os.utime(path, (time.time() - 1200, time.time() - 1200))
    failed.folder.parent.mkdir()
    failed.ended.write_text(json.dumps({"status": "failed", "why": "no such simulator", "attempt": "a"}))
    state = {"folder": "gym-Ant-v4/dr.q", "state": "failed", "note": "no such simulator"}
    (out / "status.json").write_text(json.dumps({"state": "running", "jobs": [state]}))
    assert [(row.state, row.note) for row in read_rows(out)] == [
        ("finished", ""),
        ("running", ""),
        ("silent", "for 20 minutes"),
        ("failed", "no such simulator"),
    ]
    assert main(["watch", str(out), "--once"]) == 0
    said = capsys.readouterr().out
    assert "20 / 40" in said
    assert "failed, no such simulator" in said
    assert "1 failed, 1 silent, 1 running, 1 finished" in said
    assert [row.job.task for row in read_rows(out / "dmc-fish-swim")] == ["dmc/fish-swim"], "a folder of runs"
    (running.folder / "run.json").write_text("{")
    assert main(["watch", str(out / "dmc-fish-swim")]) == 0, "it may be damaged"
    assert main(["watch", str(tmp_path / "nowhere")]) == 2
    assert "is not there; give a run's folder or a folder of runs" in capsys.readouterr().err
