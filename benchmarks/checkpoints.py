"""What a checkpoint and a resume cost, in two versions, alternating on one machine.

    python benchmarks/checkpoints.py --base b28cbf1 --turns 5 --out FILE
    python benchmarks/checkpoints.py --base b28cbf1 --turns 5 --training

Networks are the paper's. The first checkpoint writes the whole replay. The next one comes after 25,000 more transitions
and writes what changed. Resume reads it. Versions that keep the best policies write and read them too. Two seeds of
states (24 numbers, 6 actions, 100,000 transitions each) and one of pixels (84 x 84 x 3 frames, 20,000 transitions).
Each turn runs the base, then this version, each in a process of its own.

With --training, what the rest of a run costs: milliseconds of an agent step of `dr-q train` on a toy environment with
tiny networks, so that everything besides the updates weighs most; checkpoints count, evaluations do not.
"""

import argparse
import csv
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dr_q.report.numbers import with_interval
from dr_q.report.statistics import mean
from versions import ROOT, checkout, run_python

MORE = 25_000
CASES: dict[str, dict[str, Any]] = {
    "two seeds of states": {"seeds": 2, "filled": 100_000, "capacity": 150_016},
    "one seed of pixels": {"seeds": 1, "filled": 20_000, "capacity": 50_048},
}
EVERY = 1_000
TOY = "tests.envs.toys:drq-walk-v0"
TINY: dict[str, int] = {
    **dict.fromkeys(("zs_dim", "zsa_dim", "encoder_hidden", "actor_hidden", "critic_hidden", "batch_size"), 16),
    "za_dim": 8,
    "target_period": 10,
    "exploration_steps": 40,
    "eval_every": 10**6,
    "eval_episodes": 1,
    "checkpoint_every": EVERY,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="a commit to compare with")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, help="where to write the table, and next to it every turn as JSON")
    parser.add_argument("--case", choices=list(CASES), help="measure this one, with the package that is installed")
    parser.add_argument("--training", action="store_true", help="time agent steps of a run instead")
    parser.add_argument("--steps", type=int, default=6_000, help="of the runs of --training")
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(**CASES[arguments.case], pixels="pixels" in arguments.case)))
        return 0
    if arguments.training:
        return training(arguments)
    turns: dict[str, list[tuple[dict[str, float], ...]]] = {case: [] for case in CASES}
    with checkout(arguments.base) as base:
        for turn in range(arguments.turns):
            for case, found in turns.items():
                sides = (base / "src", ROOT / "src")
                printed = [run_python(side, str(Path(__file__).resolve()), "--case", case) for side in sides]
                found.append(tuple(json.loads(text.splitlines()[-1]) for text in printed))
                print(f"turn {turn + 1}, {case}: {found[-1]}", file=sys.stderr, flush=True)
    text = table(turns, arguments.base)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")
        arguments.out.with_suffix(".json").write_text(json.dumps(turns, indent=1) + "\n")
    return 0


def training(arguments: argparse.Namespace) -> int:
    """Agent steps of both versions, by turns; a table."""
    found: list[list[float]] = []
    with checkout(arguments.base) as base:
        for turn in range(arguments.turns):
            found.append([ms_per_step(side / "src", arguments.steps) for side in (base, ROOT)])
            print(f"turn {turn + 1}: {found[-1]}", file=sys.stderr, flush=True)
    rows = [f"| {turn} | {old:.2f} | {new:.2f} |" for turn, (old, new) in enumerate(found, start=1)]
    ratio = with_interval(mean([new / old for old, new in found]), ".3f")
    head = ["ms per agent step", "", f"| turn | base ({arguments.base}) | new |", "|---|---|---|"]
    text = "\n".join([*head, *rows, "", f"new / base, 95% interval: {ratio}; {os.cpu_count()} cores"])
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")
    return 0


def ms_per_step(source: Path, steps: int) -> float:
    """Of a run with the package in a folder, from metrics.csv without its first row; evaluations do not count."""
    has_log_every = "--log-every" in run_python(source, "-m", "dr_q", "train", "--help")  # earlier versions: 1,000
    settings = {**TINY, "steps": steps, **({"log_every": EVERY} if has_log_every else {})}
    flags = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    with tempfile.TemporaryDirectory() as folder:
        out, both = Path(folder) / "run", os.pathsep.join((str(source), str(ROOT)))
        run_python(source, "-m", "dr_q", "train", TOY, "--out", str(out), *flags, PYTHONPATH=both)
        with (out / "metrics.csv").open() as file:
            rows = list(csv.DictReader(file))[1:]
    columns = [name for name in rows[0] if name.startswith("ms_") and not name.startswith("ms_evaluat")]
    return statistics.fmean(sum(float(row[name]) for name in columns) for row in rows)


