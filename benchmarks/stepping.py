"""What a training step of simulators costs in two versions, alternating on one machine; and with entries of `info`.

    python benchmarks/stepping.py --base COMMIT

Steps `gym/Pendulum-v1`, which is so fast that the cost around it shows: in this process, and in a process for each of
two seeds. Each row is the median of the ratios of alternating measurements to the base's of the same round.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

from versions import ROOT, checkout, run_python

STEPS, ROUNDS = 4_000, 9
KINDS = ("in this process", "two processes")


def measure(kind: str, keys: tuple[str, ...], follow: bool) -> float:
    """Microseconds of a step, with the package that is on the path."""
    import numpy as np

    from dr_q.envs import Source, open_pool

    source = Source("gym/Pendulum-v1", 0, keys) if keys else Source("gym/Pendulum-v1")
    seeds = [0] if kind == KINDS[0] else [0, 1]
    pool = open_pool(source, seeds, 1, in_process=kind == KINDS[0])
    log = None
    if follow:
        from dr_q.config import preset
        from dr_q.training.episodes import EpisodeLog

        log = EpisodeLog(len(seeds), 1, pool.spec.obs, preset("dr.q"))
    actions = np.zeros((len(seeds), 1), np.float32)
    pool.begin()
    start, infos = 0.0, np.zeros((len(seeds), 1))
    try:
        for step in range(STEPS + 200):
            if step == 200:
                start = time.perf_counter()
            pool.send(actions)
            arrived = pool.receive()
            if log is not None:
                ended = log.follow(arrived, step)
                if ended or keys:
                    infos = pool.infos()
                for index in ended:
                    log.end(index, False, float(infos[index, 0]))
        return 1e6 * (time.perf_counter() - start) / STEPS
    finally:
        pool.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="a7ccc59", help="the commit to compare with")
    parser.add_argument("--out", type=Path, help="where to write the table, as well as printing it")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        kind, keys, follow = arguments.measure
        print(measure(kind, tuple(filter(None, keys.split(","))), follow == "yes"))
        return 0
    cases = {"nobody asks": ("", "no"), "with the log of episodes": ("", "yes"), "with 4 keys too": ("a,b,c,d", "yes")}
    head = [f"{name}: ratio (range)" for name in cases]
    lines = [f"| | base | {' | '.join(head)} |", "|---|---|" + "---|" * len(cases)]
    with checkout(arguments.base) as base:
        for kind in KINDS:
            times: dict[str, list[float]] = {name: [] for name in ("base", *cases)}
            for _ in range(ROUNDS):
                times["base"].append(one(base / "src", kind, "", "no"))
                for name, how in cases.items():
                    times[name].append(one(ROOT / "src", kind, *how))
            cells = []
            for name in cases:
                ratios = [x / y for x, y in zip(times[name], times["base"], strict=True)]
                cells.append(f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
            lines.append(f"| {kind} | {statistics.median(times['base']):.1f} us | " + " | ".join(cells) + " |")
    text = "\n".join(lines)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")
    return 0


def one(source: Path, kind: str, keys: str, follow: str) -> float:
    return float(run_python(source, str(Path(__file__).resolve()), "--measure", kind, keys, follow).splitlines()[-1])


if __name__ == "__main__":
    sys.exit(main())
