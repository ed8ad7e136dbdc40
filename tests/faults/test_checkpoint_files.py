"""A checkpoint that is interrupted anywhere, or damaged in any way, costs nothing but what came after the last."""

import json
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import dr_q
from dr_q import replay as rp
from dr_q.cli import main
from dr_q.envs import make_env
from dr_q.learner import LearnerSpec
from dr_q.learner.saving import load_newest
from dr_q.run_folder import FORMAT, Checkpoints, read_arrays, read_run_json, write_arrays
from dr_q.settings import Settings
from tests.envs import toys
from tests.faults import disk, soak
from tests.training import tiny

HOME = Path(__file__).parents[2]


@pytest.mark.skipif(disk.shim() is None, reason="no C compiler, or not Linux")
@pytest.mark.parametrize("kind", ["kill", "torn", "full"])
def test_a_fault_at_every_change_of_the_disk_leaves_a_whole_checkpoint(kind):
    """And the next attempt ends with the same files. In memory, where flushing costs nothing."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        root = Path(folder) / "runs"
        command = [sys.executable, "-m", "tests.faults.checkpoint_writer", str(root), kind]
        done = subprocess.run(
            command, env=disk.with_faults(root), cwd=HOME, capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["faults"] == said["changes"] >= 50, "each change of the disk"
    assert 0 < said["newer"] < said["faults"], "before and after the one that makes it count"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Two seeds, checkpoints of steps 40, 80 and 120."""
    out = tmp_path_factory.mktemp("faults") / "run"
    dr_q.train(toys.Walk, seeds=2, steps=tiny.STEPS, out=out, **tiny.RUN, **tiny.SIZES, in_process=True)
    return out


@pytest.fixture
def copy(run, tmp_path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


def spec_of(run: Path) -> LearnerSpec:
    settings = Settings.from_json(read_run_json(run)["settings"], toys.Walk)
    return LearnerSpec(
        settings.config, make_env(toys.Walk).spec.spaces.sizes(), rp.slots_to_fill(settings.steps, 10**6)
    )


def resume_from(run: Path) -> tuple[int, list[str]]:
    """Which step a resume uses, and what it says."""
    said: list[str] = []
    saved, _ = load_newest(Checkpoints(run, [0, 1]), spec_of(run), said.append)
    return saved.agent_steps, said


@pytest.mark.parametrize("damage", soak.DAMAGES)
@pytest.mark.parametrize("file", ["agents", "replay", "episodes", "checkpoint.json", "a chunk"])
def test_no_damage_goes_unnoticed_and_the_newest_whole_checkpoint_is_used(file, damage, copy):
    for attempt in range(5 if damage == "flipped bit" else 1):
        work = Path(shutil.copytree(copy, copy.parent / f"{attempt}"))
        newest = work / "checkpoints" / "120"
        chunk = json.loads((newest / "checkpoint.json").read_text())["chunks"][1][-1]  # not in the older ones
        path = (
            work / f"checkpoints/replay/seed1/{chunk}.safetensors" if file == "a chunk" else soak.FILES[file](work)[0]
        )
        soak.DAMAGES[damage](path, random.Random(f"{file} {damage} {attempt}"))
        used, said = resume_from(work)
        assert used == 80
        assert len(said) == 1
        assert said[0].startswith("the checkpoint of step 120 is damaged (")
        assert said[0].endswith(f"is now {work / 'checkpoints' / 'damaged-120'}; resuming from step 80 instead")
        assert path.name in said[0]
        assert Checkpoints(work, [0, 1]).steps() == [40, 80]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            "agents of an older step",
            "agents.safetensors belongs to another checkpoint: its agent_steps is 80, expected 120",
        ),
        ("chunk of another seed", "belongs to another checkpoint: its seed is 0, expected 1"),
        ("agent_steps 9999", "checkpoint.json: checksum differs"),
        ("episodes NaN", "checkpoint.json: checksum differs"),
        ("chunk names with ..", "checkpoint.json: checksum differs"),
    ],
)
def test_files_of_other_steps_and_seeds_are_not_taken(kind, said, copy):
    assert soak.OTHER_DAMAGE[kind](copy, random.Random(0))
    used, lines = resume_from(copy)
    assert used == 80
    assert said in lines[0]


