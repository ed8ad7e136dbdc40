"""What many environments per agent (`--envs`) bring: transitions per second of a slow simulator, and learning.

    python benchmarks/lanes.py speed --out lanes                      # 20 ms per step, --envs 1 and 8
    python benchmarks/lanes.py learn --out lanes                      # Hopper-v4 and cheetah-run, --envs 1, 4, 8
    python benchmarks/lanes.py learn --out lanes --tasks dmc/cheetah-run --envs 8    # a part of it; parts add up
    python benchmarks/lanes.py table --out lanes                      # from what is there

`speed` steps a simulator that computes for 20 ms in every step (`--sleep`: waits instead), by itself and in a run that
learns from its first steps on, and writes speed.json. `learn` makes runs under OUT/runs that can be repeated after an
interruption: finished ones are kept, others are resumed. `table` compares final returns (the mean of the last three
evaluations of each seed) with those of `--envs 1`, with a 95% bootstrap interval over seeds, and the seconds that each
run took. It also writes return against wall time from the runs' own records (evals.csv, metrics.csv): curves.csv has a
row for each evaluation of a seed, curves.png a panel for each task. These seconds are those of the training loop,
evaluations and checkpoints included; starting and compiling are not among them.
"""

import argparse
import csv
import functools
import json
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

import dr_q
from dr_q.envs import Source, cores, open_pool
from dr_q.report.canvas import draw_mean_curve, new_figure, save_figure
from dr_q.report.statistics import mean
from dr_q.training.versions import versions
from versions import milliseconds_per_step

TASKS = ("gym/Hopper-v4", "dmc/cheetah-run")
LAST = 3
"""Evaluations whose mean is a seed's score."""


class Slow(gymnasium.Env):
    """A point that is pushed around; every step takes some time."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (8,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, seconds: float = 0.02, sleep: bool = False):
        self.seconds, self.sleep = seconds, sleep

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Somewhere."""
        super().reset(seed=seed)
        self.t, self.x = 0, self.np_random.normal(size=8).astype(np.float32)
        return self.x.copy(), {}

    def step(self, action):
        """Compute, or wait."""
        end = time.perf_counter() + self.seconds
        if self.sleep:
            time.sleep(self.seconds)
        while time.perf_counter() < end:
            pass
        self.t += 1
        self.x[:2] += 0.1 * action
        return self.x.copy(), -float(np.abs(self.x[:2]).sum()), False, self.t == 200, {}


def speed(arguments: argparse.Namespace) -> None:
    """Transitions per second of the simulators alone and of training, for each number of environments."""
    make = functools.partial(Slow, arguments.seconds, arguments.sleep)
    found: dict[str, dict[str, float]] = {}
    for envs in arguments.envs:
        rates = {"simulating": _simulating(arguments, make, envs), "training": _training(arguments, make, envs)}
        found[str(envs)] = rates
        print(f"--envs {envs}: {_shown(rates, ' transitions/s', 1)}", flush=True)
    first = found[str(arguments.envs[0])]
    ratios = {n: {kind: rates[kind] / first[kind] for kind in rates} for n, rates in found.items()}
    record = {"ms_per_step": 1000 * arguments.seconds, "sleeps": arguments.sleep, "preset": arguments.preset}
    record |= {"rates": found, "ratios": ratios, "machine": {**versions(), "cores": cores()}}
    (arguments.out / "speed.json").write_text(json.dumps(record, indent=1) + "\n")
    for n, ratio in ratios.items():
        print(f"--envs {n}: {_shown(ratio, 'x', 2)}")


def _shown(values: dict[str, float], unit: str, digits: int) -> str:
    return ", ".join(f"{kind} {value:.{digits}f}{unit}" for kind, value in values.items())


