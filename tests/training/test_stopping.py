"""Runs that cannot continue, and those that are asked to stop, say so."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from safetensors import SafetensorError
from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue] - made at import

import dr_q
from dr_q.cli import main
from dr_q.diagnostics import doctor
from dr_q.kit import TrainingError
from dr_q.policies import episodes, export
from dr_q.run_folder import Checkpoints, arrays, read_run_json
from dr_q.settings import make_settings
from dr_q.training import loop
from dr_q.training.signals import Signals
from dr_q.training.signals import _active as active_signals  # pyright: ignore[reportPrivateUsage]
from dr_q.training.writers import MetricWriters
from tests.envs import toys
from tests.training import tiny


class Endless(toys.Toy):
    """No end, no time limit."""

    def outcome(self, action):
        return 1.0, False, False


def test_an_evaluation_without_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(episodes, "LONGEST_EPISODE", 50)
    with pytest.raises(TrainingError, match=r"not ended after 50 steps.*gymnasium\.wrappers\.TimeLimit"):
        dr_q.train(Endless, steps=40, out=tmp_path / "run", **tiny.RUN, **tiny.SIZES)


def test_too_little_exploration_is_called_that(tmp_path):
    with pytest.raises(TrainingError, match="no window of 5 transitions to learn from: too few steps yet"):
        dr_q.train(toys.Walk, steps=40, out=tmp_path / "run", **{**tiny.RUN, **tiny.SIZES, "exploration_steps": 5})
    with pytest.raises(dr_q.ConfigError, match="exploration_steps 0 leaves nothing to learn from: give at least 1, or"):
        dr_q.train(toys.Walk, exploration_steps=0)


def signal_and_wait() -> None:
    signal.raise_signal(signal.SIGINT)
    time.sleep(60)


def test_the_first_signal_is_answered_and_the_second_ends(capfd, monkeypatch):
    monkeypatch.setattr("dr_q.training.signals.SAME", 0)
    with Signals("stopping") as signals:
        signal.raise_signal(signal.SIGINT)
        assert signals.received == signal.SIGINT
        said, until = "", time.monotonic() + 60
        while not said and time.monotonic() < until:  # by another thread
            time.sleep(0.01)
            said = capfd.readouterr().err
        assert said == "stopping\n"
        with pytest.raises(KeyboardInterrupt):
            signal_and_wait()
    assert signals.received == signal.SIGINT
    assert capfd.readouterr().err == ""


def test_a_run_whose_environment_fails_says_how_to_resume(tmp_path, capsys):
    out, settings = tmp_path / "run", {**tiny.RUN, **tiny.SIZES, "quiet": False, "in_process": True}
    with pytest.raises(dr_q.EnvError, match=r"Breaks failed in step\(action\): JSONDecodeError"):
        dr_q.train(toys.Breaks, steps=80, out=out, **settings)
    told = "failed at step 0; once that is fixed, start again (there is no checkpoint yet) with: "
    assert f"{told}dr_q.train(THE_SAME_CALLABLE, resume='{out}')" in capsys.readouterr().out
    with pytest.raises(dr_q.ConfigError, match=r"batch_size 999 does not fit the run in .*, which has 16"):
        dr_q.train(toys.Walk, resume=out, batch_size=999)
    with pytest.raises(dr_q.ConfigError, match=r"seeds 7 does not fit the run in .*, which has 1"):
        dr_q.train(toys.Walk, resume=out, seeds=7)
    with pytest.raises(dr_q.ConfigError, match="name two folders"):
        dr_q.train(toys.Walk, resume=out, out=tmp_path / "elsewhere")
    with pytest.raises(dr_q.RunFolderError, match="made_from Walk, the run's Breaks"):
        dr_q.train(toys.Walk, resume=out, steps=80)
    done = dr_q.train(toys.Walk, resume=out, steps=80, new_environment=True)
    assert done.status == "finished"  # begins again: it had no checkpoint
    assert "has no checkpoint yet: from the beginning" in capsys.readouterr().out


def test_the_command_that_a_first_failure_names_is_the_way_on(tmp_path, monkeypatch, capsys):
    """In the evaluation at step 0, before anything was written but run.json."""

    taken, outcome = [], toys.Walk.outcome

    def fail(self, action):
        taken.append(action)
        if len(taken) > 10:  # more than the look at it before training takes
            raise RuntimeError("no robot there")
        return outcome(self, action)

    monkeypatch.setattr(toys.Walk, "outcome", fail)
    gymnasium.register("Fixed-v0", "tests.envs.toys:Walk")
    try:
        arguments = ["train", "gym/Fixed-v0", "--out", str(tmp_path / "run"), *tiny.flags(steps=40)]
        assert main(arguments) == 1
        assert f"dr-q train --resume {tmp_path / 'run'}" in capsys.readouterr().out
        monkeypatch.undo()
        assert main(["train", "--resume", str(tmp_path / "run")]) == 0
    finally:
        del gymnasium.registry["Fixed-v0"]


def test_a_run_that_only_explores_says_so(tmp_path, capsys):
    dr_q.train(toys.Walk, steps=40, out=tmp_path / "run", **{**tiny.RUN, **tiny.SIZES, "quiet": False})
    told = capsys.readouterr().out
    assert "nothing will be learnt: all 40 steps explore; give more steps than exploration_steps, 40" in told
    assert "step 40 of 40" in told
    assert "left" not in told, "random actions say nothing of how long learning takes"


WRONG = """
import dr_q
from tests.envs import toys
walk = toys.Walk
for task, settings in (
    (walk, {"steps": 1e3}), (walk, {"eval_evry": 3}), (walk, {"stop_after": -1}), (walk, {"stop_after": float("nan")}),
    (walk, {"seed": 1.5}), (walk, {"discount": "0.9"}), (walk, {"actor_learning_rate": float("inf")}),
    (walk, {"reward_range": 5}), (walk, {"reward_range": (-1000, 1000)}), (walk, {"reward_scaling": "no"}),
    (walk, {"device_memory": float("nan")}), (walk(), {}), (3, {})
):
    try:
        dr_q.train(task, out=OUT, **settings)
    except (dr_q.ConfigError, dr_q.TaskError) as error:
        print(error)
