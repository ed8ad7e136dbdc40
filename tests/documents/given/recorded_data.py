"""Record random episodes of `my_robot:Reach-v0`: a Minari dataset, reach/expert-v0, and logs.npz."""

import os
import sys
import warnings
from pathlib import Path
from typing import Any

os.environ["MINARI_DATASETS_PATH"] = str(Path.cwd() / "minari")

sys.path.insert(0, str(Path.cwd()))  # my_robot.py there, not the script beside this one

import gymnasium
import minari
import my_robot
import numpy as np

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    env = minari.DataCollector(gymnasium.wrappers.TimeLimit(my_robot.Reach(), 100))  # pyright: ignore[reportAttributeAccessIssue] - of the page
    names = ("observations", "actions", "rewards", "next_observations", "terminations", "truncations")
    rows: dict[str, list] = {name: [] for name in names}
    for episode in range(3):
        obs, _ = env.reset(seed=episode)
        env.action_space.seed(episode)
        over = False
        while not over:
            action = env.action_space.sample()
            next_obs, reward, terminated, truncated, _ = env.step(action)
            for name, x in zip(names, (obs, action, reward, next_obs, terminated, truncated), strict=True):
                rows[name].append(x)
            obs, over = next_obs, terminated or truncated
    env.create_dataset(dataset_id="reach/expert-v0")
    arrays: dict[str, Any] = {name: np.asarray(values) for name, values in rows.items()}
    np.savez("logs.npz", **arrays)
