"""Statistics against what is known, and what a comparison may say."""

import json

import numpy as np
import pytest

from dr_q.cli import main
from dr_q.report import Result, build_report, compare
from dr_q.report import statistics as st
from dr_q.report.verdicts import DIFFERENCE_VERDICTS, difference_verdict, interval_verdict
from dr_q.report.wording import findings


def results(preset: str, scores: dict[str, list[float]], steps: tuple[int, ...] = (0, 1000)) -> list[Result]:
    return [
        Result(task, preset, seed, step, value * (step + 1) / (steps[-1] + 1), {})
        for task, values in scores.items()
        for seed, value in enumerate(values)
        for step in steps
    ]


RNG = np.random.default_rng(0)
GOOD = {task: list(RNG.normal(800, 30, 10)) for task in ("dmc/walker-run", "dmc/cheetah-run", "dmc/fish-swim")}
BAD = {task: list(RNG.normal(600, 30, 10)) for task in GOOD}


def test_final_scores_are_at_the_last_step_that_every_seed_has():
    rows = results("a", {"dmc/walker-run": [10.0, 20.0]}, (0, 5, 9))
    rows.append(Result("dmc/walker-run", "a", 0, 20, 99.0, {}))  # seed 1 is not there yet
    scores, steps = st.final_scores(rows)
    assert steps == {"dmc/walker-run": 9}
    assert scores == {"dmc/walker-run": {0: 10.0, 1: 20.0}}
    assert st.final_scores(rows, at=6)[1] == {"dmc/walker-run": 5}


def test_a_mean_curve_has_the_steps_of_all_seeds():
    rows = results("a", {"t": [10.0, 20.0, 30.0]}, (0, 5, 9))
    rows.append(Result("t", "a", 0, 20, 99.0, {}))  # the other seeds are not there yet
    found = st.mean_curve(st.by_seed(rows))
    assert (found.steps, found.seeds) == ([0, 5, 9], 3)
    assert [value.value for value in found.values] == [2, 12, 20]
    assert found.values[-1] == st.mean([10.0, 20.0, 30.0])
    assert st.mean_curve({}) == ([], [], 0)
    assert st.mean_curve({0: {1: 2.0}, 1: {2: 2.0}}) == ([], [], 2)


def test_intervals_of_samples_are_those_of_their_seeds():
    a, b = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9], [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0]
    assert st.sample_mean(st.sample(a)) == pytest.approx(st.mean(a))
    assert st.sample_difference(st.sample(a), st.sample(b)) == pytest.approx(st.difference(a, b))
    assert np.isnan(st.sample_mean(st.sample(a[:2])).low)
    assert np.isnan(st.sample(a[:1]).deviation)


def test_welch_interval_is_that_of_the_textbook():
    a, b = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9], [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0]
    estimate = st.difference(a, b)
    assert estimate.value == pytest.approx(np.mean(a) - np.mean(b))
    # By hand: standard error and Welch-Satterthwaite degrees of freedom.
    va, vb = np.var(a, ddof=1) / 6, np.var(b, ddof=1) / 8
    degrees = (va + vb) ** 2 / (va**2 / 5 + vb**2 / 7)
    from scipy.stats import t

    half = t.ppf(0.975, degrees) * np.sqrt(va + vb)
    assert (estimate.low, estimate.high) == pytest.approx((estimate.value - half, estimate.value + half))


def test_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(1)
    inside = [st.difference(rng.normal(1, 1, 10), rng.normal(0, 3, 10)) for _ in range(400)]
    assert 0.92 < np.mean([e.low < 1 < e.high for e in inside]) < 0.98
    means = [st.mean(rng.normal(5, 2, 10)) for _ in range(400)]
    assert 0.92 < np.mean([e.low < 5 < e.high for e in means]) < 0.98


def test_improvement_counts_pairs_and_halves_ties():
    assert st.improvement([2.0, 3.0], [1.0]) == 1
    assert st.improvement([1.0], [1.0]) == 0.5
    assert st.improvement([0.0, 2.0], [1.0, 1.0]) == 0.5


