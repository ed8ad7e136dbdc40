"""What training itself shows: returns, lengths and successes of its episodes, and how large its observations are."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dr_q.config import NORMALISE_ALL, NORMALISE_NONE, Config
from dr_q.envs import Transitions
from dr_q.kit import DamagedFileError, spelled
from dr_q.spaces import ObsSpec, Vector

LARGE_INPUT = 1_000.0
"""Observations of this size and more are warned of."""
_OBS_EVERY = 10
"""Steps between observations that enter the statistics."""
_RECENT = 100
"""Returns of each seed that are kept for callbacks."""
_SUMS = ("episodes", "returns", "lengths", "successes", "judged")


class EndedEpisode(NamedTuple):
    """A training episode that has ended."""

    seed_index: int
    episode_return: float
    length: int
    """Agent steps."""
    terminated: bool
    """Whether it reached a terminal state, and was not cut off."""
    success: bool | None
    """The environment's `info["is_success"]` of the last step; None where it has none."""


class _Totals:
    """Of the episodes that ended since the totals were last taken, [S] each."""

    def __init__(self, seeds: int):
        self.values = {name: np.zeros(seeds) for name in _SUMS}

    def add(self, ended: EndedEpisode) -> None:
        known = ended.success is not None
        for name, x in zip(_SUMS, (1, ended.episode_return, ended.length, bool(ended.success), known), strict=True):
            self.values[name][ended.seed_index] += x

    def means(self, together: bool) -> dict[str, np.ndarray]:
        """Return, length and success; NaN where there was no episode. Of each seed, or of all together."""
        sums = {name: x.sum(keepdims=True) if together else x for name, x in self.values.items()}
        with np.errstate(invalid="ignore"):
            return {
                "episodes": sums["episodes"].copy(),
                "episode_return": sums["returns"] / sums["episodes"],
                "episode_length": sums["lengths"] / sums["episodes"],
                "episode_success": sums["successes"] / sums["judged"],
            }


