"""What `--deterministic` costs on this machine: the same run with and without it, alternating.

    python benchmarks/deterministic.py --turns 5 --out benchmarks/results/deterministic.md

Each run is a process. Times are those that a run logs for its steps once it learns, without compiling, evaluations and
checkpoints. Each side compiles once, into a folder of its own.
"""

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from dr_q.report.numbers import with_interval
from dr_q.report.statistics import mean
from versions import ROOT, milliseconds_per_step

SIDES = {"without": [], "with": ["--deterministic"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="gym/Hopper-v4")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, help="where to write the table")
    parser.add_argument("rest", nargs="*", help="more options of dr-q train, after --")
    given = parser.parse_args()
    found: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(given.turns + 1):
            times = {side: milliseconds(Path(folder), side, turn, given) for side in SIDES}
            print(
                f"turn {turn}: {times}" + (" (compiles, not counted)" if not turn else ""), file=sys.stderr, flush=True
            )
            found += [times] if turn else []
    text = table(found, given)
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n")
    return 0


def milliseconds(folder: Path, side: str, turn: int, given: argparse.Namespace) -> float:
    """Of an agent step of all seeds once learning has begun."""
    out, learning = folder / f"{side}-{turn}", given.steps // 3
    words = [
        "train", given.task, "--seeds", given.seeds, "--steps", given.steps, "--exploration-steps", learning,
        "--eval-every", given.steps, "--eval-episodes", 1, "--checkpoint-every", given.steps, "--log-every", 250,
        "--out", out, *SIDES[side], *given.rest,
    ]  # fmt: skip
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    cache = {"JAX_COMPILATION_CACHE_DIR": str(folder / f"cache-{side}"), "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-m", "dr_q", *map(str, words)],
        env={**os.environ, **cache}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr[-2_000:])
    with (out / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["seed"] == "0" and int(row["agent_steps"]) > learning + 250]
    return milliseconds_per_step(rows)


def table(found: list[dict[str, float]], given: argparse.Namespace) -> str:
    ratio = with_interval(mean([times["with"] / times["without"] for times in found]), ".3f")
    means = {side: statistics.fmean(times[side] for times in found) for side in SIDES}
    return "\n".join(
        [
            f"{given.task}, {given.seeds} seeds, {given.steps:,} steps, {len(found)} turns each, alternating.",
            "",
            "| | without | `--deterministic` | ratio, 95% interval |",
            "|---|---|---|---|",
            f"| ms per agent step | {means['without']:.3f} | {means['with']:.3f} | {ratio} |",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
