"""A planar arm with two joints that reaches for a target; used to show fine-tuning and prior data.

    dr-q check examples.arm:Arm-v0
    dr-q train examples.arm:Arm-v0 --steps 10000 --preset quick

`gain` is the strength of its motors, as it differs between two robots of one kind. Its reward is 1 within 0.1 of the
target and falls to 0 at 0.5; with `sparse=True` it is 1 within 0.1 and 0 elsewhere.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_STEP_S = 0.05
_EPISODE_STEPS = 60
_NEAR, _FAR = 0.1, 0.5


class Arm(gymnasium.Env):
    """Two links of length 0.5, driven by motors with damping; a new target in every episode."""

    observation_space = spaces.Box(-np.inf, np.inf, (10,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, gain: float = 1.0, sparse: bool = False):
        self.gain, self.sparse = gain, sparse

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Draw joint angles and a target."""
        super().reset(seed=seed)
        self._angles, self._speeds, self._step = self.np_random.uniform(-np.pi, np.pi, 2), np.zeros(2), 0
        radius, direction = self.np_random.uniform(0.3, 0.95), self.np_random.uniform(-np.pi, np.pi)
        self._target = radius * np.array([np.cos(direction), np.sin(direction)])
        return self._observe(), {}

    def step(self, action: np.ndarray):
        """Drive the motors for 50 ms."""
        push = 12.0 * self.gain * np.clip(np.asarray(action, np.float64), -1, 1)
        self._speeds = self._speeds + _STEP_S * (push - 2.0 * self._speeds)
        self._angles = self._angles + _STEP_S * self._speeds
        self._step += 1
        distance = float(np.linalg.norm(self._tip() - self._target))
        shaped = float(np.clip((_FAR - distance) / (_FAR - _NEAR), 0, 1))
        reward = float(distance < _NEAR) if self.sparse else shaped
        return self._observe(), reward, False, self._step >= _EPISODE_STEPS, {"is_success": distance < _NEAR}

    def _tip(self) -> np.ndarray:
        first, second = self._angles[0], self._angles.sum()
        return 0.5 * np.array([np.cos(first) + np.cos(second), np.sin(first) + np.sin(second)])

    def _observe(self) -> np.ndarray:
        joints = np.concatenate([np.cos(self._angles), np.sin(self._angles), self._speeds / 5.0])
        return np.concatenate([joints, self._target, self._tip() - self._target]).astype(np.float32)


gymnasium.register("Arm-v0", entry_point="examples.arm:Arm")
gymnasium.register("StrongArm-v0", entry_point="examples.arm:Arm", kwargs={"gain": 2.5})
gymnasium.register("SparseArm-v0", entry_point="examples.arm:Arm", kwargs={"sparse": True})
