"""Exports without dr-q: in ONNX Runtime, PyTorch and NumPy they act as the policy does, for whatever it observes."""

import ast
import dataclasses
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from gymnasium import spaces

import dr_q
from dr_q.cli import main
from dr_q.envs import make_env
from dr_q.policies import export
from dr_q.policies.export import Format, check_choice, export_policy
from dr_q.policies.policy import Policy
from dr_q.policies.portable import check, forms, portable_policy
from dr_q.policies.portable.check import LARGEST_DIFFERENCE
from dr_q.spaces import SINGLE, at_path
from tests.envs import mixed_toys, toys
from tests.policies.test_policy import MatrixActions, policy_of

ROOT = Path(__file__).parents[2]
TEMPLATES = sorted((ROOT / "src" / "dr_q" / "policies" / "portable").glob("*_policy.py"))
FORMS = ["numpy", "onnx", "torch"]
needs = {
    "onnx": pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("onnx", "onnxruntime"))), reason="onnx or onnxruntime is not installed"
    ),
    "torch": pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install torch==2.13.0"
    ),
    "numpy": (),
}
each_form = pytest.mark.parametrize("form", [pytest.param(form, marks=needs[form]) for form in FORMS])


class Arm(toys.Toy):
    """Vectors, and actions with uneven bounds."""

    observation_space = spaces.Box(-np.inf, np.inf, (5,), np.float32)
    action_space = spaces.Box(np.array([-1.0, 100.0, -0.1]), np.array([3.0, 100.5, 0.0]), (3,), np.float64)

    def observe(self):
        return np.random.default_rng(self.t).normal(size=5).astype(np.float32)

    def outcome(self, action):
        return 0.0, False, self.t == 9


class Camera(Arm):
    """Images, no two alike, which are stacked."""

    observation_space = spaces.Box(0, 255, (36, 31, 3), np.uint8)

    def observe(self):
        return np.random.default_rng(self.t).integers(0, 256, (36, 31, 3), np.uint8)


class Called(mixed_toys.Choices):
    """Entries whose names an ONNX model uses itself."""

    observation_space = spaces.Dict(
        {"action": spaces.Box(-1, 1, (2,), np.float32), "first": spaces.Discrete(3, start=-1)}
    )

    def observe(self):
        return {"action": np.array([0.5, 0.1 * self.t], np.float32), "first": np.int64(self.t % 3 - 1)}


def normalised(make, folder) -> Policy:
    """A policy whose normaliser has seen something."""
    policy = policy_of(make, folder, normalise_observations="all")
    seen = policy.networks.normaliser
    assert seen is not None
    env = make_env(make)
    for x in [env.reset(0), *(env.step(np.zeros(1, np.float32)).obs for _ in range(8))]:
        seen = seen.add(env.spec.obs, {SINGLE: jnp.asarray(x[SINGLE])})
    networks = dataclasses.replace(policy.networks, normaliser=seen)
    return Policy(networks, policy.record, 0)


CASES = {
    "vector, uneven bounds": Arm,
    "Dict, matrix of actions": MatrixActions,
    "images stacked": Camera,
    "images, vector, choices, MultiDiscrete": mixed_toys.Nested,
    "image and position, Discrete": mixed_toys.ImageGoal,
    "choices and bits": mixed_toys.Choices,
    "Discrete from 6": mixed_toys.DiscreteChain,
    "normalised": mixed_toys.Large,
    "names of its own": Called,
}


