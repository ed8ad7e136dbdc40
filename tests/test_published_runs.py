"""The runs in results/: what is said of them is what they hold."""

import csv
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy import stats

import dr_q
from dr_q.cli import main
from dr_q.kit import ConfigError
from dr_q.paper import paper_tasks, published_score
from dr_q.policies.watch import evaluate_policy
from dr_q.report import Result, read_results
from dr_q.report.comparison_files import read_comparisons, write_comparisons
from dr_q.report.numbers import with_interval
from dr_q.report.statistics import mean

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
POLICIES = sorted(weights.parent for weights in (RESULTS / "policies").glob("*/*.safetensors"))
"""Empty in a source distribution, which has no weights."""


PAGES = ("results.md", "results/tasks.md", "results/runs.md", "../README.md")


def test_the_pages_are_made_from_the_runs(tmp_path):
    """In a copy, with everything that is made torn out: it comes back as it is."""
    shutil.copytree(RESULTS, tmp_path / "results")
    (tmp_path / "docs" / "results").mkdir(parents=True)
    pages = {name: (ROOT / "docs" / name).resolve().read_text() for name in PAGES}
    for name, page in pages.items():
        torn = re.sub(r"(<!-- made: \w+ -->\n).*?(<!-- end -->)", r"\1\2", page, flags=re.DOTALL)
        assert torn != page
        (tmp_path / "docs" / name).write_text(torn)
    (tmp_path / "results" / "evaluations.csv").unlink()
    subprocess.run([sys.executable, str(tmp_path / "results" / "make.py")], check=True, capture_output=True)
    for name, page in pages.items():
        assert (tmp_path / "docs" / name).read_text() == page, "run: make results"
    for name in ("evaluations.csv", "repeats.csv"):
        assert (tmp_path / "results" / name).read_text() == (RESULTS / name).read_text()
    figures = {path.name for path in (ROOT / "docs" / "results").glob("*.png")}
    assert figures == {path.name for path in (tmp_path / "docs" / "results").glob("*.png")}
    assert {"differences.png", "curves-gym.png"} < figures


def rows_of(name: str) -> list[dict[str, str]]:
    with (RESULTS / name).open() as file:
        return list(csv.DictReader(file))


def test_the_comparison_agrees_with_the_evaluations():
    results = read_results([RESULTS / "evaluations.csv"])
    rows = rows_of("comparison.csv")
    assert rows
    for row in rows:
        key = (row["task"], row["preset"], int(row["agent_steps"]))
        ours = [r.score for r in results if (r.task, r.preset, r.agent_steps) == key]
        x = {name: float(value) for name, value in row.items() if name not in ("task", "preset", "reference")}
        assert len(ours) == x["ours_seeds"], "compare anew: make results ARGS='--authors PATH/results/drq.csv'"
        assert np.mean(ours) == pytest.approx(x["ours"], rel=1e-4)
        assert np.std(ours, ddof=1) == pytest.approx(x["ours_sd"], rel=1e-4, abs=1e-6)
        sides = (x["ours"], x["ours_sd"], int(x["ours_seeds"]), x["theirs"], x["theirs_sd"], int(x["theirs_seeds"]))
        assert stats.ttest_ind_from_stats(*sides, equal_var=False).pvalue == pytest.approx(x["p"], rel=0.02)  # pyright: ignore
        assert x["low"] < x["difference"] < x["high"]
        assert (x["low"] > 0 or x["high"] < 0) == (x["p"] < 0.05)
        assert x["p_holm"] >= x["p"]
    compared = {(row["task"], row["preset"]) for row in rows}
    assert compared == {(r.task, r.preset) for r in results}, "every task with runs is compared"


def test_the_suites_agree_with_their_tasks():
    """Of each suite: the mean over its tasks of differences in shares of the published score."""
    rows = rows_of("comparison.csv")
    suites = rows_of("comparison_suites.csv")
    assert {int(row["agent_steps"]) for row in suites} >= {25_000, 50_000}
    for suite in suites:
        same = [row for row in rows if all(row[name] == suite[name] for name in ("preset", "agent_steps"))]
        own = [row for row in same if suite["suite"] in ("all", paper_tasks()[row["task"]].suite)]
        published = [published_score(row["task"]) for row in own]
        shares = [float(row["difference"]) / score.mean for row, score in zip(own, published, strict=True) if score]
        assert len(own) == int(suite["tasks"])
        assert np.mean(shares) == pytest.approx(float(suite["difference"]), rel=1e-4, abs=1e-6)
        assert float(suite["difference_low"]) <= float(suite["difference"]) <= float(suite["difference_high"])
        assert 0 <= float(suite["improvement"]) <= 1


