"""`dr-q plot --metric`: columns of metrics.csv, and success, drawn as returns are."""

import csv
from pathlib import Path

import pytest

from dr_q.cli import main
from dr_q.kit import ConfigError, DamagedFileError
from dr_q.report.curves import with_metric
from dr_q.run_folder import metric_curves, read_run

RUNS = Path(__file__).parents[2] / "results" / "camera_and_joints"


@pytest.fixture
def run(tmp_path) -> Path:
    """Two seeds that learn from step 20 on; the second has had successes."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text('{"settings": {"task": "gym/Pendulum-v1", "preset": "dr.q"}}')
    evals = ["seed,agent_steps,return_mean,success_mean", "0,10,-5,", "1,10,-6,0.5", "0,20,-4,0", "1,20,-3,1"]
    (folder / "evals.csv").write_text("\n".join(evals) + "\n")
    metrics = ["seed,agent_steps,q_mean", "0,10,", "1,10,", "0,20,1.5", "1,20,2.5", "0,30,3", "1,3"]
    (folder / "metrics.csv").write_text("\n".join(metrics))  # the last line is being written
    return folder


def test_values_are_those_of_the_files_where_there_are_any(run):
    assert metric_curves(run, "q_mean") == {0: [(20, 1.5), (30, 3.0)], 1: [(20, 2.5)]}
    assert metric_curves(run, "success") == {0: [(20, 0.0)], 1: [(10, 0.5), (20, 1.0)]}
    assert metric_curves(run, "seed") is None
    (found,) = with_metric([read_run(run)], "q_mean")
    assert found.evaluations == metric_curves(run, "q_mean")


def test_a_recorded_run_has_its_column():
    with (RUNS / "joints" / "metrics.csv").open() as file:
        expected = [float(row["q_mean"]) for row in csv.DictReader(file) if row["seed"] == "1" and row["q_mean"]]
    curves = metric_curves(RUNS / "joints", "q_mean")
    assert curves is not None
    assert [value for _, value in curves[1]] == expected
    assert len(expected) == 40, "50 rows, of which 10 are of random steps"


def test_unknown_metrics_and_damaged_rows_are_one_line(run):
    with pytest.raises(ConfigError, match=r"has no metric 'q_men'; did you mean 'q_mean'\? it has return, q_mean$"):
        with_metric([read_run(run)], "q_men")
    with (run / "metrics.csv").open("a") as file:
        file.write("0,x\n")
    with pytest.raises(DamagedFileError, match=r"metrics\.csv is damaged in line 7: "):
        metric_curves(run, "q_mean")


def test_the_command_draws_runs_and_refuses_files_of_returns(run, tmp_path, capsys):
    out = tmp_path / "q.png"
    assert main(["plot", str(RUNS), "--metric", "encoder_loss", "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    evaluations = RUNS.parent / "evaluations.csv"
    assert main(["plot", str(evaluations), "--metric", "q_mean", "--out", str(out)]) == 2
    assert "has only returns, and --metric q_mean needs folders of runs; leave it out" in capsys.readouterr().err
    assert main(["plot", str(run), "--metric", "q_mean", "--reference", str(evaluations)]) == 2
    (run / "metrics.csv").write_text("seed,agent_steps,q_mean\n0,10,\n")
    assert main(["plot", str(run), "--metric", "q_mean", "--out", str(out)]) == 2
    assert "no run has a value of q_mean yet" in capsys.readouterr().err
