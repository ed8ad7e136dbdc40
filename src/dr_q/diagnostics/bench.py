"""Throughput of this machine, by part, on a real task with the networks of a preset."""

import dataclasses
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from dr_q.envs import Pool, ProcessPool
from dr_q.learner import Learner
from dr_q.settings import EVAL_EPISODES, EVAL_EVERY, Settings
from dr_q.training.compile_cache import keep_compiled_programs
from dr_q.training.evaluate import Evaluator
from dr_q.training.plan import Plan, plan_for
from dr_q.training.pools import evaluation_pool, training_pool
from dr_q.training.step import PARTS, Clock, Stepper
from dr_q.training.versions import versions

EXPLORE = 1_000
"""Steps without updates that come first: enough to draw from."""


@dataclasses.dataclass
class Figures:
    """What was measured. Times are milliseconds for all seeds together, of one round unless said otherwise.

    A round is a step of every environment: with one environment per seed, an agent step.
    """

    task: str
    preset: str
    seeds: int
    capacity: int
    machine: dict[str, str]
    compile_s: float
    steps: int
    """Agent steps of each seed that were timed, after exploration."""
    step: float
    seed_steps_per_s: float
    """Transitions of all seeds and environments."""
    parts: dict[str, float]
    """Where the loop's thread spent the step."""
    slowest_simulator: float | None
    """By itself, in its own process."""
    encoder_update: float
    rl_update: float
    action: float
    """An outcome to the device, and the next actions back."""
    explore_step: float
    stored_bytes: int
    """Networks, targets, optimisers and replays."""
    peak_bytes: int | None
    """Of device memory."""
    evaluated_step: float | None = None
    """A round with the paper's evaluation schedule."""
    envs: int = 1
    """Environments of each seed."""
    compute: str = "float32"
    """How updates multiply."""

    def markdown(self) -> str:
        """A table to paste into an issue."""
        rows: list[tuple[str, str]] = [
            ("seed-steps/s, after exploration, evaluation apart", f"**{self.seed_steps_per_s:,.0f}**"),
            ("agent step of all seeds" if self.envs == 1 else "round of all seeds", f"{self.step:.3f} ms"),
            *((f"- of it {PARTS[name]}", f"{value:.3f} ms") for name, value in self.parts.items()),
            ("encoder update on the device", f"{self.encoder_update:.3f} ms"),
            ("critic + actor update on the device", f"{self.rl_update:.3f} ms"),
            ("outcome to the device, actions back", f"{self.action:.3f} ms"),
            ("step while exploring", f"{self.explore_step:.3f} ms"),
            ("compile", f"{self.compile_s:.1f} s"),
            ("networks, optimisers, replay", f"{self.stored_bytes / 2**30:.2f} GiB"),
        ]
        if self.slowest_simulator is not None:
            rows.insert(6, ("slowest simulator by itself", f"{self.slowest_simulator:.3f} ms"))
        if self.peak_bytes is not None:
            ratio = self.peak_bytes / self.stored_bytes
            rows.append(("peak device memory", f"{self.peak_bytes / 2**30:.2f} GiB ({ratio:.2f}x)"))
        if self.evaluated_step is not None:
            rate = 1000 * self.seeds * self.envs / self.evaluated_step
            rows.insert(1, (f"seed-steps/s with {EVAL_EPISODES} episodes every {EVAL_EVERY:,} steps", f"{rate:,.0f}"))
        envs = "" if self.envs == 1 else f" of {self.envs} environments"
        compute = "" if self.compute == "float32" else f" --compute {self.compute}"
        head = f"`{self.task}`, {self.preset}{compute}, {self.seeds} seeds{envs}, replay of {self.capacity:,} slots"
        machine = ", ".join(f"{name} {value}" for name, value in self.machine.items())
        table = "\n".join(f"| {name} | {value} |" for name, value in rows)
        return f"{head}\n\n| what | measured |\n|---|---|\n{table}\n\n{machine}"