def policy_for(case: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Policy:
    if case != "normalised":
        return policy_of(CASES[case], folder)
    policy = normalised(CASES[case], folder)
    monkeypatch.setattr(export, "load", lambda *_: policy)
    return policy


def player(form: str, folder: Path) -> Any:
    """A function of the environment's observations, made of the export's files alone."""
    if form != "onnx":
        spec = importlib.util.spec_from_file_location(f"exported_{form}", folder / "policy.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.Policy().act
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "policy.onnx")
    state: dict[str, Any] = {x.name: None for x in session.get_inputs() if x.name.endswith(":frames")}
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(uint8)": np.uint8, "tensor(bool)": bool}

    def act(obs):
        feed = {}
        for x in session.get_inputs():
            if x.name in state:
                value = np.zeros((1, *x.shape[1:])) if state[x.name] is None else state[x.name]
            elif x.name == "first":
                value = [all(value is None for value in state.values())]
            else:
                path = x.name.removeprefix("obs/")
                value = np.asarray(at_path(obs, path) if isinstance(obs, dict) else obs)[None]
            feed[x.name] = np.asarray(value, kinds[x.type])
        outputs = [x.name for x in session.get_outputs()]
        found = dict(zip(outputs, session.run(outputs, feed), strict=True))
        state.update({name: found[name.replace(":frames", ":next_frames")] for name in state})
        return np.asarray(found["action"])[0]

    return act


@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="onnxruntime is not installed")
@pytest.mark.parametrize("make", [Arm, Camera, mixed_toys.Nested])
def test_the_card_of_an_onnx_export_runs_as_it_stands(make, tmp_path, monkeypatch):
    """Frames are handed from call to call: an observation at a time, it acts as the policy does."""
    policy = policy_of(make, tmp_path / "run")
    export_policy(tmp_path / "run", tmp_path / "out", None, "float32", 0, "onnx")
    monkeypatch.chdir(tmp_path / "out")
    code = Path("README.md").read_text().partition("session = onnxruntime")[2].partition("```")[0]
    code = "import numpy as np\nimport onnxruntime\nsession = onnxruntime" + code
    env, names = make(), []
    for name in re.findall(r'"([^"]+)": \.\.\.', code):
        names.append(name)
        code = code.replace(f'"{name}": ...', f'"{name}": read({name!r})')
    assert names
    seen, acted = [env.reset(seed=0)[0]], []

    def read(name):
        path = name.removeprefix("obs/")
        x = np.asarray(at_path(seen[-1], path) if isinstance(seen[-1], dict | tuple) else seen[-1])
        return (x if x.dtype in (np.uint8, np.int64) else x.astype(np.float32))[None]

    def send(action):
        acted.append(np.asarray(action)[0])
        seen.append(env.step(env.action_space.sample())[0])
        return len(acted) < 5

    if "while True" in code:
        exec(
            code.replace("while True", "going = True\nwhile going").replace(
                "    ...  #", "    going = send(action)  #"
            ),
            {"read": read, "send": send},
        )
    else:
        exec(code + "\nsend(action)", {"read": read, "send": send})
    episode = policy.episode()
    for obs, action in zip(seen, acted, strict=False):
        np.testing.assert_allclose(action, np.asarray(episode.act(obs)), atol=1e-4)


@pytest.mark.parametrize("form", ["numpy", "torch"])
def test_the_code_of_an_export_is_for_old_computers_too(form):
    """Python 3.8: robots have it. It was run with 3.8 and 3.9; here it is read."""
    file = Path(export.__file__).with_name("portable") / f"{form}_policy.py"
    tree = ast.parse(file.read_text(), feature_version=(3, 8))
    assert len(file.read_text().splitlines()) < 100
    newer = ("removeprefix", "removesuffix", "strict", "pairwise")  # names of 3.9 and 3.10
    for node in ast.walk(tree):
        assert not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)), "X | Y as a type is of 3.10"
        name = getattr(node, "attr", None) or getattr(node, "arg", None)
        assert name not in newer, f"line {getattr(node, 'lineno', '?')}: {name}"


@pytest.mark.parametrize("form", ["numpy", pytest.param("torch", marks=needs["torch"])])
def test_an_export_refuses_what_is_not_finite(form, tmp_path):
    policy_of(Arm, tmp_path / "run")
    export_policy(tmp_path / "run", tmp_path / "out", None, "float32", 0, form)
    act = player(form, tmp_path / "out")
    obs = Arm.observation_space.sample()
    bad = (
        {key: np.full_like(x, np.nan) for key, x in obs.items()} if isinstance(obs, dict) else np.full_like(obs, np.nan)
    )
    act(obs)
    with pytest.raises(ValueError, match=r"observation '.*': got float32 .*nan.* expected .* finite"):
        act(bad)


