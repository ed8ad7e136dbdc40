"""What a sweep would take: jobs, memory, and hours from measured throughput. Nothing is started."""

import contextlib
import heapq
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dr_q.envs import EnvSpec, known_tasks, make_env
from dr_q.kit import ConfigError, DamagedFileError, TaskError, full_path, spelled
from dr_q.run_folder import run_timing, seed_steps_per_s
from dr_q.sweep.progress import checkpoint_of, progress_of
from dr_q.sweep.spec import Job, SweepOptions, SweepSpec, check_folder, check_tasks

MACHINE = "one H200"


class Measured(NamedTuple):
    """Throughput with dr.q, of `dr-q bench` or of a run's logged steps (docs/results.md)."""

    task: str
    seeds: int
    seed_steps_per_s: float


MEASURED = (
    Measured("dmc/cheetah-run", 1, 510.0),
    Measured("dmc/cheetah-run", 5, 1_728.0),
    Measured("dmc/cheetah-run", 10, 2_737.0),
    Measured("dmc/cheetah-run", 20, 3_064.0),
    Measured("dmc/cheetah-run", 40, 2_982.0),
    Measured("dmc/humanoid-run", 10, 2_350.0),
    Measured("dmc/humanoid-walk", 10, 2_063.0),
    Measured("gym/Hopper-v4", 10, 2_438.0),
    Measured("gym/Ant-v4", 10, 1_963.0),
    Measured("hbench/h1-walk-v0", 10, 1_533.0),
    Measured("dmc-visual/walker-run", 5, 191.0),
)
"""On one NVIDIA H200 with 16 cores of an Intel Xeon, jax 0.11.2 (benchmarks/results/h200.md, docs/results.md)."""
_BY_SEEDS = "dmc/cheetah-run"
"""The task that was measured with several numbers of seeds."""


class Planned(NamedTuple):
    """What one job would take."""

    job: Job
    done: int
    """Agent steps that need not be trained again."""
    size: int | None
    """Bytes of networks, optimisers, replay and workspace; None where the simulator cannot be made here."""
    rate: float | None
    """Seed-steps/s; None if unknown."""
    source: str
    """Where that is from."""

    @property
    def remaining(self) -> int:
        """Agent steps to train, of each seed."""
        return self.job.settings.steps - self.done

    @property
    def hours(self) -> float | None:
        """Of one device."""
        if self.remaining == 0:
            return 0.0
        return None if self.rate is None else self.remaining * self.job.settings.seeds / self.rate / 3600


class Estimate(NamedTuple):
    """What a sweep would take."""

    jobs: list[Planned]
    missing: list[str]
    """Why memory of some tasks is not known, a line for each."""
    gpus_per_job: float

    def sentences(self) -> list[str]:
        """Hours in total, and on several devices."""
        finished = sum(planned.remaining == 0 for planned in self.jobs)
        known = [planned.hours for planned in self.jobs if planned.hours is not None]
        said = [f"{len(self.jobs)} jobs, {finished} finished"]
        unknown = len(self.jobs) - len(known)
        if unknown:
            said.append(
                f"{unknown} jobs of unknown throughput are not counted below; "
                "give seed-steps/s that dr-q bench measured: --throughput N"
            )
        total = sum(known)
        if total > 0:
            device = "GPU" if self.gpus_per_job else "machine"
            whole = max(1, int(self.gpus_per_job))
            counts = [n for n in (1, 2, 4, 8, 16, 32, 64) if n == 1 or n < 2 * len([x for x in known if x])]
            walls = ", ".join(
                f"{wall_hours(known, n):.1f} h on {n * whole} {device}{'s' if n * whole > 1 else ''}" for n in counts
            )
            said.append(f"{total * whole:.1f} {device} hours in total; one job at a time on each: {walls}")
        return said


def estimate(spec: SweepSpec, out: Path, options: SweepOptions, throughput: float | None = None) -> Estimate:
    """From the runs that are there, the throughput given, or what was measured elsewhere."""
    if throughput is not None and not 0 < throughput < math.inf:
        raise ConfigError(f"{spelled('throughput')} must be a number of seed-steps/s, more than 0, got {throughput:g}")
    out = full_path(out)
    check_folder(spec, out)
    check_tasks(spec)
    jobs = spec.jobs(out)
    own = [(job, rate) for job in jobs if (rate := _rate_of(job)) is not None]
    specs, missing = _env_specs(spec)
    planned = []
    for job in jobs:
        done = job.settings.steps if progress_of(job).finished else checkpoint_of(job)
        size = _bytes(job, specs[job.task]) if job.task in specs else None
        planned.append(Planned(job, done, size, *_throughput(job, own, throughput, on_gpu=options.gpus != 0)))
    return Estimate(planned, missing, 1.0 if options.gpus is None else options.gpus)


