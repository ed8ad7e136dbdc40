"""The loop: take in what came and act on it, start the update, step the simulators meanwhile (Algorithm 1).

RL update k sees exactly `exploration_steps` - 1 + k transitions (D10), whatever overlaps with what, and exploration
counts agent steps (D9).
"""

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from dr_q import agent as drq
from dr_q.envs import EnvSpec, Pool, Source, Transitions, cores, open_pool
from dr_q.kit import ConfigError, EnvError, TrainingError, WorkerError
from dr_q.report.results import read_run_json
from dr_q.run import seeds as axis
from dr_q.run.checkpoint import Checkpoints, Saved
from dr_q.run.evaluate import Evaluated, Evaluation, Evaluator
from dr_q.run.lock import alone_in
from dr_q.run.log import Boards, Display, RunFiles
from dr_q.run.plan import GIB, Plan, make_plan, memory_of
from dr_q.run.policy import save_policies
from dr_q.run.settings import Settings, check_new_folder
from dr_q.run.signals import Signals
from dr_q.run.step import PARTS, Clock, Stepper

LOG_EVERY = 1_000
_STOPPING = "dr-q: stopping at the next step, with a checkpoint; once more: at once, without one"
_CORES_TO_EVALUATE = 6
"""Beyond one for each training simulator."""
Callback = Callable[[list[Evaluation]], None]


class Outcome(NamedTuple):
    """How a run ended."""

    folder: Path
    status: str
    """finished, stopped (by --max-minutes) or interrupted (by a signal)."""
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
    background_evaluation: bool | None = None
    """Evaluate while training goes on; by default if a device learns and cores are left."""
    device_memory: float | None = None
    """GiB of each device that the run may fill; by default all."""
    wandb: bool = False
    quiet: bool = False
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


def train(settings: Settings, folder: Path, options: Options, *, resume: bool = False) -> Outcome:
    """Run the settings in a folder that is new or, if it is resumed, from its last checkpoint."""
    if not resume:
        check_new_folder(folder)
    with alone_in(folder):
        if resume:
            _check_nothing_is_lost(folder)
        else:
            check_new_folder(folder)  # another process may have had it meanwhile
        return _train(settings, folder, options, resume=resume)


def _check_nothing_is_lost(folder: Path) -> None:
    """Refuse to begin again where that would erase results.

    A run that was killed or failed before its first checkpoint may; one whose checkpoints are gone may not.
    """
    if not (folder / "run.json").exists():
        return
    info = read_run_json(folder, "status", "agent_steps", "seeds")
    failed_early = info["agent_steps"] <= info["settings"]["checkpoint_every"] and info["status"] == "failed"
    if info["agent_steps"] > 0 and not failed_early and not Checkpoints(folder, info["seeds"], 1).steps():
        raise ConfigError(
            f"{folder} is {info['status']} at step {info['agent_steps']:,} and has no checkpoints: it cannot "
            "go on; start a new run with another --out"
        )


def _train(settings: Settings, folder: Path, options: Options, *, resume: bool) -> Outcome:
    keep_compiled_programs()
    in_process = options.in_process if options.in_process is not None else settings.seeds == 1
    source = Source(settings.task, settings.noise_dims)
    pool = open_pool(source, settings.seed_list, settings.eval_episodes, in_process=in_process)
    for_evaluation = evaluation_pool(settings, options.background_evaluation)
    run: _Run | None = None

    def give_up() -> None:
        if run is not None:
            run.stopped_at_once()
            for ends in (run.display, run.boards):
                with contextlib.suppress(Exception):
                    ends.close()
        if not in_process:
            pool.close()

    try:
        with Signals("" if options.quiet else _STOPPING, give_up if options.may_exit else None) as signals:
            run = _Run(settings, folder, options, pool, for_evaluation, resume)
            try:
                return run.go(signals)
            finally:
                run.close()
    finally:
        pool.close()


def evaluation_pool(settings: Settings, background: bool | None = None) -> Callable[[], Pool] | None:
    """How to open simulators for evaluating in the background, if that is wanted or, by default, worth it."""
    if background is None:  # on the CPU the cores are busy learning; a caller's own environment may not travel
        named = isinstance(settings.task, str)
        background = named and jax.default_backend() != "cpu" and cores() >= settings.seeds + _CORES_TO_EVALUATE

    def open_now() -> Pool:
        source = Source(settings.task, settings.noise_dims)
        return open_pool(source, settings.seed_list, settings.eval_episodes, in_process=False, spin=False)

    return open_now if background else None


