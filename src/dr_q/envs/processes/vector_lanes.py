"""A Gymnasium `VectorEnv` as the lanes of a seed.

It is stepped as a whole. Every lane then takes its part of the outcome through an environment of its own that stands
for it (`_LaneEnv`), so that a lane is checked, stacked and numbered as any other environment is.

The environments of a VectorEnv must reset independently, each when its own episode ends:

- `AutoresetMode.DISABLED`: they are reset here, with seeds from (seed, lane, episode). A run can be resumed exactly.
- `AutoresetMode.SAME_STEP`: they reset themselves, and where the episode ended is in `info["final_obs"]`. Their seeds
  are their own, so an episode cannot be played again, and a resumed run starts new ones.
- `AutoresetMode.NEXT_STEP`: refused. The step after an episode's end is a reset and no transition.
"""

import dataclasses
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import iterate

from dr_q.envs.processes.lanes import Episode, Lanes, Rows
from dr_q.envs.processes.seed_envs import SeedEnvs
from dr_q.envs.processes.source import Source
from dr_q.envs.protocol import VectorEnvError, failure
from dr_q.kit import TaskError
from dr_q.spaces import to_env_action


class VectorLanes(Lanes):
    """The lanes of a `VectorEnv`; evaluation episodes are played on further ones that the source makes."""

    def __init__(self, first: VectorEnv, name: str, source: Source, seed: int):
        self._name, self._make = name, source.task
        self._vectors = [_Vector(first, name)]
        count = self._vectors[0].count
        super().__init__([SeedEnvs(self._maker(source, lane), seed, lane, source.info_keys) for lane in range(count)])
        exact = self._vectors[0].resets_here
        self.spec = dataclasses.replace(self.spec, vector_lanes=count, can_resume=exact)
        for vector in self._vectors:
            vector.to_env = to_env_action(self.spec.action)

    def step(self, rows: Rows) -> None:
        """One training step."""
        self._vectors[0].step([row.action for row in rows])
        super().step(rows)

    def evaluate_begin(self, rows: Rows) -> None:
        """Start evaluation episodes."""
        for column, running in enumerate(_columns(rows)):
            if running.any():
                self._vector(1 + column).reset([int(row.eval_seed[column]) for row in rows])
        super().evaluate_begin(rows)

    def evaluate_step(self, rows: Rows) -> None:
        """Step evaluation episodes."""
        for column, running in enumerate(_columns(rows)):
            if running.any():
                self._vector(1 + column).step([row.eval_action[column] for row in rows])
        super().evaluate_step(rows)

    def restore(self, rows: Rows, episodes: Mapping[int, Episode]) -> None:
        """Play open episodes again, all lanes together; those of a vector that resets itself start anew."""
        vector = self._vectors[0]
        if len(episodes) == vector.count:
            seeds = [self._lanes[index].episode_seed(episodes[index][0]) for index in range(vector.count)]
            actions = [list(episodes[index][1]) if episodes[index][1:] else [] for index in range(vector.count)]
            vector.reset(seeds)
            if vector.resets_here:
                vector.play_again(seeds, actions)
            else:
                episodes = {index: episode[:1] for index, episode in episodes.items()}
        super().restore(rows, episodes)

    def close(self) -> None:
        """Close all environments."""
        for vector in self._vectors:
            vector.close()

    def _vector(self, number: int) -> "_Vector":
        """The vector of that number; those for evaluation are made when they are needed."""
        while len(self._vectors) <= number:
            assert callable(self._make)
            try:
                made = self._make()
            except (Exception, SystemExit) as error:  # anything may go wrong in other people's code
                raise TaskError(f"{self._name} cannot be made: {failure(error)}") from error
            vector = _Vector(made, self._name)
            vector.to_env = self._vectors[0].to_env
            self._vectors.append(vector)
        return self._vectors[number]

    def _maker(self, source: Source, lane: int) -> Callable[[], Any]:
        """Makes the environments of a lane: the first is that of training, further ones of evaluation."""
        made = 0

        def make() -> Any:
            nonlocal made
            number, made = made, made + 1
            return dataclasses.replace(source, task=lambda: self._vector(number).lane_envs[lane]).make()

        return make