def of_tasks(rng: np.random.Generator, counts: tuple[int, ...]) -> st.Scores:
    return {f"t{i}": dict(enumerate(rng.normal(i, 1 + i, n).round(1))) for i, n in enumerate(counts)}


def test_overall_improvement_is_rliables():
    from rliable import metrics

    rng = np.random.default_rng(4)
    a, b = of_tasks(rng, (5, 5, 5)), of_tasks(rng, (6, 6, 6))
    _, chance = st.overall(a, b)
    tables = [np.array([list(seeds.values()) for seeds in side.values()]).T for side in (a, b)]
    assert chance.value == pytest.approx(metrics.probability_of_improvement(*tables))
    assert chance.low < chance.value < chance.high


def test_overall_of_one_task_is_its_own_and_every_seed_counts():
    rng = np.random.default_rng(5)
    a, b = of_tasks(rng, (10, 5)), of_tasks(rng, (10, 10))
    gap, chance = st.overall({"t0": a["t0"]}, {"t0": b["t0"]})
    assert gap == pytest.approx(st.difference(a["t0"].values(), b["t0"].values()))
    assert chance.value == st.improvement(a["t0"].values(), b["t0"].values())
    both = [st.difference(a[task].values(), b[task].values()).value for task in a]
    assert st.overall(a, b)[0].value == pytest.approx(np.mean(both))
    assert np.isnan(st.overall(a, {"t0": b["t0"], "t1": {0: 1.0, 1: 2.0}})[0].low)
    apart = st.overall({"t0": {0: 1.0, 1: 2.0, 2: 3.0}}, {"t0": {0: 4.0, 1: 5.0, 2: 6.0}})[1]
    assert apart.value == 0
    assert np.isnan(apart.low), "three seeds against three do not make it certain"


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_overall_intervals_seldom_exclude_that_nothing_differs(seeds):
    rng = np.random.default_rng(seeds)
    found = [st.overall(*(of_tasks(rng, (seeds, seeds + 2)) for _ in range(2))) for _ in range(600)]
    assert np.mean([not gap.low <= 0 <= gap.high for gap, _ in found]) < 0.075
    assert np.mean([not chance.low <= 0.5 <= chance.high for _, chance in found]) < 0.09


def test_aggregates_of_known_scores():
    scores = {f"t{i}": dict(enumerate([0.1 * i + 0.01 * s for s in range(4)])) for i in range(8)}
    found = st.aggregates(scores)
    values = np.array([list(s.values()) for s in scores.values()])
    assert (found.seeds, found.tasks) == ((4, 4), 8)
    assert found.mean.value == pytest.approx(values.mean())
    assert found.median.value == pytest.approx(np.median(values.mean(axis=1)))
    middle = np.sort(values.ravel())[8:24]
    assert found.iqm.value == pytest.approx(middle.mean())
    assert found.optimality_gap.value == pytest.approx(1 - np.minimum(values, 1).mean())
    for estimate in found[:4]:
        assert estimate.low <= estimate.value <= estimate.high
    assert found == st.aggregates(scores), "the same numbers every time"


def test_few_seeds_give_no_interval():
    assert np.isnan(st.mean([1.0, 2.0]).low)
    assert np.isnan(st.difference([1.0, 2.0], [1.0, 2.0, 3.0]).low)
    assert np.isnan(st.aggregates({"a": {0: 1.0}}).mean.low)


def test_p_values_agree_with_the_interval_and_with_chance():
    rng = np.random.default_rng(3)
    found = [(rng.normal(0, 1, 10), rng.normal(0, 3, 8)) for _ in range(600)]
    chances = np.array([st.difference_p(a, b) for a, b in found])
    excluded = [not gap.low <= 0 <= gap.high for gap in (st.difference(a, b) for a, b in found)]
    assert np.array_equal(chances < 0.05, excluded)
    assert 0.03 < np.mean(chances < 0.05) < 0.07  # nothing differs: one in twenty
    from scipy.stats import ttest_ind

    assert chances[:20] == pytest.approx([ttest_ind(a, b, equal_var=False).pvalue for a, b in found[:20]])  # pyright: ignore
    alike = [1000.0, 1000.0, 1000.0 + 1e-10]
    assert 0 <= st.difference_p(alike, [1000.0] * 3) <= 1, "scipy's own test warns of such scores"
    assert np.isnan(st.difference_p([1.0, 2.0], [1.0, 2.0, 3.0]))
    assert (st.difference_p([1.0] * 3, [1.0] * 3), st.difference_p([1.0] * 3, [2.0] * 3)) == (1.0, 0.0)