@each_form
@pytest.mark.parametrize("case", CASES)
def test_an_export_plays_as_the_policy_does(case, form, tmp_path, monkeypatch):
    policy = policy_for(case, tmp_path / "run", monkeypatch)
    done = export_policy(tmp_path / "run", tmp_path / "out", None, "float32", 0, form)
    assert 0 <= done.difference <= 2 * LARGEST_DIFFERENCE  # our own program rounds too
    assert 0 < done.latency.median <= done.latency.slow
    assert not (tmp_path / "out" / "__pycache__").exists()
    act, playing, own = player(form, tmp_path / "out"), policy.episode(), CASES[case]()
    obs, _ = own.reset(seed=0)
    for _ in range(5):
        action, expected = act(obs), playing.act(obs)
        assert action.shape == expected.shape
        is_number = isinstance(own.action_space, spaces.Discrete)  # as `space.sample()` gives it
        assert isinstance(action, np.integer) == isinstance(expected, np.integer) == is_number
        assert own.action_space.contains(action.astype(own.action_space.dtype))
        np.testing.assert_allclose(action, expected, rtol=1e-6, atol=2e-5)
        obs = own.step(action)[0]


@each_form
def test_weights_in_float16(form, tmp_path):
    policy = policy_of(Arm, tmp_path / "run")
    whole, half = (
        export_policy(tmp_path / "run", tmp_path / precision, None, precision, 0, form)
        for precision in ("float32", "float16")
    )
    assert half.size < whole.size
    assert whole.rounding is None
    assert half.rounding is not None
    assert LARGEST_DIFFERENCE < half.rounding <= check.LARGEST_FLOAT16_DIFFERENCE
    assert half.difference <= 2 * LARGEST_DIFFERENCE  # from our own policy with the same rounded weights
    obs = Arm().observe()
    np.testing.assert_allclose(player(form, half.folder)(obs), policy.act(obs), rtol=1e-3, atol=0.05)