def bench(
    settings: Settings,
    steps: int,
    *,
    in_process: bool | None = None,
    with_evaluation: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Figures:
    """Measure `steps` agent steps, rounded up to whole target periods and then to whole rounds."""
    keep_compiled_programs()
    period, lanes = settings.config.target_period, settings.num_envs
    steps = -(-steps // period) * period
    steps = -(-steps // lanes) * lanes
    planned: list[Plan] = []
    pool = training_pool(settings, in_process, lambda spec: planned.append(plan_for(settings, spec)))
    stepper = None
    try:
        for line in planned[0].lines():
            say(line)
        learner = Learner(planned[0].spec, settings.seed_list)
        learner.begin(pool.begin())
        stepper = Stepper(learner, pool, Clock())
        return _measure(settings, steps, learner, pool, stepper, with_evaluation, say)
    finally:
        if stepper is not None:
            stepper.close()
        pool.close()


def _measure(
    settings: Settings,
    steps: int,
    learner: Learner,
    pool: Pool,
    stepper: Stepper,
    with_evaluation: bool,
    say: Callable[[str], None],
) -> Figures:
    period, lanes = settings.config.target_period, settings.num_envs
    say("compiling")
    compile_s = learner.compile()
    say(f"compiled in {compile_s:.1f} s; exploring for {EXPLORE:,} steps")
    _run(stepper, [None] * 50)
    explore = _run(stepper, [None] * -(-EXPLORE // lanes))
    say(f"warming up, then timing {steps:,} steps")
    _run(stepper, _updates(settings, period))
    stepper.clock.take()
    own: list[float] = []
    step = _run(stepper, _updates(settings, steps), own if isinstance(pool, ProcessPool) else None)
    parts = {name: 1000 * seconds * lanes / steps for name, seconds in stepper.clock.take().items()}
    evaluated = None
    if with_evaluation:
        say(f"timing {EVAL_EVERY:,} steps with one evaluation")
        evaluated = _with_evaluation(settings, learner, pool, stepper)
    say("timing the parts on the device")
    arrived = stepper.arrived
    assert arrived is not None

    def act() -> None:
        learner.act(arrived)
        learner.actions()
        learner.add()

    device = jax.devices()[0]
    return Figures(
        task=settings.task_name,
        preset=settings.preset,
        seeds=settings.seeds,
        capacity=learner.spec.capacity,
        machine=_machine(),
        compile_s=compile_s,
        steps=steps,
        step=1000 * step,
        seed_steps_per_s=settings.seeds * lanes / step,
        parts=parts,
        slowest_simulator=1000 * float(np.mean(own)) if own else None,
        encoder_update=1000 * _timed(learner, lambda: learner.sync_targets_and_train_encoder(0), 2) / period,
        rl_update=1000 * _timed(learner, lambda: learner.update(0), period),
        action=1000 * _timed(learner, act, period),
        explore_step=1000 * explore,
        stored_bytes=sum(x.nbytes for x in jax.tree.leaves(learner.states)),
        peak_bytes=(device.memory_stats() or {}).get("peak_bytes_in_use") if device.platform != "cpu" else None,
        evaluated_step=None if evaluated is None else 1000 * evaluated,
        envs=lanes,
        compute=settings.config.compute,
    )


def _updates(settings: Settings, steps: int) -> range:
    """The first RL update of each round of these agent steps."""
    each = settings.config.most_updates(settings.num_envs)
    return range(0, -(-steps // settings.num_envs) * each, each)


def _run(stepper: Stepper, updates: Any, own: list[float] | None = None) -> float:
    """Seconds of each of these rounds, the device's work included."""
    start = time.perf_counter()
    count = 0
    for first in updates:
        stepper.step(first)
        count += 1
        if own is not None:
            own.append(float(stepper.pool.seconds().max()))  # pyright: ignore[reportAttributeAccessIssue]
    stepper.learner.wait()
    return (time.perf_counter() - start) / count


def _with_evaluation(settings: Settings, learner: Learner, pool: Pool, stepper: Stepper) -> float:
    """Seconds of a round, of as many as there are between evaluations, with one of them."""
    evaluator = Evaluator(learner, settings.seed_list, settings.eval_episodes, evaluation_pool(settings), pool)
    try:
        evaluator.start(0)  # starts its simulators, if it has its own
        evaluator.take(wait=True)
        start = time.perf_counter()
        evaluator.start(0)
        rounds = _updates(settings, EVAL_EVERY)
        seconds = _run(stepper, rounds)
        evaluator.take(wait=True)
        return max(seconds, (time.perf_counter() - start) / len(rounds))
    finally:
        evaluator.close()


def _timed(learner: Learner, call: Callable[[], Any], times: int) -> float:
    call()
    learner.wait()
    start = time.perf_counter()
    for _ in range(times):
        call()
    learner.wait()
    return (time.perf_counter() - start) / times


def _machine() -> dict[str, str]:
    found = versions()
    kept = {name: found[name] for name in ("device", "jax", "python", "mujoco", "dr-q", "source") if name in found}
    return {**kept, "cores": str(os.cpu_count()), "processor": platform.processor() or platform.machine()}
