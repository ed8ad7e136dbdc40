"""The command `dr-q`: parse, call, exit code."""

import ast
import contextlib
import dataclasses
import difflib
import errno
import inspect
import json
import math
import os
import select
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

import dr_q
from dr_q.agent import PRESETS, Config, ConfigError, preset
from dr_q.envs import SUITES, EnvError, TaskError, WorkerError, canonical, suite_tasks
from dr_q.paper import PRINT_NOTES, TaskInfo, algorithms, paper_tasks, published_aggregates, published_score
from dr_q.run.settings import EVAL_EPISODES, EVAL_EVERY, changes_of
from dr_q.usage import parsed

USAGE_ERROR = 2
FAILURE = 1
INTERRUPTED = 130
_CANNOT_BE_THERE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)
CLOSED_PIPE = 141


def _named(kind: Any, metavar: str) -> Any:
    """An argument by its place, under a name that says what it is."""
    return tyro.conf.Positional[Annotated[kind, tyro.conf.arg(metavar=metavar)]]


def _optional(kind: Any, metavar: str, help_text: str | None = None) -> Any:
    """An option that may be left out; its help names the default itself."""
    return Annotated[kind | None, tyro.conf.arg(metavar=metavar, help=help_text, help_behavior_hint="")]


_METAVAR = {int: "N", float: "X", bool: "{True,False}", tuple[float, float]: "LOW HIGH"}


def _option_groups() -> dict[str, Any]:
    """A dataclass for each group of the config's fields, every field optional: what is given overrides the preset."""
    source = inspect.getsource(Config)
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    lines, docs = source.splitlines(), {}
    group, groups = "", {}
    fields = {field.name: field for field in dataclasses.fields(Config)}
    for line, following in zip(body.body, body.body[1:], strict=False):
        if not (isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)):
            continue
        above = lines[line.lineno - 2].strip()
        group = above.removeprefix("# ") if above.startswith("# ") else group
        name = line.target.id
        assert isinstance(following, ast.Expr)
        docs[name] = f"{ast.literal_eval(following.value)} [dr.q: {fields[name].default}]"
        kind = _optional(fields[name].type, _METAVAR.get(fields[name].type, "{elu,relu}"), docs[name])  # pyright: ignore
        groups.setdefault(group, []).append((name, kind, None))
    return {title: dataclasses.make_dataclass("Settings", entries) for title, entries in groups.items()}


_GROUPS = _option_groups()
_NAMES = {title: title.lower().replace(" ", "_").replace(".", "").replace(",", "") for title in _GROUPS}
AllSettings = dataclasses.make_dataclass(
    "AllSettings",
    [
        (
            _NAMES[title],
            Annotated[group, tyro.conf.arg(help=f"{title}; default: the preset's.")],
            dataclasses.field(default_factory=group),
        )
        for title, group in _GROUPS.items()
    ],
)


@dataclasses.dataclass
class Train:
    """Train on a task: `dr-q train dmc/walker-walk --seeds 5`, or go on: `dr-q train --resume runs/NAME`."""

    task: tyro.conf.Positional[_optional(str, "TASK")] = None  # pyright: ignore
    """gym/Ant-v4, dmc/walker-run, dmc-visual/walker-run, hbench/h1-walk-v0, or any Gymnasium id: gym/ID, module:ID."""
    preset: _optional(str, "NAME") = None  # pyright: ignore
    """Which algorithm; `dr-q presets` lists them. [dr.q]"""
    seeds: _optional(int, "N") = None  # pyright: ignore
    """How many seeds to train at once. [1]"""
    seed: _optional(int, "FIRST") = None  # pyright: ignore
    """The first seed. [0]"""
    steps: _optional(int, "N") = None  # pyright: ignore
    """Agent steps of each seed. [the paper's budget; 500,000 for other tasks]"""
    out: _optional(Path, "DIR") = None  # pyright: ignore
    """The run's folder, new or empty. [runs/TASK-PRESET-SEEDS]"""
    resume: _optional(Path, "DIR") = None  # pyright: ignore
    """Go on with the run in this folder, with its own settings; --steps may grow."""
    eval_every: _optional(int, "N") = None  # pyright: ignore
    """Agent steps between evaluations. [5000]"""
    eval_episodes: _optional(int, "N") = None  # pyright: ignore
    """Episodes of each evaluation. [10]"""
    checkpoint_every: _optional(int, "N") = None  # pyright: ignore
    """Agent steps between checkpoints. [25000]"""
    keep: _optional(int, "N") = None  # pyright: ignore
    """Checkpoints to keep. [2]"""
    stop_after: _optional(float, "MINUTES") = None  # pyright: ignore
    """Minutes after which to write a checkpoint and stop, with exit code 0."""
    noise_dims: _optional(int, "N") = None  # pyright: ignore
    """Dimensions of Gaussian noise appended to each observation; the paper's study: 50. [0]"""
    in_process: _optional(bool, "{True,False}") = None  # pyright: ignore
    """Simulate in this process. [yes with one seed, else a process for each]"""
    background_evaluation: _optional(bool, "{True,False}") = None  # pyright: ignore
    """Evaluate while training goes on. [yes on a GPU, if cores are left]"""
    device_memory: _optional(float, "GIB") = None  # pyright: ignore
    """Memory of each device to fill at most; observations that do not fit go to host memory. [all]"""
    wandb: bool = False
    """Log to Weights & Biases too."""
    algorithm: tyro.conf.OmitArgPrefixes[AllSettings] = dataclasses.field(default_factory=AllSettings)  # pyright: ignore

    def run(self) -> int:
        """Train."""
        from dr_q.run import api

        given = {
            name: getattr(self, name)
            for name in ("eval_every", "eval_episodes", "checkpoint_every", "keep", "noise_dims")
            if getattr(self, name) is not None
        }
        for group in vars(self.algorithm).values():
            given |= {name: value for name, value in vars(group).items() if value is not None}
        if self.resume is not None:
            asked = {"preset": self.preset, "seeds": self.seeds, "first_seed": self.seed, **given}
            api.refuse_changes(self.resume, self.task, asked, self.out)
            given = {}
        else:
            seeds = 1 if self.seeds is None else self.seeds
            given |= {"preset": self.preset or "dr.q", "seeds": seeds, "seed": self.seed or 0, "out": self.out}
        outcome = api.train(
            self.task if self.resume is None else None,
            steps=self.steps,
            resume=self.resume,
            stop_after=self.stop_after,
            wandb=self.wandb,
            in_process=self.in_process,
            background_evaluation=self.background_evaluation,
            device_memory=self.device_memory,
            **given,
        )
        print(f"{outcome.status}: {outcome.folder}")
        return 128 + outcome.signal if outcome.signal else 0