@pytest.mark.parametrize("form", ["safetensors", "numpy"])
def test_an_export_that_acts_differently_is_not_left_behind(form, tmp_path, monkeypatch, capsys):
    policy_of(Arm, tmp_path / "run")
    words = ["export", str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--episodes", "0", "--format", form]
    if form == "numpy":
        made = export.portable_policy

        def other(policy, precision):
            good = made(policy, precision)
            return good._replace(arrays={n: x * 1.001 if "linear3" in n else x for n, x in good.arrays.items()})

        monkeypatch.setattr(export, "portable_policy", other)
        assert main(words) == 1
        said = capsys.readouterr().err
        assert "the export in numpy was not kept: its actions differ from the policy's by up to" in said
        assert said.count("\n") == 1
    monkeypatch.setattr(export, "LARGEST_FLOAT16_DIFFERENCE", 1e-9)
    monkeypatch.setattr(export, "portable_policy", portable_policy)
    assert main([*words, "--precision", "float16"]) == 1
    assert "weights in float16 change this policy's actions" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_actions_in_the_environments_units_are_checked(tmp_path):
    policy = policy_of(Arm, tmp_path)
    unit = np.zeros((1, 3), np.float32)
    good = policy._to_env(unit)
    check._check_env_actions(policy, good, unit)
    with pytest.raises(dr_q.ToolError, match="outside the environment's bounds"):
        check._check_env_actions(policy, good + np.array([0, 1, 0]), unit)
    with pytest.raises(dr_q.ToolError, match="are not those that"):
        check._check_env_actions(policy, good + np.array([0.1, 0, 0]), unit)


def test_a_form_whose_package_is_missing_is_refused(tmp_path, monkeypatch, capsys):
    policy_of(Arm, tmp_path / "run")
    monkeypatch.setitem(forms._NEEDS, "torch", ("no_such_torch",))
    words = ["export", str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--format", "torch"]
    assert main(words) == 2
    assert "the format torch needs no_such_torch, which is not installed: pip install torch" in capsys.readouterr().err


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.stem)
def test_the_files_beside_the_weights_are_short_and_need_nothing_of_ours(file):
    text = file.read_text()
    assert len(TEMPLATES) == 2
    assert text.count("\n") < 100
    assert "import dr_q" not in text
    assert "from dr_q" not in text
    assert "jax" not in text


BLOCKED = """
import runpy, sys
sys.modules.update(dict.fromkeys(["dr_q", "jax", "equinox"]))  # importing them fails
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


@each_form
def test_a_robot_loop_in_30_lines_without_dr_q(form, tmp_path):
    """On Gymnasium's Pendulum, as the example has it; `dr_q` and `jax` cannot be imported there."""
    policy_of("gym/Pendulum-v1", tmp_path / "run")
    export_policy(tmp_path / "run", tmp_path / "out", None, "float32", 0, form)
    example = ROOT / "examples" / "robot" / ("onnx_loop.py" if form == "onnx" else "python_loop.py")
    assert example.read_text().count("\n") <= 30
    command = [sys.executable, "-c", BLOCKED, str(example), str(tmp_path / "out"), "20", "200"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "20 steps, return -" in done.stdout


def test_a_card_is_ready_for_a_hub(tmp_path):
    policy_of("gym/Pendulum-v1", tmp_path / "run")
    file = tmp_path / "run" / "policy" / "policy.json"
    record = json.loads(file.read_text())
    training = {
        "command": "dr-q train gym/Pendulum-v1 --seeds 3",
        "versions": {"dr-q": "0.1.0", "jax": "0.10.2"},
        "evaluation": {"return": -150.0, "return_std": 20.0, "episodes": 10},
    }
    returns = {"0": -150.0, "1": -170.0, "2": -190.0}
    file.write_text(
        json.dumps({**record, "task": "gym/Pendulum-v1", "agent_steps": 5000, "returns": returns, "training": training})
    )
    done = export_policy(tmp_path / "run", tmp_path / "out", None, "float32", 2, "numpy")
    card = (tmp_path / "out" / "README.md").read_text()
    _, header, text = card.split("---\n", 2)
    facts = yaml.safe_load(header)
    assert facts["library_name"] == "dr-q"
    assert facts["pipeline_tag"] == "reinforcement-learning"
    assert {"reinforcement-learning", "continuous-control", "numpy"} <= set(facts["tags"])
    (result,) = facts["model-index"][0]["results"]
    assert result["dataset"] == {"name": "gym/Pendulum-v1", "type": "gym/Pendulum-v1"}
    assert done.returns is not None
    assert result["metrics"][0]["value"] == f"{done.returns.mean():.2f} +/- {done.returns.std():.2f}"
    assert "# gym/Pendulum-v1, dr.q, seed 0, 5,000 agent steps" in text
    assert "| mean of all 3 seeds of the run, then | -170.0 [-219.7, -120.3] |" in text  # Student's t, 2 degrees
    assert "| these weights, 2 fresh episodes played by dr-q |" in text
    assert "from policy import Policy" in text
    assert "`dr-q train gym/Pendulum-v1 --seeds 3`" in text
    assert "Versions: dr-q 0.1.0, jax 0.10.2." in text
    assert "zs_dim 16" in text  # it differs from the preset
    assert '"discount": 0.99' in text
    assert f"the actions of this export differ by at most {done.difference:.1e} from the policy's" in text


def test_a_card_of_the_best_policy_has_the_scores_that_did_not_choose_it(tmp_path):
    policy_of("gym/Pendulum-v1", tmp_path / "run")
    file = tmp_path / "run" / "policy" / "policy.json"
    record = json.loads(file.read_text())
    record |= {"returns": {"0": -100.0, "1": -120.0}, "agent_steps_of": {"0": 60, "1": 80}}
    file.write_text(json.dumps(record))
    export_policy(tmp_path / "run", tmp_path / "unmeasured", episodes=0)
    assert "mean of" not in (tmp_path / "unmeasured" / "README.md").read_text()
    file.write_text(json.dumps({**record, "fresh_returns": {"0": -150.0, "1": -190.0}, "fresh_episodes": 2}))
    export_policy(tmp_path / "run", tmp_path / "out", episodes=0)
    _, header, text = (tmp_path / "out" / "README.md").read_text().split("---\n", 2)
    said = "| mean of the best policies of all 2 seeds of the run, measured again on fresh episodes | -170.0"
    assert said in text
    assert yaml.safe_load(header)["model-index"][0]["results"][0]["metrics"][0]["value"] == "-150.00"


def test_forms_that_there_are_not_are_refused_in_one_line():
    with pytest.raises(dr_q.ConfigError, match="form must be safetensors, onnx, numpy or torch, got 'tf'"):
        check_choice("form", "tf", get_args(Format))


def test_the_bound_of_float16_is_twice_what_was_measured():
    measured = json.loads((ROOT / "benchmarks" / "results" / "float16.json").read_text())["policies"]
    largest = max(x for one in measured for how in ("rounding", "stand-in for rounding") for x in one[how].values())
    assert 2 * largest <= check.LARGEST_FLOAT16_DIFFERENCE <= 2.5 * largest
