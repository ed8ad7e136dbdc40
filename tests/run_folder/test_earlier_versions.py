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
from dr_q.learner import saving
from dr_q.learner.saving import load, load_agents
from dr_q.networks import VectorBranch
from dr_q.run_folder import FORMAT, Checkpoints, policy_record, read_arrays, write_arrays
from dr_q.spaces import SINGLE, Image, Vector, spaces_from_json
from dr_q.training.api import refuse_changes
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
    vector, image = (
        spaces_from_json(policy_record(RUNS / name)["spaces"]).obs[SINGLE] for name in ("states", "images")
    )
    assert vector == Vector(11)
    assert image == Image(1, 32, 32, stack=3)


def test_weights_and_replay_are_read_as_they_lie_in_the_files():
    run = analyse.open_run(RUNS / "states")
    stored = Checkpoints(run.folder, run.seeds).read(160)
    raw = read_arrays(run.folder / "checkpoints/160/agents.safetensors")
    agents = load_agents(stored, run.spec(160))
    branch = agents.online.encoder.state.branches[SINGLE]
    assert isinstance(branch, VectorBranch)
    assert np.array_equal(branch.mlp.hidden1.weight, raw["online.encoder.state.mlp.hidden1.weight"])
    assert sum(x.size for x in jax.tree.leaves(agents)) == sum(x.size for x in raw.values()), "every array has a place"
    storage = load(Checkpoints(run.folder, run.seeds), 160, run.spec(160)).states.replays.storage
    assert storage.clock.tolist() == [159, 159]
    assert np.count_nonzero(storage.is_transition, axis=1).tolist() == [159, 159]
    chunk = read_arrays(run.folder / "checkpoints/replay/seed1/00000128-158-39.safetensors")
    assert storage.obs is not None
    assert np.array_equal(storage.obs[SINGLE][1][128 : 128 + len(chunk["obs"])], chunk["obs"])


@pytest.mark.parametrize(
    ("name", "task", "at"),
    [("states", None, 160), pytest.param("images", SmallImages, 80, marks=pytest.mark.slow)],
)
def test_runs_are_resumed_and_resumed_again(name, task, at, copy, monkeypatch):
    """Chunks that did not change since are the earlier version's: what refers to them must know that."""
    monkeypatch.setattr(saving, "CHUNK_BYTES", 1)
    run = copy(name)
    before = (run / "evals.csv").read_text()
    for steps in (at + 40, at + 80):
        done = dr_q.train(task, resume=run, steps=steps, quiet=True)
        assert (done.status, done.agent_steps) == ("finished", steps)
    after = (run / "evals.csv").read_text()
    assert after.startswith(before)
    assert len(after.splitlines()) > len(before.splitlines())
    assert [path.name for path in (run / "checkpoints").iterdir() if path.name.isdigit()] == [str(at + 80)]
    assert json.loads((run / f"checkpoints/{at + 80}/checkpoint.json").read_text())["format"] == FORMAT
    assert json.loads((run / "run.json").read_text())["earlier_versions"][0]["until"] == at


def test_the_other_commands_read_them(tmp_path, capsys):
    assert main(["export", str(RUNS / "states"), "--out", str(tmp_path / "given"), "--episodes", "0"]) == 0
    exported = dr_q.load(tmp_path / "given")
    assert policy_record(tmp_path / "given")["format"] == FORMAT
    np.testing.assert_allclose(exported.act(STATES), dr_q.load(RUNS / "states").act(STATES), atol=2e-3)
    assert main(["results", str(RUNS / "states"), "--out", str(tmp_path / "r.csv")]) == 0
    assert main(["eval", str(RUNS / "states"), "--episodes", "1"]) == 0
    assert "160 agent steps" in capsys.readouterr().out


def test_a_checkpoint_with_fewer_loss_terms_than_this_version_is_read(copy):
    """As a version before a new term was added wrote it; the term is logged as 0 until the next encoder updates."""
    run = copy("states")
    file = run / "checkpoints/160/checkpoint.json"
    record = json.loads(file.read_text())
    del record["encoder_seen"]["terms.infonce"]
    file.write_text(json.dumps(record))
    opened = analyse.open_run(run)
    metrics = load(Checkpoints(run, opened.seeds), 160, opened.spec(160)).encoder_metrics
    assert metrics is not None
    assert metrics.terms["infonce"].tolist() == [0.0, 0.0]
    assert float(metrics.terms["reward"][0]) > 0


