"""Aggregates from all seeds: rliable's where tasks have equally many, a plain bootstrap in loops where they do not."""

from pathlib import Path

import numpy as np
import pytest

from dr_q.cli import main
from dr_q.report import Result, build_report, compare, read_results
from dr_q.report import statistics as st
from dr_q.report.figures import FIGURES
from dr_q.report.html import data
from dr_q.report.tables import TABLES, tables_of
from dr_q.report.wording import compared_over
from tests.report.synthetic import synthetic_results

RUNS = Path(__file__).parents[2] / "results" / "runs"
NAMES = ("mean", "median", "iqm", "optimality_gap")
DRAWS = 3_000


def scores(rng: np.random.Generator, counts: tuple[int, ...]) -> st.Scores:
    """Of several tasks with so many seeds, with different levels and spreads."""
    return {f"t{i}": dict(enumerate(rng.normal(0.3 + 0.2 * i, 0.1 + 0.05 * i, n))) for i, n in enumerate(counts)}


def plain_aggregates(tasks: list[list[float]]) -> list[float]:
    """Mean, median, IQM and optimality gap in plain loops; every task has the same weight."""
    means = [sum(own) / len(own) for own in tasks]
    ordered = sorted((x, 1 / len(own) / len(tasks)) for own in tasks for x in own)
    kept, passed = [], 0.0
    for x, weight in ordered:
        passed += weight
        if passed > 0.25 + 1e-9 and 1 - passed + weight > 0.25 + 1e-9:
            kept.append((x, weight))
    iqm = sum(x * w for x, w in kept) / sum(w for _, w in kept)
    short = [sum(min(x, 1.0) for x in own) / len(own) for own in tasks]
    middle = sorted(means)
    half = len(middle) // 2
    median = middle[half] if len(middle) % 2 else (middle[half - 1] + middle[half]) / 2
    return [sum(means) / len(means), median, iqm, 1 - sum(short) / len(short)]


def plain_bootstrap(tasks: list[list[float]], function=plain_aggregates, seed: int = 1) -> np.ndarray:
    """[2, values]: the 2.5% and 97.5% quantiles of what the function gives for seeds drawn anew within each task."""
    rng = np.random.default_rng(seed)
    drawn = [function([[own[rng.integers(len(own))] for _ in own] for own in tasks]) for _ in range(DRAWS)]
    return np.quantile(np.array(drawn), (0.025, 0.975), axis=0)


def assert_close(found: st.Estimate, value: float, ends: np.ndarray) -> None:
    """The value exactly, the interval within the bootstrap's own error."""
    assert found.value == pytest.approx(value)
    assert found[1:] == pytest.approx(ends, abs=0.1 * (ends[1] - ends[0]))


def test_with_equally_many_seeds_aggregates_are_rliables():
    from rliable import library, metrics

    given = scores(np.random.default_rng(0), (6,) * 7)
    values = np.array([list(seeds.values()) for seeds in given.values()]).T
    functions = (
        metrics.aggregate_mean,
        metrics.aggregate_median,
        metrics.aggregate_iqm,
        metrics.aggregate_optimality_gap,
    )

    def every(x: np.ndarray) -> np.ndarray:
        return np.array([function(x) for function in functions])

    points, intervals = library.get_interval_estimates({"a": values}, every, reps=2_000)  # pyright: ignore
    found = st.aggregates(given)
    for i, name in enumerate(NAMES):
        assert_close(getattr(found, name), points["a"][i], intervals["a"][:, i])


def test_with_equally_many_seeds_profiles_are_rliables():
    from rliable import library

    given = scores(np.random.default_rng(0), (6,) * 7)
    values = np.array([list(seeds.values()) for seeds in given.values()]).T
    thresholds = np.linspace(0, 2, 9)
    shares, _ = library.create_performance_profile({"a": values}, thresholds, reps=2)  # pyright: ignore
    found = st.profile(given, thresholds)
    assert [share.value for share in found] == pytest.approx(list(shares["a"]))


@pytest.mark.parametrize("counts", [(3, 20, 10), (4, 5, 12, 3, 7)])
def test_with_unequal_numbers_all_seeds_count_and_tasks_weigh_the_same(counts):
    given = scores(np.random.default_rng(len(counts)), counts)
    tasks = [list(seeds.values()) for seeds in given.values()]
    values, ends = plain_aggregates(tasks), plain_bootstrap(tasks)
    found = st.aggregates(given)
    for i, name in enumerate(NAMES):
        assert_close(getattr(found, name), values[i], ends[:, i])
    assert found.seeds == (min(counts), max(counts))
    assert_close(st.mean_with_bootstrap(given), values[0], ends[:, 0])
    thresholds = [0.2, 0.5, 0.9]

    def shares(drawn: list[list[float]]) -> list[float]:
        return [float(np.mean([np.mean(np.array(own) > x) for own in drawn])) for x in thresholds]

    for estimate, value, *interval in zip(
        st.profile(given, np.array(thresholds)), shares(tasks), *plain_bootstrap(tasks, shares), strict=True
    ):
        assert estimate.value == pytest.approx(value)
        assert estimate[1:] == pytest.approx(interval, abs=0.03)


