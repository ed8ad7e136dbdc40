"""Commands that train many runs as one unit: sweep, tune, experiment; and watch."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dr_q.cli.help import as_text
from dr_q.cli.options import argument, option, options_of, preset_file, use_presets
from dr_q.cli.output import print_table, say
from dr_q.cli.parse import Group
from dr_q.config import MOST_STEPS, Config, current_names
from dr_q.kit import ConfigError, full_path
from dr_q.kit.errors import FAILURE
from dr_q.settings import STOP_RULES, Execution, Settings
from dr_q.sweep.spec import EXECUTION_OPTIONS, RUN_OPTIONS, SEEDS, SweepOptions, parse_grid
from dr_q.sweep.tune import TuneOptions

_TUNE_SEEDS = 1


@dataclasses.dataclass(kw_only=True)
class _Jobs:
    """Options of sweeps and experiments about the runs they consist of, and where these run."""

    dry_run: bool = option(False, "print jobs, memory and an estimate of the hours; start nothing")
    throughput: float | None = option(
        None,
        "seed-steps/s of one job for the estimate, as dr-q bench measures them",
        above=0, most=MOST_STEPS, otherwise="measured by its own runs, or else on an H200",
    )  # fmt: skip
    preset_file: Path | None = preset_file()
    jobs: dict[str, Any] = options_of(SweepOptions)
    execution: dict[str, Any] = options_of(Execution, *EXECUTION_OPTIONS)
    run_settings: dict[str, Any] = options_of(Settings, "seeds", "first_seed", *RUN_OPTIONS, seeds=SEEDS)
    algorithm: dict[str, Any] = options_of(Config, by_preset=True)


def _execution(given: dict[str, Any], out: Path) -> dict[str, Any]:
    """How every run is executed; at Weights & Biases they are a group, by default with the name of the folder."""
    Execution(**given)  # refuses
    return {"wandb_group": full_path(out).name, **given} if given.get("wandb") else given


def _exit_code(call: Callable[[], None]) -> int:
    """The exit code of a call that trains; failed jobs are listed, and where the results of the others are."""
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
        return 128 + stopped.signal if stopped.signal else 0
    return 0


@dataclasses.dataclass(kw_only=True)
class Sweep(_Jobs):
    """Train many tasks and presets. A sweep can be stopped and started again: `dr-q sweep dmc-easy`."""

    what: tuple[str, ...] = argument((), "suites and tasks; `dr-q tasks` lists them", metavar="SUITE|TASK...")
    presets: tuple[str, ...] = option(("dr.q",), "which algorithms; `dr-q presets` lists them", metavar="NAME...")
    out: Path = option(
        Path("runs/sweep"), "the sweep's folder: new, empty, or that of the same sweep, to continue it", metavar="DIR"
    )
    slurm: Path | None = option(
        None,
        "write a batch script for Slurm, and start nothing: `array` has one job per task and preset, each with a GPU; "
        "`nodes` has whole nodes with Ray on them, and so has the name of a file",
        metavar="{array,nodes,FILE}",
    )
    slurm_script: Path | None = option(
        None, "where to write the script", metavar="FILE", otherwise="OUT.sh, next to the sweep's folder"
    )
    slurm_header: Path | None = option(
        None,
        "a file with #SBATCH lines (partition, account, time) and commands for the script",
        metavar="FILE",
    )
    mem: str | None = option(
        None, "main memory of an element of the array", metavar="SIZE", otherwise="8G, and 1G for each seed"
    )
    grid: tuple[str, ...] = option(
        (), "values to try of a setting, with every preset and in all combinations", metavar="SETTING=VALUE,VALUE..."
    )
    more_settings: dict[str, Any] = options_of(Settings, "noise_dims", *STOP_RULES)

    def run(self) -> int:
        """Train, or print an estimate."""
        from dr_q import sweep

        use_presets(self.preset_file)
        grid = parse_grid(self.grid)
        run = current_names({**self.run_settings, **self.more_settings}, Settings)
        spec = sweep.SweepSpec(self.what, self.presets, **run, changes=self.algorithm, grid=grid)
        options = SweepOptions(**self.jobs)
        if self.dry_run:
            _without_devices()
            _print_estimate(sweep.estimate(spec, self.out, options, self.throughput))
            return 0
        execution = _execution(self.execution, self.out)
        if self.slurm is not None:
            return self._write_script(spec, options, execution)
        if self.slurm_script is not None or self.slurm_header is not None or self.mem is not None:
            raise ConfigError("--slurm-script, --slurm-header and --mem need --slurm array or --slurm nodes")
        return _exit_code(lambda: print(sweep.run_sweep(spec, self.out, options, execution)))

    def _write_script(self, spec: Any, options: SweepOptions, execution: dict[str, Any]) -> int:
        """Write a script for Slurm."""
        from dr_q import sweep

        assert self.slurm is not None
        kind = str(self.slurm) if str(self.slurm) in ("array", "nodes") else "nodes"
        file = self.slurm if str(self.slurm) != kind else self.slurm_script or Path(f"{self.out}.sh")
        slurm = sweep.SlurmOptions(self.mem, self.slurm_header)
        if kind == "array":
            elements = sweep.write_slurm_array(spec, self.out, options, file, slurm, execution)
            print(f"{file}: an array of {elements}; submit it with sbatch {file}")
            return 0
        if self.mem is not None:
            raise ConfigError("--mem is for --slurm array; whole nodes have all their memory")
        sweep.write_slurm(spec, self.out, options, file, slurm, self.preset_file, execution)
        print(f"{file}: submit it with sbatch {file}")
        return 0


@dataclasses.dataclass(kw_only=True)
class ListExperiments:
    """List the paper's figures that need runs: names, tasks, presets."""

    def run(self) -> int:
        """Print the table."""
        from dr_q.sweep.experiments import EXPERIMENTS

        rows = [
            (
                experiment.name,
                experiment.figure,
                experiment.about,
                " ".join(experiment.tasks) + (f" (our choice: {experiment.chosen})" if experiment.chosen else ""),
                " ".join(experiment.presets),
                " ".join(map(str, experiment.noise)) if experiment.noise != (0,) else "",
            )
            for experiment in EXPERIMENTS
        ]
        print_table(("experiment", "of the paper", "what", "tasks", "presets", "noise"), rows, width=250)
        return 0