@dataclasses.dataclass
class Sweep:
    """Train many tasks and presets as one unit that can be killed and started again: `dr-q sweep dmc-easy`."""

    what: tyro.conf.Positional[tuple[str, ...]]
    """Suites (dr-q tasks) and tasks."""
    presets: tuple[str, ...] = ("dr.q",)
    """Which algorithms; `dr-q presets` lists them."""
    seeds: int = 10
    """Seeds of each task and preset, trained at once in one job."""
    out: Path = Path("runs/sweep")
    """The sweep's folder: new, empty, or that of the same sweep, which goes on."""
    steps: _optional(int, "N") = None  # pyright: ignore
    """Agent steps of each seed. [the paper's budget; 500,000 for other tasks]"""
    eval_every: _optional(int, "N") = None  # pyright: ignore
    """Agent steps between evaluations. [5000]"""
    eval_episodes: _optional(int, "N") = None  # pyright: ignore
    """Episodes of each evaluation. [10]"""
    checkpoint_every: _optional(int, "N") = None  # pyright: ignore
    """Agent steps between checkpoints. [25000]"""
    keep: _optional(int, "N") = None  # pyright: ignore
    """Checkpoints of each run to keep; dr-q analyse information reads them all. [2]"""
    noise_dims: int = 0
    """Dimensions of Gaussian noise appended to each observation; the paper's study: 50."""
    address: _optional(str, "HOST:PORT") = None  # pyright: ignore
    """A Ray cluster to run on; `auto` is the one that runs on this machine. [Ray is started here]"""
    gpus_per_job: _optional(float, "X") = None  # pyright: ignore
    """GPUs of a job; two jobs share one with 0.5, 0 trains on the CPU. [1 where there are any]"""
    cpus_per_job: _optional(float, "X") = None  # pyright: ignore
    """CPUs of a job. [with a GPU one for each seed and 2, else its share of the machine]"""
    retries: int = 3
    """How often a job whose worker was lost is started again from its checkpoint."""
    dry_run: bool = False
    """Print jobs, memory and an estimate of the hours; start nothing."""
    throughput: _optional(float, "X") = None  # pyright: ignore
    """Seed-steps/s of one job for the estimate, as dr-q bench measures. [runs of this sweep; else those of an H200]"""
    slurm: _optional(Path, "FILE") = None  # pyright: ignore
    """Write a batch script that runs this sweep on Slurm, and start nothing."""
    algorithm: tyro.conf.OmitArgPrefixes[AllSettings] = dataclasses.field(default_factory=AllSettings)  # pyright: ignore

    def run(self) -> int:
        """Train, or say what it would take."""
        from dr_q import sweep

        changes: dict[str, Any] = {}
        for group in vars(self.algorithm).values():
            changes |= {name: value for name, value in vars(group).items() if value is not None}
        spec = sweep.SweepSpec(
            self.what,
            self.presets,
            self.seeds,
            steps=self.steps,
            eval_every=self.eval_every,
            eval_episodes=self.eval_episodes,
            checkpoint_every=self.checkpoint_every,
            keep=self.keep,
            noise_dims=self.noise_dims,
            changes=changes,
        )
        options = sweep.SweepOptions(self.address, self.gpus_per_job, self.cpus_per_job, self.retries)
        if self.dry_run:
            _without_devices()
            _print_estimate(sweep.estimate(spec, self.out, options, self.throughput))
            return 0
        if self.slurm is not None:
            sweep.write_slurm(spec, self.out, options, self.slurm)
            print(f"{self.slurm}: submit it with sbatch {self.slurm}")
            return 0
        try:
            print(sweep.run_sweep(spec, self.out, options))
        except sweep.SweepFailed as failed:
            for line in failed.failures:
                print(f"dr-q: {line}", file=sys.stderr)
            print(failed.results)
            return FAILURE
        except sweep.SweepInterrupted as stopped:
            print(f"dr-q: {stopped}", file=sys.stderr)
            return 128 + stopped.signal
        return 0


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
    _Tables(200).print(table)
    for line in (*found.missing, *found.sentences()):
        print(line)


@dataclasses.dataclass
class Eval:
    """Evaluate a trained policy on fresh episodes."""

    run_folder: _named(Path, "DIR")  # pyright: ignore
    """A run's folder, or a policy folder."""
    seed: _optional(int, "SEED") = None  # pyright: ignore
    """Which seed's policy. [the best at the last evaluation]"""
    episodes: int = EVAL_EPISODES
    """How many episodes."""

    def run(self) -> int:
        """Evaluate and compare with random and paper."""
        from dr_q.run.watch import evaluate_policy, returns_text

        policy, returns = evaluate_policy(self.run_folder, self.seed, self.episodes)
        chosen = f"seed {policy.seed}" + (" (best last evaluation)" if self.seed is None else "")
        print(
            f"{policy.task}, {chosen}, {policy.agent_steps:,} agent steps: "
            f"return {returns_text(returns)} over {len(returns)} episode{'s' if len(returns) > 1 else ''}"
        )
        line = comparison(policy.task, float(returns.mean()), self.episodes, list(policy.returns.values()))
        if line:
            print(line)
        return 0


