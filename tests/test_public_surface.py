"""What other people's code may import: names that stay, and the parts as a library."""

import ast
import builtins
import dataclasses
import importlib
import inspect
import itertools
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dr_q
from dr_q import replay as rp
from dr_q.config import preset, settings_of
from dr_q.diagnostics import analyse
from dr_q.networks.normaliser import Normaliser
from dr_q.spaces import SINGLE, ContinuousActions, ObsSpec, Spaces, Vector

RUN = Path(__file__).parent / "data" / "runs-675da62" / "states"
API = Path(__file__).parents[1] / "docs" / "api"
SURFACE = {
    "dr_q": {
        *("BestPolicy", "Evaluation", "TrainResult", "train"),
        *("Callback", "RunView", "Stop"),
        *("CheckpointEvent", "EndEvent", "EpisodeEvent", "EvaluationEvent", "Event", "StartEvent", "StepEvent"),
        *("FrameStackPolicy", "Policy", "load"),
        *("Latents", "OpenedRun", "PlayedEpisodes", "evaluate", "open_run"),
        *("Config", "PRESETS", "Settings", "load_presets", "preset"),
        *("ContinuousActions", "DiscreteActions", "Image", "ObsSpec", "Spaces", "Vector"),
        *("ConfigError", "DamagedFileError", "DrQError", "EnvError", "MissingPackageError", "RunFolderError"),
        *("TaskError", "ToolError", "TrainingError", "WorkerError"),
        *("Agent", "Encoder", "Replay"),
        *("actor_from_torch", "critic_from_torch", "discrete_actor_from_torch", "encoder_from_torch"),
        *("Exported", "Finding", "Imported", "check_env", "export_policy", "import_authors"),
        *("agent", "envs", "networks", "replay", "report", "__version__"),
    },
    "dr_q.agent": {
        *("Agent", "Networks", "PolicyNetworks", "init_agent", "init_networks", "explore", "greedy_action"),
        *("random_action", "encoder_step", "actor_critic_step", "update_actor_critic"),
        *("sync_targets_and_train_encoder", "encoder_loss", "TERMS", "METRICS"),
        *("ActionNoise", "ActorCriticMetrics", "CriticBatch", "EncoderMetrics", "Gumbel", "Metric", "Prediction"),
        *("Term", "critic_batch", "draw_noise", "encoder_terms", "predict"),
    },
    "dr_q.envs": {
        *("Env", "EnvSpec", "Family", "Step", "TaskInfo", "UnknownIdError"),
        *("known_tasks", "make_env", "suite_tasks", "suites"),
    },
    "dr_q.replay": {
        *("Replay", "Storage", "StorageSpec", "Transition", "init", "init_replay", "add", "add_in_place", "draw"),
        *("write_priority", "probability", "has_valid_start", "sample_n_step", "sample_subtrajectory", "Sampler"),
        *("NStepBatch", "Subtrajectory", "make_sampler"),
    },
    "dr_q.networks": {
        *("Encoder", "StateEncoder", "Actor", "DiscreteActor", "TwinCritic", "Normaliser"),
        *("RewardPrediction", "StepPrediction"),
    },
    "dr_q.report": {
        *("Reference", "Report", "Result", "build_report", "compare", "compare_with_reference", "plot_curves"),
        *("read_references", "read_results", "write_report", "write_results"),
        *("Comparison", "Estimate", "ReferenceComparison", "RunRecord", "Sample", "SuiteDifference", "TaskComparison"),
        "labelled_runs",
    },
}
"""Names that are kept or renamed with a note in CHANGELOG.md. Packages below dr_q may have more."""
WITH_EXAMPLE = {
    *("dr_q.Callback", "dr_q.Config", "dr_q.DrQError", "dr_q.Encoder", "dr_q.FrameStackPolicy", "dr_q.ObsSpec"),
    *("dr_q.OpenedRun", "dr_q.Policy", "dr_q.Spaces", "dr_q.Stop", "dr_q.TrainResult"),
    *("dr_q.envs.Family", "dr_q.replay.Transition"),
}
"""Classes that users create or call; every public function has an example too."""


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
        assert re.search(rf"\b{name}\b", head), name


