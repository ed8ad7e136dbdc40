"""What a run starts from besides its settings (`init`, `prefill`), read before anything compiles."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from dr_q.kit import ConfigError, MissingPackageError, is_installed, spelled
from dr_q.run_folder import checkpoint_steps, is_run, read_run_json
from dr_q.settings import Execution, Settings
from dr_q.spaces import Spaces
from dr_q.training.initial_weights import InitialWeights, read_initial_weights
from dr_q.training.prior_data import PriorData, check_prior_data, read_prior_data


class Start(NamedTuple):
    """What a run starts from."""

    weights: InitialWeights | None = None
    data: PriorData | None = None
    record: Mapping[str, Any] = MappingProxyType({})
    """For run.json: `init` and `prefill`, as far as they are given."""

    @property
    def transitions(self) -> int:
        """Transitions in each replay before the run."""
        return int(self.record.get("prefill", {}).get("transitions", 0))

    @property
    def slots(self) -> int:
        """Slots of each replay that are filled before the run."""
        return int(self.record.get("prefill", {}).get("slots", 0))


def check_packages(execution: Execution) -> None:
    """Refuse what needs a package that is not installed."""
    if execution.wandb and not is_installed("wandb"):
        raise MissingPackageError(f"{spelled('wandb')} needs wandb, which is not installed: pip install 'dr-q[wandb]'")


def check_start(settings: Settings) -> None:
    """Refuse sources that are not there, and packages that are missing, before a simulator is started."""
    if settings.prefill is not None:
        check_prior_data(settings.prefill)
    if settings.init is not None and not os.path.isdir(settings.init):  # noqa: PTH112 - for any text
        raise ConfigError(f"{spelled('init')} {settings.init} is not a folder; give a run's folder or a policy's")


def read_start(settings: Settings, spaces: Spaces, folder: Path, *, resume: bool) -> Start:
    """What a run starts from. A run that has a checkpoint needs none of it again: the checkpoint holds it.

    Raises:
        ConfigError: A run that must begin again would begin from something else than it did.
    """
    before = read_run_json(folder).get("started_from", {}) if resume and is_run(folder) else {}
    if resume and checkpoint_steps(folder):
        return Start(record=before)
    check_start(settings)
    weights, data, record = None, None, {}
    if settings.init is not None:
        weights = read_initial_weights(settings.init, settings.config, spaces, settings.seed_list)
        record["init"] = weights.record
    if settings.prefill is not None:
        capacity, horizon = settings.config.replay_capacity, settings.config.horizon
        seeds, lanes = settings.seed_list, settings.num_envs
        data = read_prior_data(settings.prefill, spaces, seeds, capacity, horizon=horizon, lanes=lanes)
        updates = {"pretrain": settings.pretrain, "pretrain_policy": settings.pretrain_policy}
        record["prefill"] = {**data.record, **updates}
    for name, was in before.items():
        if name in record and was.get("sha256") != record[name]["sha256"]:
            raise ConfigError(
                f"the run in {folder} has no checkpoint and must begin again, but {spelled(name)} "
                f"{record[name]['source']} has changed since it began; start a new run"
            )
    return Start(weights, data, record)
