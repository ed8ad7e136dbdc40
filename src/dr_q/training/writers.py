"""Metrics for TensorBoard and Weights & Biases."""

from pathlib import Path
from typing import Any

from dr_q.kit import MissingPackageError, spelled
from dr_q.run_folder import tensorboard_folder, wandb_id
from dr_q.settings import Settings


class MetricWriters:
    """TensorBoard always, W&B where asked for."""

    def __init__(self, folder: Path, settings: Settings, wandb: bool, purge_from: int | None = None, **belongs: Any):
        """What a run that is resumed logged from step `purge_from` on, before, is not shown any more.

        `belongs`: project, entity, group and tags at Weights & Biases (`Execution.wandb_arguments`).
        """
        from tensorboardX import SummaryWriter

        self._wandb: Any = None
        if wandb:
            try:
                import wandb as library  # pyright: ignore[reportMissingImports]
            except ImportError as error:
                raise MissingPackageError(
                    f"{spelled('wandb')} needs wandb, which is not installed: pip install 'dr-q[wandb]'"
                ) from error
            named = {"project": "dr-q", **belongs, "name": folder.name, "id": wandb_id(folder), "resume": "allow"}
            self._wandb = library.init(**named, dir=str(folder), config=settings.to_json())
        self._writer = SummaryWriter(str(tensorboard_folder(folder)), purge_step=purge_from)

    def scalars(self, values: dict[str, float], agent_steps: int) -> None:
        """Values at a step."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, agent_steps)
        if self._wandb is not None:
            self._wandb.log({**values, "agent_steps": agent_steps})

    def close(self) -> None:
        """Flush everything."""
        self._writer.close()
        if self._wandb is not None:
            self._wandb.finish()
