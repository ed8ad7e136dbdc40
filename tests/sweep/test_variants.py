"""Presets from files and combined, grids, and folders that grow; nothing is started."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import dr_q
from dr_q.cli import main
from dr_q.config import PRESETS, changed_settings, is_known_preset, preset
from dr_q.kit import ConfigError, RunFolderError
from dr_q.settings import make_settings, usual_settings
from dr_q.sweep import SweepSpec
from dr_q.sweep.estimate import longest_first
from dr_q.sweep.job import Share
from dr_q.sweep.processes import slots
from dr_q.sweep.slurm import sweep_arguments
from dr_q.sweep.spec import Job, SweepOptions, check_folder, jobs_of_folder, parse_grid, write_spec
from tests.training import tiny

MINE = """
[large-batch]
batch-size = 512

[large-batch-slow-fade]
base = "large-batch+no-infonce"
fade_decay = 1e-5
reward_range = [-5.0, 5.0]
"""


@pytest.fixture
def mine(tmp_path) -> Iterator[Path]:
    """A file of presets; those that a test makes known are forgotten after it."""
    file, before = tmp_path / "mine.toml", set(PRESETS)
    file.write_text(MINE)
    yield file
    for name in set(PRESETS) - before:
        del PRESETS[name]


def test_a_file_has_presets_that_build_on_others(mine):
    assert dr_q.load_presets(mine) == ["large-batch", "large-batch-slow-fade"]
    assert preset("large-batch") == preset("dr.q", batch_size=512)
    slow = preset("dr.q", batch_size=512, infonce_weight=0.0, fade_decay=1e-5, reward_range=(-5.0, 5.0))
    assert preset("large-batch-slow-fade") == slow
    assert preset("large-batch+quick") == preset("quick"), "of two that change a setting the last one wins"
    assert preset("quick+large-batch") == preset("quick", batch_size=512)
    assert changed_settings("large-batch", {"batch_size": 512, "discount": 0.9}) == {"discount": 0.9}
    assert usual_settings("dmc/walker-run", "large-batch")["batch_size"] == 512
    assert not is_known_preset("large-batch+nothing")


def test_presets_of_a_file_are_for_every_command_that_takes_one(mine, capsys):
    assert main(["presets", "--preset-file", str(mine)]) == 0
    assert "large-batch-slow-fade" in capsys.readouterr().out
    flags = [*tiny.flags(), "--preset", "large-batch+quick", "--preset-file", str(mine)]
    out = mine.parent / "run"
    assert main(["train", "tests.envs.toys:drq-walk-v0", "--out", str(out), *flags]) == 0
    record = json.loads((out / "run.json").read_text())
    assert record["settings"]["preset"] == "large-batch+quick"
    assert record["settings"]["config"]["encoder_hidden"] == 16, "options win over presets"
    assert record["changed"] == {**tiny.SIZES}
    assert record["settings"]["config"]["actor_learning_rate"] == preset("quick").actor_learning_rate


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no preset; a preset is a table"),
        ("batch_size = 3", "'batch_size' is in no preset; put it under the preset's name"),
        ("[a", "cannot be read as a TOML file of presets"),
        ('["dr.q"]\nbatch_size = 3', "preset 'dr.q' is built in; choose another name"),
        ('["a+b"]\nbatch_size = 3', "'a+b' cannot be the name of a preset"),
        ("[noise50]\nbatch_size = 3", "'noise50' cannot be the name of a preset"),
        ('["../a"]\nbatch_size = 3', "'../a' cannot be the name of a preset"),
        ("[a]\nbatch_size = 0", "preset 'a': batch_size must be a whole number between 1 and"),
        ("[a]\nbatch_sise = 1", "preset 'a': unknown setting 'batch_sise'; did you mean 'batch_size'?"),
        ("[a]\nbase = 3", "preset 'a': base must be the name of a preset, got 3"),
        ('[a]\nbase = "b"', "unknown preset 'b'"),
    ],
)
def test_a_file_that_is_none_gets_one_line(text, message, mine):
    mine.write_text(text)
    with pytest.raises(ConfigError) as error:
        dr_q.load_presets(mine)
    assert message in str(error.value)
    assert str(error.value).startswith(str(mine))
    assert "\n" not in str(error.value)


def test_a_grid_is_every_combination_with_every_preset():
    grid = parse_grid(["infonce-weight=0.05,0.1,0.2", "fade-decay=1e-4,1e-5"])
    spec = SweepSpec(("gym/Ant-v4",), ("dr.q", "quick+no-dynamics"), 5, first_seed=10, grid=grid)
    jobs = spec.jobs(Path("out"))
    assert len(jobs) == 12
    assert jobs[1].folder == Path("out/gym-Ant-v4/dr.q+infonce_weight=0.05+fade_decay=1e-05")
    assert jobs[1].name == "gym/Ant-v4 dr.q+infonce_weight=0.05+fade_decay=1e-05"
    assert jobs[1].settings.seed_list == [10, 11, 12, 13, 14]
    assert jobs[1].settings.config == preset("dr.q", infonce_weight=0.05, fade_decay=1e-5)
    assert jobs[-1].settings.config == preset("quick+no-dynamics", infonce_weight=0.2, fade_decay=1e-5)
    words = " ".join(sweep_arguments(spec, Path("out"), SweepOptions()))
    assert "--grid infonce-weight=0.05,0.1,0.2 --grid fade-decay=0.0001,1e-05" in words
    assert "--seed 10" in words


def test_a_combination_of_many_settings_has_a_folder_that_can_be(tmp_path):
    names = ("actor_weight_decay", "critic_weight_decay", "encoder_weight_decay", "actor_learning_rate", "discount")
    names += ("critic_learning_rate", "encoder_learning_rate", "infonce_temperature", "exploration_noise")
    spec = SweepSpec(("gym/Ant-v4",), ("dr.q",), 1, grid=dict.fromkeys(names, (0.123456789, 0.5)))
    jobs = spec.jobs(tmp_path)
    assert len({job.folder for job in jobs}) == len(jobs) == 2**9
    assert all(len(job.folder.name) < 220 for job in jobs)
    assert jobs[0].preset.count("=") == 9, "tables have the whole name"


def test_more_of_anything_extends_the_folder(tmp_path):
    def folders(tasks=("gym/Ant-v4",), presets=("dr.q",), seeds=2, **more):
        spec = SweepSpec(tasks, presets, seeds, **more)
        check_folder(spec, tmp_path)
        jobs = spec.jobs(tmp_path)
        write_spec(spec, tmp_path, 1)
        assert spec.jobs(tmp_path) == jobs, "asked again, it is the same"
        return {f"{job.folder.parent.name}/{job.folder.name}": job.settings.seed_list for job in jobs}

    first = folders(grid={"discount": (0.9,)})
    assert first == {"gym-Ant-v4/dr.q+discount=0.9": [0, 1]}
    assert folders(grid={"discount": (0.9, 0.95)}) == {**first, "gym-Ant-v4/dr.q+discount=0.95": [0, 1]}
    later = {"gym-Ant-v4/dr.q+discount=0.9-seeds2-2": [2]}
    assert folders(grid={"discount": (0.9,)}, seeds=3) == {**first, **later}
    apart = folders(grid={"discount": (0.9,)}, seeds=2, first_seed=5)
    assert apart == {"gym-Ant-v4/dr.q+discount=0.9-seeds5-6": [5, 6]}
    between = folders(grid={"discount": (0.9,)}, seeds=8)
    assert between == {
        **first,
        **later,
        **apart,
        "gym-Ant-v4/dr.q+discount=0.9-seeds3-4": [3, 4],
        "gym-Ant-v4/dr.q+discount=0.9-seeds7-7": [7],
    }
    assert list(folders(tasks=("gym/Hopper-v4",))) == ["gym-Hopper-v4/dr.q"]
    assert len(jobs_of_folder(tmp_path)) == 7, "nothing that was there is forgotten"
    assert {job.settings.config.discount for job in jobs_of_folder(tmp_path)} == {0.9, 0.95, 0.99}
    with pytest.raises(RunFolderError, match="holds another sweep: steps the default, got 7"):
        folders(steps=7)


def test_a_sweep_remembers_what_its_presets_were(mine, tmp_path):
    out = tmp_path / "sweep"
    dr_q.load_presets(mine)
    spec = SweepSpec(("gym/Ant-v4",), ("quick+large-batch", "mr.q"), 2)
    assert spec.definitions == {"large-batch": {"batch_size": 512}}
    write_spec(spec, out, 1)
    for name in ("large-batch", "large-batch-slow-fade"):
        del PRESETS[name]
    first, _ = jobs_of_folder(out)
    assert first.settings.config.batch_size == 512, "also where the file was not read"
    assert Job.from_json(json.loads(json.dumps(first.to_json()))) == first, "as another process gets it"
    mine.write_text("[large-batch]\nbatch_size = 1024")
    dr_q.load_presets(mine)
    with pytest.raises(RunFolderError, match="holds another preset 'large-batch': batch_size 512, got batch_size 1024"):
        check_folder(SweepSpec(("gym/Ant-v4",), ("large-batch",), 2), out)


def test_a_folder_of_an_earlier_version_is_extended(tmp_path):
    spec = SweepSpec(("gym/Ant-v4",), ("dr.q",), 10)
    old = {name: x for name, x in spec.to_json().items() if name not in ("first_seed", "grid", "definitions")}
    (tmp_path / "sweep.json").write_text(json.dumps({"spec": old, "cpu_threads": None}))
    more = SweepSpec(("gym/Ant-v4",), ("dr.q",), 12)
    assert check_folder(more, tmp_path)
    assert [job.settings.seed_list[0] for job in more.jobs(tmp_path)] == [0, 10]


@pytest.mark.parametrize(
    ("share", "gpus", "cpus", "found"),
    [
        (Share(1), [], 4, [""] * 4),
        (Share(3), [], 4, [""]),
        (Share(4, 1), ["0", "1"], 16, ["0", "1"]),
        (Share(5, 1 / 3), ["0"], 16, ["0", "0", "0"]),
        (Share(5, 0.5), ["2", "5"], 20, ["2", "5", "2", "5"]),
        (Share(5, 2), ["0", "1", "2"], 20, ["0,1"]),
        (Share(9, 0.5), ["0"], 16, ["0"]),  # no cores for a second one
    ],
)
def test_slots_of_a_machine(share, gpus, cpus, found):
    assert [slot.get("CUDA_VISIBLE_DEVICES", "") for slot in slots(share, gpus, cpus)] == found


def test_the_longest_job_starts_first(tmp_path):
    tasks = ("dmc/cheetah-run", "dmc-visual/walker-run", "gym/Ant-v4")
    jobs = SweepSpec(tasks, ("dr.q",), 5).jobs(tmp_path)
    assert [job.task for job in longest_first(jobs, on_gpu=True)] == [tasks[1], tasks[2], tasks[0]]
    assert longest_first(jobs, on_gpu=False)[0].task == "gym/Ant-v4", "by steps, where nothing was measured"
    assert make_settings("gym/Ant-v4").steps == 1_000_000
