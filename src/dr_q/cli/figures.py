"""Commands that draw runs: plot, analyse."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, Literal

from dr_q.cli.options import argument, option
from dr_q.cli.output import say, say_what_is_left_out
from dr_q.cli.parse import Group
from dr_q.config import MOST_STEPS
from dr_q.kit import ConfigError, check_can_write
from dr_q.settings import LARGEST_SEED


@dataclasses.dataclass(kw_only=True)
class Plot:
    """Draw learning curves, or another metric of runs, with 95% intervals over seeds."""

    extra: ClassVar = "plot"
    sources: tuple[Path, ...] = argument(
        (),
        "runs, folders of runs, CSV files of results (dr-q results), to draw together; a panel for each task",
        metavar="RUN|FOLDER|FILE...",
    )
    reference: tuple[Path, ...] = option(
        (),
        "curves of others to draw with them: CSV files of dr-q results, or results/drq.csv of the authors' repository",
        metavar="FILE...",
    )
    metric: str = option(
        "return", "what to draw: a column of metrics.csv, such as q_mean, or success, the share of successful episodes"
    )
    out: Path = option(Path("curves.png"), "the file to write", metavar="FILE")

    def run(self) -> int:
        """Draw."""
        from dr_q.report import plot_curves, read_references
        from dr_q.report.curves import RETURN, with_metric
        from dr_q.report.reference import reference_records
        from dr_q.report.results import read_records
        from dr_q.run_folder import find_runs, read_run

        if not self.out.suffix:
            raise ConfigError(f"{self.out} does not say what kind of image to write; name it {self.out}.png")
        if not self.sources:
            raise ConfigError("nothing to draw; name runs, folders of runs, or CSV files of results")
        check_can_write(self.out)
        folders = {run.resolve(): run for path in self.sources if not path.is_file() for run in find_runs(path)}
        files = {path.resolve(): path for path in self.sources if path.is_file()}
        records = [record for path in files.values() for record in read_records(path)]
        say_what_is_left_out(self.sources)
        runs = list(map(read_run, folders.values()))
        if self.metric == RETURN:
            runs += records
            runs += reference_records(read_references(self.reference), runs)
        else:
            if files or self.reference:
                given = next(iter(files.values()), None) or self.reference[0]
                raise ConfigError(
                    f"{given} has only returns, and --metric {self.metric} needs folders of runs; leave it out"
                )
            runs = with_metric(runs, self.metric)
        plot_curves(runs, self.out, self.metric)
        print(self.out)
        return 0


@dataclasses.dataclass(kw_only=True)
class _Analysis:
    """An analysis of runs, from their checkpoints."""

    extra: ClassVar = "report"
    run_folders: tuple[Path, ...] = argument(
        (), "runs with checkpoints; train with --keep-checkpoints N to have more than two", metavar="RUN..."
    )


@dataclasses.dataclass(kw_only=True)
class Tsne(_Analysis):
    """Draw z_sa of replay samples in two dimensions by t-SNE, runs side by side (App. E.3)."""

    out: Path = option(Path("tsne.png"), "the figure; its points are written next to it as CSV", metavar="FILE")
    samples: int = option(5_000, "transitions of each run, drawn uniformly from its replay", least=4, most=1_000_000)
    colour: Literal["value", "reward", "age"] = option(
        "value", "what colours show: the critics' value, the reward, or the age"
    )
    seed: int | None = option(
        None, "which seed", metavar="SEED", least=0, most=LARGEST_SEED, otherwise="each run's first"
    )
    at: int | None = option(None, "which checkpoint", metavar="STEP", least=0, most=MOST_STEPS, otherwise="the last")

    def run(self) -> int:
        """Compute and draw."""
        from dr_q.diagnostics import analyse
        from dr_q.report.analyses import draw_embeddings, write_embeddings

        runs = _saved_runs(self.run_folders, self.out)
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


@dataclasses.dataclass(kw_only=True)
class PrioritiesByAge(_Analysis):
    """Draw |TD error| x fade weight against age, and the sampling probability by age (App. E.4)."""

    out: Path = option(
        Path("priorities.png"), "the figure; its numbers by age are written next to it as CSV", metavar="FILE"
    )
    newest: int = option(100_000, "how many of the newest transitions", least=10, most=MOST_STEPS)
    seed: int | None = option(
        None, "which seed", metavar="SEED", least=0, most=LARGEST_SEED, otherwise="each run's first"
    )
    at: int | None = option(None, "which checkpoint", metavar="STEP", least=0, most=MOST_STEPS, otherwise="the last")

    def run(self) -> int:
        """Compute and draw."""
        from dr_q.diagnostics import analyse
        from dr_q.report.analyses import draw_priorities, write_priorities

        runs = _saved_runs(self.run_folders, self.out)
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


@dataclasses.dataclass(kw_only=True)
class InformationByStep(_Analysis):
    """Draw the InfoNCE bound log N - loss, the latent MSE and the reward error on held-out replay, per checkpoint."""

    out: Path = option(Path("information.png"), "the figure; its numbers are written next to it as CSV", metavar="FILE")

    def run(self) -> int:
        """Compute and draw."""
        from dr_q.diagnostics import analyse
        from dr_q.report.analyses import draw_information, write_information

        runs = _saved_runs(self.run_folders, self.out)
        found = analyse.information(runs, say)
        draw_information(found, self.out, analyse.information_note(found))
        write_information(found, self.out.with_suffix(".csv"))
        for run in found:
            print(run.sentence())
        print(self.out)
        return 0


ANALYSE = Group(
    "The paper's analyses of trained runs, from their checkpoints.",
    {"tsne": Tsne, "priorities": PrioritiesByAge, "information": InformationByStep},
)


def _saved_runs(folders: tuple[Path, ...], out: Path) -> list[Any]:
    from dr_q.diagnostics.analyse import open_run

    if not folders:
        raise ConfigError("no run given; name one or more folders of dr-q train")
    _check_png(out)
    check_can_write(out)
    return [open_run(folder) for folder in folders]


def _check_png(out: Path) -> None:
    if out.suffix != ".png":
        raise ConfigError(f"--out {out} is not a PNG file's name; end it in .png")