def test_holm_by_hand():
    assert st.holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert st.holm([0.6, 0.7]) == [1.0, 1.0]
    assert st.holm([]) == []
    assert st.holm([0.01, np.nan, 0.04])[::2] == [0.02, 0.04]
    assert np.isnan(st.holm([0.01, np.nan, 0.04])[1]), "what was not tested does not count"


def test_a_clear_difference_is_said_with_its_limits():
    found = compare(results("good", GOOD), results("bad", BAD), ("good", "bad"))
    assert [row.verdict for row in found.tasks] == ["above"] * 3
    assert found.difference is not None
    assert found.improvement is not None
    assert found.difference.value == pytest.approx(0.2, abs=0.03)
    assert found.improvement.value > 0.99
    text = " ".join(found.sentences())
    assert "good is better on average over these tasks" in text
    assert "Nothing follows for other tasks" in text
    for row in found.tasks:
        for of, scores in zip(row.samples, (GOOD, BAD), strict=True):
            assert of == pytest.approx(st.sample(scores[row.task]))
        assert row.difference == pytest.approx(st.difference(GOOD[row.task], BAD[row.task]))
    turned = compare(results("bad", BAD), results("good", GOOD), ("bad", "good"))
    assert [row.verdict for row in turned.tasks] == ["below"] * 3


def test_a_difference_is_called_only_if_it_is_significant_after_holms_correction():
    assert [difference_verdict(gap, p) for gap, p in ((1.0, 0.049), (-1.0, 0.049), (1.0, 0.05), (1.0, np.nan))] == list(
        DIFFERENCE_VERDICTS
    )
    rng = np.random.default_rng(8)
    same = {f"t{i}": list(rng.normal(0, 1, 10)) for i in range(40)}
    other = {task: list(rng.normal(0, 1, 10)) for task in same}
    found = compare(results("a", same), results("b", other), ("a", "b"))
    excluded = [row for row in found.tasks if not row.difference.low <= 0 <= row.difference.high]
    assert excluded, "of 40 intervals some exclude 0 by chance"
    assert {row.verdict for row in found.tasks} == {"no significant difference"}
    (alone,) = compare(results("a", {excluded[0].task: same[excluded[0].task]}), results("b", other), ("a", "b")).tasks
    assert alone.verdict != "no significant difference", "one test alone needs no correction"
    assert alone.verdict == interval_verdict(alone.difference)


def test_one_clear_task_among_unclear_ones_is_called_and_its_correction_said():
    other = {**GOOD, "dmc/fish-swim": BAD["dmc/fish-swim"]}
    found = compare(results("a", GOOD), results("b", other), ("a", "b"))
    assert "a is above on dmc/fish-swim (p-values are Holm-corrected for 3 tasks)." in found.sentences()
    few = compare(
        results("a", {**GOOD, "dmc/dog-run": [1.0, 2.0]}), results("b", {**other, "dmc/dog-run": [1.0]}), ("a", "b")
    )
    assert "a is above on dmc/fish-swim (p-values are Holm-corrected for 3 tasks)." in few.sentences()
    assert [row.verdict for row in few.tasks if row.task == "dmc/dog-run"] == ["too few seeds"]
    one = {"dmc/fish-swim": GOOD["dmc/fish-swim"]}
    assert "a is above on dmc/fish-swim." in compare(results("a", one), results("b", BAD), ("a", "b")).sentences()


