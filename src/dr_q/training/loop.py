"""The loop: take in what came and act on it, start the update, step the simulators meanwhile (Algorithm 1).

RL update k sees exactly `exploration_steps` - 1 + k transitions (D10), whatever overlaps with what, and exploration
counts agent steps (D9).
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from dr_q import agent as drq
from dr_q.config import changed_settings, settings_of
from dr_q.envs import (
    MOST_INFO_KEYS,
    CallWatchdog,
    EnvSpec,
    Pool,
    ProcessPool,
    Restarts,
    Transitions,
    interrupting,
)
from dr_q.kit import (
    ConfigError,
    DamagedFileError,
    DrQError,
    EnvError,
    RunFolderError,
    TrainingError,
    WorkerError,
    is_installed,
    spelled,
)
from dr_q.learner import Learner
from dr_q.learner.saving import Saved, load_newest, to_checkpoint
from dr_q.policies import Policy, policy_of_seed, save_policies
from dr_q.policies.episodes import LONGEST_EPISODE
from dr_q.policies.watch import check_video_package
from dr_q.run_folder import (
    Checkpoints,
    Evaluation,
    RunJson,
    RunTables,
    StoredCheckpoint,
    check_new_folder,
    checkpoint_steps,
    is_run,
    last_metrics,
    lock_run_folder,
    read_run_json,
    source_digest,
    tensorboard_folder,
    tidy_policies,
)
from dr_q.settings import Execution, Settings
from dr_q.training.best import BestPolicies, BestPolicy
from dr_q.training.callbacks import (
    OTHER_VALUE,
    Callback,
    Callbacks,
    CheckpointEvent,
    EndEvent,
    EpisodeEvent,
    EvaluationEvent,
    RunView,
    StartEvent,
    StepEvent,
    Stop,
    callbacks_of,
    info_keys_of,
    metrics_of_state,
    metrics_state,
    on_evaluation_callbacks,
)
from dr_q.training.compile_cache import keep_compiled_programs
from dr_q.training.deterministic import make_deterministic
from dr_q.training.display import Display
from dr_q.training.environment import check_environment, environment_record
from dr_q.training.episodes import EndedEpisode, EpisodeLog
from dr_q.training.evaluate import Evaluated, Evaluator
from dr_q.training.failed_writes import FailedCheckpoints, check_settings_of, why
from dr_q.training.health import Health, logged_names, metric_values
from dr_q.training.plan import Plan, plan_for
from dr_q.training.pools import evaluation_pool, training_pool
from dr_q.training.schedule import Schedule
from dr_q.training.signals import Signals
from dr_q.training.starting import Start, check_packages, check_start, read_start
from dr_q.training.step import PARTS, Clock, Stepper
from dr_q.training.versions import versions
from dr_q.training.videos import Videos
from dr_q.training.writers import MetricWriters

_SECONDS_BETWEEN_LINES = 10.0
"""While critics and actor learn before step 0."""
_STOPPING = "dr-q: stopping after the current step, with a checkpoint; a second signal stops at once, without one"


class TrainResult(NamedTuple):
    """How a run ended: what `dr_q.train` returns.

    Example:
        ```python
        result = dr_q.train("gym/Pendulum-v1", preset="quick", steps=20_000, stop_at_return=-200)
        print(result.status, result.stop_reason, result.agent_steps)
        print([evaluation.return_mean for evaluation in result.evaluations])
        policy = dr_q.load(result.folder, which="best")
        ```
    """

    folder: Path
    """The run's folder."""
    status: str
    """`"finished"`, `"stopped"` (by `max_minutes`, a stopping rule or a callback) or `"interrupted"` (by a signal)."""
    agent_steps: int
    """Agent steps of each seed so far, including those before a resume."""
    evaluations: list[Evaluation]
    """The evaluations of all seeds that this call made, in order."""
    signal: int = 0
    """Number of the signal that interrupted the run; 0 if none did."""
    env_restarts: int = 0
    """Number of failed simulators that this call restarted."""
    stop_reason: str = ""
    """Why the run was stopped; empty if it was not."""
    best: tuple[BestPolicy, ...] = ()
    """The best policy of each seed over time, with both its scores; empty with `keep_best=False`."""


@dataclasses.dataclass(frozen=True)
class Options(Execution):
    """How to run, which does not change results: the settings of `Execution`, and what only a caller can give."""

    quiet: bool = False
    """Print nothing."""
    on_evaluation: Callable[[list[Evaluation]], Any] | None = None
    """Called with every evaluation."""
    callbacks: tuple[Callback, ...] = ()
    """Called in this order."""
    started: float | None = dataclasses.field(default=None, compare=False)
    """When the time that `max_minutes` limits began, by `time.monotonic()`; by default with the call of `train`."""
    new_environment: bool = False
    """Whether a run may be resumed with another environment than its own."""
    may_exit: bool = False
    """Whether a second signal may end the process where its main thread does not notice it."""


