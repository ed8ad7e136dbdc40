"""A run that is stopped, killed or grown continues as if nothing had happened, to the byte."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dr_q
from dr_q import replay as rp
from dr_q.agent.named_arrays import fill_tree
from dr_q.cli import main
from dr_q.config import preset
from dr_q.envs import Transitions, make_env
from dr_q.learner import Learner, LearnerSpec, PendingTransition, SeedStates, init_states, packet_layout, root_keys
from dr_q.learner.saving import Saved, load, to_checkpoint
from dr_q.run_folder import Checkpoints, RunTables, checkpoints, lock_run_folder, read_arrays
from dr_q.settings import Settings, make_settings
from dr_q.spaces import SINGLE, ContinuousActions, ObsSpec, Spaces
from dr_q.training import loop
from tests.envs import toys
from tests.training import tiny

DR_Q = Path(sys.executable).with_name("dr-q")


def results(run: Path, step: int = tiny.STEPS) -> dict[str, bytes]:
    """Everything that must be the same: evaluations, policies, weights, optimisers, replay."""
    files = [run / "evals.csv", *sorted((run / "policy").glob("*.safetensors"))]
    files += [run / "checkpoints" / str(step) / name for name in ("agents.safetensors", "replay.safetensors")]
    files += sorted((run / "checkpoints" / "replay").rglob("*.safetensors"))
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


def assert_same(a: Path, b: Path) -> None:
    first, second = results(a), results(b)
    newest = {name for name in first if "replay/" not in name}
    assert newest == {name for name in second if "replay/" not in name}
    chunks = json.loads((a / "checkpoints" / str(tiny.STEPS) / "checkpoint.json").read_text())["chunks"]
    assert chunks == json.loads((b / "checkpoints" / str(tiny.STEPS) / "checkpoint.json").read_text())["chunks"]
    for name in newest:
        assert first[name] == second[name], f"{name} differs"
    for name in set(first) & set(second):
        assert first[name] == second[name], f"{name} differs"


def unbroken(task, folder: Path, **more) -> Path:
    dr_q.train(task, steps=tiny.STEPS, out=folder, **{**tiny.RUN, **tiny.SIZES, **more})
    return folder


FEW = {"batch_size": 4, "eval_every": 80, "eval_episodes": 1}
"""Convolutions are slow."""


@pytest.mark.parametrize(
    ("task", "more"),
    [("dmc/cartpole-swingup", {}), (toys.Walk, {"seeds": 2}), pytest.param(toys.Pixels, FEW, marks=pytest.mark.slow)],
    ids=["dmc", "two seeds", "pixels"],
)
def test_a_run_stopped_by_a_signal_resumes_to_the_byte(task, more, tmp_path):
    def stop(evaluations):
        if evaluations[0].agent_steps == 80:
            os.kill(os.getpid(), signal.SIGTERM)

    whole = unbroken(task, tmp_path / "whole", **more)
    broken = tmp_path / "broken"
    # Checkpoints at odd steps, in the middle of episodes.
    settings = {**tiny.RUN, **tiny.SIZES, **more}
    outcome = dr_q.train(task, steps=tiny.STEPS, out=broken, on_evaluation=stop, **settings)
    assert (outcome.status, outcome.agent_steps, outcome.signal) == ("interrupted", 80, signal.SIGTERM)
    again = dr_q.train(None if isinstance(task, str) else task, resume=broken, quiet=True)
    assert (again.status, again.agent_steps) == ("finished", tiny.STEPS)
    assert_same(whole, broken)


def test_a_run_that_draws_uniformly_resumes_to_the_byte(tmp_path):
    whole = unbroken(toys.Walk, tmp_path / "whole", preset="uniform", replay_capacity=150)
    broken = tmp_path / "broken"
    dr_q.train(toys.Walk, preset="uniform", steps=80, out=broken, **{**tiny.RUN, **tiny.SIZES, "replay_capacity": 150})
    dr_q.train(toys.Walk, resume=broken, steps=tiny.STEPS, quiet=True)
    assert_same(whole, broken)
    with (whole / "run.json").open() as file:
        assert json.load(file)["settings"]["config"]["sampling"] == "uniform"


def test_the_log_of_a_resumed_run_is_that_of_an_unbroken_one(tmp_path):
    """Stopped between two copies of the targets; its times are those of steps, without compiling."""

    def stop(evaluations):
        if evaluations[0].agent_steps == 85:
            os.kill(os.getpid(), signal.SIGTERM)

    settings = {**tiny.RUN, **tiny.SIZES, "eval_every": 85, "eval_episodes": 1, "log_every": 2}
    for name, callback in (("whole", None), ("broken", stop)):
        dr_q.train(toys.Walk, steps=tiny.STEPS, out=tmp_path / name, on_evaluation=callback, **settings)
    before = time.perf_counter()
    dr_q.train(toys.Walk, resume=tmp_path / "broken", quiet=True, log_every=2)
    took = time.perf_counter() - before
    logs = []
    for name in ("whole", "broken"):
        with (tmp_path / name / "metrics.csv").open() as file:
            logs.append(list(csv.DictReader(file)))
    for column in logs[0][0]:
        if not column.startswith("ms_"):
            assert [row[column] for row in logs[0]] == [row[column] for row in logs[1]], column
    assert [int(row["agent_steps"]) for row in logs[1]] == list(range(2, tiny.STEPS + 1, 2))
    resumed = [row for row in logs[1] if int(row["agent_steps"]) > 85]
    logged = sum(float(x) for row in resumed for name, x in row.items() if name.startswith("ms_"))
    first = sum(float(x) for name, x in resumed[0].items() if name.startswith("ms_"))
    assert first < logged < 1000 * took
    assert first < 1000 * took / 4, "restoring and compiling are in it"


def test_one_process_to_a_folder(tmp_path):
    run = tmp_path / "run"
    with lock_run_folder(run):
        with pytest.raises(dr_q.RunFolderError, match="run is being trained by another process; wait for it or stop"):
            dr_q.train(toys.Walk, steps=40, out=run)
        (run / "run.json").write_text(json.dumps(BEGUN))
        with pytest.raises(dr_q.RunFolderError, match="run is being trained by another process; wait for it or stop"):
            dr_q.train(toys.Walk, resume=run)
        assert (run / "run.json").read_text() == json.dumps(BEGUN)
    (run / "run.json").unlink()
    with pytest.raises(dr_q.TaskError), lock_run_folder(tmp_path / "runs" / "new"):
        raise dr_q.TaskError("refused")
    assert not (tmp_path / "runs").exists(), "it would be in the way of the next try"
    dr_q.train(toys.Walk, steps=40, out=tmp_path / "new", **{**tiny.RUN, **tiny.SIZES})


BEGUN = {
    "status": "running",
    "agent_steps": 0,
    "seeds": [0],
    "versions": {},
    "settings": make_settings(toys.Walk, steps=40, changes=tiny.SIZES).to_json(),
}


def unbroken_and_killed(arguments: list[str], folder: Path) -> tuple[Path, Path]:
    """The same run twice: one that ended, and one that was killed after its checkpoint of step 50."""
    whole, broken = folder / "whole", folder / "broken"
    assert main([*arguments, "--out", str(whole)]) == 0
    toys_too = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [str(DR_Q), *arguments, "--out", str(broken)],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": toys_too},
    )
    deadline = time.monotonic() + 180
    while not (broken / "checkpoints" / "50").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert json.loads((broken / "run.json").read_text())["status"] == "running"
    return whole, broken


@pytest.mark.slow
def test_kill_9_between_checkpoints_loses_only_what_came_after_the_last(tmp_path):
    """Hopper-v4 terminates; two seeds end episodes at different times; each simulates in its own process."""
    arguments = ["train", "gym/Hopper-v4", "--seeds", "2", *tiny.flags(checkpoint_every=50)]
    whole, broken = unbroken_and_killed(arguments, tmp_path)
    with (broken / "evals.csv").open("a") as file:  # what a step past the checkpoint would have left, half-written
        file.write("0,80,80,1.0,0.0,9.0,2\n1,80,80,1")
    steps = Checkpoints(broken, [0, 1], 3).steps()
    assert steps[-1] in (50, 100)
    assert main(["train", "--resume", str(broken)]) == 0
    assert_same(whole, broken)


def test_steps_may_grow(tmp_path):
    whole = unbroken(toys.Walk, tmp_path / "whole")
    short = tmp_path / "short"
    dr_q.train(toys.Walk, steps=80, out=short, **tiny.RUN, **tiny.SIZES)
    dr_q.train(toys.Walk, resume=short, steps=tiny.STEPS, quiet=True)
    assert_same(whole, short)
    info = json.loads((short / "run.json").read_text())
    assert info["settings"]["steps"] == tiny.STEPS
    assert "earlier_versions" not in info


def test_what_the_run_ran_on_before_is_kept_and_another_device_is_said(tmp_path, capsys):
    run = tmp_path / "run"
    dr_q.train(toys.Walk, steps=50, out=run, **tiny.RUN, **tiny.SIZES)
    info = json.loads((run / "run.json").read_text())
    older = {**info["versions"], "source": "older", "device": "1 x NVIDIA H200"}
    (run / "run.json").write_text(json.dumps({**info, "versions": older}))
    warned = []
    for steps in (80, 90):
        dr_q.train(toys.Walk, resume=run, steps=steps)
        warned.append("this run computed on 1 x NVIDIA H200 so far and continues on 1 x cpu" in capsys.readouterr().out)
    assert warned == [True, False]
    again = json.loads((run / "run.json").read_text())
    assert again["versions"] == info["versions"]
    assert again["earlier_versions"] == [{"until": 50, **older}]


def test_stop_after_writes_a_checkpoint_and_exits_0(tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["train", "gym/Hopper-v4", "--out", str(out), "--stop-after", "0.0001", *tiny.flags()]
    assert main(arguments) == 0
    assert "resume with: dr-q train --resume" in capsys.readouterr().out
    stopped = json.loads((out / "run.json").read_text())
    assert stopped["status"] == "stopped"
    assert main(["train", "--resume", str(out)]) == 0
    finished = json.loads((out / "run.json").read_text())
    assert finished["status"] == "finished"
    assert finished["seconds"] > stopped["seconds"] > 0  # of both processes


def test_a_simulator_that_cannot_be_restored_is_said_so_and_its_episode_closed(tmp_path, capsys):
    run = tmp_path / "run"
    dr_q.train(toys.Forgetful, steps=50, out=run, **{**tiny.RUN, **tiny.SIZES})
    dr_q.train(toys.Forgetful, resume=run, steps=tiny.STEPS)
    assert "could not be brought back to where it was" in capsys.readouterr().out
    saved = load_last(run, toys.Forgetful)
    # Episodes of 40 steps, one of them cut after 10, each with a slot for its last frame: no window of 5 that would
    # reach past such an end begins.
    valid = np.asarray(saved.states.replays.storage.valid[0]).reshape(-1)
    ends = [40, 40 + 11, 40 + 11 + 41]
    assert np.flatnonzero(valid[:100] == 0).tolist() == [slot for end in ends for slot in range(end - 5, end + 1)]
    assert (
        int(saved.states.replays.storage.clock[0]) == tiny.STEPS - 1
    )  # the last transition has come, and is taken in next


def load_last(run: Path, task) -> Saved:
    info = json.loads((run / "run.json").read_text())
    settings = Settings.from_json(info["settings"], task)
    spaces = make_env(task).spec.spaces.sizes()
    stored = Checkpoints(run, settings.seed_list, settings.keep_checkpoints)
    lanes = settings.num_envs
    slots = rp.slots_to_fill(settings.steps, 1_000_000, lanes=lanes)
    slots = rp.slots_to_allocate(slots, spaces.obs, spaces.action.dim, lanes)
    spec = LearnerSpec(settings.config, spaces, slots, lanes=lanes)
    saved = load(stored, stored.steps()[-1], spec)
    return saved._replace(states=jax.tree.map(jnp.asarray, saved.states))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["dmc/walker-run"], "task dmc/walker-run does not fit the run in"),
        (["--preset", "mr.q"], "--preset mr.q does not fit the run in"),
        (["--seeds", "3"], "--seeds 3 does not fit the run in"),
        (["--batch-size", "99"], "--batch-size 99 does not fit the run in"),
        (["--steps", "60"], "--steps may only grow on resume"),
    ],
)
def test_a_run_is_resumed_with_its_own_settings(changes, message, finished, capsys):
    assert main(["train", *changes, "--resume", str(finished)]) == 2
    assert capsys.readouterr().err.startswith(f"dr-q: {message}")


def test_a_folder_with_anything_in_it_is_refused(finished, capsys):
    before = results(finished)
    assert main(["train", "gym/Hopper-v4", "--out", str(finished), *tiny.flags()]) == 2
    assert "is not empty; choose another --out, or resume it: dr-q train --resume" in capsys.readouterr().err
    assert results(finished) == before


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    assert main(["train", "gym/Hopper-v4", "--out", str(out), *tiny.flags()]) == 0
    return out


def test_no_pickle_on_disk(finished):
    kinds = {file.suffix for file in finished.rglob("*") if file.is_file() and file.parent.name != "tensorboard"}
    assert kinds == {".json", ".csv", ".safetensors"}


# Checkpoints on their own


SPACES = Spaces(ObsSpec.vector(500), ContinuousActions((-1.0, -1.0), (1.0, 1.0)))
SPEC = LearnerSpec(preset("dr.q", **{**tiny.SIZES, "replay_capacity": 1024}), SPACES, capacity=1024)
ROOTS = root_keys([0, 1])
PENDING = PendingTransition({SINGLE: jnp.ones((2, 500))}, jnp.zeros((2, 2)))


def saved_at(step: int, states: SeedStates) -> Saved:
    obs = {SINGLE: np.ones((2, 500))}
    arrived = Transitions.of(packet_layout(SPEC), obs, obs, np.array([[0.5, 0, 1], [0.25, 1, 0]]))
    return Saved(step, states, PENDING, arrived, [(0, np.zeros((0, 2), np.float32))] * 2)


@jax.jit
@jax.vmap
def fill(replay: rp.Replay, log: rp.Transition) -> rp.Replay:
    return jax.lax.scan(lambda state, t: (rp.add(state, t), None), replay, log)[0]


def logs(length: int, start: int) -> rp.Transition:
    rng = np.random.default_rng(start)
    sizes = [(2, length, 500), (2, length, 2), (2, length), (2, length, 500)]
    obs, action, reward, next_obs = (jnp.asarray(rng.normal(size=size), jnp.float32) for size in sizes)
    terminated, truncated = (jnp.asarray(rng.random((2, length)) < 0.1) for _ in range(2))
    return rp.Transition({SINGLE: obs}, action, reward, {SINGLE: next_obs}, terminated, truncated)


def endless(length: int, start: int) -> rp.Transition:
    """The same without ends of episodes."""
    never = jnp.zeros((2, length), bool)
    return logs(length, start)._replace(terminated=never, truncated=never)


def test_checkpoints_share_chunks_and_survive_the_ring_wrapping(tmp_path, monkeypatch):
    monkeypatch.setattr("dr_q.learner.saving.CHUNK_BYTES", 260_000)  # one row of 128 slots
    stored = Checkpoints(tmp_path, [0, 1], keep=2)
    agents, replays = init_states(SPEC, ROOTS)
    sizes = []
    for part in range(6):  # about 1,400 slots: past the end of the ring
        replays = fill(replays, logs(200, part))
        saved = saved_at(part, SeedStates(agents, replays))
        before = {f: f.stat().st_mtime_ns for f in tmp_path.rglob("0*.safetensors")}
        stored.write(to_checkpoint(saved, [0, 1]))
        after = {f: f.stat().st_mtime_ns for f in tmp_path.rglob("0*.safetensors")}
        sizes.append(len(set(before.items()) & set(after.items())))
        loaded = load(stored, part, SPEC)
        np.testing.assert_array_equal(loaded.arrived.packet, saved.arrived.packet)
        for (path, a), b in zip(jax.tree.leaves_with_path(saved.states), jax.tree.leaves(loaded.states), strict=True):
            name = jax.tree_util.keystr(path)
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=name)
    assert stored.steps() == [4, 5]
    assert max(sizes) >= 6, "most chunks should be shared with the checkpoint before"
    referred = set()
    for step in (4, 5):
        record = json.loads((tmp_path / "checkpoints" / str(step) / "checkpoint.json").read_text())
        referred |= {(s, name) for s, names in zip(record["seeds"], record["chunks"], strict=True) for name in names}
    assert len(referred) == len(list((tmp_path / "checkpoints" / "replay").rglob("*.safetensors")))


def test_a_damaged_checkpoint_is_named_and_an_older_one_used(tmp_path, capsys):
    out = tmp_path / "run"
    dr_q.train(toys.Walk, steps=80, out=out, **tiny.RUN, **tiny.SIZES)
    shutil.copytree(out, tmp_path / "again")
    for run, name in ((out, "agents.safetensors"), (tmp_path / "again", "checkpoint.json")):
        newest = run / "checkpoints" / "80"
        (newest / name).write_bytes(b"{")
        assert dr_q.train(toys.Walk, resume=run, steps=tiny.STEPS).status == "finished"
        said = capsys.readouterr().out
        assert f"the checkpoint of step 80 is damaged ({newest / name} cannot be read" in said
        assert f"is now {run / 'checkpoints' / 'damaged-80'}; resuming from step 40 instead" in said
        assert (run / "checkpoints" / "damaged-80" / name).read_bytes() == b"{"
    info = json.loads((out / "run.json").read_text())
    info["settings"]["config"]["momentum"] = 0.9
    (out / "run.json").write_text(json.dumps(info))
    with pytest.raises(dr_q.ConfigError, match=r"another version of dr-q \(unknown setting 'momentum'.*use that one"):
        dr_q.train(toys.Walk, resume=out)
    for damage in ("{", "null"):
        (out / "run.json").write_text(damage)
        with pytest.raises(dr_q.DamagedFileError, match=r"run.json is damaged: it has no settings"):
            dr_q.train(toys.Walk, resume=out)


def test_a_run_without_its_checkpoints_is_not_begun_again(tmp_path):
    """Its results would be lost."""
    out = tmp_path / "run"
    dr_q.train(toys.Walk, steps=tiny.STEPS, out=out, **tiny.RUN, **tiny.SIZES)
    shutil.rmtree(out / "checkpoints")
    before = {path: path.read_bytes() for path in sorted(out.glob("*.*"))}
    with pytest.raises(dr_q.RunFolderError, match="finished at step 120 and has no checkpoints: it cannot be resumed"):
        dr_q.train(toys.Walk, resume=out, steps=200)
    info = json.loads((out / "run.json").read_text())
    with pytest.raises(dr_q.RunFolderError, match="has no checkpoints: it cannot be resumed"):  # as a sweep's job does
        loop.train(Settings.from_json(info["settings"], toys.Walk), out, loop.Options(quiet=True), resume=True)
    assert before == {path: path.read_bytes() for path in sorted(out.glob("*.*"))}


class Rewarding(toys.Walk):
    """Tells which attempt it is."""

    attempt = 1.0

    def outcome(self, action):
        return self.attempt, *super().outcome(action)[1:]


def test_nothing_of_a_first_checkpoint_that_was_not_finished_is_kept(tmp_path, monkeypatch):
    """Another attempt's transitions may differ (on a GPU they do), and its chunks have the same names."""
    out, write = tmp_path / "run", checkpoints.write_arrays

    def fail(path: Path, *rest) -> str:
        if path.name == "agents.safetensors":  # chunks are there by then
            raise OSError("no space left")
        return write(path, *rest)

    settings = {**tiny.RUN, **tiny.SIZES, "in_process": True}
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_arrays", fail)
        patch.setattr("dr_q.training.failed_writes._PAUSE_S", 0.0)
        with pytest.raises(dr_q.TrainingError, match="no space left"):
            dr_q.train(Rewarding, steps=40, out=out, **settings)
    assert not list((out / "checkpoints").rglob("*.safetensors")), "it would take the space of the next try"
    monkeypatch.setattr(Rewarding, "attempt", 2.0)
    dr_q.train(Rewarding, resume=out, in_process=True, quiet=True)
    (chunk,) = (out / "checkpoints" / "replay").rglob("*.safetensors")
    assert set(read_arrays(chunk)["reward"].tolist()) - {0.0} == {2.0}  # 0 where a final observation lies


