"""Wall time to a fixed return on a laptop: dr-q's `quick` next to Stable-Baselines3's SAC and SBX's SAC and CrossQ.

    python -m venv others && others/bin/pip install stable-baselines3 sbx-rl dm_control "gymnasium[mujoco]" "mujoco<4"
    python benchmarks/laptop.py run --others others/bin/python --out laptop    # hours; continues where it was stopped
    python benchmarks/laptop.py table --out laptop

Runs alternate: for each seed and task every algorithm, one after the other, on the same cores, with the default
settings of its library. A run ends at the first evaluation (every 1,000 agent steps, five episodes) that reaches the
task's target, at its last step, or after five minutes; then it counts as not reached. Seconds are those of the whole
process, from its start to its end: imports, compiling and evaluations are in them, as a user waits for them too.

CartPole-v1 has discrete actions, which SAC and CrossQ do not have: only dr-q runs it. Other settings of `quick` are
compared in the same way (`--algorithms quick before half`; see `OURS`).
"""

import argparse
import contextlib
import csv
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

TASKS = {
    "gym/Pendulum-v1": (-200.0, 10_000),
    "gym/InvertedPendulum-v4": (950.0, 15_000),
    "dmc/cartpole-swingup": (690.0, 20_000),
    "dmc/walker-stand": (790.0, 20_000),
    "dmc/reacher-easy": (780.0, 20_000),
    "dmc/ball_in_cup-catch": (780.0, 20_000),
    "gym/CartPole-v1": (475.0, 15_000),
}
"""Return to reach, and agent steps at the most. Of DeepMind Control 80% of DR.Q's published final score; of
InvertedPendulum and CartPole the threshold that Gymnasium registers. They were set before the runs."""
DISCRETE = ("gym/CartPole-v1",)
LIMIT = 300
"""Seconds of a run at the most."""
_RATES = ("encoder_learning_rate", "actor_learning_rate", "critic_learning_rate")
_SLOW = {"target_period": 250, "encoder_updates": 125}
OURS = {
    "quick": {},
    "before": {"batch_size": 128, "target_period": 250, "encoder_updates": 250, **dict.fromkeys(_RATES, 3e-4)},
    "half": {**_SLOW, **dict.fromkeys(_RATES, 3e-4)},
    "half-rate-6e-4": {**_SLOW, **dict.fromkeys(_RATES, 6e-4)},
    "half-rate-1e-3": {**_SLOW, **dict.fromkeys(_RATES, 1e-3)},
    "rate-3e-4": dict.fromkeys(_RATES, 3e-4),
    "rate-6e-4": dict.fromkeys(_RATES, 6e-4),
    "rate-1e-3": dict.fromkeys(_RATES, 1e-3),
}
"""The preset `quick`, what it was before, and what else was tried for it."""
OTHERS = ("sb3-sac", "sbx-sac", "sbx-crossq")
NAMES = {
    "quick": "dr-q `quick`",
    "before": "`quick` before",
    "half": "half the encoder updates and batch",
    "half-rate-6e-4": "half, learning rates 6e-4",
    "half-rate-1e-3": "half, learning rates 1e-3",
    "rate-3e-4": "half, targets twice as often",
    "rate-6e-4": "the same, learning rates 6e-4",
    "rate-1e-3": "the same, learning rates 1e-3",
    "sb3-sac": "SB3 SAC",
    "sbx-sac": "SBX SAC",
    "sbx-crossq": "SBX CrossQ",
}
COLUMNS = ("algorithm", "task", "seed", "seconds", "agent_steps", "return", "target", "reached")


def command_of(name: str, task: str, seed: int, folder: Path, others: Path) -> list[str]:
    """What makes one run."""
    target, steps = TASKS[task]
    if name in OTHERS:
        script = Path(__file__).with_name("laptop_baselines.py")
        given = [
            "--seed",
            str(seed),
            "--steps",
            str(steps),
            "--target",
            str(target),
            "--out",
            str(folder / "evals.csv"),
        ]
        return [str(others), str(script), name, task, *given]
    options = {
        "seed": seed, "steps": steps, "stop_at_return": target, "eval_every": 1_000, "eval_episodes": 5,
        "checkpoint_every": steps, "out": folder / "run", **OURS[name],
    }  # fmt: skip
    words = [word for key, x in options.items() for word in (f"--{key.replace('_', '-')}", str(x))]
    return [sys.executable, "-m", "dr_q", "train", task, "--preset", "quick", "--no-keep-best", *words]


