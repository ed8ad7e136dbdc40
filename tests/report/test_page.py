"""What a report says, and that its page, its CSV and its LaTeX say the same."""

import csv
import io
import json
import math
import re
import shutil
import subprocess

import numpy as np
import pytest

from dr_q.cli import main
from dr_q.envs import Family
from dr_q.envs.families import families
from dr_q.paper import SUITES, Published, TaskInfo, paper_tasks, published_aggregates, published_score
from dr_q.report import Result, build_report, compare, read_results, write_report, write_results
from dr_q.report.figures import comparison_figure
from dr_q.report.html import SCRIPT, data, page
from dr_q.report.numbers import number, with_interval
from dr_q.report.statistics import Estimate
from dr_q.report.style import COLOURS, DASHES, MARKERS
from dr_q.report.table_files import csv_text, escape, latex_text
from dr_q.report.tables import TABLES, Table, tables_of
from dr_q.report.verdicts import PUBLISHED_SEEDS, published_verdict
from dr_q.report.wording import SUITE_TITLES, warnings, why
from tests.report.synthetic import synthetic_results
from tests.report.test_results import make_run

HOSTILE_TASK = "gym/</script><b onclick='x'>&\u2028{{data}}"
HOSTILE_PRESET = '_<img src=x onerror="alert(1)">%$\\frac$#~^é漢'
SMALL = ("dmc/cheetah-run", "dmc/walker-run", "gym/Ant-v4")


@pytest.fixture(scope="module")
def small():
    """Three tasks, three presets, six seeds; and a task and preset of an ill-meaning author."""
    results = synthetic_results(SMALL, seeds=6, checkpoints=4)
    results += [
        Result(HOSTILE_TASK, HOSTILE_PRESET, seed, step, 1.5 * seed, {}) for seed in range(3) for step in (0, 9)
    ]
    return build_report(results)


def table_of(report, name: str) -> Table:
    (found,) = [table for table in tables_of(report) if table.name == name]
    return found


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_aggregates_of_early_scores_say_so(small):
    """Published ones are of the end of the budget."""
    early = [r for r in synthetic_results(SMALL, seeds=6, checkpoints=4) if r.agent_steps < 500_000]
    notes = table_of(build_report(early), "aggregates").notes
    assert notes[-1].startswith(f"Before the budget's end: 3 tasks ({', '.join(sorted(SMALL))}).")
    assert not any("Before the budget's end" in note for note in table_of(small, "aggregates").notes)


def test_aggregates_of_the_papers_means_are_its_printed_means():
    """Of results that are the printed means of DR.Q: one run of every task, at the end of its budget."""
    results = [
        Result(name, "dr.q", 0, task.agent_steps, score.mean, {})
        for name, task in paper_tasks().items()
        if (score := published_score(name)) is not None
    ]
    means = {found.suite: found.mean for found in build_report(results).aggregates if found.ours}
    printed = {a.suite: a.value for a in published_aggregates() if (a.algorithm, a.statistic) == ("DR.Q", "Mean")}
    assert set(means) == set(printed) == set(SUITES)
    for suite, estimate in means.items():
        assert isinstance(estimate, Estimate)
        assert estimate.value == pytest.approx(printed[suite], abs=6e-4)


PAPER = Published(900.0, 880.0, 920.0)


@pytest.mark.parametrize(
    ("mean", "seeds", "step", "published", "what"),
    [
        (900.0, 10, 1000, PAPER, "inside"),
        (920.0, 10, 1000, PAPER, "inside"),
        (920.1, 10, 1000, PAPER, "above"),
        (879.9, 10, 1000, PAPER, "below"),
        (900.0, PUBLISHED_SEEDS, 1000, PAPER, "inside"),
        (900.0, PUBLISHED_SEEDS - 1, 1000, PAPER, "too few seeds"),
        (900.0, 10, 999, PAPER, "too few steps"),
        (900.0, 1, 1, PAPER, "too few steps"),
        (900.0, 10, 1001, PAPER, "after the budget"),
        (900.0, 10, 1000, Published(900.0, math.nan, math.nan), "no published interval"),
        (900.0, 10, 1000, None, "not in the paper"),
    ],
)
def test_verdicts(mean, seeds, step, published, what):
    said = published_verdict(Estimate(mean, mean - 5, mean + 5), seeds, step, 1000, published)
    assert said.what == what
    if what in ("inside", "above", "below"):
        assert why(said) == f"{seeds} seeds at 1,000 of 1,000 steps; the two intervals overlap"
    else:
        assert said.overlap is None
        assert "interval" not in why(said)
        assert "1,001 of 1,000" not in why(said)


