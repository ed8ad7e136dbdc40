"""DR.Q: debiased model-based representations for continuous control.

Names are loaded when first used, so that `import dr_q` does not import jax.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dr_q.agent import Agent
    from dr_q.config import PRESETS, Config, load_presets, preset
    from dr_q.diagnostics.check import check_env
    from dr_q.diagnostics.opened_run import OpenedRun, open_run
    from dr_q.kit import (
        ConfigError,
        DamagedFileError,
        DrQError,
        EnvError,
        MissingPackageError,
        RunFolderError,
        TaskError,
        ToolError,
        TrainingError,
        WorkerError,
    )
    from dr_q.networks import (
        Encoder,
        actor_from_torch,
        critic_from_torch,
        discrete_actor_from_torch,
        encoder_from_torch,
    )
    from dr_q.policies import Policy, load
    from dr_q.policies.authors import import_authors
    from dr_q.policies.export import export_policy
    from dr_q.replay import Replay
    from dr_q.run_folder import Evaluation
    from dr_q.training.api import train
    from dr_q.training.callbacks import Callback, Stop
    from dr_q.training.loop import TrainResult

__version__ = "0.1.0"

_HOME = {
    "Agent": "dr_q.agent",
    "PRESETS": "dr_q.config",
    "Callback": "dr_q.training.callbacks",
    "Config": "dr_q.config",
    "ConfigError": "dr_q.kit",
    "DamagedFileError": "dr_q.kit",
    "DrQError": "dr_q.kit",
    "Encoder": "dr_q.networks",
    "EnvError": "dr_q.kit",
    "Evaluation": "dr_q.run_folder",
    "MissingPackageError": "dr_q.kit",
    "OpenedRun": "dr_q.diagnostics.opened_run",
    "Policy": "dr_q.policies",
    "Replay": "dr_q.replay",
    "RunFolderError": "dr_q.kit",
    "Stop": "dr_q.training.callbacks",
    "TaskError": "dr_q.kit",
    "ToolError": "dr_q.kit",
    "TrainResult": "dr_q.training.loop",
    "TrainingError": "dr_q.kit",
    "WorkerError": "dr_q.kit",
    "actor_from_torch": "dr_q.networks",
    "check_env": "dr_q.diagnostics.check",
    "critic_from_torch": "dr_q.networks",
    "discrete_actor_from_torch": "dr_q.networks",
    "encoder_from_torch": "dr_q.networks",
    "export_policy": "dr_q.policies.export",
    "import_authors": "dr_q.policies.authors",
    "load": "dr_q.policies",
    "load_presets": "dr_q.config",
    "open_run": "dr_q.diagnostics.opened_run",
    "preset": "dr_q.config",
    "train": "dr_q.training.api",
}

__all__ = [
    "PRESETS",
    "Agent",
    "Callback",
    "Config",
    "ConfigError",
    "DamagedFileError",
    "DrQError",
    "Encoder",
    "EnvError",
    "Evaluation",
    "MissingPackageError",
    "OpenedRun",
    "Policy",
    "Replay",
    "RunFolderError",
    "Stop",
    "TaskError",
    "ToolError",
    "TrainResult",
    "TrainingError",
    "WorkerError",
    "__version__",
    "actor_from_torch",
    "check_env",
    "critic_from_torch",
    "discrete_actor_from_torch",
    "encoder_from_torch",
    "export_policy",
    "import_authors",
    "load",
    "load_presets",
    "open_run",
    "preset",
    "train",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'dr_q' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
