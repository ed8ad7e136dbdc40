"""A report's folder, and the files of an experiment's claims."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from dr_q.kit import RunFolderError, check_can_make, output_csv, spelled, write_text
from dr_q.report.claims import Judgement, preset_curve
from dr_q.report.figures import FIGURES, curve_grids, grid_figures, reference_figures
from dr_q.report.html import GENERATOR, page
from dr_q.report.model import OTHER, Report, known_suites
from dr_q.report.results import Result, write_results
from dr_q.report.table_files import csv_text, curves_csv, latex_main, latex_pages, latex_text, profiles_csv
from dr_q.report.tables import TABLES, tables_of

_HEAD = 2_000
"""Characters at the beginning of a page among which its generator is named."""


def check_report_folder(out: Path) -> None:
    """Refuse a folder that holds something else (RunFolderError), or cannot be made (OSError)."""
    if out.is_file():
        raise RunFolderError(f"{out} is a file; choose another {spelled('out')}")
    check_can_make(out)
    if not out.exists():
        return
    index = out / "index.html"
    ours = index.is_file() and GENERATOR in index.read_text(errors="replace")[:_HEAD]
    if not ours and any(out.iterdir()):
        raise RunFolderError(
            f"{out} holds other files and no report; choose another {spelled('out')}, a new or empty folder"
        )


def write_report(
    report: Report, results: list[Result], out: Path, say: Callable[[str], None] = lambda line: None
) -> Path:
    """Write a report: the page `index.html`, `results.csv`, `figures/*.png`, `tables/*.csv` and `tables/*.tex`.

    An earlier report in the folder is replaced; other files in it stay. It needs matplotlib
    (`pip install 'dr-q[report]'`).

    Args:
        report: What `build_report` returned.
        results: The results that the report is made from.
        out: The folder: new, empty, or with an earlier report.
        say: A function that is called with a line for each part that is written.

    Returns:
        The page.

    Raises:
        RunFolderError: The folder has other files and no report, or is a file.

    Example:
        ```python
        results = dr_q.report.read_results(["runs"])
        report = dr_q.report.build_report(results, dr_q.report.labelled_runs([Path("runs")]))
        page = dr_q.report.write_report(report, results, Path("report"))
        ```
    """
    check_report_folder(out)
    for folder in (out, out / "tables", out / "figures"):
        folder.mkdir(parents=True, exist_ok=True)
    for path in _files(out):
        path.unlink(missing_ok=True)
    say("page")
    write_text(out / "index.html", page(report))
    write_results(results, out / "results.csv")
    say("tables")
    tables = tables_of(report)
    for table in tables:
        write_text(out / "tables" / f"{table.name}.csv", csv_text(table))
        text = "\n".join(latex_text(part) for part in latex_pages(table))
        write_text(out / "tables" / f"{table.name}.tex", text)
    write_text(out / "tables" / "curves.csv", curves_csv(report))
    write_text(out / "tables" / "profiles.csv", profiles_csv(report))
    write_text(out / "tables" / "tables.tex", latex_main(table.name for table in tables))
    for name, draw in FIGURES.items():
        path = out / "figures" / f"{name}.png"
        draw(report, path)
        say(f"figure: {name}" + ("" if path.exists() else " (nothing to draw)"))
    for suite in curve_grids(report, out / "figures"):
        say(f"figure: curves of {suite}")
    for name in grid_figures(report, out / "figures"):
        say(f"figure: settings of {name}")
    for name in reference_figures(report, out / "figures"):
        say(f"figure: compared with {name}")
    return out / "index.html"


def _files(out: Path) -> list[Path]:
    """Everything that a report can write: what an earlier one left is not to be taken for this one's."""
    suites = (*known_suites(), OTHER)
    tables = [*(f"scores-{suite}" for suite in suites), *TABLES]
    return [
        *(out / "tables" / f"{name}.{kind}" for name in tables for kind in ("csv", "tex")),
        *(out / "tables" / name for name in ("curves.csv", "profiles.csv", "tables.tex")),
        *(out / "figures" / f"{name}.png" for name in (*FIGURES, *(f"curves-{suite}" for suite in suites))),
        *(path for name in ("reference", "grid") for path in (out / "figures").glob(f"{name}-[0-9]*.png")),
    ]


def write_curves(results: Sequence[Result], presets: Sequence[str], path: Path) -> None:
    """Every point of the figure of claims."""
    with output_csv(path) as writer:
        writer.writerow(["task", "preset", "agent_steps", "seeds", "mean", "low", "high"])
        for task in dict.fromkeys(result.task for result in results):
            for preset in presets:
                found = preset_curve(results, task, preset)
                for step, value in zip(found.steps, found.values, strict=True):
                    writer.writerow([task, preset, step, found.seeds, *(f"{x:.6g}" for x in value)])


def write_verdicts(judged: Iterable[Judgement], path: Path) -> None:
    """Every verdict on a claim, with the difference behind it."""
    with output_csv(path) as writer:
        writer.writerow(["task", "statement", "verdict", "why", "agent_steps", "difference", "low", "high"])
        for j in judged:
            writer.writerow([*j[:5], *(f"{x:.6g}" for x in j.difference)])