"""


def test_arguments_that_cannot_be_are_refused(tmp_path):
    """In another process: in this one types are checked before that."""
    code = WRONG.replace("OUT", repr(str(tmp_path / "run")))
    home = Path(__file__).parents[2]
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=home).stdout
    assert said.splitlines() == [
        "steps must be a whole number between 1 and 1000000000, got 1000.0",
        "unknown setting 'eval_evry'; did you mean 'eval_every'?",
        "max_minutes must be a number, more than 0 and at most 1000000000, got -1",
        "max_minutes must be a number, more than 0 and at most 1000000000, got nan",
        "seed must be a whole number between 0 and 4294967295, got 1.5",
        "discount must be a number between 0 and 1, got '0.9'",
        "actor_learning_rate must be a number between 0 and 1, got inf",
        "reward_range must be two numbers, the lower first, within +-80, got 5",
        "reward_range must be two numbers, the lower first, within +-80, got (-1000, 1000)",
        "reward_scaling must be True or False, got 'no'",
        "device_memory must be a number, more than 0 and at most 1000000000, got nan",
        *(
            f"got {kind} as a task; give a name, or a callable that makes a new environment each time: a class, or "
            "lambda: MyEnv(...)"
            for kind in ("Walk", "int")
        ),
    ]
    assert not (tmp_path / "run").exists()


def test_files_that_cannot_be_written_give_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["train", "gym/Hopper-v4", "--out", str(tmp_path / "file" / "run"), *tiny.flags()]) == 2
    assert capsys.readouterr().err.startswith(f"dr-q: cannot use {tmp_path / 'file'}")
    assert main(["train", "gym/Hopper-v4", "--out", str(tmp_path / "file"), *tiny.flags()]) == 2
    assert "is a file; choose another --out" in capsys.readouterr().err


def test_an_export_whose_episodes_fail_leaves_nothing_behind(tmp_path, monkeypatch, capsys):
    run, out = tmp_path / "run", tmp_path / "out"
    assert main(["train", "gym/Hopper-v4", "--out", str(run), *tiny.flags(steps=40)]) == 0

    def fail(*_):
        raise dr_q.EnvError("no robot there")

    monkeypatch.setattr(export, "evaluate_loaded", fail)
    assert main(["export", str(run), "--out", str(out)]) == 1
    assert "no robot there" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    out.mkdir()
    assert main(["export", str(run), "--out", str(out), "--episodes", "0"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]
    assert (out / "README.md").exists()
    file = run / "policy" / "seed0.safetensors"
    weights = arrays.read_arrays(file)
    name = next(iter(weights))
    for value, said in (
        (1e6, "is NaN or infinite in float16; use --precision float32"),
        (np.nan, "seed 0 has diverged"),
    ):
        arrays.write_arrays(file, {**weights, name: np.full_like(weights[name], value)})
        words = ["--episodes", "0", "--precision", "float16"]
        assert main(["export", str(run), "--out", str(tmp_path / "other"), *words]) == 2
        assert said in capsys.readouterr().err


def test_a_full_disk_gives_one_line(tmp_path, monkeypatch, capsys):
    """And training continues until the end, where there must be a checkpoint; the way on is named."""
    monkeypatch.setattr("dr_q.training.failed_writes._PAUSE_S", 0.0)
    failures = (
        (SafetensorError("Error while serializing: No space left on device"), "could not be written (Error while"),
        (OSError(28, "No space left on device"), "No space left on device"),
    )
    run = tmp_path
    for number, (error, said) in enumerate(failures):

        def fail(*_, error=error):
            raise error

        run = tmp_path / f"run{number}"
        monkeypatch.setattr(arrays, "save_file", fail)
        assert main(["train", "tests.envs.toys:drq-walk-v0", "--out", str(run), *tiny.flags()]) == 1
        told = capsys.readouterr()
        assert len(told.err.splitlines()) == 1
        assert told.err.startswith("dr-q: the checkpoint of step 120 could not be written (")
        assert said in told.err
        assert told.err.endswith(f"start again (there is no checkpoint yet) with: dr-q train --resume {run}\n")
        assert "step 120 of 120" in told.out
    monkeypatch.undo()
    assert main(["train", "--resume", str(run)]) == 0


def test_a_machine_without_the_device_that_was_asked_for(tmp_path, monkeypatch, capsys):
    def fail() -> Any:
        raise RuntimeError("Unknown backend: 'cuda' requested\nand more")

    monkeypatch.setattr("jax.default_backend", fail)
    monkeypatch.setattr("jax.devices", fail)
    assert main(["train", "gym/Hopper-v4", "--out", str(tmp_path / "run")]) == 2
    told = "dr-q: no device to compute on: Unknown backend: 'cuda' requested; unset JAX_PLATFORMS, or see dr-q doctor\n"
    assert capsys.readouterr().err == told
    assert not (tmp_path / "run").exists()
    found = doctor._devices()  # pyright: ignore[reportPrivateUsage]
    assert (found.ok, found.found) == (False, "RuntimeError: Unknown backend: 'cuda' requested")


def test_a_signal_that_comes_twice_at_a_time_is_one(monkeypatch):
    """As from `timeout`, which signals a process and then its group; the checkpoint must be written."""
    monkeypatch.setattr("dr_q.training.signals.SAME", 60)
    with Signals() as signals:
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
            time.sleep(0.05)
    assert signals.received == signal.SIGTERM


def test_both_signals_before_python_notices_are_received_too():
    """Handlers run once for all that came meanwhile."""
    with Signals() as signals:
        signals._at_once = True  # pyright: ignore[reportPrivateUsage] - as the listener has counted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signals.received == signal.SIGINT


FORKS = """
import os, signal, time
from dr_q.training.signals import Signals
with Signals("stopping") as signals:
    child = os.fork()
    if not child:
        signal.raise_signal(signal.SIGINT)
        os._exit(0)
    os.waitpid(child, 0)
    time.sleep(0.3)
    print(signals.received)
