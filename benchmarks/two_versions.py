"""`dr-q bench` of two versions, alternating on one machine, so that the ratio survives a noisy one.

    python benchmarks/two_versions.py --base 675da62 -- dmc/cheetah-run --seeds 10
    python benchmarks/two_versions.py --base 675da62 --updates      # each version's benchmarks/updates.py (make bench)
    python benchmarks/two_versions.py --base-source FOLDER/src --turns 5 --out FILE -- dmc/cheetah-run --seeds 10
    python benchmarks/two_versions.py --base 675da62 --new "" --new "--compute mixed" -- dmc/cheetah-run --seeds 10

Each turn runs the base, then this version, each in a process of its own; what follows `--` goes to `dr-q bench`. With
`--new` this version runs once for each, with these options on top, which the base need not know. The table has the mean
over turns and the ratio new / base with its 95% interval (Student's t over the turns' ratios).
"""

import argparse
import contextlib
import functools
import json
import os
import re
import shlex
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from dr_q.report.numbers import with_interval
from dr_q.report.statistics import mean
from versions import ROOT, checkout, run_python

FIGURES = {
    "seed_steps_per_s": "seed-steps/s, after exploration",
    "step": "agent step of all seeds, ms",
    "encoder_update": "encoder update on the device, ms",
    "rl_update": "critic + actor update on the device, ms",
    "action": "outcome to the device, actions back, ms",
    "compile_s": "compile, s",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    base = parser.add_mutually_exclusive_group(required=True)
    base.add_argument("--base", help="a commit to compare with")
    base.add_argument("--base-source", type=Path, help="its package's src folder, where there is no git")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, help="where to write the table, and next to it every turn as JSON")
    parser.add_argument("--updates", action="store_true", help="time benchmarks/updates.py instead of dr-q bench")
    parser.add_argument("--new", action="append", help="options of this version alone; once for each run")
    parser.add_argument("bench", nargs="*", help="arguments of dr-q bench")
    arguments = parser.parse_args()
    options = arguments.new or [""]
    if arguments.updates and arguments.new:
        parser.error("--updates times one program without options: leave out --new")
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(checkout(arguments.base)) / "src" if arguments.base else arguments.base_source
        measure = measure_updates if arguments.updates else functools.partial(measure_bench, bench=arguments.bench)
        turns = [turn(measure, source.resolve(), options) for _ in range(arguments.turns)]
    base_name = arguments.base or str(arguments.base_source)
    text = updates_table(turns, base_name) if arguments.updates else table(turns, base_name, arguments.bench, options)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")
        arguments.out.with_suffix(".json").write_text(json.dumps(turns, indent=1) + "\n")
    return 0


def turn(measure: Callable[..., dict], base: Path, options: list[str]) -> list[dict]:
    """The base, then this version with each of the options."""
    given = [{"more": shlex.split(words)} if words else {} for words in options]
    return [measure(base), *(measure(ROOT / "src", **more) for more in given)]


def measure_bench(source: Path, bench: list[str], more: Sequence[str] = ()) -> dict:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "figures.json"
        run_python(source, "-m", "dr_q", "bench", *bench, *more, "--json", str(file))
        figures = json.loads(file.read_text())
    print(
        f"{figures['machine']['source']}: {figures['seed_steps_per_s']:,.0f} seed-steps/s", file=sys.stderr, flush=True
    )
    return figures


def measure_updates(source: Path) -> dict[str, float]:
    """Milliseconds of each part, off the table that updates.py prints: earlier versions of it write no file."""
    printed = run_python(source, str(source.parent / "benchmarks" / "updates.py"), "--rounds", "2", COLUMNS="200")
    rows = re.findall(r"^([a-z][a-z +()]*?|[\d,]+) {2,}([\d.]+)", printed, flags=re.MULTILINE)
    figures = {f"replay of {name}" if name[0].isdigit() else name: float(value) for name, value in rows}
    print(f"{source}: {figures}", file=sys.stderr, flush=True)
    return figures


def updates_table(turns: list[list[dict]], base: str) -> str:
    head = f"`benchmarks/updates.py`, {len(turns)} turns each, alternating, against {base}; {os.cpu_count()} cores"
    lines = [head, "", "| what | base, ms | new, ms | new / base, 95% interval |", "|---|---|---|---|"]
    for name in turns[0][0]:
        pairs = [(first[name], second[name]) for first, second in turns]
        means = [statistics.fmean(side) for side in zip(*pairs, strict=True)]
        lines.append(f"| {name} | {means[0]:.3f} | {means[1]:.3f} | {ratio(pairs)} |")
    return "\n".join(lines)


def table(turns: list[list[dict]], base: str, bench: list[str], options: list[str]) -> str:
    old, new = turns[0][:2]
    heads = [f"new{' ' * bool(words)}{words}" for words in options]
    lines = [
        f"`dr-q bench {' '.join(bench)}`, {len(turns)} turns each, alternating: source {new['machine']['source']} "
        f"against {base} (source {old['machine']['source']}); {new['machine']['device']}, jax {new['machine']['jax']}, "
        f"{new['machine']['cores']} cores",
        "",
        "| what | base |" + "".join(f" {head} | {head} / base, 95% interval |" for head in heads),
        "|---|---|" + "---|---|" * len(heads),
    ]
    for name, label in FIGURES.items():
        sides = list(zip(*([figures[name] for figures in each] for each in turns), strict=True))
        cells = [f"{statistics.fmean(side):,.4g}" for side in sides]
        ratios = [ratio(list(zip(sides[0], side, strict=True))) for side in sides[1:]]
        pairs = [x for pair in zip(cells[1:], ratios, strict=True) for x in pair]
        lines.append(f"| {' | '.join([label, cells[0], *pairs])} |")
    return "\n".join(lines)


def ratio(pairs: list[tuple[float, float]]) -> str:
    """The mean of the turns' ratios; of three turns or more, with its interval."""
    return with_interval(mean([second / first for first, second in pairs]), ".3f")


if __name__ == "__main__":
    sys.exit(main())
