"""Callbacks: code of yours that sees a run while it trains, keeps state in its checkpoints, and may stop it.

A callback is a subclass of `Callback` with some of its hooks. Each hook gets one event, and may return
`Stop("reason")` (all but `on_end`). Hooks that a class does not define cost nothing.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dr_q.kit import ConfigError, DamagedFileError, TrainingError, did_you_mean, shortened, spelled
from dr_q.policies import Policy
from dr_q.run_folder import Evaluation
from dr_q.settings import Settings


@dataclasses.dataclass(frozen=True)
class Stop:
    """A request to stop the run. A hook of a callback returns it.

    The run writes a checkpoint and ends with the status "stopped". `run.json` and `TrainResult.stop_reason` have the
    reason. An empty reason raises `dr_q.ConfigError`.

    Example:
        ```python
        def on_evaluation(evaluations):
            if min(evaluation.return_mean for evaluation in evaluations) > 900:
                return dr_q.Stop("every seed is above 900")


        dr_q.train("dmc/walker-walk", seeds=3, on_evaluation=on_evaluation)
        ```
    """

    reason: str
    """Why the run is stopped, in words."""
    rule: str = ""
    """The setting that stopped it, if one did: stop_at_return, patience or max_minutes."""

    def __post_init__(self) -> None:
        """Refuse what is no text."""
        if not isinstance(self.reason, str) or not self.reason.strip():
            raise ConfigError(f"Stop needs a reason in words, got {self.reason!r}")


class RunView:
    """A run as callbacks see it: `event.run`. Its values are the current ones."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        policy_of: Callable[[int], Policy],
        say: Callable[[str], None],
    ):
        """
        Args:
            folder: The run's folder.
            settings: The run's settings.
            policy_of: A function that returns the policy of a seed as it is now.
            say: A function that prints a line.
        """
        self.folder: Path = folder
        """The run's folder."""
        self.settings: Settings = settings
        """The run's settings: everything that decides its results."""
        self.seeds: list[int] = settings.seed_list
        """The run's seeds. Arrays with a value for each seed are in this order."""
        self.agent_steps: int = 0
        """Agent steps of each seed so far."""
        self.metrics: Mapping[str, np.ndarray] = {}
        """The last row of `metrics.csv`: for each column an array with a value for each seed; empty before the first.

        The times (`ms_...`) and `env_restarts` are not in it. Columns of updates are in it once the run learns.
        """
        self.episode_returns: dict[int, list[float]] = {seed: [] for seed in self.seeds}
        """Returns of the last 100 training episodes of each seed, oldest first."""
        self.say: Callable[[str], None] = say
        """A function that prints a line as the run does. It prints nothing with `quiet=True`."""
        self._policy_of = policy_of

    def policy(self, seed: int | None = None) -> Policy:
        """A copy of a seed's policy as it is now.

        Args:
            seed: One of `seeds`. Default: the first.

        Returns:
            The policy. Training does not change it.

        Raises:
            ConfigError: The run has no such seed.
        """
        seed = self.seeds[0] if seed is None else seed
        if seed not in self.seeds:
            raise ConfigError(f"no seed {seed} in this run; it has {', '.join(map(str, self.seeds))}")
        return self._policy_of(seed)


def metrics_state(metrics: Mapping[str, np.ndarray]) -> dict[str, list[float | None]]:
    """`RunView.metrics` as JSON can hold it."""
    return {name: [None if math.isnan(v) else v for v in x.tolist()] for name, x in metrics.items()}


