"""The loop: act, start the update, step the simulators meanwhile, add (Algorithm 1).

RL update k sees exactly `exploration_steps` - 1 + k transitions (D10), whatever overlaps with what, and exploration
counts agent steps (D9).
"""

import dataclasses
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dr_q import agent as drq
from dr_q import replay as rp
from dr_q.agent import ConfigError
from dr_q.envs import Pool, Source, Transitions, open_pool
from dr_q.report import read_run
from dr_q.run import seeds as axis
from dr_q.run.checkpoint import Checkpoints, Saved
from dr_q.run.evaluate import Evaluation, evaluate
from dr_q.run.log import Boards, Display, RunFiles
from dr_q.run.policy import save_policies
from dr_q.run.settings import Settings

LOG_EVERY = 1_000
Callback = Callable[[list[Evaluation]], None]


class TrainingError(RuntimeError):
    """A run that cannot go on: why, and what to do."""


class Outcome(NamedTuple):
    """How a run ended."""

    folder: Path
    status: str
    """finished, stopped (by --stop-after) or interrupted (by a signal)."""
    agent_steps: int
    evaluations: list[Evaluation]
    """Those made by this call."""
    signal: int = 0
    """The signal that interrupted it, if one did."""


@dataclasses.dataclass
class Options:
    """How to run, which does not change results."""

    stop_after: float | None = None
    """Minutes after which to write a checkpoint and stop."""
    in_process: bool | None = None
    """Simulate in this process; by default with one seed only."""
    wandb: bool = False
    quiet: bool = False
    on_evaluation: Callback | None = None
    """Called with every evaluation."""


