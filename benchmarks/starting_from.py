"""What `--init` and `--prefill` change in learning, on the arm of `examples/arm.py`; about 15 minutes of one core.

    python benchmarks/starting_from.py --out benchmarks/results/starting_from.json

1. Fine-tuning: an agent of an arm is trained on with `init` on an arm whose motors are 2.5 times as strong, and another
   agent from scratch. Counted are the agent steps to the first evaluation of at least 90% of the score that the runs
   from scratch end with, seed by seed.
2. Prior data: 100 episodes of a trained policy are recorded with Minari on an arm with sparse rewards, and enter the
   replay of a new run before its first step (`prefill`), which is compared with a run without them.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
SEEDS = 5
SIZES = {
    "batch_size": 64,
    "zs_dim": 64,
    "zsa_dim": 64,
    "za_dim": 32,
    "encoder_hidden": 64,
    "actor_hidden": 64,
    "critic_hidden": 64,
    "target_period": 100,
}
RUN = {"seeds": SEEDS, "eval_every": 500, "eval_episodes": 10, "quiet": True, "in_process": True, **SIZES}
SHARE = 0.9
RESAMPLES = 10_000


def train(task: str, out: Path, **settings: Any) -> None:
    """Train, unless the folder has the finished run already."""
    import dr_q

    record = out / "run.json"
    if not (record.exists() and json.loads(record.read_text())["status"] == "finished"):
        dr_q.train(task, out=out, **settings)


def scores(run: Path) -> np.ndarray:
    """[evaluations, seeds] returns of a run, and the steps of its evaluations."""
    rows = [line.split(",") for line in (run / "evals.csv").read_text().splitlines()]
    head, rows = rows[0], rows[1:]
    seed, score = head.index("seed"), head.index("return_mean")
    return np.array([[float(row[score]) for row in rows if int(row[seed]) == s] for s in range(SEEDS)]).T


def steps_to(curve: np.ndarray, target: float) -> np.ndarray:
    """Agent steps to the first evaluation that reaches the target, of each seed; NaN if none does."""
    reached = curve >= target
    steps = reached.argmax(axis=0) * float(RUN["eval_every"])
    return np.where(reached.any(axis=0), steps, np.nan)


def interval(values: np.ndarray) -> list[float]:
    """95% interval of a mean, by resampling seeds."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1)
    return [float(x) for x in np.quantile(means, [0.025, 0.975])]


def fine_tuning(folder: Path, steps: int) -> dict[str, Any]:
    """Train an agent, then an arm with other motors from its weights and from scratch."""
    weak, strong = "examples.arm:Arm-v0", "examples.arm:StrongArm-v0"
    train(weak, folder / "source", steps=steps, exploration_steps=1_000, **RUN)
    train(strong, folder / "scratch", steps=steps, exploration_steps=1_000, **RUN)
    train(strong, folder / "init", steps=steps, init=folder / "source", warmup_steps=500, **RUN)
    scratch, tuned = scores(folder / "scratch"), scores(folder / "init")
    target = SHARE * float(scratch[-1].mean())
    needed, needed_tuned = steps_to(scratch, target), steps_to(tuned, target)
    saved = needed - needed_tuned
    return {
        "return by evaluation, from scratch": scratch.mean(axis=1).round(2).tolist(),
        "return by evaluation, init": tuned.mean(axis=1).round(2).tolist(),
        "target": round(target, 2),
        "steps to target, from scratch": needed.tolist(),
        "steps to target, init": needed_tuned.tolist(),
        "steps saved, mean": float(saved.mean()),
        "steps saved, 95% interval": interval(saved),
    }


def prior_data(folder: Path, steps: int) -> dict[str, Any]:
    """Record a policy with Minari, then train with and without its transitions."""
    import gymnasium
    import minari  # pyright: ignore[reportMissingImports]

    import dr_q

    os.environ["MINARI_DATASETS_PATH"] = str(folder / "minari")
    policy = dr_q.load(folder / "source")
    collector = minari.DataCollector(gymnasium.make("examples.arm:SparseArm-v0"), record_infos=False)
    returns = []
    for episode in range(100):
        obs, _ = collector.reset(seed=10_000 + episode)
        total, over = 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = collector.step(policy.act(obs))
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    collector.create_dataset(dataset_id="arm/recorded-v0", algorithm_name="DR.Q", author="dr-q")
    sparse = "examples.arm:SparseArm-v0"
    train(sparse, folder / "empty", steps=steps, exploration_steps=1_000, **RUN)
    given = {"prefill": "minari:arm/recorded-v0", "pretrain": 500, "exploration_steps": 0}
    train(sparse, folder / "prefilled", steps=steps, **given, **RUN)
    empty, prefilled = scores(folder / "empty"), scores(folder / "prefilled")
    return {
        "return of the recorded episodes": round(float(np.mean(returns)), 2),
        "prefill": json.loads((folder / "prefilled" / "run.json").read_text())["started_from"]["prefill"],
        "return by evaluation, empty replay": empty.mean(axis=1).round(2).tolist(),
        "return by evaluation, prefill": prefilled.mean(axis=1).round(2).tolist(),
        "at step": RUN["eval_every"],
        "empty replay there, 95% interval": interval(empty[1]),
        "prefill there, 95% interval": interval(prefilled[1]),
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a file for the numbers")
    parser.add_argument("--steps", type=int, default=8_000, help="agent steps of each run")
    parser.add_argument("--prefilled-steps", type=int, default=2_000, help="the same of the runs on prior data")
    parser.add_argument("--runs", type=Path, help="a folder for the runs, whose finished ones are used again")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.runs or Path(temporary)
        found = {
            "settings": {**RUN, "steps": options.steps, "prefilled_steps": options.prefilled_steps},
            "fine-tuning": fine_tuning(folder, options.steps),
            "prior data": prior_data(folder, options.prefilled_steps),
        }
    found["seconds"] = round(time.perf_counter() - start)
    text = json.dumps(found, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
