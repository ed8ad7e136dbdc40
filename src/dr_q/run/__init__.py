"""Runs: the loop, the seeds axis, evaluation, checkpoints, logs, policies.

Names are loaded when first used, so that settings can be read without jax.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dr_q.run.api import train
    from dr_q.run.evaluate import Evaluation
    from dr_q.run.loop import Options, Outcome
    from dr_q.run.policy import Policy, load
    from dr_q.run.settings import Settings, make_settings

_HOME = {
    "Evaluation": "dr_q.run.evaluate",
    "Options": "dr_q.run.loop",
    "Outcome": "dr_q.run.loop",
    "Policy": "dr_q.run.policy",
    "Settings": "dr_q.run.settings",
    "load": "dr_q.run.policy",
    "make_settings": "dr_q.run.settings",
    "train": "dr_q.run.api",
}

__all__ = [
    "Evaluation",
    "Options",
    "Outcome",
    "Policy",
    "Settings",
    "load",
    "make_settings",
    "train",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'dr_q.run' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)