def longest_first(jobs: Sequence[Job], *, on_gpu: bool) -> list[Job]:
    """The order to start them in: a long job that starts last keeps one device busy when all others are idle."""
    own = []
    for job in jobs:
        with contextlib.suppress(DamagedFileError):  # the job itself will say so
            rate = _rate_of(job)
            own += [(job, rate)] if rate is not None else []
    rates = [_throughput(job, own, None, on_gpu=on_gpu)[0] for job in jobs]
    slowest = min((rate for rate in rates if rate), default=1.0)
    left = [
        (job.settings.steps - checkpoint_of(job)) * job.settings.seeds / (rate or slowest)
        for job, rate in zip(jobs, rates, strict=True)
    ]
    order = sorted(range(len(jobs)), key=lambda i: -left[i])
    return [jobs[i] for i in order]


def wall_hours(hours: list[float], devices: int) -> float:
    """Jobs longest first, each on the device that is free first."""
    busy_until = [0.0] * devices
    for job in sorted(hours, reverse=True):
        heapq.heapreplace(busy_until, busy_until[0] + job)
    return max(busy_until)


def nearest(task: str, seeds: int) -> Measured | None:
    """What was measured most like this, of its family: the task, else the robot, else the suite; then by seeds.

    Of several the slowest: hours should not turn out to be more.
    """
    family, robot, suite = _kinds(task)

    def unlike(row: Measured) -> tuple[bool, bool, bool, int, float]:
        _, its_robot, its_suite = _kinds(row.task)
        return (
            row.task != task,
            its_robot != robot,
            its_suite != suite,
            abs(row.seeds - seeds),
            row.seed_steps_per_s,
        )

    return min((row for row in MEASURED if _kinds(row.task)[0] == family), key=unlike, default=None)


def expected_rate(near: Measured, seeds: int) -> float:
    """Seed-steps/s of another number of seeds: fewer have less, as on cheetah-run; more are not taken to have more."""
    counts, rates = zip(*((row.seeds, row.seed_steps_per_s) for row in MEASURED if row.task == _BY_SEEDS), strict=True)
    here, there = np.interp([seeds, near.seeds], counts, rates)
    return near.seed_steps_per_s * min(1.0, float(here / there))


def _kinds(task: str) -> tuple[str, str, str]:
    """Family, robot and suite."""
    family, _, name = task.partition("/")
    known = known_tasks().get(task)
    return family, name.partition("-")[0], known.suite if known else ""


def _throughput(
    job: Job, own: list[tuple[Job, float]], given: float | None, *, on_gpu: bool
) -> tuple[float | None, str]:
    family = job.task.partition("/")[0]
    for like, named in (
        ([rate for other, rate in own if other == job], "this run"),
        ([rate for other, rate in own if other.task == job.task], "this sweep, same task"),
        ([rate for other, rate in own if other.task.partition("/")[0] == family], f"this sweep, {family}"),
    ):
        if like:
            return sum(like) / len(like), named
    if given is not None:
        return given, "--throughput"
    near = nearest(job.task, job.settings.seeds) if on_gpu else None
    if near is None:
        return None, "unknown"
    source = f"{MACHINE}: {near.task}, {near.seeds} seed{'s' if near.seeds > 1 else ''}"
    rate = expected_rate(near, job.settings.seeds)
    return rate, source if rate == near.seed_steps_per_s else f"{source}, less for {job.settings.seeds}"


def _rate_of(job: Job) -> float | None:
    # Evaluations are not asked for: a run that was killed may have left half a row of them.
    return seed_steps_per_s(run_timing(job.folder).values(), job.settings.seeds)


def _env_specs(spec: SweepSpec) -> tuple[dict[str, EnvSpec], list[str]]:
    found: dict[str, EnvSpec] = {}
    missing: dict[str, list[str]] = {}
    for task in spec.tasks:
        try:
            env = make_env(task, noise_dims=spec.noise_dims)
            found[task] = env.spec
            env.close()
        except (TaskError, ImportError, OSError) as error:
            missing.setdefault(" ".join(str(error).split()), []).append(task)
    lines = [
        f"memory unknown of {tasks[0]}" + (f" and {len(tasks) - 1} more" if tasks[1:] else "") + f": {why}"
        for why, tasks in missing.items()
    ]
    return found, lines


def _bytes(job: Job, spec: EnvSpec) -> int:
    from dr_q.training.plan import Memory, make_plan

    boundless = Memory("any device", 2**62, 2**62)
    return sum(part.size for part in make_plan(job.settings, spec, boundless).parts)
