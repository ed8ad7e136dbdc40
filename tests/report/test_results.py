"""One tidy format for results, wherever they come from."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dr_q.cli import main
from dr_q.report import build_report, read_results, write_results
from dr_q.report.results import labelled_runs, read_records, train_command
from dr_q.run_folder import read_run
from dr_q.settings import make_settings


def make_run(
    folder: Path, task="dmc/walker-run", preset="dr.q", seeds=(0, 1), noise_dims=0, score=100.0, **more: Any
) -> Path:
    folder.mkdir(parents=True)
    settings = {"task": task, "preset": preset, "noise_dims": noise_dims, "config": more.get("config", {})}
    settings |= more.get("settings", {})
    changed = {"changed": more["changed"]} if more.get("changed") is not None else {}
    (folder / "run.json").write_text(json.dumps({"settings": settings, **changed}))
    lines = ["seed,agent_steps,env_frames,return_mean,return_std,length_mean,episodes"]
    lines += [
        f"{seed},{step},{2 * step},{score + seed + step / 7},1.5,500.0,10" for step in (0, 5000) for seed in seeds
    ]
    (folder / "evals.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_runs_folders_and_files_give_the_same_rows(tmp_path, capsys):
    make_run(tmp_path / "sweep" / "a")
    make_run(tmp_path / "sweep" / "deep" / "b", preset="mr.q", score=50)
    make_run(tmp_path / "c", noise_dims=50)
    out = tmp_path / "results.csv"
    assert main(["results", str(tmp_path / "sweep"), str(tmp_path / "c"), "--out", str(out)]) == 0
    assert "results.csv: 12 evaluations, 1 task, 3 presets, 6 seeds" in capsys.readouterr().out
    header, first, *_ = out.read_text().splitlines()
    assert header == "task,preset,seed,agent_steps,return,env_frames,return_std,length_mean,episodes"
    assert first == "dmc/walker-run,dr.q,0,0,100.0,0,1.5,500.0,10"
    again = read_results([out])
    assert again == read_results([tmp_path / "sweep", tmp_path / "c"])
    assert {result.preset for result in again} == {"dr.q", "mr.q", "dr.q+noise50"}
    assert again[1].score == 100 + 5000 / 7, "every digit is kept"
    # The same evaluations twice are the same evaluations.
    assert read_results([out, tmp_path / "c"]) == again


def test_runs_of_a_preset_are_told_apart_by_what_was_changed(tmp_path):
    """Where two runs of a task differ; the preset's own keeps its name, and other tasks' runs are named alike."""
    usual, other = {"infonce_weight": 0.1, "batch_size": 256}, {"infonce_weight": 0.0, "batch_size": 256}
    changed = {"infonce_weight": 0.0}
    make_run(tmp_path / "a", config=usual, changed={})
    make_run(tmp_path / "b", config=other, changed=changed, score=50)
    make_run(tmp_path / "c", config=other, changed=changed, task="dmc/fish-swim")
    make_run(tmp_path / "d", config={**usual, "batch_size": 64}, changed={"batch_size": 64}, task="dmc/dog-run")
    named = {(r.task, r.preset) for r in read_results([tmp_path])}
    assert named == {
        ("dmc/walker-run", "dr.q"),
        ("dmc/walker-run", "dr.q+infonce_weight=0"),
        ("dmc/fish-swim", "dr.q+infonce_weight=0"),
        ("dmc/dog-run", "dr.q"),
    }
    assert read_results([tmp_path / "b", tmp_path / "a"]) == read_results([tmp_path / "a", tmp_path / "b"])
    # Runs of older versions do not say what they changed: this version's preset does. A preset may have changed since.
    for name, recorded, usual_label in (("old", None, "dr.q"), ("newer", {}, "dr.q+infonce_weight=0.1")):
        make_run(tmp_path / name / "a", config=usual, changed=recorded)
        make_run(tmp_path / name / "b", config=other, changed=recorded, score=50)
        assert {r.preset for r in read_results([tmp_path / name])} == {usual_label, "dr.q+infonce_weight=0"}


def test_settings_of_a_run_that_decide_its_results_tell_runs_apart(tmp_path, capsys):
    """Earlier versions recorded none of them. Seeds 0 and 1 of one, 2 and 3 of the other: they would be pooled."""
    make_run(tmp_path / "usual")
    for name, value, label in (
        ("num_envs", 4, "dr.q+num_envs=4"),
        ("stop_at_return", 500.0, "dr.q+stop_at_return=500"),
        ("patience", 3, "dr.q+patience=3"),
        ("init", "runs/a", "dr.q+init"),
    ):
        make_run(tmp_path / name, seeds=(2, 3), settings={name: value})
        assert {r.preset for r in read_results([tmp_path / "usual", tmp_path / name])} == {"dr.q", label}
    make_run(tmp_path / "other", seeds=(0, 1), settings={"init": "runs/b", "prefill": "data.npz"})
    make_run(tmp_path / "another", seeds=(4, 5), settings={"init": "runs/b", "warmup_steps": 50})
    named = {r.preset for r in read_results([tmp_path / name for name in ("init", "other", "another")])}
    assert named == {"dr.q+init=runs/a", "dr.q+init=runs/b+warmup_steps=50", "dr.q+init+prefill"}
    # Without init the warm-up does nothing.
    make_run(tmp_path / "idle", seeds=(2, 3), settings={"warmup_steps": 50})
    assert {r.preset for r in read_results([tmp_path / "usual", tmp_path / "idle"])} == {"dr.q"}
    assert main(["compare", str(tmp_path / "num_envs"), str(tmp_path / "usual")]) == 0
    assert capsys.readouterr().out.endswith("The two differ in: num_envs 4 against 1.\n")


def test_a_comparison_says_in_what_else_two_runs_differ(tmp_path, capsys):
    usual = {"infonce_weight": 0.1, "batch_size": 256}
    make_run(tmp_path / "a", config=usual, changed={})
    make_run(tmp_path / "b", config={**usual, "infonce_weight": 0.0}, changed={"infonce_weight": 0.0}, score=50)
    make_run(tmp_path / "c", config={**usual, "batch_size": 8}, changed={"batch_size": 8}, task="dmc/fish-swim")
    said = "The two differ in: infonce_weight {} against {}.\n"
    for arguments, values in (
        ([str(tmp_path / "a"), str(tmp_path / "b")], (0.1, 0.0)),
        ([f"{tmp_path}@dr.q+infonce_weight=0", f"{tmp_path}@dr.q"], (0.0, 0.1)),
    ):
        assert main(["compare", *arguments]) == 0
        assert capsys.readouterr().out.endswith(said.format(*values))
    # A path may have an @ of its own.
    for name in "ab":
        shutil.copytree(tmp_path / name, tmp_path / "me@home" / name)
    for preset in ("", "@dr.q"):
        assert main(["compare", *(str(tmp_path / "me@home" / name) + preset for name in "ab")]) == 0
        assert capsys.readouterr().out.endswith(said.format(0.1, 0.0))
    assert main(["compare", str(tmp_path / "me@home" / "c"), str(tmp_path / "a")]) == 2
    assert f"{tmp_path / 'me@home' / 'c'} is not there" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "me@home")
    assert main(["results", str(tmp_path / "b"), "--out", str(tmp_path / "out.csv")]) == 0
    assert f"{tmp_path / 'b'} is listed as dr.q, but changed infonce_weight" in capsys.readouterr().err
    assert main(["results", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "out.csv")]) == 0
    assert capsys.readouterr().err == ""


def test_a_file_of_results_is_drawn_like_its_runs(tmp_path, capsys):
    runs = [make_run(tmp_path / "runs" / name, preset=name) for name in ("dr.q", "mr.q")]
    out = tmp_path / "results.csv"
    write_results(read_results([tmp_path / "runs"]), out)
    assert [record.evaluations for record in read_records(out)] == [read_run(run).evaluations for run in runs]
    for name, source in (("a", out), ("b", tmp_path / "runs")):
        assert main(["plot", str(source), "--out", str(tmp_path / f"{name}.png")]) == 0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_the_command_of_a_run_has_all_that_was_changed():
    settings = {"task": "dmc/dog-run", "preset": "mr.q", "seeds": 3, "first_seed": 4, "steps": 9, "eval_every": 5}
    info = {"settings": {**settings, "eval_episodes": 2}, "changed": {"batch_size": 8, "reward_range": [-1.0, 1.0]}}
    more = "--seeds 3 --seed 4 --steps 9 --eval-every 5 --eval-episodes 2 --batch-size 8 --reward-range -1.0 1.0"
    assert train_command(info) == f"dr-q train dmc/dog-run --preset mr.q {more}"
    usual = {"settings": make_settings("dmc/dog-run", steps=9).to_json()}
    assert train_command(usual) == "dr-q train dmc/dog-run --seeds 1 --steps 9 --eval-every 5000"
    usual["settings"] |= {"num_envs": 4, "stop_at_return": 900.0, "patience": 3}
    assert train_command(usual).endswith("--eval-every 5000 --envs 4 --stop-at-return 900.0 --patience 3")
    info["settings"]["task"] = "callable:mine.make"
    assert train_command(info).startswith("dr_q.train(mine.make, preset='mr.q', seeds=3, seed=4, steps=9, ")


def test_other_peoples_files_need_five_columns_and_keep_the_rest(tmp_path):
    path = tmp_path / "theirs.csv"
    path.write_text("seed,note,return,agent_steps,preset,task\n3,x,1.25,10,theirs,gym/Ant-v4\n")
    (result,) = read_results([path])
    assert result == ("gym/Ant-v4", "theirs", 3, 10, 1.25, {"note": "x"})
    odd = result._replace(task="two\nlines", preset='\u2028,"')
    write_results([odd], path)
    assert read_results([path]) == [odd]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task,seed\na,1\n", "has no column preset, agent_steps, return; got task, seed; results need task, preset"),
        ("", "has no column task, preset, seed, agent_steps, return; got nothing"),
        ("\ufefftask,preset,seed,agent_steps,return\n", "no evaluation in"),
        ("task,preset,seed,agent_steps,return\na,b,x,1,2\n", "line 2: seed and agent_steps must be whole numbers"),
        ("task,preset,seed,agent_steps,return\na,b,1,1,nan\n", "and return a finite number; got '1', '1', 'nan'"),
        ("task,preset,seed,agent_steps,return\na,b,1,-1,2\n", "agent_steps at least 0, and return a finite number"),
        (f"task,preset,seed,agent_steps,return\na,b,1,{'9' * 30},2\n", "line 2: seed and agent_steps must be whole"),
    ],
)
def test_files_that_are_not_results_are_refused_in_one_line(text, message, tmp_path, capsys):
    path = tmp_path / "file.csv"
    path.write_text(text)
    assert main(["results", str(path), "--out", str(tmp_path / "out.csv")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out.csv").exists()


def test_what_is_not_there_or_disagrees_is_said(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for source, message in (("nowhere", "is not there"), ("empty", "holds no run")):
        assert main(["results", str(tmp_path / source), "--out", str(tmp_path / "out.csv")]) == 2
        assert message in capsys.readouterr().err
    twice = tmp_path / "twice.csv"
    twice.write_text("task,preset,seed,agent_steps,return\na,b,0,1,2\na,b,0,1,3\n")
    assert main(["results", str(twice), "--out", str(tmp_path / "out.csv")]) == 2
    assert "twice.csv has two values for a, b, seed 0 at 1 steps: 2 and 3; keep one" in capsys.readouterr().err


@pytest.mark.parametrize("row", ["1,1,2,b", "1,1,2,b,a,x"])
def test_a_row_with_too_many_or_too_few_values_is_refused(row, tmp_path, capsys):
    """Also where what it lacks is no number."""
    path = tmp_path / "file.csv"
    path.write_text(f"seed,agent_steps,return,preset,task\n0,1,2,b,a\n{row}\n")
    assert main(["results", str(path), "--out", str(tmp_path / "out.csv")]) == 1
    assert capsys.readouterr().err == (
        f"dr-q: {path} is damaged in line 3: it has too many or too few values; fix or remove that line\n"
    )
    assert not (tmp_path / "out.csv").exists()


def test_runs_from_before_a_setting_had_its_default(tmp_path):
    """So they are told apart from runs with another value, and are those of runs with the default."""
    config = {"infonce_weight": 0.1}
    make_run(tmp_path / "before", config=config, changed={})
    make_run(tmp_path / "default", config={**config, "encoder_updates": 0}, changed={}, seeds=(2, 3))
    other = {"encoder_updates": 50}
    make_run(tmp_path / "other", config={**config, **other}, changed=other, seeds=(4, 5))
    named = {(r.preset, r.seed) for r in read_results([tmp_path])}
    assert named == {*(("dr.q", seed) for seed in range(4)), *(("dr.q+encoder_updates=50", seed) for seed in (4, 5))}


def test_several_runs_of_one_task_and_seed_are_labelled_by_run(tmp_path, capsys):
    """Repetitions are not refused: they are listed by their folders, and what agrees keeps its preset's name."""
    make_run(tmp_path / "runs" / "ant")
    make_run(tmp_path / "repeats" / "ant", score=101)
    make_run(tmp_path / "runs" / "more", seeds=(2, 3))
    make_run(tmp_path / "runs" / "fish", task="dmc/fish-swim")
    named = {(r.task, r.preset, r.seed) for r in read_results([tmp_path]) if r.agent_steps == 0}
    assert named == {
        *(("dmc/walker-run", f"dr.q ({folder}/ant)", seed) for folder in ("runs", "repeats") for seed in (0, 1)),
        *(("dmc/walker-run", "dr.q", seed) for seed in (2, 3)),
        *(("dmc/fish-swim", "dr.q", seed) for seed in (0, 1)),
    }
    out = tmp_path / "results.csv"
    assert main(["results", str(tmp_path), "--out", str(out)]) == 0
    assert read_results([out]) == read_results([tmp_path / "runs", tmp_path / "repeats"])
    assert main(["compare", f"{out}@dr.q (runs/ant)", f"{out}@dr.q (repeats/ant)"]) == 0
    assert "-1" in capsys.readouterr().out
    report = tmp_path / "report"
    assert main(["report", str(tmp_path / "runs"), str(tmp_path / "repeats"), "--out", str(report)]) == 0
    assert "dr.q (repeats/ant)" in (report / "tables" / "finals.csv").read_text()
    # A file that disagrees is listed by its name.
    theirs = [r._replace(score=r.score + 1) for r in read_results([tmp_path / "runs" / "fish"])]
    write_results(theirs, tmp_path / "theirs.csv")
    both = read_results([tmp_path / "runs" / "fish", tmp_path / "theirs.csv"])
    assert {r.preset for r in both} == {"dr.q", "dr.q (theirs.csv)"}


