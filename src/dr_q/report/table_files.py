"""Tables as files write them: CSV, LaTeX, Markdown."""

import csv
import io
import math
from collections.abc import Iterable, Sequence

from dr_q.paper import Published
from dr_q.report.model import Report
from dr_q.report.numbers import number, significant
from dr_q.report.statistics import Estimate
from dr_q.report.tables import Cell, Column, Row, Table
from dr_q.report.verdicts import PublishedVerdict
from dr_q.report.wording import span

WIDE = 7
"""Columns from which on a LaTeX table is scaled to the page, if it is wider."""
STACKED = 5
"""Columns with intervals from which on they stand under their values."""
ROWS_OF_A_PAGE = 40
_LETTERS = "äöüßéèáàíóúñç"
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def csv_text(table: Table) -> str:
    """The table with a column for each value and each end of an interval; the footer's rows are marked."""
    header, wide = [], [_has_interval(table, i) for i in range(len(table.columns))]
    for column, interval in zip(table.columns, wide, strict=True):
        name = f"{column.group} {column.label}".strip()
        header += [name, f"{name} low", f"{name} high"] if interval else [name]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for row in (*table.rows, *table.footer):
        values: list[str | int | float | None] = []
        for cell, interval in zip(row.cells, wide, strict=True):
            values += _csv_cell(cell, interval)
        writer.writerow(["" if value is None else value for value in values])
    return out.getvalue()


def curves_csv(report: Report) -> str:
    """Every point of every learning curve."""
    rows = (
        [curve.task, curve.preset, step, curve.seeds, *map(significant, value)]
        for curve in (*report.curves, *report.reference_curves)
        for step, value in zip(curve.steps, curve.values, strict=True)
    )
    return _rows_csv(["task", "preset", "agent_steps", "seeds", "mean", "low", "high"], rows)


def profiles_csv(report: Report) -> str:
    """Every point of every performance profile."""
    rows = (
        [found.suite, found.preset, found.tasks, span(found.seeds), significant(threshold), *map(significant, share)]
        for found in report.profiles
        for threshold, share in zip(found.thresholds, found.shares, strict=True)
    )
    return _rows_csv(["suite", "preset", "tasks", "seeds", "normalised score", "share", "low", "high"], rows)


