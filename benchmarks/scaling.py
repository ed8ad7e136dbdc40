"""Cost against the number of seeds and against the replay's capacity, by `dr-q bench` in a process each.

    python benchmarks/scaling.py --out scaling                       # on a GPU: 1 .. 40 seeds, 1e5 .. 4e6 slots
    python benchmarks/scaling.py --out scaling --only-plot           # draw scaling/*.json again

Writes a JSON file for each measurement, and `seeds.png` and `capacity.png`. What does not fit is said and left out.
"""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import tyro


@dataclasses.dataclass
class Arguments:
    """What to measure."""

    out: Path
    """Folder of the results."""
    task: str = "dmc/cheetah-run"
    """The task."""
    preset: str = "dr.q"
    """Whose networks and batch."""
    seeds: tuple[int, ...] = (1, 2, 5, 10, 20, 40)
    """Numbers of seeds, at the paper's capacity."""
    capacities: tuple[int, ...] = (100_000, 1_000_000, 4_000_000)
    """Replay capacities."""
    capacity_seeds: int = 10
    """Seeds at which capacities are compared."""
    steps: int = 500
    """Agent steps to time."""
    only_plot: bool = False
    """Measure nothing."""


def main() -> int:
    arguments = tyro.cli(Arguments, description=__doc__)
    arguments.out.mkdir(parents=True, exist_ok=True)
    if not arguments.only_plot:
        for seeds in arguments.seeds:
            measure(arguments, f"seeds-{seeds}", seeds, [])
        for capacity in arguments.capacities:
            options = ["--replay-capacity", str(capacity)]
            measure(arguments, f"capacity-{capacity}", arguments.capacity_seeds, options)
    plot(read(arguments.out, "seeds"), "seeds", "seeds at once", arguments.out / "seeds.png")
    plot(read(arguments.out, "capacity"), "capacity", "slots of each seed's replay", arguments.out / "capacity.png")
    return 0


def measure(arguments: Arguments, name: str, seeds: int, options: list[str]) -> None:
    file = arguments.out / f"{name}.json"
    command = [
        *(sys.executable, "-m", "dr_q", "bench", arguments.task, "--preset", arguments.preset),
        *("--seeds", str(seeds), "--steps", str(arguments.steps), "--json", str(file), *options),
    ]
    print(" ".join(command[1:]), file=sys.stderr, flush=True)
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        print(f"  left out: {result.stderr.strip().splitlines()[-1]}", file=sys.stderr, flush=True)
        return
    figures = json.loads(file.read_text())
    print(f"  {figures['seed_steps_per_s']:,.0f} seed-steps/s", file=sys.stderr, flush=True)


def read(folder: Path, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(file.read_text()) for file in folder.glob(f"{kind}-*.json")]
    return sorted(found, key=lambda figures: figures[kind])


def plot(figures: list[dict[str, Any]], by: str, label: str, path: Path) -> None:
    """Milliseconds of a step by part, and seed-steps/s, against seeds or capacity."""
    if not figures:
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    cost, rate = figure.subplots(1, 2)
    x = [f[by] for f in figures]
    lines = {"whole step": "step", "encoder update": "encoder_update", "critic + actor update": "rl_update"}
    for (name, field), style in zip(lines.items(), ("o-", "s--", "^:"), strict=True):
        cost.plot(x, [f[field] for f in figures], style, label=name, linewidth=1.6)
    cost.set_ylabel("milliseconds for all seeds")
    cost.legend(frameon=False)
    rate.plot(x, [f["seed_steps_per_s"] for f in figures], "o-", linewidth=1.6)
    rate.set_ylabel("seed-steps/s")
    for axes in (cost, rate):
        axes.set_xscale("log")
        axes.set_xticks(x, [f"{value:,}" for value in x])
        axes.minorticks_off()
        axes.set_ylim(0, 1.08 * axes.dataLim.y1)
        axes.set_xlabel(label)
        axes.grid(alpha=0.25, linewidth=0.6)
    first = figures[0]
    count = "" if by == "seeds" else f", {first['seeds']} seeds"
    figure.suptitle(f"{first['task']}, {first['preset']}{count}, {first['machine'].get('device', '')}", fontsize=10)
    figure.savefig(path, dpi=150)
    print(path)


if __name__ == "__main__":
    sys.exit(main())