def test_a_full_replay_is_not_put_into_a_larger_one(tmp_path):
    """A ring that has come round has its oldest transition in the middle."""
    stored = Checkpoints(tmp_path, [0, 1], keep=1)
    agents, replays = init_states(SPEC, ROOTS)
    for part in range(6):
        replays = fill(replays, logs(200, part))
    stored.write(to_checkpoint(saved_at(1, SeedStates(agents, replays)), [0, 1]))
    load(stored, 1, SPEC)
    with pytest.raises(dr_q.RunFolderError, match="a full replay of 1,024 slots, which cannot be continued as one of"):
        load(stored, 1, SPEC._replace(capacity=2048))


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_full_replay_that_is_in_order_continues_behind_its_last_slot(rounds, tmp_path):
    """As a run of whole episodes leaves it. What it has overwritten is gone; ages and draws are those of before."""
    stored = Checkpoints(tmp_path, [0, 1], keep=1)
    agents, replays = init_states(SPEC, ROOTS)
    for part in range(2 * rounds):
        replays = fill(replays, endless(512, part))
    assert np.asarray(replays.storage.cursor).tolist() == [0, 0]
    stored.write(to_checkpoint(saved_at(1, SeedStates(agents, replays)), [0, 1]))
    larger = load(stored, 1, SPEC._replace(capacity=2048)).states.replays
    assert np.asarray(larger.storage.cursor).tolist() == [1024, 1024]
    before, after = (jax.vmap(rp.probability)(jax.tree.map(jnp.asarray, x)) for x in (replays, larger))
    np.testing.assert_array_equal(after[:, :1024], before)
    more = fill(jax.tree.map(jnp.asarray, larger), endless(100, 9))
    assert np.asarray(more.storage.size).tolist() == [1124, 1124]
    np.testing.assert_array_equal(more.storage.reward[:, :1024], replays.storage.reward)
    assert np.asarray(more.storage.valid).reshape(2, -1)[:, 1019:1030].all(), (
        "windows lead from the old slots to the new"
    )


