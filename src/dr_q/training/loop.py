"""The loop: take in what came and act on it, start the update, step the simulators meanwhile (Algorithm 1).

RL update k sees exactly `exploration_steps` - 1 + k transitions (D10), whatever overlaps with what, and exploration
counts agent steps (D9).
"""

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from dr_q import agent as drq
from dr_q.config import changed_settings
from dr_q.envs import CallWatchdog, EnvSpec, Pool, ProcessPool, Restarts, Source, Transitions, cores, open_pool
from dr_q.kit import ConfigError, EnvError, RunFolderError, TrainingError, WorkerError, spelled
from dr_q.learner import Learner
from dr_q.learner.saving import Saved, load_newest, to_checkpoint
from dr_q.policies import save_policies
from dr_q.run_folder import (
    Checkpoints,
    Evaluation,
    RunJson,
    RunTables,
    check_new_folder,
    checkpoint_steps,
    is_run,
    last_metrics,
    lock_run_folder,
    read_run_json,
)
from dr_q.settings import Execution, Settings
from dr_q.training.deterministic import make_deterministic
from dr_q.training.display import Display
from dr_q.training.evaluate import Evaluated, Evaluator
from dr_q.training.failed_writes import FailedCheckpoints, check_settings_of, why
from dr_q.training.health import Health, metric_values
from dr_q.training.plan import Plan, plan_for
from dr_q.training.signals import Signals
from dr_q.training.step import PARTS, Clock, Stepper
from dr_q.training.versions import versions
from dr_q.training.writers import MetricWriters

_STOPPING = "dr-q: stopping at the next step, with a checkpoint; once more: at once, without one"
_CORES_TO_EVALUATE = 6
"""Beyond one for each training simulator."""
Callback = Callable[[list[Evaluation]], None]


class TrainResult(NamedTuple):
    """How a run ended."""

    folder: Path
    status: str
    """finished, stopped (by --max-minutes) or interrupted (by a signal)."""
    agent_steps: int
    evaluations: list[Evaluation]
    """Those made by this call."""
    signal: int = 0
    """The signal that interrupted it, if one did."""
    env_restarts: int = 0
    """How often simulators that failed were started again by this call."""


@dataclasses.dataclass(frozen=True)
class Options(Execution):
    """How to run, which does not change results: the settings of `Execution`, and what only a caller can give."""

    quiet: bool = False
    """Print nothing."""
    on_evaluation: Callback | None = None
    """Called with every evaluation."""
    may_exit: bool = False
    """Whether a second signal may end the process where its main thread does not notice it."""


def keep_compiled_programs() -> None:
    """Let a GPU's programs be found again by the next run, unless jax was told where to keep them.

    They compile for half a minute. It also makes a resumed run use the very same programs: a GPU's compiler times
    kernels to choose among them, and another choice rounds differently.
    """
    try:
        backend = jax.default_backend()
    except Exception as error:  # jax has many ways to fail here
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise ConfigError(f"no device to compute on: {why}; unset JAX_PLATFORMS, or see dr-q doctor") from None
    if backend != "cpu" and jax.config.jax_compilation_cache_dir is None:  # pyright: ignore
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(home / "dr-q" / "jax"))


def train(settings: Settings, folder: Path, options: Options, *, resume: bool = False) -> TrainResult:
    """Run the settings in a folder that is new or, if it is resumed, from its last checkpoint."""
    if not resume:
        check_new_folder(folder)
    with lock_run_folder(folder):
        if resume:
            _check_nothing_is_lost(folder, settings.checkpoint_every)
        else:
            check_new_folder(folder)  # another process may have had it meanwhile
        return _train(settings, folder, options, resume=resume)


def _check_nothing_is_lost(folder: Path, checkpoint_every: int) -> None:
    """Refuse to begin again where that would erase results.

    A run that was killed or failed before its first checkpoint may; one whose checkpoints are gone may not.
    """
    if not is_run(folder):
        return
    info = read_run_json(folder, "status", "agent_steps", "seeds")
    never_saved = info["agent_steps"] <= checkpoint_every or info.get("last_checkpoint", -1) is None
    failed_early = never_saved and info["status"] == "failed"
    if info["agent_steps"] > 0 and not failed_early and not checkpoint_steps(folder):
        raise RunFolderError(
            f"{folder} is {info['status']} at step {info['agent_steps']:,} and has no checkpoints: it cannot "
            f"be resumed; start a new run with another {spelled('out')}"
        )