@dataclasses.dataclass(kw_only=True)
class RunExperiment(_Jobs):
    """Train what a figure of the paper needs, draw it, and compare each task with the paper's statement."""

    name: str = argument(help="which experiment: `dr-q experiment list`", metavar="NAME")
    tasks: tuple[str, ...] = option((), "other tasks or suites than the figure's", metavar="TASK...")
    out: Path | None = option(
        None,
        "its folder: new, empty, or that of the same experiment, to continue it",
        metavar="DIR", otherwise="runs/experiment-NAME",
    )  # fmt: skip
    have: tuple[Path, ...] = option(
        (), "folders with runs made elsewhere, whose finished tasks count (for breadth)", metavar="DIR...", otherwise=""
    )
    missing: bool = option(False, "print which tasks are not finished, and start nothing (for breadth)")

    def run(self) -> int:
        """Train, draw, compare; or print an estimate."""
        from dr_q.sweep import experiments

        use_presets(self.preset_file)
        found = experiments.find(self.name)
        run = current_names(self.run_settings, Settings)
        planned = experiments.plan(found, tasks=self.tasks, **run, changes=self.algorithm)
        out = self.out or Path("runs") / f"experiment-{self.name}"
        options = SweepOptions(**self.jobs)
        experiments.check_have(planned, self.have)
        if self.missing:
            if found.ends_in != "list":
                raise ConfigError(f"--missing is for lists of runs (breadth), not for {found.name}")
            for line in experiments.missing(planned, out, self.have):
                print(line)
            return 0
        if self.dry_run:
            _without_devices()
            left = experiments.without_done(planned, self.have)
            _print_estimate(experiments.estimate_experiment(left, out, options, self.throughput))
            return 0
        execution = _execution(self.execution, out)

        def train() -> None:
            done = experiments.run_experiment(planned, out, options, say, have=self.have, execution=execution)
            for line in (*done.sentences, *done.figures):
                print(line)

        return _exit_code(train)


