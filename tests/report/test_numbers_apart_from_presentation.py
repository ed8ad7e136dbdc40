"""Numbers are formatted once, at the end: no code of the report reads a value back from a table's cells."""

import ast
from pathlib import Path

import pytest

import dr_q.report
import dr_q.sweep

REPORT = Path(dr_q.report.__file__).parent
FILES = sorted(REPORT.rglob("*.py"))
WRITE_CELLS = {"table_files.py", "html.py"}
"""They turn a table's cells into CSV, LaTeX and JSON, and nothing else into numbers."""
PRESENTATION = {"tables.py", "wording.py", "series.py", "figures.py", "canvas.py", "style.py", "write.py", *WRITE_CELLS}
NUMBERS = {
    "statistics.py",
    "verdicts.py",
    "compare.py",
    "model.py",
    "results.py",
    "claims.py",
    "reference.py",
    "grids.py",
}


def modules(path: Path) -> set[str]:
    """The files of the report that a file imports."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {f"{name.removeprefix('dr_q.report.')}.py" for name in names}


@pytest.mark.parametrize(
    "line", ["from dr_q.report.tables import Row", "from dr_q.report import tables", "import dr_q.report.tables"]
)
def test_an_import_is_found_however_it_is_written(line, tmp_path):
    (tmp_path / "file.py").write_text(line)
    assert "tables.py" in modules(tmp_path / "file.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_only_the_writers_of_files_touch_cells(path):
    nodes = list(ast.walk(ast.parse(path.read_text())))
    cells = [node.lineno for node in nodes if isinstance(node, ast.Attribute) and node.attr == "cells"]
    cells += [node.lineno for node in nodes if isinstance(node, ast.Constant) and node.value == "cells"]
    assert not cells or path.name in WRITE_CELLS, f"{path.name} reads cells in lines {cells}; take the model's numbers"


def test_numbers_know_nothing_of_their_presentation():
    for name in sorted(NUMBERS):
        assert not modules(REPORT / name) & PRESENTATION, name


def test_figures_are_drawn_from_numbers_and_not_from_tables():
    assert not modules(REPORT / "figures.py") & {"tables.py", "table_files.py", "html.py"}


@pytest.mark.parametrize("path", sorted((REPORT / "page" / "js").iterdir()), ids=lambda path: path.name)
def test_the_pages_charts_take_numbers_and_no_cells(path):
    assert "cells" not in path.read_text() or path.name == "tables.js", "take the model's numbers from `data`"


def test_verdicts_are_given_in_one_place():
    """Elsewhere they are only put into words: no other code holds the ends of an interval against anything."""
    for path in (*FILES, *Path(dr_q.sweep.__file__).parent.rglob("*.py")):
        compared = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Compare)]
        ends = [
            node.lineno
            for outer in compared
            for node in ast.walk(outer)
            if isinstance(node, ast.Attribute) and node.attr in ("low", "high")
        ]
        assert not ends or path.name in ("verdicts.py", "statistics.py"), f"{path.name} judges an interval in {ends}"