def train(settings: Settings, folder: Path, options: Options, *, resume: bool = False) -> TrainResult:
    """Run the settings in a folder that is new or, if it is resumed, from its last checkpoint."""
    if options.started is None:
        options = dataclasses.replace(options, started=time.monotonic())
    if options.video_every is not None:
        check_video_package()
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


def _before_anything(settings: Settings, folder: Path, options: Options, *, resume: bool) -> None:
    """Set up jax, and refuse what can be refused without an environment."""
    if options.deterministic:
        make_deterministic()
    keep_compiled_programs()
    check_packages(options)
    if not (resume and checkpoint_steps(folder)):
        check_start(settings)


def _train(settings: Settings, given: Path, options: Options, *, resume: bool) -> TrainResult:
    folder = given.absolute()  # an environment may change the current folder
    _before_anything(settings, folder, options, resume=resume)
    planned: list[tuple[Plan, Start]] = []
    run: _Run | None = None

    def plan(spec: EnvSpec) -> None:
        nonlocal settings
        if spec.vector_lanes:
            settings = dataclasses.replace(settings, num_envs=spec.vector_lanes)
        start = read_start(settings, spec.spaces, folder, resume=resume)  # may refuse
        planned.append((plan_for(settings, spec, options.device_memory, prefilled=start.slots), start))

    def hang(error: WorkerError) -> None:
        """From the watchdog's thread: the main thread is in an environment that cannot be interrupted."""
        ended = run is not None and run.ended  # then it is in close(), and the results are all there
        if run is not None and not ended:
            run.failed(error)
        if options.may_exit:
            print(f"dr-q: {error}{', in close()' if ended else ''}", file=sys.stderr, flush=True)
            os._exit(run.exit_code if run is not None and ended else error.exit_code)

    watchdog = CallWatchdog(float(options.env_timeout))
    watchdog.give_up = hang
    restarts = Restarts(options.max_env_restarts)
    probed = not resume and not options.max_env_restarts  # one that may fail may do so in a probe
    failing: dict[str, Any] = {"timeout": float(options.env_timeout), "restarts": restarts}
    callbacks = [*callbacks_of(settings), *options.callbacks, *on_evaluation_callbacks(options.on_evaluation)]
    keys = info_keys_of(callbacks, MOST_INFO_KEYS)
    how: dict[str, Any] = {"info_keys": keys, "probed": probed, "envs_per_process": options.envs_per_process}
    with interrupting(watchdog):
        pool = training_pool(settings, options.in_process, plan, watchdog=watchdog, **how, **failing)
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
            rest = (*planned[0], restarts, resume, callbacks, keys, signals)
            run = _Run(settings, folder, given, options, pool, for_evaluation, *rest)
            try:
                return run.go(signals)
            finally:
                run.close()
    finally:
        with interrupting(watchdog):
            pool.close()