def _train(settings: Settings, folder: Path, options: Options, *, resume: bool) -> TrainResult:
    if options.deterministic:
        make_deterministic()
    keep_compiled_programs()
    planned: list[Plan] = []
    run: _Run | None = None

    def plan(spec: EnvSpec) -> None:
        planned.append(plan_for(settings, spec, options.device_memory))  # may refuse

    def hang(error: WorkerError) -> None:
        """From the watchdog's thread: the main thread is in an environment that cannot be interrupted."""
        if run is not None:
            run.failed(error)
        if options.may_exit:
            print(f"dr-q: {error}", file=sys.stderr, flush=True)
            os._exit(error.exit_code)

    timeout = float(options.env_timeout)
    watchdog = CallWatchdog(timeout)
    watchdog.give_up = hang
    restarts = Restarts(options.max_env_restarts)
    failing: dict[str, Any] = {"timeout": timeout, "restarts": restarts}
    pool = training_pool(settings, options.in_process, plan, watchdog=watchdog, **failing)
    for_evaluation = evaluation_pool(settings, options.background_evaluation, **failing)

    def give_up() -> None:
        if run is not None:
            run.stopped_at_once()
            for ends in (run.display, run.writers):
                with contextlib.suppress(Exception):
                    ends.close()
        if isinstance(pool, ProcessPool):
            pool.close()

    try:
        with Signals("" if options.quiet else _STOPPING, give_up if options.may_exit else None) as signals:
            watchdog.interrupt = signals.call_in_main
            run = _Run(settings, folder, options, pool, for_evaluation, planned[0], restarts, resume)
            try:
                return run.go(signals)
            finally:
                run.close()
    finally:
        pool.close()


def training_pool(
    settings: Settings, in_process: bool | None, accept: Callable[[EnvSpec], None], **failing: Any
) -> Pool:
    """Simulators to train on: in this process or, by default for several seeds, in a process for each.

    Args:
        settings: Of the run.
        in_process: Whether they are in this process; None for the default.
        accept: May refuse the first seed's environment before those of the others are started.
        failing: What happens to those that fail: see `open_pool`.
    """
    here = settings.seeds == 1 if in_process is None else in_process
    return _pool(settings, in_process=here, accept=accept, **failing)


def evaluation_pool(settings: Settings, background: bool | None = None, **failing: Any) -> Callable[[], Pool] | None:
    """How to open simulators for evaluating in the background, if that is asked for or, by default, worth it."""
    if background is None:  # on the CPU the cores are busy learning; a caller's own environment may not travel
        named = isinstance(settings.task, str)
        background = named and jax.default_backend() != "cpu" and cores() >= settings.seeds + _CORES_TO_EVALUATE
    return (lambda: _pool(settings, in_process=False, spin=False, **failing)) if background else None


def _pool(settings: Settings, **how: Any) -> Pool:
    source = Source(settings.task, settings.noise_dims)
    return open_pool(source, settings.seed_list, settings.eval_episodes, **how)


