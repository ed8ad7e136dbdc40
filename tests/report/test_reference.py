"""Reference curves: other people's files, and our runs compared with them at equal steps."""

import csv
import json

import numpy as np
import pytest

from dr_q.cli import main
from dr_q.kit import ConfigError
from dr_q.paper import paper_tasks, published_score
from dr_q.report import Result, build_report, compare_with_reference, read_references, write_report, write_results
from dr_q.report import statistics as st
from dr_q.report.html import data
from dr_q.report.reference import ALL_SUITES
from dr_q.report.table_files import latex_text
from dr_q.report.tables import TABLES
from dr_q.report.wording import findings, reference_sentence
from tests.report.browser import browser, needs_chromium, opened

TASKS = ("gym/Ant-v4", "dmc/cheetah-run", "dmc/walker-run", "hbench/h1-walk-v0", "dmc-visual/walker-run")
AUTHORS = ("Ant_v4", "cheetah_run", "walker_run", "h1_walk_v0", "visual_walker_run")
LEVELS = {task: published_score(task).mean for task in TASKS}  # pyright: ignore[reportOptionalMemberAccess]


def our_results(shift: float = 0.0, seeds: int = 5, steps: tuple[int, ...] = (0, 25_000, 50_000)) -> list[Result]:
    rng = np.random.default_rng(1)
    return [
        Result(task, "dr.q", seed, step, float(LEVELS[task] * (step / 1e5 + shift + rng.normal(0, 0.02))), {})
        for task in TASKS
        for seed in range(seeds)
        for step in steps
    ]


def write_authors(path, name: str = "drq", seeds: int = 10) -> None:
    """As the authors' repository has it: frames, underscores, a column without a name, another metric."""
    rng = np.random.default_rng(2)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["", "exp_name", "env_name", "seed", "metric", "env_step", "value"])
        for task, theirs in zip(TASKS, AUTHORS, strict=True):
            repeat = paper_tasks()[task].action_repeat
            for seed in range(seeds):
                for step in (0, 25_000, 50_000, 100_000):
                    score = LEVELS[task] * (step / 1e5 + rng.normal(0, 0.02))
                    writer.writerow([0, name, theirs, f"{10.0 * seed}", "avg_return", float(step * repeat), score])
                    writer.writerow([0, name, theirs, f"{10.0 * seed}", "avg_success", float(step * repeat), 0.5])
        writer.writerow([0, name, "h1hand_cabinet_v0", 0, "avg_return", 0, 1.0])


@pytest.fixture
def authors(tmp_path):
    write_authors(tmp_path / "drq.csv")
    return tmp_path / "drq.csv"


def test_the_authors_file_is_read_as_it_is(authors):
    (found,) = read_references([authors])
    assert (found.name, found.algorithm) == ("DR.Q (drq.csv)", "DR.Q")
    assert found.unknown_tasks == ["h1hand_cabinet_v0"]
    assert {r.task for r in found.results} == set(TASKS)
    assert {r.agent_steps for r in found.results} == {0, 25_000, 50_000, 100_000}, "agent steps, not frames"
    assert {r.seed for r in found.results} == set(range(0, 100, 10))
    assert len(found.results) == 5 * 10 * 4, "returns only"


def test_names_of_tasks_with_hyphens_and_agent_steps_are_read_too(tmp_path):
    text = "env_id,seed,agent_step,value\nvisual-walker-run,0,25000,1.5\nh1-walk-v0,0,25000,2.5\nnothing,0,0,1\n"
    (tmp_path / "curves.csv").write_text(text)
    (found,) = read_references([tmp_path / "curves.csv"])
    assert [r[:1] + r[2:5] for r in found.results] == [
        ("dmc-visual/walker-run", 0, 25_000, 1.5),
        ("hbench/h1-walk-v0", 0, 25_000, 2.5),
    ]
    assert (found.name, found.algorithm) == ("curves (curves.csv)", None)


@pytest.mark.parametrize(
    ("name", "algorithm"), [("fog", "FoG"), ("simbaV2_utd2", "SimBaV2"), ("simba", "SimBa"), ("mine", None)]
)
def test_algorithms_are_known_by_their_names(name, algorithm, tmp_path):
    write_authors(tmp_path / "file.csv", name, seeds=1)
    (found,) = read_references([tmp_path / "file.csv"])
    assert (found.algorithm, found.name) == (algorithm, f"{algorithm or name} (file.csv)")