@pytest.mark.parametrize("command", ["results", "plot", "report"])
def test_runs_without_evaluations_are_left_out_and_said(command, tmp_path, capsys):
    make_run(tmp_path / "runs" / "good")
    empty = tmp_path / "runs" / "begun"
    empty.mkdir()
    (empty / "run.json").write_text((tmp_path / "runs" / "good" / "run.json").read_text())
    out = {"results": "results.csv", "plot": "curves.png", "report": "report"}[command]
    assert main([command, str(tmp_path / "runs"), "--out", str(tmp_path / out)]) == 0
    assert f"dr-q: {empty} has no evaluation yet and is left out\n" in capsys.readouterr().err


def test_published_prints_a_task_a_suite_and_an_algorithm(capsys):
    assert main(["published", "dmc/cheetah_run"]) == 0
    text = capsys.readouterr().out
    assert "DR.Q       911   [905, 918]    0.911" in text
    assert "SimBa (920) and SimBaV2 (821) look swapped" in text
    assert main(["published", "gym"]) == 0
    text = capsys.readouterr().out
    assert "gym/Humanoid-v4" in text
    assert "1.608 [1.449, 1.759]" in text
    assert main(["published", "hbench", "--algorithm", "mr.q"]) == 0
    assert "hbench/h1-walk-v0" in capsys.readouterr().out
    assert main(["published", "all", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 630


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["published", "dmc/cheeta-run"], "the paper has no task 'dmc/cheeta-run'; did you mean 'dmc/cheetah-run'?"),
        (["published", "atari"], "the paper has no task of the suite 'atari'; its suites: gym, "),
        (["published", "gym", "--algorithm", "sac"], "no scores of 'sac' in the paper; it has DR.Q, "),
    ],
)
def test_unknown_names_are_explained(arguments, message, capsys):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_a_report_says_what_a_run_changed_by_its_own_record(tmp_path):
    """Presets may have changed since a run: its record decides, and this version's presets only where it has none."""
    config = {"batch_size": 8}
    runs = {
        "recorded": make_run(tmp_path / "recorded", config=config, changed={}),
        "older": make_run(tmp_path / "older", config=config),
        "unknown": make_run(tmp_path / "unknown", preset="theirs", config=config),
    }
    found = {}
    for name, folder in runs.items():
        results = read_results([folder])
        found[name] = build_report(results, labelled_runs([folder])).changed
    assert found["recorded"] == []
    assert [(x.name, x.value, x.default, x.of_algorithm) for x in found["older"]] == [("batch_size", 8, 256, True)]
    assert [(x.name, x.of_algorithm) for x in found["unknown"]] == [(None, False)]


def test_a_report_lists_the_steps_of_a_run_that_differ_from_its_budget(tmp_path):
    folder = make_run(tmp_path / "run", task="gym/Swimmer-v4")
    info = json.loads((folder / "run.json").read_text())
    info["settings"]["steps"] = 10
    (folder / "run.json").write_text(json.dumps(info))
    (found,) = build_report(read_results([folder]), labelled_runs([folder])).changed
    assert (found.name, found.value, found.default, found.of_algorithm) == ("steps", 10, 500_000, False)