def test_a_difference_over_tasks_draws_the_seeds_of_both_sides():
    rng = np.random.default_rng(4)
    a, b = scores(rng, (5, 10, 3)), scores(rng, (10, 10, 4))
    tasks = [list(seeds.values()) for side in (a, b) for seeds in side.values()]

    def gap(drawn: list[list[float]]) -> list[float]:
        return [float(np.mean([np.mean(x) - np.mean(y) for x, y in zip(drawn[:3], drawn[3:], strict=True)]))]

    assert_close(st.bootstrap_difference(a, b), gap(tasks)[0], plain_bootstrap(tasks, gap)[:, 0])


def test_a_probability_of_improvement_is_of_all_seeds():
    rng = np.random.default_rng(5)
    a, b = scores(rng, (5, 10, 3)), scores(rng, (10, 8, 4))
    wins = [[np.mean([(x > y) + 0.5 * (x == y) for y in b[task].values()]) for x in a[task].values()] for task in a]
    assert st.overall(a, b)[1].value == pytest.approx(np.mean([np.mean(own) for own in wins]))


BY_HAND = {
    ("dmc-easy", "dr.q"): (0.796, 0.754, 0.831),
    ("gym", "dr.q"): None,
    ("dmc-hard", "mr.q"): None,
    ("dmc-hard", "only-lap"): None,
}
"""The first as it was computed elsewhere; the others by the script below, from the runs' own files."""


@pytest.mark.parametrize(("suite", "preset"), BY_HAND, ids=lambda x: x)
def test_published_runs_give_what_a_script_of_its_own_gives(suite, preset):
    import csv
    import json

    from dr_q.paper import paper_tasks

    last: dict[str, dict[int, tuple[int, float]]] = {}
    for folder in RUNS.iterdir():
        settings = json.loads((folder / "run.json").read_text())["settings"]
        info = paper_tasks()[settings["task"]]
        if (info.suite, settings["preset"]) != (suite, preset):
            continue
        with (folder / "evals.csv").open() as file:
            for row in csv.DictReader(file):
                seed = int(row["seed"])
                entry = (int(row["agent_steps"]), info.normalise(float(row["return_mean"])))
                last.setdefault(info.name, {})[seed] = max(last.get(info.name, {}).get(seed, (-1, 0.0)), entry)
    tasks = [[score for _, score in seeds.values()] for seeds in last.values()]
    values, ends = plain_aggregates(tasks), plain_bootstrap(tasks)
    report = build_report(read_results([RUNS]))
    (found,) = [a for a in report.aggregates if (a.suite, a.name) == (suite, preset)]
    for i, estimate in enumerate((found.mean, found.median, found.iqm, found.optimality_gap)):
        assert isinstance(estimate, st.Estimate)
        assert_close(estimate, values[i], ends[:, i])
    if (by_hand := BY_HAND[suite, preset]) is not None:
        assert found.mean == pytest.approx(by_hand, abs=0.003)
        means = report.means_of(suite)
        assert means is not None
        assert means.ours[preset] == found.mean, "the same figure in every place"


def curves(preset: str, tasks: dict[str, tuple[int, ...]], level: float = 500.0, seeds: int = 4) -> list[Result]:
    rng = np.random.default_rng(len(preset))
    return [
        Result(task, preset, seed, step, float(rng.normal(level + step / 1_000, 5)), {})
        for task, steps in tasks.items()
        for seed in range(seeds)
        for step in steps
    ]


@pytest.fixture(scope="module")
def uneven():
    """dr.q on three tasks to 500k, mr.q on two of them and one other to 100k."""
    long, short = (50_000, 100_000, 500_000), (50_000, 100_000)
    ours = {"dmc/cheetah-run": long, "dmc/walker-run": long, "dmc/fish-swim": long}
    theirs = {"dmc/cheetah-run": short, "dmc/walker-run": short, "dmc/reacher-easy": short}
    return curves("dr.q", ours) + curves("mr.q", theirs, 400.0)


