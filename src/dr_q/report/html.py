"""A report as one page: template, style, script and data in one file that opens from disk.

The page draws its charts itself, in SVG: a charting library would weigh more than a report of all tasks, and would not
follow the page's colours, its keyboard or its print.
"""

import base64
import hashlib
import importlib.resources
import json
from typing import Any

from dr_q import __version__
from dr_q.paper import Published
from dr_q.report.model import STATISTICS, Report, suite_of
from dr_q.report.numbers import count, significant
from dr_q.report.series import ours, paper, series_of
from dr_q.report.statistics import FEWEST_SEEDS, REPETITIONS, Estimate
from dr_q.report.tables import Cell, Row, Table, tables_of
from dr_q.report.verdicts import PUBLISHED_SEEDS, SIGNIFICANT, PublishedVerdict
from dr_q.report.wording import (
    aggregate_source,
    compared_over,
    facts,
    findings,
    grid_charts,
    grid_note,
    reference_title,
    setting_text,
    suite_label,
    suite_title,
    warnings,
    why,
)

GENERATOR = '<meta name="generator" content="dr-q report">'
"""By which a folder is known to hold a report."""
SCRIPT = (
    "data.js",
    "elements.js",
    "numbers.js",
    "state.js",
    "tooltip.js",
    "charts.js",
    "plots.js",
    "tables.js",
    "sections.js",
    "filters.js",
    "window.js",
    "main.js",
)
"""The parts of the page's script in page/js, in the order in which they run."""


def page(report: Report) -> str:
    """The whole page."""
    folder = importlib.resources.files("dr_q.report") / "page"
    template, style = ((folder / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css"))
    script = _script()
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    # The data goes in last: nothing that it holds is taken for a place of the template.
    for place, text in (
        ("{{generator}}", GENERATOR),
        ("{{policy}}", policy),
        ("{{style}}", style),
        ("{{script}}", script),
        ("{{data}}", _script_safe(json.dumps(data(report), separators=(",", ":"), allow_nan=False))),
    ):
        assert template.count(place) == 1, place
        template = template.replace(place, text)
    return template


def data(report: Report) -> dict[str, Any]:
    """The report as JSON takes it."""
    return {
        "version": __version__,
        "facts": facts(report),
        "findings": findings(report),
        "warnings": warnings(report),
        "suites": [{"name": name, "title": suite_title(name)} for name in report.suites],
        "grounds": {ground.suite: compared_over(ground) for ground in report.grounds},
        "series": [series._asdict() for series in series_of(report)],
        "base": report.base,
        "repetitions": REPETITIONS,
        "fewestSeeds": FEWEST_SEEDS,
        "verdictSeeds": PUBLISHED_SEEDS,
        "significant": SIGNIFICANT,
        "tasks": [
            {**task._asdict(), "published": {name: _triple(cell) for name, cell in task.published.items()}}
            for task in report.tasks
        ],
        "curves": [
            {**curve._asdict(), "values": [_triple(value) for value in curve.values]}
            for curve in (*report.curves, *report.reference_curves)
        ],
        "profiles": [
            {
                **found._asdict(),
                "thresholds": [significant(x) for x in found.thresholds],
                "shares": [_triple(share) for share in found.shares],
            }
            for found in report.profiles
        ],
        "statistics": STATISTICS,
        "finals": [
            {
                "task": final.task,
                "suite": final.suite,
                "series": ours(final.preset),
                "normalised": _triple(final.normalised),
                "verdict": _verdict(final.verdict) if final.published else None,
            }
            for final in report.finals
        ],
        "sideBySide": [
            {
                "task": final.task,
                "series": ours(final.preset),
                "step": final.step,
                "normalised": _triple(final.normalised),
            }
            for final in report.side_by_side
        ],
        "aggregates": [
            {
                "suite": found.suite,
                "series": (ours if found.ours else paper)(found.name),
                "about": f"{found.name}, {aggregate_source(found)}, {count(found.tasks, 'task')}",
                "values": {name: _triple(found.value(name)) for name in STATISTICS},
            }
            for found in report.aggregates
        ],
        "improvements": [
            {"suite": suite, "series": ours(preset), "value": _triple(pair.improvement)}
            for suite, preset, pair in report.comparisons
            if pair.improvement is not None
        ],
        "grids": [
            {
                "title": grid_note(grid),
                "settings": grid.settings,
                "axes": [[setting_text(value) for value in axis] for axis in grid.axes],
                "charts": [
                    {
                        "name": name,
                        "kind": kind,
                        "values": [
                            {
                                "at": [axis.index(x) for axis, x in zip(grid.axes, values, strict=True)],
                                "series": ours(grid.labels[values]),
                                "value": _triple(estimate),
                            }
                            for values, estimate in cells.items()
                        ],
                    }
                    for name, kind, cells in grid_charts(grid)
                ],
            }
            for grid in report.grids
        ],
        "references": [
            {
                "preset": found.preset,
                "series": ours(found.preset),
                "title": reference_title(found),
                "suites": [
                    {"suite": one.suite, "label": suite_label(one), "value": _triple(one.difference)}
                    for one in found.suites
                ],
                "tasks": [
                    {
                        "task": row.task,
                        "suite": suite_of(row.task),
                        "value": _triple(found.shares[row.task]),
                        "verdict": found.verdict(row),
                    }
                    for row in found.sorted_tasks()
                ],
            }
            for found in report.reference_comparisons
        ],
        "runs": [
            {
                "name": run.name,
                "task": run.task,
                "suite": run.suite,
                "series": ours(run.preset),
                "milliseconds": {part: significant(x) for part, x in run.milliseconds.items()},
            }
            for run in report.runs
        ],
        "tables": {table.name: _table(table) for table in tables_of(report)},
    }


def _script() -> str:
    """All parts in one function, so that they share their names with each other and with nothing else."""
    folder = importlib.resources.files("dr_q.report") / "page" / "js"
    parts = ((folder / name).read_text(encoding="utf-8") for name in SCRIPT)
    return "\n".join(['"use strict";', "(() => {", *parts, "})();", ""])


def _table(table: Table) -> dict[str, Any]:
    return {
        **table._asdict(),
        "columns": [column._asdict() for column in table.columns],
        "rows": [_row(row) for row in table.rows],
        "footer": [_row(row) for row in table.footer],
    }


def _row(row: Row) -> dict[str, Any]:
    return {**row._asdict(), "cells": [_cell(cell) for cell in row.cells]}


def _cell(cell: Cell) -> Any:
    if isinstance(cell, PublishedVerdict):
        return _verdict(cell)
    if isinstance(cell, Estimate | Published):
        return {"value": _triple(cell), "printed": isinstance(cell, Published)}
    return significant(cell) if isinstance(cell, float) else cell


def _verdict(verdict: PublishedVerdict) -> dict[str, str]:
    return {"verdict": verdict.what, "why": why(verdict)}


def _triple(values: Estimate | Published | None) -> list[float | None] | None:
    return None if values is None else [significant(x) for x in values]


def _script_safe(text: str) -> str:
    """JSON inside a script element: nothing in it can end the element."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
