"""One agent step of all seeds: act on what came, start to take it in and to learn, step the simulators meanwhile.

Nothing waits that need not. While the device learns, the simulators step; while the host reads the actions and waits
for the simulators, another thread dispatches the update. The order of what reaches the device is always the same.
"""

import concurrent.futures
import time
from collections.abc import Callable

import numpy as np
from jaxtyping import Array

from dr_q import agent as drq
from dr_q.envs import Pool, Transitions
from dr_q.learner import Learner


class Clock:
    """Seconds spent in each part since they were last taken."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """What passed since the lap before belongs to this part."""
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
        self._last = now

    def take(self) -> dict[str, float]:
        """The seconds of each part; they start anew."""
        taken, self.seconds, self._last = self.seconds, {}, time.perf_counter()
        return taken


PARTS = {
    "dispatch": "dispatching the next actions",
    "act": "waiting for actions",
    "simulate": "waiting for simulators",
    "update": "waiting for the update's dispatch",
}
"""What the loop's thread does in a step."""


class Stepper:
    """Steps agents and simulators together."""

    def __init__(
        self,
        learner: Learner,
        pool: Pool,
        clock: Clock,
        arrived: Transitions | None = None,
        before_learning: Callable[[], None] = lambda: None,
    ):
        """`arrived` is the outcome of the actions chosen last, where they have been taken already.

        `before_learning` is called when everything is there that RL update 0 will see.
        """
        self.learner, self.pool, self.clock, self.arrived = learner, pool, clock, arrived
        self._before_learning = before_learning
        self.metrics: Array | None = None
        """What the last RL update saw: columns of `metric_names`."""
        self.metrics_before: Array | None = None
        """What the one before it saw. The last actions waited for that one, so reading this waits for nothing."""
        self.actions = np.zeros(0, np.float32)
        """The actions taken last."""
        self.encoder_metrics: drq.EncoderMetrics | None = None
        """What the last encoder updates saw."""
        self._dispatcher = concurrent.futures.ThreadPoolExecutor(1)

    def step(self, first_update: int | None) -> None:
        """An agent step with RL updates from that number (from 0) on, or exploring without any.

        D10: an update sees what was there before the step.
        """
        if self.arrived is not None:
            act = self.learner.act_randomly if first_update is None else self.learner.act
            act(self.arrived)
        self.clock.lap("dispatch")
        if first_update == 0:
            self.learner.add()
            self._before_learning()
        dispatched = self._dispatcher.submit(self._learn, first_update)
        self.actions = self.learner.actions()
        self.clock.lap("act")
        self.pool.send(self.actions)
        self.arrived = self.pool.receive()
        self.clock.lap("simulate")
        dispatched.result()
        self.clock.lap("update")

    def close(self) -> None:
        """End the thread."""
        self._dispatcher.shutdown()

    def _learn(self, first: int | None) -> None:
        """Take in the last outcome; then this agent step's RL updates, with target copies where they are due."""
        if first is None:
            return self.learner.add()
        config = self.learner.spec.config
        for number in range(config.replay_ratio):
            if (first + number) % config.target_period == 0:
                self.encoder_metrics = self.learner.sync_targets_and_train_encoder(number)
            self.metrics_before, self.metrics = self.metrics, self.learner.update(number)
        return None
