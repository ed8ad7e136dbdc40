"""Named experiments: what they are, what they say of constructed results, and one from the command to its figure."""

import csv
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import dr_q
from dr_q.cli import main
from dr_q.config import PRESETS
from dr_q.envs import suite_tasks
from dr_q.kit import ConfigError
from dr_q.paper import SUITES, paper_tasks
from dr_q.report import Result, write_results
from dr_q.report.analyses import AgeBucket, Origin, Priorities
from dr_q.report.claims import Claim, claims_on, judge, judge_published
from dr_q.run_folder import Evaluation, RunTables
from dr_q.settings import make_settings
from dr_q.sweep import SweepOptions, experiments
from tests.training import tiny

TASK = "dmc/acrobot-swingup"
TOYS = ("tests.sweep.toys:sweep-calm-v0", "tests.sweep.toys:sweep-walk-v0")
WORSE = Claim("worse without it", "dr.q", "no-dynamics")
LITTLE = Claim("little changes without it", "dr.q", "no-dynamics", "little")


def results(scores: dict[str, list[float]], task: str = TASK, steps: int = 500_000) -> list[Result]:
    return [
        Result(task, preset, seed, step, score * step / steps, {})
        for preset, values in scores.items()
        for seed, score in enumerate(values)
        for step in (0, steps // 2, steps)
    ]


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_every_experiment_can_be_planned():
    names = [experiment.name for experiment in experiments.EXPERIMENTS]
    assert len(set(names)) == len(names)
    for experiment in experiments.EXPERIMENTS:
        planned = experiments.plan(experiment)
        assert all(task in paper_tasks() for task in planned.tasks)
        assert set(experiment.presets) <= set(PRESETS)
        known = {f"{p}+noise{n}" if n else p for p in experiment.presets for n in experiment.noise}
        for claim in experiment.claims:
            assert {claim.first, claim.second} <= known
            assert set(claim.tasks) <= set(planned.tasks)
        assert experiment.claims or experiment.ends_in != "curves"
    assert len(experiments.plan(experiments.find("main")).tasks) == 73
    assert set(experiments._TABLES) == set(SUITES)
    for suite in ("gym", "dmc-hard", "hbench-hand"):
        assert experiments.plan(experiments.find(suite)).tasks == tuple(t.name for t in suite_tasks(suite))
    noisy = experiments.plan(experiments.find("noise"), seeds=2)
    assert [(name, spec.noise_dims) for name, spec in noisy.sweeps] == [("runs", 0), ("runs-noise50", 50)]
    assert experiments.plan(experiments.find("tsne")).sweeps[0][1].steps == 200_000


@pytest.mark.parametrize(
    ("claim", "scores", "seen", "why"),
    [
        (WORSE, ([800, 810, 790], [500, 510, 490]), "seen", "the interval is above 0"),
        (WORSE, ([500, 510, 490], [800, 810, 790]), "not seen", "the reverse is seen"),
        (WORSE, ([500, 600, 700], [550, 650, 600]), "not seen", "the interval has 0 in it"),
        (WORSE, ([800, 810], [500, 510]), "not decidable", "a side has fewer than 3 seeds"),
        (LITTLE, ([800, 810, 790], [801, 805, 795]), "seen", "the whole interval is little"),
        (LITTLE, ([800, 810, 790], [300, 310, 290]), "not seen", "the whole interval is more"),
        (LITTLE, ([500, 700, 900], [550, 650, 900]), "not decidable", "the interval is too wide to tell"),
    ],
)
def test_a_statement_is_seen_no_further_than_the_interval_shows(claim, scores, seen, why):
    found = judge(results({"dr.q": scores[0], "no-dynamics": scores[1]}), claim, TASK, 500_000)
    assert (found.seen, found.agent_steps) == (seen, 500_000)
    assert found.why.startswith(f"{why}; dr.q minus no-dynamics is ")
    assert found.difference.value == pytest.approx(np.mean(scores[0]) - np.mean(scores[1]))


def test_short_runs_and_missing_ones_decide_nothing():
    short = results({"dr.q": [800, 810, 790], "no-dynamics": [1, 2, 3]}, steps=1000)
    found = judge(short, WORSE, TASK, 500_000)
    assert found.seen == "not decidable"
    assert found.why.startswith("only 1,000 of 500,000 steps were run; dr.q minus no-dynamics is +798 [")
    assert judge(results({"dr.q": [1, 2, 3]}), WORSE, TASK, 0).why == "no results of no-dynamics"
    later = results({"dr.q": [500, 510, 490], "no-dynamics": [600, 610, 590]}, steps=1_000_000)[2::3]
    both = [*results({"dr.q": [500, 510, 490], "no-dynamics": [300, 310, 290]}), *later]
    assert judge(both, WORSE, TASK, 500_000)[2:5:2] == ("seen", 500_000), "at the budget, whatever comes later"
    assert judge(later, WORSE, TASK, 500_000).why.endswith("never evaluated at the same step up to 500,000")
    apart = [*results({"dr.q": [1, 2]}), Result(TASK, "no-dynamics", 0, 7, 1.0, {})]
    assert "never evaluated at the same step" in judge(apart, WORSE, TASK, 0).why


@pytest.mark.parametrize(
    ("reached", "seeds", "steps", "seen"),
    [
        (True, 5, 500_000, "seen"),
        (False, 5, 500_000, "not seen"),
        (True, 4, 500_000, "not decidable"),
        (True, 5, 9, "not decidable"),
    ],
)
def test_the_published_score_is_reached_or_not(reached, seeds, steps, seen):
    from dr_q.paper import published_score

    published = published_score(TASK)
    assert published is not None
    value = published.mean if reached else 5.0
    found = judge_published(results({"dr.q": [value] * seeds}, steps=steps), TASK)
    assert found.seen == seen
    later = [Result(TASK, "dr.q", seed, 1_000_000, published.mean, {}) for seed in range(seeds)]
    both = judge_published([*results({"dr.q": [value] * seeds}, steps=steps), *later], TASK)
    assert (both.seen, both.agent_steps) == (seen, steps)  # at the paper's budget, whatever comes later
    assert f"the paper's {published.mean:.4g}" in found.why


def test_claims_that_name_a_task_go_before_general_ones():
    dynamics = experiments.find("dynamics").claims
    assert [claim.kind for claim in claims_on(TASK, dynamics)] == ["little"]
    assert [claim.kind for claim in claims_on("hbench/h1hand-pole-v0", dynamics)] == ["above"]
    noise = experiments.find("noise").claims
    assert [claim.kind for claim in claims_on("dmc/hopper-stand", noise)] == ["above", "little"]
    assert [claim.second for claim in claims_on("dmc/walker-run", noise)] == ["mr.q+noise50"]


def test_the_noise_study_ends_in_a_figure_and_a_sentence_for_each_task(tmp_path):
    """With made-up results: no run is behind them."""
    rng = np.random.default_rng(0)
    level = {"dr.q": 900, "mr.q": 880, "dr.q+noise50": 890, "mr.q+noise50": 400}
    planned = experiments.plan(experiments.find("noise"))
    made = [
        result
        for task in planned.tasks
        for result in results({name: list(rng.normal(mean, 20, 10)) for name, mean in level.items()}, task)
    ]
    for folder, noisy in (("runs", False), ("runs-noise50", True)):
        write_results([r for r in made if ("noise" in r.preset) == noisy], tmp_path / folder / "results.csv")
    found = experiments.conclude(planned, tmp_path)
    assert found.figures[0].read_bytes().startswith(b"\x89PNG")
    assert [line.partition(":")[0] for line in found.sentences] == list(planned.tasks)
    assert "MR.Q suffers from noise: seen (the interval is above 0; mr.q minus mr.q+noise50 is +" in found.sentences[0]
    assert "DR.Q suffers little: seen (the whole interval is little; " in found.sentences[1]
    assert "DR.Q stays above MR.Q with noise: seen" in found.sentences[2]
    verdicts = rows(tmp_path / "verdicts.csv")
    assert [row["verdict"] for row in verdicts] == ["seen"] * 5
    assert len(rows(tmp_path / "figure.csv")) == 3 * 4 * 3


def test_a_table_of_the_paper_ends_in_its_aggregates_and_curves(tmp_path):
    """With made-up results: no run is behind them."""
    planned = experiments.plan(experiments.find("dmc-hard"))
    made = [result for task in planned.tasks for result in results({"dr.q": [1.0] * 5}, task)]
    write_results(made, tmp_path / "runs" / "results.csv")
    found = experiments.conclude(planned, tmp_path)
    assert [path.name for path in found.figures] == ["figure.png", "curves-dmc-hard.png"]
    assert all(
        "the published score is reached: not seen (ours is 1 [1, 1] at 500,000 steps" in s for s in found.sentences
    )


def priorities(oldest: float) -> Priorities:
    origin, nothing = Origin("run", TASK, "dr.q", 0, 200_000), (math.nan, math.nan, math.nan)
    buckets = [
        AgeBucket(0, 9, 10, (1, 1, 1), (1, 1, 1), 0.5),
        AgeBucket(10, 99, 90, (1, 1, 1), (1, 1, oldest), 0.4),
        AgeBucket(100, 200, 10, nothing, nothing, 0.1),
    ]
    return Priorities(origin, True, np.arange(5), np.ones(5), buckets)


def test_what_old_transitions_keep_is_compared_over_seeds():
    kept, faded = [priorities(x) for x in (1.0, 1.1, 0.9)], [priorities(x) for x in (0.1, 0.12, 0.09)]
    assert experiments._judge_old(TASK, kept, faded, 200_000).seen == "seen"
    assert experiments._judge_old(TASK, faded, kept, 200_000).seen == "not seen"
    assert experiments._judge_old(TASK, kept[:2], faded, 200_000).seen == "not decidable"
    short = experiments._judge_old(TASK, kept, faded, 300_000)
    assert short.seen == "not decidable"
    assert short.why.startswith("only 200,000 of 300,000 steps were run; 90% quantile")


def command(out: Path, name: str = "infonce", tasks: Sequence[str] = TOYS, **more) -> list[str]:
    """Sizes, seeds and steps of the sweeps' tests, so that compiled programs are shared."""
    sizes = {**tiny.SIZES, "eval_every": 40, "eval_episodes": 2, "checkpoint_every": 40, "steps": tiny.STEPS, **more}
    flags = [part for name, value in sizes.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    given = ["--tasks", *tasks, "--seeds", "2", "--cpus-per-job", "1", "--out", str(out)]
    return ["experiment", "run", name, *given, *flags]


def run(arguments: list[str]) -> str:
    """The command in a process of its own, whose workers find the toys; what it printed."""
    paths = os.pathsep.join((str(Path(dr_q.__file__).parents[1]), str(Path(__file__).parents[2])))
    variables = {**os.environ, "PYTHONPATH": paths, "RAY_worker_niceness": "0"}
    line = [sys.executable, "-m", "dr_q", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_experiment_from_the_command_to_its_figure_and_again(tmp_path, capsys):
    """Two tasks, two presets, on Ray; the second time nothing is trained."""
    pytest.importorskip("ray", reason="experiments need ray: pip install 'dr-q[ray]'")
    out = tmp_path / "infonce"
    text = run(command(out))
    for task in TOYS:
        assert f"{task}: worse without InfoNCE: not decidable (a side has fewer than 3 seeds; " in text
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert {(row["task"], row["preset"]) for row in rows(out / "figure.csv")} == {
        (task, preset) for task in TOYS for preset in ("dr.q", "no-infonce")
    }
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    assert "4 jobs, 4 finished before" in run(command(out))
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    assert main(command(out, steps=160)) == 2
    assert "holds another sweep: steps 120, got 160" in capsys.readouterr().err


@pytest.mark.slow
def test_experiments_that_look_into_checkpoints(tmp_path):
    """t-SNE, then priorities of the same runs, which need not be trained again."""
    pytest.importorskip("ray", reason="experiments need ray: pip install 'dr-q[ray]'")
    out, task = tmp_path / "runs", TOYS[0]
    text = run(command(out, "tsne", [task]))
    assert f"{task}: MR.Q in separate clusters, DR.Q continuous: not decidable by a number" in text
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    points = rows(out / "figure.csv")
    assert len({(row["x"], row["y"]) for row in points}) > 100
    picture = (out / "figure.png").read_bytes()
    text = run(command(out, "priorities", [task]))
    assert "2 jobs, 2 finished before" in text
    assert f"{task}: with LAP alone old transitions keep larger values: not decidable" in text
    assert (out / "figure.png").read_bytes() != picture
    assert {row["seed"] for row in rows(out / "figure.csv")} == {"0", "1"}
    (judged,) = rows(out / "verdicts.csv")
    assert judged["task"] == task


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "infonse"], "unknown experiment 'infonse'; did you mean 'infonce'? experiments: main, gym,"),
        (["run", "infonce", "--tasks", "dmc/dog-rum"], "unknown task 'dmc/dog-rum'; did you mean 'dmc/dog-run'?"),
        (["run", "infonce", "--seeds", "0"], "--seeds must be a whole number between 1 and 1000, got 0"),
        (["run", "infonce", "--steps", "0"], "--steps must be a whole number between 1 and 1000000000, got 0"),
        (["run", "infonce", "--batch-size", "0"], "--batch-size must be a whole number between 1 and 65536, got 0"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["experiment", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"dr-q: {message}")
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir()), "nothing may be left behind"


def test_a_dry_run_counts_every_sweep_and_starts_nothing(tmp_path, capsys):
    out = tmp_path / "noise"
    assert main(["experiment", "run", "noise", "--tasks", "dmc/hopper-stand", "--out", str(out), "--dry-run"]) == 0
    text = capsys.readouterr().out
    presets = [line.split()[1] for line in text.splitlines() if line.startswith("dmc/hopper-stand")]
    assert presets == ["dr.q", "mr.q", "dr.q+noise50", "mr.q+noise50"]
    assert "4 jobs, 0 finished" in text
    assert "2.0 GPU hours in total" in text  # 4 x 10 x 500,000 at 2,737 seed-steps/s
    assert not out.exists()


def test_the_list_names_all(capsys):
    assert main(["experiment", "list"]) == 0
    text = capsys.readouterr().out
    for experiment in experiments.EXPERIMENTS:
        assert experiment.name in text


def made_run(folder: Path, task: str, *, seeds: int = 5, steps: int = 50_000, **changes: float) -> None:
    """A run as it was made elsewhere: without checkpoints, in a folder of any name."""
    settings = make_settings(task, seeds=seeds, steps=steps, changes=changes).to_json()
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"status": "finished", "agent_steps": steps, "settings": settings}))
    RunTables(folder).append_evaluations(
        Evaluation(seed, step, step, float(step), 0.0, 1.0, 1) for seed in range(seeds) for step in (0, steps)
    )