def test_the_parts_are_loaded_on_first_use():
    code = "import dr_q; assert dr_q.replay.draw and dr_q.agent.Agent is dr_q.Agent and dr_q.report.compare"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_does_not_import_jax():
    code = "import sys, dr_q; dr_q.Config; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Documented(NamedTuple):
    """A public class, method or function, as its source has it."""

    path: str
    node: Any
    """Of `ast`."""

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.node) or ""

    def section(self, title: str) -> str | None:
        """A section of Google style; None if the docstring has none of that title."""
        found = re.search(rf"^{title}:\n((?:(?: {{4}}.*)?\n)*)", f"{self.docstring}\n", re.MULTILINE)
        return found and textwrap.dedent(found[1])

    def listed_in(self, title: str) -> list[str]:
        """The names that a section lists, `name: text`."""
        return re.findall(r"^(\*{0,2}\w+): \S", self.section(title) or "", re.MULTILINE)

    @property
    def arguments(self) -> list[str]:
        given = self.node.args
        plain = [a.arg for a in (*given.posonlyargs, *given.args) if a.arg != "self"]
        several = [f"*{given.vararg.arg}"] if given.vararg else []
        named = [f"**{given.kwarg.arg}"] if given.kwarg else []
        return [*plain, *several, *(a.arg for a in given.kwonlyargs), *named]

    @property
    def raised(self) -> set[str]:
        """Errors that its own lines raise."""
        raises = [x.exc for x in ast.walk(self.node) if isinstance(x, ast.Raise)]
        return {ast.unparse(error.func) for error in raises if isinstance(error, ast.Call)}


def source_of(thing: Any) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]


def documented(is_kind: Any) -> list[Documented]:
    """The public names of a kind; one that is exported twice is listed where it comes first in `SURFACE`."""
    first: dict[Any, str] = {}
    for module, names in SURFACE.items():
        for name in sorted(names):
            thing = getattr(importlib.import_module(module), name)
            if is_kind(thing):
                first.setdefault(thing, f"{module}.{name}")
    return [Documented(path, source_of(thing)) for thing, path in first.items()]


CLASSES, FUNCTIONS = documented(inspect.isclass), documented(inspect.isfunction)
METHODS = [
    Documented(f"{owner.path}.{node.name}", node)
    for owner in CLASSES
    for node in owner.node.body
    if isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name in ("__call__", "__getitem__"))
]


def is_property(given: Documented) -> bool:
    return any(ast.unparse(decorator) == "property" for decorator in given.node.decorator_list)


def test_every_public_name_has_a_docstring():
    wrong = [x.path for x in (*CLASSES, *METHODS, *FUNCTIONS) if not x.docstring.partition("\n")[0].endswith(".")]
    assert not wrong, "the first line of a docstring is a whole sentence"


def test_arguments_and_returned_values_are_documented():
    called = [given for given in (*METHODS, *FUNCTIONS) if not is_property(given)]
    assert {x.path: x.listed_in("Args") for x in called} == {x.path: x.arguments for x in called}
    returns = {x.path: x.node.returns is not None and ast.unparse(x.node.returns) != "None" for x in called}
    assert {x.path: x.section("Returns") is not None for x in called} == returns


def test_errors_are_documented():
    for given in (*METHODS, *FUNCTIONS):
        listed = given.listed_in("Raises")
        assert given.raised <= set(listed), given.path
        for name in listed:
            assert issubclass(getattr(dr_q, name, None) or getattr(builtins, name), Exception), given.path


def test_what_users_call_has_an_example_in_python():
    assert {given.path for given in CLASSES} >= WITH_EXAMPLE
    for given in (*CLASSES, *METHODS, *FUNCTIONS):
        example = given.section("Example")
        assert example or not (given in FUNCTIONS or given.path in WITH_EXAMPLE), f"{given.path}: show how it is called"
        if example:
            code = re.fullmatch(r"```python\n(.+)```\s*", example, re.DOTALL)
            assert code, f"{given.path}: an example is a block of Python"
            compile(code[1], given.path, "exec")


def test_public_fields_have_docstrings():
    for given in CLASSES:
        for field, after in itertools.pairwise([*given.node.body, None]):
            if not isinstance(field, ast.AnnAssign):
                continue
            is_setting = isinstance(field.value, ast.Call) and ast.unparse(field.value.func) == "setting"
            has_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            assert is_setting or has_text, f"{given.path}.{ast.unparse(field.target)}"


@pytest.mark.parametrize("kind", [dr_q.Config, dr_q.Settings])
def test_settings_say_what_they_are(kind):
    assert [name for name, (_, declared) in settings_of(kind).items() if not declared.describe()] == []


def test_the_api_pages_show_every_public_name_once():
    pages = "\n".join(path.read_text() for path in sorted(API.glob("*.md")))
    constants = ["dr_q.PRESETS", "dr_q.agent.METRICS", "dr_q.agent.TERMS"]
    public = [given.path for given in (*CLASSES, *FUNCTIONS)]
    assert sorted(re.findall(r"^::: (\S+)$", pages, re.MULTILINE)) == sorted([*public, *constants])


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
