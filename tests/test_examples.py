"""The examples run, and do what their first lines say.

Scripts run in tiny form in this process: their `main` takes the settings of a run. Notebooks run in a fresh process
with plain Python, code cells in order and without a display, because a Jupyter kernel (nbclient, ipykernel) is no
dependency.
Their cell with the tag `parameters` is replaced, as papermill does it.
"""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import dr_q
from dr_q.envs import make_env
from dr_q.spaces import Image, Vector
from tests.training import tiny

EXAMPLES = Path(__file__).parents[1] / "examples"
TINY = {**tiny.SIZES, **tiny.RUN}


@pytest.fixture
def load(monkeypatch):
    """Imports an example by its name."""
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def import_it(name: str) -> ModuleType:
        return importlib.import_module(name)

    return import_it


def test_camera_and_joints_has_an_image_beside_a_vector(load):
    load("camera_and_joints")
    both, joints = (make_env(f"camera_and_joints:{name}-v0") for name in ("ReacherEasy", "ReacherEasyJoints"))
    parts = dict(both.spec.obs.parts)
    assert (parts["camera"], parts["joints"]) == (Image(3, 84, 84, 3), Vector(4))
    first, again, other = (both.reset(seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first["camera"], again["camera"])
    assert (first["camera"] != other["camera"]).any()
    np.testing.assert_array_equal(joints.reset(3)["obs"], first["joints"])
    step = both.step(np.ones(2, np.float32))
    assert step.obs["joints"] != pytest.approx(first["joints"])
    both.close()
    joints.close()


def test_own_environment_trains_loads_and_acts(load, tmp_path, capsys):
    total = load("own_environment").main(tmp_path / "run", tiny.STEPS, **TINY)
    assert total < 0
    assert "own_environment:Point-v0: last evaluation, step 120, seed 0>: return" in capsys.readouterr().out


def test_own_environment_has_at_most_40_lines_of_code():
    lines = (EXAMPLES / "own_environment.py").read_text().partition('"""\n\n')[2].splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 40


def test_the_callback_stops_at_the_score_and_the_best_policy_is_kept(load, tmp_path, capsys):
    example = load("stop_at_a_score")
    result = example.main(tmp_path / "run", score=-5_000, steps=tiny.STEPS, **TINY)
    assert result.status == "stopped"
    assert result.stop_reason.endswith("asked for -5000")
    assert "best over time" in capsys.readouterr().out
    callback = example.StopAtScore(0)
    callback.restore({**callback.state(), "best": -7.0})
    assert callback.best == -7.0


def test_runs_are_read_with_pandas(load, tmp_path, capsys):
    pytest.importorskip("pandas")
    final = load("read_runs_with_pandas").main(EXAMPLES.parent / "results" / "runs", tmp_path / "curves.png")
    assert final.loc["walker-run", "seeds"] == 3
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "humanoid-walk-mr.q" in capsys.readouterr().out


def test_the_parts_learn_in_an_own_loop(load, capsys):
    returns = load("own_loop").main(steps=220, **{**tiny.SIZES, "exploration_steps": 180})
    assert len(returns) == 1
    assert -2_000 < returns[0] < 0
    assert "encoder loss " in capsys.readouterr().out


@pytest.mark.slow
def test_the_sweep_on_ray_compares_two_presets(tmp_path):
    pytest.importorskip("ray", reason="sweeps need ray: pip install 'dr-q[ray]'")
    schedule = {"eval_every": 40, "eval_episodes": 1}
    script = f"import ray_sweep; ray_sweep.main('sweep', {tiny.STEPS}, {tiny.SIZES!r}, **{schedule!r})"
    said = run(script, tmp_path)
    assert "quick+no-infonce" in said
    assert (tmp_path / "sweep" / "results.csv").exists()


@pytest.mark.parametrize(("name", "figures"), [("first_steps", 1), ("latents", 1)])
def test_a_notebook_runs(name, figures, tmp_path):
    pytest.importorskip("matplotlib")
    parameters = f"steps, settings, folder, points = {tiny.STEPS}, {TINY!r}, 'run', 50"
    cells = json.loads((EXAMPLES / f"{name}.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["metadata"].get("tags") for cell in code[:2]] == [["parameters"], None]
    sources = [parameters, *("".join(cell["source"]) for cell in code[1:])]
    said = run("\n\n".join([*sources, "print('figures', len(plt.get_fignums()))"]), tmp_path)
    assert f"figures {figures}" in said


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path):
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all((cell["outputs"], cell["execution_count"]) == ([], None) for cell in code)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])


def run(script: str, folder: Path) -> str:
    """What a script prints in a fresh process, in a folder of its own."""
    paths = (Path(dr_q.__file__).parents[1], EXAMPLES)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
