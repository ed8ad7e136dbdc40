"""What the run folders of earlier versions in `tests/data` were made with.

    git worktree add /tmp/earlier 675da62
    PYTHONPATH=/tmp/earlier/src python tests/run_folder/earlier.py tests/data/runs-675da62

Runs that were stopped: two seeds of MR.Q on Hopper-v4, with small chunks so that there are several, and images from a
callable.
"""

import json
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
    from dr_q.run import checkpoint  # pyright: ignore[reportMissingImports] - of that version

    import dr_q

    checkpoint.CHUNK_BYTES = 1  # one row of 128 slots
    run: dict[str, Any] = {"eval_every": 40, "eval_episodes": 1, "keep": 1, "quiet": True}
    dr_q.train(
        "gym/Hopper-v4", preset="mr.q", seeds=2, steps=160, checkpoint_every=160, out=folder / "states", **SIZES, **run
    )
    dr_q.train(SmallImages, steps=80, checkpoint_every=80, out=folder / "images", **SIZES, **run)
    vector, frames = np.linspace(-1, 1, 11), (np.arange(3 * 32 * 32) % 256).astype(np.uint8).reshape(3, 32, 32)
    actions = {f"states/{seed}": dr_q.load(folder / "states", seed).act(vector).tolist() for seed in (0, 1)}
    actions["images/0"] = dr_q.load(folder / "images").act(frames).tolist()
    (folder / "actions.json").write_text(json.dumps(actions, indent=1) + "\n")
    for tensorboard in folder.glob("*/tensorboard"):
        shutil.rmtree(tensorboard)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
