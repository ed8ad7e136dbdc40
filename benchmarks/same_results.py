"""Whether this version gives the results of an earlier commit, to the bit, on this machine.

    python benchmarks/same_results.py                      # against 675da62
    python benchmarks/same_results.py --base COMMIT --out FILE

Trains four short runs with both versions, each in a process of its own: states with terminations, pixels, MR.Q, and two
seeds. For each, evals.csv must be identical, and every array of the final weights, targets and optimisers must have the
same bits. Arrays that were renamed since are compared under today's names (`dr_q.run_folder.formats`).
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from versions import ROOT, checkout, run_python

SIZES = (
    "--batch-size 32 --zs-dim 32 --zsa-dim 32 --za-dim 16 --encoder-hidden 48 --actor-hidden 32 --critic-hidden 32 "
    "--target-period 50"
)


class Case(NamedTuple):
    """One run."""

    name: str
    command: str
    steps: int


CASES = (
    Case("states with terminations", f"gym/Hopper-v4 --exploration-steps 500 --eval-every 500 {SIZES}", 2_000),
    Case(
        "pixels",
        f"dmc-visual/walker-run --exploration-steps 100 --eval-every 100 --replay-capacity 300 --eval-episodes 1 "
        f"{SIZES.replace('32', '16', 1)}",
        200,
    ),
    Case("MR.Q", f"gym/Walker2d-v4 --preset mr.q --exploration-steps 500 --eval-every 500 {SIZES}", 1_500),
    Case("two seeds", f"dmc/cheetah-run --seeds 2 --exploration-steps 500 --eval-every 500 {SIZES}", 1_500),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="675da62", help="the commit to compare with")
    parser.add_argument("--out", type=Path, help="where to write the table, as well as printing it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, checkout(arguments.base) as base:
        rows = [compare(case, base, Path(scratch)) for case in CASES]
    text = table(rows, arguments.base)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")
    return 0 if all(row.same for row in rows) else 1


class Compared(NamedTuple):
    """What a case gave."""

    case: Case
    same_evaluations: bool
    arrays: int
    same_arrays: int
    returns: str
    seconds: tuple[float, float]

    @property
    def same(self) -> bool:
        return self.same_evaluations and self.arrays == self.same_arrays


def compare(case: Case, base: Path, scratch: Path) -> Compared:
    folders, seconds = [], []
    for name, source in (("base", base), ("new", ROOT)):
        out = scratch / f"{case.name.replace(' ', '-')}-{name}"
        steps = str(case.steps)
        options = [*case.command.split(), "--steps", steps, "--checkpoint-every", steps, "--out", str(out)]
        print(f"{case.name}, {name}", file=sys.stderr, flush=True)
        start = time.perf_counter()
        run_python(source / "src", "-m", "dr_q", "train", *options)
        seconds.append(time.perf_counter() - start)
        folders.append(out)
    evaluations = [(folder / "evals.csv").read_bytes() for folder in folders]
    first, second = (weights(folder, case.steps) for folder in folders)
    equal = sum(name in second and first[name] == second[name] for name in first)
    last = evaluations[1].decode().splitlines()[-1].split(",")[3]
    return Compared(case, evaluations[0] == evaluations[1], len(first | second), equal, last, (seconds[0], seconds[1]))


def weights(run: Path, steps: int) -> dict[str, tuple[tuple[int, ...], bytes]]:
    """Shape and bits of every array of all agents, by today's name."""
    from dr_q.run_folder import Checkpoints, read_run_json

    agents = Checkpoints(run, read_run_json(run)["seeds"]).read(steps).agents()
    return {name: (x.shape, x.tobytes()) for name, x in agents.items()}


def table(rows: list[Compared], base: str) -> str:
    new = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "src"], cwd=ROOT, check=False).returncode != 0
    here = f"{new.stdout.strip()}{' with changes' if changed else ''}"
    lines = [
        f"`python benchmarks/same_results.py --base {base}`: {here} against {base}, {platform.machine()}, "
        f"{os.cpu_count()} cores",
        "",
        "| run | command | evals.csv | arrays with the same bits | last return | seconds, base and new |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        same = "identical" if row.same_evaluations else "DIFFERENT"
        command = f"dr-q train {row.case.command} --steps {row.case.steps}"
        seconds = ", ".join(f"{x:.0f}" for x in row.seconds)
        cells = (row.case.name, f"`{command}`", same, f"{row.same_arrays} of {row.arrays}")
        lines.append(f"| {' | '.join(cells)} | {float(row.returns):.1f} | {seconds} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