def test_the_page_says_which_tasks_are_missing():
    reached = [
        {row["task"] for row in rows_of("comparison.csv") if row["agent_steps"] == at} for at in ("25000", "50000")
    ]
    have = reached[0] | reached[1]
    page = (ROOT / "docs" / "results.md").read_text()
    said = page[page.index("<!-- made: missing -->") :]
    said = said[: said.index("<!-- end -->")]
    never = [task for task in paper_tasks() if task not in have]
    assert f"{len(never)} task" in said if never else "None: all 73 tasks" in said
    for task in never:
        assert task.partition("/")[2] in said
    for task in reached[0] - reached[1]:
        assert task.partition("/")[2] in said[said.index("cut off") :]
    assert f"Over {len(reached[1])} of the paper's 73 tasks" in page


@pytest.mark.parametrize("folder", POLICIES, ids=lambda folder: folder.name)
def test_policies_are_small_and_play_as_their_card_says(folder):
    (file,) = folder.glob("*.safetensors")
    assert file.stat().st_size < 4 * 2**20
    assert {x.dtype for x in load_file(file).values()} == {np.dtype(np.float16)}
    assert (folder / "video.mp4").stat().st_size > 10_000
    policy = dr_q.load(folder)
    record = json.loads((folder / "policy.json").read_text())
    assert (policy.task, [policy.seed]) == (record["task"], record["seeds"])
    (line,) = [line for line in (folder / "README.md").read_text().splitlines() if line.startswith("| this file")]
    mean, spread = (float(x) for x in line.split("|")[2].split("+-"))
    _, played = evaluate_policy(folder, None, 2)
    assert abs(played.returns.mean() - mean) < max(4 * spread, 0.1 * mean)


