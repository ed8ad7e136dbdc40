"""A disk that fails: `shim.c`, compiled where there is a compiler. It needs no privileges."""

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")


@functools.cache
def shim() -> Path | None:
    """The compiled library; None where it cannot be compiled (no `cc`, or not Linux)."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not Path("/proc/self/fd").exists():
        return None
    folder = tempfile.mkdtemp(prefix="drq-faults-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = Path(folder) / "shim.so"
    done = subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"], check=False)
    return library if done.returncode == 0 else None


def with_faults(root: Path, **faults: object) -> dict[str, str]:
    """The environment of a process whose changes under `root` fail: `kill_at=3`, `fail_at=5`, `full=FILE`, `torn=1`."""
    library = shim()
    assert library is not None
    named = {f"DRQ_FAULT_{name.upper()}": str(value) for name, value in faults.items()}
    return {**os.environ, "LD_PRELOAD": str(library), "DRQ_FAULT_ROOT": str(root), **named}
