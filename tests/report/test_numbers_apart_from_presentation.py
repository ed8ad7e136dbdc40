"""Numbers are formatted once, at the end: no code of the report reads a value back from a table's cells."""

import ast
from pathlib import Path

import pytest

import dr_q.report

REPORT = Path(dr_q.report.__file__).parent
FILES = sorted(REPORT.rglob("*.py"))
WRITE_CELLS = {"table_files.py", "html.py"}
"""They turn a table's cells into CSV, LaTeX and JSON, and nothing else into numbers."""
PRESENTATION = {"tables.py", "wording.py", "series.py", "figures.py", "write.py", *WRITE_CELLS}
NUMBERS = {"statistics.py", "verdicts.py", "compare.py", "model.py", "results.py", "claims.py"}


def modules(path: Path) -> set[str]:
    """The files of the report that a file imports."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    return {f"{(node.module or '').removeprefix('dr_q.report.')}.py" for node in nodes}


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
