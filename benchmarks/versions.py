"""What scripts need that compare two versions of dr_q: another version's checkout, and Python with either package."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


@contextlib.contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A worktree of a commit, removed at the end."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "base"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), commit], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def run_python(source: Path, *arguments: str, **variables: str) -> str:
    """What Python prints with the package in the folder `source`, in a process of its own."""
    rest = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), *rest]), **variables}
    # Not where another version's package is: with -m, Python puts the current folder first.
    with tempfile.TemporaryDirectory() as elsewhere:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, env=environment, cwd=elsewhere, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout
