"""Files that a kill left half-written are removed by the next resume; a checkpoint's files are all counted."""

import json
import os
import shutil

import pytest

import dr_q
from dr_q.cli import main
from dr_q.diagnostics import doctor
from dr_q.run_folder import tidy_policies
from tests.envs import toys
from tests.training import tiny

LEFT = ("policy/.tmpAb3xZ9", "policy/seed0.safetensors.part", "policy/best/.tmpQQQQQQ", "policy/best/policy.json.part")


def test_only_what_is_half_written_is_removed(tmp_path):
    (tmp_path / "policy" / "best").mkdir(parents=True)
    kept = ("policy/policy.json", "policy/seed0.safetensors", "policy/best/seed0.safetensors", "policy/best/mine.txt")
    for name in (*LEFT, *kept):
        (tmp_path / name).touch()
    tidy_policies(tmp_path)
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert files == sorted(kept)
    tidy_policies(tmp_path / "nowhere")  # a run that was killed before its first evaluation has none


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """A finished run."""
    run = tmp_path_factory.mktemp("walked") / "run"
    dr_q.train(toys.Walk, steps=tiny.STEPS, out=run, **{**tiny.SIZES, **tiny.RUN, "log_every": 15})
    return run


def test_a_resume_removes_what_a_kill_left_and_doctor_counts_every_file(tmp_path, capsys):
    run = tmp_path / "run"
    settings = {**tiny.SIZES, **tiny.RUN}
    dr_q.train(toys.Walk, steps=tiny.STEPS, out=run, **settings)
    stored = json.loads((run / "checkpoints" / str(tiny.STEPS) / "checkpoint.json").read_text())
    assert "best.safetensors" in stored["sha256"]
    assert main(["doctor", str(run)]) == 0
    line = f"ok  checkpoint of step {tiny.STEPS}: {len(stored['sha256'])} files are as they were written (SHA-256)"
    assert line in capsys.readouterr().out.splitlines()
    for name in LEFT:
        (run / name).write_bytes(b"half")
    dr_q.train(toys.Walk, resume=run, quiet=True)
    left = [path.name for path in run.rglob("*") if path.name.startswith(".") or path.suffix == ".part"]
    assert left == []
    assert dr_q.load(run).agent_steps == tiny.STEPS


@pytest.mark.parametrize(
    "name", ["run.json", "evals.csv", "metrics.csv", "policy/policy.json", "policy/seed0.safetensors", "CHECKPOINT"]
)
def test_a_pipe_in_place_of_a_file_is_named_and_never_waited_for(name, walked, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(walked, run)
    path = run / name.replace("CHECKPOINT", f"checkpoints/{tiny.STEPS}/agents.safetensors")
    path.unlink()
    os.mkfifo(path)
    assert main(["doctor", str(run)]) == 1
    assert f"{path} is not a regular file" in capsys.readouterr().out


def test_a_file_that_may_not_be_read_does_not_keep_the_others_from_being_looked_at(walked, monkeypatch, capsys):
    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied", "evals.csv")

    monkeypatch.setattr(doctor, "evaluation_rows", refuse)
    assert main(["doctor", str(walked)]) == 1
    said = capsys.readouterr().out
    assert "--  evaluations: evals.csv cannot be read: Permission denied" in said
    assert f"ok  checkpoint of step {tiny.STEPS}" in said


def test_rows_of_metrics_that_are_cut_are_removed_with_a_line(walked, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(walked, run)
    lines = (run / "metrics.csv").read_text().splitlines()
    assert len(lines) > 4
    (run / "metrics.csv").write_text("\n".join([*lines[:2], "0,15,x", *lines[3:]]) + "\n")
    dr_q.train(toys.Walk, resume=run)
    assert f"{run / 'metrics.csv'} had too many or too few values in line 3: removed" in capsys.readouterr().out
    assert (run / "metrics.csv").read_text().splitlines()[:3] == [*lines[:2], lines[3]]
