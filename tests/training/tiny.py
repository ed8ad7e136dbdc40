"""Settings of runs that take seconds; the same everywhere, so that compiled functions are shared."""

from typing import Any

SIZES: dict[str, Any] = {
    "batch_size": 16,
    "zs_dim": 16,
    "zsa_dim": 16,
    "za_dim": 8,
    "encoder_hidden": 16,
    "actor_hidden": 16,
    "critic_hidden": 16,
    "target_period": 10,
    "exploration_steps": 40,
}
RUN: dict[str, Any] = {
    "eval_every": 40,
    "eval_episodes": 2,
    "checkpoint_every": 40,
    "keep_checkpoints": 3,
    "quiet": True,
}
STEPS = 120


def flags(**more) -> list[str]:
    """The same as options of the command."""
    settings = {**SIZES, **{k: v for k, v in RUN.items() if k != "quiet"}, "steps": STEPS, **more}
    return [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]
