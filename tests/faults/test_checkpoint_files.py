"""A checkpoint that is interrupted anywhere, or damaged in any way, costs nothing but what came after the last."""

import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import dr_q
from dr_q import replay as rp
from dr_q.cli import main
from dr_q.envs import make_env
from dr_q.kit import DamagedFileError
from dr_q.learner import LearnerSpec
from dr_q.learner.saving import load_newest
from dr_q.run_folder import FORMAT, Checkpoints, read_arrays, read_rows, read_run_json, write_arrays
from dr_q.settings import Settings
from tests.envs import toys
from tests.faults import damages, disk, soak
from tests.training import tiny

HOME = Path(__file__).parents[2]


@pytest.mark.skipif(disk.shim() is None, reason="no C compiler, or not Linux")
@pytest.mark.parametrize(("what", "least"), [("write", 100), ("resume", 50)])
def test_a_fault_at_every_change_of_the_disk_leaves_a_whole_checkpoint(what, least):
    """And the next attempt ends with the same files. In memory, where flushing costs nothing.

    "write": rows, policies and a checkpoint. "resume": a damaged checkpoint is renamed, halves of files are removed,
    the tables and the best policies are brought to where they were.
    """
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        root = Path(folder) / "runs"
        command = [sys.executable, "-m", "tests.faults.checkpoint_writer", str(root), what]
        done = subprocess.run(
            command, env=disk.with_faults(root), cwd=HOME, capture_output=True, text=True, timeout=200, check=False
        )
    assert done.returncode == 0, done.stderr
    kill, torn, full = map(json.loads, done.stdout.splitlines())
    assert [each["kind"] for each in (kill, torn, full)] == ["kill", "torn", "full"]
    assert kill["stopped"] == kill["changes"] == torn["changes"] == full["changes"] >= least, "each change of the disk"
    for fault in (torn, full):
        assert fault["stopped"] >= 0.8 * least, "after the last writes there is nothing to hit"
    if what == "write":
        assert all(0 < each["newer"] < each["changes"] for each in (kill, torn, full)), "before and after it counts"


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
    spaces = make_env(toys.Walk).spec.spaces.sizes()
    slots = rp.slots_to_allocate(rp.slots_to_fill(settings.steps, 10**6), spaces.obs, spaces.action.dim)
    return LearnerSpec(settings.config, spaces, slots)


def resume_from(run: Path) -> tuple[int, list[str]]:
    """Which step a resume uses, and what it says."""
    said: list[str] = []
    saved, _ = load_newest(Checkpoints(run, [0, 1]), spec_of(run), said.append)
    return saved.agent_steps, said


@pytest.mark.parametrize("damage", damages.DAMAGES)
@pytest.mark.parametrize("file", ["agents", "replay", "episodes", "best", "checkpoint.json", "a chunk"])
def test_no_damage_goes_unnoticed_and_the_newest_whole_checkpoint_is_used(file, damage, copy):
    for attempt in range(5 if damage == "flipped bit" else 1):
        work = Path(shutil.copytree(copy, copy.parent / f"{attempt}"))
        path = damages.FILES[file](work)[-1]
        damages.DAMAGES[damage](path, random.Random(f"{file} {damage} {attempt}"))
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
        (
            "replay of an older step",
            "replay.safetensors belongs to another checkpoint: its agent_steps is 80, expected 120",
        ),
        (
            "best policies of an older step",
            "best.safetensors belongs to another checkpoint: its agent_steps is 80, expected 120",
        ),
        ("chunk of another seed", "belongs to another checkpoint: its seed is 0, expected 1"),
        ("agent_steps 9999", "checkpoint.json: checksum differs"),
        ("episodes NaN", "checkpoint.json: checksum differs"),
        ("chunk names with ..", "checkpoint.json: checksum differs"),
    ],
)
def test_files_of_other_steps_and_seeds_are_not_taken(kind, said, copy):
    assert damages.OTHERS[kind](copy, random.Random(0))
    used, lines = resume_from(copy)
    assert used == 80
    assert said in lines[0]


SHARED: dict[str, Any] = {**tiny.SIZES, "eval_every": 200, "eval_episodes": 1, "checkpoint_every": 100}


@pytest.fixture
def small_chunks(monkeypatch) -> None:
    """Of 128 slots, so that there are several, and checkpoints share those that are full."""
    monkeypatch.setattr("dr_q.learner.saving.CHUNK_BYTES", 1)


@pytest.fixture
def sharing(tmp_path, small_chunks) -> Path:
    """Checkpoints of steps 100, 200, 300 and 400."""
    out = tmp_path / "sharing"
    dr_q.train(toys.Walk, steps=400, out=out, **SHARED, keep_checkpoints=4, in_process=True, quiet=True)
    return out


