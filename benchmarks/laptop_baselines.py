"""One run of a Stable-Baselines3 or SBX algorithm for `laptop.py`, with the library's default settings.

It imports nothing of dr-q and runs in an environment of its own:

    pip install stable-baselines3 sbx-rl dm_control "gymnasium[mujoco]" "mujoco<4"
    python laptop_baselines.py sb3-sac dmc/cartpole-swingup --seed 0 --steps 20000 --target 690 --out evaluations.csv
"""

import argparse
import csv
from pathlib import Path

import gymnasium
import numpy as np

ACTION_REPEAT = 2
EVALUATE_EVERY = 1_000
EPISODES = 5


class Dmc(gymnasium.Env):
    """A task of dm_control as dr-q has it: a flat vector, an action repeat of 2, 500 agent steps."""

    def __init__(self, name: str):
        from dm_control import suite

        domain, _, task = name.partition("-")
        self._env = suite.load(domain, task.replace("-", "_"))
        bounds = self._env.action_spec()
        self.action_space = gymnasium.spaces.Box(
            bounds.minimum.astype(np.float32), bounds.maximum.astype(np.float32), bounds.shape, np.float32
        )
        size = sum(int(np.prod(part.shape)) for part in self._env.observation_spec().values())
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self._env.task.random.seed(seed)
        return self._flat(self._env.reset()), {}

    def step(self, action):
        last = self._env.step(action)
        reward = last.reward or 0.0
        for _ in range(ACTION_REPEAT - 1):
            if not last.last():
                last = self._env.step(action)
                reward += last.reward or 0.0
        return self._flat(last), reward, False, last.last(), {}

    @staticmethod
    def _flat(time_step):
        return np.concatenate([np.ravel(part) for part in time_step.observation.values()]).astype(np.float32)


def make(task: str) -> gymnasium.Env:
    """The environment of a task of dr-q."""
    prefix, _, name = task.partition("/")
    return Dmc(name) if prefix == "dmc" else gymnasium.make(name)


def algorithm(name: str):
    """A class with the interface of Stable-Baselines3."""
    if name == "sb3-sac":
        from stable_baselines3 import SAC  # pyright: ignore[reportMissingImports]

        return SAC
    import sbx  # pyright: ignore[reportMissingImports]

    return {"sbx-sac": sbx.SAC, "sbx-crossq": sbx.CrossQ}[name]


def main() -> None:
    """Train until an evaluation reaches the target, or to the last step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", choices=("sb3-sac", "sbx-sac", "sbx-crossq"))
    parser.add_argument("task")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--target", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    from stable_baselines3.common.callbacks import BaseCallback  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.evaluation import evaluate_policy  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.monitor import Monitor  # pyright: ignore[reportMissingImports]

    test = Monitor(make(options.task))
    test.reset(seed=10_000 + options.seed)

    class Evaluate(BaseCallback):
        """Writes every evaluation, and stops at the target."""

        def _on_step(self) -> bool:
            if self.num_timesteps % EVALUATE_EVERY:
                return True
            mean, _ = evaluate_policy(self.model, test, EPISODES, deterministic=True)
            writer.writerow((self.num_timesteps, float(mean)))
            file.flush()
            return bool(mean < options.target)

    with options.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("agent_steps", "return_mean"))
        model = algorithm(options.algorithm)("MlpPolicy", Monitor(make(options.task)), seed=options.seed, device="cpu")
        model.learn(options.steps, callback=Evaluate())


if __name__ == "__main__":
    main()
