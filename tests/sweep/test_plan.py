"""What a sweep is, refuses and would take; nothing is started."""

import contextlib
import dataclasses
import errno
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dr_q.cli import COMMANDS, main
from dr_q.cli.parse import parse
from dr_q.cli.settings_table import with_tables
from dr_q.config import settings_of
from dr_q.envs import suite_tasks
from dr_q.envs.families import humanoid_bench
from dr_q.kit import ConfigError, DamagedFileError, RunFolderError
from dr_q.settings import STOP_RULES, make_settings
from dr_q.sweep import (
    SlurmOptions,
    SweepFailed,
    SweepInterrupted,
    SweepOptions,
    SweepSpec,
    driver,
    estimate,
    write_slurm_array,
)
from dr_q.sweep.collect import collect
from dr_q.sweep.driver import share_of
from dr_q.sweep.estimate import MEASURED, expected_rate, nearest, wall_hours
from dr_q.sweep.job import Ended, Share, _begun, run_job  # pyright: ignore[reportPrivateUsage]
from dr_q.sweep.processes import ProcessJobs
from dr_q.sweep.progress import Progress, progress_of
from dr_q.sweep.slurm import slurm_script, sweep_arguments
from dr_q.sweep.spec import RUN_OPTIONS, Variant, check_folder, write_spec
from dr_q.sweep.table import Board, Row
from dr_q.sweep.watch import read_rows

CHEETAH = SweepSpec(("dmc/cheetah_run",), ("dr.q", "mr.q"), 10)


def test_suites_become_their_tasks_and_names_their_own_spelling():
    spec = SweepSpec(("dmc-visual", "dmc/Cheetah_Run", "dmc-visual/walker-run"), ("dr.q", "dr.q"), 3)
    assert spec.tasks == (*(task.name for task in suite_tasks("dmc-visual")), "dmc/cheetah-run")
    assert spec.presets == ("dr.q",)
    jobs = spec.jobs(Path("out"))
    assert len(jobs) == 13
    assert jobs[-1].folder == Path("out/dmc-cheetah-run/dr.q")
    assert jobs[-1].settings.steps == 500_000
    assert jobs[-1].settings.seed_list == [0, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dmc-esy"], "unknown suite 'dmc-esy'; did you mean 'dmc-easy'?"),
        (["dmc/dog-rum"], "unknown task 'dmc/dog-rum'; did you mean 'dmc/dog-run'? List: dr-q tasks dmc"),
        ([], "nothing to train on; name tasks (dr-q tasks lists them) or suites: gym,"),
        (["dmc-easy", "--presets", "dr.q", "mrq"], "unknown preset 'mrq'; did you mean 'mr.q'?"),
        (["dmc-easy", "--presets"], "--presets needs at least one value; see dr-q sweep --help"),
        (["dmc-easy", "--seeds", "0"], "--seeds must be a whole number between 1 and 1000, got 0"),
        (["dmc-easy", "--batch-size", "0"], "--batch-size must be a whole number between 1 and 65536, got 0"),
        (
            ["dmc-easy", "--gpus-per-job", "1.5"],
            "--gpus-per-job must be a number between 0 and 1, or a whole number up to 1024, got",
        ),
        (["dmc-easy", "--cpus-per-job", "0"], "--cpus-per-job must be a number, more than 0 and at most"),
        (["dmc-easy", "--retries", "-1"], "--retries must be a whole number between 0 and 1000000000, got -1"),
        (["dmc-easy", "--dry-run", "--throughput", "0"], "--throughput must be a number, more than 0 and at most"),
        (["dmc-easy", "--slurm", "x.sh", "--address", "auto"], "--slurm starts a Ray cluster of its own"),
        (["dmc/dog-rum", "--slurm", "x.sh"], "unknown task 'dmc/dog-rum'; did you mean 'dmc/dog-run'?"),
        (["dmc-easy", "--slurm", "x.sh", "--out", "/etc"], "/etc is not empty and no sweep"),
        (
            ["dmc-easy", "--slurm", "array", "--slurm-header", "nowhere"],
            "nowhere cannot be used",
        ),
        (["dmc-easy", "--mem", "8G"], "--slurm-script, --slurm-header and --mem need --slurm"),
        (["dmc-easy", "--presets", ""], "unknown preset ''; presets: dr.q"),
        (["dmc-easy", "--preset-file", "nowhere.toml"], "nowhere.toml cannot be read as a TOML file of presets"),
        (["dmc-easy", "--seeds", "100000000"], "--seeds must be a whole number between 1 and 1000, got 100000000"),
        (["dmc-easy", "--gpus-per-job", "nan"], "--gpus-per-job must be a number between 0 and 1, or a whole number"),
        (["dmc-easy", "--cpus-per-job", "inf"], "--cpus-per-job must be a number, more than 0 and at most"),
        (["dmc-easy", "--dry-run", "--throughput", "nan"], "--throughput must be a number, more than 0 and at most"),
        (["dmc-easy", "--max-minutes", "nan"], "--max-minutes must be a number, more than 0 and at most"),
        (["dmc-easy", "--grid", "infonce-weight"], "--grid must be setting=value,value,...: --grid infonce-weight="),
        (["dmc-easy", "--grid", "infonce-wait=1"], "unknown setting 'infonce_wait'; did you mean 'infonce_weight'?"),
        (["dmc-easy", "--grid", "infonce-weight=1,x"], "--grid infonce-weight must be a number between 0 and"),
        (["dmc-easy", "--grid", "batch-size=1", "--batch-size", "2"], "--batch-size has a value and is in the grid"),
        (["dmc-easy", "--local", "--address", "auto"], "--local runs without Ray; leave --address out"),
        (["dmc-easy", "--jobs-per-gpu", "2", "--gpus-per-job", "1"], "--jobs-per-gpu and --gpus-per-job say the same"),
        (["dmc-easy", "--jobs-per-gpu", "2", "--local"], "--jobs-per-gpu needs a GPU, and there is none"),
        (["dmc-easy", "--address", "127.0.0.1:9"], "no Ray cluster at '127.0.0.1:9'"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"dr-q: {message}")
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir()), "nothing may be left behind"