def comparison(task: str, score: float, episodes: int, of_seeds: list[float]) -> str:
    """A score beside random actions' and the paper's, for the paper's tasks; `of_seeds`: all of the policy's run."""
    from dr_q.run.watch import random_returns

    known, published = paper_tasks().get(task), published_score(task)
    if known is None or published is None:
        return ""
    # The paper prints no random score for the DeepMind Control Suite: it is measured.
    random = known.random_score if known.random_score is not None else float(random_returns(task, episodes).mean())
    paper = f"paper's DR.Q {published.mean:g} after {known.agent_steps:,} steps, mean of its seeds"
    if of_seeds[1:]:  # one of several is not to be compared with a mean
        mine = f"mean of its run's {len(of_seeds)} seeds {sum(of_seeds) / len(of_seeds):.0f}"
        return f"random {random:.0f} | this policy {score:.0f} | {mine} | {paper}"
    share = 100 * score / published.mean
    return f"random {random:.0f} | this policy {score:.0f} | {paper}: {share:.0f}% of the paper's score"


@dataclasses.dataclass
class Video:
    """Record one episode of a trained policy as an MP4 that plays as fast as the simulated time."""

    run_folder: _named(Path, "DIR")  # pyright: ignore
    """A run's folder, or a policy folder."""
    out: _optional(Path, "FILE") = None  # pyright: ignore
    """Where to write it. [RUN/video.mp4]"""
    seed: _optional(int, "SEED") = None  # pyright: ignore
    """Which seed's policy. [the best at the last evaluation]"""

    def run(self) -> int:
        """Record."""
        from dr_q.run.watch import record_video

        out = self.out or self.run_folder / "video.mp4"
        done = record_video(self.run_folder, out, self.seed, _say)
        chosen = f"seed {done.policy.seed}" + (" (best last evaluation)" if self.seed is None else "")
        length = f"{done.frames / done.frames_per_second:.1f} s at {done.frames_per_second:.3g} frames/s"
        print(f"{out}: {done.policy.task}, {chosen}, return {done.total:.1f}, {length}")
        return 0


@dataclasses.dataclass
class Export:
    """Write one policy of a run to a folder to give away: weights in few bytes, and a model card."""

    run_folder: _named(Path, "DIR")  # pyright: ignore
    """A run's folder, or a policy folder."""
    out: Path
    """The new folder."""
    seed: _optional(int, "SEED") = None  # pyright: ignore
    """Which seed's policy. [the best at the last evaluation]"""
    precision: Literal["float16", "float32"] = "float16"
    """Of the weights."""
    episodes: int = EVAL_EPISODES
    """Fresh episodes with the weights as they were written, for the card; 0 plays none."""

    def run(self) -> int:
        """Export."""
        from dr_q.run.export import export_policy
        from dr_q.run.watch import returns_text

        _at_least("episodes", self.episodes, 0)
        done = export_policy(self.run_folder, self.out, self.seed, self.precision, self.episodes)
        played = "" if done.returns is None else f", return {returns_text(done.returns)}"
        print(f"{done.folder}: seed {done.seed}, {self.precision}, {done.size / 2**20:.1f} MiB{played}")
        return 0


@dataclasses.dataclass
class Plot:
    """Draw learning curves, with 95% intervals over seeds, as a picture."""

    sources: tyro.conf.Positional[list[Path]]
    """Runs, folders of runs, CSV files of results (dr-q results), to draw together; a panel for each task."""
    out: Path = Path("curves.png")
    """Where to write it."""

    def run(self) -> int:
        """Draw."""
        from dr_q.report import plot_curves, read_run, run_folders
        from dr_q.report.results import read_records

        if not self.out.suffix:
            raise ConfigError(f"{self.out} does not say what kind of picture; give it an ending, as in {self.out}.png")
        if not self.sources:
            raise ConfigError("nothing to draw; name runs, folders of runs, or CSV files of results")
        try:
            folders = {run.resolve(): run for path in self.sources if not path.is_file() for run in run_folders(path)}
            files = {path.resolve(): path for path in self.sources if path.is_file()}
            records = [record for path in files.values() for record in read_records(path)]
            plot_curves([*map(read_run, folders.values()), *records], self.out)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        except ImportError as error:
            raise ConfigError("a plot needs matplotlib, which is not installed: pip install 'dr-q[plot]'") from error
        print(self.out)
        return 0


Runs = tyro.conf.Positional[list[Path]]


@dataclasses.dataclass
class Tsne:
    """z_sa of replay samples in two dimensions by t-SNE, runs side by side (App. E.3)."""

    run_folders: Runs
    """Runs with checkpoints."""
    out: Path = Path("tsne.png")
    """The picture; its points are written beside it as CSV."""
    samples: int = 5_000
    """Transitions of each run, drawn uniformly from its replay."""
    colour: Literal["value", "reward", "age"] = "value"
    """What colours show: the critics' value, the reward, or the age."""
    seed: _optional(int, "SEED") = None  # pyright: ignore
    """Which seed. [each run's first]"""
    at: _optional(int, "STEP") = None  # pyright: ignore
    """Which checkpoint. [the last]"""

    def run(self) -> int:
        """Compute and draw."""
        from dr_q.report.analyses import draw_embeddings, write_embeddings
        from dr_q.run import analyse

        runs = _saved_runs(self.run_folders, self.out)
        _at_least("samples", self.samples, 4)
        found = []
        for run in runs:
            _say(f"t-SNE of {run.folder}")
            found.append(analyse.embed(run, samples=self.samples, colour=self.colour, seed=self.seed, at=self.at))
            count = len(found[-1].points)
            if count < self.samples:
                _say(f"{run.folder} has {count:,} transitions to draw, not {self.samples:,}: all are used")
        unit = {
            "value": "value: smaller Q, in units of reward",
            "reward": "reward",
            "age": "age: transitions added since",
        }[self.colour]
        draw_embeddings(found, unit, self.out)
        write_embeddings(found, self.colour, self.out.with_suffix(".csv"))
        print(self.out)
        return 0


