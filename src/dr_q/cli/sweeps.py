"""Commands that train many runs as one unit: sweep, experiment."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.table import Table

from dr_q.cli.options import FAILURE, AllSettings, Tables, at_least, given_settings, named, optional, say

if TYPE_CHECKING:
    from dr_q.sweep import SweepOptions


@dataclasses.dataclass(kw_only=True)
class _Jobs:
    """What sweeps and experiments are told about the runs they consist of."""

    steps: optional(int, "N") = None  # pyright: ignore
    """Agent steps of each seed. [the paper's budget; 500,000 for tasks that are not the paper's]"""
    eval_every: optional(int, "N") = None  # pyright: ignore
    """Agent steps between evaluations. [5000]"""
    eval_episodes: optional(int, "N") = None  # pyright: ignore
    """Episodes of each evaluation. [10]"""
    checkpoint_every: optional(int, "N") = None  # pyright: ignore
    """Agent steps between checkpoints. [25000]"""
    keep: optional(int, "N") = None  # pyright: ignore
    """Checkpoints of each run to keep; dr-q analyse information reads them all. [2]"""
    address: optional(str, "HOST:PORT") = None  # pyright: ignore
    """A Ray cluster to run on; `auto` is the one that runs on this machine. [Ray is started here]"""
    gpus_per_job: optional(float, "X") = None  # pyright: ignore
    """GPUs of a job; two jobs share one with 0.5, 0 trains on the CPU. [1 where there are any]"""
    cpus_per_job: optional(float, "X") = None  # pyright: ignore
    """CPUs of a job. [with a GPU one for each seed and 2, else its share of the machine]"""
    retries: int = 3
    """How often a job whose worker was lost is started again from its checkpoint."""
    dry_run: bool = False
    """Print jobs, memory and an estimate of the hours; start nothing."""
    throughput: optional(float, "X") = None  # pyright: ignore
    """Seed-steps/s of one job for the estimate, as dr-q bench measures. [its own runs; else those of an H200]"""
    algorithm: tyro.conf.OmitArgPrefixes[AllSettings] = dataclasses.field(default_factory=AllSettings)  # pyright: ignore

    def asked(self) -> dict[str, Any]:
        """Of the runs themselves."""
        names = ("steps", "eval_every", "eval_episodes", "checkpoint_every", "keep")
        return {name: getattr(self, name) for name in names} | {"changes": given_settings(self.algorithm)}

    def options(self) -> "SweepOptions":
        """Of where they run."""
        from dr_q.sweep import SweepOptions

        return SweepOptions(self.address, self.gpus_per_job, self.cpus_per_job, self.retries)


def _exit_code(call: Callable[[], None]) -> int:
    """Of a call that trains; jobs that failed are listed, with where the results of the others are."""
    from dr_q.sweep import SweepFailed, SweepInterrupted

    try:
        call()
    except SweepFailed as failed:
        for line in failed.failures:
            print(f"dr-q: {line}", file=sys.stderr)
        print(failed.results)
        return FAILURE
    except SweepInterrupted as stopped:
        print(f"dr-q: {stopped}", file=sys.stderr)
        return 128 + stopped.signal
    return 0


@dataclasses.dataclass
class Sweep(_Jobs):
    """Train many tasks and presets as one unit that can be killed and started again: `dr-q sweep dmc-easy`."""

    what: named(tuple[str, ...], "SUITE|TASK...")  # pyright: ignore
    """Suites (dr-q tasks) and tasks."""
    presets: tuple[str, ...] = ("dr.q",)
    """Which algorithms; `dr-q presets` lists them."""
    seeds: int = 10
    """Seeds of each task and preset, trained at once in one job."""
    out: Path = Path("runs/sweep")
    """The sweep's folder: new, empty, or that of the same sweep, which goes on."""
    noise_dims: int = 0
    """Dimensions of Gaussian noise appended to each observation; the paper's study: 50."""
    slurm: optional(Path, "FILE") = None  # pyright: ignore
    """Write a batch script that runs this sweep on Slurm, and start nothing."""

    def run(self) -> int:
        """Train, or say what it would take."""
        from dr_q import sweep

        spec = sweep.SweepSpec(self.what, self.presets, self.seeds, noise_dims=self.noise_dims, **self.asked())
        options = self.options()
        if self.dry_run:
            _without_devices()
            _print_estimate(sweep.estimate(spec, self.out, options, self.throughput))
            return 0
        if self.slurm is not None:
            sweep.write_slurm(spec, self.out, options, self.slurm)
            print(f"{self.slurm}: submit it with sbatch {self.slurm}")
            return 0
        return _exit_code(lambda: print(sweep.run_sweep(spec, self.out, options)))