def metrics_of_state(state: Mapping[str, Any], seeds: Sequence[int], where: str) -> dict[str, np.ndarray]:
    """`RunView.metrics` of a checkpoint; DamagedFileError, which names `where`, if it cannot be read."""
    try:
        read = {name: np.array([math.nan if v is None else v for v in x], float) for name, x in state.items()}
        if any(x.shape != (len(seeds),) for x in read.values()):
            raise ValueError
    except (TypeError, ValueError):
        raise DamagedFileError(f"{where}: what it has of metrics cannot be read") from None
    return read


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """What every hook gets. The classes below add what their hook needs."""

    run: RunView
    """The run at this moment."""
    agent_steps: int
    """Agent steps of each seed at this moment."""

    def policy(self, seed: int | None = None) -> Policy:
        """A copy of a seed's policy as it is now.

        Args:
            seed: One of `run.seeds`. Default: the first.

        Returns:
            The policy. Training does not change it.

        Raises:
            ConfigError: The run has no such seed.
        """
        return self.run.policy(seed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartEvent(Event):
    """The event of `on_start`: the run starts, or is resumed."""

    resumed: bool
    """Whether the run continues from a checkpoint. `restore` has been called then, if the checkpoint has a state."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepEvent(Event):
    """The event of `on_step`: one round of the loop, in which every environment made a step.

    Arrays have shape [S], a value for each seed. With several environments for each seed (`num_envs`) the shape is
    [S, num_envs].
    """

    rewards: np.ndarray
    """Rewards of the step."""
    ended: np.ndarray
    """Whether the episode ended in this step."""
    info: Mapping[str, np.ndarray]
    """The entries of the environment's `info` that callbacks ask for (`Callback.info_keys`); NaN where it has none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeEvent(Event):
    """The event of `on_episode`: a training episode ended."""

    seed: int
    """The seed whose episode it is."""
    episode_return: float
    """Sum of its rewards, with exploration noise on its actions."""
    length: int
    """Its length in agent steps."""
    terminated: bool
    """Whether it ended in a terminal state; otherwise it was truncated."""
    success: bool | None
    """`info["is_success"]` of its last step; None if the environment does not report it."""
    info: Mapping[str, float]
    """The entries of `info` of its last step that callbacks ask for (`Callback.info_keys`); NaN where it has none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationEvent(Event):
    """The event of `on_evaluation`: an evaluation of all seeds is done.

    `agent_steps` are those of the evaluated policies. An evaluation in the background (`background_evaluation`) is done
    some steps later, at `run.agent_steps`.
    """

    evaluations: list[Evaluation]
    """One evaluation for each seed."""
    policy_of: Callable[[int], Policy] = dataclasses.field(repr=False)
    """A function from a seed to its evaluated policy; `policy` calls it."""

    @property
    def return_mean(self) -> float:
        """Mean over seeds of their mean returns."""
        return float(np.mean([evaluation.return_mean for evaluation in self.evaluations]))

    def policy(self, seed: int | None = None) -> Policy:
        """The evaluated policy of a seed.

        Args:
            seed: One of `run.seeds`. Default: the seed with the highest mean return in this evaluation.

        Returns:
            The policy as it was evaluated.
        """
        best = max(self.evaluations, key=lambda evaluation: evaluation.return_mean).seed
        return self.policy_of(best if seed is None else seed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointEvent(Event):
    """The event of `on_checkpoint`: a checkpoint has been written."""

    folder: Path
    """The checkpoint's folder."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EndEvent(Event):
    """The event of `on_end`: the run ends in this process."""

    status: str
    """`"finished"`, `"stopped"`, `"interrupted"` or `"failed"`."""
    stop_reason: str
    """Why the run was stopped; empty if it was not."""


class Callback:
    """Base class of callbacks: code of yours that sees a run while it trains.

    Subclass it, define the hooks that you need, and give an object to `dr_q.train(callbacks=[...])`. Hooks that a class
    does not define cost nothing. Every hook but `on_end` may return `dr_q.Stop("reason")`. The run then writes a
    checkpoint and ends with the status "stopped". An exception in a hook ends the run with the status "failed", and the
    run says how to resume it. After an exception in `on_end` the other callbacks are called, the status stays, and
    `dr_q.train` raises it.

    Example:
        ```python
        class StopWhenSolved(dr_q.Callback):
            def on_episode(self, event):
                last = event.run.episode_returns[event.seed][-20:]
                if len(last) == 20 and min(last) > -200:
                    return dr_q.Stop(f"20 episodes above -200 at step {event.agent_steps}")


        dr_q.train("gym/Pendulum-v1", callbacks=[StopWhenSolved()])
        ```
    """

    info_keys: tuple[str, ...] = ()
    """Entries of the environment's `info` that the callback needs. `event.info` of steps and episodes has them as
    numbers."""

    @property
    def name(self) -> str:
        """The name under which a checkpoint keeps the callback's state. Default: the name of its class."""
        return type(self).__qualname__

    def on_start(self, event: StartEvent) -> Stop | None:
        """Called before the first step of this process.

        Args:
            event: Whether the run is resumed.

        Returns:
            A `dr_q.Stop` to stop the run; None to continue.
        """

    def on_step(self, event: StepEvent) -> Stop | None:
        """Called after every round of the loop, in which every environment made a step.

        Args:
            event: Rewards, ends of episodes and `info`, with a value for each seed.

        Returns:
            A `dr_q.Stop` to stop the run; None to continue.
        """

    def on_episode(self, event: EpisodeEvent) -> Stop | None:
        """Called after every training episode of every seed.

        Args:
            event: The episode's seed, return, length and end.

        Returns:
            A `dr_q.Stop` to stop the run; None to continue.
        """

    def on_evaluation(self, event: EvaluationEvent) -> Stop | None:
        """Called after every evaluation of all seeds.

        Args:
            event: The evaluations and the evaluated policies.

        Returns:
            A `dr_q.Stop` to stop the run; None to continue.
        """

    def on_checkpoint(self, event: CheckpointEvent) -> Stop | None:
        """Called after every checkpoint. The checkpoint has `state()` as it was before this call.

        Args:
            event: The checkpoint's folder.

        Returns:
            A `dr_q.Stop` to stop the run; None to continue.
        """

    def on_end(self, event: EndEvent) -> None:
        """Called when the run ends in this process: finished, stopped, interrupted or failed.

        Args:
            event: The status, and why the run was stopped.
        """

    def state(self) -> Any:
        """What a resumed run must know. It is part of every checkpoint.

        Returns:
            Any value that JSON can hold. None, the default, keeps nothing.
        """
        return None

    def restore(self, state: Any) -> None:
        """Take back the state of the checkpoint that a run is resumed from. Called before `on_start`.

        Args:
            state: What `state()` returned, as JSON gives it back: tuples are lists.
        """


_HOOKS = ("on_start", "on_step", "on_episode", "on_evaluation", "on_checkpoint", "on_end")


class Callbacks:
    """The callbacks of a run, called in their order."""

    def __init__(self, callbacks: Sequence[Callback]):
        self._named = dict(_unique_names(callbacks))
        self._of = {hook: [pair for pair in self._named.items() if _defines(pair[1], hook)] for hook in _HOOKS}
        self.stop: Stop | None = None
        """What the first hook that stops the run returned."""
        self.failed_in = ""
        """The hook that raised, if one did."""

    def has(self, hook: str) -> bool:
        """Whether any callback defines a hook."""
        return bool(self._of[hook])

    def call(self, hook: str, event: Event) -> None:
        """Call a hook of all callbacks; `on_end` of all of them even if one fails."""
        first: Exception | None = None
        for name, callback in self._of[hook]:
            try:
                answer = getattr(callback, hook)(event)
            except Exception as error:
                if first is None:
                    self.failed_in = f"the callback {name} failed in {hook}"
                if hook != "on_end":
                    raise
                first = first or error
                continue
            if isinstance(answer, Stop):
                self.stop = self.stop or answer
            elif answer is not None:
                self.failed_in = f"the callback {name} failed in {hook}"
                raise TrainingError(
                    f"{name}.{hook} returned {answer!r}; return dr_q.Stop('the reason') to stop the run, or nothing"
                )
        if first is not None:
            raise first

    def names(self) -> list[str]:
        """Of all callbacks, in their order."""
        return list(self._named)

    def states(self) -> dict[str, Any]:
        """Of all callbacks that have one, by name."""
        found = {}
        for name, callback in self._named.items():
            try:
                state = callback.state()
                if state is not None:
                    found[name] = json.loads(json.dumps(state))  # a copy, as it will be read
            except Exception as error:
                self.failed_in = f"the callback {name} failed in state()"
                if isinstance(error, TypeError | ValueError):
                    raise TrainingError(
                        f"{name}.state() gave what JSON cannot hold ({error}); use numbers, text, lists and dicts"
                    ) from error
                raise
        return found

    def restore(self, states: Mapping[str, Any], say: Callable[[str], None]) -> None:
        """Give callbacks the states of a checkpoint."""
        for name, callback in self._named.items():
            if name not in states:
                continue
            try:
                callback.restore(states[name])
            except Exception as error:
                raise TrainingError(
                    f"the callback {name} failed in restore(): {type(error).__name__}: {error}; it got the state of "
                    "the checkpoint, which an earlier version of it may have written"
                ) from error
        missing = [name for name in states if name not in self._named]
        if missing:
            many = f"the callback{'s' if missing[1:] else ''} {', '.join(missing)}"
            say(f"the checkpoint has the state of {many}, which this run was not given: it is dropped")


def _unique_names(callbacks: Sequence[Callback]) -> Sequence[tuple[str, Callback]]:
    """Each with its name, numbered where several have the same."""
    found: dict[str, Callback] = {}
    for callback in callbacks:
        name, number = callback.name, 2
        while name in found:
            name, number = f"{callback.name}-{number}", number + 1
        found[name] = callback
    return list(found.items())


def _defines(callback: Callback, hook: str) -> bool:
    """Whether its class, or the object itself, has a hook of its own."""
    return getattr(type(callback), hook) is not getattr(Callback, hook) or hook in vars(callback)


def given_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    """One or several of a user's; ConfigError for anything else."""
    several = [callbacks] if isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable) else list(callbacks)
    for one in several:
        if not isinstance(one, Callback):
            raise ConfigError(f"callbacks must be objects of subclasses of dr_q.Callback, got {one!r}")
        _check_hooks(one)
    return tuple(several)


