"""DR.Q: debiased model-based representations for continuous control.

Names are loaded when first used, so that `import dr_q` does not import jax.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dr_q import agent, envs, networks, replay, report
    from dr_q.agent import Agent
    from dr_q.config import PRESETS, Config, load_presets, preset
    from dr_q.diagnostics.check import check_env
    from dr_q.diagnostics.opened_run import Latents, OpenedRun, open_run
    from dr_q.envs.probe import Finding
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
    from dr_q.policies import FrameStackPolicy, Policy, load
    from dr_q.policies.authors import Imported, import_authors
    from dr_q.policies.export import Exported, export_policy
    from dr_q.policies.watch import PlayedEpisodes, evaluate
    from dr_q.replay import Replay
    from dr_q.run_folder import Evaluation
    from dr_q.settings import Settings
    from dr_q.spaces import ContinuousActions, DiscreteActions, Image, ObsSpec, Spaces, Vector
    from dr_q.training.api import train
    from dr_q.training.best import BestPolicy
    from dr_q.training.callbacks import (
        Callback,
        CheckpointEvent,
        EndEvent,
        EpisodeEvent,
        EvaluationEvent,
        Event,
        RunView,
        StartEvent,
        StepEvent,
        Stop,
    )
    from dr_q.training.loop import TrainResult

__version__ = "0.1.0"

_HOME = {
    "PRESETS": "dr_q.config",
    "Agent": "dr_q.agent",
    "BestPolicy": "dr_q.training.best",
    "Callback": "dr_q.training.callbacks",
    "CheckpointEvent": "dr_q.training.callbacks",
    "Config": "dr_q.config",
    "ConfigError": "dr_q.kit",
    "ContinuousActions": "dr_q.spaces",
    "DamagedFileError": "dr_q.kit",
    "DiscreteActions": "dr_q.spaces",
    "DrQError": "dr_q.kit",
    "Encoder": "dr_q.networks",
    "EndEvent": "dr_q.training.callbacks",
    "EnvError": "dr_q.kit",
    "EpisodeEvent": "dr_q.training.callbacks",
    "Evaluation": "dr_q.run_folder",
    "EvaluationEvent": "dr_q.training.callbacks",
    "Event": "dr_q.training.callbacks",
    "Exported": "dr_q.policies.export",
    "Finding": "dr_q.envs.probe",
    "FrameStackPolicy": "dr_q.policies",
    "Image": "dr_q.spaces",
    "Imported": "dr_q.policies.authors",
    "Latents": "dr_q.diagnostics.opened_run",
    "MissingPackageError": "dr_q.kit",
    "ObsSpec": "dr_q.spaces",
    "OpenedRun": "dr_q.diagnostics.opened_run",
    "Policy": "dr_q.policies",
    "Replay": "dr_q.replay",
    "RunFolderError": "dr_q.kit",
    "RunView": "dr_q.training.callbacks",
    "Settings": "dr_q.settings",
    "Spaces": "dr_q.spaces",
    "StartEvent": "dr_q.training.callbacks",
    "StepEvent": "dr_q.training.callbacks",
    "Stop": "dr_q.training.callbacks",
    "TaskError": "dr_q.kit",
    "ToolError": "dr_q.kit",
    "PlayedEpisodes": "dr_q.policies.watch",
    "TrainResult": "dr_q.training.loop",
    "TrainingError": "dr_q.kit",
    "Vector": "dr_q.spaces",
    "WorkerError": "dr_q.kit",
    "actor_from_torch": "dr_q.networks",
    "check_env": "dr_q.diagnostics.check",
    "critic_from_torch": "dr_q.networks",
    "discrete_actor_from_torch": "dr_q.networks",
    "encoder_from_torch": "dr_q.networks",
    "evaluate": "dr_q.policies.watch",
    "export_policy": "dr_q.policies.export",
    "import_authors": "dr_q.policies.authors",
    "load": "dr_q.policies",
    "load_presets": "dr_q.config",
    "open_run": "dr_q.diagnostics.opened_run",
    "preset": "dr_q.config",
    "train": "dr_q.training.api",
}
_MODULES = ("agent", "envs", "networks", "replay", "report")

__all__ = [
    "PRESETS",
    "Agent",
    "BestPolicy",
    "Callback",
    "CheckpointEvent",
    "Config",
    "ConfigError",
    "ContinuousActions",
    "DamagedFileError",
    "DiscreteActions",
    "DrQError",
    "Encoder",
    "EndEvent",
    "EnvError",
    "EpisodeEvent",
    "Evaluation",
    "EvaluationEvent",
    "Event",
    "Exported",
    "Finding",
    "FrameStackPolicy",
    "Image",
    "Imported",
    "Latents",
    "MissingPackageError",
    "ObsSpec",
    "OpenedRun",
    "PlayedEpisodes",
    "Policy",
    "Replay",
    "RunFolderError",
    "RunView",
    "Settings",
    "Spaces",
    "StartEvent",
    "StepEvent",
    "Stop",
    "TaskError",
    "ToolError",
    "TrainResult",
    "TrainingError",
    "Vector",
    "WorkerError",
    "__version__",
    "actor_from_torch",
    "agent",
    "check_env",
    "critic_from_torch",
    "discrete_actor_from_torch",
    "encoder_from_torch",
    "envs",
    "evaluate",
    "export_policy",
    "import_authors",
    "load",
    "load_presets",
    "networks",
    "open_run",
    "preset",
    "replay",
    "report",
    "train",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"dr_q.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'dr_q' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