def test_our_own_format_gives_a_reference_for_each_preset(tmp_path):
    rows = our_results() + [r._replace(preset="theirs") for r in our_results(0.1)]
    write_results(rows, tmp_path / "results.csv")
    found = read_references([tmp_path / "results.csv"])
    assert [(x.name, x.algorithm) for x in found] == [("DR.Q (results.csv)", "DR.Q"), ("theirs (results.csv)", None)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not a file; give a CSV file of dr-q results, or results/drq.csv"),
        ("a,b\n1,2\n", "has the columns a, b; a reference needs task, preset, seed"),
        ("env_name,seed,env_step,value\nnothing,0,0,1\n", "has none of the paper's tasks; it has nothing"),
        ("env_name,seed,env_step,value\nAnt_v4,0,x,1\n", "line 2: seed, env_step and value must be numbers"),
        ("env_name,seed,env_step,value\nAnt_v4,0,0,nan\n", "line 2: seed, env_step and value must be numbers"),
        ("env_name,seed,env_step,value\nAnt_v4,0,0,1\nAnt_v4,0,0,2\n", "line 3: a second value for Ant_v4, seed 0"),
    ],
)
@pytest.mark.parametrize("command", ["report", "compare", "plot"])
def test_files_that_are_no_reference_are_refused_in_one_line(command, text, message, tmp_path, capsys):
    write_results(our_results(), tmp_path / "ours.csv")
    if text is not None:
        (tmp_path / "file.csv").write_text(text)
    out = {"report": ["--out", str(tmp_path / "out")], "plot": ["--out", str(tmp_path / "out.png")]}.get(command, [])
    source = [command, str(tmp_path / "ours.csv"), "--reference", str(tmp_path / "file.csv")]
    assert main([*source, *out]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


HEAD = b"env_name,seed,env_step,value\n"
RIGHT = b"Ant_v4,0,0,1\n"


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        (HEAD + RIGHT + b"Ant_v4,0,0," + b"1" * 200_000 + b"\n", 1, "line 3: field larger than field limit"),
        (b"x" * 200_000 + b"," + HEAD + RIGHT, 1, "is not a CSV file: line 1: field larger than field limit"),
        (HEAD + RIGHT + b"\xffnt_v4,0,0,1\n", 1, "is not a CSV file: line 3 is not text in UTF-8; fix or remove"),
        (HEAD + RIGHT + b"Ant_v4,0\n", 1, "is damaged in line 3: it has too many or too few values; fix or remove"),
        (HEAD + b"\n" + RIGHT + b"0\n", 1, "is damaged in line 4: it has too many or too few values"),
        (HEAD + RIGHT + b"Ant_v4,0,0,1,2\n", 1, "is damaged in line 3: it has too many or too few values"),
        (HEAD + b"Ant_v4,0,1e400,1\n", 2, "line 2: seed, env_step and value must be numbers, finite and at most"),
        (HEAD + b"Ant_v4,1e300,0,1\n", 2, "line 2: seed, env_step and value must be numbers, finite and at most"),
        (HEAD + b"Ant_v4,0,0," + b"x" * 100_000 + b"\n", 2, "x... (100,002 characters); fix or remove that line"),
    ],
)
@pytest.mark.parametrize("command", ["report", "compare", "plot"])
def test_a_damaged_reference_is_said_in_one_line(command, data, code, message, tmp_path, capsys):
    write_results(our_results(), tmp_path / "ours.csv")
    file = tmp_path / "file.csv"
    file.write_bytes(data)
    out = {"report": ["--out", str(tmp_path / "out")], "plot": ["--out", str(tmp_path / "out.png")]}.get(command, [])
    assert main([command, str(tmp_path / "ours.csv"), "--reference", str(file), *out]) == code
    said, error = capsys.readouterr()
    assert message in error
    assert (said, error.count("\n")) == ("", 1)
    assert len(error) < 1_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.csv", "ours.csv"]


