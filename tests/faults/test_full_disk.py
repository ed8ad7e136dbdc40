"""A disk that fills and empties while a run trains, and signals at each phase of it: nothing is lost, nothing hangs."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dr_q
from dr_q.cli import main
from dr_q.envs.probe import PROBE_STEPS
from dr_q.run_folder import Checkpoints, Evaluation, RunTables, evaluation_rows
from dr_q.settings import make_settings
from dr_q.training import failed_writes, loop, writers
from dr_q.training.writers import MetricWriters
from tests.faults import disk, envs
from tests.training import tiny
from tests.training.test_resume import assert_same
from tests.training.test_stopping import tensorboard_events

HOME = Path(__file__).parents[2]
SETTINGS = make_settings("dmc/cartpole-swingup", steps=10)
ROW = Evaluation(0, 40, 40, 1.5, 0.0, 9.0, 2)
PROBED = 2 * PROBE_STEPS + 1
"""Steps of environments before a run: two are probed, and the second once more with another seed."""
WALK = {**tiny.RUN, **tiny.SIZES, "in_process": True}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The unbroken run."""
    out = tmp_path_factory.mktemp("whole") / "run"
    dr_q.train(envs.Watched, steps=tiny.STEPS, out=out, **WALK)
    return out


@pytest.fixture
def at(monkeypatch) -> dict[int, Any]:
    """What happens before steps of environments, counted from now on."""
    monkeypatch.setattr(envs, "CALLS", 0)
    monkeypatch.setattr(envs, "AT", {})
    monkeypatch.setattr(failed_writes, "_PAUSE_S", 0.05)
    return envs.AT


# Writers


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def wait_for(true, seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_tensorboard_cannot_block_a_run_and_is_written_once_there_is_room(tmp_path, monkeypatch):
    """The thread of the library died of the first error, and the loop waited for it for ever."""
    monkeypatch.setattr(writers, "RETRY_S", 0.05)
    said: list[str] = []
    written = MetricWriters(tmp_path, SETTINGS, False, say=said.append)
    wait_for(lambda: list((tmp_path / "tensorboard").glob("*")))
    with monkeypatch.context() as full:
        full.setattr(writers._TensorBoard, "_append", no_space)  # pyright: ignore[reportPrivateUsage]
        for step in range(200):
            written.scalars({"x": float(step)}, step)
        wait_for(lambda: said)
        time.sleep(0.2)
    wait_for(lambda: len(said) == 2)
    written.close()
    (file,) = (tmp_path / "tensorboard").iterdir()
    assert [event.step for event in tensorboard_events(file) if event.summary.value] == list(range(200))
    assert said[0].startswith("TensorBoard cannot be written (No space left on device); training continues, and it is")
    assert said[1:] == ["TensorBoard is written again"]


@pytest.mark.parametrize("how", ["raises", "hangs"])
def test_weights_and_biases_cannot_end_or_block_a_run(how, tmp_path, monkeypatch):
    monkeypatch.setattr(writers, "RETRY_S", 0.05)
    monkeypatch.setattr(writers, "_PATIENCE_S", {"TensorBoard": 10.0, "Weights & Biases": 0.3})
    release = threading.Event()

    def log(values: dict[str, float]) -> None:
        if how == "hangs":
            release.wait(60)
        raise RuntimeError("the server is away\nand more")

    run = SimpleNamespace(log=log, finish=lambda: None)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **_: run))
    said: list[str] = []
    written = MetricWriters(tmp_path, SETTINGS, True, say=said.append)
    begin = time.monotonic()
    for step in range(50):
        written.scalars({"x": 1.0}, step)
    written.close()
    assert time.monotonic() - begin < 20
    release.set()
    if how == "raises":
        assert said[0].startswith("Weights & Biases cannot be written (RuntimeError: the server is away); training")
    assert "Weights & Biases lacks the values of 50 logged steps, which could not be written" in said


def test_rows_that_do_not_fit_are_kept_and_written_later(tmp_path, monkeypatch):
    said: list[str] = []
    tables = RunTables(tmp_path, said.append)
    tables.append_evaluations([ROW])
    with monkeypatch.context() as full:
        full.setattr("dr_q.run_folder.tables.append_whole", no_space)
        for step in (80, 120):
            tables.append_evaluations([ROW._replace(agent_steps=step)])
        with pytest.raises(OSError, match="No space left"):
            tables.flush()  # no checkpoint without them
    tables.flush()
    assert [row["agent_steps"] for row in evaluation_rows(tmp_path)] == ["40", "80", "120"]
    assert len(said) == 2
    assert "its rows are kept, and written when that is possible; training continues" in said[0]
    assert said[1].endswith("evals.csv is written again, with the rows that were kept")


# Whole runs


