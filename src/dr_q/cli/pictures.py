"""Commands that draw runs: plot, analyse."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from dr_q.agent import ConfigError
from dr_q.cli.options import at_least, optional, say, say_what_is_left_out


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
            say_what_is_left_out(self.sources)
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
    seed: optional(int, "SEED") = None  # pyright: ignore
    """Which seed. [each run's first]"""
    at: optional(int, "STEP") = None  # pyright: ignore
    """Which checkpoint. [the last]"""

    def run(self) -> int:
        """Compute and draw."""
        from dr_q.report.analyses import draw_embeddings, write_embeddings
        from dr_q.run import analyse

        runs = _saved_runs(self.run_folders, self.out)
        at_least("samples", self.samples, 4)
        found = []
        for run in runs:
            say(f"t-SNE of {run.folder}")
            found.append(analyse.embed(run, samples=self.samples, colour=self.colour, seed=self.seed, at=self.at))
            count = len(found[-1].points)
            if count < self.samples:
                say(f"{run.folder} has {count:,} transitions to draw, not {self.samples:,}: all are used")
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
    seed: optional(int, "SEED") = None  # pyright: ignore
    """Which seed. [each run's first]"""
    at: optional(int, "STEP") = None  # pyright: ignore
    """Which checkpoint. [the last]"""

    def run(self) -> int:
        """Compute and draw."""
        from dr_q.report.analyses import draw_priorities, write_priorities
        from dr_q.run import analyse

        runs = _saved_runs(self.run_folders, self.out)
        at_least("newest", self.newest, 10)
        found = []
        for run in runs:
            say(f"TD errors of {run.folder}")
            found.append(analyse.priorities(run, newest=self.newest, seed=self.seed, at=self.at))
            oldest = found[-1].buckets[-1].last + 1
            if oldest < self.newest:
                say(f"{run.folder} has {oldest:,} transitions, not {self.newest:,}: all are used")
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
        found = analyse.information(runs, say)
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