class _Clock:
    """Seconds spent in each part of a step since the last log."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
        self._last = now


class _Signals:
    """SIGINT and SIGTERM become a request to stop at the next step; a second one stops at once."""

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_Signals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._take)
        return self

    def _take(self, number: int, _: Any) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = number

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def train(settings: Settings, folder: Path, options: Options, *, resume: bool = False) -> Outcome:
    """Run the settings in a folder, from its last checkpoint if it is resumed."""
    in_process = options.in_process if options.in_process is not None else settings.seeds == 1
    source = Source(settings.task, settings.noise_dims)
    pool = open_pool(source, settings.seed_list, settings.eval_episodes, in_process=in_process)
    try:
        with _Signals() as signals:
            return _Run(settings, folder, options, pool, resume).go(signals)
    finally:
        pool.close()


class _Run:
    """One call of `train`."""

    def __init__(self, settings: Settings, folder: Path, options: Options, pool: Pool, resume: bool):
        self.settings, self.config, self.options, self.pool, self.folder = (
            settings,
            settings.config,
            options,
            pool,
            folder,
        )
        self.seeds = settings.seed_list
        self.roots = axis.root_keys(self.seeds)
        spec = pool.spec
        self.shape = drq.TaskShape(spec.obs_shape, spec.action_dim, spec.history)
        self.files = RunFiles(folder, settings)
        self.checkpoints = Checkpoints(folder, self.seeds, settings.keep)
        self.display = Display(settings, options.quiet)
        self.evaluations: list[Evaluation] = []
        self.last: list[Evaluation] = []
        self.clock = _Clock()
        self.summary: axis.UpdateSummary | None = None
        self.encoder_seen: drq.EncoderMetrics | None = None
        shortest = 1 if spec.can_terminate or spec.episode_length is None else spec.episode_length
        capacity = rp.slots_to_fill(settings.steps, self.config.replay_capacity, shortest)
        self.capacity = max(capacity, rp.smallest_capacity(self.config.horizon, spec.history))
        if resume:
            self._resume()
        else:
            self.step = 0
            self.states = axis.SeedStates(
                axis.init_agents(self.config, self.shape, self.roots),
                axis.init_replays(self.config, self.shape, self.capacity, len(self.seeds)),
            )
            self.obs = pool.begin()
            self.evaluated_at = -1
        self.boards = Boards(folder, settings, options.wandb)

    def go(self, signals: _Signals) -> Outcome:
        """Step until the end, a signal, or the time given."""
        settings, start = self.settings, time.monotonic()
        limit = None if self.options.stop_after is None else 60 * self.options.stop_after
        self.files.write_status("running", self.step)
        saved_at = self.step if self.evaluated_at >= 0 else -1
        try:
            while True:
                due = self.step % settings.eval_every == 0 or self.step == settings.steps
                if due and self.evaluated_at != self.step:
                    self._evaluate()
                out_of_time = limit is not None and time.monotonic() - start > limit
                done = self.step == settings.steps
                ends = done or out_of_time or bool(signals.received)
                regular = self.step % settings.checkpoint_every == 0 and self.step > 0
                if (ends or regular) and saved_at != self.step:
                    self._checkpoint()
                    saved_at = self.step
                if ends:
                    status = "finished" if done else "interrupted" if signals.received else "stopped"
                    return self._end(status, 0 if done else signals.received)
                self._train_step()
                self.step += 1
                if self.step % 50 == 0:
                    self.display.step(self.step)
                if self.step % LOG_EVERY == 0:
                    self._log()
        except BaseException:
            self.files.write_status("failed", self.step)
            raise
        finally:
            self.boards.close()
            self.display.close()

    def _train_step(self) -> None:
        config, step = self.config, self.step
        here = jnp.asarray(step, jnp.int32)
        if step < config.exploration_steps:  # D9: agent steps
            actions = np.asarray(axis.random_actions(self.pool.spec.action_dim, self.roots, here))
            self.clock.lap("act")
            self.pool.send(actions)
        else:
            actions = np.asarray(axis.explore(config, self.states.agents.online, self.obs, self.roots, here))
            self.clock.lap("act")  # waits for the update before
            self.pool.send(actions)
            self._update((step - config.exploration_steps) * config.replay_ratio)
            self.clock.lap("dispatch")
        result = self.pool.receive()
        self.clock.lap("simulate")
        self.states = self.states._replace(replays=axis.add(self.states.replays, self._transitions(actions, result)))
        self.obs = result.obs
        self.clock.lap("add")

    def _update(self, index: int) -> None:
        """The RL updates of one agent step, numbered from 0, with target copies where they are due."""
        if index == 0:
            self._check_starts()
        for number in range(index, index + self.config.replay_ratio):
            where = jnp.asarray(number, jnp.int32)
            if number % self.config.target_period == 0:
                self.states, self.encoder_seen = axis.renew(self.config, self.states, self.roots, where)
            self.states, self.summary = axis.update(self.config, self.states, self.roots, where)

    def _check_starts(self) -> None:
        valid = np.asarray(axis.have_valid_start(self.states.replays))
        if not valid.all():
            raise TrainingError(
                f"after {self.step} steps seed {self.seeds[int(np.argmin(valid))]} has no window of "
                f"{self.config.horizon} transitions to learn from: its episodes are all truncated sooner; "
                "give longer episodes, or let the environment terminate instead of truncate, or explore longer"
            )

    def _transitions(self, actions: np.ndarray, result: Transitions) -> rp.Transition:
        frame = self.shape.frame_shape[0]  # of a stack only the newest frame is stored
        newest = slice(self.obs.shape[1] - frame, None)
        return rp.Transition(
            obs=jnp.asarray(self.obs[:, newest]),
            action=jnp.asarray(actions),
            reward=jnp.asarray(result.reward),
            next_obs=jnp.asarray(result.next_obs[:, newest]),
            terminated=jnp.asarray(result.terminated),
            truncated=jnp.asarray(result.truncated),
        )

    def _evaluate(self) -> None:
        self.clock.lap("other")
        self.last = evaluate(self.pool, self.states.agents.online, self.seeds, self.step, self.settings.eval_episodes)
        self.evaluated_at = self.step
        self.evaluations += self.last
        self.files.append_evaluations(self.last)
        self._save_policies()
        values = {f"return/seed{e.seed}": e.return_mean for e in self.last}
        self.boards.scalars({**values, "return/mean": float(np.mean(list(values.values())))}, self.step)
        self.display.evaluation(self.last)
        if self.options.on_evaluation is not None:
            self.options.on_evaluation(self.last)
        self.clock.lap("evaluate")

    def _save_policies(self) -> None:
        best = max(self.last, key=lambda e: e.return_mean)
        record = {
            "task": self.settings.task_name,
            "preset": self.settings.preset,
            "noise_dims": self.settings.noise_dims,
            "agent_steps": self.step,
            "best_seed": best.seed,
            "returns": {e.seed: e.return_mean for e in self.last},
            "config": dataclasses.asdict(self.config),
        }
        save_policies(self.folder, self.pool.spec, record, self.states.agents.online, self.seeds)

    def _log(self) -> None:
        per_step = {f"ms_{part}": 1000 * s / LOG_EVERY for part, s in self.clock.seconds.items()}
        self.clock.seconds.clear()
        if self.summary is None or self.encoder_seen is None:
            return
        values: dict[str, np.ndarray] = {name: np.asarray(x) for name, x in self.summary._asdict().items()}
        values["encoder_loss"] = np.asarray(self.encoder_seen.loss)
        for name, x in self.encoder_seen.terms._asdict().items():
            values[f"encoder_{name}"] = np.asarray(x)
        timing = {f"ms_{part}": per_step.get(f"ms_{part}", 0.0) for part in _PARTS}
        columns = ["seed", "agent_steps", *values, *timing]
        rows = [
            [seed, self.step, *(f"{x[i]:.6g}" for x in values.values()), *(f"{x:.4g}" for x in timing.values())]
            for i, seed in enumerate(self.seeds)
        ]
        self.files.append_metrics(columns, rows)
        self.boards.scalars(
            {
                **{f"train/{name}": float(x.mean()) for name, x in values.items()},
                **{f"time/{k}": v for k, v in timing.items()},
            },
            self.step,
        )

    def _checkpoint(self) -> None:
        self.clock.lap("other")
        states = jax.block_until_ready(self.states)
        self.checkpoints.save(Saved(self.step, states, self.pool.open_episodes(), self.obs))
        self.files.write_status("running", self.step)
        self.clock.lap("checkpoint")

    def _end(self, status: str, number: int) -> Outcome:
        self.files.write_status(status, self.step)
        if status != "finished":
            self.display.say(f"{status} at step {self.step:,}; go on with: dr-q train --resume {self.folder}")
        return Outcome(self.folder, status, self.step, self.evaluations, number)

    def _resume(self) -> None:
        steps = self.checkpoints.steps()
        if not steps:
            raise ConfigError(f"{self.folder} has no checkpoint to resume from; start the run again in a new folder")
        self.checkpoints.tidy()  # what a killed run left half-written
        saved = self.checkpoints.load(steps[-1], self.config, self.shape, self.capacity)
        self.step, self.states, self.obs = saved.agent_steps, saved.states, saved.obs
        self.files.drop_after(self.step)
        self.evaluated_at = self.step
        self.last = _last_evaluations(self.folder)
        reached = self.pool.restore(saved.episodes)
        lost = np.array([not np.array_equal(reached[i], self.obs[i]) for i in range(len(self.seeds))])
        for i in np.flatnonzero(lost):
            episode = saved.episodes[i][0]
            self.display.say(
                f"seed {self.seeds[i]}: its simulator could not be brought back to where it was (replaying episode "
                f"{episode} led elsewhere); that episode is closed as truncated, and results will differ from an "
                "unbroken run"
            )
            self.obs[i] = self.pool.restart(int(i), episode + 1)
        if lost.any():
            replays = axis.truncate_episodes(self.states.replays, jnp.asarray(lost))
            self.states = self.states._replace(replays=replays)
        self.display.say(f"resumed at step {self.step:,}")


_PARTS = ("act", "dispatch", "simulate", "add", "evaluate", "checkpoint", "other")


def _last_evaluations(folder: Path) -> list[Evaluation]:
    run = read_run(folder)
    return [
        Evaluation(seed, points[-1][0], 0, points[-1][1], 0.0, 0.0, 0)
        for seed, points in run.evaluations.items()
        if points
    ]