def test_suites_are_compared_in_shares_of_the_published_score(authors):
    ours, (reference,) = our_results(0.05), read_references([authors])
    found = compare_with_reference(ours, reference, "dr.q", 50_000)
    assert found is not None
    assert {row.agent_steps for row in found.pair.tasks} == {50_000}
    assert [one.suite for one in found.suites] == [ALL_SUITES, "gym", "dmc-easy", "dmc-visual", "hbench"]
    assert [one.tasks for one in found.suites] == [5, 1, 2, 1, 1]
    over = found.suites[0]
    assert over.seeds == ((5, 5), (10, 10))
    gaps = []
    for task in TASKS:
        a, b = (
            [r.score for r in side if r.task == task and r.agent_steps == 50_000] for side in (ours, reference.results)
        )
        gap = st.difference(a, b)
        assert found.shares[task] == pytest.approx([x / LEVELS[task] for x in gap])
        gaps.append(gap.value / LEVELS[task])
    assert over.difference.value == pytest.approx(np.mean(gaps))
    assert over.difference.value == pytest.approx(over.ours.value - over.theirs.value)
    assert over.difference.low < 0.05 < over.difference.high
    assert [row.task for row in found.sorted_tasks()] == [TASKS[i] for i in np.argsort(gaps)[::-1]]
    corrected = st.holm([row.p for row in found.pair.tasks])
    assert [row.p_holm for row in found.pair.tasks] == pytest.approx(corrected)
    assert len(found.missing) == 73 - 5
    assert set(found.missing).isdisjoint(TASKS)


def test_without_a_step_each_task_is_compared_at_its_last_in_common(authors):
    (reference,) = read_references([authors])
    ours = [r for r in our_results() if r.task != "gym/Ant-v4" or r.agent_steps <= 25_000]
    found = compare_with_reference(ours, reference, "dr.q")
    assert found is not None
    assert {row.task: row.agent_steps for row in found.pair.tasks} == {
        task: 25_000 if task == "gym/Ant-v4" else 50_000 for task in TASKS
    }
    assert compare_with_reference(ours, reference, "dr.q", 30_000) is None


def test_where_neither_side_has_begun_nothing_is_said(authors):
    (reference,) = read_references([authors])
    low = [r._replace(score=0.01 * r.score) for r in reference.results]
    ours = [r._replace(score=0.01 * r.score) for r in our_results()]
    found = compare_with_reference(ours, reference._replace(results=low), "dr.q", 50_000)
    assert found is not None
    assert {found.verdict(row) for row in found.pair.tasks} == {"too early"}


def test_a_clear_shift_is_found_and_said(authors):
    (reference,) = read_references([authors])
    found = compare_with_reference(our_results(-0.1), reference, "dr.q", 50_000)
    assert found is not None
    assert {row.verdict for row in found.pair.tasks} == {"below"}
    said = reference_sentence(found)
    assert said.startswith("dr.q minus DR.Q (drq.csv), at 50,000 steps, over 5 tasks: -")
    assert "On average: below." in said
    assert "(Holm-corrected for 5 tasks): dmc-visual/walker-run (below)" in said
    same = compare_with_reference(our_results(), reference, "dr.q", 50_000)
    assert same is not None
    assert "(Holm-corrected for 5 tasks): none." in reference_sentence(same)


def test_the_interval_of_the_difference_covers_nothing_as_often_as_it_says():
    """Ours and theirs from one distribution, 5 and 10 seeds on 12 tasks."""
    rng = np.random.default_rng(0)
    outside = 0
    for _ in range(200):
        sides = [{f"t{i}": dict(enumerate(rng.normal(0.5, 0.05 * (1 + i % 4), n))) for i in range(12)} for n in (5, 10)]
        gap = st.bootstrap_difference(sides[0], sides[1])
        outside += not gap.low <= 0 <= gap.high
    assert 2 <= outside <= 24, "5%, and a little more with few seeds"


def test_a_report_draws_and_tabulates_references(authors, tmp_path, capsys):
    both = our_results() + [r._replace(preset="mr.q") for r in our_results(-0.2)]
    write_results([r for r in both if r.task in TASKS[1:3]], tmp_path / "ours.csv")
    out = tmp_path / "report"
    command = ["report", str(tmp_path / "ours.csv"), "--reference", str(authors), "--out", str(out)]
    assert main([*command, "--compare-at", "25000", "50000"]) == 0
    assert "DR.Q (drq.csv): left out 1 tasks that are not in the paper" in capsys.readouterr().err
    with (out / "tables" / "reference.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["preset"], row["at agent steps"]) for row in rows if row["suite"] == "All tasks"} == {
        (preset, at) for preset in ("dr.q", "mr.q") for at in ("25,000", "50,000")
    }
    text = (out / "tables" / "reference-tasks.tex").read_text()
    assert r"\toprule" in text
    assert "DR.Q (drq.csv)" in text
    curves = (out / "tables" / "curves.csv").read_text()
    assert "DR.Q (drq.csv),50000" in curves
    assert "DR.Q (drq.csv),100000" not in curves, "drawn as far as our runs"
    assert (out / "figures" / "reference-1.png").stat().st_size > 10_000
    assert main([*command[:2], "--out", str(out)]) == 0
    assert not (out / "figures" / "reference-1.png").exists()
    assert main([*command, "--compare-at", "30000"]) == 2
    assert "our results and DR.Q (drq.csv) have no task in common at 30,000 steps" in capsys.readouterr().err


