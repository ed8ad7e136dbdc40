"""What sweeps and searches write, damaged: sweep.json, status.json, tune.json, the files of a job, Optuna's journal."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_q.cli import main
from dr_q.config import PRESETS, add_presets
from dr_q.run_folder import Evaluation, RunTables
from dr_q.sweep import SweepSpec, tune
from dr_q.sweep.job import Share, attempt_under_way, last_end, read_job, write_job
from dr_q.sweep.job_process import main as job_process
from dr_q.sweep.spec import Job, check_folder, jobs_of_folder, write_spec
from dr_q.sweep.watch import read_rows
from tests.fuzz.damage import damaged, damaged_json
from tests.fuzz.readers import bounded, check_reader, files_of

MINE = {"mine": {"batch_size": 512}}
WORDS = ["gym/Hopper-v4", "--search", "infonce-weight=0.01..1:log", "--trials", "1"]


def made_run(job: Job, status: str, steps: int) -> None:
    """A run's folder, as far as a sweep reads it."""
    job.folder.mkdir(parents=True)
    info = {"status": status, "agent_steps": steps, "seeds": job.settings.seed_list, "versions": {}}
    (job.folder / "run.json").write_text(json.dumps({**info, "settings": job.settings.to_json()}))
    RunTables(job.folder).append_evaluations(
        Evaluation(seed, steps, steps, 100.0, 0.0, 1.0, 1) for seed in job.settings.seed_list
    )


@pytest.fixture(autouse=True)
def presets() -> Iterator[None]:
    before = dict(PRESETS)
    add_presets(MINE)
    yield
    PRESETS.clear()
    PRESETS.update(before)


@pytest.fixture
def spec() -> SweepSpec:
    changes = {"reward_range": (-3.0, 3.0)}
    grid = {"discount": (0.9, 0.99)}
    return SweepSpec(("dmc/fish-swim", "gym/Ant-v4"), ("mr.q", "mine"), 2, steps=40, grid=grid, changes=changes)


@pytest.fixture
def sweep(spec, tmp_path) -> Path:
    out = tmp_path / "sweep"
    write_spec(spec, out, 1)
    done, running, failed, *_ = spec.jobs(out)
    made_run(done, "finished", 40)
    made_run(running, "running", 20)
    write_job(failed, Share(1.0), out=str(out))
    failed.ended.write_text(json.dumps({"status": "failed", "why": "no such simulator", "attempt": "a"}))
    failed.lock.write_text(json.dumps({"host": "here", "pid": 4_000_000, "attempt": "a"}))
    states = [{"folder": str(failed.folder.relative_to(out)), "state": "failed", "note": "no such simulator"}]
    (out / "status.json").write_text(json.dumps({"state": "running", "jobs": states}))
    return out


def check_file(file: Path, folder: Path, readers: list[Callable[[Path], Any]], examples: int) -> None:
    whole, before = file.read_bytes(), files_of(folder)

    @bounded(max_examples=examples)
    @given(data=st.one_of(damaged_json(whole.decode()), damaged(whole)))
    def check(data: bytes) -> None:
        file.write_bytes(data)
        for read in readers:
            check_reader(read, folder)
        assert files_of(folder) == {**before, str(file.relative_to(folder)): len(data)}

    check()


def test_sweep_json(spec, sweep, capsys):
    def watched(out: Path) -> None:
        assert main(["watch", str(out)]) in (0, 1)
        assert capsys.readouterr().err.count("\n") <= 1

    def below(out: Path) -> None:
        """Jobs are written where the file says: nowhere but in the sweep's folder."""
        for job in jobs_of_folder(out):
            assert job.folder.resolve().is_relative_to(out.resolve())
            assert job.folder.resolve() != out.resolve()

    readers = [below, read_rows, lambda out: check_folder(spec, out), spec.jobs, watched]
    check_file(sweep / "sweep.json", sweep, readers, 120)


def test_status_json(sweep):
    check_file(sweep / "status.json", sweep, [read_rows], 60)