@dataclasses.dataclass
class ListExperiments:
    """The paper's figures that run something: names, tasks, presets."""

    def run(self) -> int:
        """Print the table."""
        from dr_q.sweep.experiments import EXPERIMENTS

        table = Table("experiment", "of the paper", "what", "tasks", "presets", "noise", box=None, pad_edge=False)
        for experiment in EXPERIMENTS:
            table.add_row(
                experiment.name,
                experiment.figure,
                experiment.about,
                " ".join(experiment.tasks) + (f" (our choice: {experiment.chosen})" if experiment.chosen else ""),
                " ".join(experiment.presets),
                " ".join(map(str, experiment.noise)) if experiment.noise != (0,) else "",
            )
        Tables(250).print(table)
        return 0


@dataclasses.dataclass
class RunExperiment(_Jobs):
    """Train what a figure of the paper needs, draw it, and say for each task whether the paper's statement is seen."""

    name: named(str, "NAME")  # pyright: ignore
    """Which: `dr-q experiment list`."""
    tasks: tuple[str, ...] = ()
    """Other tasks or suites than the figure's. [the figure's]"""
    seeds: int = 10
    """Seeds of each task and preset."""
    out: optional(Path, "DIR") = None  # pyright: ignore
    """Its folder: new, empty, or that of the same experiment, which goes on. [runs/experiment-NAME]"""

    def run(self) -> int:
        """Train, draw, judge; or say what it would take."""
        from dr_q.sweep import experiments

        if self.steps is not None:
            at_least("steps", self.steps, 1)
        found = experiments.find(self.name)
        planned = experiments.plan(found, tasks=self.tasks, seeds=self.seeds, **self.asked())
        out = self.out or Path("runs") / f"experiment-{self.name}"
        options = self.options()
        if self.dry_run:
            _without_devices()
            _print_estimate(experiments.estimate_experiment(planned, out, options, self.throughput))
            return 0

        def train() -> None:
            done = experiments.run_experiment(planned, out, options, say)
            for line in (*done.sentences, *done.pictures):
                print(line)

        return _exit_code(train)


@dataclasses.dataclass
class Experiment:
    """The paper's experiments by name: list, run."""

    what: Annotated[
        Annotated[ListExperiments, tyro.conf.subcommand("list")]
        | Annotated[RunExperiment, tyro.conf.subcommand("run")],
        tyro.conf.arg(name=""),
    ]

    def run(self) -> int:
        """Do it."""
        return self.what.run()


def _without_devices() -> None:
    """Sizes are computed; no device is needed."""
    import jax

    jax.config.update("jax_platforms", "cpu")


def _print_estimate(found: Any) -> None:
    from dr_q.report.results import listed_as

    columns = ("task", "preset", "seeds", "done", "to do", "memory", "seed-steps/s", "hours", "measured on")
    table = Table(*columns, box=None, pad_edge=False)
    for planned in found.jobs:
        settings = planned.job.settings
        table.add_row(
            planned.job.task,
            listed_as(planned.job.preset, settings.noise_dims),
            str(settings.seeds),
            f"{planned.done:,}",
            f"{planned.remaining:,}",
            "unknown" if planned.size is None else f"{planned.size / 2**30:.2f} GiB",
            "unknown" if planned.rate is None else f"{planned.rate:,.0f}",
            "unknown" if planned.hours is None else f"{planned.hours:.2f}",
            planned.source,
        )
    Tables(200).print(table)
    for line in (*found.missing, *found.sentences()):
        print(line)