@dataclasses.dataclass
class PrioritiesByAge:
    """|TD error| x fade weight against age, and the sampling probability by age (App. E.4)."""

    run_folders: Runs
    """Runs with checkpoints."""
    out: Path = Path("priorities.png")
    """The picture; its numbers by age are written beside it as CSV."""
    newest: int = 100_000
    """How many of the newest transitions."""
    seed: _optional(int, "SEED") = None  # pyright: ignore
    """Which seed. [each run's first]"""
    at: _optional(int, "STEP") = None  # pyright: ignore
    """Which checkpoint. [the last]"""

    def run(self) -> int:
        """Compute and draw."""
        from dr_q.report.analyses import draw_priorities, write_priorities
        from dr_q.run import analyse

        runs = _saved_runs(self.run_folders, self.out)
        _at_least("newest", self.newest, 10)
        found = []
        for run in runs:
            _say(f"TD errors of {run.folder}")
            found.append(analyse.priorities(run, newest=self.newest, seed=self.seed, at=self.at))
            oldest = found[-1].buckets[-1].last + 1
            if oldest < self.newest:
                _say(f"{run.folder} has {oldest:,} transitions, not {self.newest:,}: all are used")
        draw_priorities(found, self.out)
        write_priorities(found, self.out.with_suffix(".csv"))
        print(self.out)
        return 0


@dataclasses.dataclass
class InformationByStep:
    """The InfoNCE bound log N - loss, the latent MSE and the reward error on held-out replay, per checkpoint."""

    run_folders: Runs
    """Runs with checkpoints; train with --keep N to have more than two."""
    out: Path = Path("information.png")
    """The picture; its numbers are written beside it as CSV."""

    def run(self) -> int:
        """Compute and draw."""
        from dr_q.report.analyses import draw_information, write_information
        from dr_q.run import analyse

        runs = _saved_runs(self.run_folders, self.out)
        found = analyse.information(runs, _say)
        draw_information(found, self.out, analyse.information_note(found))
        write_information(found, self.out.with_suffix(".csv"))
        for run in found:
            print(run.sentence())
        print(self.out)
        return 0


@dataclasses.dataclass
class Analyse:
    """The paper's analyses of trained runs, from their checkpoints: tsne, priorities, information."""

    what: Annotated[
        Annotated[Tsne, tyro.conf.subcommand("tsne")]
        | Annotated[PrioritiesByAge, tyro.conf.subcommand("priorities")]
        | Annotated[InformationByStep, tyro.conf.subcommand("information")],
        tyro.conf.arg(name=""),
    ]

    def run(self) -> int:
        """Do it."""
        try:
            return self.what.run()
        except ImportError as error:
            raise ConfigError(f"an analysis needs {error.name}: pip install 'dr-q[report]'") from error


def _saved_runs(folders: list[Path], out: Path) -> list[Any]:
    from dr_q.run.analyse import open_run

    if not folders:
        raise ConfigError("no run given; name one or more folders of dr-q train")
    _picture(out)
    return [open_run(folder) for folder in folders]


def _picture(out: Path) -> None:
    if out.suffix != ".png":
        raise ConfigError(f"--out {out} is not a PNG file's name; end it in .png")


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"{name} must be at least {least}, got {value}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


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
        _Tables(250).print(table)
        return 0


