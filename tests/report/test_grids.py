"""Runs of one preset that differ in one or two settings: grouped by what varies."""

import csv
import itertools

import numpy as np
import pytest

from dr_q.cli import main
from dr_q.report import build_report, read_results, write_report
from dr_q.report.grids import grids_of
from dr_q.report.html import data
from dr_q.report.results import labelled_runs
from dr_q.report.wording import grid_note
from tests.report.browser import browser, needs_chromium, opened
from tests.report.test_results import make_run

USUAL = {"infonce_weight": 0.1, "fade_decay": 1e-4, "batch_size": 256}
WEIGHTS, DECAYS = (0.05, 0.1, 0.2), (1e-5, 1e-4)
TASKS = ("dmc/walker-run", "dmc/fish-swim")


def make_grid(folder, weights=WEIGHTS, decays=DECAYS, tasks=TASKS, seeds=(0, 1, 2)):
    for i, (weight, decay, task) in enumerate(itertools.product(weights, decays, tasks)):
        config = {**USUAL, "infonce_weight": weight, "fade_decay": decay}
        changed = {name: value for name, value in config.items() if value != USUAL[name]}
        score = 100 + 1000 * weight + 10 * DECAYS.index(decay)
        make_run(folder / f"run-{i}", task=task, seeds=seeds, config=config, changed=changed, score=score)
    return folder


def report_of(folder, **more):
    return build_report(read_results([folder]), labelled_runs([folder]), **more)


def test_two_settings_make_a_heat_map_and_one_makes_slices(tmp_path):
    (found,) = report_of(make_grid(tmp_path / "two")).grids
    assert (found.preset, found.settings) == ("dr.q", ("fade_decay", "infonce_weight"))
    assert found.axes == ([1e-5, 1e-4], [0.05, 0.1, 0.2])
    assert len(found.labels) == 6
    assert found.labels[1e-4, 0.1] == "dr.q", "the preset's own values have its name"
    assert found.steps == dict.fromkeys(TASKS, 5000)
    values = [100 + 1000 * 0.2 + 10 + seed + 5000 / 7 for seed in range(3)]
    assert found.by_task["dmc/fish-swim"][1e-4, 0.2].value == pytest.approx(np.mean(values))
    assert found.overall[1e-4, 0.2].value == pytest.approx(np.mean(values) / 1000)
    assert found.seeds[1e-4, 0.2] == (3, 3)
    said = "dr.q by fade_decay and infonce_weight: 6 combinations over 2 tasks that all of them have, at 5,000 steps."
    assert grid_note(found) == said
    (one,) = report_of(make_grid(tmp_path / "one", decays=(1e-4,))).grids
    assert (one.settings, one.axes) == (("infonce_weight",), ([0.05, 0.1, 0.2],))
    assert not report_of(make_grid(tmp_path / "none", (0.1,), (1e-4,))).grids


def test_what_is_missing_of_a_grid_is_said_and_only_common_tasks_count(tmp_path):
    make_grid(tmp_path / "grid")
    (tmp_path / "grid" / "run-0" / "evals.csv").unlink()  # the first combination on the first task
    (tmp_path / "grid" / "run-0" / "run.json").unlink()
    (found,) = report_of(tmp_path / "grid").grids
    assert list(found.steps) == ["dmc/fish-swim"]
    (tmp_path / "grid" / "run-1" / "run.json").unlink()
    (found,) = report_of(tmp_path / "grid").grids
    assert list(found.steps) == ["dmc/walker-run", "dmc/fish-swim"] or set(found.steps) == set(TASKS)
    assert grid_note(found).endswith("; 1 of 6 have no runs.")
    assert (1e-5, 0.05) not in found.overall


def test_a_grid_of_more_settings_has_no_figure_but_its_presets_are_told_apart(tmp_path):
    make_grid(tmp_path / "grid", tasks=TASKS[:1])
    config = {**USUAL, "batch_size": 64}
    make_run(tmp_path / "grid" / "other", config=config, changed={"batch_size": 64}, score=7)
    labelled = labelled_runs([tmp_path / "grid"])
    assert grids_of(labelled, read_results([tmp_path / "grid"])) == []
    assert len({label for _, label in labelled}) == 7


def test_a_task_that_no_family_knows_has_its_own_units(tmp_path):
    report = report_of(make_grid(tmp_path / "grid", decays=(1e-4,), tasks=("callable:my.Env",)))
    (found,) = report.grids
    assert found.overall == {}
    assert [chart["name"] for chart in data(report)["grids"][0]["charts"]] == ["callable:my.Env"]
    assert report_of(tmp_path / "grid", at=100).grids[0].steps == {"callable:my.Env": 0}


def test_the_command_writes_heat_maps_and_tables(tmp_path):
    make_grid(tmp_path / "grid")
    out = tmp_path / "report"
    assert main(["report", str(tmp_path / "grid"), "--out", str(out)]) == 0
    assert (out / "figures" / "grid-1.png").stat().st_size > 10_000
    with (out / "tables" / "grid.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6 * 3, "every combination, over all tasks and on each"
    assert {(row["setting"], row["second setting"]) for row in rows} == {("fade_decay", "infonce_weight")}
    assert r"\toprule" in (out / "tables" / "grid.tex").read_text()


@needs_chromium
def test_the_page_shows_heat_maps_and_slices(tmp_path):
    results = {}
    for name, decays in (("two", DECAYS), ("one", DECAYS[1:])):
        folder = make_grid(tmp_path / name, decays=decays)
        report = report_of(folder)
        results[name] = write_report(report, read_results([folder]), tmp_path / f"report-{name}")
    with browser() as chromium:
        with opened(chromium, results["two"]) as page:
            assert page.locator("#grid-charts table.heat").count() == 3
            cells = page.locator("#grid-charts table.heat").first.locator("td")
            assert cells.count() == 6
            assert cells.last.inner_text() == "1.025"
            colours = cells.evaluate_all("all => all.map((one) => getComputedStyle(one).backgroundColor)")
            assert len(set(colours)) >= 4, "higher is darker"
        with opened(chromium, results["one"], viewport={"width": 390, "height": 844}) as page:
            assert page.locator("#grid-charts figure").count() == 3
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
