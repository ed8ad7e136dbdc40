"""Files that a kill left half-written are removed by the next resume; a checkpoint's files are all counted."""

import json

import dr_q
from dr_q.cli import main
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
