"""A run's settings: everything that decides its results, and how it is executed. No jax: reports read them too."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dr_q.config import (
    MOST_STEPS,
    Config,
    check_settings,
    config_from_json,
    current_names,
    is_known_preset,
    preset,
    setting,
    settings_of,
)
from dr_q.envs import (
    DEFAULT_AGENT_STEPS,
    DEFAULT_EVAL_EVERY,
    DEFAULT_TIMEOUT,
    canonical,
    default_eval_every,
    default_steps,
)
from dr_q.kit import ConfigError, DamagedFileError, spelled

if TYPE_CHECKING:  # which takes a while; `--help` reads settings without it
    import gymnasium

EVAL_EPISODES = 10
EVAL_EVERY = DEFAULT_EVAL_EVERY
CHECKPOINT_EVERY = 25_000
"""Of a run of 125,000 steps or more."""
SCHEDULE = ("steps", "eval_every", "eval_episodes")
"""Settings that decide how long a run is and how it is evaluated, and not what it learns."""
STOP_RULES = ("stop_at_return", "patience")
"""Settings that may end a run before its steps are done; a resumed run may have others."""
STARTING = ("init", "warmup_steps", "prefill", "pretrain", "pretrain_policy")
"""Settings that say what a run starts from."""
LARGEST_SEED = 2**32 - 1
_CALLABLE = "callable:"
"""What the recorded name of a task begins with where an environment came from a callable."""
_RUN, _EXECUTION = "Run", "Execution"
_SOURCE = ("a path or a name", lambda x: isinstance(x, str) and bool(x.strip()))


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything that decides a run's results: `event.run.settings` in callbacks, and `settings` in `run.json`.

    `dr_q.train` makes it from its arguments. It is immutable.
    """

    task: "str | Callable[[], gymnasium.Env]"
    """The task's name, or the callable that makes its environments."""
    preset: str
    """The preset's name; several joined by +."""
    config: Config
    """The settings of the algorithm: those of the preset, with changes."""
    first_seed: int = setting(
        0,
        "the first seed",
        group=_RUN,
        least=0,
        most=LARGEST_SEED,
        called="seed",
        change="to add fresh seeds to those of another run",
    )
    seeds: int = setting(
        1,
        "number of seeds, trained together in one process",
        group=_RUN,
        least=1,
        most=1_000,
        change="several for any statement about a method; a GPU trains ten in about twice the time of one",
    )
    num_envs: int = setting(
        1,
        "environments of each seed, stepped in parallel; agent steps are those of all of them (Python: num_envs)",
        group=_RUN, least=1, most=1_000, called="envs", in_python="num_envs",
        change="raise it if the simulator is slower than the updates and CPU cores are free",
    )  # fmt: skip
    steps: int = setting(
        DEFAULT_AGENT_STEPS,
        "agent steps of each seed: decisions, not simulator frames",
        group=_RUN, unit="agent steps", least=1, most=MOST_STEPS,
        otherwise=f"the task's budget (the paper's, or its family's); {DEFAULT_AGENT_STEPS} for other tasks",
        change="lower it for a first look",
    )  # fmt: skip
    eval_every: int = setting(
        DEFAULT_EVAL_EVERY,
        "agent steps between evaluations",
        group=_RUN, unit="agent steps", least=1, most=MOST_STEPS, otherwise=f"{DEFAULT_EVAL_EVERY}; 100000 for Atari",
        change="raise it if evaluations take a large part of the time",
    )  # fmt: skip
    eval_episodes: int = setting(
        EVAL_EPISODES,
        "episodes of each evaluation",
        group=_RUN,
        unit="episodes",
        least=1,
        most=1_000,
        change="raise it if returns vary much between episodes",
    )
    checkpoint_every: int = setting(
        CHECKPOINT_EVERY,
        "agent steps between checkpoints",
        group=_RUN,
        unit="agent steps",
        least=1,
        most=MOST_STEPS,
        otherwise="25000; a fifth of the steps of runs below 125000, at least 1000",
        change="lower it on machines that may be preempted",
    )
    keep_checkpoints: int = setting(
        2,
        "number of checkpoints to keep, the newest ones; dr-q analyse information reads all of them",
        group=_RUN, least=1, most=MOST_STEPS, aliases=("keep",),
        change="raise it for analyses over time, and for more to fall back on",
    )  # fmt: skip
    noise_dims: int = setting(
        0,
        "dimensions of Gaussian noise appended to each observation; the paper's study: 50",
        group=_RUN,
        least=0,
        most=100_000,
        change="for the paper's study of noise",
    )
    stop_at_return: float | None = setting(
        None,
        "stop, with a checkpoint, once the mean return over seeds at an evaluation is at least this; may be changed on "
        "resume",
        group=_RUN, metavar="X", least=-MOST_STEPS, most=MOST_STEPS, otherwise="never",
        change="if a known return is good enough",
    )  # fmt: skip
    patience: int | None = setting(
        None,
        "stop, with a checkpoint, after this many evaluations in a row without a higher mean return over seeds than "
        "before; evaluations before the first update do not count; may be changed on resume",
        group=_RUN, unit="evaluations", least=1, most=MOST_STEPS, otherwise="never",
        change="to save time when a run has stopped improving",
    )  # fmt: skip
    init: str | None = setting(
        None,
        "start from the weights of an agent: a run's folder, or a policy; optimisers and replay are fresh, and without "
        "exploration_steps there is no random phase",
        group=_RUN, metavar="RUN|POLICY", check=_SOURCE, otherwise="fresh weights",
        change="to fine-tune an agent",
    )  # fmt: skip
    warmup_steps: int = setting(
        1_000,
        "with init: agent steps in which the policy acts, with noise, before the first update; with prefill it is 1",
        group=_RUN, unit="agent steps", least=1, most=MOST_STEPS,
        change="raise it if the first updates after init harm the policy",
    )  # fmt: skip
    prefill: str | None = setting(
        None,
        "transitions to put into the replay before step 0: a Minari dataset (minari:ID), an .npz file, or a run, whose "
        "replay is taken",
        group=_RUN, metavar="DATA", check=_SOURCE, otherwise="an empty replay",
        change="if there are recorded transitions of the task",
    )  # fmt: skip
    pretrain: int = setting(
        0,
        "encoder updates on the transitions of prefill before step 0; a multiple of target_period",
        group=_RUN, unit="updates", least=0, most=MOST_STEPS,
        change="with prefill, so that the encoder is trained before the first step",
    )  # fmt: skip
    pretrain_policy: int = setting(
        0,
        "updates of critics and actor on the transitions of prefill before step 0, after those of pretrain; with "
        "target copies and encoder updates every target_period, as in training",
        group=_RUN, unit="updates", least=0, most=MOST_STEPS,
        change="with prefill, so that the run starts with a policy that has learnt from the data",
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        check_settings(self)
        if self.config.exploration_steps == 0 and self.init is None and self.prefill is None:
            raise ConfigError(
                f"{spelled('exploration_steps')} 0 leaves nothing to learn from: give at least 1, or "
                f"{spelled('init')} or {spelled('prefill')}"
            )
        for name in ("pretrain", "pretrain_policy"):
            if getattr(self, name) and self.prefill is None:
                count = getattr(self, name)
                raise ConfigError(f"{spelled(name)} {count} needs transitions: give {spelled('prefill')}")
        if self.pretrain % self.config.target_period:
            raise ConfigError(
                f"{spelled('pretrain')} must be a multiple of {spelled('target_period')} "
                f"({self.config.target_period}), got {self.pretrain}"
            )
        if self.prefill is not None and self.noise_dims:
            raise ConfigError(
                f"{spelled('prefill')} has no noise of {spelled('noise_dims')} in its observations; leave one out"
            )
        if self.first_seed + self.seeds - 1 > LARGEST_SEED:
            count = f"{spelled('seed')} {self.first_seed} with {self.seeds} seeds"
            raise ConfigError(f"{count} ends above the largest seed, {LARGEST_SEED}")

    @property
    def task_name(self) -> str:
        """The task's name. For a callable it is `callable:module.name`."""
        if isinstance(self.task, str):
            return self.task
        made: Any = self.task
        while isinstance(made, functools.partial):
            made = made.func
        made = made if hasattr(made, "__qualname__") else type(made)
        return f"{_CALLABLE}{made.__module__}.{made.__qualname__}"

    @property
    def learning_starts(self) -> int:
        """Agent steps before the first update.

        These are `exploration_steps`. If they are 0, these are `warmup_steps`, or 1 with `prefill`.
        """
        if self.config.exploration_steps:
            return self.config.exploration_steps
        return 1 if self.prefill is not None else self.warmup_steps

    @property
    def last_step(self) -> int:
        """Agent steps at the end: `steps`, or the end of the round that reaches it."""
        return -(-self.steps // self.num_envs) * self.num_envs

    def is_due(self, every: int, agent_steps: int) -> bool:
        """Whether something that happens at regular intervals is due: in the first round that reaches a multiple.

        Args:
            every: The interval in agent steps.
            agent_steps: Agent steps of each seed so far.

        Returns:
            Whether it is due.
        """
        return agent_steps % every < self.num_envs

    @property
    def seed_list(self) -> list[int]:
        """All seeds of the run, from `first_seed` on."""
        return list(range(self.first_seed, self.first_seed + self.seeds))

    def to_json(self) -> dict[str, Any]:
        """The settings as JSON can hold them, for `run.json`.

        Returns:
            All settings by name; `config` is a dict, and a callable is replaced by its name.
        """
        record = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        record["task"] = self.task_name
        record["config"] = dataclasses.asdict(self.config)
        return record

    @staticmethod
    def from_json(record: dict[str, Any], task: "str | Callable[[], gymnasium.Env] | None" = None) -> "Settings":
        """Settings from the record in `run.json`. Settings that the record lacks have their defaults.

        Args:
            record: What `to_json` returned.
            task: The callable, for a run that was started from one; or another task.

        Returns:
            The settings.

        Raises:
            ConfigError: The run needs its callable, or another version of dr-q made it.
            DamagedFileError: A value is not allowed.
        """
        name = callable_name(record["task"])
        if name is not None and task is None:
            raise ConfigError(
                f"this run was started from a callable ({name}); "
                "resume it from Python: dr_q.train(that_callable, resume=DIR)"
            )
        known = current_names(record, Settings)
        unknown = [name for name in known if name not in {field.name for field in dataclasses.fields(Settings)}]
        if unknown:
            raise ConfigError(f"made by another version of dr-q (unknown setting '{unknown[0]}'): use that one")
        config = config_from_json(record.get("config"))
        try:
            return Settings(**{**known, "config": config, "task": task or record["task"]})
        except ConfigError as error:  # it was allowed once
            raise DamagedFileError(f"the settings in run.json are damaged: {error}") from None


@dataclasses.dataclass(frozen=True)
class Execution:
    """How a run is executed. None of it changes the results."""

    max_minutes: float | None = setting(
        None,
        "minutes from the start of the command, or call, after which the run writes a checkpoint and stops, with exit "
        "code 0",
        group=_EXECUTION, unit="minutes", above=0, most=MOST_STEPS, aliases=("stop_after",), otherwise="no limit",
        change="on machines with a time limit",
    )  # fmt: skip
    in_process: bool | None = setting(
        None,
        "whether environments are simulated in the training process",
        group=_EXECUTION, otherwise="yes for a single environment; otherwise no",
        change="to debug an environment",
    )  # fmt: skip
    envs_per_process: int | None = setting(
        None,
        "environments of a seed that share a process, one after the other",
        group=_EXECUTION, least=1, most=1_000, otherwise="1; more if the CPU has fewer cores than environments",
        change="if there are more environments than cores",
    )  # fmt: skip
    background_evaluation: bool | None = setting(
        None,
        "whether training continues during an evaluation",
        group=_EXECUTION, otherwise="yes on a GPU, if CPU cores are free",
        change="False if evaluations disturb a benchmark",
    )  # fmt: skip
    device_memory: float | None = setting(
        None,
        "most memory to use on each device; observations that do not fit are stored in host memory",
        group=_EXECUTION, unit="GiB", above=0, most=MOST_STEPS, otherwise="all of it",
        change="if other programs use the same GPU",
    )  # fmt: skip
    deterministic: bool = setting(
        False,
        "on a GPU, compute the same bytes in every run, more slowly; a CPU does so anyway",
        group=_EXECUTION,
        change="to compare two versions bit by bit on a GPU",
    )
    env_timeout: float = setting(
        DEFAULT_TIMEOUT,
        "seconds after which an environment that does not answer has failed",
        group=_EXECUTION, unit="seconds", above=0, most=MOST_STEPS,
        change="raise it if a step or reset may take minutes",
    )  # fmt: skip
    max_env_restarts: int = setting(
        0,
        "number of times in a run that failed environments are restarted, each with a new episode; then the run ends",
        group=_EXECUTION, least=0, most=MOST_STEPS,
        change="if the simulator crashes now and then",
    )  # fmt: skip
    max_failed_checkpoints: int = setting(
        3,
        "number of checkpoints in a row that cannot be written before the run stops",
        group=_EXECUTION, least=1, most=MOST_STEPS,
        change="raise it if the disk is often full for a while",
    )  # fmt: skip
    keep_best: bool = setting(
        True,
        "keep the best policy of each seed over time in policy/best, and measure it again when the run ends",
        group=_EXECUTION,
        otherwise="on; --no-keep-best turns it off",
        change="off to save the evaluation at the end of a run",
    )
    video_every: int | None = setting(
        None,
        "evaluations between videos of the first seed's policy, in the run's folder videos/",
        group=_EXECUTION, unit="evaluations", least=1, most=MOST_STEPS, otherwise="no videos",
        change="to see the policy while it trains",
    )  # fmt: skip
    log_every: int | None = setting(
        None,
        "agent steps between rows of metrics.csv, and points in TensorBoard and W&B",
        group=_EXECUTION, unit="agent steps", least=1, most=MOST_STEPS,
        otherwise="1000; a twentieth of the steps of runs below 20000",
        change="lower it for finer curves",
    )  # fmt: skip
    wandb: bool = setting(
        False,
        "log to Weights & Biases too",
        group=_EXECUTION,
        change="if you use Weights & Biases",
    )
    wandb_project: str = setting("dr-q", "project at W&B", group=_EXECUTION, metavar="NAME")
    wandb_entity: str | None = setting(
        None, "user or team at W&B", group=_EXECUTION, metavar="NAME", otherwise="your default entity"
    )
    wandb_group: str | None = setting(
        None,
        "group of runs at W&B",
        group=_EXECUTION,
        metavar="NAME",
        otherwise="none; in a sweep, the name of its folder",
    )
    wandb_tags: tuple[str, ...] = setting(
        (), "tags at W&B", group=_EXECUTION, metavar="TAG...", otherwise="none",
        check=("words", lambda x: isinstance(x, tuple) and all(isinstance(tag, str) for tag in x)),
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        check_settings(self)

    def log_interval(self, steps: int) -> int:
        """Agent steps between rows of metrics.csv in a run of so many steps."""
        return self.log_every or max(1, min(1_000, steps // 20))

    @property
    def wandb_arguments(self) -> dict[str, Any]:
        """Where the run belongs at Weights & Biases, as far as that is given."""
        names = {"project": self.wandb_project, "entity": self.wandb_entity, "group": self.wandb_group}
        given = {**names, "tags": list(self.wandb_tags)}
        return {name: value for name, value in given.items() if value}


RUN_SETTINGS = tuple(settings_of(Settings))
"""Names of the settings of a run besides its task, preset and config."""


def callable_name(task: str) -> str | None:
    """The callable that a recorded task stands for, `module.name`; None for a task that has a name of its own."""
    return task.removeprefix(_CALLABLE) if task.startswith(_CALLABLE) else None


def is_complete(info: Mapping[str, Any]) -> bool:
    """Whether a run, by its run.json, has nothing left to do: its steps are done, or its own stop rule ended it."""
    return info.get("status") == "finished" or info.get("stopped_by") in STOP_RULES


def option_name(name: str) -> str:
    """A setting as an option of the command line: `num_envs` is --envs, `eval_every` is --eval-every."""
    declared = {**settings_of(Config), **settings_of(Settings), **settings_of(Execution)}.get(name)
    return f"--{((declared and declared[1].called) or name).replace('_', '-')}"


def usual_settings(task: str, preset_name: str) -> dict[str, Any]:
    """What the settings of a run are by its task and preset alone; without those of a preset that is not known here."""
    of_run = {name: field.default for name, (field, _) in settings_of(Settings).items()}
    config = dataclasses.asdict(preset(preset_name)) if is_known_preset(preset_name) else {}
    return {**of_run, "steps": default_steps(task), "eval_every": default_eval_every(task), **config}


def default_checkpoint_every(steps: int) -> int:
    """Agent steps between checkpoints of a run of so many steps: short runs have some, too."""
    if isinstance(steps, bool) or not isinstance(steps, int):  # refused as soon as settings are made of it
        return CHECKPOINT_EVERY
    return min(CHECKPOINT_EVERY, max(1_000, steps // 5))


def make_settings(
    task: "str | Callable[[], gymnasium.Env]",
    *,
    preset_name: str = "dr.q",
    changes: dict[str, Any] | None = None,
    steps: int | None = None,
    **rest: Any,
) -> Settings:
    """Settings with the paper's budget for the paper's tasks.

    Args:
        task: A task's name, or a callable that makes an environment.
        preset_name: One of `dr_q.PRESETS`, or several joined by +.
        changes: Fields of `Config` that differ from the preset.
        steps: Agent steps of each seed; None is the paper's budget.
        rest: Other fields of `Settings`.
    """
    if isinstance(task, str):
        task = canonical(task)
    if steps is None:
        steps = default_steps(task)
    for name in ("init", "prefill"):
        if isinstance(rest.get(name), Path):
            rest[name] = str(rest[name])
    changes = changes or {}
    if rest.get("init") is not None and changes.get("exploration_steps") is None:
        changes = {**changes, "exploration_steps": 0}  # the agent need not begin by acting at random
    config = preset(preset_name, **changes)
    usual = {"eval_every": default_eval_every(task), "checkpoint_every": default_checkpoint_every(steps)}
    given = {**usual, **current_names(rest, Settings)}
    return Settings(task, preset_name, config, steps=steps, **given)
