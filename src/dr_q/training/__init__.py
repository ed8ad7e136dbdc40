"""Training: settings, memory plan, loop, evaluation, signals, and the Python API.

Names are loaded when first used, so that settings can be read without jax.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dr_q.settings import Settings, make_settings
    from dr_q.training.api import train
    from dr_q.training.loop import Options, TrainResult

_HOME = {
    "Options": "dr_q.training.loop",
    "Settings": "dr_q.settings",
    "TrainResult": "dr_q.training.loop",
    "make_settings": "dr_q.settings",
    "train": "dr_q.training.api",
}

__all__ = ["Options", "Settings", "TrainResult", "make_settings", "train"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'dr_q.training' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)