class _Run:
    """One call of `train`."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        options: Options,
        pool: Pool,
        for_evaluation: Callable[[], Pool] | None,
        plan: Plan,
        restarts: Restarts,
        resume: bool,
    ):
        self.settings, self.config, self.options, self.pool, self.folder = (
            settings,
            settings.config,
            options,
            pool,
            folder,
        )
        self.seeds = settings.seed_list
        changed = changed_settings(settings.preset, dataclasses.asdict(settings.config))
        self.display = Display(settings, options.quiet)
        self.record = RunJson(
            folder, settings.to_json(), changed, self.seeds, versions(settings.task_name, options.deterministic)
        )
        self.tables = RunTables(folder, self.display.say)
        self.checkpoints = Checkpoints(folder, self.seeds, settings.keep_checkpoints)
        self.display.plan(plan)
        self.restarts, restarts.say = restarts, self.display.say
        if settings.steps <= self.config.exploration_steps:
            self.display.say(
                f"nothing will be learnt: all {settings.steps:,} steps explore; give more steps than "
                f"exploration_steps, {self.config.exploration_steps:,}, or fewer of those (preset quick has 1,000)"
            )
        self.evaluations: list[Evaluation] = []
        self.clock = Clock()
        self.learner = Learner(plan.spec, self.seeds)
        self.step = 0
        self.evaluated_at = -1
        self.unsaved_policies: Evaluated | None = None
        self.failed_checkpoints = FailedCheckpoints(options.max_failed_checkpoints, self.display.say)
        self.health = Health(self.config, self.seeds, self.learner, self.display.say, self._last_checkpoint)
        arrived, encoder_metrics = self._resume() if resume else (None, None)
        rows = last_metrics(folder) if resume else []
        self.restarts_before = {int(row["seed"]): int(row.get("env_restarts") or 0) for row in rows}
        """Those of each seed before this process, as far as they were logged."""
        device_before = self.record.resume(self.step) if resume else None
        if device_before is not None:
            self.display.say(
                f"this run computed on {device_before} so far and continues on "
                f"{jax.device_count()} x {jax.devices()[0].device_kind}: its results will differ from an unbroken run's"
            )
        if self.step == 0:
            self.learner.begin(pool.begin())
        self.display.say_on_device(f"compiled in {self.learner.compile():.0f} s")
        self.stepper = Stepper(self.learner, pool, self.clock, arrived, self._check_starts)
        self.stepper.encoder_metrics = encoder_metrics
        self.logged_at = self.step
        self.evaluator = Evaluator(self.learner, self.seeds, settings.eval_episodes, for_evaluation, pool)
        # A run without a checkpoint begins again, with the evaluation at step 0.
        purge_from = (self.step + 1 if self.step else 0) if resume else None
        self.writers = MetricWriters(
            folder, settings, options.wandb, purge_from, self.display.say, **options.wandb_arguments
        )

    def close(self) -> None:
        """End what runs next to the loop."""
        self.evaluator.close()
        self.stepper.close()

    def go(self, signals: Signals) -> TrainResult:
        """Step until the end, a signal, or the time given."""
        settings, start = self.settings, time.monotonic()
        self.clock.take()  # restoring and compiling are no step's
        limit = None if self.options.max_minutes is None else 60 * self.options.max_minutes
        self.record.write("running", self.step)
        self.display.start()
        saved_at = self.step
        try:
            while True:
                due = self.step % settings.eval_every == 0 or self.step >= settings.steps
                if due and self.evaluated_at != self.step:
                    self._evaluate()
                self._take_evaluation(wait=False)
                out_of_time = limit is not None and time.monotonic() - start > limit
                done = self.step >= settings.steps
                ends = done or out_of_time or bool(signals.received)
                regular = self.step % settings.checkpoint_every == 0 and self.step > 0
                if ends or regular:
                    self._take_evaluation(wait=True)  # a checkpoint has every evaluation up to it
                if (ends or regular) and saved_at != self.step:
                    self._checkpoint(must=ends)
                    saved_at = self.step
                if ends:
                    status = "finished" if done else "interrupted" if signals.received else "stopped"
                    return self._end(status, 0 if done else signals.received)
                self._train_step()
                self.step += 1
                self.health.check_actions(self.stepper, self.step)
                if self.step % 50 == 0:
                    self.display.step(self.step)
                    self.health.check_metrics(self.stepper.metrics_before, None, self.step)
                    self.health.check_rewards(*self.pool.reward_range())
                if self.step % self.options.log_every == 0:
                    self._log()
        except KeyboardInterrupt:
            self.evaluator.give_up()  # before what may wait for a disk
            self.stopped_at_once()
            raise
        except BaseException as error:
            self.evaluator.give_up()
            self.failed(error)
            if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):  # a reader that left is none
                raise TrainingError(
                    f"failed at step {self.step:,}: {why(error)}; once that is fixed, {self._how_to_resume()}"
                ) from error
            raise
        finally:
            self.writers.close()
            self.display.close()

    def failed(self, error: BaseException) -> None:
        """Write down that the run failed, and say how to resume it."""
        with contextlib.suppress(OSError):  # the first error is the one to report
            self.record.write("failed", self.step)
        if isinstance(error, EnvError | WorkerError):
            self.display.say(f"failed at step {self.step:,}; once that is fixed, {self._how_to_resume()}")

    def stopped_at_once(self) -> None:
        """Leave the run as it is, without another checkpoint."""
        with contextlib.suppress(OSError):
            self.record.write("failed", self.step)
        self.display.say(f"stopped at step {self.step:,}; {self._how_to_resume()}")

    def _how_to_resume(self) -> str:
        saved = self.checkpoints.steps()
        how = f"resume from step {saved[-1]:,}" if saved else "start again (there is no checkpoint yet)"
        return f"{how} with: {self._resume_call()}"

    def _train_step(self) -> None:
        exploring = self.step < self.config.exploration_steps  # D9: agent steps
        first = (self.step - self.config.exploration_steps) * self.config.replay_ratio
        self.stepper.step(None if exploring else first)

    def _check_starts(self) -> None:
        valid = self.learner.have_valid_start()
        if valid.all():
            if self.pool.spec.obs.images and jax.default_backend() == "cpu":
                self.display.say(
                    f"learning begins, with {self.config.target_period} encoder updates at once: from images on a CPU "
                    f"that may take many minutes ({spelled('batch_size')} and {spelled('target_period')} make it less)"
                )
            return
        what = f"after {self.step} steps seed {self.seeds[int(np.argmin(valid))]} has no window of "
        what += f"{self.config.horizon} transitions to learn from"
        if self.step <= self.config.horizon:
            raise TrainingError(f"{what}: too few steps yet; give more exploration_steps")
        raise TrainingError(
            f"{what}: its episodes are all truncated sooner; give longer episodes, or let the environment terminate "
            "instead of truncate, or explore longer"
        )

    def _check_draws(self) -> None:
        """End a run in which updates found nothing to draw: they learnt from what happened to be in the last slot."""
        empty = self.learner.empty_draws()
        if not empty.any():
            return
        raise TrainingError(
            f"by step {self.step:,} seed {self.seeds[int(np.argmax(empty))]} had no window of {self.config.horizon} "
            f"transitions left to learn from: its newer episodes are all truncated sooner, and older ones were "
            f"overwritten; give longer episodes or a larger {spelled('replay_capacity')} "
            f"({self.config.replay_capacity:,}); {self._last_checkpoint()}"
        )

    def _evaluate(self) -> None:
        self.clock.lap("other")
        self._take_evaluation(wait=True)
        self._check_draws()
        self.evaluator.start(self.step)
        self.evaluated_at = self.step
        self.clock.lap("evaluate")

    def _take_evaluation(self, *, wait: bool) -> None:
        """Write down what an evaluation gave, once it is there."""
        done = self.evaluator.take(wait=wait)
        if done is None:
            return
        self.clock.lap("other")
        self.evaluations += done.results
        self.tables.append_evaluations(done.results)
        self.unsaved_policies = done
        try:
            self._save_policies()
        except OSError as error:
            self.display.say(
                f"the policies of step {done.agent_steps:,} cannot be written ({why(error)}): they will be with "
                "the next checkpoint; training continues"
            )
        values = {f"return/seed{e.seed}": e.return_mean for e in done.results}
        self.writers.scalars({**values, "return/mean": float(np.mean(list(values.values())))}, done.agent_steps)
        self.display.evaluation(done.results)
        if self.options.on_evaluation is not None:
            self.options.on_evaluation(done.results)
        self.clock.lap("evaluate")

    def _save_policies(self) -> None:
        """Write those of the last evaluation, if they are not written yet."""
        done = self.unsaved_policies
        if done is None:
            return
        best = max(done.results, key=lambda e: e.return_mean)
        record = {
            "task": self.settings.task_name,
            "preset": self.settings.preset,
            "noise_dims": self.settings.noise_dims,
            "agent_steps": done.agent_steps,
            "best_seed": best.seed,
            "returns": {e.seed: e.return_mean for e in done.results},
            "config": dataclasses.asdict(self.config),
        }
        save_policies(self.folder, self.pool.spec.spaces, record, done.policies, self.seeds)
        self.unsaved_policies = None

    def _log(self) -> None:
        count, self.logged_at = self.step - self.logged_at, self.step
        per_step = {f"ms_{part}": 1000 * s / count for part, s in self.clock.take().items()}
        metrics, encoder = self.stepper.metrics, self.stepper.encoder_metrics
        if metrics is None or encoder is None:
            return
        self._check_draws()
        values = metric_values(self.config, metrics, encoder)
        timing = {f"ms_{part}": per_step.get(f"ms_{part}", 0.0) for part in _PARTS}
        columns = ["seed", "agent_steps", *values, *timing, "env_restarts"]
        rows = [
            [
                seed,
                self.step,
                *(f"{x[i]:.6g}" for x in values.values()),
                *(f"{x:.4g}" for x in timing.values()),
                self.restarts_before.get(seed, 0) + self.restarts.of_seed[seed],
            ]
            for i, seed in enumerate(self.seeds)
        ]
        self.tables.append_metrics(columns, rows)
        self.health.check(values, self.step)
        self.writers.scalars(
            {
                **{f"train/{name}": float(x.mean()) for name, x in values.items()},
                **{
                    f"{name}/seed{seed}": float(x[i]) for name, x in values.items() for i, seed in enumerate(self.seeds)
                },
                **{f"time/{k}": v for k, v in timing.items()},
            },
            self.step,
        )

    def _last_checkpoint(self) -> str:
        saved = self.checkpoints.steps()
        return f"the last good checkpoint is of step {saved[-1]:,}" if saved else "there is no checkpoint"

    def _checkpoint(self, *, must: bool) -> None:
        """Write one. Where that fails, training continues without, unless there `must` be one because the run ends."""
        self.clock.lap("other")
        learner, arrived = self.learner, self.stepper.arrived
        assert learner.pending is not None
        assert arrived is not None
        self._check_draws()
        self.health.check_weights(self.step)
        frames = None if learner.frames is None else learner.frames.rings
        states = jax.block_until_ready(learner.states)
        episodes, seen = self.pool.open_episodes(), self.stepper.encoder_metrics
        saved = Saved(self.step, states, learner.pending, arrived, episodes, frames, seen)
        self.failed_checkpoints.attempt(lambda: self._write(saved), self.step, must, self._how_to_resume)
        self.clock.lap("checkpoint")

    def _write(self, saved: Saved) -> None:
        """Write a checkpoint, and before that every evaluation up to it; OSError if that cannot be."""
        self.tables.flush()
        self._save_policies()
        evaluations = self.tables.evaluations_text()
        self.checkpoints.write(to_checkpoint(saved, self.seeds, evaluations, self.settings.to_json()))
        self.record.last_checkpoint = saved.agent_steps
        self.record.write("running", self.step)

    def _end(self, status: str, number: int) -> TrainResult:
        self.record.write(status, self.step)
        if self.restarts.of_seed:
            self.display.say(self.restarts.summary())
        if status != "finished":
            self.display.say(f"{status} at step {self.step:,}; resume with: {self._resume_call()}")
        return TrainResult(self.folder, status, self.step, self.evaluations, number, self.restarts.of_seed.total())

    def _resume_call(self) -> str:
        if isinstance(self.settings.task, str):
            return f"dr-q train --resume {self.folder}{' --deterministic' if self.options.deterministic else ''}"
        same = ", deterministic=True" if self.options.deterministic else ""
        return f"dr_q.train(THE_SAME_CALLABLE, resume={str(self.folder)!r}{same})"

    def _resume(self) -> tuple[Transitions | None, drq.EncoderMetrics | None]:
        """Continue from the last checkpoint: what came of its last actions, and what its last encoder updates saw."""
        if not self.checkpoints.steps():
            self.checkpoints.tidy()  # what a killed run left half-written, which must not be taken for this one's
            self.tables.drop_after(-1)
            self.display.say(f"{self.folder} has no checkpoint yet: from the beginning")
            return None, None
        saved, stored = load_newest(self.checkpoints, self.learner.spec, self.display.say)
        self.checkpoints.tidy()
        check_settings_of(self.folder, self.settings, stored)
        self.step = self.evaluated_at = self.record.last_checkpoint = saved.agent_steps
        self.tables.go_back(self.step, stored.evaluations, self.display.say)
        arrived = self._back_to(saved)
        if self.learner.frames is not None and saved.frames is not None:
            self.learner.frames.rings = saved.frames
        self.learner.restore(saved.states, saved.pending)
        self.display.say(f"resumed at step {self.step:,}")
        return arrived, saved.encoder_metrics

    def _back_to(self, saved: Saved) -> Transitions:
        """Bring the simulators back to where they were."""
        arrived = Transitions(saved.arrived.packet.copy(), saved.arrived.layout)
        reached = self.pool.restore(saved.episodes)
        for i, seed in enumerate(self.seeds):
            if all(np.array_equal(x[i], arrived.obs[name][i]) for name, x in reached.items()):
                continue
            episode = saved.episodes[i][0]
            self.display.say(
                f"seed {seed}: its simulator could not be brought back to where it was (replaying episode "
                f"{episode} led elsewhere); that episode is closed as truncated, and results will differ from an "
                "unbroken run"
            )
            arrived.numbers[i, 2] = 1
            arrived.replace_obs(i, self.pool.restart(i, episode + 1))
        return arrived


_PARTS = (*PARTS, "evaluate", "checkpoint", "other")