def measure(seeds: int, filled: int, capacity: int, pixels: bool) -> dict[str, float]:
    """Seconds of each part, and the size of what was written."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from dr_q.agent.named_arrays import named_arrays
    from dr_q.config import preset
    from dr_q.envs import Transitions
    from dr_q.learner import LearnerSpec, PendingTransition, init_states, packet_layout, root_keys, saving
    from dr_q.learner.saving import Saved, load, to_checkpoint
    from dr_q.run_folder import Checkpoint, Checkpoints
    from dr_q.spaces import SINGLE, ContinuousActions, Image, ObsSpec, Spaces

    obs = ObsSpec.single(Image(3, 84, 84, 3)) if pixels else ObsSpec.vector(24)
    spaces = Spaces(obs, ContinuousActions((-1.0,) * 6, (1.0,) * 6))
    spec = LearnerSpec(preset("dr.q"), spaces, capacity=capacity)
    states = init_states(spec, root_keys(list(range(seeds))))
    storage, rng = states.replays.storage, np.random.default_rng(0)
    assert storage.obs is not None
    frames = storage.obs[SINGLE]
    shape, kind = frames.shape, frames.dtype
    values = rng.integers(0, 255, shape, np.uint8) if pixels else rng.normal(size=shape).astype(kind)

    def at(size: int) -> Any:
        """The states with so many transitions."""
        stamp = np.tile(np.arange(storage.stamp[0].size, dtype=np.int32), seeds).reshape(storage.stamp.shape)
        changed = {"obs": {SINGLE: values}, "stamp": stamp, "size": np.full(seeds, size, np.int32)}
        replays = dataclasses.replace(states.replays, storage=dataclasses.replace(storage, **changed))
        return states._replace(replays=replays)

    first = {SINGLE: np.zeros((seeds, *obs[SINGLE].shape), kind)}
    arrived = Transitions.of(packet_layout(spec), first, first, np.zeros((seeds, 3)))
    frame = {SINGLE: jnp.zeros((seeds, *shape[2:]), kind)}
    pending = PendingTransition(frame, jnp.zeros((seeds, 6)))
    keeps_best = "best" in Checkpoint._fields  # earlier versions did not
    best = (
        {"best": {k: np.asarray(x) for k, x in named_arrays(states.agents.online.policy).items()}} if keeps_best else {}
    )
    took: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        stored = Checkpoints(Path(folder), list(range(seeds)), keep=2)
        for name, size in (("first", filled), ("next", filled + MORE)):
            episodes = [(0, np.zeros((500, 6), np.float32))] * seeds
            saved = Saved(size, jax.block_until_ready(at(size)), pending, arrived, episodes)
            os.sync()
            begin = time.perf_counter()
            stored.write(to_checkpoint(saved, list(range(seeds)), **best))  # pyright: ignore
            took[name] = time.perf_counter() - begin
        took["MB"] = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e6
        begin = time.perf_counter()
        if keeps_best:
            saving.load_newest(stored, spec, print)[1].best()
        else:
            load(stored, filled + MORE, spec)
        took["resume"] = time.perf_counter() - begin
    return took


def table(turns: dict[str, list[tuple[dict[str, float], ...]]], base: str) -> str:
    count = len(next(iter(turns.values())))
    lines = [
        f"{count} turns each, alternating, against {base}; {os.cpu_count()} cores",
        "",
        "| what | base, s | new, s | new / base, 95% interval |",
        "|---|---|---|---|",
    ]
    for case, found in turns.items():
        size = found[0][1]["MB"]
        for part in ("first", "next", "resume"):
            pairs = [(old[part], new[part]) for old, new in found]
            means = [statistics.fmean(side) for side in zip(*pairs, strict=True)]
            label = {"first": "first checkpoint", "next": "next checkpoint", "resume": "resume"}[part]
            ratio = with_interval(mean([new / old for old, new in pairs]), ".3f")
            lines.append(f"| {case} ({size:,.0f} MB on disk), {label} | {means[0]:.2f} | {means[1]:.2f} | {ratio} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