def test_intervals_that_do_not_touch_are_said_not_to():
    assert "do not overlap" in why(published_verdict(Estimate(950.0, 940.0, 960.0), 10, 1000, 1000, PAPER))


def test_each_preset_is_judged_by_its_own_algorithm(small):
    finals = {final.preset: final for final in small.finals if final.task == "gym/Ant-v4"}
    for preset, algorithm in (("dr.q", "DR.Q"), ("mr.q", "MR.Q")):
        assert finals[preset].published == published_score("gym/Ant-v4", algorithm)
        assert finals[preset].verdict.what in ("inside", "above", "below")
    assert finals["no-infonce"].published is None, "the paper has no such score"
    rows = {row["preset"]: row for row in rows_of(csv_text(table_of(small, "finals"))) if row["task"] == "gym/Ant-v4"}
    assert rows["dr.q"]["verdict"] == finals["dr.q"].verdict.what
    assert rows["no-infonce"]["verdict"] == ""


def test_scores_are_at_the_budget_even_where_runs_go_on():
    results = [
        Result("dmc/cheetah-run", "dr.q", seed, step, float(step), {})
        for seed in range(6)
        for step in (0, 250_000, 500_000, 750_000)
    ]
    report = build_report(results)
    (final,) = report.finals
    assert final.step == 500_000
    assert final.estimate == Estimate(500_000.0, 500_000.0, 500_000.0)
    assert report.curves[0].steps[-1] == 750_000
    late = build_report([result for result in results if result.agent_steps == 750_000])
    assert late.finals[0].step == 750_000
    assert (final.stage, late.finals[0].stage) == ("at", "after")
    assert late.finals[0].verdict.what == "after the budget"
    for found, at_budget in ((report, 1), (late, 0)):
        assert found.aggregates[0].at_budget == at_budget
        noted = ["After the budget: 1 task (dmc/cheetah-run)" in " ".join(table.notes) for table in tables_of(found)]
        assert noted[0] == noted[2] == (not at_budget)
        assert "Before the budget" not in " ".join(table_of(found, "aggregates").notes)


def test_a_family_of_another_package_is_not_compared_with_the_paper(monkeypatch):
    task = TaskInfo("toys/walk", "toys", 10, 1, 40, 0.0, 10.0)
    family = Family("toys", "Toys", lambda name, render: pytest.fail("nothing is made"), (task,))
    monkeypatch.setitem(families(), "toys", family)
    results = [Result("toys/walk", "dr.q", seed, step, 5.0, {}) for seed in range(3) for step in (5, 10)]
    report = build_report(results)
    shown = table_of(report, "scores-toys")
    assert shown.title == "toys: final scores"
    assert shown.notes == ["Seeds of each task: dr.q 3."]
    (part,) = report.aggregates
    assert (part.mean, part.at_budget) == (Estimate(0.5, 0.5, 0.5), 1), "as the family normalises"
    early = table_of(build_report(results[::2]), "scores-toys")
    assert early.title == "toys: scores (our runs are at 50% of their budget's steps)"
    assert early.notes[0] == "Our runs are at 50% of their budget's steps."
    (sentence, *_) = compare(results, results, ("a", "b")).sentences()
    assert sentence.startswith("Over 1 task, a minus b is +0.000")


def test_seeds_without_a_common_step_are_left_out_and_named():
    results = [Result("dmc/cheetah-run", "dr.q", seed, 10 + seed, 1.0, {}) for seed in range(2)]
    results += [Result("dmc/walker-run", "dr.q", 0, 10, 1.0, {})]
    report = build_report(results)
    assert [curve.task for curve in report.curves] == ["dmc/walker-run"]
    assert "dmc/cheetah-run, dr.q: its seeds have no evaluated step in common" in warnings(report)[0]