def test_a_chunk_that_every_checkpoint_has_stops_the_run_and_is_named(copy, monkeypatch):
    """The first chunk is full, so the checkpoints share it."""
    names = [json.loads((copy / f"checkpoints/{step}/checkpoint.json").read_text())["chunks"][0] for step in (80, 120)]
    index = copy / "checkpoints" / "120" / "checkpoint.json"
    shared = copy / f"checkpoints/replay/seed0/{names[0][0]}.safetensors"
    checkpoints = Checkpoints(copy, [0, 1])
    for step in (40, 80):
        shutil.rmtree(copy / "checkpoints" / str(step))
    only = copy / f"checkpoints/replay/seed0/{names[1][0]}.safetensors"
    soak.flip(only, random.Random(0))
    with pytest.raises(dr_q.DamagedFileError, match=f"step 120 is damaged: .*{only.name}.*; no other is left"):
        resume_from(copy)
    assert index.exists(), "nothing is renamed where nothing else is left"
    assert checkpoints.steps() == [120]
    assert shared.exists()


def as_format_2(run: Path) -> None:
    """As the version before checksums wrote it."""
    folder = run / "checkpoints"
    for step in Checkpoints(run, [0, 1]).steps():
        index = folder / str(step) / "checkpoint.json"
        record = json.loads(index.read_text())
        for name in ("sha256", "index_sha256", "evaluations", "settings"):
            del record[name]
        record["chunks"] = [[name.replace(f"-f{FORMAT}", "-f2") for name in mine] for mine in record["chunks"]]
        index.write_text(json.dumps({**record, "format": 2}))
    for file in list(folder.rglob("*.safetensors")):
        write_arrays(file, read_arrays(file))
        file.rename(file.with_name(file.name.replace(f"-f{FORMAT}", "-f2")))


