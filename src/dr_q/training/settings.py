"""What a run is: everything that decides its results, and how it is kept."""

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any

import gymnasium

from dr_q.config import Config, config_from_json, preset
from dr_q.envs import canonical, default_steps
from dr_q.kit import ConfigError

EVAL_EPISODES = 10
EVAL_EVERY = 5_000
CHECKPOINT_EVERY = 25_000
KEEP = 2


@dataclasses.dataclass(frozen=True)
class Settings:
    """A run's settings. `run.json` holds them all."""

    task: str | Callable[[], gymnasium.Env]
    preset: str
    config: Config
    first_seed: int
    seeds: int
    """How many seeds, from `first_seed` on."""
    steps: int
    """Agent steps of each seed."""
    eval_every: int = EVAL_EVERY
    eval_episodes: int = EVAL_EPISODES
    checkpoint_every: int = CHECKPOINT_EVERY
    keep: int = KEEP
    """Checkpoints kept."""
    noise_dims: int = 0
    """Dimensions of Gaussian noise appended to each observation (the noisy-state study: 50)."""

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        counts = ("seeds", "steps", "eval_every", "eval_episodes", "checkpoint_every", "keep")
        for name in (*counts, "first_seed", "noise_dims"):
            value, called = getattr(self, name), "seed" if name == "first_seed" else name.replace("_", "-")
            if isinstance(value, bool) or not isinstance(value, numbers.Integral):
                raise ConfigError(f"{called} must be a whole number, got {value!r}")
            object.__setattr__(self, name, int(value))  # numpy's cannot be written as JSON
            if name in counts and value < 1:
                raise ConfigError(f"{called} must be at least 1, got {value}")
        if not 0 <= self.first_seed < 2**32 - self.seeds:
            raise ConfigError(f"seed must be between 0 and {2**32 - self.seeds - 1}, got {self.first_seed}")
        if self.noise_dims < 0:
            raise ConfigError(f"noise-dims must be 0 or more, got {self.noise_dims}")

    @property
    def task_name(self) -> str:
        """The task's name; a callable's own where the run was started from one."""
        if isinstance(self.task, str):
            return self.task
        return f"callable:{getattr(self.task, '__module__', '')}.{getattr(self.task, '__qualname__', repr(self.task))}"

    @property
    def seed_list(self) -> list[int]:
        """Every seed."""
        return list(range(self.first_seed, self.first_seed + self.seeds))

    def to_json(self) -> dict[str, Any]:
        """For run.json."""
        record = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        record["task"] = self.task_name
        record["config"] = dataclasses.asdict(self.config)
        return record

    @staticmethod
    def from_json(record: dict[str, Any], task: str | Callable[[], gymnasium.Env] | None = None) -> "Settings":
        """From run.json; a run from a callable needs it again."""
        if record["task"].startswith("callable:") and task is None:
            raise ConfigError(
                f"this run was started from a callable ({record['task'].removeprefix('callable:')}); "
                "resume it from Python: dr_q.train(that_callable, resume=DIR)"
            )
        return Settings(**{**record, "config": config_from_json(record["config"]), "task": task or record["task"]})


def make_settings(
    task: str | Callable[[], gymnasium.Env],
    *,
    preset_name: str = "dr.q",
    changes: dict[str, Any] | None = None,
    seeds: int = 1,
    first_seed: int = 0,
    steps: int | None = None,
    **rest: Any,
) -> Settings:
    """Settings with the paper's budget for the paper's tasks."""
    if isinstance(task, str):
        task = canonical(task)
    if steps is None:
        steps = default_steps(task)
    config = preset(preset_name, **(changes or {}))
    return Settings(task, preset_name, config, first_seed, seeds, steps, **rest)