def test_breadth_is_every_task_and_says_what_is_missing(tmp_path, capsys):
    planned = experiments.plan(experiments.find("breadth"))
    (states, of_states), (pixels, of_pixels) = planned.sweeps
    assert (states, len(of_states.tasks), of_states.seeds) == ("states", 61, 5)
    assert (pixels, len(of_pixels.tasks), of_pixels.seeds) == ("pixels", 12, 3)
    assert set(planned.tasks) == set(paper_tasks())
    for spec in (of_states, of_pixels):
        assert (spec.steps, spec.eval_every, spec.presets) == (50_000, 25_000, ("dr.q",))
    have = tmp_path / "have"
    made_run(have / "a", "gym/Ant-v4")
    made_run(have / "b" / "c", "gym/Hopper-v4", seeds=10, steps=100_000)
    made_run(have / "few", "gym/Humanoid-v4", seeds=4)
    made_run(have / "short", "gym/Walker2d-v4", steps=40_000)
    made_run(have / "other", "gym/HalfCheetah-v4", discount=0.9)
    made_run(have / "seen", "dmc-visual/walker-run", seeds=3)
    command = [
        "experiment",
        "run",
        "breadth",
        "--tasks",
        "gym",
        "dmc-visual/walker-run",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main([*command, "--missing", "--have", str(have)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "states: 2 of 5 tasks have 5 seeds at their last step; "
        "missing: gym/HalfCheetah-v4, gym/Humanoid-v4, gym/Walker2d-v4",
        "pixels: 1 of 1 tasks have 3 seeds at their last step",
    ]
    assert main([*command, "--missing"]) == 0
    assert "states: 0 of 5 tasks" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_the_runs_of_this_repository_count_for_breadth():
    planned = experiments.plan(experiments.find("breadth"))
    done = experiments.done_tasks(planned.sweeps[0][1], [Path(__file__).parents[2] / "results" / "breadth"])
    assert len(done) >= 13
    assert "dmc/acrobot-swingup" in done


def test_breadth_trains_what_is_left_and_ends_in_one_file(tmp_path, monkeypatch):
    have, out, asked, said = tmp_path / "have", tmp_path / "out", [], []
    made_run(have / "a", "gym/Ant-v4")
    made_run(have / "seen", "dmc-visual/walker-run", seeds=3)
    tasks = ("gym/Ant-v4", "gym/Hopper-v4", "dmc-visual/walker-run")
    planned = experiments.plan(experiments.find("breadth"), tasks=tasks)

    def train(spec, folder, options, execution):
        asked.append((spec.tasks, spec.seeds, folder.name, options.max_minutes, execution))
        for job in spec.jobs(folder):
            made_run(job.folder, job.task)

    monkeypatch.setattr(experiments, "run_sweep", train)
    options = SweepOptions(local=True, max_minutes=9.0)
    found = experiments.run_experiment(planned, out, options, said.append, have=[have], execution={"log_every": 5})
    ((tasks, seeds, folder, minutes, execution),) = asked
    assert (tasks, seeds, folder, execution) == (("gym/Hopper-v4",), 5, "states", {"log_every": 5})
    assert 8.9 < minutes <= 9.0
    assert said == [
        "states: 2 of 2 tasks have 5 seeds at their last step",
        "pixels: 1 of 1 tasks have 3 seeds at their last step",
    ]
    assert found.figures == [out / "results.csv"]
    assert {row["task"] for row in rows(out / "results.csv")} == set(planned.tasks), "wherever they were made"
    with pytest.raises(ConfigError, match="have is for lists of runs"):
        experiments.run_experiment(experiments.plan(experiments.find("gym")), out, options, have=[have])
