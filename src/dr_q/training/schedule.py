"""Which RL updates follow which transitions, by arithmetic alone, so that a run can be resumed at any round.

A round is one step of every environment of a seed: `lanes` transitions, added together. The updates of a round see them
all. What happens every so many agent steps happens in the first round that reaches the step.
"""

import dataclasses

from dr_q.config import Config


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The updates of a run."""

    config: Config
    lanes: int = 1
    learning_starts: int | None = None
    """Agent steps before the first update; by default those that explore."""
    prefilled: int = 0
    """Transitions of each seed that were in the replay before step 0, of whole rounds. Keys of updates count them."""

    @property
    def random_until(self) -> int:
        """Agent steps, of whole rounds, after which exploration ends (D9)."""
        return self._rounded(self.config.exploration_steps)

    @property
    def learning_from(self) -> int:
        """Agent steps, of whole rounds, after which updates begin."""
        return self._rounded(self.config.exploration_steps if self.learning_starts is None else self.learning_starts)

    def _rounded(self, agent_steps: int) -> int:
        return -(-agent_steps // self.lanes) * self.lanes

    def updates(self, agent_steps: int) -> tuple[int | None, int]:
        """The first RL update, counted from 0, and the number of updates, of the round that begins at a step.

        They see `agent_steps` transitions of the run (D10). None and 0 before there are any. With a replay ratio of 1/k
        there is an update for every multiple of k that the transitions reach, those before step 0 included.
        """
        start = self.learning_from
        if agent_steps < start:
            return None, 0
        per_step, every = self.config.updates_per_step, self.config.steps_per_update
        added, before = self.prefilled + agent_steps, self.prefilled + start
        count = self.config.updates_of_round(added, self.lanes)
        if per_step:
            return (agent_steps - start) * per_step, count
        return (added - self.lanes) // every - (before - self.lanes) // every, count
