"""Where a run tells of itself: lost readers, full disks under a log, environments that leave the current folder."""

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dr_q
from dr_q.cli import main
from dr_q.kit import EnvError
from dr_q.run_folder import checkpoint_steps, read_run_json
from tests.envs import toys
from tests.training import tiny

HOME = Path(__file__).parents[2]
TRAIN = "import sys; from dr_q.cli import main; sys.exit(main(sys.argv[1:]))"


def started(out: Path, **how) -> subprocess.Popen[str]:
    command = ["train", "tests.envs.toys:drq-walk-v0", "--out", str(out), *tiny.flags()]
    return subprocess.Popen([sys.executable, "-c", TRAIN, *command], cwd=HOME, stderr=subprocess.PIPE, text=True, **how)


def test_a_reader_that_leaves_does_not_end_a_run(tmp_path):
    with started(tmp_path / "run", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait() == 0, said
    assert said == "dr-q: nobody reads the output any more; training continues without it\n"
    assert read_run_json(tmp_path / "run", "status")["status"] == "finished"
    assert checkpoint_steps(tmp_path / "run")[-1] == tiny.STEPS


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_log_on_a_full_disk_does_not_fail_a_run(tmp_path):
    with Path("/dev/full").open("w") as full, started(tmp_path / "run", stdout=full) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait() == 0, said
    assert said == ""
    assert read_run_json(tmp_path / "run", "status")["status"] == "finished"


class Leaves(toys.Walk):
    """Changes the current folder, as careless simulators do."""

    def __init__(self, where: str):
        super().__init__()
        self.where = where

    def outcome(self, action):
        os.chdir(self.where)
        return super().outcome(action)


def test_an_environment_that_changes_the_folder_does_not_move_the_run(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    make = functools.partial(Leaves, str(tmp_path / "elsewhere"))
    result = dr_q.train(make, steps=80, out="runs/a", in_process=True, **tiny.RUN, **tiny.SIZES)
    assert Path.cwd() == tmp_path / "elsewhere", "or nothing was tried"
    assert not list((tmp_path / "elsewhere").iterdir())
    assert result.folder == Path("runs/a")
    assert checkpoint_steps(tmp_path / "runs" / "a")[-1] == 80
    os.chdir(tmp_path)
    dr_q.train(make, steps=120, resume="runs/a", in_process=True, quiet=True)
    assert read_run_json(tmp_path / "runs" / "a", "status", "agent_steps")["agent_steps"] == 120


class Odd(toys.Walk):
    """Says at the 30th step something that no environment should."""

    def __init__(self, how: str):
        super().__init__()
        self.how, self.steps = how, 0

    def step(self, action) -> Any:
        self.steps += 1
        obs, reward, terminated, truncated, info = super().step(action)
        if self.steps < 30:
            return obs, reward, terminated, truncated, info
        if self.how == "array":
            return obs, reward, np.array([True, False]), truncated, info
        if self.how == "exit":
            raise GeneratorExit
        raise MuteError


class MuteError(Exception):
    """Cannot say what it is."""

    def __str__(self):
        raise RuntimeError("never")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("array", r"gave array\(\[ True, False\]\) as terminated, expected True or False"),
        ("exit", r"failed in step\(action\): GeneratorExit: "),
        ("mute", r"failed in step\(action\): MuteError: its text cannot be shown \(RuntimeError\)"),
    ],
)
def test_what_no_environment_should_do_is_one_line(how, said, tmp_path):
    make = functools.partial(Odd, how)
    with pytest.raises(EnvError, match=said):
        dr_q.train(make, steps=80, out=tmp_path / "run", in_process=True, **tiny.RUN, **tiny.SIZES)
    assert read_run_json(tmp_path / "run", "status")["status"] == "failed"


WRONG_TYPES = """
import dr_q
from tests.envs import toys
for given in ({"steps": "100"}, {"steps": [1]}, {"preset": 5}, {"resume": 5}, {"out": 5}):
    try:
        dr_q.train(toys.Walk, **given)
    except dr_q.ConfigError as error:
        print(error)
"""


def test_python_arguments_of_a_wrong_type_are_named():
    """In a process that does not check annotations, as a user's."""
    done = subprocess.run([sys.executable, "-c", WRONG_TYPES], cwd=HOME, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    steps = "steps must be a whole number"
    said = [line.partition(" between")[0] for line in done.stdout.splitlines()]
    assert said[0].startswith(steps)
    assert said[1].startswith(steps)
    assert said[2:] == [
        "preset must be the name of a preset, got 5",
        "resume must be the path of a folder, got 5",
        "out must be the path of a folder, got 5",
    ]


def test_figures_and_tables_are_written_whole(tmp_path, monkeypatch, capsys):
    """A full disk leaves those that were there, and its message names the file."""
    dr_q.train(toys.Walk, steps=80, out=tmp_path / "run", in_process=True, **tiny.RUN, **tiny.SIZES)
    commands = (["plot", "--out", "a.png"], ["results", "--out", "a.csv"])
    for (command, *options), name in zip(commands, ("a.png", "a.csv"), strict=True):
        (tmp_path / name).write_bytes(b"the one before")
        monkeypatch.chdir(tmp_path)
        with monkeypatch.context() as full:
            full.setattr("os.fsync", fail)
            assert main([command, "run", *options]) == 1
        assert f"{name}: No space left on device" in capsys.readouterr().err.replace("'", "")
        assert (tmp_path / name).read_bytes() == b"the one before"
        assert main([command, "run", *options]) == 0
        assert (tmp_path / name).read_bytes() != b"the one before"
    assert not list(tmp_path.glob("*.part"))


def fail(*_):
    raise OSError(28, "No space left on device")