@pytest.mark.parametrize(
    "options", [{"gpus_per_job": 1.5}, {"gpus_per_job": -1.0}, {"cpus_per_job": 0.0}, {"retries": -1}]
)
def test_options_from_python_are_refused_by_their_python_names(options):
    (name,) = options
    with pytest.raises(ConfigError, match=f"^{name} must be "):
        SweepOptions(**options)


def test_options_of_jobs_are_those_of_sweep_options(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("dr_q.sweep.run_sweep", lambda spec, _, options, __: seen.append((spec, options)))
    given = ["--address", "a:1", "--gpus-per-job", "0.5", "--cpus-per-job", "3", "--retries", "1"]
    assert main(["sweep", "dmc/cheetah-run"]) == main(["sweep", "dmc/cheetah-run", "--seeds", "2", *given]) == 0
    assert seen == [
        (SweepSpec(("dmc/cheetah-run",), ("dr.q",), 10), SweepOptions()),
        (SweepSpec(("dmc/cheetah-run",), ("dr.q",), 2), SweepOptions("a:1", 0.5, 3.0, 1)),
    ]


def test_the_page_of_sweeps_has_the_declared_settings_of_jobs():
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text()
    assert page == with_tables(page), "run python -m dr_q.cli.settings_table docs/sweeps.md"
    for name in settings_of(SweepOptions):
        assert page.count(f"\n|`{name}`|") == 1


def test_without_ray_the_command_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    assert main(["sweep", "dmc-easy", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        "dr-q: a sweep needs ray, which is not installed: pip install 'dr-q[ray]', or run it without: --local\n"
    )


def test_two_sweeps_do_not_mix_in_one_folder(tmp_path):
    write_spec(CHEETAH, tmp_path / "sweep", 3)
    found = check_folder(CHEETAH, tmp_path / "sweep")
    assert found is not None
    assert (found["spec"], found["cpu_threads"], len(found["jobs"])) == (CHEETAH.to_json(), 3, 2)
    earlier = (tmp_path / "sweep" / "sweep.json").read_text().replace('"keep_checkpoints"', '"keep"')
    (tmp_path / "sweep" / "sweep.json").write_text(earlier)
    assert check_folder(CHEETAH, tmp_path / "sweep"), "a sweep of an earlier version is continued"
    other = SweepSpec(CHEETAH.tasks, CHEETAH.presets, 10, steps=5)
    with pytest.raises(RunFolderError, match="holds another sweep: steps the default, got 5; give the same"):
        check_folder(other, tmp_path / "sweep")
    changed = SweepSpec(CHEETAH.tasks, CHEETAH.presets, 10, changes={"reward_range": (-3.0, 3.0)})
    with pytest.raises(RunFolderError, match=r"changes none, got reward_range \[-3.0, 3.0\]"):
        check_folder(changed, tmp_path / "sweep")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(RunFolderError, match="is not empty and no sweep"):
        check_folder(CHEETAH, tmp_path / "other")


@pytest.mark.parametrize(
    ("nodes", "jobs", "options", "threads", "share"),
    [
        ([{"CPU": 16.0, "GPU": 1.0}], 6, {}, None, Share(12, 1)),
        ([{"CPU": 16.0, "GPU": 1.0}], 6, {"gpus_per_job": 0.5}, None, Share(8, 0.5)),
        ([{"CPU": 64.0, "GPU": 8.0}, {"CPU": 8.0}], 6, {}, None, Share(8, 1)),
        ([{"CPU": 16.0, "GPU": 1.0}], 6, {"gpus_per_job": 0.0}, None, Share(2, 0, 2)),
        ([{"CPU": 8.0}, {"CPU": 4.0}], 2, {}, None, Share(2, 0, 2)),
        ([{"CPU": 2.0}], 6, {}, None, Share(1, 0, 1)),
        ([{"CPU": 8.0}], 2, {"cpus_per_job": 3.0}, None, Share(3, 0, 3)),
        ([{"CPU": 2.0}], 2, {}, 4, Share(2, 0, 4)),  # continued on a smaller machine: the same threads
    ],
)
def test_each_job_gets_its_share(nodes, jobs, options, threads, share):
    assert share_of(nodes, jobs, 10, SweepOptions(**options), threads) == share


def test_a_share_that_no_node_has_is_refused():
    with pytest.raises(ConfigError, match="gpus_per_job 2 is more than any node has: 1; 0 trains on the CPU"):
        share_of([{"CPU": 4.0, "GPU": 1.0}], 2, 10, SweepOptions(gpus_per_job=2.0), None)
    with pytest.raises(ConfigError, match="cpus_per_job 5 is more than any node has: 4"):
        share_of([{"CPU": 4.0}], 2, 10, SweepOptions(cpus_per_job=5.0), None)


def made_run(job, status: str, steps: int, milliseconds: float | None = None) -> None:
    """A run's folder as `dr-q train` leaves it, as far as a driver reads it."""
    job.folder.mkdir(parents=True)
    info = {"status": status, "agent_steps": steps, "seeds": job.settings.seed_list, "versions": {}}
    (job.folder / "run.json").write_text(json.dumps({**info, "settings": job.settings.to_json()}))
    columns = "seed,agent_steps,env_frames,return_mean,return_std,length_mean,episodes"
    rows = [f"{seed},{steps},{steps},{100 + seed},0,1,1" for seed in job.settings.seed_list]
    (job.folder / "evals.csv").write_text("\n".join([columns, *rows, "0,999999,1"]))  # the last is half-written
    if milliseconds is not None:
        lines = [f"{seed},{steps},{milliseconds},1" for seed in job.settings.seed_list]
        (job.folder / "metrics.csv").write_text("\n".join(["seed,agent_steps,ms_act,ms_update", *lines]) + "\n")
    if status != "finished":
        (job.folder / "checkpoints" / str(steps)).mkdir(parents=True)


def test_a_sweep_sets_what_it_is_given_and_leaves_the_rest_to_runs():
    own = make_settings("dmc/cheetah-run")
    default = CHEETAH.settings("dmc/cheetah-run", Variant("dr.q"))
    assert [getattr(default, name) for name in RUN_OPTIONS] == [getattr(own, name) for name in RUN_OPTIONS]
    given: dict[str, Any] = dict(zip((*RUN_OPTIONS, *STOP_RULES), (10, 11, 12, 13, 14, 15, 16.0, 17), strict=True))
    spec = SweepSpec(("dmc/cheetah-run",), ("dr.q",), 2, **given)
    settings = spec.settings("dmc/cheetah-run", Variant("dr.q"))
    assert {name: getattr(settings, name) for name in given} == given
    execution = {"env_timeout": 5.0, "keep_best": False, "wandb": True, "wandb_tags": ("a", "b")}
    line = " ".join(sweep_arguments(spec, Path("out"), SweepOptions(), execution))
    assert "--steps 10 --eval-every 11 --eval-episodes 12 --checkpoint-every 13 --keep-checkpoints 14 --envs 15" in line
    assert "--stop-at-return 16.0 --patience 17" in line
    assert "--env-timeout 5.0 --no-keep-best --wandb --wandb-tags a b" in line
    again = parse(COMMANDS, sweep_arguments(spec, Path("out"), SweepOptions(), execution))
    assert again.execution == execution
    assert again.more_settings == {"noise_dims": 0, "stop_at_return": 16, "patience": 17}


def test_options_of_every_run_reach_the_jobs(monkeypatch):
    """Settings become those of the spec, and what does not change results goes to each job's execution."""
    seen: list = []
    monkeypatch.setattr("dr_q.sweep.run_sweep", lambda spec, _, __, execution: seen.append((spec, execution)))
    monkeypatch.setattr("dr_q.sweep.experiments.run_experiment", lambda plan, *_, **more: seen.append((plan, more)))
    monkeypatch.setattr("dr_q.sweep.tune.run_tune", lambda spec, *more: seen.append((spec, more[-1])))
    settings = ["--envs", "4", "--compute", "mixed"]
    execution = ["--envs-per-process", "2", "--env-timeout", "9", "--max-env-restarts", "3", "--no-keep-best"]
    words = [*settings, *execution, "--max-failed-checkpoints", "7"]
    stop = ["--stop-at-return", "-5.5", "--patience", "6"]
    assert main(["sweep", "dmc/cheetah-run", *words, *stop]) == 0
    (spec, given), expected = seen.pop(), SweepSpec(("dmc/cheetah-run",), ("dr.q",), 10, changes={"compute": "mixed"})
    assert spec == dataclasses.replace(expected, num_envs=4, stop_at_return=-5.5, patience=6)
    ours = {"envs_per_process": 2, "env_timeout": 9.0, "max_env_restarts": 3, "keep_best": False}
    assert given == {**ours, "max_failed_checkpoints": 7}
    with contextlib.suppress(AttributeError):  # a stand-in has no findings to print
        main(["experiment", "run", "dynamics", "--tasks", "dmc/cheetah-run", *words])
    plan, given = seen.pop()
    assert (plan.sweeps[0][1].num_envs, given["execution"]) == (4, {**ours, "max_failed_checkpoints": 7})
    with contextlib.suppress(AttributeError):
        main(["tune", "dmc/cheetah-run", "--search", "discount=0.9,0.99", *words])
    spec, given = seen.pop()
    assert (spec.num_envs, given) == (4, {**ours, "max_failed_checkpoints": 7})
    for command in (["experiment", "run", "dynamics"], ["tune", "dmc/cheetah-run"]):
        assert main([*command, *stop]) == 2, "they compare runs at the same step"


def test_a_job_that_its_own_rule_stopped_is_finished(tmp_path):
    """It is skipped, its results are collected, its hours are none; one that the time stopped is not."""
    spec = SweepSpec(("dmc/cheetah-run", "dmc/fish-swim"), ("dr.q",), 2, steps=9_000, stop_at_return=50.0)
    by_rule, by_time = spec.jobs(tmp_path)
    for job, rule in ((by_rule, "stop_at_return"), (by_time, "max_minutes")):
        made_run(job, "stopped", 5_000)
        record = json.loads((job.folder / "run.json").read_text())
        (job.folder / "run.json").write_text(json.dumps({**record, "stop_reason": "reached", "stopped_by": rule}))
    assert [progress_of(job).finished for job in (by_rule, by_time)] == [True, False]
    assert [Row(job, progress_of(job)).state for job in (by_rule, by_time)] == ["finished", "waiting"]
    write_spec(spec, tmp_path, 1)
    assert [row.state for row in read_rows(tmp_path)] == ["finished", "stopped"]
    assert {line.split(",")[0] for line in collect([by_rule, by_time], tmp_path).read_text().splitlines()[1:]} == {
        "dmc/cheetah-run"
    }
    assert [job.remaining for job in estimate(spec, tmp_path, SweepOptions()).jobs] == [0, 4_000]
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report")]) == 0
    runs = (tmp_path / "report" / "tables" / "runs.csv").read_text()
    assert "--stop-at-return 50.0,5000," in runs
    assert "(not finished)" in runs


def test_progress_comes_from_the_folder(tmp_path):
    job = CHEETAH.jobs(tmp_path)[0]
    assert progress_of(job) == ("new", 0, None, None, 0, "")
    made_run(job, "running", 5_000, 3.0)
    found = progress_of(job)
    assert (found.status, found.agent_steps, found.score, found.seed_steps_per_s) == ("running", 5_000, 104.5, 2_500)


@pytest.mark.parametrize("damage", ["{", "null", "[]", '{"settings": {}}'])
def test_a_damaged_run_json_is_that_jobs_failure_and_not_the_drivers(damage, tmp_path):
    first, second = SweepSpec(("dmc/cheetah-run", "dmc/fish-swim"), ("dr.q",), 2, steps=5_000).jobs(tmp_path)
    made_run(first, "running", 5_000)
    made_run(second, "finished", 5_000)
    (first.folder / "run.json").write_text(damage)
    assert progress_of(first).status == "damaged"
    assert len(collect([first, second], tmp_path).read_text().splitlines()) == 1 + 2
    ended = run_job(first, Share(1), "attempt")
    assert ended.status == "failed"
    assert "run.json is damaged" in ended.why


def test_a_sweep_of_an_earlier_version_continues(tmp_path):
    """Its runs have fewer settings, and drew uniformly by another way that gives the same draws."""
    job = SweepSpec(("dmc/cheetah-run",), ("uniform",), 2, steps=5_000).jobs(tmp_path)[0]
    made_run(job, "running", 5_000)
    file = job.folder / "run.json"
    info = json.loads(file.read_text())
    del info["settings"]["config"]["sampling"]
    info["settings"]["keep"] = info["settings"].pop("keep_checkpoints")
    file.write_text(json.dumps(info))
    begun = _begun(job)
    assert begun is not None
    assert begun.config.sampling == "faded-lap", "its checkpoint is of that"
    info["settings"]["config"]["batch_size"] = 7
    file.write_text(json.dumps(info))
    with pytest.raises(RunFolderError, match="has a run with another batch_size; move it away"):
        _begun(job)


def test_a_sweep_works_where_files_cannot_be_locked(tmp_path, monkeypatch):
    """As a run does: some network file systems have no locks."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with driver.only_driver(tmp_path / "sweep"):
        assert (tmp_path / "sweep").is_dir()


def test_a_damaged_file_of_a_finished_run_does_not_stop_the_others(tmp_path, capsys):
    """It is said when another job finishes, and raised at the end."""
    spec = SweepSpec(("dmc/cheetah-run", "dmc/fish-swim"), ("dr.q",), 2, steps=5_000)
    write_spec(spec, tmp_path, 1)
    jobs = spec.jobs(tmp_path)
    for job in jobs:
        made_run(job, "finished", 5_000)
    damaged = jobs[0].folder / "evals.csv"
    damaged.write_text(f"{damaged.read_text()},1,1,1,1\n0,5000,1,nan,1,1,1\n")
    rows = [Row(job, progress_of(job)) for job in jobs]
    rows[1].state = "running"
    nowhere = ProcessJobs(Share(1), print)
    sweep = driver._Sweep(  # pyright: ignore[reportPrivateUsage]
        rows, Share(1), SweepOptions(), Board(rows), tmp_path, nowhere
    )
    sweep._take(rows[1], Ended("finished"))
    said = capsys.readouterr().out
    assert rows[1].state == "finished"
    assert f"results.csv is not written: {damaged} is damaged in line 5: return_mean must be a finite number" in said
    assert said.endswith("dmc/fish-swim dr.q: finished\n")
    with pytest.raises(DamagedFileError, match="is damaged in line 5"):
        collect(jobs, tmp_path)


@pytest.mark.parametrize("line", ["0,NUL,1,1,1,1,1", "0,5000,1,NUL,1,1,1"])
def test_a_damaged_line_is_passed_over_for_progress_and_named_in_results(line, tmp_path):
    job = CHEETAH.jobs(tmp_path)[0]
    made_run(job, "finished", 5_000)
    evaluations = job.folder / "evals.csv"
    whole = evaluations.read_text().splitlines()[:-1]
    evaluations.write_text("\n".join([*whole, line]) + "\n")
    assert progress_of(job).score == 104.5
    with pytest.raises(DamagedFileError, match=r"line 12: .* number, got 'NUL'; fix or remove that line"):
        collect([job], tmp_path)
    torn = "\n".join([*whole[:-1], whole[-1].rpartition(",")[0]])
    evaluations.write_text(f"{torn}\n")
    with pytest.raises(DamagedFileError, match="is damaged in line 11"):
        collect([job], tmp_path)
    evaluations.write_text(torn)  # it is being written
    assert len(collect([job], tmp_path).read_text().splitlines()) == 1 + 9


def test_hours_come_from_this_sweep_then_from_what_is_given_then_from_the_table(tmp_path):
    own = "tests.envs.toys:drq-walk-v0"
    spec = SweepSpec(("dmc/cheetah-run", "dmc/humanoid-run", own), ("dr.q", "mr.q"), 10)
    jobs = spec.jobs(tmp_path)
    found = estimate(spec, tmp_path, SweepOptions())
    table = {(row.task, row.seeds): row.seed_steps_per_s for row in MEASURED}
    assert [planned.rate for planned in found.jobs[:4]] == [
        *(2 * [table["dmc/cheetah-run", 10]]),
        *(2 * [table["dmc/humanoid-run", 10]]),
    ]
    assert found.jobs[0].source == "one H200: dmc/cheetah-run, 10 seeds"
    assert (found.jobs[4].rate, found.jobs[4].source, found.jobs[4].hours) == (None, "unknown", None)
    assert found.jobs[0].hours == pytest.approx(500_000 * 10 / 2_737 / 3600)
    assert "2 jobs of unknown throughput are not counted below" in found.sentences()[1]
    assert all(planned.size is not None and planned.size > 2**30 for planned in found.jobs)

    on_cpu = estimate(spec, tmp_path, SweepOptions(gpus_per_job=0.0))
    assert {planned.source for planned in on_cpu.jobs} == {"unknown"}  # a GPU's speed says nothing of it

    write_spec(spec, tmp_path, None)
    made_run(jobs[0], "finished", 500_000, 3.0)
    made_run(jobs[1], "running", 100_000)
    found = estimate(spec, tmp_path, SweepOptions(), throughput=1_000.0)
    assert [(planned.rate, planned.source) for planned in found.jobs[1:5:3]] == [
        (2_500, "this sweep, same task"),
        (1_000, "--throughput"),
    ]
    assert found.jobs[2].source == "this sweep, dmc"
    assert (found.jobs[0].remaining, found.jobs[0].hours) == (0, 0.0)
    assert found.jobs[1].remaining == 400_000
    assert found.sentences()[0] == "6 jobs, 1 finished"


def test_fewer_seeds_are_expected_to_be_slower_and_more_not_to_be_faster():
    ant = nearest("gym/Ant-v4", 1)
    assert ant is not None
    assert ant == ("gym/Ant-v4", 10, 1_963.0)
    assert expected_rate(ant, 10) == expected_rate(ant, 20) == 1_963.0
    assert expected_rate(ant, 1) == pytest.approx(1_963 * 510 / 2_737)
    assert expected_rate(ant, 3) == pytest.approx(1_963 * (510 + 1_728) / 2 / 2_737)


def test_what_was_measured_most_like_a_task():
    assert nearest("dmc/humanoid-run", 10) == ("dmc/humanoid-run", 10, 2_350.0)
    assert nearest("dmc/walker-run", 1) == ("dmc/cheetah-run", 1, 510.0)
    assert nearest("dmc/humanoid-stand", 10) == ("dmc/humanoid-walk", 10, 2_063.0)  # the same robot, the slower
    assert nearest("dmc/dog-run", 10) == ("dmc/humanoid-walk", 10, 2_063.0)  # the same suite
    assert nearest("dmc/walker-run", 10) == ("dmc/cheetah-run", 10, 2_737.0)
    assert nearest("hbench/h1hand-walk-v0", 10) == ("hbench/h1-walk-v0", 10, 1_533.0)
    assert nearest("module:id", 10) is None


@pytest.mark.skipif(humanoid_bench.installed(), reason="HumanoidBench is installed: nothing is missing")
def test_memory_that_cannot_be_known_is_explained_once(tmp_path):
    found = estimate(SweepSpec(("hbench",), ("dr.q",), 10), tmp_path, SweepOptions())
    assert {planned.size for planned in found.jobs} == {None}
    assert len(found.missing) == 1
    assert "and 13 more: HumanoidBench cannot be imported" in found.missing[0]


def test_jobs_go_to_the_device_that_is_free_first():
    assert wall_hours([3.0, 1.0, 1.0, 2.0], 2) == 4.0
    assert wall_hours([3.0, 1.0, 1.0, 2.0], 1) == 7.0


def test_dry_run_prints_jobs_memory_and_hours(tmp_path, capsys):
    assert main(["sweep", "dmc/cheetah-run", "--presets", "dr.q", "mr.q", "--out", str(tmp_path), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:5] == ["dmc/cheetah-run", "dr.q", "10", "0", "500,000"]
    assert "GiB" in lines[1]
    assert "one H200: dmc/cheetah-run, 10 seeds" in lines[1]
    assert lines[-1] == "1.0 GPU hours in total; one job at a time on each: 1.0 h on 1 GPU, 0.5 h on 2 GPUs"
    assert not list(tmp_path.iterdir())


def test_the_table_shows_every_job_and_first_what_needs_looking_at(tmp_path, monkeypatch):
    spec = SweepSpec(("dmc-easy",), ("dr.q",), 10)
    jobs = spec.jobs(tmp_path)
    made_run(jobs[20], "running", 5_000, 3.0)
    rows = [Row(job, progress_of(job)) for job in jobs]
    rows[20].state = "running"
    rows[19].state, rows[19].note = "failed", "TaskError: no such thing"
    monkeypatch.setenv("LINES", "8")
    monkeypatch.setenv("COLUMNS", "150")
    board = Board(rows)
    table = board.table()
    assert table.row_count == 4
    cells = [list(column.cells) for column in table.columns]
    assert [column[1] for column in cells[2:]] == ["5,000 / 500,000", "104.5", "2,500", "0:33 h", "running"]
    assert cells[6][0] == "failed"
    with board._console.capture() as shown:
        board._console.print(table)
    assert "dmc/walker-walk" in shown.get()
    assert "…" not in shown.get()
    assert table.caption == "1 failed, 1 running, 19 waiting"


def test_without_a_terminal_an_evaluation_is_a_line(tmp_path, monkeypatch):
    (job,) = SweepSpec(("dmc/cheetah-run",), ("dr.q",), 10).jobs(tmp_path)
    row = Row(job, progress_of(job))
    board, said = Board([row]), []
    monkeypatch.setattr(board, "say", said.append)
    for steps in (4_000, 5_000, 6_000, 9_000, 10_000):
        evaluated = steps // 5_000 * 5_000
        row.progress = Progress("running", steps, float(evaluated) if evaluated else None, None, evaluated)
        board.show()
    assert [line.partition(": ")[2] for line in said] == [
        "step 5,000 of 500,000, return 5000.0",
        "step 10,000 of 500,000, return 10000.0",
    ]


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("gpus", [None, 0.0, 0.5, 2.0])
def test_the_slurm_script_passes_shellcheck(gpus, tmp_path):
    spec = SweepSpec(("dmc-easy",), ("dr.q",), 10, changes={"reward_range": (-3.0, 3.0)})
    script = tmp_path / "sweep.sh"
    script.write_text(slurm_script(spec, tmp_path / "with space's", SweepOptions(gpus_per_job=gpus)))
    checked = subprocess.run(["shellcheck", str(script)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    lines = [line for line in script.read_text().splitlines() if "--gpus-per-node" in line and line[:7] == "#SBATCH"]
    assert lines == {None: ["#SBATCH --gpus-per-node=1"], 0: [], 2: ["#SBATCH --gpus-per-node=2"]}.get(
        gpus, ["#SBATCH --gpus-per-node=1"]
    )


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({}, ["--array=0-20", "--cpus-per-task=12", "--mem=18G", "--gres=gpu:1"]),
        ({"jobs_per_gpu": 3}, ["--array=0-6", "--cpus-per-task=36", "--mem=54G", "--gres=gpu:1"]),
        ({"gpus_per_job": 0.0, "cpus_per_job": 4.0}, ["--array=0-20", "--cpus-per-task=4", "--mem=18G"]),
    ],
)
def test_the_array_passes_shellcheck_and_asks_for_what_its_jobs_need(options, lines, tmp_path):
    out, script, header = tmp_path / "with space's", tmp_path / "array.sh", tmp_path / "header"
    header.write_text("#!/bin/bash\nmodule load cuda\n#SBATCH --partition=gpu\n")
    spec = SweepSpec(("dmc-easy",), ("dr.q",), 10)
    elements = write_slurm_array(spec, out, SweepOptions(**options), script, SlurmOptions(header=header))
    checked = subprocess.run(["shellcheck", "-e", "SC1090", str(script)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    text = script.read_text()
    asked = [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]
    assert set(lines) <= set(asked)
    assert elements == int(lines[0].partition("-")[2].rpartition("-")[2]) + 1
    assert "--gres=gpu:1" in lines or not any("gres" in line for line in asked)
    assert text.index("--partition=gpu") < text.index("module load cuda") < text.index("set -euo pipefail")
    assert ("nvidia-cuda-mps-control -d" in text) == ("jobs_per_gpu" in options)
    assert len(list(out.rglob("*.job"))) == 21


def test_the_longest_job_is_the_first_of_the_array(tmp_path):
    spec = SweepSpec(("dmc/cheetah-run", "dmc-visual/walker-run", "gym/Ant-v4"), ("dr.q",), 5)
    write_slurm_array(spec, tmp_path / "out", SweepOptions(), tmp_path / "array.sh")
    jobs = [line.strip() for line in (tmp_path / "array.sh").read_text().splitlines() if line.strip().endswith(".job")]
    assert [Path(job).parent.name for job in jobs] == ["dmc-visual-walker-run", "gym-Ant-v4", "dmc-cheetah-run"]
    hours = [4.0, 4.0, 4.0, 4.0, 8.0, 8.0]
    assert wall_hours(hours, 2) == 16.0, "16 if the long ones start first; 20 in the given order"


def test_whole_nodes_have_all_their_memory_and_a_header(tmp_path):
    (tmp_path / "header").write_text("#SBATCH --account=mine\n")
    text = slurm_script(CHEETAH, tmp_path / "out", SweepOptions(), SlurmOptions(header=tmp_path / "header"))
    assert "\n#SBATCH --mem=0\n" in text
    assert "\n#SBATCH --account=mine\n" in text


def test_a_slurm_script_is_not_overwritten(tmp_path, capsys):
    script = tmp_path / "sweep.sh"
    script.write_text("mine")
    assert main(["sweep", "dmc-easy", "--slurm", str(script)]) == 2
    assert "is there already; remove it, or choose another name" in capsys.readouterr().err
    assert script.read_text() == "mine"


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (SweepInterrupted(15, Path("out")), 143, "dr-q: stopped by SIGTERM; the same command continues out\n"),
        (SweepInterrupted(0, Path("out")), 0, "dr-q: stopped: the time given is up; the same command continues out\n"),
        (SweepFailed(["a", "b"], Path("out/results.csv")), 1, "dr-q: a\ndr-q: b\n"),
    ],
)
def test_exit_codes(raised, code, line, monkeypatch, capsys):
    def end(*_):
        raise raised

    monkeypatch.setattr("dr_q.sweep.run_sweep", end)
    assert main(["sweep", "dmc-easy"]) == code
    assert capsys.readouterr().err == line


@pytest.mark.parametrize("mem", ["0", "0G", "-4G", "much", "", "4 G", "4GB"])
def test_memory_that_slurm_would_misunderstand_is_refused(mem, tmp_path, capsys):
    command = ["sweep", "gym/Pendulum-v1", "--slurm", "array", "--out", str(tmp_path / "x"), f"--mem={mem}"]
    assert main(command) == 2
    assert f"--mem must be a number above 0 with K, M, G or T, like 32G; got '{mem}'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