class _Vector:
    """A `VectorEnv`, and for each of its environments one that stands for it."""

    def __init__(self, env: Any, name: str):
        self._env, self._name = env, name
        mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        try:
            mode = AutoresetMode(mode)
        except ValueError:
            allowed = ", ".join(repr(known.value) for known in AutoresetMode)
            raise TaskError(
                f"{name} gives a VectorEnv of autoreset mode {mode!r}; metadata['autoreset_mode'] must be one of "
                f"{allowed}; give a callable that makes a single environment, and num_envs"
            ) from None
        if mode == AutoresetMode.NEXT_STEP:
            raise TaskError(
                f"{name} gives a VectorEnv that resets in the step after an episode's end (autoreset mode NEXT_STEP), "
                "which is no transition; make it with gymnasium.vector.AutoresetMode.DISABLED: "
                "gymnasium.make_vec(ID, num_envs=N, vectorization_mode='sync', vector_kwargs={'autoreset_mode': "
                "'Disabled'})"
            )
        self.count = int(env.num_envs)
        self.resets_here = mode == AutoresetMode.DISABLED
        self.to_env: Callable[[np.ndarray], Any] = lambda action: action
        self.lane_envs = [_LaneEnv(self, env, lane) for lane in range(self.count)]
        self._firsts: list[Any] = [None] * self.count
        """First observations of episodes that have been started and not been taken yet."""
        self._now: list[Any] = [None] * self.count
        """The newest observations."""
        self._outcomes: list[deque[Any]] = [deque() for _ in range(self.count)]
        self._ended = np.zeros(self.count, bool)
        """Environments whose episodes ended and that must be reset before the next step."""

    def reset(self, seeds: Sequence[int]) -> None:
        """Start an episode of every environment."""
        obs, _ = self._call("reset(seed=[...])", lambda: self._env.reset(seed=list(seeds)))
        self._now = self._apart(obs)
        self._firsts = list(self._now)
        self._ended[:] = False
        for outcomes in self._outcomes:
            outcomes.clear()

    def first(self, lane: int, seed: int | None) -> Any:
        """The first observation of an environment's next episode."""
        found, self._firsts[lane] = self._firsts[lane], None
        if found is None and self.resets_here:
            self._reset_one(lane, seed)
            found = self._now[lane]
        return self._now[lane] if found is None else found

    def step(self, actions: Sequence[np.ndarray]) -> None:
        """Step every environment; each lane takes its outcome."""
        for outcomes in self._outcomes:
            outcomes.clear()  # of lanes that did not take theirs
        for lane in np.flatnonzero(self._ended):
            self._reset_one(int(lane), None)
        own = np.asarray([self.to_env(_usable(action)) for action in actions], self._env.action_space.dtype)
        given = self._call("step(actions)", lambda: self._env.step(own))
        obs, rewards, terminated, truncated, infos = given
        self._now = self._apart(obs)
        for lane, seen in enumerate(self._now):
            ended = bool(terminated[lane]) or bool(truncated[lane])
            led_to = seen
            if ended and self.resets_here:
                self._ended[lane] = True
            elif ended:
                led_to, self._firsts[lane] = self._final(infos, lane), seen
            info = infos.get("final_info", {}) if ended and not self.resets_here else infos
            own = (led_to, rewards[lane], terminated[lane], truncated[lane], _info_of(info, lane))
            self._outcomes[lane].append(own)

    def outcome(self, lane: int) -> Any:
        """The outcome of the last step, or the next one of those played again."""
        return self._outcomes[lane].popleft()

    def play_again(self, seeds: Sequence[int], actions: Sequence[Sequence[np.ndarray]]) -> None:
        """Play an episode of every environment again such that all arrive at the same time; lanes take the outcomes."""
        length = max(map(len, actions))
        taken: list[deque[Any]] = [deque() for _ in range(self.count)]
        firsts = list(self._now)
        nothing = np.zeros_like(next((x[0] for x in actions if len(x)), np.zeros(0)))
        for t in range(length):
            begun = [length - len(mine) <= t for mine in actions]
            for lane, mine in enumerate(actions):
                if t and length - len(mine) == t:
                    self._reset_one(lane, seeds[lane])
                    firsts[lane] = self._now[lane]
            self.step(
                [mine[t - length + len(mine)] if on else nothing for mine, on in zip(actions, begun, strict=True)]
            )
            for lane in np.flatnonzero(begun):
                taken[lane].append(self._outcomes[lane].popleft())
        for lane, mine in enumerate(actions):
            if length and not len(mine):
                self._reset_one(lane, seeds[lane])
                firsts[lane] = self._now[lane]
        self._firsts, self._outcomes = firsts, taken

    def close(self) -> None:
        """Close them all."""
        try:
            self._env.close()
        except Exception as error:  # everything is done by then: no reason to lose it
            print(f"dr-q: {self._name} failed in close(): {failure(error)}", file=sys.stderr)

    def _reset_one(self, lane: int, seed: int | None) -> None:
        mask = np.arange(self.count) == lane
        seeds = [seed if chosen else None for chosen in mask]
        what = "reset(seed=[...], options={'reset_mask': ...})"
        obs, _ = self._call(what, lambda: self._env.reset(seed=seeds, options={"reset_mask": mask}))
        before, self._now = self._now, self._apart(obs)
        self._ended[lane] = False
        if not all(_same(a, b) for a, b, chosen in zip(before, self._now, mask, strict=True) if not chosen):
            raise VectorEnvError(
                f"{self._name}: {what} also changed environments that it must not reset; the environments of a "
                "VectorEnv must reset independently; give a callable that makes a single environment, and num_envs"
            )

    def _apart(self, obs: Any) -> list[Any]:
        """The observation of each environment."""
        found = list(iterate(self._env.observation_space, obs))
        if len(found) != self.count:
            raise VectorEnvError(f"{self._name} gave {len(found)} observations of {self.count} environments")
        return [_copied(x) for x in found]

    def _final(self, infos: Any, lane: int) -> Any:
        """Where an episode ended, of an environment that has reset itself."""
        if "final_obs" not in infos:
            raise VectorEnvError(
                f"{self._name}: step(actions) gave no info['final_obs'], as SAME_STEP autoreset has it"
            )
        found = _copied(_of_lane(infos["final_obs"], lane))
        if found is None:
            ended = f"environment {lane}, which ended"
            raise VectorEnvError(f"{self._name}: step(actions) gave no info['final_obs'] of {ended}")
        return found

    def _call(self, what: str, call: Callable[[], Any]) -> Any:
        """What the vector's own code gives; its errors in one line."""
        try:
            return call()
        except (Exception, SystemExit) as error:
            raise VectorEnvError(f"{self._name} failed in {what}: {failure(error)}") from error