@pytest.mark.skipif(disk.shim() is None, reason="no C compiler, or not Linux")
@pytest.mark.parametrize(
    "fault",
    [
        "for a moment",
        pytest.param("for a moment, and SIGTERM after it", marks=pytest.mark.slow),
        pytest.param("to the end", marks=pytest.mark.slow),
    ],
)
def test_a_run_on_a_full_disk(fault, whole, tmp_path):
    """In a process of its own, whose disk has no space left between two steps of the environment."""
    folder = tmp_path / "home"
    folder.mkdir()
    out, full = folder / "run", tmp_path / "full"
    begins, ends = call_of(whole, 50), call_of(whole, 100)
    faults = [begins, 0 if fault == "to the end" else ends, ends + 5 if "SIGTERM" in fault else 0]
    command = [sys.executable, "-m", "tests.faults.full_disk_run", str(out), str(full), *map(str, faults)]
    begin = time.monotonic()
    done = subprocess.run(
        command,
        env=disk.with_faults(folder, full=full),
        cwd=HOME,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert time.monotonic() - begin < 100
    assert "Traceback" not in done.stdout + done.stderr
    full.unlink(missing_ok=True)
    if fault == "for a moment":
        assert done.returncode == 0, done.stderr
        assert "the checkpoint of step 80 could not be written (" in done.stdout
        assert "No space left on device" in done.stdout
        assert "training continues, and the next one is tried (failed: 1 of 3)" in done.stdout
        assert Checkpoints(out, [0]).steps() == [40, 120]
    elif fault == "to the end":
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.startswith("dr-q: the checkpoint of step 120 could not be written (")
        assert line.endswith(f"; once that is fixed, resume from step 40 with: dr-q train --resume {out}")
        assert main(["train", "--resume", str(out)]) == 0
    else:
        assert done.returncode == 143, done.stderr
        assert main(["train", "--resume", str(out)]) == 0
    assert_same(whole, out)


def test_a_run_stops_after_the_checkpoints_that_it_may_fail(tmp_path, monkeypatch, capsys):
    def fail(self, checkpoint):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "run" / "checkpoints"))

    monkeypatch.setattr(Checkpoints, "write", fail)
    arguments = ["train", "tests.envs.toys:drq-walk-v0", "--out", str(tmp_path / "run"), *tiny.flags()]
    assert main([*arguments, "--max-failed-checkpoints", "2"]) == 1, "and not 2, for usage"
    said = capsys.readouterr()
    assert said.out.count("training continues, and the next one is tried (failed: 1 of 2)") == 1
    place = tmp_path / "run" / "checkpoints"
    assert said.err == (
        f"dr-q: the checkpoint of step 80 could not be written ({place}: Permission denied): 2 in a row, "
        "the limit of --max-failed-checkpoints; once that is fixed, start again (there is no checkpoint yet) "
        f"with: dr-q train --resume {tmp_path / 'run'}\n"
    )
    monkeypatch.undo()
    assert main(["train", "--resume", str(tmp_path / "run")]) == 0, "as the line says"


def test_errors_of_the_disk_in_mid_run_are_failures_and_name_the_command(tmp_path, monkeypatch, capsys):
    """A file that is not there means usage before a run, and a failure in the middle of one."""

    def fail(self, status, *rest):
        if status == "finished":
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", "run.json")
        write(self, status, *rest)

    record = loop.RunJson
    write = record.write
    monkeypatch.setattr(record, "write", fail)
    assert main(["train", "tests.envs.toys:drq-walk-v0", "--out", str(tmp_path / "run"), *tiny.flags()]) == 1
    assert capsys.readouterr().err == (
        "dr-q: failed at step 120: run.json: No such file or directory; once that is fixed, resume from step 120 with: "
        f"dr-q train --resume {tmp_path / 'run'}\n"
    )


PHASES = (
    "compiling",
    "loading a checkpoint",
    "exploration",
    "learning",
    "evaluation",
    "checkpoint",
    "last checkpoint",
    "measuring the best policies",
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("phase", PHASES)
def test_a_signal_at_each_phase_leaves_a_run_to_resume(phase, number, whole, at, tmp_path, monkeypatch):
    out = tmp_path / "run"
    loading = phase == "loading a checkpoint"

    def before(owner: Any, name: str, when: Callable[..., bool] = lambda *_: True) -> None:
        """Send the signal before a call."""
        call = getattr(owner, name)

        def with_a_signal(*arguments):
            if when(*arguments):
                os.kill(os.getpid(), number)
            return call(*arguments)

        monkeypatch.setattr(owner, name, with_a_signal)

    calls: dict[str, Callable[[], None]] = {
        "compiling": lambda: before(loop.Learner, "compile"),
        "loading a checkpoint": lambda: before(loop, "load_newest"),
        "checkpoint": lambda: before(Checkpoints, "write", lambda _, x: x.agent_steps == 40),
        "last checkpoint": lambda: before(Checkpoints, "write", lambda _, x: x.agent_steps == tiny.STEPS),
        "measuring the best policies": lambda: before(loop.BestPolicies, "measure"),
    }
    places = {"evaluation": PROBED + 3, "exploration": call_of(whole, 20)}
    if phase in calls:
        calls[phase]()
    if phase not in calls or loading:  # there must be a checkpoint to load
        at[places.get(phase, call_of(whole, 60))] = envs.signals(number)
    ended = dr_q.train(envs.Watched, steps=tiny.STEPS, out=out, **WALK)
    if loading:
        at.clear()
        ended = dr_q.train(envs.Watched, resume=out, in_process=True, quiet=True)
    over = phase in ("last checkpoint", "measuring the best policies")
    assert (ended.status, ended.signal) == (("finished", 0) if over else ("interrupted", number))
    reached = {"compiling": 0, "exploration": 20, "learning": 60, "evaluation": 0, "checkpoint": 41}
    assert ended.agent_steps == {**reached, "loading a checkpoint": 60}.get(phase, tiny.STEPS)
    assert Checkpoints(out, [0]).steps()[-1:] == [step for step in [ended.agent_steps] if step]
    at.clear()
    monkeypatch.undo()
    assert dr_q.train(envs.Watched, resume=out, in_process=True, quiet=True).status == "finished"
    assert_same(whole, out)
    for file in (whole / "policy" / "best").iterdir():
        assert file.read_bytes() == (out / "policy" / "best" / file.name).read_bytes(), file.name


def call_of(run: Path, step: int) -> int:
    """The number of the call that is this step of training: those of the probe and of evaluations before it too."""
    before = [row for row in evaluation_rows(run) if int(row["agent_steps"]) < step]
    return PROBED + step + sum(round(float(row["length_mean"]) * int(row["episodes"])) for row in before)
