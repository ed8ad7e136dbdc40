"""The runs in results/: what is said of them is what they hold."""

import csv
import importlib.util
import json
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
from dr_q.policies.watch import evaluate_policy
from dr_q.report import Result, read_results
from dr_q.report.statistics import difference

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
POLICIES = sorted(weights.parent for weights in (RESULTS / "policies").glob("*/*.safetensors"))
"""Empty in a source distribution, which has no weights."""


def test_the_page_is_made_from_the_runs(tmp_path):
    """In a copy, with tables torn out: it comes back as it is."""
    shutil.copytree(RESULTS, tmp_path / "results")
    (tmp_path / "docs").mkdir()
    page = (ROOT / "docs" / "results.md").read_text()
    torn = "\n".join(line for line in page.splitlines() if not line.startswith("| `")) + "\n"
    assert torn != page
    (tmp_path / "docs" / "results.md").write_text(torn)
    (tmp_path / "results" / "evaluations.csv").unlink()
    subprocess.run([sys.executable, str(tmp_path / "results" / "make.py")], check=True, capture_output=True)
    policies = page[page.index("## Policies") : page.index("## Not run yet")]  # written by hand
    again = (tmp_path / "docs" / "results.md").read_text()
    assert again.replace(again[again.index("## Policies") : again.index("## Not run yet")], policies) == page
    assert (tmp_path / "results" / "evaluations.csv").read_text() == (RESULTS / "evaluations.csv").read_text()
    for name in ("ablations", "budget", "curves", "differences"):
        assert (tmp_path / "docs" / "results" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (ROOT / "docs" / "results" / f"{name}.png").exists()


def test_the_comparison_agrees_with_the_evaluations():
    results = read_results([RESULTS / "evaluations.csv"])
    with (RESULTS / "comparison.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:
        ours = [
            r.score
            for r in results
            if (r.task, r.preset, r.agent_steps) == (row["task"], "dr.q", int(row["agent_steps"]))
        ]
        x = {name: float(value) for name, value in row.items() if name != "task"}
        assert len(ours) == x["ours_seeds"]
        assert np.mean(ours) == pytest.approx(x["ours"], rel=1e-4)
        assert np.std(ours, ddof=1) == pytest.approx(x["ours_sd"], rel=1e-4)
        sides = (x["ours"], x["ours_sd"], int(x["ours_seeds"]), x["authors"], x["authors_sd"], int(x["authors_seeds"]))
        assert stats.ttest_ind_from_stats(*sides, equal_var=False).pvalue == pytest.approx(x["p"], rel=0.02)  # pyright: ignore
        assert x["low"] < x["difference"] < x["high"]
        assert (x["low"] > 0 or x["high"] < 0) == (x["p"] < 0.05)
        assert x["p_holm"] >= x["p"]


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
    _, returns = evaluate_policy(folder, None, 2)
    assert abs(returns.mean() - mean) < max(4 * spread, 0.1 * mean)


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
    (row,) = script().compare_with(results, tmp_path / "authors.csv")
    assert (row.ours, row.authors, row.difference, row.verdict()) == (54.5, 104.5, -50.0, "below")
    assert script().compare_with(results[:2], tmp_path / "authors.csv") == []


def test_fresh_seeds_stand_apart_from_the_first():
    """The table's figures, from the runs' own files and the authors' numbers of the comparison."""
    make = script()
    runs = [make.read_run(folder) for folder in make.find_runs(RESULTS / "runs")]
    results = read_results([RESULTS / "evaluations.csv"])
    table = make.fresh_table(runs, results, make.read_comparison()).splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert [row[0] for row in rows] == sorted(4 * ["`dmc/hopper-stand`", "`gym/Ant-v4`", "`gym/Hopper-v4`"])
    (row,) = [row for row in rows if row[:2] == ["`dmc/hopper-stand`", "100,000"]]
    first, fresh = (
        [r.score for r in read_results([RESULTS / "runs" / name]) if r.agent_steps == 100_000]
        for name in ("hopper-stand", "hopper-stand-more")
    )
    assert row[3::2] == [f"{np.mean(x):.1f} +- {np.std(x, ddof=1):.1f} (10)" for x in (first, fresh)]
    for gap, values in zip(row[4::2], (first, fresh), strict=True):
        assert float(gap.split(",")[0]) == pytest.approx(np.mean(values) - float(row[2].split()[0]), abs=0.11)
    assert make.fresh_table(runs[:1], results, make.read_comparison()) == make.NOTHING_YET
    (c,) = [c for c in make.read_comparison() if (c.task, c.agent_steps) == ("dmc/hopper-stand", 100_000)]
    alone = make.first_seeds_only(c, runs, results)
    assert (c.ours_seeds, alone.ours_seeds) == (20, 10)
    assert alone.ours == pytest.approx(np.mean(first))
    assert alone.difference == pytest.approx(np.mean(first) - c.authors)


def test_the_authors_own_file_counts_frames(tmp_path):
    rows = ["visual_walker_run,0,50000,1.5", "walker_run,0,50000,2.5", "Ant_v4,0,25000,3.5", "h1hand_cabinet_v0,0,0,9"]
    file = tmp_path / "drq.csv"
    file.write_text("\n".join(["env_name,seed,env_step,value", *rows]) + "\n")
    assert script().authors_seeds(file) == {
        ("dmc-visual/walker-run", 25_000): [1.5],
        ("dmc/walker-run", 25_000): [2.5],
        ("gym/Ant-v4", 25_000): [3.5],
    }
    file.write_text("env_name,seed,env_step,value\nnothing,0,0,1\n")
    with pytest.raises(ConfigError, match="none of the paper's tasks"):
        script().compare_with([], file)
    file.write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match="columns a, b; expected env_name"):
        script().authors_seeds(file)


def test_ablations_are_compared_at_the_last_step_of_both():
    """Seeds of different lengths, and a preset without its DR.Q."""
    task = "dmc/fish-swim"
    results = [Result(task, "dr.q", s, step, float(step + s), {}) for s in range(4) for step in (10, 20, 30)]
    results += [Result(task, "mr.q", s, step, float(s), {}) for s in range(4) for step in (10, 20)]
    results.append(Result("dmc/dog-run", "mr.q", 0, 10, 1.0, {}))
    (row,) = script().ablation_rows(results, [])
    assert row[:5] == ("`dmc/fish-swim`", "20", "mr.q", "1.5 +- 1.3 (4)", "21.5 +- 1.3 (4)")
    assert row[5].startswith("-20.0 [-22.2, ")
    assert row[6:] == ("<0.01", "<0.01", "**below**", "")


def test_ablations_beside_the_authors_seeds_are_welchs():
    module, task, rng = script(), "dmc/fish-swim", np.random.default_rng(0)
    sides = {"dr.q": rng.normal(90, 9, 10), "mr.q": rng.normal(80, 20, 6)}
    theirs = rng.normal(100, 20, 8)
    results = [Result(task, name, s, 20, float(v), {}) for name, side in sides.items() for s, v in enumerate(side)]
    summary = (float(theirs.mean()), float(theirs.std(ddof=1)), len(theirs))
    compared = module.Compared(task, 20, 0.0, 1.0, 10, *summary, 0.0, 0.0, 0.0, 1.0, 1.0)
    (row,) = module.ablation_rows(results, [compared._replace(agent_steps=10, authors=0.0), compared])
    assert row[-1] == module.with_interval(difference(sides["mr.q"], theirs), "+.1f")


def test_pooled_seeds_are_those_of_one_sample():
    module, rng = script(), np.random.default_rng(0)
    a, b = rng.normal(90, 9, 10), rng.normal(80, 20, 6)
    both = module.pooled(module.sample(a), module.sample(b))
    assert both == pytest.approx(module.sample([*a, *b]))


def test_pictures_of_ablations_and_of_a_whole_budget(tmp_path):
    """A preset has its name in the legend; DR.Q is drawn no further than the others."""
    task = "dmc/fish-swim"
    results = [Result(task, "dr.q", s, step, float(step + s), {}) for s in range(4) for step in (10, 20, 30)]
    for name in ("mr.q", "a"):
        results += [Result(task, name, s, step, float(s), {}) for s in range(4) for step in (10, 20)]
    module, drawn = script(), []
    with pytest.MonkeyPatch.context() as patch:
        draw = module.draw_mean

        def watch(panel: Any, mine: list[Result], index: int, label: str) -> int:
            drawn.append((label, index, draw(panel, mine, index, label)))
            return drawn[-1][-1]

        patch.setattr(module, "draw_mean", watch)
        module.draw_ablations(results, tmp_path / "ablations.png")
        module.draw_curves(results, [], tmp_path / "budget.png")
    presets = [("dr.q (4 seeds)", 0, 20), ("a (4 seeds)", 1, 20), ("mr.q (4 seeds)", 2, 20)]
    assert drawn == [*presets, ("ours", 0, 30)]
    for name in ("ablations", "budget"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_interval_of_relative_differences_knows_that_both_means_are_estimates():
    module = script()
    rng = np.random.default_rng(0)
    sides = (150.0, 9.0, 400), (100.0, 20.0, 400)  # so many that Student's t is normal
    row = module.Compared("gym/Ant-v4", 100_000, *sides[0], *sides[1], 50.0, 40.0, 60.0, 0.1, 0.1)
    found = module.mean_difference([row])
    means = [rng.normal(mean, sd / count**0.5, 100_000) for mean, sd, count in sides]
    assert found == pytest.approx([0.5, *np.quantile(means[0] / means[1] - 1, (0.025, 0.975))], abs=0.001)
    assert "mean of" not in module.relative_table([row], [], [])  # 150 of 8,000 is too early
    two = module.mean_difference([row, row])
    assert two.value == pytest.approx(0.5)
    assert two.high - two.low == pytest.approx((found.high - found.low) / 2**0.5, rel=0.01)


def test_what_is_missing_is_listed():
    module = script()
    results = read_results([RESULTS / "evaluations.csv"])
    missing = module.missing(results)
    assert not {("gym/Hopper-v4", "dr.q"), ("dmc/humanoid-walk", "dr.q")} & {
        w[:2] for w in missing if w.steps == 100_000 and w.first_seed == 0
    }
    without = [r for r in results if not (r.task == "gym/Hopper-v4" and r.seed == 3 and r.agent_steps == 100_000)]
    assert ("gym/Hopper-v4", "dr.q", 10, 100_000, 0) in module.missing(without)
    for wanted in missing:
        assert module.missing_row(wanted)[1] in (ROOT / "docs" / "results.md").read_text()


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