@dataclasses.dataclass
class RunExperiment:
    """Train what a figure of the paper needs, draw it, and say for each task whether the paper's statement is seen."""

    name: _named(str, "NAME")  # pyright: ignore
    """Which: `dr-q experiment list`."""
    tasks: tuple[str, ...] = ()
    """Other tasks or suites than the figure's. [the figure's]"""
    steps: _optional(int, "N") = None  # pyright: ignore
    """Agent steps of each seed. [the paper's]"""
    seeds: int = 10
    """Seeds of each task and preset."""
    out: _optional(Path, "DIR") = None  # pyright: ignore
    """Its folder: new, empty, or that of the same experiment, which goes on. [runs/experiment-NAME]"""
    eval_every: _optional(int, "N") = None  # pyright: ignore
    """Agent steps between evaluations. [5000]"""
    eval_episodes: _optional(int, "N") = None  # pyright: ignore
    """Episodes of each evaluation. [10]"""
    checkpoint_every: _optional(int, "N") = None  # pyright: ignore
    """Agent steps between checkpoints. [25000]"""
    keep: _optional(int, "N") = None  # pyright: ignore
    """Checkpoints of each run to keep; dr-q analyse information reads them all. [2]"""
    address: _optional(str, "HOST:PORT") = None  # pyright: ignore
    """A Ray cluster to run on; `auto` is the one that runs on this machine. [Ray is started here]"""
    gpus_per_job: _optional(float, "X") = None  # pyright: ignore
    """GPUs of a job; two jobs share one with 0.5, 0 trains on the CPU. [1 where there are any]"""
    cpus_per_job: _optional(float, "X") = None  # pyright: ignore
    """CPUs of a job. [with a GPU one for each seed and 2, else its share of the machine]"""
    retries: int = 3
    """How often a job whose worker was lost is started again from its checkpoint."""
    dry_run: bool = False
    """Print jobs, memory and an estimate of the hours; start nothing."""
    throughput: _optional(float, "X") = None  # pyright: ignore
    """Seed-steps/s of one job for the estimate, as dr-q bench measures. [its own runs; else those of an H200]"""
    algorithm: tyro.conf.OmitArgPrefixes[AllSettings] = dataclasses.field(default_factory=AllSettings)  # pyright: ignore

    def run(self) -> int:
        """Train, draw, judge; or say what it would take."""
        from dr_q import sweep
        from dr_q.sweep import experiments

        if self.steps is not None:
            _at_least("steps", self.steps, 1)
        changes: dict[str, Any] = {}
        for group in vars(self.algorithm).values():
            changes |= {name: value for name, value in vars(group).items() if value is not None}
        planned = experiments.plan(
            experiments.find(self.name),
            tasks=self.tasks,
            seeds=self.seeds,
            steps=self.steps,
            changes=changes,
            eval_every=self.eval_every,
            eval_episodes=self.eval_episodes,
            checkpoint_every=self.checkpoint_every,
            keep=self.keep,
        )
        out = self.out or Path("runs") / f"experiment-{self.name}"
        options = sweep.SweepOptions(self.address, self.gpus_per_job, self.cpus_per_job, self.retries)
        if self.dry_run:
            _without_devices()
            _print_estimate(experiments.estimate_experiment(planned, out, options, self.throughput))
            return 0
        try:
            found = experiments.run_experiment(planned, out, options, _say)
        except sweep.SweepFailed as failed:
            for line in failed.failures:
                print(f"dr-q: {line}", file=sys.stderr)
            return FAILURE
        except sweep.SweepInterrupted as stopped:
            print(f"dr-q: {stopped}", file=sys.stderr)
            return 128 + stopped.signal
        for line in (*found.sentences, *found.pictures):
            print(line)
        return 0


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


@dataclasses.dataclass
class Tasks:
    """List the paper's tasks."""

    suite: _named(str, "[SUITE]") = "all"  # pyright: ignore
    """gym, dmc-easy, dmc-hard, dmc, dmc-visual, hbench, hbench-hand or all."""
    json: bool = False
    """As JSON."""

    def run(self) -> int:
        """Print them."""
        rows = suite_tasks(self.suite)
        if self.json:
            print(json.dumps([dataclasses.asdict(task) for task in rows], indent=1))
            return 0
        table = Table(
            "task", "suite", "agent steps", "repeat", "episode", "random", "paper's DR.Q", box=None, pad_edge=False
        )
        for task in rows:
            score = published_score(task.name)
            table.add_row(
                task.name,
                task.suite,
                f"{task.agent_steps:,}",
                str(task.action_repeat),
                str(task.episode_length),
                "" if task.random_score is None else f"{task.random_score:g}",
                f"{score.mean:g}" if score else "",
            )
        _Tables(120).print(table)
        return 0


@dataclasses.dataclass
class PublishedScores:
    """Print the paper's scores, of a task, of a suite or of all, with what is wrong in print."""

    what: _named(str, "[TASK|SUITE]") = "all"  # pyright: ignore
    """A task (dmc/cheetah-run), or gym, dmc-easy, dmc-hard, dmc, dmc-visual, hbench, hbench-hand, all."""
    algorithm: _optional(str, "NAME") = None  # pyright: ignore
    """One algorithm only."""
    json: bool = False
    """As JSON."""

    def run(self) -> int:
        """Print them."""
        name = canonical(self.what)
        tasks = [paper_tasks()[name]] if name in paper_tasks() else suite_tasks(self._suite())
        suites = list(dict.fromkeys(task.suite for task in tasks))
        columns = [name for name in algorithms() if any(name in algorithms(suite) for suite in suites)]
        if self.algorithm is not None:
            columns = [self._known_algorithm()]
        if self.json:
            print(json.dumps(self._records(tasks, columns), indent=1))
            return 0
        console = _Tables(250)
        if len(tasks) == 1:
            _print_cells(console, tasks[0].name, "algorithm", [(name, tasks[0], name) for name in columns])
        for suite in suites if len(tasks) > 1 else ():
            mine = [task for task in tasks if task.suite == suite]
            if len(columns) == 1:
                _print_cells(console, f"{suite}: {columns[0]}", "task", [(t.name, t, columns[0]) for t in mine])
            else:
                _print_means(console, suite, mine)
            _print_aggregates(console, suite, columns)
        notes = [(task.name, task.note) for task in tasks if task.note]
        notes += [(note.suite, note.what) for note in PRINT_NOTES if note.suite in ("all", *suites)]
        if notes:
            print("In print:")
            for where, what in notes:
                print(f"- {where}: {what}")
        return 0

    def _suite(self) -> str:
        if "/" in self.what:
            close = difflib.get_close_matches(self.what, paper_tasks(), n=1)
            hint = f"; did you mean '{close[0]}'?" if close else ""
            raise TaskError(f"the paper has no task '{self.what}'{hint} List: dr-q tasks")
        return self.what

    def _known_algorithm(self) -> str:
        for name in algorithms():
            if name.lower() == str(self.algorithm).lower():
                return name
        raise ConfigError(f"no scores of '{self.algorithm}' in the paper; it has {', '.join(algorithms())}")

    @staticmethod
    def _records(tasks: list[TaskInfo], columns: list[str]) -> list[dict[str, Any]]:
        found = []
        for task in tasks:
            for name in columns:
                score = published_score(task.name, name)
                if score is not None:
                    low, high = (None if math.isnan(x) else x for x in score[1:])
                    cell = {"task": task.name, "suite": task.suite, "algorithm": name, "mean": score.mean}
                    found.append({**cell, "low": low, "high": high, "normalised": task.normalise(score.mean)})
        return found


