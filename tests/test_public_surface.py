"""What other people's code may import: names that stay, and the parts as a library."""

import dataclasses
import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dr_q
from dr_q import replay as rp
from dr_q.config import preset
from dr_q.diagnostics import analyse
from dr_q.networks.normaliser import Normaliser
from dr_q.spaces import SINGLE, ContinuousActions, ObsSpec, Spaces, Vector

RUN = Path(__file__).parent / "data" / "runs-675da62" / "states"
SURFACE = {
    "dr_q": {
        *(
            "Agent",
            "Callback",
            "Config",
            "Encoder",
            "Evaluation",
            "OpenedRun",
            "PRESETS",
            "Policy",
            "Replay",
            "Stop",
            "TrainResult",
        ),
        *(
            "ConfigError",
            "DamagedFileError",
            "DrQError",
            "EnvError",
            "MissingPackageError",
            "RunFolderError",
            "TaskError",
        ),
        *("ToolError", "TrainingError", "WorkerError", "__version__"),
        *("actor_from_torch", "critic_from_torch", "discrete_actor_from_torch", "encoder_from_torch"),
        *("check_env", "export_policy", "import_authors", "load", "load_presets", "open_run", "preset", "train"),
    },
    "dr_q.agent": {
        *("Agent", "Networks", "PolicyNetworks", "init_agent", "init_networks", "explore", "greedy_action"),
        *("random_action", "encoder_step", "actor_critic_step", "update_actor_critic"),
        *("sync_targets_and_train_encoder", "encoder_loss", "TERMS", "METRICS"),
    },
    "dr_q.replay": {
        *("Replay", "Storage", "StorageSpec", "Transition", "init", "init_replay", "add", "add_in_place", "draw"),
        *("write_priority", "probability", "has_valid_start", "sample_n_step", "sample_subtrajectory", "Sampler"),
    },
    "dr_q.networks": {"Encoder", "StateEncoder", "Actor", "TwinCritic"},
    "dr_q.report": {
        *("Reference", "Report", "Result", "build_report", "compare", "compare_with_reference", "plot_curves"),
        *("read_references", "read_results", "write_report", "write_results"),
    },
}
"""Names that are kept or renamed with a note in CHANGELOG.md. Packages below dr_q may have more."""


@pytest.mark.parametrize("name", SURFACE)
def test_the_names_that_stay_are_there(name):
    module = importlib.import_module(name)
    assert set(module.__all__) >= SURFACE[name]
    for public in SURFACE[name]:
        assert getattr(module, public) is not None


def test_the_top_level_is_this_and_nothing_else():
    assert set(dr_q.__all__) == SURFACE["dr_q"], "a new public name belongs into this list and into CHANGELOG.md"
    assert sorted(dr_q.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name)) == dr_q.__all__
    assert set(dir(dr_q)) >= SURFACE["dr_q"]


def test_types_are_found_by_tools_that_read_the_source():
    """Lazy names are imported for type checkers too."""
    source = Path(dr_q.__file__).read_text()
    head = source[source.index("if TYPE_CHECKING:") : source.index("__version__ =")]
    for name in SURFACE["dr_q"] - {"__version__"}:
        assert name in head, name


def test_importing_the_package_does_not_import_jax():
    code = "import sys, dr_q; dr_q.Config; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that an earlier version made, in a copy."""
    folder = tmp_path_factory.mktemp("runs") / "states"
    shutil.copytree(RUN, folder)
    return dr_q.open_run(str(folder))


def test_an_opened_run_gives_its_agents_and_replays(run):
    saved = analyse.open_run(run.folder)
    assert (run.seeds, run.steps, run.task) == (saved.seeds, saved.checkpoints.steps(), saved.settings["task"])
    last, seed = run.steps[-1], run.seeds[-1]
    agent = run.agent(seed=seed)
    for a, b in zip(jax.tree.leaves(agent), jax.tree.leaves(analyse.load_agent(saved, last, seed)), strict=True):
        np.testing.assert_array_equal(a, b)
    replay = run.replay(seed=seed, at=run.steps[0])
    assert isinstance(replay, dr_q.Replay)
    assert not replay.spec.frames_on_host
    slots = rp.draw(replay, jax.random.key(0), 8)
    batch = rp.sample_n_step(replay.storage, slots, run.config.q_horizon)
    stored = analyse.load_replay(saved, run.steps[0], seed)
    np.testing.assert_array_equal(batch.obs[SINGLE], stored.frames[SINGLE][np.asarray(slots)])
    with pytest.raises(dr_q.ConfigError, match="has no seed 99"):
        run.agent(seed=99)
    with pytest.raises(dr_q.ConfigError, match="has no checkpoint at step 7"):
        run.replay(at=7)


