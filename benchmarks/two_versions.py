"""`dr-q bench` of two versions, alternating on one machine, so that the ratio survives a noisy one.

    python benchmarks/two_versions.py --base 675da62 -- dmc/cheetah-run --seeds 10
    python benchmarks/two_versions.py --base-source FOLDER/src --turns 5 --out FILE -- dmc/cheetah-run --seeds 10

Each turn runs the base, then this version, each in a process of its own; what follows `--` goes to `dr-q bench`. The
table has the mean over turns and the ratio new / base with its 95% interval (Student's t over the turns' ratios).
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIGURES = {
    "seed_steps_per_s": "seed-steps/s, after exploration",
    "step": "agent step of all seeds, ms",
    "encoder_update": "encoder update on the device, ms",
    "rl_update": "critic + actor update on the device, ms",
    "action": "outcome to the device, actions back, ms",
    "compile_s": "compile, s",
}
T_95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}
"""Quantiles of Student's t: the script runs where scipy may not be."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    base = parser.add_mutually_exclusive_group(required=True)
    base.add_argument("--base", help="a commit to compare with")
    base.add_argument("--base-source", type=Path, help="its package's src folder, where there is no git")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, help="where to write the table, and beside it every turn as JSON")
    parser.add_argument("bench", nargs="+", help="arguments of dr-q bench")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        source, tree = arguments.base_source, Path(scratch) / "base"
        if arguments.base:
            subprocess.run(
                ["git", "worktree", "add", "-q", "--detach", str(tree), arguments.base], cwd=ROOT, check=True
            )
            source = tree / "src"
        try:
            turns = [
                (measure(source.resolve(), arguments.bench, scratch), measure(ROOT / "src", arguments.bench, scratch))
                for _ in range(arguments.turns)
            ]
        finally:
            if arguments.base:
                subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    text = table(turns, arguments.base or str(arguments.base_source), arguments.bench)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")
        arguments.out.with_suffix(".json").write_text(json.dumps(turns, indent=1) + "\n")
    return 0


def measure(source: Path, bench: list[str], scratch: str) -> dict:
    file = Path(scratch) / "figures.json"
    rest = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), *rest])}
    command = [sys.executable, "-m", "dr_q", "bench", *bench, "--json", str(file)]
    subprocess.run(command, env=environment, cwd=scratch, check=True, stdout=subprocess.DEVNULL)
    figures = json.loads(file.read_text())
    print(
        f"{figures['machine']['source']}: {figures['seed_steps_per_s']:,.0f} seed-steps/s", file=sys.stderr, flush=True
    )
    return figures


def table(turns: list[tuple[dict, dict]], base: str, bench: list[str]) -> str:
    old, new = turns[0]
    lines = [
        f"`dr-q bench {' '.join(bench)}`, {len(turns)} turns each, alternating: source {new['machine']['source']} "
        f"against {base} (source {old['machine']['source']}); {new['machine']['device']}, jax {new['machine']['jax']}, "
        f"{new['machine']['cores']} cores",
        "",
        "| what | base | new | new / base, 95% interval |",
        "|---|---|---|---|",
    ]
    for name, label in FIGURES.items():
        pairs = [(first[name], second[name]) for first, second in turns]
        means = [statistics.fmean(side) for side in zip(*pairs, strict=True)]
        lines.append(f"| {label} | {means[0]:,.4g} | {means[1]:,.4g} | {ratio(pairs)} |")
    return "\n".join(lines)


def ratio(pairs: list[tuple[float, float]]) -> str:
    ratios = [second / first for first, second in pairs]
    middle = statistics.fmean(ratios)
    if len(ratios) < 2:
        return f"{middle:.3f}"
    half = T_95.get(len(ratios) - 1, 1.96) * statistics.stdev(ratios) / math.sqrt(len(ratios))
    return f"{middle:.3f} [{middle - half:.3f}, {middle + half:.3f}]"


if __name__ == "__main__":
    sys.exit(main())