def test_a_shared_chunk_that_is_damaged(sharing, tmp_path, capsys):
    """A checkpoint without it is used, and gives the same bytes; where all have it, the run stops and names it."""
    chunks = {step: {file.name for file in damages.chunks_of(sharing, step)} for step in (100, 200, 300, 400)}
    (second,) = (chunks[300] & chunks[400]) - chunks[200]
    (first,) = (chunks[200] & chunks[300] & chunks[400]) - chunks[100]
    back, stops = (Path(shutil.copytree(sharing, tmp_path / name)) for name in ("back", "stops"))

    damages.flip(back / "checkpoints" / "replay" / "seed0" / second, random.Random(0))
    assert dr_q.train(toys.Walk, resume=back, in_process=True).status == "finished"
    said = capsys.readouterr().out
    for step in (300, 400):
        assert re.search(rf"the checkpoint of step {step} is damaged \(.*{second}.*; resuming from step 200 inst", said)
    assert "resumed at step 200\n" in said
    assert soak.results(back) == soak.results(sharing)
    assert Checkpoints(back, [0]).steps() == [100, 200, 300, 400]

    shutil.rmtree(stops / "checkpoints" / "100")
    damages.flip(stops / "checkpoints" / "replay" / "seed0" / first, random.Random(0))
    with pytest.raises(dr_q.DamagedFileError, match=f"step 400 is damaged: .*{first}.*; no other is left") as error:
        dr_q.train(toys.Walk, resume=stops, in_process=True, quiet=True)
    assert error.value.exit_code == 1
    assert str(error.value).count(first) == 3, "each checkpoint that has it"
    assert Checkpoints(stops, [0]).steps() == [200, 300, 400], "nothing is renamed where nothing else is left"


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
    assert "ok  checkpoint of step 120: 6 files are as they were written (SHA-256)" in said
    damages.flip(copy / "checkpoints" / "80" / "replay.safetensors", random.Random(0))
    (copy / "policy" / "seed1.safetensors").write_bytes(b"")
    assert main(["doctor", str(copy)]) == 1
    wrong = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("ok ")]
    assert [line.split(":")[0] for line in wrong] == ["--  policies", "--  checkpoint of step 80"]
    assert f"dr-q train --resume {copy} uses the newest checkpoint that is whole" in wrong[1]
    assert main(["doctor", str(copy.parent)]) == 2
    assert "is not a run: it has no run.json" in capsys.readouterr().err


def test_changed_weights_of_a_policy_are_refused(copy, capsys):
    """Also where the file can still be read."""
    file = copy / "policy" / "seed1.safetensors"
    arrays = safetensors.numpy.load_file(file)
    name = next(iter(arrays))
    with safetensors.safe_open(file, "numpy") as opened:
        said = opened.metadata()
    changed = {**arrays, name: arrays[name] + np.float32(1e-3)}
    safetensors.numpy.save_file(changed, file, said)
    assert main(["doctor", str(copy)]) == 1
    assert f"{file} is damaged: its weights differ from their checksum" in capsys.readouterr().out
    with pytest.raises(DamagedFileError, match="its weights differ from their checksum"):
        dr_q.load(copy, seed=1)
    dr_q.load(copy, seed=0)
    safetensors.numpy.save_file(arrays, file)  # as earlier versions wrote it
    dr_q.load(copy, seed=1)


def test_doctor_compares_evaluations_with_the_checkpoint(copy, capsys):
    file = copy / "evals.csv"
    lines = file.read_text().splitlines(keepends=True)
    row = lines[1].split(",")
    file.write_text("".join([lines[0], ",".join([*row[:3], "12.5", *row[4:]]), *lines[2:]]))
    assert main(["doctor", str(copy)]) == 1
    wrong = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("ok ")]
    assert wrong[0].startswith(f"--  evaluations: {file} differs from its copy in the checkpoint of step 120")


@pytest.mark.parametrize("damage", damages.DAMAGES)
def test_evaluations_are_restored_from_the_checkpoint(damage, copy, run, capsys):
    damages.DAMAGES[damage](copy / "evals.csv", random.Random(damage))
    dr_q.train(toys.Walk, resume=copy, in_process=True)
    assert (copy / "evals.csv").read_bytes() == (run / "evals.csv").read_bytes()
    assert "evals.csv was damaged; it is restored from the checkpoint of step 120" in capsys.readouterr().out


def results_at(run: Path, step: int) -> dict[str, bytes]:
    files = [run / "evals.csv", *(run / "policy").rglob("*.*"), *(run / "checkpoints" / str(step)).iterdir()]
    return {str(file.relative_to(run)): file.read_bytes() for file in files if file.is_file()}


@pytest.fixture(scope="module")
def longer(run, tmp_path_factory) -> Path:
    """The same run, continued to step 160."""
    out = Path(shutil.copytree(run, tmp_path_factory.mktemp("longer") / "run"))
    dr_q.train(toys.Walk, resume=out, steps=160, in_process=True, quiet=True)
    return out


BESIDES = [name for name in damages.FILES if "policy" in name or name == "TensorBoard's file"]


@pytest.mark.parametrize("damage", damages.DAMAGES)
def test_damage_to_what_is_no_part_of_a_checkpoint_does_not_matter(damage, copy, longer):
    """Policies are written anew, the best ones from the checkpoint; rows of metrics.csv are lost, and no more."""
    rng = random.Random(damage)
    for path in [path for file in BESIDES for path in damages.FILES[file](copy)]:
        damages.DAMAGES[damage](path, rng)
    if damage != "flipped bit":
        damages.DAMAGES[damage](copy / "metrics.csv", rng)
    assert dr_q.train(toys.Walk, resume=copy, steps=160, in_process=True, quiet=True).status == "finished"
    assert results_at(copy, 160) == results_at(longer, 160)
    assert [row["agent_steps"] for row in read_rows(copy / "metrics.csv")][-2:] == ["160", "160"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"x", "in line 3: agent_steps must be a whole number, got 'x"),
        (b"\x80", "is not a CSV file: line 3 is not text"),
    ],
)
def test_a_damaged_line_of_metrics_csv_is_named(value, said, copy):
    file = copy / "metrics.csv"
    file.write_bytes(file.read_bytes().replace(b"\n1,", b"\n1," + value, 1))
    with pytest.raises(dr_q.DamagedFileError) as error:
        dr_q.train(toys.Walk, resume=copy, in_process=True, quiet=True)
    assert said in str(error.value)
    assert str(error.value).startswith(str(file))