def test_latents_are_the_encoders(run):
    rng = np.random.default_rng(0)
    ((name, part),) = run.spaces.obs.parts
    obs = rng.normal(size=(5, *part.shape)).astype(np.float32)
    actions = rng.uniform(-1, 1, (5, run.spaces.action.dim)).astype(np.float32)
    found = run.latents(obs, actions)
    encoder = run.agent().online.encoder
    z_s = encoder.z_s({name: jnp.asarray(obs)})
    np.testing.assert_allclose(found.z_s, z_s, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.z_sa, encoder.z_sa(z_s, jnp.asarray(actions)), rtol=1e-5, atol=1e-6)
    alone = run.latents({name: obs})
    np.testing.assert_allclose(alone.z_s, found.z_s, rtol=1e-5, atol=1e-6)
    assert alone.z_sa is None
    with pytest.raises(dr_q.ConfigError, match=r"observations of obs \(1,\); this run's are obs"):
        run.latents(np.zeros((5, 1)))
    with pytest.raises(dr_q.ConfigError, match=r"actions of shape \(5, 9\); expected \(5, "):
        run.latents(obs, np.zeros((5, 9)))


def test_latents_are_of_observations_as_the_run_normalises_them(run, monkeypatch):
    obs = np.random.default_rng(0).normal(size=(5, *dict(run.spaces.obs.parts)[SINGLE].shape)).astype(np.float32)
    agent = run.agent()
    normaliser = Normaliser.init(run.spaces.obs, "all")
    assert normaliser is not None
    for x in obs:
        normaliser = normaliser.add(run.spaces.obs, {SINGLE: jnp.asarray(10 * x)})
    online = dataclasses.replace(agent.online, normaliser=normaliser)
    monkeypatch.setattr(run, "agent", lambda **_: dataclasses.replace(agent, online=online))
    found = run.latents(obs)
    expected = agent.online.encoder.z_s(normaliser({SINGLE: jnp.asarray(obs)}))
    np.testing.assert_allclose(found.z_s, expected, rtol=1e-5, atol=1e-6)
    assert not np.allclose(found.z_s, agent.online.encoder.z_s({SINGLE: jnp.asarray(obs)}), atol=1e-3)


def test_what_is_no_run_with_checkpoints_is_refused(tmp_path):
    with pytest.raises(dr_q.RunFolderError, match="is not a run"):
        dr_q.open_run(tmp_path)


SPACES = Spaces(ObsSpec(((SINGLE, Vector(3)),)), ContinuousActions((-1.0, -1.0), (1.0, 1.0)))


def transition(i: int) -> rp.Transition:
    obs, next_obs = ({SINGLE: jnp.full(3, float(x))} for x in (i, i + 1))
    ended = jnp.asarray(i % 7 == 6)
    return rp.Transition(obs, jnp.full(2, 0.1), jnp.asarray(float(i)), next_obs, ended, jnp.asarray(False))


def test_adding_in_place_is_adding_and_takes_no_new_memory():
    config = preset("dr.q")
    plain, donated = (rp.init_replay(config, SPACES, 4_096) for _ in range(2))
    add = jax.jit(rp.add)
    for i in range(20):
        before = donated
        plain, donated = add(plain, transition(i)), rp.add_in_place(donated, transition(i))
        assert before.storage.action.is_deleted(), "it is used up: its memory is the new one's"
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(donated), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_an_addition_does_not_change_is_not_donated():
    replay = rp.init_replay(preset("dr.q"), SPACES, 4_096)
    kept = replay.empty_draws
    rp.add_in_place(replay, transition(0))
    assert not kept.is_deleted()
    assert int(kept) == 0
