"""Environments by name for jobs in other processes: `tests.sweep.toys:ID`; of one shape, so that they compile once."""

import time

import gymnasium

from tests.envs import toys


class Slow(toys.Walk):
    """Slow enough to be killed between two checkpoints."""

    def outcome(self, action):
        time.sleep(0.01)
        return super().outcome(action)


class Calm(toys.Walk):
    """Actions count for less."""

    def outcome(self, action):
        return super().outcome(0.5 * action)


class Breaks(toys.Walk):
    """Fails in its process after a while."""

    def outcome(self, action):
        if self.t == 2:
            raise RuntimeError("a cable broke")
        return super().outcome(action)


gymnasium.register("sweep-walk-v0", entry_point="tests.envs.toys:Walk")
gymnasium.register("sweep-slow-v0", entry_point="tests.sweep.toys:Slow")
gymnasium.register("sweep-calm-v0", entry_point="tests.sweep.toys:Calm")
gymnasium.register("sweep-breaks-v0", entry_point="tests.sweep.toys:Breaks")


class Aim(toys.Forever):
    """The reward is the action: 20 steps of 1 are the best."""

    def outcome(self, action):
        return action, False, self.t == 19


gymnasium.register("sweep-aim-v0", entry_point="tests.sweep.toys:Aim")
