"""Which source code a run was made with."""

import functools
import hashlib
from pathlib import Path

import dr_q


@functools.cache
def source_digest(home: Path = Path(dr_q.__file__).parent) -> str:
    """Identifies the code between versions too: the first digits of SHA-256 over a package's Python files."""
    digest = hashlib.sha256()
    for file in sorted(home.rglob("*.py")):
        digest.update(f"{file.relative_to(home).as_posix()}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
