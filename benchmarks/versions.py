"""What several scripts need: another version's checkout, Python with either package, and the times that a run logs."""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
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


def milliseconds_per_step(rows: Sequence[Mapping[str, str]]) -> float:
    """Of an agent step, from rows of metrics.csv: everything but evaluations and checkpoints."""
    columns = [name for name in rows[0] if name.startswith("ms_") and name not in ("ms_evaluation", "ms_checkpoint")]
    if not columns or "ms_evaluation" not in rows[0]:
        raise ValueError(f"metrics.csv has other columns of times than this version writes: {', '.join(rows[0])}")
    return statistics.fmean(sum(float(row[name] or 0) for name in columns) for row in rows)