def _simulating(arguments: argparse.Namespace, make: Any, envs: int) -> float:
    """Of simulators that wait for nothing else."""
    pool = open_pool(Source(make), [0], 1, in_process=False, lanes=envs)
    try:
        pool.begin()
        start = time.perf_counter()
        for _ in range(arguments.steps // 4):
            pool.send(np.zeros((envs, 2), np.float32))
            pool.receive()
        return envs * (arguments.steps // 4) / (time.perf_counter() - start)
    finally:
        pool.close()


def _training(arguments: argparse.Namespace, make: Any, envs: int) -> float:
    """Of a run that learns from its first steps on: what metrics.csv says, without the first rows, which warm up."""
    steps, out = arguments.steps * envs, arguments.out / f"speed-envs{envs}"
    shutil.rmtree(out, ignore_errors=True)
    result = dr_q.train(
        make, preset=arguments.preset, steps=steps, num_envs=envs, eval_every=steps, eval_episodes=1,
        checkpoint_every=steps, exploration_steps=8 * envs, log_every=steps // 10, in_process=False, quiet=True,
        out=out,
    )  # fmt: skip
    _stop_unless_finished(result)
    with (out / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))[2:]
    return 1000 / milliseconds_per_step(rows)


def learn(arguments: argparse.Namespace) -> None:
    """Train each task with each number of environments: the same number of transitions."""
    for task in arguments.tasks:
        for envs in arguments.envs:
            out = _run_of(arguments.out, task, envs)
            record = json.loads((out / "run.json").read_text()) if (out / "run.json").exists() else None
            if record is not None and record["status"] == "finished":
                continue
            start, before = time.perf_counter(), _seconds(out)
            if record is not None:
                result = dr_q.train(resume=out, quiet=True)
            else:
                result = dr_q.train(
                    task, preset=arguments.preset, seeds=arguments.seeds, steps=arguments.steps, num_envs=envs,
                    eval_every=arguments.eval_every, checkpoint_every=arguments.eval_every, quiet=True, out=out,
                )  # fmt: skip
            seconds = before + time.perf_counter() - start
            _seconds_file(out).write_text(json.dumps(seconds))
            _stop_unless_finished(result)
            print(f"{task} --envs {envs}: {seconds:.0f} s", flush=True)
    table(arguments)


def _stop_unless_finished(result: dr_q.TrainResult) -> None:
    """What was interrupted is no measurement."""
    if result.status != "finished":
        raise SystemExit(f"lanes.py: {result.folder} was {result.status}; the same command continues")


def _is_finished(out: Path) -> bool:
    return (out / "run.json").exists() and json.loads((out / "run.json").read_text())["status"] == "finished"


def table(arguments: argparse.Namespace) -> None:
    """Scores and seconds of the runs that are finished."""
    least = min(arguments.envs)
    lines = [f"| task | --envs | seeds | return | difference from --envs {least} (95% CI) | seconds |"]
    lines.append(f"|{'---|' * 6}")
    for task in arguments.tasks:
        first = None
        for envs in sorted(arguments.envs):
            out = _run_of(arguments.out, task, envs)
            if not _is_finished(out):
                continue
            scores = _scores(out)
            first = scores if envs == least else first
            gap = ""
            if first is not None and envs != least:
                low, high = _interval(scores, first)
                gap = f"{scores.mean() - first.mean():+.0f} ({low:+.0f} to {high:+.0f})"
            lines.append(f"| {task} | {envs} | {len(scores)} | {scores.mean():.0f} | {gap} | {_seconds(out):.0f} |")
    text = "\n".join(lines)
    print(text)
    (arguments.out / "learn.md").write_text(text + "\n")
    curves(arguments)


def curves(arguments: argparse.Namespace) -> None:
    """Return against wall time, as a file of rows and as a figure."""
    there = [(t, n) for t in arguments.tasks for n in arguments.envs if _is_finished(_run_of(arguments.out, t, n))]
    found = {(task, envs): curve(_run_of(arguments.out, task, envs)) for task, envs in there}
    with (arguments.out / "curves.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["task", "envs", "seed", "agent_steps", "seconds", "return_mean"])
        for (task, envs), points in found.items():
            writer.writerows([task, envs, p.seed, p.agent_steps, f"{p.seconds:.1f}", p.value] for p in points)
    tasks = [task for task in arguments.tasks if any(task == known for known, _ in found)]
    if not tasks:
        return
    figure, panels = new_figure(4.2 * len(tasks), 3.4, 1, len(tasks))
    for panel, task in zip(panels, tasks, strict=True):
        for index, envs in enumerate(n for known, n in found if known == task):
            by_step: dict[int, list[Point]] = {}
            for point in found[task, envs]:
                by_step.setdefault(point.agent_steps, []).append(point)
            seconds = [points[0].seconds for points in by_step.values()]
            means = [mean(p.value for p in points) for points in by_step.values()]
            draw_mean_curve(panel, seconds, means, index, label=f"--envs {envs}")
        panel.set(title=task, xlabel="seconds of training")
        panel.legend(frameon=False, fontsize=7)
    panels[0].set_ylabel("return")
    save_figure(figure, "Return against wall time: mean over seeds, 95% interval", arguments.out / "curves.png")


class Point(NamedTuple):
    """An evaluation of a seed."""

    seed: int
    agent_steps: int
    seconds: float
    """Of the training loop until then."""
    value: float
    """Mean return."""


def curve(run: Path) -> list[Point]:
    """The evaluations of a run with the seconds that its loop had taken, from its own records."""
    with (run / "metrics.csv").open(newline="") as file:
        logged = {int(row["agent_steps"]): row for row in csv.DictReader(file)}  # times are the same for all seeds
    steps, seconds = [0], [0.0]
    for at, row in sorted(logged.items()):
        took = sum(float(x or 0) for name, x in row.items() if name.startswith("ms_")) / 1000
        seconds.append(seconds[-1] + took * (at - steps[-1]))
        steps.append(at)
    with (run / "evals.csv").open(newline="") as file:
        rows = [(int(row["seed"]), int(row["agent_steps"]), float(row["return_mean"])) for row in csv.DictReader(file)]
    return [Point(seed, at, float(np.interp(at, steps, seconds)), value) for seed, at, value in rows]


def _run_of(out: Path, task: str, envs: int) -> Path:
    return out / "runs" / f"{task.replace('/', '-')}-envs{envs}"


def _seconds_file(run: Path) -> Path:
    return run.with_name(f"{run.name}.seconds.json")


def _seconds(run: Path) -> float:
    """That a run has taken so far."""
    file = _seconds_file(run)
    return json.loads(file.read_text()) if file.exists() else 0.0


def _scores(run: Path) -> np.ndarray:
    """Of each seed, the mean of its last evaluations."""
    returns: dict[str, list[float]] = {}
    with (run / "evals.csv").open() as file:
        for row in csv.DictReader(file):
            returns.setdefault(row["seed"], []).append(float(row["return_mean"]))
    return np.array([np.mean(values[-LAST:]) for values in returns.values()])


def _interval(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Of the difference of means, by drawing seeds again."""
    rng = np.random.default_rng(0)
    gaps = [rng.choice(a, len(a)).mean() - rng.choice(b, len(b)).mean() for _ in range(10_000)]
    return float(np.quantile(gaps, 0.025)), float(np.quantile(gaps, 0.975))


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "learn", "table"))
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--envs", type=int, nargs="+", help="1 8 for speed, 1 4 8 for learn")
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="transitions; for speed of each environment")
    parser.add_argument("--eval-every", type=int, default=5_000)
    parser.add_argument("--preset", default="dr.q")
    parser.add_argument("--seconds", type=float, default=0.02, help="of a step of the slow simulator")
    parser.add_argument("--sleep", action="store_true", help="it waits instead of computing")
    arguments = parser.parse_args()
    measures = arguments.what == "speed"
    arguments.envs = arguments.envs or ([1, 8] if measures else [1, 4, 8])
    arguments.steps = arguments.steps or (1_000 if measures else 50_000)
    arguments.out.mkdir(parents=True, exist_ok=True)
    {"speed": speed, "learn": learn, "table": table}[arguments.what](arguments)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