def _check_hooks(callback: Callback) -> None:
    """Refuse methods that look like hooks and would never be called."""
    for name in dir(callback):
        if not name.lstrip("_").startswith("on_") or hasattr(Callback, name):
            continue
        if name in vars(callback) or not callable(getattr(type(callback), name, None)):
            continue
        meant = name.lstrip("_")
        hint = f"; did you mean '{meant}'?" if meant in _HOOKS else did_you_mean(meant, _HOOKS)
        raise ConfigError(
            f"{callback.name} has a method {name}, which is no hook and would never be called{hint}; hooks: "
            f"{', '.join(_HOOKS)}"
        )


def info_keys_of(callbacks: Sequence[Callback], most: int) -> tuple[str, ...]:
    """The entries of `info` that callbacks ask for."""
    keys: dict[str, None] = {}
    for callback in callbacks:
        asked = callback.info_keys
        if isinstance(asked, str) or not all(isinstance(key, str) for key in asked):
            raise ConfigError(f"info_keys of {callback.name} must be a tuple of names, got {asked!r}")
        keys |= dict.fromkeys(asked)
    if len(keys) > most:
        raise ConfigError(f"callbacks ask for {len(keys)} entries of info; at most {most} can be read")
    return tuple(keys)


class OnEvaluation(Callback):
    """The function given as `on_evaluation=`."""

    def __init__(self, function: Callable[[list[Evaluation]], Any]):
        self._function = function

    def on_evaluation(self, event: EvaluationEvent) -> Stop | None:
        """Call it with the evaluations; it may return a `Stop`."""
        answer = self._function(event.evaluations)
        return answer if isinstance(answer, Stop) else None


