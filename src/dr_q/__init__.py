"""DR.Q: debiased model-based representations for continuous control.

Names are loaded when first used, so that `import dr_q` does not import jax.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dr_q.agent import PRESETS, Config, ConfigError, preset
    from dr_q.envs import EnvError, TaskError
    from dr_q.networks import actor_from_torch, critic_from_torch, encoder_from_torch
    from dr_q.run import Evaluation, Policy, load, train

__version__ = "0.1.0"

_HOME = {
    "PRESETS": "dr_q.agent",
    "Config": "dr_q.agent",
    "ConfigError": "dr_q.agent",
    "EnvError": "dr_q.envs",
    "Evaluation": "dr_q.run",
    "Policy": "dr_q.run",
    "TaskError": "dr_q.envs",
    "actor_from_torch": "dr_q.networks",
    "critic_from_torch": "dr_q.networks",
    "encoder_from_torch": "dr_q.networks",
    "load": "dr_q.run",
    "preset": "dr_q.agent",
    "train": "dr_q.run",
}

__all__ = [
    "PRESETS",
    "Config",
    "ConfigError",
    "EnvError",
    "Evaluation",
    "Policy",
    "TaskError",
    "__version__",
    "actor_from_torch",
    "critic_from_torch",
    "encoder_from_torch",
    "load",
    "preset",
    "train",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'dr_q' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