def test_what_was_read_is_not_copied_on_the_host_and_not_written_over():
    x = np.zeros((1, 1000), np.float32)
    assert fill_tree({"x": jax.ShapeDtypeStruct(x.shape, x.dtype)}, {"x": x}, "a file")["x"] is x
    states = jax.tree.map(np.asarray, init_states(SPEC, ROOTS))
    learner = Learner(SPEC, [0, 1])
    learner.restore(states, PENDING)
    theirs = {leaf.ctypes.data for leaf in jax.tree.leaves(states)}
    assert not theirs & {leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(learner.states)}


def test_a_file_that_was_killed_before_its_first_row_is_forgotten(tmp_path):
    files = RunTables(tmp_path)
    (tmp_path / "evals.csv").write_text("")
    (tmp_path / "metrics.csv").write_text("seed,agent_steps\n0,5\n0,9\n")
    files.drop_after(5)
    assert not (tmp_path / "evals.csv").exists()
    assert (tmp_path / "metrics.csv").read_text() == "seed,agent_steps\n0,5\n"


def test_columns_that_an_older_version_did_not_have_are_added(tmp_path):
    files = RunTables(tmp_path)
    (tmp_path / "metrics.csv").write_text("seed,agent_steps,gone,q\n0,5,1,2\n")
    files.append_metrics(["seed", "agent_steps", "new", "q"], [[0, 6, 3, 4]])
    files.append_metrics(["seed", "agent_steps", "new", "q"], [[0, 7, 5, 6]])
    assert (tmp_path / "metrics.csv").read_text() == "seed,agent_steps,gone,q,new\n0,5,1,2,\n0,6,,4,3\n0,7,,6,5\n"


def test_only_filled_slots_are_saved(tmp_path):
    stored = Checkpoints(tmp_path, [0, 1], keep=1)
    agents, replays = init_states(SPEC, ROOTS)
    stored.write(to_checkpoint(saved_at(1, SeedStates(agents, fill(replays, logs(50, 0)))), [0, 1]))
    stored = sum(f.stat().st_size for f in (tmp_path / "checkpoints" / "replay").rglob("*.safetensors"))
    assert stored < 2 * 70 * (500 + 2 + 4) * 4 + 4096
