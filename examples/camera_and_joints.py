"""DeepMind Control from pixels with proprioception: a camera image beside the joints' positions and velocities.

    cd examples
    dr-q train camera_and_joints:ReacherEasy-v0 --seeds 3 --steps 50000
    dr-q train camera_and_joints:ReacherEasyJoints-v0 --seeds 3 --steps 50000    # without the camera

The reacher's arm must reach a target. Its joints do not say where the target is; only the camera shows it.
"""

from typing import ClassVar

import gymnasium
import numpy as np
from dm_control import suite

SIZE = 84
FRAMES_PER_STEP = 2
STEPS = 500


class CameraAndJoints(gymnasium.Env):
    """A dm_control task whose observation is a Dict of an image and of chosen entries of its state."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 25}  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, domain: str, task: str, joints: tuple[str, ...], camera: bool = True, render_mode=None):
        self.render_mode, self._joints, self._camera = render_mode, joints, camera
        self._env = suite.load(domain, task, task_kwargs={"random": 0})
        bounds, state = self._env.action_spec(), self._env.observation_spec()
        self.action_space = gymnasium.spaces.Box(bounds.minimum.astype(np.float32), bounds.maximum.astype(np.float32))
        size = sum(int(np.prod(state[name].shape)) for name in joints)
        parts: dict[str, gymnasium.spaces.Space] = {
            "joints": gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        }
        if camera:
            parts["camera"] = gymnasium.spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8)
        self.observation_space = gymnasium.spaces.Dict(parts)
        self._steps = 0

    def reset(self, *, seed=None, options=None):
        """Start an episode from the task's generator seeded anew."""
        super().reset(seed=seed)
        if seed is not None:
            self._env.task.random.seed(seed)
        self._steps = 0
        return self._observe(self._env.reset()), {}

    def step(self, action):
        """The action for two frames, rewards summed."""
        seen = [self._env.step(action) for _ in range(FRAMES_PER_STEP)]
        self._steps += 1
        return self._observe(seen[-1]), sum(float(s.reward) for s in seen), False, self._steps == STEPS, {}

    def render(self):
        """What the camera sees."""
        return self._env.physics.render(SIZE, SIZE, camera_id=0)

    def close(self):
        """Free the simulator and what it draws with."""
        self._env.physics.free()

    def _observe(self, time_step):
        state = [np.asarray(time_step.observation[name], np.float32).reshape(-1) for name in self._joints]
        joints = {"joints": np.concatenate(state)}
        return {**joints, "camera": self.render()} if self._camera else joints


_REACHER = {"domain": "reacher", "task": "easy", "joints": ("position", "velocity")}
gymnasium.register("ReacherEasy-v0", "camera_and_joints:CameraAndJoints", kwargs=_REACHER)
gymnasium.register("ReacherEasyJoints-v0", "camera_and_joints:CameraAndJoints", kwargs={**_REACHER, "camera": False})
_WALKER = {"domain": "walker", "task": "run", "joints": ("orientations", "height", "velocity")}
gymnasium.register("WalkerRun-v0", "camera_and_joints:CameraAndJoints", kwargs=_WALKER)