def test_a_report_without_references_says_how_to_give_one():
    report = build_report(our_results())
    assert TABLES["reference"](report).missing == "No reference was given: dr-q report RUNS --reference FILE."
    assert data(report)["references"] == []


def test_a_comparison_with_a_reference_is_a_latex_table(authors):
    report = build_report(our_results(), references=read_references([authors]), compare_at=(50_000,))
    text = latex_text(TABLES["reference"](report))
    assert r"\caption{Compared with references}" in text
    assert text.count(r"\\") == 1 + 5, "a head, all tasks together and four suites"
    assert "68 of the paper's 73 tasks are not compared" in text
    assert findings(report)[-1].startswith("dr.q minus DR.Q (drq.csv), at 50,000 steps, over 5 tasks")


def test_the_command_compares_with_a_reference(authors, tmp_path, capsys):
    ours = tmp_path / "ours.csv"
    write_results(our_results(), ours)
    assert main(["compare", str(ours), "--reference", str(authors), "--at", "50000"]) == 0
    text = capsys.readouterr().out
    for words in ("dr.q minus DR.Q (drq.csv), at 50,000 steps", "All tasks", "Gym MuJoCo", "not compared (68): gym/"):
        assert words in text
    assert main(["compare", str(ours), "--reference", str(authors), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["reference"], found["at"], len(found["tasks"]), len(found["missing"])) == (
        "DR.Q (drq.csv)",
        None,
        5,
        68,
    )
    assert found["suites"][0]["difference"][1] < found["suites"][0]["difference"][0]
    for arguments, message in (
        ([str(ours)], "nothing to compare"),
        ([str(ours), str(ours), "--reference", str(authors)], "leave one of them out"),
        ([str(ours), "--reference", str(authors), "--at", "7"], "have no task in common at 7 steps"),
    ):
        assert main(["compare", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_reference_curves_are_drawn_up_to_our_last_step(authors, tmp_path, monkeypatch, capsys):
    from dr_q.report import curves

    drawn = []
    draw = curves.draw_mean_curve
    monkeypatch.setattr(curves, "draw_mean_curve", lambda *a, **k: (drawn.append((k["label"], a[1])), draw(*a, **k)))
    write_results([r for r in our_results() if r.task == "gym/Ant-v4"], tmp_path / "ours.csv")
    out = tmp_path / "curves.png"
    assert main(["plot", str(tmp_path / "ours.csv"), "--reference", str(authors), "--out", str(out)]) == 0
    steps = [0, 25_000, 50_000]
    assert drawn == [("dr.q (5 seeds)", steps), ("DR.Q (drq.csv) (10 seeds)", steps)]
    assert out.stat().st_size > 5_000
    capsys.readouterr()


def test_a_reference_without_a_common_task_is_refused(authors):
    ours = [Result("dmc/fish-swim", "dr.q", 0, 25_000, 1.0, {})]
    with pytest.raises(ConfigError, match=r"our results and DR\.Q \(drq\.csv\) have no task in common; compare other"):
        build_report(ours, references=read_references([authors]))


@needs_chromium
def test_the_page_shows_references(authors, tmp_path):
    results = our_results()
    report = build_report(results, references=read_references([authors]), compare_at=(25_000, 50_000))
    path = write_report(report, results, tmp_path / "report")
    with browser() as chromium, opened(chromium, path) as page:
        assert page.locator("#reference-charts figure").count() == 4
        page.locator("#reference-charts figure").first.scroll_into_view_if_needed()
        page.wait_for_selector("#reference-charts figure:first-child svg text", state="attached")
        labels = page.locator("#reference-charts figure").first.locator("text").all_text_contents()
        assert "All tasks (5)" in labels
        assert not any("e-" in label for label in labels), "zero is written as zero"
        assert page.locator("#table-reference tbody tr").count() == 2 * 5
        assert "DR.Q (drq.csv)" in page.locator("#curve-legend").inner_text()
        page.locator("#preset-filter input[value='reference DR.Q (drq.csv)']").uncheck()
        assert "DR.Q (drq.csv)" not in page.locator("#curve-legend").inner_text()
    with browser() as chromium, opened(chromium, path, viewport={"width": 390, "height": 844}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
