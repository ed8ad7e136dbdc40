"""Options of every run in a real sweep without Ray: several environments for each seed, and a rule that stops jobs."""

import json
from pathlib import Path

import pytest

from dr_q.cli import main
from dr_q.report import read_results
from dr_q.sweep.spec import jobs_of_folder
from dr_q.sweep.watch import read_rows
from tests.training import tiny

AIM, WALK = (f"tests.sweep.toys:sweep-{name}-v0" for name in ("aim", "walk"))


@pytest.mark.slow
def test_a_job_stopped_by_its_return_is_finished_next_to_one_that_goes_on(tmp_path, monkeypatch, capsys):
    """Returns of Aim reach 20; those of Walk are never above 0."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=":")
    out, flags = tmp_path / "sweep", tiny.flags(steps=240, checkpoint_every=240, actor_learning_rate=0.01)
    command = ["sweep", AIM, WALK, "--seeds", "2", "--local", "--cpus-per-job", "1", "--out", str(out), *flags]
    command += ["--stop-at-return", "17", "--envs", "2", "--envs-per-process", "2", "--no-keep-best"]
    assert main(command) == 0
    said = capsys.readouterr().out
    records = {job.task: json.loads((job.folder / "run.json").read_text()) for job in jobs_of_folder(out)}
    aim, walk = records[AIM], records[WALK]
    assert (aim["status"], aim["stopped_by"], aim["settings"]["num_envs"]) == ("stopped", "stop_at_return", 2)
    assert (walk["status"], walk["agent_steps"]) == ("finished", 240)
    assert 40 < aim["agent_steps"] < 240
    assert f"{AIM} dr.q: finished at step {aim['agent_steps']}, stopped by stop_at_return" in said
    assert not any((job.folder / "policy" / "best").exists() for job in jobs_of_folder(out))
    last = {result.task: result.agent_steps for result in read_results([out / "results.csv"])}
    assert last == {AIM: aim["agent_steps"], WALK: 240}
    assert [row.state for row in read_rows(out)] == ["finished", "finished"]
    assert main(command) == 0
    assert "2 jobs, 2 finished before" in capsys.readouterr().out
    later = [*command[:4], "3", *command[5:]]  # another seed in a job of its own, which stops by itself
    assert main(later) == 0
    assert "4 jobs, 2 finished before" in capsys.readouterr().out
    assert main(["report", str(out), "--out", str(tmp_path / "report")]) == 0, "though jobs ended at different steps"
    assert "(not finished)" not in (tmp_path / "report" / "tables" / "runs.csv").read_text()