class _Run:
    """One call of `train`."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        options: Options,
        pool: Pool,
        for_evaluation: Callable[[], Pool] | None,
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
        spec = pool.spec
        self.files = RunFiles(folder, settings)
        self.checkpoints = Checkpoints(folder, self.seeds, settings.keep_checkpoints)
        plan = plan_for(settings, spec, options.device_memory)  # may refuse
        self.display = Display(settings, options.quiet)
        self.display.plan(plan)
        if settings.steps <= self.config.exploration_steps:
            self.display.say(
                f"nothing will be learnt: all {settings.steps:,} steps explore; give more steps than "
                f"exploration_steps, {self.config.exploration_steps:,}, or fewer of those (preset quick has 1,000)"
            )
        self.evaluations: list[Evaluation] = []
        self.clock = Clock()
        self.encoder_seen: drq.EncoderMetrics | None = None
        self.agents = axis.Seeds(plan.task, self.seeds)
        self.step = 0
        self.evaluated_at = -1
        self.diverged: set[int] = set()
        arrived = self._resume() if resume else None
        if resume:
            self.files.go_on(self.step)
        if self.step == 0:
            self.agents.begin(pool.begin())
        self.display.say_on_device(f"compiled in {self.agents.compile():.0f} s")
        self.stepper = Stepper(self.agents, pool, self.clock, arrived, self._check_starts)
        self.stepper.encoder_seen = self.encoder_seen
        self.logged_at = self.step
        self.evaluator = Evaluator(self.agents, self.seeds, settings.eval_episodes, for_evaluation, pool)
        # A run without a checkpoint begins again, with the evaluation at step 0.
        purge_from = (self.step + 1 if self.step else 0) if resume else None
        self.boards = Boards(folder, settings, options.wandb, purge_from)

    def close(self) -> None:
        """End what runs beside the loop."""
        self.evaluator.close()
        self.stepper.close()

    def go(self, signals: Signals) -> Outcome:
        """Step until the end, a signal, or the time given."""
        settings, start = self.settings, time.monotonic()
        self.clock.take()  # restoring and compiling are no step's
        limit = None if self.options.stop_after is None else 60 * self.options.stop_after
        self.files.write_status("running", self.step)
        self.display.start()
        saved_at = self.step if self.evaluated_at >= 0 else -1
        try:
            while True:
                due = self.step % settings.eval_every == 0 or self.step == settings.steps
                if due and self.evaluated_at != self.step:
                    self._evaluate()
                self._take_evaluation(wait=False)
                out_of_time = limit is not None and time.monotonic() - start > limit
                done = self.step == settings.steps
                ends = done or out_of_time or bool(signals.received)
                regular = self.step % settings.checkpoint_every == 0 and self.step > 0
                if ends or regular:
                    self._take_evaluation(wait=True)  # a checkpoint has every evaluation up to it
                if (ends or regular) and saved_at != self.step and self.step > 0:
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
        except KeyboardInterrupt:
            self.stopped_at_once()
            raise
        except BaseException as error:
            self.files.write_status("failed", self.step)
            if isinstance(error, EnvError | WorkerError):
                self.display.say(f"failed at step {self.step:,}; once mended, {self._how_to_go_on()}")
            raise
        finally:
            self.boards.close()
            self.display.close()

    def stopped_at_once(self) -> None:
        """Leave the run as it is, without another checkpoint."""
        self.files.write_status("failed", self.step)
        self.display.say(f"stopped at step {self.step:,}; {self._how_to_go_on()}")

    def _how_to_go_on(self) -> str:
        saved = self.checkpoints.steps()
        how = f"go on from step {saved[-1]:,}" if saved else "begin again (there is no checkpoint yet)"
        return f"{how} with: {self._resume_call()}"

    def _train_step(self) -> None:
        exploring = self.step < self.config.exploration_steps  # D9: agent steps
        first = (self.step - self.config.exploration_steps) * self.config.replay_ratio
        self.stepper.step(None if exploring else first)

    def _check_starts(self) -> None:
        valid = self.agents.have_valid_start()
        if valid.all():
            if self.pool.spec.pixels and jax.default_backend() == "cpu":
                self.display.say(
                    f"learning begins, with {self.config.target_period} encoder updates at once: from images on a CPU "
                    "that may take many minutes (--batch-size and --target-period make it less)"
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

    def _evaluate(self) -> None:
        self.clock.lap("other")
        self._take_evaluation(wait=True)
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
        self.files.append_evaluations(done.results)
        self._save_policies(done)
        values = {f"return/seed{e.seed}": e.return_mean for e in done.results}
        self.boards.scalars({**values, "return/mean": float(np.mean(list(values.values())))}, done.agent_steps)
        self.display.evaluation(done.results)
        if self.options.on_evaluation is not None:
            self.options.on_evaluation(done.results)
        self.clock.lap("evaluate")

    def _save_policies(self, done: Evaluated) -> None:
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
        save_policies(self.folder, self.pool.spec, record, done.policies, self.seeds)

    def _log(self) -> None:
        count, self.logged_at = self.step - self.logged_at, self.step
        per_step = {f"ms_{part}": 1000 * s / count for part, s in self.clock.take().items()}
        summary, encoder_seen = self.stepper.summary, self.stepper.encoder_seen
        if summary is None or encoder_seen is None:
            return
        values: dict[str, np.ndarray] = {k: np.asarray(x) for k, x in axis.UpdateSummary.of(summary)._asdict().items()}
        values["encoder_loss"] = np.asarray(encoder_seen.loss)
        for name, x in encoder_seen.terms._asdict().items():
            values[f"encoder_{name}"] = np.asarray(x)
        timing = {f"ms_{part}": per_step.get(f"ms_{part}", 0.0) for part in _PARTS}
        columns = ["seed", "agent_steps", *values, *timing]
        rows = [
            [seed, self.step, *(f"{x[i]:.6g}" for x in values.values()), *(f"{x:.4g}" for x in timing.values())]
            for i, seed in enumerate(self.seeds)
        ]
        self.files.append_metrics(columns, rows)
        self._look_for_divergence(values)
        self.boards.scalars(
            {
                **{f"train/{name}": float(x.mean()) for name, x in values.items()},
                **{f"time/{k}": v for k, v in timing.items()},
            },
            self.step,
        )

    def _look_for_divergence(self, values: dict[str, np.ndarray]) -> None:
        """Say which seeds compute with numbers that are none; end if all do."""
        lost = {
            seed: name
            for i, seed in enumerate(self.seeds)
            for name, x in reversed(values.items())
            if not np.isfinite(x[i]).all()
        }
        for seed in lost.keys() - self.diverged:
            self.display.say(f"seed {seed} has diverged: {lost[seed]} is not finite at step {self.step:,}")
        self.diverged |= lost.keys()
        if self.diverged == set(self.seeds):
            saved = self.checkpoints.steps()
            checkpoints = f"the last checkpoint is of step {saved[-1]:,}" if saved else "there is no checkpoint"
            raise TrainingError(
                f"every seed has diverged by step {self.step:,} ({next(iter(lost.values()))} is not finite): look for "
                f"rewards or observations that are very large, and scale them; {checkpoints}"
            )

    def _checkpoint(self) -> None:
        self.clock.lap("other")
        agents, arrived = self.agents, self.stepper.arrived
        assert agents.turn is not None
        assert arrived is not None
        frames = None if agents.frames is None else agents.frames.rings
        states = jax.block_until_ready(agents.states)
        episodes, seen = self.pool.open_episodes(), self.stepper.encoder_seen
        self.checkpoints.save(Saved(self.step, states, agents.turn, arrived, episodes, frames, seen))
        self.files.write_status("running", self.step)
        self.clock.lap("checkpoint")

    def _end(self, status: str, number: int) -> Outcome:
        self.files.write_status(status, self.step)
        if status != "finished":
            self.display.say(f"{status} at step {self.step:,}; go on with: {self._resume_call()}")
        return Outcome(self.folder, status, self.step, self.evaluations, number)

    def _resume_call(self) -> str:
        if isinstance(self.settings.task, str):
            return f"dr-q train --resume {self.folder}"
        return f"dr_q.train(THE_SAME_CALLABLE, resume={str(self.folder)!r})"

    def _resume(self) -> Transitions | None:
        """Go on from the last checkpoint; what came of its last actions."""
        self.checkpoints.tidy()  # what a killed run left half-written, which must not be taken for this one's
        steps = self.checkpoints.steps()
        if not steps:
            self.files.drop_after(-1)
            self.display.say(f"{self.folder} has no checkpoint yet: from the beginning")
            return None
        saved = self.checkpoints.load(steps[-1], self.agents.task)
        self.step = self.evaluated_at = saved.agent_steps
        self.files.drop_after(self.step)
        arrived = self._back_to(saved)
        if self.agents.frames is not None and saved.frames is not None:
            self.agents.frames.rings = saved.frames
        self.agents.restore(saved.states, saved.turn)
        self.encoder_seen = saved.encoder_seen
        self.display.say(f"resumed at step {self.step:,}")
        return arrived

    def _back_to(self, saved: Saved) -> Transitions:
        """Bring the simulators back to where they were."""
        arrived = Transitions(saved.arrived.packet.copy(), saved.arrived.layout)
        reached = self.pool.restore(saved.episodes)
        for i, seed in enumerate(self.seeds):
            if np.array_equal(reached[i], arrived.obs[i]):
                continue
            episode = saved.episodes[i][0]
            self.display.say(
                f"seed {seed}: its simulator could not be brought back to where it was (replaying episode "
                f"{episode} led elsewhere); that episode is closed as truncated, and results will differ from an "
                "unbroken run"
            )
            arrived.numbers[i, 2] = 1
            arrived.observations[i, 1] = self.pool.restart(i, episode + 1)
        return arrived


_PARTS = (*PARTS, "evaluate", "checkpoint", "other")


def plan_for(settings: Settings, spec: EnvSpec, device_memory: float | None = None) -> Plan:
    """What goes where on this machine; `device_memory` is in GiB, where a device is not all ours."""
    devices = axis.Placement(settings.seeds).devices
    memory = memory_of(devices[0])
    if device_memory is not None:
        if not 0 < device_memory < math.inf:
            raise ConfigError(f"device-memory must be more than 0 GiB, got {device_memory:g}")
        memory = dataclasses.replace(memory, device_bytes=int(device_memory * GIB), shared=False)
    return make_plan(settings, spec, memory, len(devices))
