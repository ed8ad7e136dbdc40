"""Imports point one way: kit <- {config, spaces} <- equations <- {networks, replay} <- agent <- run <- {sweep, cli}.

`envs` and `report` import nothing of ours but `kit`, `config`, `spaces` and `paper`, the paper's tables.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "dr_q"

BASE = {"kit", "config", "spaces"}
MAY_IMPORT = {
    "kit": set(),
    "config": {"kit"},
    "spaces": {"kit"},
    "equations": set(),
    "networks": {*BASE, "equations"},
    "replay": {*BASE, "equations"},
    "agent": {*BASE, "equations", "networks", "replay"},
    "paper": set(),
    "envs": {*BASE, "paper"},
    "report": {*BASE, "paper"},
    "run": {*BASE, "equations", "networks", "replay", "agent", "paper", "envs", "report"},
    "sweep": {*BASE, "equations", "networks", "replay", "agent", "paper", "envs", "report", "run"},
    "cli": {*BASE, "agent", "paper", "envs", "report", "run", "sweep"},
}
JAX = {"jax", "equinox", "optax"}
FORBIDDEN_LIBRARIES: dict[str, set[str]] = dict.fromkeys(("kit", "config", "spaces", "envs", "report"), JAX)


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Full names of the modules that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if part_of(path) not in ("__init__", "__main__")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    part = part_of(path)
    assert part in MAY_IMPORT, f"a new part of the house: say in this test what {part} may import"
    for name in imported(path):
        library, *rest = name.split(".")
        assert library not in FORBIDDEN_LIBRARIES.get(part, set()), f"{part} must not import {library}"
        if library == "dr_q" and rest and rest[0] != part:
            assert rest[0] in MAY_IMPORT[part] or rest[0] == "__version__", f"{part} imports {name}"


@pytest.mark.parametrize(
    "code", ["dr_q.Config(), dr_q.preset, dr_q.DrQError", "import dr_q.cli", "dr_q.training.settings"]
)
def test_settings_errors_and_help_are_read_without_jax(code):
    code = f"import sys, dr_q, dr_q.training.settings\n{code}\nassert not {{'jax', 'mujoco'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
