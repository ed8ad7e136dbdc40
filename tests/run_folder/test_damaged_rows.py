"""What of a run's tables is refused."""

import json

import pytest

from dr_q.cli import main
from dr_q.kit import DamagedFileError
from dr_q.run_folder import evaluation_rows

HEADER = "seed,agent_steps,env_frames,return_mean,return_std,length_mean,episodes"


@pytest.mark.parametrize(
    ("line", "damage"),
    [
        ("0,5000,10000,nan,1,1,1", "return_mean must be a finite number, got 'nan'"),
        ("0,5000,10000,-inf,1,1,1", "return_mean must be a finite number, got '-inf'"),
        ("0,5000,10000,,1,1,1", "return_mean must be a finite number, got ''"),
        ("0,5e3,10000,1,1,1,1", "agent_steps must be a whole number, got '5e3'"),
        ("x,5000,10000,1,1,1,1", "seed must be a whole number, got 'x'"),
        (f"0,{'9' * 400},10000,1,1,1,1", f"agent_steps must be a whole number, got '{'9' * 199}... (402 characters)"),
        ("0,5000,10000,1,1,1", "it has too many or too few values"),
        ("0,5000,10000,1,1,1,1,1", "it has too many or too few values"),
    ],
)
def test_a_damaged_evaluation_is_refused_by_line_and_field(line, damage, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"settings": {"task": "dmc/walker-run", "preset": "dr.q"}}))
    (run / "evals.csv").write_text(f"{HEADER}\n0,0,0,1,1,1,1\n{line}\n")
    message = f"{run / 'evals.csv'} is damaged in line 3: {damage}; fix or remove that line"
    with pytest.raises(DamagedFileError) as error:
        evaluation_rows(run)
    assert str(error.value) == message
    assert main(["report", str(run), "--out", str(tmp_path / "report")]) == 1
    assert capsys.readouterr().err == f"dr-q: {message}\n"
