"""The rooms and which way imports point; `docs/architecture.md` draws them.

    kit <- {config, spaces}; with equations, which import nothing, below {networks, replay} <- agent
        <- {learner, policies} <- training <- diagnostics <- sweep <- cli

`paper`, `envs`, `settings`, `run_folder` and `report` are next to them: they import each other downwards, never jax.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "dr_q"

BASE = {"kit", "config", "spaces"}
ALGORITHM = {*BASE, "equations", "networks", "replay", "agent"}
WORLD = {"paper", "envs", "settings", "run_folder", "report"}
MAY_IMPORT = {
    "kit": set(),
    "config": {"kit"},
    "spaces": {"kit"},
    "equations": set(),
    "networks": {*BASE, "equations"},
    "replay": {*BASE, "equations"},
    "agent": ALGORITHM,
    "paper": set(),
    "envs": {*BASE, "paper"},
    "run_folder": BASE,
    "settings": {*BASE, "envs"},
    "report": {*BASE, "paper", "envs", "settings", "run_folder"},
    "learner": {*ALGORITHM, "envs", "run_folder"},
    "policies": {*ALGORITHM, *WORLD},
    "training": {*ALGORITHM, *WORLD, "learner", "policies"},
    "diagnostics": {*ALGORITHM, *WORLD, "learner", "policies", "training"},
    "sweep": {*ALGORITHM, *WORLD, "learner", "policies", "training", "diagnostics"},
    "cli": {*BASE, *WORLD, "policies", "training", "diagnostics", "sweep"},
}
FILES_MAY_IMPORT = {
    # Storage is what lanes will change: nothing in it knows how transitions are drawn or windows read.
    "replay/storage.py": {"equations", "spaces"},
    "replay/windows.py": {"equations", "replay.storage"},
    # A scheme sees the storage through its fields and `Added`; schemes do not know each other.
    "replay/sampling/base.py": {"replay.storage"},
    "replay/sampling/uniform.py": {"config", "equations", "replay.storage", "replay.sampling.pick"},
    # The equations' callers in the loss read like the paper; the hand-written gradient is in rollout.py.
    "agent/terms.py": {"agent.rollout", "config", "equations", "networks", "replay"},
    "agent/rollout.py": {"config", "networks"},
    "envs/families/base.py": {"envs.protocol", "kit", "paper"},
    "envs/processes/packet.py": {"spaces"},
    "run_folder/formats.py": {"kit", "spaces"},
}
JAX = {"jax", "equinox", "optax"}
FORBIDDEN_LIBRARIES: dict[str, set[str]] = dict.fromkeys(("kit", "config", "spaces", *WORLD), JAX)
RUN_FILES = {
    "run.json",
    "evals.csv",
    "metrics.csv",
    "checkpoint.json",
    "agents.safetensors",
    "replay.safetensors",
    "episodes.safetensors",
    "policy.json",
    "policy",
    "checkpoints",
    "tensorboard",
    "wandb_id",
}
NO_FILES = {"networks/torch_names.py": {"policy"}, "training/loop.py": {"tensorboard"}}
"""What is the name of something else there."""


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Full names of what a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if room_of(path) not in ("__init__", "__main__")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    room = room_of(path)
    assert room in MAY_IMPORT, f"a new package: say in this test what {room} may import"
    for name in imported(path):
        library, *rest = name.split(".")
        assert library not in FORBIDDEN_LIBRARIES.get(room, set()), f"{room} must not import {library}"
        if library == "dr_q" and rest and rest[0] != room:
            assert rest[0] in MAY_IMPORT[room] or rest[0] == "__version__", f"{room} imports {name}"


@pytest.mark.parametrize("name", FILES_MAY_IMPORT)
def test_files_whose_imports_matter(name):
    for found in imported(PACKAGE / name):
        if found.startswith("dr_q."):
            allowed = FILES_MAY_IMPORT[name]
            assert any(found.startswith(f"dr_q.{module}.") for module in allowed), f"{name} imports {found}"


def test_seeds_become_an_axis_in_one_room():
    """The algorithm is written for one seed; `vmap` there is over time, batch or images. Seeds: learner/steps.py."""
    for room in ("learner", "training", "policies", "diagnostics", "sweep", "cli"):
        for path in (PACKAGE / room).rglob("*.py"):
            maps = "vmap" in path.read_text()
            assert not maps or path == PACKAGE / "learner" / "steps.py", f"{path} maps over something: seeds?"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_one_room_knows_the_files_of_a_run(path):
    if room_of(path) == "run_folder":
        return
    constants = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
    files = RUN_FILES - NO_FILES.get(str(path.relative_to(PACKAGE)), set())
    assert not files & {x for x in constants if isinstance(x, str)}, f"{path} names a file of a run"


@pytest.mark.parametrize(
    "code",
    [
        "dr_q.Config(), dr_q.preset, dr_q.DrQError",
        "import dr_q.cli",
        "import dr_q.run_folder, dr_q.report, dr_q.envs",
    ],
)
def test_settings_errors_and_help_are_read_without_jax(code):
    code = f"import sys, dr_q, dr_q.settings\n{code}\nassert not {{'jax', 'mujoco'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
