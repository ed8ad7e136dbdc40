"""Run folders and policies that 675da62 wrote still load, resume and export (`earlier.py` made them)."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import dr_q
from dr_q.cli import main
from dr_q.diagnostics import analyse
from dr_q.learner.saving import load, load_agents
from dr_q.networks import VectorBranch
from dr_q.run_folder import FORMAT, Checkpoints, policy_record, read_arrays, spaces_of
from dr_q.spaces import SINGLE, Image, Vector
from tests.run_folder.earlier import SmallImages

RUNS = Path(__file__).parents[1] / "data" / "runs-675da62"
STATES = np.linspace(-1, 1, 11)
FRAMES = (np.arange(3 * 32 * 32) % 256).astype(np.uint8).reshape(3, 32, 32)


@pytest.fixture
def copy(tmp_path):
    return lambda name: Path(shutil.copytree(RUNS / name, tmp_path / name))


@pytest.mark.parametrize(("name", "seed", "obs"), [("states", 0, STATES), ("states", 1, STATES), ("images", 0, FRAMES)])
def test_policies_act_as_they_did(name, seed, obs):
    expected = json.loads((RUNS / "actions.json").read_text())[f"{name}/{seed}"]
    np.testing.assert_allclose(dr_q.load(RUNS / name, seed).act(obs), expected, rtol=1e-5, atol=1e-6)


def test_what_they_observe_is_known():
    vector, image = (spaces_of(policy_record(RUNS / name)).obs[SINGLE] for name in ("states", "images"))
    assert vector == Vector(11)
    assert image == Image(1, 32, 32, stack=3)


def test_weights_and_replay_are_read_as_they_lie_in_the_files():
    run = analyse.open_run(RUNS / "states")
    stored = Checkpoints(run.folder, run.seeds).read(80)
    raw = read_arrays(run.folder / "checkpoints/80/agents.safetensors")
    agents = load_agents(stored, run.spec(80))
    branch = agents.online.encoder.state.branches[SINGLE]
    assert isinstance(branch, VectorBranch)
    assert np.array_equal(branch.mlp.hidden1.weight, raw["online.encoder.state.mlp.hidden1.weight"])
    assert sum(x.size for x in jax.tree.leaves(agents)) == sum(x.size for x in raw.values()), "every array has a place"
    storage = load(Checkpoints(run.folder, run.seeds), 80, run.spec(80)).states.replays.storage
    assert storage.clock.tolist() == [79, 79]
    assert np.count_nonzero(storage.is_transition, axis=1).tolist() == [79, 79]
    chunk = read_arrays(run.folder / "checkpoints/replay/seed1/00000000-78-83.safetensors")
    assert storage.obs is not None
    assert np.array_equal(storage.obs[SINGLE][1][: len(chunk["obs"])], chunk["obs"])


@pytest.mark.parametrize(("name", "task"), [("states", None), ("images", SmallImages)])
def test_runs_are_resumed(name, task, copy):
    run = copy(name)
    if task is not None:  # the run was made by a script: its callable was __main__'s
        info = json.loads((run / "run.json").read_text())
        assert info["settings"]["task"].startswith("callable:")
    before = (run / "evals.csv").read_text()
    done = dr_q.train(task, resume=run, steps=120, quiet=True)
    assert (done.status, done.agent_steps) == ("finished", 120)
    after = (run / "evals.csv").read_text()
    assert after.startswith(before)
    assert len(after.splitlines()) > len(before.splitlines())
    assert json.loads((run / "checkpoints/120/checkpoint.json").read_text())["format"] == FORMAT
    assert json.loads((run / "run.json").read_text())["earlier_versions"][0]["until"] == 80


def test_the_other_commands_read_them(tmp_path, capsys):
    assert main(["export", str(RUNS / "states"), "--out", str(tmp_path / "given"), "--episodes", "0"]) == 0
    exported = dr_q.load(tmp_path / "given")
    assert policy_record(tmp_path / "given")["format"] == FORMAT
    np.testing.assert_allclose(exported.act(STATES), dr_q.load(RUNS / "states").act(STATES), atol=2e-3)
    assert main(["results", str(RUNS / "states"), "--out", str(tmp_path / "r.csv")]) == 0
    assert main(["eval", str(RUNS / "states"), "--episodes", "1"]) == 0
    assert "80 agent steps" in capsys.readouterr().out


def test_a_checkpoint_with_fewer_loss_terms_than_this_version_is_read(copy):
    """As a version before a new term was added wrote it; the term is logged as 0 until the next encoder updates."""
    run = copy("states")
    file = run / "checkpoints/80/checkpoint.json"
    record = json.loads(file.read_text())
    del record["encoder_seen"]["terms.infonce"]
    file.write_text(json.dumps(record))
    opened = analyse.open_run(run)
    metrics = load(Checkpoints(run, opened.seeds), 80, opened.spec(80)).encoder_metrics
    assert metrics is not None
    assert metrics.terms["infonce"].tolist() == [0.0, 0.0]
    assert float(metrics.terms["reward"][0]) > 0
