"""The recorded inputs and outputs of the authors' agents, from the folder `DRQ_GOLDEN` (default `tests/golden`)."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dr_q.learner.programs import compiler_options

FOLDER = Path(os.environ.get("DRQ_GOLDEN", Path(__file__).parent / "golden"))

_IN_FULL = {"xla_backend_optimization_level": 3, "xla_cpu_use_fusion_emitters": True}
"""XLA's defaults, which `make test` lowers."""


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """jax.jit, optimised as a user's programs are."""
    lowered = "--xla_cpu_use_fusion_emitters" in os.environ.get("XLA_FLAGS", "")
    of_training = compiler_options(jax.default_backend())
    return jax.jit(function, compiler_options={**(_IN_FULL if lowered else {}), **of_training}, **options)


def files(*patterns: str) -> list[Path]:
    """Every recorded file that matches one of the patterns: at least one each of ours; others' may be of one kind."""
    found = []
    for pattern in patterns:
        matches = sorted(FOLDER.glob(f"{pattern}.npz"))
        others = "DRQ_GOLDEN" in os.environ and any(FOLDER.glob("*.npz"))
        assert matches or others, f"no {pattern}.npz in {FOLDER}; set DRQ_GOLDEN to the folder of recorded data"
        found += matches
    return found


class DamagedRecordError(ValueError):
    """A recorded file that is not whole: a difference that it shows is none between agents."""


def load(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:  # numpy leaves a damaged one open
            return dict(arrays)
    except Exception as error:  # a damaged archive fails in many ways
        what = " ".join(str(error).split())
        raise DamagedRecordError(f"{path} is damaged ({type(error).__name__}: {what}); record it anew") from None


def under(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names start with prefix/, without it."""
    return {name.removeprefix(f"{prefix}/"): x for name, x in arrays.items() if name.startswith(f"{prefix}/")}
