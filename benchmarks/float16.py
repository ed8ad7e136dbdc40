"""How much actions change when a policy's weights are stored as float16; the bound of `dr-q export` comes from this.

    python benchmarks/float16.py --out benchmarks/results/float16.json

Trains three policies with `--preset quick` (a minute or two each on a core), and reads those in results/policies.
Compared are actions in [-1, 1] before and after the weights are rounded to float16, both computed in float64: on
the observations of whole episodes, and on the 1,000 observations that an export is checked on.

Published policies are stored as float16, so that rounding them changes nothing. Weights that round to theirs are made
of them instead: each weight is moved by a random part of half a float16 step (`unrounded`). The same is done with the
policies trained here, where the true weights are known, to see whether that is a fair stand-in.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import dr_q
from dr_q.agent.named_arrays import fill_tree, named_arrays
from dr_q.policies.export import export_policy
from dr_q.policies.policy import Policy
from dr_q.policies.portable.check import compare_networks, sample_observations
from dr_q.policies.watch import evaluate_loaded

ROOT = Path(__file__).parents[1]
TASKS = ("gym/Pendulum-v1", "dmc/cartpole-swingup", "dmc/walker-stand")
EPISODES = 3
DRAWS = 3


class Recording(Policy):
    """The policy, keeping the observations that it is given."""

    def __init__(self, policy: Policy):
        super().__init__(policy.networks, policy.record, policy.seed)
        self.seen: list[dict[str, np.ndarray]] = []

    def act_parts(self, obs: Any) -> np.ndarray:
        """The policy's actions."""
        self.seen.append({name: np.array(x) for name, x in obs.items()})
        return super().act_parts(obs)

    @property
    def observations(self) -> dict[str, np.ndarray]:
        """All of them, by part."""
        return {name: np.concatenate([obs[name] for obs in self.seen]) for name in self.seen[0]}


def with_weights(policy: Policy, change: Any) -> Policy:
    """The policy with other weights; what normalises observations stays in float32, as in exports."""
    arrays = named_arrays(policy.networks)
    changed = {name: x if name.startswith("normaliser.") else change(x) for name, x in arrays.items()}
    networks = fill_tree(policy.networks, changed, "the changed weights")
    return Policy(jax.tree.map(jax.numpy.asarray, networks), policy.record, policy.seed)


def rounded(x: np.ndarray) -> np.ndarray:
    """As float16 holds it."""
    return x.astype(np.float16).astype(np.float32)


def unrounded(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Numbers that float16 rounds to these: moved by a uniform random part of half a step; zeros stay (padding)."""
    half = np.abs(np.spacing(x.astype(np.float16))).astype(np.float32) / 2
    moved = x + half * rng.uniform(-0.999, 0.999, x.shape).astype(np.float32)
    return np.where((x == 0) | (rounded(moved) != x), x, moved).astype(np.float32)


def measure(path: Path, which: str, folder: Path) -> dict[str, Any]:
    """The differences of one policy."""
    policy = dr_q.load(path)
    recording = Recording(policy)
    returns = evaluate_loaded(recording, EPISODES).returns
    played = recording.observations
    checked = sample_observations(policy, played)
    random = sample_observations(policy, None)
    stored = with_weights(policy, rounded)
    rng = np.random.default_rng(0)
    stand_ins = [with_weights(stored, lambda x: unrounded(x, rng)) for _ in range(DRAWS)]

    def largest(one: Policy, other: Policy) -> dict[str, float]:
        where = {"episodes": played, "export's check": checked, "random only": random}
        return {name: compare_networks(one, other, obs).largest for name, obs in where.items()}

    draws = [largest(one, stored) for one in stand_ins]
    exported = export_policy(path, folder / f"{path.name}-float16", None, "float16", 1, "numpy")
    return {
        "policy": f"{policy.task}, {which}",
        "observations of episodes": len(recording.seen),
        "return": round(float(returns.mean()), 1),
        "rounding": largest(policy, stored),
        "stand-in for rounding": {name: max(draw[name] for draw in draws) for name in draws[0]},
        "numpy export, from the policy with the same weights": exported.difference,
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a file for the numbers")
    parser.add_argument("--steps", type=int, default=4_000, help="agent steps of the policies trained here")
    parser.add_argument("--runs", type=Path, help="a folder for their runs; those that are there are used again")
    options = parser.parse_args()
    start, found = time.perf_counter(), []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for task in TASKS:
            run = (options.runs or folder) / task.replace("/", "-")
            if not run.exists():
                dr_q.train(task, preset="quick", steps=options.steps, eval_every=options.steps, out=run)
            found.append(measure(run, f"quick, {options.steps:,} steps", folder))
            print(json.dumps(found[-1], indent=1), flush=True)
        for path in sorted((ROOT / "results" / "policies").iterdir()):
            found.append(measure(path, "published", folder))
            print(json.dumps(found[-1], indent=1), flush=True)
    if options.out:
        record = {"episodes": EPISODES, "policies": found, "seconds": round(time.perf_counter() - start)}
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