class _Run:
    """One call of `train`."""

    ended: str = ""
    """The status that the run ended with, once it has."""
    exit_code: int = 0
    """Of a command whose run has ended."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        shown: Path,
        options: Options,
        pool: Pool,
        for_evaluation: Callable[[], Pool] | None,
        plan: Plan,
        start: Start,
        restarts: Restarts,
        resume: bool,
        callbacks: list[Callback],
        info_keys: tuple[str, ...],
        signals: Signals,
    ):
        # Both are the same folder: as it is used, and as the caller gave it.
        self.pool, self.folder, self.shown = pool, folder, shown
        self.settings, self.config, self.options = settings, settings.config, options
        self.seeds, changed = settings.seed_list, changed_settings(settings.preset, dataclasses.asdict(settings.config))
        self.display = Display(settings, options.quiet)
        self.record = RunJson(
            folder, settings.to_json(), changed, self.seeds, versions(settings.task_name, options.deterministic)
        )
        self.tables = RunTables(folder, self.display.say)
        self.checkpoints = Checkpoints(folder, self.seeds, settings.keep_checkpoints)
        self.display.plan(plan)
        self.restarts, restarts.say = restarts, self.display.say
        self._say_limits()
        self.evaluations: list[Evaluation] = []
        self.schedule = Schedule(self.config, settings.num_envs, settings.learning_starts, start.transitions)
        self.clock = Clock()
        self.learner = Learner(plan.spec, self.seeds)
        self.log_every = options.log_interval(settings.steps)
        self.episodes = EpisodeLog(len(self.seeds), settings.num_envs, pool.spec.obs, self.config)
        self.best = self._best_policies(settings) if options.keep_best else None
        self.callbacks, self.info_keys = Callbacks(callbacks), info_keys
        self.view = RunView(folder, settings, self._policy_now, self.display.say)
        self.view.episode_returns = dict(zip(self.seeds, self.episodes.recent, strict=True))
        self.resumed = False
        """Whether it continues from a checkpoint."""
        self.videos = Videos(settings, options.video_every, folder, self.display.say)
        self.checked_info = False
        self.step = 0
        self.evaluated_at = -1
        self.unsaved_policies: Evaluated | None = None
        self.failed_checkpoints = FailedCheckpoints(options.max_failed_checkpoints, self.display.say)
        self.health = Health(self.config, self.seeds, self.learner, self.display.say, self._last_checkpoint)
        self.record.started_from = dict(start.record)
        self._note_environment(resume=resume)
        self._note_callbacks(resume=resume)
        arrived, encoder_metrics = self._resume() if resume else (None, None)
        rows = last_metrics(folder) if resume else []
        self.restarts_before = {int(row["seed"]): int(row.get("env_restarts") or 0) for row in rows}
        """Those of each seed before this process, as far as they were logged."""
        if resume:
            self._say_what_changed(self.record.resume(self.step))
        self.display.say("compiling (about 30 s the first time)")
        if self.step == 0:
            encoder_metrics = self._begin(start, signals)
        self.display.say(f"compiled in {self.learner.compile():.0f} s")
        self.stepper = Stepper(self.learner, pool, self.clock, arrived, self._check_starts)
        self.stepper.encoder_metrics = encoder_metrics
        self.logged_at = self.step
        self.evaluator = Evaluator(self.learner, self.seeds, settings.eval_episodes, for_evaluation, pool)
        # A run without a checkpoint begins again, with the evaluation at step 0.
        purge_from = (self.step + 1 if self.step else 0) if resume else None
        self.writers = MetricWriters(
            folder, settings, options.wandb, purge_from, self.display.say, **options.wandb_arguments
        )

    def _best_policies(self, settings: Settings) -> BestPolicies:
        has_policy = settings.init is not None or settings.pretrain_policy > 0
        return BestPolicies(self.seeds, settings.eval_episodes, -1 if has_policy else self.schedule.learning_from)

    def _say_limits(self) -> None:
        """Say what the run will not do."""
        if self.settings.steps <= self.settings.learning_starts:
            explores = self.config.exploration_steps > 0
            name, are = ("exploration_steps", "explore") if explores else ("warmup_steps", "are warm-up")
            quick = " (preset quick explores for 1,000)" if explores else ""
            self.display.say(
                f"nothing will be learnt: all {self.settings.steps:,} steps {are}; give more {spelled('steps')} than "
                f"{spelled(name)}, {self.settings.learning_starts:,}, or fewer of those{quick}"
            )
        asked, period = self.config.encoder_updates, self.config.target_period
        if asked > period:
            self.display.say(
                f"{period} encoder updates at each copy to the target networks, every {period} RL updates: "
                f"{spelled('encoder_updates')} {asked} is more than {spelled('target_period')}"
            )
        usual = settings_of(Settings)["warmup_steps"][0].default
        if self.settings.warmup_steps not in (usual, self.settings.learning_starts):
            self.display.say(
                f"{spelled('warmup_steps')} {self.settings.warmup_steps:,} does nothing: it is for {spelled('init')} "
                f"without {spelled('exploration_steps')} and {spelled('prefill')}"
            )
        if not self.pool.spec.can_resume:
            self.display.say(
                "this VectorEnv resets its environments itself (SAME_STEP), so a resumed run starts new episodes and "
                "differs from an unbroken one; with gymnasium.vector.AutoresetMode.DISABLED it does not"
            )

    def close(self) -> None:
        """End what runs next to the loop."""
        self.evaluator.close()
        self.stepper.close()

    def go(self, signals: Signals) -> TrainResult:
        """Step until the end, a signal, or the time given."""
        settings, first = self.settings, self.step
        self.clock.take()  # restoring and compiling are no step's
        self.record.write("running", self.step)
        self._say_where_the_log_is()
        self.display.start()
        saved_at = self.step
        try:
            self._call("on_start", StartEvent, resumed=self.resumed)
            while True:
                due = settings.is_due(settings.eval_every, self.step) or self.step >= settings.steps
                if due and self.evaluated_at != self.step:
                    self._evaluate()
                self._take_evaluation(wait=False)
                stop = self.callbacks.stop or self._out_of_time(first)
                done = self.step >= settings.steps
                ends = done or stop is not None or bool(signals.received)
                regular = settings.is_due(settings.checkpoint_every, self.step) and self.step > 0
                if ends or regular:
                    self._take_evaluation(wait=True)  # a checkpoint has every evaluation up to it
                if (ends or regular) and saved_at != self.step:
                    self._checkpoint(must=ends or self.callbacks.stop is not None)
                    saved_at = self.step
                if ends or self.callbacks.stop is not None:
                    status = "finished" if done else "interrupted" if signals.received else "stopped"
                    return self._end(status, signals, self.callbacks.stop or stop)
                self._train_step()
                self.step += settings.num_envs
                self._follow_episodes()
                self.health.check_actions(self.stepper, self.step)
                if settings.is_due(50, self.step):
                    self.display.step(self.step)
                    self.health.check_metrics(self.stepper.metrics_before, None, self.step)
                    self.health.check_rewards(*self.pool.reward_range())
                if settings.is_due(self.log_every, self.step):
                    self._log()
        except KeyboardInterrupt:
            self.evaluator.give_up()  # before what may wait for a disk
            self.stopped_at_once()
            raise
        except BaseException as error:
            self.evaluator.give_up()
            self.failed(error)
            # A reader that left is no failure; nor is what on_end raises one of the run.
            if isinstance(error, OSError) and not (self.ended or isinstance(error, BrokenPipeError)):
                raise TrainingError(
                    f"failed at step {self.step:,}: {why(error)}; once that is fixed, {self._how_to_resume()}"
                ) from error
            raise
        finally:
            self.writers.close()
            self.display.close()

    def failed(self, error: BaseException) -> None:
        """Write down that the run failed, and say how to resume it."""
        if self.ended:  # on_end failed: the run itself had come to its end
            self.display.say(f"{self.callbacks.failed_in}; the run is {self.ended} at step {self.step:,}")
            return
        with contextlib.suppress(OSError):  # the first error is the one to report
            self.record.write("failed", self.step)
        told = self.callbacks.failed_in
        if isinstance(error, EnvError | WorkerError) or told:
            what = f"{told} at step {self.step:,}" if told else f"failed at step {self.step:,}"
            if self.restarts.of_seed:
                self.display.say(self.restarts.summary())
            self.display.say(f"{what}; once that is fixed, {self._how_to_resume()}")
        with contextlib.suppress(Exception):  # the first error is the one to report
            self._call("on_end", EndEvent, status="failed", stop_reason="")

    def stopped_at_once(self) -> None:
        """Leave the run as it is, without another checkpoint."""
        if self.ended:
            return
        with contextlib.suppress(OSError):
            self.record.write("failed", self.step)
        self.display.say(f"stopped at step {self.step:,}; {self._how_to_resume()}")

    def _begin(self, start: Start, signals: Signals) -> drq.EncoderMetrics | None:
        """Agents and replays as of before step 0; what the last encoder updates saw, if there were any."""
        if start.weights is not None:
            self.display.say(start.weights.line)
        self.learner.begin_agents(None if start.weights is None else start.weights.arrays)
        seen = None
        if start.data is not None:
            self.display.say(start.data.line)
            self.learner.add_recorded(*start.data.stacked(self.settings.num_envs))
        if self.settings.pretrain:
            self.display.say(f"{self.settings.pretrain:,} encoder updates on them (pretrain)")
            seen = self.learner.pretrain_encoder(self.settings.pretrain // self.config.target_period)
        if self.settings.pretrain_policy:
            seen = self._pretrain_policy(signals)
        self.learner.begin_acting(self.pool.begin(), at_random=self.config.exploration_steps > 0)
        return seen

    def _pretrain_policy(self, signals: Signals) -> drq.EncoderMetrics | None:
        """RL updates before step 0, in training's own cycle; what the last encoder updates among them saw."""
        count, period, said, seen = self.settings.pretrain_policy, self.config.target_period, time.monotonic(), None
        self.display.say(f"{count:,} updates of critics and actor on them (pretrain_policy)")
        for done in range(1, count + 1):
            encoder, metrics = self.learner.pretrain_policy(done - 1)
            seen = seen if encoder is None else encoder
            if done % period and done < count:
                continue
            values = metric_values(self.config, metrics, seen)  # waits for them
            self.health.check(values, 0)
            if signals.received:
                self.display.say("stopped before step 0, without a checkpoint: start the run again")
                raise KeyboardInterrupt
            if done == count or time.monotonic() - said > _SECONDS_BETWEEN_LINES:
                said = time.monotonic()
                loss, q = (float(values[name].mean()) for name in ("critic_loss", "q_mean"))
                self.display.say(f"{done:,} of {count:,} updates: critic loss {loss:.3g}, mean Q {q:.3g}")
        return seen

    def _note_callbacks(self, *, resume: bool) -> None:
        """Keep the names of a caller's callbacks; say which of the run's a resume lacks: they stop nothing any more."""
        named = [*self.options.callbacks, *on_evaluation_callbacks(self.options.on_evaluation)]
        names = Callbacks(named).names()
        before = read_run_json(self.folder).get("callbacks", []) if resume and is_run(self.folder) else []
        missing = [name for name in before if name not in names]
        if missing:
            many = "callbacks" if missing[1:] else "callback"
            self.display.say(
                f"until now this run had the {many} {', '.join(missing)}; this resume has not: to keep "
                f"{'them' if missing[1:] else 'it'}, resume from Python with callbacks=[...]"
            )
        self.record.callbacks = names

    def _note_environment(self, *, resume: bool) -> None:
        """Keep what identifies the environment; refuse another one than that of the run, unless it was asked for."""
        now = environment_record(self.settings, self.pool.spec)
        info = read_run_json(self.folder) if resume and is_run(self.folder) else {}
        self.knows_environment = "environment" in info
        before = info.get("environment") or {"task": info.get("settings", {}).get("task", "")}  # of an earlier version
        self.record.earlier_environments = list(info.get("earlier_environments", []))
        self.is_new_environment = bool(info) and self.options.new_environment
        if info:
            known = before if self.knows_environment else {}
            check_environment(known, now, asked_for=self.is_new_environment, folder=self.folder)
        if self.is_new_environment:
            self.record.earlier_environments.append({"until": info.get("agent_steps", 0), **before})
        self.record.environment = now
        for note in self.pool.spec.notes:
            self.display.say(note)
        if self.pool.spec.episode_length is None:
            self.display.say(
                f"the environment declares no time limit: an evaluation episode of more than {LONGEST_EPISODE:,} steps "
                "ends the run with an error; gymnasium.wrappers.TimeLimit(env, STEPS) gives it one"
            )

    def _how_to_resume(self) -> str:
        saved = self.checkpoints.steps()
        how = f"resume from step {saved[-1]:,}" if saved else "start again (there is no checkpoint yet)"
        return f"{how} with: {self._resume_call()}"

    def _out_of_time(self, first: int) -> Stop | None:
        """Whether `max_minutes` are over; `first` is the step at which this process began."""
        minutes, started = self.options.max_minutes, self.options.started
        if minutes is None or started is None or time.monotonic() - started <= 60 * minutes:
            return None
        before = "" if self.step > first else ", before the first step"
        return Stop(f"{spelled('max_minutes')} {minutes:g} is over{before}", "max_minutes")

    def _call(self, hook: str, kind: Callable[..., Any], **what: Any) -> None:
        """Call a hook of the callbacks that have it."""
        if self.callbacks.has(hook):
            self.view.agent_steps = self.step
            self.callbacks.call(hook, kind(**{"run": self.view, "agent_steps": self.step, **what}))

    def _policy_now(self, seed: int) -> Policy:
        return self._policy_of(self.learner.policies(), seed, self.step)

    def _policy_of(self, policies: drq.PolicyNetworks, seed: int, agent_steps: int) -> Policy:
        record = {**self._policy_record, "agent_steps": agent_steps}
        return policy_of_seed(policies, self.seeds.index(seed), seed, self.pool.spec.spaces, record)

    @property
    def _policy_record(self) -> dict[str, Any]:
        """What all policies of the run have in common."""
        return {
            "task": self.settings.task_name,
            "preset": self.settings.preset,
            "noise_dims": self.settings.noise_dims,
            "config": dataclasses.asdict(self.config),
        }

    def _follow_episodes(self) -> None:
        """Take note of what the last step led to, and tell the callbacks."""
        arrived = self.stepper.arrived
        assert arrived is not None
        ended = self.episodes.follow(arrived, self.step)
        if self.episodes.too_large:
            self.display.say(self.episodes.too_large)
            self.episodes.too_large = ""
        if not ended and not self.callbacks.has("on_step"):
            return
        infos = self.pool.infos()
        if self.callbacks.has("on_step"):
            by_key = {key: self._by_seed(x) for key, x in zip(self.info_keys, infos[:, 1:].T, strict=True)}
            rewards, ends = self._by_seed(arrived.reward.copy()), self._by_seed(arrived.terminated | arrived.truncated)
            self._call("on_step", StepEvent, rewards=rewards, ended=ends, info=by_key)
        for index in ended:
            done = self.episodes.end(index, bool(arrived.terminated[index]), float(infos[index, 0]))
            if done is None:
                continue
            self._check_info(infos[index, 1:])
            seen = dict(zip(self.info_keys, infos[index, 1:].tolist(), strict=True))
            seed = self.seeds[done.seed_index]
            self._call("on_episode", EpisodeEvent, seed=seed, info=seen, **_without_index(done))

    def _by_seed(self, x: np.ndarray) -> np.ndarray:
        """A number of each environment: [S], with several for each seed [S, num_envs]."""
        return x if self.settings.num_envs == 1 else x.reshape(len(self.seeds), -1)

    def _check_info(self, last: np.ndarray) -> None:
        """Say once which entries of `info` callbacks ask for and the first episode's last step does not have."""
        missing = [key for key, x in zip(self.info_keys, last, strict=True) if np.isnan(x)]
        if missing and not self.checked_info:
            self.display.say(
                f"the last step of the first training episode has no number info[{missing[0]!r}], which a callback "
                "asks for (info_keys): check the name"
            )
        self.checked_info = True

    def _train_step(self) -> None:
        first, count = self.schedule.updates(self.step)
        self.stepper.step(first, count, at_random=self.step < self.schedule.random_until)

    def _check_starts(self) -> None:
        valid = self.learner.have_valid_start()
        if valid.all():
            if self.pool.spec.obs.images and jax.default_backend() == "cpu":
                self.display.say(
                    f"learning begins, with {self.config.encoder_updates_per_sync} encoder updates at once: from "
                    f"images on a CPU that may take minutes ({spelled('batch_size')} and "
                    f"{spelled('encoder_updates')} make it less)"
                )
            return
        what = f"after {self.step} steps seed {self.seeds[int(np.argmin(valid))]} has no window of "
        what += f"{self.config.horizon} transitions to learn from"
        if self.step <= self.config.horizon * self.settings.num_envs:
            name = "exploration_steps" if self.config.exploration_steps else "warmup_steps"
            raise TrainingError(f"{what}: too few steps yet; give more {spelled(name)}")
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
        self.clock.lap("evaluation")

    def _take_evaluation(self, *, wait: bool) -> None:
        """Write down what an evaluation gave, once it is there."""
        done = self.evaluator.take(wait=wait)
        if done is None:
            return
        self.clock.lap("other")
        self.evaluations += done.results
        self.tables.append_evaluations(done.results)
        self.unsaved_policies = done
        if self.best is not None:
            self.best.take(done)
        try:
            self._save_policies()
        except OSError as error:
            self.display.say(
                f"the policies of step {done.agent_steps:,} cannot be written ({why(error)}): they will be with "
                "the next checkpoint; training continues"
            )
        returns = {e.seed: e.return_mean for e in done.results}
        success = {e.seed: e.success_mean for e in done.results if e.success_mean is not None}
        curves = {"return": returns, "success": success}
        values = {f"{name}/seed{seed}": x for name, of_seeds in curves.items() for seed, x in of_seeds.items()}
        means = {f"{name}/mean": float(np.mean([*of.values()])) for name, of in curves.items() if of}
        self.writers.scalars({**values, **means}, done.agent_steps)
        self.display.evaluation(done.results, self.episodes.take_line())
        if self.videos.is_due(done.agent_steps):
            seed = self.seeds[0]
            self.videos.record(self._policy_of(done.policies, seed, done.agent_steps), seed, done.agent_steps)
        policy_of = functools.partial(self._policy_of, done.policies, agent_steps=done.agent_steps)
        what: dict[str, Any] = {"evaluations": done.results, "policy_of": policy_of, "agent_steps": done.agent_steps}
        self._call("on_evaluation", EvaluationEvent, **what)
        self.clock.lap("evaluation")

    def _save_policies(self) -> None:
        """Write those of the last evaluation, if they are not written yet."""
        done = self.unsaved_policies
        if done is None:
            return
        best = max(done.results, key=lambda e: e.return_mean)
        record = {
            **self._policy_record,
            "agent_steps": done.agent_steps,
            "best_seed": best.seed,
            "returns": {e.seed: e.return_mean for e in done.results},
        }
        save_policies(self.folder, self.pool.spec.spaces, record, done.policies, self.seeds)
        self._save_best()
        self.unsaved_policies = None

    def _save_best(self) -> None:
        if self.best is not None:
            self.best.save(self.folder, self.pool.spec.spaces, self._policy_record)

    def _measure_best(self, signals: Signals) -> None:
        """Play fresh episodes with the best policies, and say both scores; a signal cuts it short."""
        if self.best is None or not self.best.chosen:
            return
        try:
            self.best.measure(
                self.learner.policies(),
                lambda policies, seeds: self.evaluator.play(
                    self.learner.placement.put(policies), seeds, lambda: bool(signals.received)
                ),
            )
            self._save_best()
        except concurrent.futures.CancelledError:
            return
        except (DrQError, OSError) as error:
            self.display.say(f"the best policies could not be measured again: {error}")
        for line in self.best.lines():
            self.display.say(line)

    def _log(self) -> None:
        count, self.logged_at = self.step - self.logged_at, self.step
        per_step = {f"ms_{part}": 1000 * s / count for part, s in self.clock.take().items()}
        metrics, encoder = self.stepper.metrics, self.stepper.encoder_metrics
        learns = metrics is not None and encoder is not None
        values: dict[str, np.ndarray] = {}
        if learns:
            self._check_draws()
            values = metric_values(self.config, metrics, encoder)
        seen = self.episodes.take_row()
        timing = {f"ms_{part}": per_step.get(f"ms_{part}", 0.0) for part in _PARTS}
        names = logged_names(self.config)
        columns = ["seed", "agent_steps", *names, *seen, *timing, "env_restarts"]
        rows = [
            [
                seed,
                self.step,
                *(f"{values[name][i]:.6g}" if learns else "" for name in names),
                *("" if np.isnan(x[i]) else f"{x[i]:.6g}" for x in seen.values()),
                *(f"{x:.4g}" for x in timing.values()),
                self.restarts_before.get(seed, 0) + self.restarts.of_seed[seed],
            ]
            for i, seed in enumerate(self.seeds)
        ]
        self.tables.append_metrics(columns, rows)
        self.view.metrics = {name: x.astype(np.float64) for name, x in {**values, **seen}.items()}
        self.health.check(values, self.step)
        self.writers.scalars({**_scalars({**values, **seen}, self.seeds), **_prefixed("time/", timing)}, self.step)

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
        loop = {"callbacks": self.callbacks.states(), "episodes": self.episodes.state()}
        loop["metrics"] = metrics_state(self.view.metrics)
        self.failed_checkpoints.attempt(lambda: self._write(saved, loop), self.step, must, self._how_to_resume)
        if self.record.last_checkpoint == self.step:
            self._call("on_checkpoint", CheckpointEvent, folder=self.checkpoints.folder / str(self.step))
        self.clock.lap("checkpoint")

    def _write(self, saved: Saved, loop: dict[str, Any]) -> None:
        """Write a checkpoint, and before that every evaluation up to it; OSError if that cannot be."""
        self.tables.flush()
        self._save_policies()
        evaluations = self.tables.evaluations_text()
        best = None
        if self.best is not None and self.best.chosen:
            best, loop = self.best.weights, {**loop, "best": self.best.state()}
        settings = self.settings.to_json()
        self.checkpoints.write(to_checkpoint(saved, self.seeds, evaluations, settings, loop=loop, best=best))
        self.record.last_checkpoint = saved.agent_steps
        self.record.write("running", self.step)

    def _end(self, status: str, signals: Signals, stop: Stop | None) -> TrainResult:
        if status == "finished" and self.logged_at != self.step:
            self._log()
        reason = stop.reason if stop is not None and status == "stopped" else ""
        if status == "finished" or (reason and self.callbacks.stop is stop):  # otherwise it will be resumed
            self._measure_best(signals)
        self.record.write(status, self.step, reason, stop.rule if stop is not None and reason else "")
        if self.restarts.of_seed:
            self.display.say(self.restarts.summary())
        if status != "finished":
            why = f": {reason}" if reason else ""
            resume = self._resume_call(stop.rule if stop is not None and reason else "")
            self.display.say(f"{status} at step {self.step:,}{why}; resume with: {resume}")
        number, restarts = 0 if status == "finished" else signals.received, self.restarts.of_seed.total()
        self.ended, self.exit_code = status, 128 + number if number else 0
        self._call("on_end", EndEvent, status=status, stop_reason=reason)
        best = () if self.best is None else self.best.chosen
        return TrainResult(self.shown, status, self.step, self.evaluations, number, restarts, reason, best)

    def _say_what_changed(self, before: dict[str, str]) -> None:
        """Where a run continues on another device or with other code than it had."""
        if "device" in before:
            self.display.say(
                f"this run computed on {before['device']} so far and continues on "
                f"{jax.device_count()} x {jax.devices()[0].device_kind}: its results will differ from an unbroken run's"
            )
        if "source" in before:
            self.display.say(
                f"the source of dr-q was {before['source']} so far and is {source_digest()} now: this run has two "
                "versions, and run.json names both"
            )

    def _say_where_the_log_is(self) -> None:
        board = tensorboard_folder(self.folder)
        extra = "" if is_installed("tensorboard") else " (pip install 'dr-q[tensorboard]')"
        self.display.say(f"metrics: {self.tables.metrics_path}, or tensorboard --logdir {board}{extra}")

    def _resume_call(self, rule: str = "") -> str:
        """What resumes this run; with the setting of the rule that stopped it, which would stop it again."""
        named, callbacks = isinstance(self.settings.task, str), self.options.callbacks
        if named and not callbacks:
            same = " --deterministic" if self.options.deterministic else ""
            same += f" --{rule.replace('_', '-')} {OTHER_VALUE[rule]}" if rule in OTHER_VALUE else ""
            return f"dr-q train --resume {self.shown}{same}"
        same = ", callbacks=THE_SAME_CALLBACKS" if callbacks else ""
        same += ", deterministic=True" if self.options.deterministic else ""
        same += f", {rule}={OTHER_VALUE[rule]}" if rule in OTHER_VALUE else ""
        return f"dr_q.train({'' if named else 'THE_SAME_CALLABLE, '}resume={str(self.shown)!r}{same})"

    def _resume(self) -> tuple[Transitions | None, drq.EncoderMetrics | None]:
        """Continue from the last checkpoint: what came of its last actions, and what its last encoder updates saw."""
        tidy_policies(self.folder)
        if not self.checkpoints.steps():
            self.checkpoints.tidy()  # what a killed run left half-written, which must not be taken for this one's
            self.tables.drop_after(-1)
            self.display.say(f"{self.shown} has no checkpoint yet: from the beginning")
            return None, None
        saved, stored = load_newest(self.checkpoints, self.learner.spec, self.display.say)
        self.checkpoints.tidy()
        any_task = self.knows_environment or self.is_new_environment  # it has been compared
        check_settings_of(self.folder, self.settings, stored, any_task=any_task)
        if self.is_new_environment and saved.agent_steps >= self.settings.steps:
            raise ConfigError(
                f"the run in {self.shown} has done its {self.settings.steps:,} steps: there is none left for another "
                f"environment; give more {spelled('steps')}"
            )
        self.step = self.evaluated_at = self.record.last_checkpoint = saved.agent_steps
        self.tables.go_back(self.step, stored.evaluations, self.display.say)
        self._restore_episodes(stored)
        if self.is_new_environment:
            self.record.earlier_environments[-1]["until"] = self.step
        arrived = self._new_episodes(saved) if self.is_new_environment else self._back_to(saved)
        if self.learner.frames is not None and saved.frames is not None:
            self.learner.frames.rings = saved.frames
        self.learner.restore(saved.states, saved.pending)
        self._restore_loop(stored)
        self.display.say(f"resumed at step {self.step:,}")
        return arrived, saved.encoder_metrics

    def _restore_episodes(self, stored: StoredCheckpoint) -> None:
        if "episodes" in stored.loop:
            self.episodes.restore(_object(stored, "episodes"), str(stored.folder))
        else:  # earlier versions kept none
            self.episodes.open_unknown()

    def _restore_loop(self, stored: StoredCheckpoint) -> None:
        """Callbacks and the best policies as they were at a checkpoint; earlier versions kept none.

        Returns in another environment say nothing of this one: the best policies and the rules to stop start anew.
        """
        self.resumed = True
        self.view.metrics = metrics_of_state(_object(stored, "metrics"), self.seeds, str(stored.folder))
        states = _object(stored, "callbacks")
        if self.is_new_environment:
            own = {callback.name for callback in callbacks_of(self.settings)}
            return self.callbacks.restore({k: x for k, x in states.items() if k not in own}, self.display.say)
        weights = stored.best() if self.best is not None and "best" in stored.loop else {}
        if self.best is not None and weights:
            like, where = jax.eval_shape(lambda x: x, self.learner.policies()), str(stored.folder)
            self.best.restore(_object(stored, "best"), weights, like, where)
            with contextlib.suppress(OSError):  # it is written with the next checkpoint
                self._save_best()
        return self.callbacks.restore(states, self.display.say)

    def _new_episodes(self, saved: Saved) -> Transitions:
        """Begin anew in another environment: the open episodes are closed as truncated."""
        arrived = Transitions(saved.arrived.packet.copy(), saved.arrived.layout)
        actions = np.zeros((0, self.pool.spec.action.dim), np.float32)
        obs = self.pool.restore([(episode + 1, actions) for episode, _ in saved.episodes])
        for i in range(len(saved.episodes)):
            self.episodes.drop(i)
            arrived.numbers[i, 2] = 1
            arrived.replace_obs(i, {name: x[i] for name, x in obs.items()})
        self.display.say(
            f"another environment from step {self.step:,} on: the open episodes are closed as truncated, and the "
            "replay keeps what came from the earlier one"
        )
        return arrived

    def _back_to(self, saved: Saved) -> Transitions:
        """Bring the simulators back to where they were."""
        arrived = Transitions(saved.arrived.packet.copy(), saved.arrived.layout)
        reached = self.pool.restore(saved.episodes)
        lanes = self.settings.num_envs
        for i, (episode, _) in enumerate(saved.episodes):
            if all(np.array_equal(x[i], arrived.obs[name][i]) for name, x in reached.items()):
                continue
            if self.pool.spec.can_resume:  # of others that was said when the run began
                which = f", environment {i % lanes}" if lanes > 1 else ""
                self.display.say(
                    f"seed {self.seeds[i // lanes]}{which}: its simulator could not be brought back to where it was "
                    f"(replaying episode {episode} led elsewhere); that episode is closed as truncated, and results "
                    "will differ from an unbroken run"
                )
            self.episodes.drop(i)
            arrived.numbers[i, 2] = 1
            arrived.replace_obs(i, self.pool.restart(i, episode + 1))
        return arrived


_PARTS = (*PARTS, "evaluation", "checkpoint", "other")


def _without_index(done: EndedEpisode) -> dict[str, Any]:
    return {name: value for name, value in done._asdict().items() if name != "seed_index"}


def _object(stored: StoredCheckpoint, name: str) -> dict[str, Any]:
    """What the loop kept under a name in a checkpoint."""
    found = stored.loop.get(name, {})
    if not isinstance(found, dict):
        raise DamagedFileError(f"{stored.folder}: what it has of {name} cannot be read")
    return found


def _scalars(columns: dict[str, np.ndarray], seeds: list[int]) -> dict[str, float]:
    """Columns [S] as curves: the mean over seeds, and each seed's; without values that are missing."""
    known = {name: x for name, x in columns.items() if not np.isnan(x).all()}
    means = {f"train/{name}": float(np.nanmean(x)) for name, x in known.items()}
    own = {f"{name}/seed{seed}": float(x[i]) for name, x in known.items() for i, seed in enumerate(seeds)}
    return {**means, **{name: x for name, x in own.items() if not np.isnan(x)}}


def _prefixed(prefix: str, values: dict[str, float]) -> dict[str, float]:
    return {f"{prefix}{name}": x for name, x in values.items()}