"""


def test_signals_of_forked_children_are_not_the_parents():
    done = subprocess.run([sys.executable, "-c", FORKS], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


CHILDREN = """
import os, signal, time
from dr_q.training.signals import Signals
children = []
begun, begin = os.pipe()
with Signals("stopping"):
    for _ in range(2):
        child = os.fork()
        if not child:
            os.write(begin, b"1")
            time.sleep(60)
            os._exit(0)
        os.read(begun, 1)
        children.append(child)
    os.kill(children[0], signal.SIGTERM)
    print(os.WTERMSIG(os.waitpid(children[0], 0)[1]))
print("left")
os.kill(children[1], signal.SIGKILL)
"""


def test_forked_children_can_be_terminated_and_keep_nothing_from_ending():
    """As those of `AsyncVectorEnv`, or of an environment with a simulator in a process."""
    command = [sys.executable, "-c", CHILDREN]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=40)
    assert (done.stdout, done.stderr) == (f"{int(signal.SIGTERM)}\nleft\n", "")


def test_a_wake_that_comes_right_before_the_main_thread_waits_is_sent_again(monkeypatch):
    send, sent = signal.pthread_kill, []

    def lose_the_first(thread, number):
        sent.append(number)
        if len(sent) > 1:
            send(thread, number)

    monkeypatch.setattr(signal, "pthread_kill", lose_the_first)
    with Signals() as signals:
        threading.Thread(target=signals.call_in_main, args=(signals._raise,)).start()
        with pytest.raises(KeyboardInterrupt):
            threading.Event().wait(60)
    assert (len(sent), signals.received) == (2, 0)


def received() -> bool:
    return any(signals.received for signals in active_signals)


def test_a_second_signal_does_not_wait_for_an_evaluation_in_the_background(tmp_path, monkeypatch):
    monkeypatch.setattr("dr_q.training.signals.SAME", 0)
    counted: list[int] = []
    deadline = time.monotonic() + 120

    def count(spec, steps):
        counted.append(steps)
        if steps == 100:
            os.kill(os.getpid(), signal.SIGINT)  # the run is to end, with this evaluation
            while not received() and time.monotonic() < deadline:
                time.sleep(0.01)  # a signal that is sent before the first was delivered is the same one
        if steps == 200:
            os.kill(os.getpid(), signal.SIGINT)  # at once
        if steps > 200:
            time.sleep(0.001)  # the main thread writes the checkpoint meanwhile
        if time.monotonic() > deadline:
            raise TrainingError("nobody gave it up")

    monkeypatch.setattr("dr_q.training.evaluate.check_length", count)
    settings = {**tiny.RUN, **tiny.SIZES, "exploration_steps": 10_000_000, "background_evaluation": True}
    with pytest.raises(KeyboardInterrupt):
        dr_q.train(Endless, steps=10_000_000, out=tmp_path / "run", **{**settings, "eval_every": 10_000_000})
    assert counted[-1] >= 200
    assert time.monotonic() < deadline


def test_environments_of_the_current_folder_are_found(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    (tmp_path / "my_robot.py").write_text(
        "import gymnasium\nfrom tests.envs import toys\n"
        "gymnasium.register('Robot-v0', toys.Walk, max_episode_steps=9)\n"
    )
    assert main(["train", "my_robot:Robot-v0", "--out", "run", *tiny.flags(steps=40)]) == 0
    assert main(["eval", "run", "--episodes", "0"]) == 2
    assert "--episodes must be a whole number between 1 and 100000, got 0" in capsys.readouterr().err


@pytest.mark.parametrize(("begins", "purged"), [(None, []), (0, [0]), (4, [4])])
def test_tensorboard_forgets_what_a_checkpoint_has_not_seen(begins, purged, tmp_path):
    """As the CSV files do: a resumed run would draw two curves over the same steps."""
    writers = MetricWriters(tmp_path, make_settings("dmc/cartpole-swingup", steps=10), False, begins)
    writers.scalars({"x": 1.0}, begins or 0)
    writers.close()
    (file,) = (tmp_path / "tensorboard").iterdir()
    events = list(tensorboard_events(file))
    assert [e.step for e in events if e.session_log.status == e.session_log.START] == purged
    assert [e.step for e in events if e.summary.value] == [begins or 0]


def test_weights_and_biases_gets_what_tensorboard_gets(tmp_path, monkeypatch):
    heard: list[Any] = []
    run = SimpleNamespace(log=heard.append, finish=lambda: heard.append("finished"))
    stand_in = SimpleNamespace(init=lambda **given: heard.append(given) or run)
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    writers = MetricWriters(tmp_path / "a", make_settings("dmc/cartpole-swingup", steps=10), True)
    writers.scalars({"x": 1.5}, 7)
    writers.close()
    assert (heard[0]["name"], heard[0]["project"], heard[0]["config"]["steps"]) == ("a", "dr-q", 10)
    assert heard[1:] == [{"x": 1.5, "agent_steps": 7}, "finished"]
    MetricWriters(tmp_path / "a", make_settings("dmc/cartpole-swingup", steps=10), True, 7).close()
    MetricWriters(tmp_path / "b", make_settings("dmc/cartpole-swingup", steps=10), True).close()
    begun = [given for given in heard if isinstance(given, dict) and "id" in given]
    assert begun[0]["id"] == begun[1]["id"] != begun[2]["id"], "a resumed run continues as the same"
    assert {given["resume"] for given in begun} == {"allow"}


def test_a_run_says_where_it_belongs_at_weights_and_biases_and_logs_every_seed(tmp_path, monkeypatch):
    heard: list[Any] = []
    run = SimpleNamespace(log=heard.append, finish=lambda: None)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **given: heard.append(given) or run))
    belongs = {"wandb_project": "thesis", "wandb_entity": "lab", "wandb_group": "grid", "wandb_tags": ("a", "b")}
    settings = {**tiny.RUN, **tiny.SIZES, "log_every": 60}
    dr_q.train(toys.Walk, steps=60, seeds=2, out=tmp_path / "run", wandb=True, **belongs, **settings)
    said = {name: heard[0][name] for name in ("project", "entity", "group", "tags", "name")}
    assert said == {"project": "thesis", "entity": "lab", "group": "grid", "tags": ["a", "b"], "name": "run"}
    (logged,) = [values for values in heard[1:] if "train/critic_loss" in values]
    mean = (logged["critic_loss/seed0"] + logged["critic_loss/seed1"]) / 2
    assert logged["train/critic_loss"] == pytest.approx(mean)
    assert logged["agent_steps"] == 60


def test_without_weights_and_biases_nothing_is_left_behind(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main(["train", "gym/Hopper-v4", "--wandb", "--out", str(tmp_path / "run"), *tiny.flags()]) == 2
    assert "--wandb needs wandb, which is not installed" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def tensorboard_events(path: Path) -> Iterator[Any]:
    data = path.read_bytes()
    while data:
        size = int.from_bytes(data[:8], "little")
        event = Event()
        event.ParseFromString(data[12 : 12 + size])
        yield event
        data = data[16 + size :]


BLOCKED = """
import ctypes, pathlib, sys, threading
from dr_q.training import signals
signals.PATIENCE, signals.SAME = 0.2, 0
with signals.Signals("stopping", lambda: pathlib.Path(sys.argv[1]).write_text("given up")):
    mutex = ctypes.create_string_buffer(256)
    lock = ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex)
    threading.Timer(1, print, ["ready"], {"flush": True}).start()  # once the main thread is in there
    lock(mutex)  # a second time: for ever, whatever signals come