def _print_cells(console: Console, title: str, of: str, rows: list[tuple[str, TaskInfo, str]]) -> None:
    """Scores with their intervals, one to a line: (label, task, algorithm)."""
    table = Table(of, "mean", "95% interval", "normalised", box=None, pad_edge=False, title=title, title_justify="left")
    for label, task, algorithm in rows:
        score = published_score(task.name, algorithm)
        if score is not None:
            table.add_row(label, f"{score.mean:g}", _interval(score), f"{task.normalise(score.mean):.3f}")
    console.print(table if table.row_count else f"{title}: no score in print")
    console.print()


def _print_means(console: Console, suite: str, tasks: list[TaskInfo]) -> None:
    shown = algorithms(suite)
    table = Table("task", *shown, box=None, pad_edge=False, title=f"{suite}: means", title_justify="left")
    for task in tasks:
        scores = [published_score(task.name, name) for name in shown]
        table.add_row(task.name, *("" if score is None else f"{score.mean:g}" for score in scores))
    console.print(table)
    console.print()


def _print_aggregates(console: Console, suite: str, columns: list[str]) -> None:
    printed = {(a.algorithm, a.statistic): a for a in published_aggregates() if a.suite == suite}
    names = ("Mean", "Median", "IQM")
    title = f"{suite}: normalised, over all its tasks"
    table = Table("algorithm", *names, box=None, pad_edge=False, title=title, title_justify="left")
    for name in columns:
        cells = [printed.get((name, statistic)) for statistic in names]
        if any(cells):
            table.add_row(name, *("" if a is None else f"{a.value:g} {_interval(a)}" for a in cells))
    if table.row_count:
        console.print(table)
        console.print()


def _interval(printed: Any) -> str:
    return "" if math.isnan(printed.low) else f"[{printed.low:g}, {printed.high:g}]"


@dataclasses.dataclass
class Results:
    """Collect evaluations into one tidy CSV file: task, preset, seed, agent_steps, return, and what runs add."""

    sources: tyro.conf.Positional[list[Path]]
    """Runs, folders of runs, CSV files with those columns."""
    out: Path = Path("results.csv")
    """Where to write it."""

    def run(self) -> int:
        """Collect."""
        from dr_q.report import read_results, write_results
        from dr_q.report.results import labelled_runs, preset_of

        if not self.sources:
            raise ConfigError("nothing to collect; name runs, folders of runs, or CSV files of results")
        try:
            results = read_results(self.sources, changes_of)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if not results:
            raise ConfigError(f"no evaluation in {', '.join(map(str, self.sources))} yet; nothing was written")
        write_results(results, self.out)
        for run, label in labelled_runs(self.sources, changes_of):
            changed = changes_of(run.info)
            if changed and label == preset_of(run):
                print(f"dr-q: {run.folder} is listed as {label}, but changed {', '.join(changed)}", file=sys.stderr)
        seeds = {result[:3] for result in results}
        tasks, presets = {r.task for r in results}, {r.preset for r in results}
        print(
            f"{self.out}: {len(results)} evaluations, {len(tasks)} task{'s' if len(tasks) > 1 else ''}, "
            f"{len(presets)} preset{'s' if len(presets) > 1 else ''}, {len(seeds)} seed{'s' if len(seeds) > 1 else ''}"
        )
        return 0


@dataclasses.dataclass
class Compare:
    """Compare two sets of runs, task by task and over all, and say what can be concluded."""

    first: _named(str, "FIRST")  # pyright: ignore
    """A run, a folder of runs, or a CSV file of results; of several presets one: results.csv@dr.q"""
    second: _named(str, "SECOND")  # pyright: ignore
    """The same, to compare with: results.csv@mr.q"""
    at: _optional(int, "STEP") = None  # pyright: ignore
    """Agent steps at which to compare, or the last evaluation before. [the last that all seeds have]"""
    json: bool = False
    """As JSON."""

    def run(self) -> int:
        """Compare."""
        from dr_q.report import compare

        sides = [_results_of(source) for source in (self.first, self.second)]
        presets = [", ".join(sorted({result.preset for result in side})) for side in sides]
        for source, side in zip((self.first, self.second), sides, strict=True):
            if not side:
                raise ConfigError(f"no evaluation in {source} yet: there is nothing to compare")
        if sides[0] == sides[1]:
            raise ConfigError(f"{self.first} and {self.second} have the same results: there is nothing to compare")
        names = presets if presets[0] != presets[1] else _shorter(self.first, self.second)
        try:
            found = compare(sides[0], sides[1], (names[0], names[1]), self.at)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        except ImportError as error:
            raise ConfigError(f"a comparison needs {error.name}: pip install 'dr-q[report]'") from error
        tasks = [row.task for row in found.tasks]
        sentences = [*found.sentences(), *_other_differences((self.first, self.second), tasks)]
        if self.json:
            record = {**found._asdict(), "tasks": [{**t._asdict(), "verdict": t.verdict} for t in found.tasks]}
            record |= {"sentences": sentences}
            print(json.dumps(_without_nan(record), indent=1))
            return 0
        table = Table(
            "task",
            "agent steps",
            "seeds",
            *names,
            "difference",
            "95% interval",
            "p",
            "p, Holm",
            "P(better)",
            "",
            box=None,
            pad_edge=False,
        )
        for row in found.tasks:
            gap = row.difference
            table.add_row(
                row.task,
                f"{row.agent_steps:,}",
                f"{row.seeds[0]}, {row.seeds[1]}",
                *(_mean_and_deviation(*pair) for pair in zip(row.means, row.deviations, strict=True)),
                f"{gap.value:+.4g}",
                "" if math.isnan(gap.low) else f"[{gap.low:+.4g}, {gap.high:+.4g}]",
                *(_chance(p) for p in (row.p, row.p_holm)),
                "" if math.isnan(gap.low) else f"{row.improvement:.2f}",
                row.verdict,
            )
        _Tables(160).print(table)
        for sentence in sentences:
            print(sentence)
        return 0