def on_evaluation_callbacks(function: Callable[[list[Evaluation]], Any] | None) -> list[Callback]:
    """The function given as `on_evaluation=`, if one was, as a callback."""
    return [] if function is None else [OnEvaluation(function)]


OTHER_VALUE = {"stop_at_return": "HIGHER", "patience": "MORE"}
"""What a resume must give for a rule that stopped the run, so that it does not stop at once."""


class StopAtReturn(Callback):
    """Stops a run once the mean return over seeds at an evaluation reaches a threshold."""

    def __init__(self, threshold: float):
        self._threshold = threshold
        self._last: tuple[int, float] | None = None
        """Agent steps of the last evaluation, and its mean return."""

    def on_start(self, event: StartEvent) -> Stop | None:
        """Stop a resumed run that is there already."""
        return self._stop() if event.resumed else None

    def on_evaluation(self, event: EvaluationEvent) -> Stop | None:
        """Compare."""
        self._last = (event.agent_steps, event.return_mean)
        return self._stop()

    def _stop(self) -> Stop | None:
        if self._last is None or self._last[1] < self._threshold:
            return None
        reached = f"the mean return at step {self._last[0]:,} is {self._last[1]:.1f}"
        why = f"{reached}: {spelled('stop_at_return')} {self._threshold:g} is reached"
        return Stop(why, "stop_at_return")

    def state(self) -> Any:
        """The last evaluation; the threshold may be another in a resumed run."""
        return self._last

    def restore(self, state: Any) -> None:
        """Take it."""
        step, score = _read_state(self.name, state, int, float)
        self._last = (step, score)


