"""What the run folders of earlier versions in `tests/data` were made with.

    git worktree add /tmp/earlier 675da62
    PYTHONPATH=/tmp/earlier/src python tests/run_folder/earlier.py tests/data/runs-675da62

Two runs, stopped at step 80 of 120: two seeds of MR.Q on Hopper-v4, and images from a callable.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

SIZES: dict[str, Any] = {
    "batch_size": 8,
    "zs_dim": 8,
    "zsa_dim": 8,
    "za_dim": 4,
    "encoder_hidden": 8,
    "actor_hidden": 8,
    "critic_hidden": 8,
    "target_period": 10,
    "exploration_steps": 40,
}


class SmallImages(gymnasium.Env):
    """Grey images of 32 x 32 that show the step; the action moves the reward."""

    observation_space = gymnasium.spaces.Box(0, 255, (32, 32, 1), np.uint8)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._image(), {}

    def step(self, action):
        self.t += 1
        return self._image(), float(action[0]), False, self.t == 12, {}

    def _image(self):
        return np.full((32, 32, 1), 20 * self.t, np.uint8)


def main(folder: Path) -> None:
    import dr_q

    run: dict[str, Any] = {"eval_every": 40, "eval_episodes": 1, "checkpoint_every": 80, "keep": 1, "quiet": True}
    dr_q.train("gym/Hopper-v4", preset="mr.q", seeds=2, steps=80, out=folder / "states", **SIZES, **run)
    dr_q.train(SmallImages, steps=80, out=folder / "images", **SIZES, **run)
    for tensorboard in folder.glob("*/tensorboard"):
        shutil.rmtree(tensorboard)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