def _chance(p: float) -> str:
    if math.isnan(p):
        return ""
    return f"{p:.3f}" if p >= 0.0005 else "<0.001"


def _mean_and_deviation(mean: float, deviation: float) -> str:
    return f"{mean:.4g}" if math.isnan(deviation) else f"{mean:.4g} +- {deviation:.4g}"


def _shorter(first: str, second: str) -> list[str]:
    """Two sources by their last names, where these differ."""
    last = [Path(source).name for source in (first, second)]
    return last if last[0] != last[1] else [first, second]


def _other_differences(sources: tuple[str, str], tasks: Collection[str]) -> list[str]:
    """In what else the runs of two sources differ on these tasks; results from files do not say."""
    from dr_q.report.results import labelled_runs

    found: list[dict[str, set[str]]] = []
    for path, _, chosen in (source.partition("@") for source in sources):
        if not Path(path).is_dir():
            return []
        values: dict[str, set[str]] = {}
        for run, label in labelled_runs([Path(path)], changes_of):
            settings, versions = run.info["settings"], run.info.get("versions", {})
            if chosen not in ("", label) or settings["task"] not in tasks:
                continue
            record = {**settings.get("config", {}), "noise_dims": settings.get("noise_dims", 0)}
            for name, value in {**record, "program": versions.get("source", "not recorded")}.items():
                values.setdefault(name, set()).add(str(value))
        found.append(values)
    names = dict.fromkeys(name for values in found for name in values)
    sides = {name: [" or ".join(sorted(values.get(name, {"none"}))) for values in found] for name in names}
    parts = [f"{name} {' against '.join(pair)}" for name, pair in sides.items() if pair[0] != pair[1]]
    return [f"The two differ in: {'; '.join(parts)}."] if parts else []


