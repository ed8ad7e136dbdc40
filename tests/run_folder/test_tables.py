"""Tables that are being written, were being written when a run was killed, or are damaged."""

from pathlib import Path

import pytest

from dr_q.kit import DamagedFileError
from dr_q.run_folder import RunTables, evaluation_rows, last_evaluations, last_metrics, run_timing

METRICS = "seed,agent_steps,q,ms_act,ms_update\n0,1000,1,0.5,2\n1,1000,1,0.5,2\n0,2000,1,1.5,4\n"
EVALS = "seed,agent_steps,env_frames,return_mean,return_std,length_mean,episodes\n0,0,0,1.5,0,9,2\n"


@pytest.mark.parametrize("torn", ["", "1", "1,2000,1,1.2e-", "1,2000,1,1.5", "1,2000,1,1.5,400"])
def test_a_row_that_is_being_written_is_not_read(torn, tmp_path):
    (tmp_path / "metrics.csv").write_text(METRICS + torn)
    assert run_timing(tmp_path) == {"wait_for_actions": 1.0, "wait_for_dispatch": 3.0}
    assert last_metrics(tmp_path) == [{"seed": "0", "agent_steps": "2000", "q": "1", "ms_act": "1.5", "ms_update": "4"}]
    (tmp_path / "evals.csv").write_text(EVALS + torn)
    assert evaluation_rows(tmp_path) == last_evaluations(tmp_path)
    assert [row["return_mean"] for row in evaluation_rows(tmp_path)] == ["1.5"]


def test_a_row_that_was_being_written_is_dropped_before_others_follow(tmp_path):
    (tmp_path / "metrics.csv").write_text(METRICS + "1,2000,1,1.5,0.0")
    (tmp_path / "evals.csv").write_text(EVALS[:10])
    RunTables(tmp_path).drop_after(2000)
    assert (tmp_path / "metrics.csv").read_text() == METRICS
    assert not (tmp_path / "evals.csv").exists()


def test_only_the_end_of_a_long_file_is_looked_at_for_the_last_rows(tmp_path):
    rows = [f"{seed},{step},1,1,1\n" for step in range(0, 20_000_000, 1000) for seed in (0, 1)]
    (tmp_path / "metrics.csv").write_text(METRICS.splitlines(keepends=True)[0] + "".join(rows))
    assert [(row["seed"], row["agent_steps"]) for row in last_metrics(tmp_path)] == [
        ("0", "19999000"),
        ("1", "19999000"),
    ]


@pytest.mark.parametrize("row", ["0,2000,1,1.2e-,4\n", "0,2000,1,1.5\n", "0,2000,1,1.5,4,4\n", "0,,1,1.5,4\n"])
def test_a_damaged_row_of_metrics_is_named(row, tmp_path):
    (tmp_path / "metrics.csv").write_text(METRICS + row)
    with pytest.raises(DamagedFileError, match=r"metrics.csv is damaged in line 5: .*; fix or remove that line"):
        run_timing(tmp_path)
    assert last_metrics(tmp_path)


@pytest.mark.parametrize("text", ["agent_steps,x\n5,1\n", "seed,agent_steps,return_mea\n0,5,1\n", "seed\n0\n"])
def test_last_rows_have_what_their_readers_need(text, tmp_path):
    """A sweep's table and a resume read seeds, steps and returns of them."""
    (tmp_path / "evals.csv").write_text(text)
    (tmp_path / "metrics.csv").write_text(text.replace("return_mea", "agent_step").replace("seed,a", "sead,a"))
    assert last_evaluations(tmp_path) == last_metrics(tmp_path) == []


@pytest.mark.parametrize("row", ["0,,1,1.5,4\n", "0,\0\0,1,1.5,4\n", f"0,{'9' * 5000},1,1.5,4\n"])
def test_a_row_without_a_step_stops_a_resume(row, tmp_path):
    (tmp_path / "metrics.csv").write_text(METRICS + row)
    with pytest.raises(DamagedFileError, match=r"metrics.csv is damaged in line 5: .*; fix or remove that line"):
        RunTables(tmp_path).drop_after(2000)
    (tmp_path / "metrics.csv").write_text("seed,q\n0,1\n")
    with pytest.raises(DamagedFileError, match=r"metrics.csv is damaged in line 2"):
        RunTables(tmp_path).drop_after(2000)


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="Linux counts writes")
def test_rows_are_written_in_one_piece(tmp_path):
    """A reader of a long run's metrics.csv, pandas for instance, sees no half of a row."""

    def writes() -> int:
        return int(Path("/proc/self/io").read_text().split("syscw:")[1].split()[0])

    tables, columns = RunTables(tmp_path), ["seed", "agent_steps", *(f"x{i}" for i in range(100))]
    rows = [[seed, 1_000, *([0.123456] * 100)] for seed in range(100)]
    tables.append_metrics(columns, rows)
    before = writes()
    tables.append_metrics(columns, rows)
    assert writes() - before == 1
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 1 + 2 * 100