class Patience(Callback):
    """Stops a run after some evaluations without a higher mean return over seeds than the best before.

    Evaluations before the first update do not count: nothing has been learnt yet.
    """

    def __init__(self, evaluations: int):
        self._patience = evaluations
        self._best, self._best_at, self._without = -math.inf, 0, 0

    def on_start(self, event: StartEvent) -> Stop | None:
        """Stop a resumed run that has run out of it already."""
        return self._stop() if event.resumed else None

    def on_evaluation(self, event: EvaluationEvent) -> Stop | None:
        """Count."""
        if event.agent_steps <= event.run.settings.learning_starts:
            return None
        if event.return_mean > self._best:
            self._best, self._best_at, self._without = event.return_mean, event.agent_steps, 0
        else:
            self._without += 1
        return self._stop()

    def _stop(self) -> Stop | None:
        if self._without < self._patience:
            return None
        best = f"the best mean return was {self._best:.1f} at step {self._best_at:,}"
        many = f"{self._without} evaluation{'s' if self._without > 1 else ''} without a higher one since"
        return Stop(f"{best}, with {many}: {spelled('patience')} {self._patience} is over", "patience")

    def state(self) -> Any:
        """The best so far and the evaluations since."""
        return None if self._best == -math.inf else [self._best, self._best_at, self._without]

    def restore(self, state: Any) -> None:
        """Take it."""
        self._best, self._best_at, self._without = _read_state(self.name, state, float, int, int)


def _read_state(name: str, state: Any, *kinds: type[int] | type[float]) -> list[Any]:
    """The numbers of a callback's state in a checkpoint."""
    try:
        return [kind(x) for kind, x in zip(kinds, state, strict=True)]
    except (TypeError, ValueError, ArithmeticError):
        raise DamagedFileError(
            f"the state of {name} in the checkpoint must be {len(kinds)} numbers, got {shortened(state)}; take the "
            "checkpoint from a backup"
        ) from None


def callbacks_of(settings: Settings) -> list[Callback]:
    """Those that the settings of a run ask for."""
    found: list[Callback] = []
    if settings.stop_at_return is not None:
        found.append(StopAtReturn(settings.stop_at_return))
    if settings.patience is not None:
        found.append(Patience(settings.patience))
    return found