def test_a_report_corrects_for_the_tasks_of_all_suites_as_compare_does():
    tasks = ("gym/Ant-v4", "dmc/cheetah-run", "dmc/dog-run", "hbench/h1-walk-v0")
    rng = np.random.default_rng(2)
    sides = {
        name: {task: list(rng.normal(level, 30, 6)) for task in tasks} for name, level in (("dr.q", 50), ("b", 90))
    }
    both = {name: results(name, scores) for name, scores in sides.items()}
    found = compare(both["b"], both["dr.q"], ("b", "dr.q"))
    report = build_report(both["dr.q"] + both["b"])
    rows = {row.task: row for one in report.comparisons for row in one.pair.tasks}
    assert len(report.comparisons) == 4, "four suites"
    assert rows == {row.task: row for row in found.tasks}
    assert len({row.verdict for row in found.tasks}) == 2
    assert findings(report)[-1].endswith(". P-values are Holm-corrected for 4 tasks.")


def test_no_difference_is_not_called_equality():
    same = {task: [value + 1 for value in values] for task, values in GOOD.items()}
    found = compare(results("a", GOOD), results("b", same), ("a", "b"))
    text = " ".join(found.sentences())
    assert "on average over these tasks there is no significant difference" in text
    assert "On 3 tasks there is no significant difference (p-values are Holm-corrected for 3 tasks)." in text
    assert "This does not mean that there is none" in text


def test_own_tasks_count_for_themselves_and_single_sided_ones_are_named():
    mine = {"callable:my.Env": [1.0, 2.0, 3.0, 4.0]}
    found = compare(results("a", {**mine, "gym/Ant-v4": [1.0]}), results("b", mine), ("a", "b"))
    assert found.difference is None, "no normalisation is known"
    assert found.left_out == ["gym/Ant-v4"]
    assert "only one side has them: gym/Ant-v4" in " ".join(found.sentences())


def write(path, rows):
    from dr_q.report import write_results

    write_results(rows, path)
    return str(path)


def test_the_command_compares_presets_of_one_file(tmp_path, capsys):
    path = write(tmp_path / "all.csv", results("dr.q", GOOD) + results("mr.q", BAD))
    assert main(["compare", f"{path}@dr.q", f"{path}@mr.q"]) == 0
    text = capsys.readouterr().out
    assert "dmc/fish-swim" in text
    assert "dr.q is better on average over these tasks" in text
    assert main(["compare", f"{path}@dr.q", f"{path}@mr.q", "--at", "10", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tasks"][0]["agent_steps"] == 0
    assert main(["compare", f"{path}@dr.q", f"{path}@mr.q", "--json"]) == 0
    tasks = json.loads(capsys.readouterr().out)["tasks"]
    assert [(side["seeds"], round(side["mean"], 9)) for side in tasks[0]["samples"]] == [
        (10, round(float(np.mean(side[tasks[0]["task"]])), 9)) for side in (GOOD, BAD)
    ]
    corrected = st.holm([st.difference_p(GOOD[t["task"]], BAD[t["task"]]) for t in tasks])
    assert [t["p_holm"] for t in tasks] == pytest.approx(corrected, rel=1e-9)
    one = write(tmp_path / "one.csv", results("one", {task: values[:1] for task, values in GOOD.items()}))
    assert main(["compare", one, f"{path}@mr.q"]) == 0
    text = capsys.readouterr().out
    assert "fewer than 3 seeds a side, no interval" in text
    assert "probability" not in text
    assert main(["compare", one, f"{path}@mr.q", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tasks"][0]["p"] is None
    for arguments, message in (
        ([path, path], "has several presets; choose one: "),
        ([f"{path}@dr.q", f"{path}@dr.q"], "have the same results: there is nothing to compare"),
        ([f"{path}@sac", path], "has no results of preset 'sac'; it has dr.q, mr.q"),
        ([f"{path}@dr.q", str(tmp_path / "nowhere")], "is not there"),
    ):
        assert main(["compare", *arguments]) == 2
        assert message in capsys.readouterr().err
    other = write(tmp_path / "other.csv", results("x", {"gym/Ant-v4": [1.0, 2.0, 3.0]}))
    assert main(["compare", f"{path}@dr.q", other]) == 2
    assert "have no task in common" in capsys.readouterr().err
