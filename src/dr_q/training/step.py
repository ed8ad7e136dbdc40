"""One step of all environments: act on what came, start to take it in and to learn, step the simulators meanwhile.

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
    "dispatch_actions": "dispatching the next actions",
    "wait_for_actions": "waiting for actions, which wait for the device's updates",
    "wait_for_simulators": "waiting for simulators",
    "wait_for_dispatch": "waiting for the update's dispatch",
}
"""What the loop's thread does in a step; columns `ms_...` of metrics.csv."""


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

    def step(self, first_update: int | None, count: int | None = None, *, at_random: bool | None = None) -> None:
        """A step of every environment, with RL updates from that number (from 0) on, or without any.

        D10: an update sees what was there before the step.

        Args:
            first_update: Number of the first update; None before there are any.
            count: Updates to make; by default the most of a round.
            at_random: Whether actions are random and not the policy's; by default where there are no updates.
        """
        at_random = first_update is None if at_random is None else at_random
        if self.arrived is not None:
            act = self.learner.act_randomly if at_random else self.learner.act
            act(self.arrived)
        self.clock.lap("dispatch_actions")
        spec = self.learner.spec
        count = spec.config.most_updates(spec.lanes) if count is None else count
        if first_update == 0 and count:
            self.learner.add()
            self._before_learning()
        dispatched = self._dispatcher.submit(self._learn, first_update, count)
        self.actions = self.learner.actions()
        self.clock.lap("wait_for_actions")
        self.pool.send(self.actions)
        self.arrived = self.pool.receive()
        self.clock.lap("wait_for_simulators")
        dispatched.result()
        self.clock.lap("wait_for_dispatch")

    def close(self) -> None:
        """End the thread."""
        self._dispatcher.shutdown()

    def _learn(self, first: int | None, count: int) -> None:
        """Take in the last outcome; then this round's RL updates, with target copies where they are due."""
        if first is None or count == 0:
            return self.learner.add()
        for number in range(count):
            encoder, metrics = self.learner.learn(first + number, number)
            self.encoder_metrics = self.encoder_metrics if encoder is None else encoder
            self.metrics_before, self.metrics = self.metrics, metrics
        return None