class _LaneEnv(gymnasium.Env):
    """Stands for one environment of a vector, which was stepped or will be reset."""

    def __init__(self, vector: _Vector, env: Any, lane: int):
        self._vector, self._lane = vector, lane
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space
        self.spec, self.metadata = getattr(env, "spec", None), dict(env.metadata)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The first observation of the next episode."""
        return self._vector.first(self._lane, seed), {}

    def step(self, action: Any) -> Any:
        """The outcome of a step that the vector has made."""
        return self._vector.outcome(self._lane)


def _columns(rows: Rows) -> list[np.ndarray]:
    """Which lanes run in each column of evaluation episodes."""
    return list(np.stack([row.eval_running for row in rows], axis=1).astype(bool))


def _usable(action: np.ndarray) -> np.ndarray:
    return action if np.isfinite(action).all() else np.zeros_like(action)


def _of_lane(values: Any, lane: int) -> Any:
    """An environment's part of an info, which nests dicts."""
    return {key: _of_lane(x, lane) for key, x in values.items()} if isinstance(values, dict) else values[lane]


def _info_of(infos: Any, lane: int) -> dict[str, Any]:
    """An environment's own info: entries that have one of it, as their `_NAME` says."""
    own = {key: x for key, x in infos.items() if f"_{key}" in infos and infos[f"_{key}"][lane]}
    return {key: _of_lane(x, lane) for key, x in own.items() if not key.startswith("final_")}


def _copied(obs: Any) -> Any:
    """A copy: a vector may write over what it gave."""
    if isinstance(obs, Mapping):
        return {key: _copied(x) for key, x in obs.items()}
    return tuple(map(_copied, obs)) if isinstance(obs, tuple) else None if obs is None else np.array(obs)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Mapping):
        return all(_same(a[key], b[key]) for key in a)
    return all(map(_same, a, b)) if isinstance(a, tuple) else np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