def test_a_checkpoint_without_checksums_still_loads_and_says_so(copy, capsys):
    as_format_2(copy)
    assert resume_from(copy) == (
        120,
        ["the checkpoint of step 120 is of a format without checksums: damage in it would not be noticed"],
    )
    assert main(["doctor", str(copy)]) == 0
    assert "files can be read; its format has no checksums" in capsys.readouterr().out
    assert dr_q.train(toys.Walk, resume=copy, steps=160, in_process=True, quiet=True).status == "finished"
    assert Checkpoints(copy, [0, 1]).read(160).damages() == []


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("agent_steps", 9999, "agent_steps must be that of its folder, 120, got 9999"),
        ("agent_steps", "x", "agent_steps must be a whole number of at least 0, got 'x'"),
        ("episodes", [float("nan"), 0], "episodes must be a list of whole numbers of at least 0, got [nan, 0]"),
        ("episodes", [1], "episodes must be a list of 2, got [1]"),
        ("seeds", [0, 0], "seeds must be different seeds, got [0, 0]"),
        ("seeds", {"a": 1}, "seeds must be a list, got {'a': 1}"),
        ("capacity", 0, "capacity must be a whole number of at least 1, got 0"),
        ("capacity", True, "capacity must be a whole number of at least 1, got True"),
        ("chunks", [["../../../etc/x"], []], "chunks must be names like"),
        ("chunks", [[3], []], "chunks must be names like"),
        ("chunks", [7, 7], "chunks must be a list of names for each seed, got [7, 7]"),
        ("encoder_metrics", {"loss": ["a", "b"]}, "encoder_metrics.loss must be numbers, got ['a', 'b']"),
        ("format", "2", "format must be a whole number of at least 1, got '2'"),
    ],
)
def test_fields_of_checkpoint_json_are_named_with_their_value(field, value, said, copy):
    """Of the format without a checksum of the file itself."""
    as_format_2(copy)
    file = copy / "checkpoints" / "120" / "checkpoint.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), field: value}))
    with pytest.raises(dr_q.DamagedFileError) as error:
        Checkpoints(copy, [0, 1]).read(120)
    assert str(error.value).startswith(f"{file} is damaged: {said}")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r.update(agent_steps="many"), "agent_steps must be a whole number of at least 0, got 'many'"),
        (lambda r: r.update(status="runnjng"), "status must be one of running, finished"),
        (lambda r: r.update(seeds=[0, "1"]), "seeds must be a list of whole numbers"),
        (lambda r: r.update(versions=3), "versions must be names and values, got 3"),
        (lambda r: r.update(seconds="long"), "seconds must be a finite number, at least 0, got 'long'"),
        (lambda r: r.update(settings=[]), "settings must be names and values, got []"),
        (lambda r: r["settings"].update(task=3), "settings.task must be text, got 3"),
        (lambda r: r["settings"].update(steps=0), "the settings in run.json are damaged: steps must be a whole number"),
        (
            lambda r: r["settings"].update(seeds=3),
            "seeds is [0, 1, 2], but the checkpoint of step 120 was made with [0, 1]",
        ),
        (lambda r: r["settings"]["config"].update(discount=0.98), "discount is 0.98, but the checkpoint of step 120"),
        (lambda r: r["settings"]["config"].update(discount=2.5), "are damaged: discount must be a number"),
        (lambda r: r["settings"].update(steps=90), "is past the end of the run"),
        (lambda r: r.update(earlier_versions=[{"until": "x"}]), "earlier_versions.until must be a whole number"),
    ],
)
def test_fields_of_run_json_are_named_with_their_value(change, said, copy):
    file = copy / "run.json"
    record = json.loads(file.read_text())
    change(record)
    file.write_text(json.dumps(record))
    with pytest.raises(dr_q.DamagedFileError) as error:
        dr_q.train(toys.Walk, resume=copy, in_process=True, quiet=True)
    assert said in str(error.value)


def test_a_flipped_bit_in_a_json_file_gives_one_line_or_nothing(copy):
    """Of every kind of JSON file; a bit may be one of a date, which nothing depends on."""
    command = [sys.executable, "-m", "tests.faults.json_flips", str(copy), "0", "150"]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == 1, said
    assert int(said[0].split()[0]) >= 200, "most flips matter"


def test_doctor_checks_the_files_of_a_run(copy, capsys):
    assert main(["doctor", str(copy)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 7
    assert all(line.startswith("ok ") for line in said)
    assert "ok  checkpoint of step 120: 5 files are as they were written (SHA-256)" in said
    soak.flip(copy / "checkpoints" / "80" / "replay.safetensors", random.Random(0))
    (copy / "policy" / "seed1.safetensors").write_bytes(b"")
    assert main(["doctor", str(copy)]) == 1
    wrong = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("ok ")]
    assert [line.split(":")[0] for line in wrong] == ["--  policies", "--  checkpoint of step 80"]
    assert f"dr-q train --resume {copy} uses the newest checkpoint that is whole" in wrong[1]
    assert main(["doctor", str(copy.parent)]) == 2
    assert "is not a run: it has no run.json" in capsys.readouterr().err


@pytest.mark.parametrize("damage", soak.DAMAGES)
def test_evaluations_are_restored_from_the_checkpoint(damage, copy, run, capsys):
    soak.DAMAGES[damage](copy / "evals.csv", random.Random(damage))
    dr_q.train(toys.Walk, resume=copy, in_process=True)
    assert (copy / "evals.csv").read_bytes() == (run / "evals.csv").read_bytes()
    assert "evals.csv was damaged; it is restored from the checkpoint of step 120" in capsys.readouterr().out