def script() -> ModuleType:
    """results/make.py."""
    spec = importlib.util.spec_from_file_location("make_results", RESULTS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_too_few_seeds_are_not_compared(tmp_path):
    authors = ["env_id,seed,agent_step,value", *(f"cheetah-run,{seed},25000,{100 + seed}" for seed in range(10))]
    (tmp_path / "authors.csv").write_text("\n".join(authors) + "\n")
    results = [Result("dmc/cheetah-run", "dr.q", seed, 25_000, 50.0 + seed, {}) for seed in range(10)]
    (found,) = script().compare_with(results, tmp_path / "authors.csv")
    (row,) = found.pair.tasks
    assert ([of.mean for of in row.samples], row.difference.value, row.verdict) == ([54.5, 104.5], -50.0, "below")
    with pytest.raises(ConfigError, match="have no task and step in common"):
        script().compare_with(results[:2], tmp_path / "authors.csv")


def test_a_seed_of_both_folders_counts_once(monkeypatch, tmp_path):
    module = script()
    for name in ("runs", "breadth"):
        shutil.copytree(RESULTS / "breadth" / "gym-Walker2d-v4", tmp_path / name / "walker")
    evaluations = tmp_path / "breadth" / "walker" / "evals.csv"
    lines = evaluations.read_text().splitlines()
    evaluations.write_text("\n".join([lines[0], *(f"7{line}" for line in lines[1:]), *lines[1:]]) + "\n")
    monkeypatch.setattr(module, "HERE", tmp_path)
    found = module.our_results()
    assert len({r.seed for r in found}) == 10, "five of each, and five of runs/ alone"
    assert [r for r in found if r.seed < 10] == read_results([tmp_path / "runs"])


def test_comparisons_are_the_same_after_writing_and_reading(tmp_path):
    authors = ["env_id,seed,agent_step,value"]
    authors += [f"{name},{seed},25000,{300 + 7 * seed}" for name in ("cheetah-run", "Ant-v4") for seed in range(6)]
    (tmp_path / "authors.csv").write_text("\n".join(authors) + "\n")
    tasks = ("dmc/cheetah-run", "gym/Ant-v4")
    results = [Result(t, "dr.q", seed, 25_000, 280.0 + 9 * seed, {}) for t in tasks for seed in range(4)]
    found = script().compare_with(results, tmp_path / "authors.csv")
    files = tmp_path / "tasks.csv", tmp_path / "suites.csv"
    write_comparisons(found, *files)
    (before,), (after,) = found, read_comparisons(*files)
    assert after[:3] == before[:3]
    assert after.too_early == before.too_early == {"gym/Ant-v4"}
    assert after.missing == before.missing
    for a, b in zip(after.pair.tasks, before.pair.tasks, strict=True):
        assert (a.task, a.agent_steps) == (b.task, b.agent_steps)
        assert a.difference == pytest.approx(b.difference)
        assert a.samples[0] == pytest.approx(b.samples[0])
        assert (a.p_holm, a.improvement) == pytest.approx((b.p_holm, b.improvement))
        assert after.shares[a.task] == pytest.approx(before.shares[b.task])
    for a, b in zip(after.suites, before.suites, strict=True):
        assert (a.suite, a.tasks, a.seeds) == (b.suite, b.tasks, b.seeds)
        assert a.difference == pytest.approx(b.difference)


def table_of(page: str, first: str) -> list[list[str]]:
    """The rows of the table of history.md whose head begins with these columns."""
    lines = page[page.index(f"| {first}") :].splitlines()
    rows = lines[2 : next(i for i, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def mean_and_sd(values: list[float]) -> str:
    return f"{np.mean(values):.1f} +- {np.std(values, ddof=1):.1f} ({len(values)})"


def test_the_history_of_fresh_seeds_is_what_the_runs_hold():
    page = (ROOT / "docs" / "results" / "history.md").read_text()
    rows = table_of(page, "task | agent steps | the authors' runs")
    folders = {"`dmc/hopper-stand`": "hopper-stand", "`gym/Ant-v4`": "ant-v4", "`gym/Hopper-v4`": "hopper-v4"}
    assert len(rows) == 12
    theirs = {(row["task"], row["agent_steps"]): row for row in rows_of("comparison.csv") if row["preset"] == "dr.q"}
    for row in rows:
        at = int(row[1].replace(",", ""))
        authors = theirs[row[0].strip("`"), str(at)]
        assert row[2] == f"{float(authors['theirs']):.1f} +- {float(authors['theirs_sd']):.1f} (10)"
        for cell, gap, name in ((3, 4, folders[row[0]]), (5, 6, f"{folders[row[0]]}-more")):
            values = [r.score for r in read_results([RESULTS / "runs" / name]) if r.agent_steps == at]
            assert row[cell] == mean_and_sd(values)
            assert float(row[gap].split(",")[0]) == pytest.approx(np.mean(values) - float(authors["theirs"]), abs=0.06)


def test_the_history_of_repeats_is_what_the_runs_hold():
    page = (ROOT / "docs" / "results" / "history.md").read_text()
    rows = table_of(page, "task | agent steps | these seeds")
    assert len(rows) == 10
    ours = read_results([RESULTS / "runs"])
    for task, steps, mine, name, theirs, gap, _ in rows:
        at = int(steps.replace(",", ""))
        other = {r.seed: r.score for r in read_results([RESULTS / "repeats" / name.strip("`")]) if r.agent_steps == at}
        same = {r.seed: r.score for r in ours if (r.task, r.preset, r.agent_steps) == (task.strip("`"), "dr.q", at)}
        both = sorted(other.keys() & same.keys())
        assert mine == mean_and_sd([same[seed] for seed in both])
        assert theirs == mean_and_sd([other[seed] for seed in both])
        assert gap == with_interval(mean([same[seed] - other[seed] for seed in both]), "+.1f")


def test_the_history_lists_single_seeds_as_they_are():
    page = (ROOT / "docs" / "results" / "history.md").read_text()
    ours = read_results([RESULTS / "runs"])
    for task in ("dmc/hopper-stand", "gym/Hopper-v4"):
        values = sorted(r.score for r in ours if (r.task, r.agent_steps) == (task, 100_000))
        assert f"| `{task}`, 100,000: our seeds | {' '.join(f'{x:.0f}' for x in values)} |" in page


def test_a_folder_of_runs_is_drawn_by_task(tmp_path, capsys):
    """One panel for each task; runs of one task in the same."""
    from dr_q.report import curves

    drawn: dict[str, list[str]] = {}
    with pytest.MonkeyPatch.context() as patch:
        draw = curves._draw_task  # pyright: ignore[reportPrivateUsage]

        def watch(panel: Any, task: str, *more: Any) -> None:
            draw(panel, task, *more)
            drawn[task] = [text.get_text() for text in panel.get_legend().get_texts()]

        patch.setattr(curves, "_draw_task", watch)
        out = tmp_path / "curves.png"
        assert main(["plot", str(RESULTS / "runs"), str(RESULTS / "repeats"), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert set(drawn) == {r.task for r in read_results([RESULTS / "runs"])}
    assert drawn["gym/Ant-v4"] == [
        "dr.q, runs/ant-v4 (10 seeds)",
        "dr.q, runs/ant-v4-more (10 seeds)",
        "dr.q, repeats/ant-v4-first (10 seeds)",
        "dr.q, repeats/ant-v4-second (10 seeds)",
    ]
    assert drawn["dmc/walker-run"] == ["dr.q (3 seeds)"]
    assert out.read_bytes().startswith(b"\x89PNG")