def test_files_of_a_job(spec, sweep):
    job = spec.jobs(sweep)[2]
    for file in (job.ended, job.lock):
        check_file(file, sweep, [lambda _: (last_end(job, "a"), attempt_under_way(job)), read_rows], 30)
    file = job.folder.with_name(f"{job.folder.name}.job")

    def read(_: Path) -> None:
        found = read_job(file)[0]
        assert isinstance(found, Job)

    check_file(file, sweep, [read], 60)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r["spec"].update(definitions=None), "spec.definitions must be names and values, got None"),
        (lambda r: r["spec"].update(definitions={"mine": 3}), "spec.definitions must be names and values for each"),
        (lambda r: r["spec"].pop("presets"), "it has no spec.presets"),
        (lambda r: r["spec"].update(tasks="gym"), "spec.tasks must be a list, got 'gym'"),
        (lambda r: r["spec"].update(tasks=[3]), "spec.tasks must be a list of texts, got [3]"),
        (lambda r: r["spec"].update(grid={"discount": 3}), "spec.grid.discount must be a list, got 3"),
        (lambda r: r["spec"].update(steps="many"), "spec.steps must be a whole number of at least 0, got 'many'"),
        (lambda r: r.update(cpu_threads=0), "cpu_threads must be a whole number between 1 and 1000000000, got 0"),
        (lambda r: r.update(jobs=[3]), "jobs must be lists of folder, task, preset, values, first_seed, seeds, got 3"),
        (lambda r: r["jobs"][0].__setitem__(0, "../x"), "jobs.folder must be a path below the sweep's folder, got"),
        (lambda r: r["jobs"][0].__setitem__(0, "/x"), "jobs.folder must be a path below the sweep's folder, got '/x'"),
        (lambda r: r["jobs"][0].__setitem__(5, 0), "jobs.seeds must be a whole number of at least 1, got 0"),
        (lambda r: r["jobs"][0].__setitem__(2, "nope"), "unknown preset 'nope'"),
        (lambda r: r["jobs"][0].__setitem__(3, {"discount": 3}), "discount must be a number between 0 and 1, got 3"),
    ],
)
def test_a_field_of_sweep_json_is_named_with_its_value(change, said, sweep, capsys):
    file = sweep / "sweep.json"
    record = json.loads(file.read_text())
    change(record)
    file.write_text(json.dumps(record))
    assert main(["watch", str(sweep)]) == 1
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert error.startswith(f"dr-q: {file} ")
    assert said in error
    assert error.endswith("; choose another --out, or take it from a backup\n")


def test_a_job_that_cannot_be_read_is_said_in_one_line(spec, sweep, capsys):
    file = sweep / "x.job"
    for text in ("{", "{}", json.dumps({"job": {}, "share": {}})):
        file.write_text(text)
        assert job_process([str(file)]) == 1
        out, error = capsys.readouterr()
        assert (out, error.count("\n")) == ("", 1)
        assert error.startswith(f"dr-q: {file} is damaged: ")


def test_tune_json(tmp_path):
    search = {"infonce_weight": tune.Range(0.01, 1.0, log=True)}
    spec = SweepSpec(("gym/Hopper-v4",), ("dr.q",), 1)
    tune._write_out(spec, search, tmp_path)  # pyright: ignore[reportPrivateUsage]

    def opened(out: Path) -> None:
        tune._check_out(spec, search, out)  # pyright: ignore[reportPrivateUsage]

    opened(tmp_path)
    check_file(tmp_path / "tune.json", tmp_path, [opened], 60)


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "it has no spec"), ("[]", "it has no spec"), ('{"spec": 3}', "spec must be names and values, got 3")],
)
def test_a_search_that_cannot_be_read_is_said_in_one_line(text, said, tmp_path, capsys):
    pytest.importorskip("optuna")
    (tmp_path / "tune.json").write_text(text)
    assert main(["tune", *WORDS, "--out", str(tmp_path)]) == 1
    out, error = capsys.readouterr()
    file = tmp_path / "tune.json"
    assert error == f"dr-q: {file} is damaged: {said}; choose another --out, or take it from a backup\n"
    assert (out, files_of(tmp_path)) == ("", {"tune.json": len(text)})


def test_a_journal_of_optuna_that_cannot_be_read_is_said_in_one_line(tmp_path):
    optuna = pytest.importorskip("optuna")
    tuning = tune.TuneOptions()
    study = tune._open_study(optuna, tmp_path, tuning)  # pyright: ignore[reportPrivateUsage]
    for _ in range(3):
        study.tell(study.ask({"x": optuna.distributions.FloatDistribution(0, 1)}), 1.0)
    whole = (tmp_path / "study.log").read_bytes()

    @bounded(max_examples=40)
    @given(data=damaged(whole))
    def check(data: bytes) -> None:
        (tmp_path / "study.log").write_bytes(data)
        check_reader(lambda out: tune._open_study(optuna, out, tuning), tmp_path)  # pyright: ignore[reportPrivateUsage]

    check()