def test_a_part_of_a_suite_is_compared_with_the_same_part_of_the_paper(small):
    theirs = next(a for a in small.aggregates if (a.suite, a.name) == ("dmc-easy", "DR.Q"))
    tasks = [task for task in SMALL if task.startswith("dmc")]
    expected = np.mean([paper_tasks()[t].normalise(getattr(published_score(t), "mean")) for t in tasks])  # noqa: B009
    assert (theirs.ours, theirs.complete, theirs.tasks) == (False, False, 2)
    assert theirs.mean is not None
    assert theirs.mean[0] == pytest.approx(expected)
    assert theirs.iqm is None, "an IQM cannot be had from means"
    rows = rows_of(csv_text(table_of(small, "aggregates")))
    (row,) = [row for row in rows if (row["suite"], row["scores of"]) == ("DMC easy", "DR.Q")]
    assert (row["from"], row["tasks"], row["IQM"]) == ("published, same tasks", "2", "")
    assert float(row["Mean"]) == pytest.approx(expected)
    shown = table_of(small, "scores-dmc-easy")
    footer = {row["task"]: row for row in rows_of(csv_text(shown)) if " of " in row["task"]}
    assert set(footer) == {"Mean of all 21", "Median of all 21", "IQM of all 21", "Mean of the 2 with runs"}
    assert footer["Mean of all 21"]["ours dr.q"] == ""
    assert float(footer["Mean of the 2 with runs"]["paper DR.Q"]) == pytest.approx(expected)
    assert shown.notes[0] == "Seeds of each task: dr.q 6, mr.q 6, no-infonce 6."
    without = [row for row in shown.rows if not row.has_runs]
    assert len(without) == 19


