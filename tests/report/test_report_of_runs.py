"""The report of runs that dr-q train made: two tasks, two presets, two seeds, in headless Chromium."""

import csv
import json
import subprocess
import sys

import pytest

from dr_q.cli import main
from dr_q.report.numbers import number
from tests.report.browser import browser, needs_chromium, opened
from tests.report.test_page import HOSTILE_PRESET, HOSTILE_TASK
from tests.training.tiny import flags

pytestmark = pytest.mark.slow

TASKS = ("dmc/cartpole-swingup", "dmc/cartpole-balance")  # of the same shapes: compiled once for each preset
PRESETS = ("dr.q", "no-infonce")
TRAIN = "import json, sys; from dr_q.cli import main; sys.exit(sum(main(a) for a in json.loads(sys.argv[1])))"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    trained = []
    for preset in PRESETS:
        commands = []
        for task in TASKS:
            out = folder / "runs" / f"{preset}-{task.partition('/')[2]}"
            options = ["--preset", preset, "--seeds", "2", "--in-process", "True", "--out", str(out)]
            commands.append(["train", task, *options, *flags(steps=80, eval_every=40, eval_episodes=1)])
        trained.append(subprocess.Popen([sys.executable, "-c", TRAIN, json.dumps(commands)], stdout=subprocess.DEVNULL))
    assert [process.wait() for process in trained] == [0, 0]
    extra = folder / "theirs.csv"
    with extra.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["task", "preset", "seed", "agent_steps", "return"])
        writer.writerow([HOSTILE_TASK, HOSTILE_PRESET, 0, 0, 1.5])
    assert main(["report", str(folder / "runs"), str(extra), "--out", str(folder / "report")]) == 0
    return folder / "report" / "index.html"


def rows_of(report, name):
    with (report.parent / "tables" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def test_files_say_what_runs_are(report):
    finals = {(row["task"], row["preset"]): row for row in rows_of(report, "finals")}
    assert len(finals) == 5
    assert {finals[task, "dr.q"]["verdict"] for task in TASKS} == {"too few steps"}
    assert {row["setting"] for row in rows_of(report, "settings")} >= {"batch_size", "steps"}
    assert all(float(row["seed-steps/s"]) > 0 for row in rows_of(report, "speed")), "short runs log their speed too"
    (versions,) = rows_of(report, "versions")
    assert versions["runs"] == "4"
    assert {path.name for path in (report.parent / "figures").iterdir()} == {
        "ablations.png",
        "aggregates.png",
        "curves-dmc-easy.png",
        "curves-other.png",
        "improvement.png",
        "profiles.png",
    }


@needs_chromium
def test_the_page_of_runs(report):
    finals = {(row["task"], row["preset"]): row for row in rows_of(report, "finals")}
    with browser() as chromium, opened(chromium, report) as page:
        assert page.locator("#curve-groups figure").count() == 3
        rows = page.locator("#table-scores-dmc-easy tbody tr")
        assert rows.count() == 2
        page.locator("#all-tasks").check()
        assert rows.count() == 21
        page.locator("#all-tasks").uncheck()
        cell = rows.filter(has_text=TASKS[0]).locator("td").nth(1)
        assert cell.inner_text() == number(float(finals[TASKS[0], "dr.q"]["score"]), "score")
        page.locator(".sort[data-table='settings'][data-column='1']").click()
        names = page.locator("#table-settings tbody tr > :nth-child(2)").all_inner_texts()
        assert names == sorted(names)
        page.locator("#suite-filter input[value='other']").uncheck()
        assert page.locator("#curve-groups figure").count() == 2
        assert page.locator("#warnings").inner_text().startswith("Some runs of dr.q, no-infonce have other settings")
        # A name is text: no element comes of it, nothing runs.
        page.locator("#reset").click()
        assert page.locator("main img, main b[onclick]").count() == 0
        assert HOSTILE_PRESET in page.locator("#preset-filter").inner_text()
    with browser() as chromium, opened(chromium, report, viewport={"width": 390, "height": 844}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
