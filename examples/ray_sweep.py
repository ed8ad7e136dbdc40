"""A small sweep on Ray: two presets on one task, three seeds each, then a comparison of the two.

    python examples/ray_sweep.py

It needs Ray and scipy: pip install 'dr-q[ray,report]'. A sweep that was killed continues when it is started again. On a
cluster, give `SweepOptions(address="HOST:6379")` and a folder that all machines share.
"""

from pathlib import Path

from dr_q.report import compare, read_results
from dr_q.sweep import SweepOptions, SweepSpec, run_sweep


def main(out="runs/sweep", steps=5_000, changes=None, **schedule):
    spec = SweepSpec(
        tasks=("gym/Pendulum-v1",),
        presets=("quick", "quick+no-infonce"),
        seeds=3,
        steps=steps,
        changes=changes or {},
        **{"eval_every": 1_000, **schedule},
    )
    results = run_sweep(spec, Path(out), SweepOptions())
    rows = read_results([results])
    first, second = ([row for row in rows if row.preset == preset] for preset in spec.presets)
    comparison = compare(first, second, spec.presets)
    print("\n".join(comparison.sentences()))
    return comparison


if __name__ == "__main__":
    main()
