"""The authors' agent stepping an environment, to compare with `dr-q bench` of the same task on the same machine.

    python benchmarks/authors.py CHECKOUT --task dmc/cheetah-run      # a checkout of dmksjfl/DR.Q; needs torch and CUDA

Their agent and replay are unchanged. The environment is stepped through our adapter, in this process, as theirs is.
"""

import dataclasses
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from dr_q.envs import make_env

EXPLORE = 1_000
PERIOD = 250


@dataclasses.dataclass
class Arguments:
    """What to time."""

    checkout: tyro.conf.Positional[Path]
    """A checkout of the authors' repository."""
    task: str = "dmc/cheetah-run"
    """The environment."""
    steps: int = 500
    """Agent steps to time, in whole target periods of 250."""


class NoLog:
    """Stands for their TensorBoard writer."""

    def add_scalar(self, *_: Any, **__: Any) -> None:
        pass


def find_agent(checkout: Path) -> str:
    """Make the authors' modules importable; what is missing, in a line, if they are not there."""
    if not (checkout / "DRQ" / "DRQ.py").exists():
        return f"no authors' agent at {checkout}: expected DRQ/DRQ.py there; give their checkout"
    sys.path.insert(0, str(checkout / "DRQ"))
    return ""


def main() -> int:
    arguments = tyro.cli(Arguments, description=__doc__)
    missing = find_agent(arguments.checkout)
    if missing:
        print(f"authors.py: {missing}", file=sys.stderr)
        return 2
    warnings.simplefilter("ignore")  # they convert a tensor that requires a gradient
    import DRQ  # pyright: ignore[reportMissingImports]
    import torch  # pyright: ignore[reportMissingImports]

    if not torch.cuda.is_available():
        print("authors.py: their replay needs CUDA, and torch finds none", file=sys.stderr)
        return 2
    env = make_env(arguments.task)
    spec = env.spec
    ((key, part),) = spec.obs.parts
    agent = DRQ.Agent(
        part.frame_shape, spec.action.dim, 1.0, bool(spec.obs.images), False, torch.device("cuda"), part.stack,
        {"buffer_size_before_training": float(EXPLORE)},
    )  # fmt: skip
    rng = np.random.default_rng(0)
    seconds = {"act": 0.0, "simulate": 0.0, "add": 0.0, "train": 0.0}
    obs = env.reset(0)[key]

    def step(episode: int) -> None:
        nonlocal obs
        start = time.perf_counter()
        action = agent.select_action(obs)
        if action is None:
            action = rng.uniform(-1, 1, spec.action.dim)
        acted = time.perf_counter()
        result = env.step(np.asarray(action, np.float32))
        simulated = time.perf_counter()
        agent.replay_buffer.add(obs, action, result.obs[key], result.reward, result.terminated, result.truncated)
        added = time.perf_counter()
        agent.train(NoLog())
        torch.cuda.synchronize()
        trained = time.perf_counter()
        for name, part in zip(
            seconds, (acted - start, simulated - acted, added - simulated, trained - added), strict=True
        ):
            seconds[name] += part
        obs = (env.reset(episode) if result.terminated or result.truncated else result.obs)[key]

    count = -(-arguments.steps // PERIOD) * PERIOD
    while agent.training_steps < PERIOD:  # explore, then warm up
        step(1)
    seconds = dict.fromkeys(seconds, 0.0)
    start = time.perf_counter()
    for i in range(count):
        step(i)
    whole = (time.perf_counter() - start) / count
    print(
        f"`{arguments.task}`, the authors' agent, 1 seed, replay of 1,000,000 slots\n\n| what | measured |\n|---|---|"
    )
    print(f"| steps/s, after exploration, evaluation apart | **{1 / whole:.1f}** |")
    print(f"| agent step | {1000 * whole:.2f} ms |")
    for name, value in seconds.items():
        print(f"| - of it {name} | {1000 * value / count:.2f} ms |")
    print(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