def _without_nan(value: Any) -> Any:
    """JSON has no such number: null."""
    if isinstance(value, dict):
        return {name: _without_nan(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _results_of(source: str) -> list[Any]:
    """The results of one preset."""
    from dr_q.report import read_results

    path, _, preset = source.partition("@")
    try:
        results = read_results([path], changes_of)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    presets = sorted({result.preset for result in results})
    if preset and preset not in presets:
        raise ConfigError(f"{path} has no results of preset '{preset}'; it has {', '.join(presets) or 'none'}")
    if not preset and len(presets) > 1:
        raise ConfigError(f"{path} has several presets; choose one: {', '.join(f'{path}@{name}' for name in presets)}")
    return [result for result in results if not preset or result.preset == preset]


@dataclasses.dataclass
class Report:
    """Write a page of results beside the paper's, and the same as PNG, CSV and LaTeX."""

    sources: tyro.conf.Positional[list[Path]]
    """Runs, folders of runs, CSV files of results (dr-q results)."""
    out: Path = Path("report")
    """Its folder: new, empty, or an earlier report's, which is replaced."""
    base: _optional(str, "PRESET") = None  # pyright: ignore
    """The preset that the others are compared with. [dr.q, or the first]"""

    def run(self) -> int:
        """Write."""
        from dr_q.report import build_report, check_report_folder, read_results, write_report
        from dr_q.report.results import labelled_runs

        def say(line: str) -> None:
            print(f"report: {line}", file=sys.stderr, flush=True)

        if not self.sources:
            raise ConfigError("nothing to report on; name runs, folders of runs, or CSV files of results")
        try:
            check_report_folder(self.out)
            results = read_results(self.sources, changes_of)
            runs = labelled_runs(self.sources, changes_of)
            report = build_report(results, runs, _preset_settings, say, self.base)
            page = write_report(report, results, self.out, say)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        except ImportError as error:
            raise ConfigError(f"a report needs {error.name}: pip install 'dr-q[report]'") from error
        print(page)
        return 0


def _preset_settings(settings: dict[str, Any]) -> dict[str, Any] | None:
    """What a run's settings would be by its preset alone; None for a preset that this version does not have."""
    if settings["preset"] not in PRESETS:
        return None
    known = paper_tasks().get(settings["task"])
    steps = known.agent_steps if known else settings.get("steps")
    usual = {"steps": steps, "eval_every": EVAL_EVERY, "eval_episodes": EVAL_EPISODES, "noise_dims": 0}
    return {**dataclasses.asdict(preset(settings["preset"])), **usual}


@dataclasses.dataclass
class Presets:
    """List the presets and what each changes from DR.Q."""

    def run(self) -> int:
        """Print the table."""
        base = Config()
        table = Table("preset", "setting", "value", "dr.q", box=None, pad_edge=False)
        for name, changes in PRESETS.items():
            if not changes:
                table.add_row(name, "(none)", "", "")
            for i, (setting, value) in enumerate(changes.items()):
                table.add_row(name if i == 0 else "", setting, str(value), str(getattr(base, setting)))
        _Tables(120).print(table)
        return 0


@dataclasses.dataclass
class Doctor:
    """Say what works on this machine, what does not and how to mend it; with a task, what memory a run needs."""

    task: tyro.conf.Positional[_optional(str, "TASK")] = None  # pyright: ignore
    """A task: how much memory a run of it takes."""
    seeds: int = 1
    """Seeds of that run."""
    preset: str = "dr.q"
    """Its preset."""
    steps: _optional(int, "N") = None  # pyright: ignore
    """Its agent steps. [the paper's budget]"""

    def run(self) -> int:
        """Examine."""
        from dr_q.run.doctor import examine, memory_plan

        for finding in examine():
            mark = "ok  " if finding.ok else "--  "
            fix = "" if finding.ok else f"  ->  {finding.fix}"
            print(f"{mark}{finding.what}: {finding.found}{fix}", flush=True)
        if self.task is not None:
            print(f"{self.task}, {self.seeds} seed{'s' if self.seeds > 1 else ''}, {self.preset}:")
            for line in memory_plan(self.task, self.seeds, self.preset, self.steps):
                print(line)
        return 0


@dataclasses.dataclass
class Bench:
    """Measure this machine's throughput by part, as a table to paste into an issue."""

    task: _named(str, "[TASK]") = "dmc/cheetah-run"  # pyright: ignore
    """Any task that `dr-q train` takes."""
    seeds: int = 1
    """Seeds trained at once."""
    steps: int = 1_000
    """Agent steps to time, after exploration."""
    preset: str = "dr.q"
    """Whose networks and batch."""
    replay_capacity: _optional(int, "N") = None  # pyright: ignore
    """Slots of the replay. [the preset's, or what the paper's budget fills]"""
    with_evaluation: bool = False
    """Also time 5,000 steps with one evaluation, the paper's schedule."""
    in_process: _optional(bool, "{True,False}") = None  # pyright: ignore
    """Simulate in this process. [yes with one seed, else a process for each]"""
    json: _optional(Path, "FILE") = None  # pyright: ignore
    """Where to write the figures too."""

    def run(self) -> int:
        """Measure."""
        from dr_q.run.bench import bench
        from dr_q.run.settings import make_settings

        if self.steps < 1:
            raise ConfigError(f"steps must be at least 1, got {self.steps}")
        if self.json is not None:
            self.json.parent.mkdir(parents=True, exist_ok=True)  # before minutes of measuring
        changes = {} if self.replay_capacity is None else {"replay_capacity": self.replay_capacity}
        settings = make_settings(self.task, preset_name=self.preset, seeds=self.seeds, changes=changes)
        if self.replay_capacity is not None:
            settings = dataclasses.replace(settings, steps=max(settings.steps, self.replay_capacity))
        figures = bench(
            settings,
            self.steps,
            in_process=self.in_process,
            with_evaluation=self.with_evaluation,
            say=lambda line: print(line, file=sys.stderr, flush=True),
        )
        print(figures.markdown())
        if self.json is not None:
            self.json.write_text(json.dumps(dataclasses.asdict(figures), indent=1) + "\n")
        return 0


@dataclasses.dataclass
class Version:
    """Print the version."""

    def run(self) -> int:
        """Print it."""
        print(dr_q.__version__)
        return 0


_COMMANDS = {
    "train": Train,
    "sweep": Sweep,
    "eval": Eval,
    "video": Video,
    "export": Export,
    "plot": Plot,
    "analyse": Analyse,
    "experiment": Experiment,
    "tasks": Tasks,
    "published": PublishedScores,
    "results": Results,
    "compare": Compare,
    "report": Report,
    "presets": Presets,
    "doctor": Doctor,
    "bench": Bench,
    "version": Version,
}


class _Tables(Console):
    """Prints tables, so wide where no terminal says how wide."""

    def __init__(self, width: int):
        super().__init__(width=None if sys.stdout.isatty() else width)

    def on_broken_pipe(self) -> None:
        """Left to `main`: rich's own way is exit code 1."""
        raise BrokenPipeError


def main(arguments: list[str] | None = None) -> int:
    """Run one command; bad input gives one line and exit code 2, signals and closed pipes no traceback."""
    with contextlib.suppress(OSError):  # the folder has been removed
        here = str(Path.cwd())
        if here not in sys.path and "" not in sys.path:
            sys.path.append(here)  # a console script has not got it, and module:Id is often a file right here
    try:
        try:
            return _run_command(sys.argv[1:] if arguments is None else arguments)
        finally:
            if sys.stdout is not None:  # closed: dr-q ... >&-
                sys.stdout.flush()
    except KeyboardInterrupt:
        print("dr-q: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        if sys.stdout is None or not _reader_left():
            raise
        return CLOSED_PIPE


def _reader_left() -> bool:
    """Whether nobody reads the standard output any more (`dr-q ... | head`); it is silent from then on."""
    out = sys.stdout.fileno()
    watch = select.poll()
    watch.register(out, 0)
    if not watch.poll(0):  # errors are always reported
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), out)
    return True


def _parse(arguments: list[str]) -> Any:
    return tyro.extras.subcommand_cli_from_dict(
        _COMMANDS,  # pyright: ignore[reportArgumentType]
        prog="dr-q",
        description="DR.Q: debiased model-based representations for continuous control.",
        args=arguments,
        config=(tyro.conf.HelptextFromCommentsOff,),
    )


def _run_command(arguments: list[str]) -> int:
    from dr_q.run.errors import TrainingError

    if arguments == ["--version"]:
        arguments = ["version"]
    try:
        return parsed(lambda: _parse(arguments), arguments, tuple(_COMMANDS)).run()
    except (ConfigError, TaskError) as error:
        print(f"dr-q: {error}", file=sys.stderr)
        return USAGE_ERROR
    except (TrainingError, WorkerError, EnvError) as error:
        print(f"dr-q: {error}", file=sys.stderr)
        return FAILURE
    except BrokenPipeError:
        raise
    except OSError as error:
        place = "a file" if error.filename is None else error.filename  # writing itself does not say which it was
        print(f"dr-q: cannot use {place}: {error.strerror or error}", file=sys.stderr)
        return USAGE_ERROR if error.errno in _CANNOT_BE_THERE else FAILURE


__all__ = ["SUITES", "main"]