"""


def test_signals_are_answered_and_obeyed_while_a_library_computes(tmp_path):
    """Python's own handlers never run there."""
    command = [sys.executable, "-c", BLOCKED, str(tmp_path / "said")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == b"stopping\n"
        assert not (tmp_path / "said").exists()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert (tmp_path / "said").read_text() == "given up"


def test_a_run_that_is_stopped_at_once_says_how_to_resume(tmp_path, monkeypatch, capsys):
    def twice(*_):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
        time.sleep(60)

    monkeypatch.setattr("dr_q.training.signals.SAME", 0)
    monkeypatch.setattr("dr_q.training.signals.PATIENCE", 600)

    monkeypatch.setattr(loop.RunTables, "append_metrics", twice)
    flags = [*tiny.flags(steps=80, log_every=60), "--checkpoint-every", "40"]
    assert main(["train", "tests.envs.toys:drq-walk-v0", "--out", str(tmp_path / "run"), *flags]) == 130
    said = capsys.readouterr()
    assert f"stopped at step 60; resume from step 40 with: dr-q train --resume {tmp_path / 'run'}\n" in said.out
    assert said.err == "dr-q: interrupted\n"


def test_an_interrupt_while_libraries_load_is_no_traceback():
    code = (
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'dr_q.cli':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from dr_q.__main__ import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "dr-q: interrupted\n")


class Shortening(toys.Walk):
    """Episodes of 40 steps at first, later ones truncated within the horizon of 5."""

    taken = 0
    """Steps of all its environments."""

    def reset(self, *, seed=None, options=None):
        self.length = 40 if type(self).taken < 60 else 4
        return super().reset(seed=seed, options=options)

    def outcome(self, action):
        type(self).taken += 1
        reward, _, _ = super().outcome(action)
        return reward, False, self.t >= self.length


def test_a_replay_that_runs_out_of_windows_ends_the_run_before_a_checkpoint_of_it(tmp_path):
    """The ring of 60 slots forgets the long episodes: updates would learn from whatever the last slot holds."""
    settings = {**tiny.RUN, **tiny.SIZES, "replay_capacity": 60, "in_process": True, "eval_every": 1_000}
    with pytest.raises(TrainingError, match=r"no window of 5 transitions left .* last good checkpoint is of step \d+"):
        dr_q.train(Shortening, steps=400, out=tmp_path / "run", **settings)
    run = read_run_json(tmp_path / "run")
    assert run["status"] == "failed"
    stored = Checkpoints(tmp_path / "run", [0])
    assert stored.steps()
    for step in stored.steps():
        assert not stored.read(step).replay()["empty_draws"].any()


def test_resuming_with_another_preset_is_refused_also_if_it_is_the_default(tmp_path):
    run = tmp_path / "run"
    dr_q.train(toys.Walk, preset="mr.q", steps=40, out=run, **tiny.RUN, **tiny.SIZES)
    with pytest.raises(dr_q.ConfigError, match=r"preset dr.q does not fit the run in .*, which has mr.q"):
        dr_q.train(toys.Walk, preset="dr.q", resume=run, steps=60)
    assert dr_q.train(toys.Walk, preset="mr.q", resume=run, steps=60, quiet=True).status == "finished"