def run(out: Path, others: Path, seeds: list[int], cores: str, names: list[str]) -> None:
    """Make the runs that are missing, and write each to `runs.csv`."""
    threads = str(len(cores.split(",")))
    table = out / "runs.csv"
    out.mkdir(parents=True, exist_ok=True)
    if not table.exists():
        table.write_text(",".join(COLUMNS) + "\n")
    with table.open() as file:
        done = {(row["algorithm"], row["task"], int(row["seed"])) for row in csv.DictReader(file)}
    for seed in seeds:
        for task, (target, _) in TASKS.items():
            for name in names:
                if (name, task, seed) in done or (name in OTHERS and task in DISCRETE):
                    continue
                folder = out / "runs" / f"{name}-{task.replace('/', '-')}-{seed}-{os.getpid()}"
                folder.mkdir(parents=True)
                print(task, f"seed {seed}", name, end=" ", flush=True)
                before = time.monotonic()
                with (folder / "log").open("w") as log, contextlib.suppress(subprocess.TimeoutExpired):
                    subprocess.run(
                        ["taskset", "-c", cores, *command_of(name, task, seed, folder, others)],
                        env={**os.environ, "NPROC": threads, "OMP_NUM_THREADS": threads, "JAX_PLATFORMS": "cpu"},
                        check=True, stdout=log, stderr=log, timeout=LIMIT,
                    )  # fmt: skip
                seconds = time.monotonic() - before
                (evals,) = folder.glob("**/evals.csv")
                with evals.open() as file:
                    *_, last = csv.DictReader(file)
                score = float(last["return_mean"])
                row = (name, task, seed, f"{seconds:.1f}", last["agent_steps"], f"{score:.1f}", target, score >= target)
                with table.open("a", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerow(row)
                print(f"{seconds:.0f} s, {int(last['agent_steps']):,} steps, {score:.0f}", flush=True)


def table(rows: list[dict[str, str]]) -> str:
    """Median seconds of the seeds that reached the target, how many did, and their agent steps."""
    names = [name for name in NAMES if any(row["algorithm"] == name for row in rows)]
    heads = " | ".join(NAMES[name] for name in names)
    lines = [f"| task, return to reach | {heads} |", "|---" * (1 + len(names)) + "|"]
    for task, (target, steps) in TASKS.items():
        cells = []
        for name in names:
            own = [row for row in rows if (row["algorithm"], row["task"]) == (name, task)]
            good = [row for row in own if row["reached"] == "True" and float(row["seconds"]) <= LIMIT]
            if not own:
                cells.append("")
            elif not good:
                cells.append(f"0 of {len(own)} ({statistics.median(float(r['seconds']) for r in own):.0f} s)")
            else:
                seconds = statistics.median(float(row["seconds"]) for row in good)
                count = statistics.median(int(row["agent_steps"]) for row in good)
                cells.append(f"{seconds:.0f} s, {count:,.0f} steps" + f" ({len(good)} of {len(own)})" * (good != own))
        lines.append(f"| `{task}`, {target:g} in {steps:,} steps | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run, or make the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("--out", type=Path, required=True, help="the folder of runs.csv")
    parser.add_argument("--others", type=Path, default=Path("others/bin/python"), help="Python with SB3 and SBX")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--algorithms", nargs="+", choices=NAMES, default=["quick", *OTHERS])
    parser.add_argument("--cores", default="0,1", help="the cores that each run has, one thread for each")
    options = parser.parse_args()
    if options.what == "run":
        run(options.out, options.others, options.seeds, options.cores, options.algorithms)
        return
    with (options.out / "runs.csv").open() as file:
        print(table(list(csv.DictReader(file))))


if __name__ == "__main__":
    main()
