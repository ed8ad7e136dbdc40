"""Environments of discrete actions and of observations with several parts, whose answers are known."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tests.envs.toys import Toy

SIDE = 32


class DiscreteBandit(Toy):
    """Rewards 0.2, 1.0, 0.5 and the end: the policy is 1, its value 1."""

    action_space = spaces.Discrete(3)

    def outcome(self, action):
        return (0.2, 1.0, 0.5)[int(action)], True, False


class DiscreteChain(Toy):
    """Five states. Action 7 goes on, and at the end gives 1; action 6 ends with 0.3. Q = discount^(steps left)."""

    action_space = spaces.Discrete(2, start=6)

    def outcome(self, action):
        if int(action) == 6:
            return 0.3, True, False
        return float(self.t == 4), self.t == 4, False


class TwoChoices(Toy):
    """MultiDiscrete: reward 1 for (2, 0) alone, a little for each choice that is right."""

    action_space = spaces.MultiDiscrete([3, 2])

    def step(self, action) -> Any:
        first, second = map(int, action)
        right = (first == 2) + (second == 0)
        return self.observe(), (0.0, 0.25, 1.0)[right], True, False, {}


class ImageGoal(gymnasium.Env):
    """The image shows the goal, left or right, and the vector the position. Each alone says nothing of the way to go.

    The agent begins at -1 .. 1, the goal is at -0.5 or 0.5, and the reward is the progress towards it.
    """

    observation_space: spaces.Space = spaces.Dict(
        {"camera": spaces.Box(0, 255, (SIDE, SIDE, 1), np.uint8), "position": spaces.Box(-2, 2, (1,), np.float32)}
    )
    action_space: spaces.Space = spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - as Gymnasium has it
    LENGTH = 12

    def __init__(self, render_mode: str | None = None):
        self.render_mode = render_mode

    def render(self) -> Any:
        return np.repeat(self.observe()["camera"], 3, axis=2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.goal = float(self.np_random.choice([-0.5, 0.5]))
        self.x, self.t = float(self.np_random.uniform(-1, 1)), 0
        return self.observe(), {}

    def observe(self) -> Any:
        image = np.zeros((SIDE, SIDE, 1), np.uint8)
        half = SIDE // 2
        image[:, half:] = 255 * (self.goal > 0)
        image[:, :half] = 255 * (self.goal < 0)
        return {"camera": image, "position": np.array([self.x], np.float32)}

    def step(self, action) -> Any:
        before = abs(self.x - self.goal)
        self.x += 0.2 * (2 * int(action) - 1)
        self.t += 1
        return self.observe(), before - abs(self.x - self.goal), False, self.t == self.LENGTH, {}


class ImageGoalSigns(ImageGoal):
    """The same in three steps: the reward is 1 for a step towards the goal and -1 for one away from it."""

    LENGTH = 3

    def step(self, action) -> Any:
        obs, progress, _, ended, info = super().step(action)
        return obs, float(np.sign(progress)), ended, False, info


class Nested(Toy):
    """Everything at once: a Tuple in a Dict, images of two sizes, choices, bits, a matrix."""

    observation_space = spaces.Dict(
        {
            "cameras": spaces.Dict(
                {
                    "front": spaces.Box(0, 255, (33, 40, 3), np.uint8),
                    "wrist": spaces.Box(0, 255, (SIDE, SIDE, 1), np.uint8),
                }
            ),
            "arm": spaces.Tuple((spaces.Box(-10, 10, (2, 2), np.float64), spaces.Discrete(3, start=1))),
            "mode": spaces.MultiDiscrete([2, 3]),
            "lamps": spaces.MultiBinary(3),
        }
    )
    action_space = spaces.MultiDiscrete([2, 3])

    def observe(self):
        return {
            "cameras": {
                "front": np.full((33, 40, 3), self.t, np.uint8),
                "wrist": np.full((SIDE, SIDE, 1), 100 + self.t, np.uint8),
            },
            "arm": (np.arange(4.0).reshape(2, 2) + self.t, np.int64(1 + self.t % 3)),
            "mode": np.array([self.t % 2, self.t % 3]),
            "lamps": np.array([1, 0, self.t % 2], np.int8),
        }

    def step(self, action) -> Any:
        self.t += 1
        return self.observe(), float(action[0]), False, self.t == 10, {}


class Choices(Toy):
    """No images: numbers and choices, nested, as one vector."""

    observation_space = spaces.Dict(
        {"at": spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32))), "bits": spaces.MultiBinary(2)}
    )

    def observe(self):
        return {"at": (self.t % 3, np.array([0.5, -0.5], np.float32)), "bits": np.array([0, 1], np.int8)}

    def outcome(self, action):
        return 0.0, False, self.t == 9


class Large(Toy):
    """Numbers in the thousands, which learn only if they are normalised."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def observe(self):
        return np.array([5000 + self.t, -300 * self.t], np.float32)

    def outcome(self, action):
        return 0.0, False, self.t == 9


gymnasium.register("drq-image-goal-v0", entry_point="tests.envs.mixed_toys:ImageGoal")