def test_the_comparison_has_everyones_mean_of_the_same_tasks(tmp_path):
    two = ("dmc/cheetah-run", "dmc/walker-run")
    report = build_report(synthetic_results(two, {"dr.q": "DR.Q"}, seeds=3, checkpoints=2))
    found = report.means_of("dmc-easy")
    assert found is not None
    assert (found.tasks, found.complete) == (2, False)
    scores = [published_score(task, "TD-MPC2") for task in two]
    assert found.published["TD-MPC2"][0] == pytest.approx(np.mean([s.mean for s in scores if s]) / 1000)
    assert set(found.ours) == {"dr.q"}
    assert report.means_of("gym") is None
    comparison_figure(report, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_presets_are_compared_where_runs_are_and_not_with_means_in_print(small):
    pairs = [(found.suite, *found.pair.names) for found in small.comparisons]
    assert pairs == [(s, p, "dr.q") for s in ("gym", "dmc-easy") for p in ("mr.q", "no-infonce")]
    improved = rows_of(csv_text(table_of(small, "improvement")))
    assert len(improved) == 4
    assert {row["agent steps"] for row in improved} == {"500,000", "1,000,000"}
    ant = small.comparisons[0].pair
    first = improved[0]
    assert (first["suite"], first["preset"], first["compared with"], first["tasks"]) == (
        "Gym MuJoCo",
        "mr.q",
        "dr.q",
        "1",
    )
    assert float(first["difference, normalised"]) == pytest.approx(ant.difference.value, rel=1e-5)
    assert float(first["probability of improvement"]) == pytest.approx(ant.tasks[0].improvement, rel=1e-5)
    assert len(table_of(small, "ablations").rows) == 6
    assert {found.preset for found in small.profiles} == {"dr.q", "mr.q", "no-infonce"}
    for found in small.profiles:
        shares = [share.value for share in found.shares]
        assert shares == sorted(shares, reverse=True)
        assert shares[-1] == 0
        assert all(share.low <= share.value <= share.high for share in found.shares)
    alone = build_report(synthetic_results(SMALL[:1], {"dr.q": "DR.Q"}, seeds=5, checkpoints=1))
    assert not alone.comparisons
    assert "which publishes means and no single runs" in table_of(alone, "improvement").missing


def test_the_page_cannot_be_broken_by_names(small):
    text = page(small)
    assert text.count("</script>") == 2
    assert "<b onclick" not in text
    assert "<img" not in text
    assert "\u2028" not in text
    inside = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert inside is not None
    found = json.loads(inside[1])
    assert HOSTILE_TASK in [task["name"] for task in found["tasks"]]
    assert HOSTILE_PRESET in [series["name"] for series in found["series"]]
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    script = text[text.rindex("<script>") :]
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", script)


def test_the_csv_files_have_the_pages_numbers(small):
    tables = data(small)["tables"]
    for table in tables_of(small):
        rows = rows_of(csv_text(table))
        shown = tables[table.name]["rows"] + tables[table.name]["footer"]
        assert len(rows) == len(shown)
        for row, record in zip(rows, shown, strict=True):
            for column, cell in zip(table.columns, record["cells"], strict=True):
                name = f"{column.group} {column.label}".strip()
                if isinstance(cell, dict) and "value" in cell:
                    written = [row[name], row[f"{name} low"], row[f"{name} high"]]
                    assert [float(x) if x else None for x in written] == cell["value"]
                elif isinstance(cell, dict):
                    assert row[name] == cell["verdict"]
                else:
                    assert row[name] == ("" if cell is None else str(cell))


def test_the_pages_charts_get_the_models_numbers(small):
    found = data(small)
    for final, given in zip(small.finals, found["finals"], strict=True):
        unit = final.normalised and pytest.approx(final.normalised, rel=1e-5)
        assert (given["task"], given["series"]) == (final.task, f"ours {final.preset}")
        assert given["normalised"] == unit
        assert (given["verdict"] or {}).get("verdict") == (final.verdict.what if final.published else None)
    for part, given in zip(small.aggregates, found["aggregates"], strict=True):
        assert (given["values"]["IQM"] is None) == (part.iqm is None)
        assert given["values"]["Mean"][0] == pytest.approx(part.mean.value if part.ours else part.mean[0], rel=1e-5)
    assert {given["about"] for given in found["aggregates"] if given["series"] == "paper DR.Q"} == {
        "DR.Q, published, same tasks, 1 task",
        "DR.Q, published, same tasks, 2 tasks",
    }
    chances = [one.pair.improvement.value for one in small.comparisons]
    assert [given["value"][0] for given in found["improvements"]] == pytest.approx(chances, rel=1e-5)


def test_numbers_are_shown_like_the_papers():
    assert [number(x, "score") for x in (911.4, 91.14, 9.114, -0.5)] == ["911", "91.1", "9.11", "-0.50"]
    assert number(1_000_000, "count") == "1,000,000"
    assert number(0.12345, "unit") == "0.123"
    assert [number(x, "signed") for x in (3, -3)] == ["+3.00", "-3.00"]
    assert with_interval(Estimate(1.26, -0.5, 3.0), "+.1f") == "+1.3 [-0.5, +3.0]"
    assert with_interval(Estimate(1.26, math.nan, math.nan), ".1f") == "1.3"


def test_latex_is_escaped(small):
    assert escape(r"a_b & 5% {x} \y <z> ~^") == (
        r"a\_b \& 5\% \{x\} \textbackslash{}y \textless{}z\textgreater{} \textasciitilde{}\textasciicircum{}"
    )
    text = latex_text(table_of(small, "scores-gym"))
    assert r"\toprule" in text
    assert "gym/Ant-v4" in text
    assert "8138" in text, "as printed"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(small, tmp_path):
    write_report(small, [], tmp_path / "report")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    done = subprocess.run(command, cwd=tmp_path / "report" / "tables", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull \\hbox" not in done.stdout
    assert (tmp_path / "report" / "tables" / "tables.pdf").stat().st_size > 10_000


def test_every_part_of_the_script_is_on_the_page_once_and_says_what_it_is(small):
    from importlib.resources import files

    parts = {path.name: path.read_text() for path in (files("dr_q.report") / "page" / "js").iterdir()}
    assert sorted(parts) == sorted(SCRIPT)
    text = page(small)
    places = [text.index(parts[name]) for name in SCRIPT]
    assert places == sorted(places)
    for name in SCRIPT:
        assert parts[name].startswith("// "), name
        assert text.count(parts[name]) == 1, name


def test_styles_are_the_same_everywhere_and_differ_without_colour():
    from importlib.resources import files

    folder = files("dr_q.report") / "page"
    assert f"const DASHES = {json.dumps(list(DASHES))};" in (folder / "js" / "data.js").read_text()
    style = (folder / "page.css").read_text()
    for i, colour in enumerate(COLOURS):
        assert f"--s{i}: {colour};" in style
    assert len(set(DASHES)) == len(set(MARKERS)) == len(COLOURS)


def test_runs_tell_settings_speed_and_versions(tmp_path, capsys):
    run = make_run(tmp_path / "runs" / "a", task="dmc/walker-run", seeds=(0, 1))
    info = json.loads((run / "run.json").read_text())
    info["settings"] |= {"config": {"batch_size": 64, "reward_range": [-10.0, 10.0]}, "steps": 5000, "eval_every": 5000}
    info |= {"versions": {"dr-q": "0.1.0", "device": "1 x <cpu>"}, "updated": "2030-01-02T03:04:05+0000"}
    (run / "run.json").write_text(json.dumps(info))
    (run / "metrics.csv").write_text("seed,agent_steps,ms_act,ms_update\n0,1000,1.5,8\n1,1000,1.5,8\n0,2000,0.5,10\n")
    make_run(tmp_path / "runs" / "b", task="callable:my.Env", preset="future")
    out = tmp_path / "report"
    assert main(["report", str(tmp_path / "runs"), "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{out / 'index.html'}\n"
    assert "report: figure: curves of dmc-easy" in printed.err
    settings = rows_of((out / "tables" / "settings.csv").read_text())
    assert {(row["setting"], row["here"], row["by default"]) for row in settings} == {
        ("batch_size", "64", "256"),
        ("steps", "5000", "500000"),
        ("(preset)", "unknown to this version", ""),
    }
    fast, unknown = rows_of((out / "tables" / "speed.csv").read_text())
    assert float(fast["ms per step"]) == 10
    assert float(fast["seed-steps/s"]) == 200, "two seeds at 10 ms"
    assert unknown["seed-steps/s"] == "not recorded"
    versions = rows_of((out / "tables" / "versions.csv").read_text())
    assert [row["device"] for row in versions] == ["1 x <cpu>", ""]
    assert "last run updated 2030-01-02" in (out / "index.html").read_text()


def test_an_earlier_report_is_replaced_and_nothing_else(tmp_path, capsys):
    source = tmp_path / "results.csv"
    write_results(synthetic_results(SMALL, seeds=2, checkpoints=1), source)
    out = tmp_path / "report"
    assert main(["report", str(source), "--out", str(out)]) == 0
    assert (out / "figures" / "curves-gym.png").exists()
    assert read_results([out / "results.csv"]) == read_results([source])
    (out / "figures" / "mine.png").write_bytes(b"x")
    write_results(synthetic_results(SMALL[:1], {"dr.q": "DR.Q"}, seeds=2, checkpoints=1), source)
    assert main(["report", str(source), "--out", str(out)]) == 0
    assert not (out / "figures" / "curves-gym.png").exists()
    assert not (out / "tables" / "scores-gym.tex").exists()
    assert not (out / "figures" / "ablations.png").exists(), "one preset"
    assert (out / "figures" / "mine.png").read_bytes() == b"x"
    capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to report on; name runs"),
        (["nowhere"], "is not there"),
        (["empty.csv"], "there is no evaluation to report on yet"),
        (["results.csv", "--out", "mine"], "mine holds other files and no report; choose another --out"),
        (["results.csv", "--out", "results.csv"], "results.csv is a file; choose another --out"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_results([Result("dmc/walker-run", "dr.q", 0, 0, 1.0, {})], tmp_path / "results.csv")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("<html>a page of mine</html>")
    make_run(tmp_path / "empty.csv")
    evaluations = tmp_path / "empty.csv" / "evals.csv"
    evaluations.write_text(evaluations.read_text().splitlines()[0] + "\n")
    assert main(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert (tmp_path / "mine" / "index.html").read_text() == "<html>a page of mine</html>"


def test_one_evaluation_is_enough_for_a_report(tmp_path):
    results = [Result("gym/mine", "_mine", 0, 0, 0.0, {})]
    report = build_report(results)
    write_report(report, results, tmp_path / "report")
    assert [table.name for table in tables_of(report) if table.rows] == ["scores-other", "finals"]
    assert (tmp_path / "report" / "figures" / "curves-other.png").exists()


def test_tables_have_the_names_that_they_are_listed_by(small):
    assert [table.name for table in tables_of(small)] == [*(f"scores-{suite}" for suite in small.suites), *TABLES]


def test_every_suite_has_a_title():
    assert set(SUITES) < set(SUITE_TITLES)
