"""What we depend on: locked with hashes, licences listed; and no network at run time."""

import ast
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.training import tiny

HERE = Path(__file__).parents[1]
LOCK, CONSTRAINTS, LICENCES = HERE / "requirements-dev.txt", HERE / "constraints.txt", HERE / "docs" / "licences.md"
NETWORK = {"http", "urllib.request", "requests", "aiohttp", "ftplib", "smtplib", "socketserver", "xmlrpc", "asyncio"}


def name_of(written: str) -> str:
    """A package's name as indices compare it."""
    return re.sub(r"[-_.]+", "-", written).lower()


def pins(text: str) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, flags=re.MULTILINE)
    return {name_of(name): version for name, version in found}


def test_everything_that_is_pinned_is_locked_with_hashes():
    text = LOCK.read_text()
    locked = pins(text)
    assert len(locked) > 50
    for name, version in pins(CONSTRAINTS.read_text()).items():
        assert locked.get(name) == version, f"{name}: run make lock"
    entries = re.split(r"\n(?=[A-Za-z0-9])", text.strip())[1:]  # after the line that says where it is from
    for entry in entries:
        assert "--hash=sha256:" in entry, entry[:80]


def test_the_lock_is_complete():
    """`make setup` installs it without looking for what its packages need in turn."""
    locked, missing = pins(LOCK.read_text()), []
    for name in locked:
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # what builds the package is not everywhere installed
            continue
        for need in map(Requirement, needs):
            if name_of(need.name) not in locked and (need.marker is None or need.marker.evaluate({"extra": ""})):
                missing.append(f"{name} needs {need.name}")
    assert missing == [], "add them to constraints.txt and run make lock"


@pytest.mark.parametrize("file", [LOCK, CONSTRAINTS], ids=["lock", "constraints"])
def test_no_place_is_written_into_the_lock(file):
    """Which index or mirror packages came from is each machine's own business."""
    for word in ("://", "--index", "--extra-index", "--find-links", "--trusted-host", " @ "):
        assert word not in file.read_text()


def licences() -> dict[str, str]:
    rows = re.findall(r"^\|`([^`]+)`\|([^|]+)\|", LICENCES.read_text(), flags=re.MULTILINE)
    return {name_of(name): licence.strip() for name, licence in rows}


def test_every_dependency_has_a_listed_licence():
    listed = licences()
    missing = sorted(name for name in pins(LOCK.read_text()) if not listed.get(name))
    assert missing == [], "list them in docs/licences.md"
    extra = sorted(name for name in listed if name not in pins(LOCK.read_text()))
    assert extra == [], "they are no dependencies any more: remove them from docs/licences.md"


def test_licences_that_bind_those_who_use_us_are_of_no_required_package():
    """Of what `pip install dr-q` names itself."""
    text = (HERE / "pyproject.toml").read_text()
    required = text.partition("dependencies = [")[2].partition("]\n")[0]
    needed = [name_of(name) for name in re.findall(r'"([A-Za-z0-9_-]+)', required)]
    assert "jax" in needed
    for name in needed:
        assert "GPL" not in licences()[name]


def test_nothing_in_the_package_speaks_to_the_network_itself():
    """No client and no server of our own. Ray and Weights & Biases, where they are asked for, do that themselves."""
    found = []
    for file in (HERE / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [f"{file.name}: {name}" for name in names for bad in NETWORK if f"{name}.".startswith(f"{bad}.")]
        assert "0.0.0.0" not in file.read_text(), file
    assert found == []


GUARD = """
import socket
def refuse(self, address, *rest):
    if self.family in (socket.AF_INET, socket.AF_INET6):
        raise RuntimeError(f"the network was used: {address}")
    return real(self, address, *rest)
real = socket.socket.connect
socket.socket.connect = socket.socket.connect_ex = refuse
"""


@pytest.mark.slow
def test_training_needs_no_network(tmp_path):
    """In a namespace without any network, where the system allows it; else no connection is let out of Python."""
    allowed = subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode == 0
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{HERE / 'src'}"}
    if not allowed:
        (tmp_path / "sitecustomize.py").write_text(GUARD)
    words = ["train", "gym/Hopper-v4", "--seeds", "2", "--out", str(tmp_path / "run"), *tiny.flags(steps=60)]
    command = [sys.executable, "-m", "dr_q", *words]
    done = subprocess.run(
        ["unshare", "-rn", *command] if allowed else command,
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"