@dataclasses.dataclass(kw_only=True)
class Tune:
    """Search settings with Optuna: `dr-q tune dmc/walker-walk --search infonce-weight=0.01..1:log --trials 30`."""

    what: tuple[str, ...] = argument(
        (), "suites and tasks; the value of a trial is the mean over them", metavar="TASK..."
    )
    search: tuple[str, ...] = option(
        (), "what to try of a setting; low..high:log is a logarithmic scale", metavar="SETTING=LOW..HIGH|VALUE,VALUE"
    )
    preset: str = option("dr.q", "the preset to start from")
    preset_file: Path | None = preset_file()
    out: Path = option(Path("runs/tune"), "the search's folder: new, empty, or that of the same search", metavar="DIR")
    tuning: dict[str, Any] = options_of(TuneOptions)
    jobs: dict[str, Any] = options_of(SweepOptions, "gpus_per_job", "cpus_per_job", "jobs_per_gpu", "max_minutes")
    execution: dict[str, Any] = options_of(Execution, *EXECUTION_OPTIONS)
    run_settings: dict[str, Any] = options_of(Settings, "seeds", "first_seed", *RUN_OPTIONS, seeds=_TUNE_SEEDS)
    algorithm: dict[str, Any] = options_of(Config, by_preset=True)

    def run(self) -> int:
        """Search, and print the best settings as a command."""
        from dr_q.sweep.spec import SweepSpec
        from dr_q.sweep.tune import parse_search, run_tune

        use_presets(self.preset_file)
        search = parse_search(self.search)
        run = {"seeds": _TUNE_SEEDS, **current_names(self.run_settings, Settings)}
        spec = SweepSpec(self.what, (self.preset,), **run, changes=self.algorithm)
        for name in search:
            if name in spec.changes:
                raise ConfigError(f"--{name.replace('_', '-')} has a value and is searched; leave one of them out")
        options, tuning = SweepOptions(local=True, **self.jobs), TuneOptions(**self.tuning)
        execution = _execution(self.execution, self.out)

        def train() -> None:
            best = run_tune(spec, search, self.out, options, tuning, say, execution)
            print(best.trials)
            print(f"best: trial {best.number}, return {best.value:.1f}")
            given = {**spec.changes, **best.settings}
            flags = " ".join(f"--{name.replace('_', '-')} {as_text(value)}" for name, value in given.items())
            print(f"dr-q train {spec.tasks[0]} --preset {self.preset} {flags}")

        return _exit_code(train)


@dataclasses.dataclass(kw_only=True)
class Watch:
    """Show the table of a sweep or of any folder of runs, while they train: `dr-q watch runs/sweep`."""

    folder: Path = argument(help="a sweep's folder, a run's, or one with runs in it", metavar="DIR")
    once: bool = option(False, "print it once")
    every: float = option(2.0, "seconds between updates of the table", above=0, most=86_400)

    def run(self) -> int:
        """Show it until all is finished, or Ctrl-C."""
        from dr_q.sweep.watch import watch

        watch(self.folder, self.every, once=self.once)
        return 0


EXPERIMENT = Group("The paper's experiments by name.", {"list": ListExperiments, "run": RunExperiment})


def _without_devices() -> None:
    """Sizes are computed; no device is needed."""
    import jax

    jax.config.update("jax_platforms", "cpu")


def _print_estimate(found: Any) -> None:
    from dr_q.report.results import listed_as

    columns = ("task", "preset", "seeds", "done", "to do", "memory", "seed-steps/s", "hours", "measured on")
    rows = []
    for planned in found.jobs:
        settings = planned.job.settings
        rows.append(
            (
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
        )
    print_table(columns, rows, width=200)
    for line in (*found.missing, *found.sentences()):
        print(line)