def test_presets_are_compared_over_tasks_and_steps_in_common(uneven):
    report = build_report(uneven)
    (ground,) = report.grounds
    assert ground.steps == {"dmc/cheetah-run": 100_000, "dmc/walker-run": 100_000}
    assert ground.left_out == ["dmc/fish-swim", "dmc/reacher-easy"]
    ours = {a.name: a for a in report.aggregates if a.ours}
    assert {name: (a.tasks, a.steps) for name, a in ours.items()} == {
        "dr.q": (2, (100_000, 100_000)),
        "mr.q": (2, (100_000, 100_000)),
    }
    expected = [
        r.score / 1000 for r in uneven if r.preset == "dr.q" and r.task in ground.steps and r.agent_steps == 100_000
    ]
    assert isinstance(ours["dr.q"].mean, st.Estimate)
    assert ours["dr.q"].mean.value == pytest.approx(np.mean(expected))
    assert {(a.name, a.tasks, a.steps) for a in report.own_aggregates} == {
        ("dr.q", 3, (500_000, 500_000)),
        ("mr.q", 3, (100_000, 100_000)),
    }
    assert {(p.preset, p.tasks) for p in report.profiles} == {("dr.q", 2), ("mr.q", 2)}
    said = "DMC easy: compared over 2 tasks that all 2 presets have, at 100,000 steps."
    assert compared_over(ground).startswith(said)
    assert said in " ".join(TABLES["aggregates"](report).notes)
    assert data(report)["grounds"]["dmc-easy"].startswith(said), "under the page's profiles"
    steps = {(f.task, f.preset): f.step for f in report.side_by_side}
    assert set(steps.values()) == {100_000}
    assert len(steps) == 4, "tasks of one preset are not side by side with anything"
    assert {f.step for f in report.finals if f.preset == "dr.q"} == {500_000}, "single scores are the last ones"
    (footer,) = [row for row in tables_of(report)[0].footer if "2 with runs" in str(row.cells[0])]
    assert footer.cells[0] == "Mean of the 2 with runs, at common steps"


def test_a_step_can_be_given(uneven, tmp_path, capsys):
    report = build_report(uneven, at=60_000)
    assert {f.step for f in report.finals} == {50_000}
    assert set(report.grounds[0].steps.values()) == {50_000}
    assert {row.agent_steps for one in report.comparisons for row in one.pair.tasks} == {50_000}
    for name in ("aggregates", "profiles", "ablations"):
        FIGURES[name](report, tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 5_000
    from dr_q.report import write_results

    write_results(uneven, tmp_path / "results.csv")
    command = ["report", str(tmp_path / "results.csv"), "--out", str(tmp_path / "report"), "--at"]
    assert main([*command, "10"]) == 2
    assert "no evaluation up to 10 steps; the first is at 50,000" in capsys.readouterr().err
    assert main([*command, "60000"]) == 0
    assert "50,000" in (tmp_path / "report" / "tables" / "aggregates.csv").read_text()


def test_presets_without_a_task_in_common_are_not_side_by_side():
    report = build_report(curves("a", {"dmc/cheetah-run": (10,)}) + curves("b", {"dmc/walker-run": (10,)}))
    assert not [a for a in report.aggregates if a.ours]
    assert not report.profiles
    assert {a.name for a in report.own_aggregates} == {"a", "b"}
    assert "DMC easy: a, b have no task and step in common." in TABLES["aggregates"](report).notes


def test_one_preset_alone_has_its_aggregates_and_no_others():
    report = build_report(
        synthetic_results(("dmc/cheetah-run", "gym/Ant-v4"), {"dr.q": "DR.Q"}, seeds=2, checkpoints=2)
    )
    assert not report.own_aggregates, "two seeds give no interval, which is not a difference"
    assert len([a for a in report.aggregates if a.ours]) == 2


def test_more_runs_better_without_a_better_mean_is_explained():
    """Nine of ten runs a little better, one far worse."""
    rng = np.random.default_rng(0)
    theirs = list(rng.normal(500, 4, 10))
    ours = [*(rng.normal(520, 4, 9)), 100.0]
    sides = [
        [Result("dmc/cheetah-run", name, seed, 10, float(x), {}) for seed, x in enumerate(side)]
        for name, side in (("b", ours), ("dr.q", theirs))
    ]
    found = compare(sides[0], sides[1], ("b", "dr.q"))
    assert found.ranks_differ
    text = " ".join(found.sentences())
    assert "A single run of b is better than one of dr.q more often than not" in text
    assert "b's probability" not in text
    table = TABLES["improvement"](build_report(sides[0] + sides[1]))
    assert "DMC easy, b: the probability's interval excludes 0.5" in table.notes[0]
    assert not compare(sides[0][:9], sides[1], ("b", "dr.q")).ranks_differ, "there the means differ too"
