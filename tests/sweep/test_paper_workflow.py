"""examples/paper: a preset file, a sweep, more seeds, a report with a reference, LaTeX tables; from one command."""

import csv
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import dr_q
from tests.training import tiny

ROOT = Path(__file__).parents[2]
WALK = "tests.sweep.toys:sweep-walk-v0"


@pytest.mark.slow
def test_the_workflow_of_a_paper(tmp_path):
    """With small networks on a toy; the reference is a file of three seeds."""
    pytest.importorskip("matplotlib", reason="a report needs dr-q[report]")
    out, reference, bin_folder = tmp_path / "paper", tmp_path / "reference.csv", tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "dr-q").write_text(f'#!/bin/bash\nexec {sys.executable} -m dr_q "$@"\n')
    (bin_folder / "dr-q").chmod(stat.S_IRWXU)
    rows = [(WALK, "theirs", seed, step, -100.0 - seed) for seed in range(3) for step in (0, 40, 80, 120)]
    with reference.open("w", newline="") as file:
        csv.writer(file).writerows([("task", "preset", "seed", "agent_steps", "return"), *rows])
    variables = {
        **os.environ,
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join((str(Path(dr_q.__file__).parents[1]), str(ROOT))),
        "TASKS": WALK,
        "SEEDS": "1",
        "MORE_SEEDS": "2",
    }
    keep = {name: value for name, value in tiny.RUN.items() if name not in ("quiet", "keep_checkpoints")}
    settings = {**tiny.SIZES, **keep, "steps": tiny.STEPS}
    flags = [word for name, x in settings.items() for word in (f"--{name.replace('_', '-')}", str(x))]
    command = ["bash", str(ROOT / "examples" / "paper" / "run.sh"), str(reference), str(out), *flags]
    ran = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    results = list(csv.DictReader((out / "runs" / "results.csv").read_text().splitlines()))
    assert {(row["preset"], row["seed"]) for row in results} == {
        (preset, seed) for preset in ("dr.q", "slow-fade") for seed in ("0", "1")
    }
    (slow_fade,) = out.glob("runs/*/slow-fade/run.json")
    record = json.loads(slow_fade.read_text())
    assert record["settings"]["config"]["fade_decay"] == 1e-5, "recorded in full"
    tables = [Path(line) for line in ran.stdout.splitlines() if line.endswith(".tex")]
    text = "".join(path.read_text() for path in tables)
    assert "slow-fade" in text
    assert "theirs" in text
    page = (out / "report" / "index.html").read_text()
    assert "slow-fade" in page


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_the_example_passes_shellcheck():
    script = str(ROOT / "examples" / "paper" / "run.sh")
    checked = subprocess.run(["shellcheck", script], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
