"""What a run is: everything that decides its results, and how it is kept."""

import dataclasses
import numbers
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium

from dr_q.agent import PRESETS, Config, ConfigError, check_names, preset
from dr_q.envs import DEFAULT_AGENT_STEPS, canonical
from dr_q.paper import paper_tasks

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
        return Settings(**{**record, "config": config_from_json(record), "task": task or record["task"]})


def changed_settings(preset_name: str, config: dict[str, Any]) -> dict[str, Any]:
    """What of a config, also one from JSON, is not as this version's preset has it; nothing for unknown presets."""
    if preset_name not in PRESETS:
        return {}
    usual = dataclasses.asdict(preset(preset_name))

    def plain(value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    return {name: value for name, value in config.items() if plain(value) != plain(usual.get(name))}


def changes_of(info: dict[str, Any]) -> dict[str, Any]:
    """What a run changed from its preset, as its run.json says or as this version's presets do."""
    settings = info["settings"]
    return info.get("changed", changed_settings(settings["preset"], settings.get("config", {})))


def config_from_json(record: dict[str, Any]) -> Config:
    """The config in a run's settings, or in what stands beside a policy."""
    config = record["config"]
    try:
        check_names(config)
    except ConfigError as error:
        raise ConfigError(f"made by another version of dr-q ({error}): use that one") from None
    return Config(**{**config, "reward_range": tuple(config["reward_range"])})


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
        known = paper_tasks().get(task) if isinstance(task, str) else None
        steps = known.agent_steps if known else DEFAULT_AGENT_STEPS
    config = preset(preset_name, **(changes or {}))
    return Settings(task, preset_name, config, first_seed, seeds, steps, **rest)


def check_new_folder(out: Path) -> None:
    """Refuse a folder that holds anything."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; choose another --out, a new or empty folder")
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty; choose another --out, or go on with it: dr-q train --resume {out}")
