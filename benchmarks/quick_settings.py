"""What settings of the preset `quick` do on a laptop: returns and seconds of runs on six easy tasks, one core each.

    python benchmarks/quick_settings.py run --seeds 0 1 --out quick-settings        # about 30 minutes for each seed
    python benchmarks/quick_settings.py table --out quick-settings                  # evaluations.csv and a table

Runs are made one after the other, each on one core and with one thread of XLA (`NPROC=1`): at the sizes of `quick`, two
runs next to each other then do not disturb each other. `run` continues where it was stopped.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

TASKS = {
    "gym/Pendulum-v1": 6_000,
    "gym/InvertedPendulum-v4": 8_000,
    "dmc/cartpole-swingup": 14_000,
    "dmc/walker-stand": 8_000,
    "dmc/reacher-easy": 10_000,
    "dmc/ball_in_cup-catch": 8_000,
}
"""And agent steps of a run."""
SETTINGS = {
    "quick": {},
    "encoder_updates 125": {"encoder_updates": 125},
    "encoder_updates 50": {"encoder_updates": 50},
    "encoder_updates 125, batch_size 64": {"encoder_updates": 125, "batch_size": 64},
}
COLUMNS = ("settings", "task", "seed", "agent_steps", "return", "seconds_of_run")


def folder_of(out: Path, name: str, task: str, seed: int) -> Path:
    """Of one run."""
    return out / name.replace(", ", "-").replace(" ", "_") / task.replace("/", "-") / f"seed{seed}"


def run(out: Path, seeds: list[int], core: int) -> None:
    """Make the runs that are missing."""
    for seed in seeds:
        for task, steps in TASKS.items():
            for name, changes in SETTINGS.items():
                folder = folder_of(out, name, task, seed)
                if folder.exists():
                    continue
                options = {"seed": seed, "steps": steps, "eval_every": 1_000, "eval_episodes": 5, **changes}
                words = [word for key, x in options.items() for word in (f"--{key.replace('_', '-')}", str(x))]
                command = [sys.executable, "-m", "dr_q", "train", task, "--preset", "quick", "--no-keep-best", *words]
                print(task, name, f"seed {seed}", flush=True)
                subprocess.run(
                    ["taskset", "-c", str(core), *command, "--checkpoint-every", str(steps), "--out", str(folder)],
                    env={**os.environ, "NPROC": "1"}, check=True, stdout=subprocess.DEVNULL,
                )  # fmt: skip


def rows(out: Path) -> list[tuple[str, str, int, int, float, float]]:
    """Every evaluation of every run."""
    found = []
    for name in SETTINGS:
        for task in TASKS:
            for folder in sorted(folder_of(out, name, task, 0).parent.glob("seed*")):
                seconds = json.loads((folder / "run.json").read_text())["seconds"]
                with (folder / "evals.csv").open() as file:
                    for row in csv.DictReader(file):
                        numbers = (int(row["seed"]), int(row["agent_steps"]), float(row["return_mean"]), seconds)
                        found.append((name, task, *numbers))
    return found


def table(evaluations: list[tuple[str, str, int, int, float, float]]) -> str:
    """Mean return of the second half of each run's evaluations, and its seconds; means over seeds."""
    lines = ["| task | " + " | ".join(SETTINGS) + " |", "|---" * (1 + len(SETTINGS)) + "|"]
    for task, steps in TASKS.items():
        cells = []
        for name in SETTINGS:
            own = [row for row in evaluations if row[:2] == (name, task)]
            late = [row[4] for row in own if row[3] > steps / 2]
            seconds = {row[2]: row[5] for row in own}
            cells.append(f"{statistics.mean(late):.0f}, {statistics.mean(seconds.values()):.0f} s" if late else "")
        lines.append(f"| `{task}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run, or make the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--core", type=int, default=0, help="the core that runs are made on")
    options = parser.parse_args()
    if options.what == "run":
        run(options.out, options.seeds, options.core)
        return
    evaluations = rows(options.out)
    with (options.out / "evaluations.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *evaluations])
    print(table(evaluations))


if __name__ == "__main__":
    main()
