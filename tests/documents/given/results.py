"""Write what docs/report.md compares: runs/a and runs/b of this project, and files of results of others.

    python given/results.py PRESET

PRESET is the preset that runs/b gets. theirs.csv is in our format, the others in that of the authors' repository; their
scores are ours with noise.
"""

import csv
import json
import shutil
import sys
from pathlib import Path

import numpy as np

from dr_q.report import read_results, write_results

HERE = Path(__file__).resolve().parents[3] / "results" / "breadth"
TASKS = ("dmc-walker-walk", "dmc-cartpole-swingup")
FRAMES = 2
"""Frames of an agent step of these tasks."""

if __name__ == "__main__":
    for task in TASKS:
        shutil.copytree(HERE / task, Path("runs/a") / task)
        other = Path("runs/b") / task
        shutil.copytree(HERE / task, other)
        record = json.loads((other / "run.json").read_text())
        record["settings"]["preset"] = sys.argv[1]
        (other / "run.json").write_text(json.dumps(record))
    noise = np.random.default_rng(0)
    ours = read_results(["runs/a"])
    write_results([result._replace(preset="theirs") for result in ours], Path("theirs.csv"))
    folder = Path("DR.Q/results")
    folder.mkdir(parents=True)
    for name in ("drq", "fog"):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(("env_name", "seed", "env_step", "value"))
            for result in ours:
                task = result.task.partition("/")[2]
                table.writerow((task, result.seed, FRAMES * result.agent_steps, result.score + noise.normal(0, 20)))
    shutil.copy(folder / "drq.csv", "drq.csv")