@pytest.mark.parametrize("file", ["checkpoints/160/checkpoint.json", "policy/policy.json"])
def test_a_newer_format_is_refused(file, copy):
    run = copy("states")
    record = json.loads((run / file).read_text())
    record = {f"new_{name}": value for name, value in record.items()}  # a newer format may have other fields
    (run / file).write_text(json.dumps({**record, "format": FORMAT + 1}))
    with pytest.raises(
        dr_q.RunFolderError, match=rf"has format {FORMAT + 1}, .* reads formats up to {FORMAT}: use a newer"
    ):
        dr_q.load(run) if "policy" in file else dr_q.train(resume=run, steps=200, quiet=True)


def test_a_checkpoint_without_an_array_is_damaged(copy):
    run = copy("states")
    file = run / "checkpoints/160/replay.safetensors"
    arrays = read_arrays(file)
    del arrays["row_sums.young"]
    write_arrays(file, arrays)
    with pytest.raises(dr_q.DamagedFileError, match=r"is damaged: .* has no array 'sampling.row_sums.young'"):
        dr_q.train(resume=run, steps=200, quiet=True)


def test_only_the_first_format_may_lack_what_it_did_not_have(copy):
    run = copy("states")
    index, replay = (run / "checkpoints/160" / name for name in ("checkpoint.json", "replay.safetensors"))
    opened = analyse.open_run(run)
    stored = Checkpoints(run, opened.seeds).read(160)
    assert stored.replay()["empty_draws"].tolist() == [0, 0]
    assert stored.encoder_metrics is not None
    write_arrays(replay, {name: x for name, x in stored.replay().items() if name != "empty_draws"})
    write_arrays(run / "checkpoints/160/agents.safetensors", stored.agents())
    record = json.loads(index.read_text())
    index.write_text(json.dumps({**record, "format": 2}))
    with pytest.raises(dr_q.DamagedFileError, match=r"checkpoint.json is damaged: it has no encoder_metrics"):
        Checkpoints(run, opened.seeds).read(160)
    index.write_text(json.dumps({**record, "format": 2, "encoder_metrics": None}))
    with pytest.raises(dr_q.DamagedFileError, match=r"replay: it has no array 'empty_draws'"):
        load(Checkpoints(run, opened.seeds), 160, opened.spec(160))


def test_settings_that_the_run_has_by_default_may_be_given(copy, capsys):
    """Older run.json have fewer settings: what they lack has its default."""
    run = copy("states")
    assert main(["train", "--resume", str(run), "--sampling", "uniform"]) == 2
    assert "--sampling uniform does not fit the run in" in capsys.readouterr().err
    refuse_changes(run, None, {"sampling": "faded-lap", "keep_checkpoints": 1})


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (lambda settings: settings.pop("config"), dr_q.DamagedFileError, "the settings of the algorithm are NoneType"),
        (
            lambda settings: settings.update(warmth=3),
            dr_q.ConfigError,
            "another version of dr-q .*'warmth'.*use that one",
        ),
    ],
)
def test_settings_of_another_version_or_none_are_called_that(damage, kind, message, copy):
    run = copy("states")
    info = json.loads((run / "run.json").read_text())
    damage(info["settings"])
    (run / "run.json").write_text(json.dumps(info))
    with pytest.raises(kind, match=message):
        dr_q.train(resume=run, steps=200)


def test_what_run_json_lacks_is_named_or_has_its_default(copy):
    run = copy("states")
    info = json.loads((run / "run.json").read_text())
    del info["settings"]["checkpoint_every"]
    (run / "run.json").write_text(json.dumps(info))
    assert dr_q.train(resume=run, quiet=True).status == "finished"
    for name in ("agent_steps", "seeds"):
        (run / "run.json").write_text(json.dumps({key: value for key, value in info.items() if key != name}))
        with pytest.raises(dr_q.DamagedFileError, match=f"run.json is damaged: it has no {name}"):
            analyse.open_run(run)
