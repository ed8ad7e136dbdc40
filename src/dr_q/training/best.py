"""The best policy of each seed over time, by its evaluations, and what it is worth on fresh episodes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dr_q.agent import PolicyNetworks
from dr_q.agent.named_arrays import fill_tree, named_arrays
from dr_q.envs import stream_seed
from dr_q.kit import DamagedFileError
from dr_q.policies import save_best_policies
from dr_q.spaces import Spaces
from dr_q.training.evaluate import Evaluated


class BestPolicy(NamedTuple):
    """The best policy of a seed over time: that of the evaluation with the highest mean return.

    Evaluations before the first update count only as long as there are no others.
    """

    seed: int
    """The seed."""
    agent_steps: int
    """Agent steps at that evaluation."""
    return_mean: float
    """Mean return of that evaluation. It is too high on average, because the policy was chosen for it."""
    fresh_return: float | None = None
    """Mean return of fresh episodes, played when the run ended; None if they were not played."""


class BestPolicies:
    """Keeps them. Their weights are part of a checkpoint, because a resumed run goes back to one."""

    def __init__(self, seeds: list[int], episodes: int, untrained_until: int = -1):
        """Without any yet.

        Args:
            seeds: The seeds.
            episodes: Number of fresh episodes of each seed.
            untrained_until: Agent steps up to which policies have not learnt anything. One of these is kept only until
                the first evaluation of a policy that has.
        """
        self._seeds, self._episodes, self._untrained_until = seeds, episodes, untrained_until
        self.weights: dict[str, np.ndarray] = {}
        """Of all seeds, by name, [S, ...]; empty before the first evaluation."""
        self._chosen: list[BestPolicy] = []
        self._latest: int = seeds[0]
        """The seed whose last evaluation was best."""
        self._unsaved: set[int] = set()
        """Seeds whose weights are not in the folder yet."""

    @property
    def chosen(self) -> tuple[BestPolicy, ...]:
        """One of each seed; empty before the first evaluation."""
        return tuple(self._chosen)

    def take(self, done: Evaluated) -> None:
        """Keep the policies that did better than all before."""
        found = [BestPolicy(e.seed, e.agent_steps, e.return_mean) for e in done.results]
        self._latest = max(found, key=lambda best: best.return_mean).seed
        before = self._chosen or [None] * len(found)
        pairs = enumerate(zip(before, found, strict=True))
        better = [i for i, (was, new) in pairs if was is None or self._is_better(new, was)]
        if not better:
            return
        arrays = named_arrays(done.policies)
        if not self._chosen:
            self.weights, self._chosen = {name: np.array(x) for name, x in arrays.items()}, found
        for index in better:
            self._chosen[index] = found[index]
            self._unsaved.add(self._seeds[index])
            for name, x in self.weights.items():
                x[index] = arrays[name][index]

    def _is_better(self, new: BestPolicy, was: BestPolicy) -> bool:
        has_learnt = was.agent_steps <= self._untrained_until < new.agent_steps
        return has_learnt or new.return_mean > was.return_mean

    def save(self, run: Path, spaces: Spaces, record: Mapping[str, Any]) -> None:
        """Write the run's `policy/best`: weights that changed, and what they are; OSError if that cannot be."""
        if not self._chosen:
            return
        of_seed = {best.seed: best for best in self._chosen}
        fresh = {s: best.fresh_return for s, best in of_seed.items() if best.fresh_return is not None}
        more = {
            "agent_steps": of_seed[self._latest].agent_steps,
            "agent_steps_of": {seed: best.agent_steps for seed, best in of_seed.items()},
            "best_seed": self._latest,
            "returns": {seed: best.return_mean for seed, best in of_seed.items()},
            **({"fresh_returns": fresh, "fresh_episodes": self._episodes} if fresh else {}),
        }
        by_seed = {
            seed: {name: x[i] for name, x in self.weights.items()}
            for i, seed in enumerate(self._seeds)
            if seed in self._unsaved
        }
        save_best_policies(run, spaces, {**record, **more, "seeds": self._seeds}, by_seed)
        self._unsaved.clear()

    def measure(self, like: PolicyNetworks, play: Callable[[PolicyNetworks, np.ndarray], np.ndarray]) -> None:
        """Play fresh episodes with the best policies.

        Args:
            like: Policies with the same shapes.
            play: Plays episodes of given seeds [S, E] with policies; their returns.
        """
        if not self._chosen:
            return
        episode_seeds = np.array(
            [[stream_seed(b.seed, "best", b.agent_steps, e) for e in range(self._episodes)] for b in self._chosen]
        )
        returns = play(fill_tree(like, self.weights, "the best policies"), episode_seeds)
        self._chosen = [
            best._replace(fresh_return=float(x)) for best, x in zip(self._chosen, returns.mean(axis=1), strict=True)
        ]

    def lines(self) -> list[str]:
        """Both scores of each seed, in words."""
        played = f"{self._episodes} fresh episode{'s' if self._episodes > 1 else ''}"
        return [
            f"best policy of seed {best.seed}: step {best.agent_steps:,}, return {best.return_mean:.1f} when it was "
            f"chosen, {best.fresh_return:.1f} measured again on {played}"
            for best in self._chosen
            if best.fresh_return is not None
        ]

    def state(self) -> dict[str, Any]:
        """For a checkpoint, besides the weights."""
        return {"chosen": [list(best[1:3]) for best in self._chosen], "latest": self._latest}

    def restore(self, state: Mapping[str, Any], weights: Mapping[str, np.ndarray], like: Any, where: str) -> None:
        """From a checkpoint; DamagedFileError, which names `where`, if it cannot be."""
        try:
            chosen = [(int(steps), float(score)) for steps, score in state["chosen"]]
            latest = int(state["latest"])
        except (KeyError, TypeError, ValueError, ArithmeticError):
            chosen, latest = [], -1
        if len(chosen) != len(self._seeds) or latest not in self._seeds:
            raise DamagedFileError(f"{where}: what it has of the best policies cannot be read")
        fill_tree(like, weights, f"{where}, best policies")  # refuses other shapes
        self.weights = {name: np.array(x) for name, x in weights.items()}
        self._chosen = [BestPolicy(seed, *one) for seed, one in zip(self._seeds, chosen, strict=True)]
        self._latest, self._unsaved = latest, set(self._seeds)
