"""The environments of one seed that are simulated together: its lanes, or some of them.

They are environments of their own (`Lanes`), or those of a Gymnasium `VectorEnv` (`vector_lanes.py`).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dr_q.envs.probe import probe
from dr_q.envs.processes.seed_envs import SeedEnvs, SharedArrays
from dr_q.envs.processes.source import Source
from dr_q.envs.protocol import VectorEnvGivenError

Rows = Sequence[SharedArrays]
"""The arrays of each lane."""
Episode = tuple[Any, ...]
"""An episode's number and, if any were taken, its actions so far."""


class Lanes:
    """Environments of their own, stepped one after the other. Methods take the arrays of each lane."""

    def __init__(self, lanes: list[SeedEnvs]):
        self._lanes = lanes
        self.spec = lanes[0].spec

    def begin(self, rows: Rows) -> None:
        """Start the first training episodes."""
        self.restore(rows, dict.fromkeys(range(len(rows)), (0,)))

    def step(self, rows: Rows) -> None:
        """One training step of every lane; at an episode's end the next one starts at once."""
        for lane, row in zip(self._lanes, rows, strict=True):
            lane.step(row)

    def evaluate_begin(self, rows: Rows) -> None:
        """Start the evaluation episodes that `eval_running` marks."""
        for lane, row in zip(self._lanes, rows, strict=True):
            lane.evaluate_begin(row)

    def evaluate_step(self, rows: Rows) -> None:
        """One step of the evaluation episodes that still run."""
        for lane, row in zip(self._lanes, rows, strict=True):
            lane.evaluate_step(row)

    def open_episodes(self) -> list[tuple[int, np.ndarray]]:
        """Each lane's training episode: its number and its actions so far."""
        return [lane.open_episode() for lane in self._lanes]

    def restore(self, rows: Rows, episodes: Mapping[int, Episode]) -> None:
        """Bring some lanes, by index, to where they were in an episode."""
        for index, episode in episodes.items():
            self._lanes[index].restore(rows[index], *episode)

    def close(self) -> None:
        """Close all environments."""
        for lane in self._lanes:
            lane.close()


def open_lanes(source: Source, seed: int, lanes: Sequence[int]) -> Lanes:
    """Make the given lanes of a seed; all that there are, if the source gives a `VectorEnv`.

    Raises:
        TaskError: They cannot be made.
    """
    made: list[SeedEnvs] = []
    try:
        notes = probe(source.make) if source.probed else ()
        for lane in lanes:
            made.append(SeedEnvs(source.make, seed, lane, source.info_keys))
    except VectorEnvGivenError as given:
        from dr_q.envs.processes.vector_lanes import VectorLanes

        try:
            return VectorLanes(given.env, given.name, source, seed)
        except BaseException:
            given.env.close()
            raise
    except BaseException:
        for lane in made:
            lane.close()
        raise
    made[0].spec = dataclasses.replace(made[0].spec, notes=notes)
    return Lanes(made)