class EpisodeLog:
    """Follows the training episodes of all seeds. Its state is part of a checkpoint, so a resumed run logs the same."""

    def __init__(self, seeds: int, lanes: int, obs: ObsSpec, config: Config):
        """`lanes`: environments of each seed. They are counted one after the other, those of the first seed first."""
        self._seeds, self._lanes = seeds, lanes
        self._return, self._length = np.zeros(seeds * lanes), np.zeros(seeds * lanes, np.int64)
        self._for_row, self._for_line = _Totals(seeds), _Totals(seeds)
        self.recent: list[list[float]] = [[] for _ in range(seeds)]
        """Returns of each seed's last episodes, oldest first."""
        self._parts = {name: part for name, part in obs.parts if isinstance(part, Vector)}
        self._vectors = tuple(self._parts)
        self._raw = tuple(name for name in self._vectors if not _is_normalised(name, config))
        self._observed = np.zeros((4, seeds))
        """Number of values, their sum, the sum of their squares, the largest absolute value."""
        self._warned = False
        self.too_large = ""
        """What to say of inputs in the thousands; empty before any was seen, and once it was taken."""

    def follow(self, arrived: Transitions, agent_steps: int) -> list[int]:
        """Take in the outcome of a step; the environments, by index, whose episodes ended in it."""
        numbers = arrived.numbers
        self._return += numbers[:, 0]
        self._length += 1
        if agent_steps % _OBS_EVERY < self._lanes and self._vectors:
            self._observe(arrived.obs)
        ends = numbers[:, 1:].any(axis=1)
        return np.flatnonzero(ends).tolist() if ends.any() else []

    def end(self, index: int, terminated: bool, success: float) -> EndedEpisode | None:
        """An environment's episode has ended; None if its beginning is not known.

        `success` is NaN where the environment says nothing of it.
        """
        if math.isnan(self._return[index]):
            return self.drop(index)
        known = None if math.isnan(success) else success > 0
        seed = index // self._lanes
        ended = EndedEpisode(seed, float(self._return[index]), int(self._length[index]), terminated, known)
        self._for_row.add(ended)
        self._for_line.add(ended)
        self.recent[seed].append(ended.episode_return)
        del self.recent[seed][:-_RECENT]
        self.drop(index)
        return ended

    def drop(self, index: int) -> None:
        """Forget an environment's open episode: the next step is the first of another."""
        self._return[index], self._length[index] = 0.0, 0

    def open_unknown(self) -> None:
        """Of the open episodes only the end will be seen: do not count them."""
        self._return[:] = np.nan

    def take_row(self) -> dict[str, np.ndarray]:
        """Columns of metrics.csv since the last row, [S] each, NaN where there is nothing to say; they start anew."""
        columns = self._for_row.means(together=False)
        self._for_row = _Totals(self._seeds)
        if self._vectors:
            count, total, squares, largest = self._observed
            with np.errstate(invalid="ignore"):
                mean = total / count
                deviation = np.sqrt(np.maximum(squares / count - mean**2, 0))
            columns |= {"obs_mean": mean, "obs_std": deviation, "obs_absmax": np.where(count > 0, largest, np.nan)}
            self._observed = np.zeros_like(self._observed)
        return columns

    def take_line(self) -> str:
        """The episodes of all seeds since the last line, in words; they start anew."""
        means = {name: float(x[0]) for name, x in self._for_line.means(together=True).items()}
        self._for_line = _Totals(self._seeds)
        count = int(means["episodes"])
        if not count:
            return ""
        many = f"{count:,} training episodes" if count > 1 else "1 training episode"
        success = "" if math.isnan(means["episode_success"]) else f", success {means['episode_success']:.0%}"
        return f"{many}: return {means['episode_return']:.1f}, length {means['episode_length']:.0f}{success}"

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "open": [self._return.tolist(), self._length.tolist()],
            "row": {name: x.tolist() for name, x in self._for_row.values.items()},
            "line": {name: x.tolist() for name, x in self._for_line.values.items()},
            "observed": self._observed.tolist(),
            "recent": self.recent,
        }

    def restore(self, state: Mapping[str, Any], where: str) -> None:
        """From a checkpoint; DamagedFileError, which names `where`, if it cannot be."""
        try:
            returns, lengths = state["open"]
            read = [self._like(self._return, returns), self._like(self._return, lengths)]
            kinds = {"row": self._for_row, "line": self._for_line}
            totals = [{k: self._like(x, state[of][k]) for k, x in now.values.items()} for of, now in kinds.items()]
            observed = self._like(self._observed, state["observed"])
            recent = [[float(x) for x in mine] for mine in state["recent"]]
            if len(recent) != len(self.recent):
                raise ValueError(len(recent))
        except (KeyError, TypeError, ValueError, ArithmeticError):
            raise DamagedFileError(f"{where}: what it has of training episodes cannot be read") from None
        self._return, self._length = read[0], read[1].astype(np.int64)
        self._for_row.values, self._for_line.values = totals
        self._observed = observed
        for mine, was in zip(self.recent, recent, strict=True):
            mine[:] = was

    @staticmethod
    def _like(array: np.ndarray, values: Sequence[Any]) -> np.ndarray:
        read = np.array(values, np.float64)
        if read.shape != array.shape:
            raise ValueError(read.shape)
        return read

    def _observe(self, obs: Mapping[str, np.ndarray]) -> None:
        for name in self._vectors:
            x = obs[name].astype(np.float64).reshape(self._seeds, -1)
            largest = np.abs(x).max(axis=1)
            count, total, squares, before = self._observed
            count += x.shape[1]
            total += x.sum(axis=1)
            squares += np.square(x).sum(axis=1)
            np.maximum(before, largest, out=before)
            if not self._warned and name in self._raw and largest.max() >= LARGE_INPUT:
                self._warned = True
                index = int(np.abs(obs[name].reshape(-1, obs[name].shape[-1])).max(axis=0).argmax())
                where = self._parts[name].component(index, name)
                self.too_large = (
                    f"observations as large as {largest.max():,.0f} ({where}): networks learn badly from such inputs; "
                    f"train with {spelled('normalise_observations')} {NORMALISE_ALL}, or scale them in the "
                    "environment"
                )


def _is_normalised(name: str, config: Config) -> bool:
    chosen = config.normalise_observations
    return chosen != NORMALISE_NONE and (chosen == NORMALISE_ALL or name in [x.strip() for x in chosen.split(",")])
