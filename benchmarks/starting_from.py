"""What `--init`, `--prefill` and `--pretrain-policy` change in learning, on the arm of `examples/arm.py`.

    python benchmarks/starting_from.py --out starting_from.json                        # about 20 minutes of one core
    python benchmarks/starting_from.py --only pretraining --out starting_from.json     # about 5 minutes

1. Fine-tuning: an agent of an arm is trained on with `init` on an arm whose motors are 2.5 times as strong, and another
   agent from scratch. Counted are the agent steps to the first evaluation of at least 90% of the score that the runs
   from scratch end with, seed by seed.
2. Prior data: 100 episodes of a trained policy are recorded with Minari on an arm with sparse rewards, and enter the
   replay of a new run before its first step (`prefill`), which is compared with a run without them.
3. Pre-training: 200 episodes of a trained policy with noise are recorded with Minari. Runs on them with and without
   updates of critics and actor before step 0 (`pretrain_policy`) are compared at step 0. The noise is different in each
   episode, from none to as large as the bounds; or there is none, as in data of a finished policy.
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
PRETRAIN = 8_000
SHARE = 0.9
RESAMPLES = 10_000
FROM_STEP_0: dict[str, Any] = {"exploration_steps": 0}
"""Runs on prior data act by their policy from the beginning."""


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


def record(folder: Path, source: Path, task: str, dataset: str, noise: np.ndarray) -> np.ndarray:
    """Record a run's policy with Minari; `noise` is the standard deviation of each episode's. Gives their returns."""
    import gymnasium
    import minari  # pyright: ignore[reportMissingImports]

    import dr_q

    os.environ["MINARI_DATASETS_PATH"] = str(folder / "minari")
    policy, rng = dr_q.load(source), np.random.default_rng(0)
    collector = minari.DataCollector(gymnasium.make(task), record_infos=False)
    returns = []
    for episode, deviation in enumerate(noise):
        obs, _ = collector.reset(seed=10_000 + episode)
        total, over = 0.0, False
        while not over:
            action = policy.act(obs)
            noisy = np.clip(action + deviation * rng.normal(size=action.shape), -1, 1).astype(np.float32)
            obs, reward, terminated, truncated, _ = collector.step(noisy)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    if dataset not in minari.list_local_datasets():
        collector.create_dataset(dataset_id=dataset, algorithm_name="DR.Q", author="dr-q")
    return np.array(returns)


def pretraining(folder: Path, steps: int) -> dict[str, Any]:
    """Compare runs on recorded data at step 0, and after some steps, with and without updates before step 0."""
    task, source = "examples.arm:Arm-v0", folder / "pretraining-source"
    train(task, source, steps=10_000, exploration_steps=1_000, **{**RUN, "seeds": 1, "eval_every": 2_500})
    spread = np.random.default_rng(1).permutation(np.linspace(0, 1, 200))
    found: dict[str, Any] = {"updates": PRETRAIN}
    for name, noise in (("mixed", spread), ("narrow", np.zeros(200))):
        dataset = f"arm/{name}-v0"
        returns = record(folder, source, task, dataset, noise)
        part: dict[str, Any] = {"return of the recorded episodes": round(float(returns.mean()), 2)}
        for updates in (0, PRETRAIN):
            run = folder / f"{name}-{updates}"
            length = steps if name == "mixed" else 1
            train(task, run, steps=length, prefill=f"minari:{dataset}", pretrain_policy=updates, **FROM_STEP_0, **RUN)
            curve = scores(run)
            part[f"pretrain_policy {updates}"] = {
                "return of each seed at step 0": curve[0].round(2).tolist(),
                "mean": round(float(curve[0].mean()), 2),
                "95% interval": interval(curve[0]),
                "return by evaluation": curve.mean(axis=1).round(2).tolist(),
            }
        gain = scores(folder / f"{name}-{PRETRAIN}")[0] - scores(folder / f"{name}-0")[0]
        found[name] = {**part, "gain at step 0": float(gain.mean()), "95% interval of the gain": interval(gain)}
    return found


def prior_data(folder: Path, steps: int) -> dict[str, Any]:
    """Record a policy with Minari, then train with and without its transitions."""
    sparse = "examples.arm:SparseArm-v0"
    returns = record(folder, folder / "source", sparse, "arm/recorded-v0", np.zeros(100))
    train(sparse, folder / "empty", steps=steps, exploration_steps=1_000, **RUN)
    given = {"prefill": "minari:arm/recorded-v0", "pretrain": 500}
    train(sparse, folder / "prefilled", steps=steps, **given, **FROM_STEP_0, **RUN)
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
    parser.add_argument("--pretrained-steps", type=int, default=1_000, help="the same of those that are pre-trained")
    parser.add_argument(
        "--only", choices=("fine-tuning", "prior data", "pretraining"), help="prior data need the first"
    )
    parser.add_argument("--runs", type=Path, help="a folder for the runs, whose finished ones are used again")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.runs or Path(temporary)
        parts = {
            "fine-tuning": lambda: fine_tuning(folder, options.steps),
            "prior data": lambda: prior_data(folder, options.prefilled_steps),
            "pretraining": lambda: pretraining(folder, options.pretrained_steps),
        }
        given = {"prefilled_steps": options.prefilled_steps, "pretrained_steps": options.pretrained_steps}
        found: dict[str, Any] = {"settings": {**RUN, "steps": options.steps, **given}}
        found |= {name: measure() for name, measure in parts.items() if options.only in (None, name)}
    found["cpu seconds"] = round(time.process_time())
    found["seconds"] = round(time.perf_counter() - start)
    text = json.dumps(found, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
