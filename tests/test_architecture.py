"""Imports point one way: equations <- {networks, replay} <- agent <- run <- {sweep, cli}.

`envs` and `report` import nothing of ours but `paper`, the paper's tables.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "dr_q"

MAY_IMPORT = {
    "equations": set(),
    "networks": {"equations"},
    "replay": {"equations"},
    "agent": {"equations", "networks", "replay"},
    "paper": set(),
    "envs": {"paper"},
    "report": {"paper"},
    "run": {"equations", "networks", "replay", "agent", "paper", "envs", "report"},
    "sweep": {"equations", "networks", "replay", "agent", "paper", "envs", "report", "run"},
    "cli": {"agent", "paper", "envs", "report", "run", "sweep"},
}
FORBIDDEN_LIBRARIES = {"envs": {"jax", "equinox", "optax"}, "report": {"jax", "equinox", "optax"}}


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


def test_importing_the_package_does_not_import_jax():
    code = "import sys, dr_q; assert 'jax' not in sys.modules; dr_q.Config; assert 'jax' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
