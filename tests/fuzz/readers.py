"""What every reader of a damaged file must do."""

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings

from dr_q.kit import DrQError

AT_MOST = 5.0
"""Seconds."""
bounded = functools.partial(
    settings, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def files_of(folder: Path) -> dict[str, int]:
    """Everything in a folder, with the sizes of files."""
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def check_reader(read: Callable[[Path], Any], path: Path) -> None:
    """It gives something, or says what is wrong in one line, soon."""
    start, said = time.monotonic(), "."
    try:
        read(path)
    except DrQError as error:
        said = str(error)
    except OSError as error:  # a path in the file leads nowhere
        said = str(error.filename or "")
    assert said
    assert "\n" not in said
    assert len(said) < 3_000
    assert time.monotonic() - start < AT_MOST