def latex_text(table: Table) -> str:
    """A table environment with booktabs' rules."""
    lines = [r"\begin{table}[p]", r"\centering", rf"\caption{{{escape(table.title)}}}", r"\footnotesize"]
    scaled = len(table.columns) >= WIDE
    if scaled:
        lines.append(r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%")
    stacked = sum(_has_interval(table, i) for i in range(len(table.columns))) >= STACKED
    left = ["l" if column.kind in ("text", "verdict") else "r" for column in table.columns]
    lines += [rf"\begin{{tabular}}{{@{{}}{''.join(left)}@{{}}}}", r"\toprule"]
    if any(column.group for column in table.columns):
        lines += _group_header(table.columns)
    lines.append(_latex_row(escape(column.label) for column in table.columns))
    lines.append(r"\midrule")
    lines += [_latex_row(_latex_cells(table.columns, row, stacked)) for row in table.rows]
    if table.footer:
        lines.append(r"\midrule")
        kinds = [column if column.kind == "text" else column._replace(kind="unit") for column in table.columns]
        lines += [_latex_row(_latex_cells(kinds, row, stacked)) for row in table.footer]
    lines += [r"\bottomrule", r"\end{tabular}" + ("}" if scaled else "")]
    if not table.rows:
        lines.append(rf"\par {escape(table.missing)}")
    lines += [
        rf"\par\smallskip\begin{{minipage}}{{\linewidth}}\scriptsize {escape(note)}\end{{minipage}}"
        for note in table.notes
    ]
    return "\n".join([*lines, r"\end{table}", ""])


def latex_pages(table: Table) -> list[Table]:
    """Tables no longer than a page."""
    if len(table.rows) <= ROWS_OF_A_PAGE:
        return [table]
    starts = range(0, len(table.rows), ROWS_OF_A_PAGE)
    return [
        table._replace(
            title=table.title + f" ({i + 1} of {len(starts)})",
            rows=table.rows[start : start + ROWS_OF_A_PAGE],
            footer=table.footer if i == len(starts) - 1 else [],
            notes=table.notes if i == len(starts) - 1 else [],
        )
        for i, start in enumerate(starts)
    ]


def latex_main(names: Iterable[str]) -> str:
    """A document with all tables."""
    lines = [
        "% All tables of the report: pdflatex tables.tex",
        r"\documentclass[a4paper]{article}",
        r"\usepackage[utf8]{inputenc}",
        r"\usepackage[landscape,margin=15mm]{geometry}",
        r"\usepackage{booktabs,graphicx,textcomp}",
        r"\begin{document}",
        *(rf"\input{{{name}}}" + "\n" + r"\clearpage" for name in names),
        r"\end{document}",
    ]
    return "\n".join(lines) + "\n"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown; cells are written as they are."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def markdown_text(table: Table, leave_out: Sequence[str] = ()) -> str:
    """A table in Markdown, without some columns; tasks, runs and commands are set as code."""
    kept = [i for i, column in enumerate(table.columns) if column.label not in leave_out]
    rows = [[_markdown_cell(table.columns[i], row.cells[i]) for i in kept] for row in table.rows]
    return markdown_table([table.columns[i].label for i in kept], rows)


def _markdown_cell(column: Column, cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, PublishedVerdict):
        return cell.what
    if isinstance(cell, Estimate | Published):
        value, low, high = (number(x, column.kind) for x in cell)
        return value if math.isnan(cell[1]) else f"{value} [{low}, {high}]"
    text = cell if isinstance(cell, str) else number(cell, column.kind)
    return f"`{text}`" if column.label in ("task", "run", "command", "source") else text.replace("|", r"\|")


def escape(text: str) -> str:
    """Text for LaTeX; what its fonts have no letter for becomes a question mark."""
    plain = ("?" if sign not in _LETTERS and not (sign.isascii() and sign.isprintable()) else sign for sign in text)
    return "".join(_LATEX.get(sign, sign) for sign in plain)


def _has_interval(table: Table, index: int) -> bool:
    return any(isinstance(row.cells[index], Estimate | Published) for row in (*table.rows, *table.footer))


def _csv_cell(cell: Cell, interval: bool) -> list[str | int | float | None]:
    if isinstance(cell, Estimate | Published):
        return [significant(x) for x in cell]
    value = cell.what if isinstance(cell, PublishedVerdict) else significant(cell) if isinstance(cell, float) else cell
    return [value, None, None] if interval else [value]


def _rows_csv(header: list[str], rows: Iterable[list]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if value is None else value for value in row] for row in rows)
    return out.getvalue()


def _group_header(columns: list[Column]) -> list[str]:
    spans: list[list] = []
    for column in columns:
        if spans and spans[-1][0] == column.group:
            spans[-1][1] += 1
        else:
            spans.append([column.group, 1])
    names = {"ours": "this report", "paper": "published"}
    cells, rules, at = [], [], 1
    for group, width in spans:
        cells.append(rf"\multicolumn{{{width}}}{{c}}{{{names.get(group, '')}}}")
        if group:
            rules.append(rf"\cmidrule(lr){{{at}-{at + width - 1}}}")
        at += width
    return [_latex_row(cells), "".join(rules)]


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cells(columns: list[Column], row: Row, stacked: bool) -> list[str]:
    return [_latex_cell(column, cell, stacked) for column, cell in zip(columns, row.cells, strict=True)]


def _latex_cell(column: Column, cell: Cell, stacked: bool) -> str:
    if cell is None:
        return ""
    if isinstance(cell, PublishedVerdict):
        return escape(cell.what)
    if isinstance(cell, Estimate | Published):
        # Published scores are repeated digit by digit.
        as_printed = isinstance(cell, Published) and column.kind == "score"
        shown = [(f"{x:g}" if as_printed else number(x, column.kind)).replace("-", "$-$") for x in cell]
        if math.isnan(cell[1]):
            return shown[0]
        interval = rf"\scriptsize[{shown[1]}, {shown[2]}]"
        below = rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{shown[0]}\\[-2pt]{interval}\end{{tabular}}"
        return below if stacked else f"{shown[0]} {{{interval}}}"
    return escape(cell if isinstance(cell, str) else number(cell, column.kind))


__all__ = [
    "csv_text",
    "curves_csv",
    "escape",
    "latex_main",
    "latex_pages",
    "latex_text",
    "markdown_table",
    "markdown_text",
    "profiles_csv",
]
