"""Every setting of the algorithm, declared once: default, range, unit, the paper's name and symbol, help and group.

Options of the command line, validation, `dr-q presets`, `--help` and the table in `docs/settings.md` read these
declarations. No jax here: run folders and reports read settings too.
"""

import dataclasses
import math
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dr_q.kit import ConfigError, DamagedFileError, did_you_mean, read_small, shortened, spelled

Activation = Literal["elu", "relu"]
Compute = Literal["float32", "mixed"]

_KINDS = {int: "a whole number", float: "a number", bool: "True or False"}
_SEVERAL = {int: "whole numbers", float: "numbers"}
_BOUNDS = {"least": "at least", "above": "more than", "most": "at most", "below": "under"}
"""How a bound is put into words."""
MOST_STEPS = 1_000_000_000
"""Limit of everything that counts steps or slots: devices count them in 32 bits."""
_MOST_WIDTH = 16_384
_MOST_WEIGHT = 1_000_000
_MOST_HORIZON = 1_000


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is known of a setting besides its name, type and default."""

    help: str
    """What it is, in a sentence."""
    group: str
    """The settings that it is listed with."""
    paper: str = ""
    """Its row in the paper's table of hyperparameters."""
    symbol: str = ""
    """The paper's symbol."""
    unit: str = ""
    least: int | float | None = None
    above: int | float | None = None
    most: int | float | None = None
    below: int | float | None = None
    choices: tuple[str, ...] = ()
    check: tuple[str, Callable[[Any], bool]] | None = None
    """What is allowed, in words, and whether a value is, where a range does not say it."""
    called: str = ""
    """What users call it, where that is not the field's name."""
    in_python: str = ""
    """What users of Python call it, where that is not the option's name."""
    aliases: tuple[str, ...] = ()
    """Old names, which are still accepted."""
    otherwise: str = ""
    """What is used if it is not given, in words, where the default does not say it."""
    metavar: str = ""
    """What stands for its value in `--help`; by default its kind."""
    change: str = ""
    """When to change it, in a few words; `docs/settings.md` shows it."""
    read: Callable[[str], Any] | None = None
    """How a value is read from text, where its kind does not say it; ValueError if it cannot be."""

    def describe(self) -> str:
        """Its help, with the paper's name and symbol."""
        symbol = f" ({self.symbol})" if self.symbol else ""
        return ": ".join(part for part in (f"{self.paper}{symbol}", self.help) if part)

    def range(self) -> str:
        """What a value must be besides being of its kind, in words; empty if nothing."""
        if self.check is not None:
            return self.check[0]
        if self.choices:
            return " or ".join(map(repr, self.choices))
        bounds = {name: getattr(self, name) for name in _BOUNDS if getattr(self, name) is not None}
        if bounds.keys() == {"least", "most"}:
            return f"between {self.least} and {self.most}"
        return " and ".join(f"{_BOUNDS[name]} {bound}" for name, bound in bounds.items())

    def allowed(self, kind: Any) -> str:
        """What values are allowed, in words."""
        among = self.range()
        if self.check is not None or self.choices:
            return among
        join = " " if among.startswith("between") else ", "
        number, base = number_kind(kind), base_kind(kind)
        what = _KINDS.get(base, "text") if number in (None, base) else _SEVERAL[number]
        return join.join(part for part in (what, among) if part)

    def accepts(self, kind: Any, value: Any) -> bool:
        """Whether a value is of the kind and in the range; of several numbers, whether all are."""
        number = number_kind(kind)
        if self.check is not None and not self.check[1](value):
            return False
        if self.choices:
            return value in self.choices
        if number is None:
            return self.check is not None or isinstance(value, base_kind(kind))
        values = (value,) if number is base_kind(kind) else value
        return all(self._is_in_range(number, x) for x in values)

    def _is_in_range(self, kind: type[int] | type[float], value: Any) -> bool:
        """Whether a value is a finite number of the kind within the bounds."""
        if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
            return False
        return (
            math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def refuse(self, kind: Any, value: Any, name: str) -> None:
        """Raise ConfigError if a value is not allowed; `name` is what the user calls the setting."""
        try:
            fine = self.accepts(kind, value)
        except (TypeError, OverflowError):  # not even of the kind, or a whole number that no float holds
            fine = False
        if not fine:
            raise ConfigError(f"{name} must be {self.allowed(kind)}, got {shortened(value)}")


def base_kind(kind: Any) -> Any:
    """A type without `| None`; of `int | float`, float."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        kinds = [part for part in typing.get_args(kind) if part is not types.NoneType]
        kind = float if set(kinds) == {int, float} else kinds[0]
    return kind


def number_kind(kind: Any) -> type[int] | type[float] | None:
    """int or float, if values are such numbers or tuples of them."""
    kind = base_kind(kind)
    inner = typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else kind
    return inner if inner in (int, float) else None


def setting(default: Any = dataclasses.MISSING, help: str = "", *, group: str, **facts: Any) -> Any:
    """Declare a setting: a dataclass field with its `Setting` as metadata.

    Args:
        default: Its default.
        help: What it is, in a sentence.
        group: The settings that it is listed with.
        facts: Further fields of `Setting`.
    """
    return dataclasses.field(default=default, metadata={"setting": Setting(help, group, **facts)})


def settings_of(kind: type) -> dict[str, tuple[dataclasses.Field, Setting]]:
    """The declared settings of a dataclass, by name and in order."""
    fields = dataclasses.fields(kind)
    return {field.name: (field, field.metadata["setting"]) for field in fields if "setting" in field.metadata}


def plain_value(value: Any) -> Any:
    """A value as a setting holds it, which can be hashed and written to a file: no numpy, tuples instead of lists."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    return tuple(map(plain_value, value)) if isinstance(value, list | tuple) else value


def check_settings(values: Any) -> None:
    """Refuse values that are not allowed, and make the others plain.

    Args:
        values: An instance of a dataclass with declared settings. None is allowed where it is the default.

    Raises:
        ConfigError: For the first value that is not allowed.
    """
    for name, (field, declared) in settings_of(type(values)).items():
        got = plain_value(getattr(values, name))
        object.__setattr__(values, name, got)
        if got is not None or field.default is not None:
            declared.refuse(field.type, got, spelled(declared.called or name, declared.in_python))


def current_names(given: Mapping[str, Any], *kinds: type) -> dict[str, Any]:
    """Settings by their fields' names, where old ones (`Setting.aliases`) or users' (`Setting.called`) were given.

    Raises:
        ConfigError: If a setting was given by both names.
    """
    declared = [(name, s) for kind in kinds for name, (_, s) in settings_of(kind).items()]
    renamed = {old: name for name, s in declared for old in (*s.aliases, s.called) if old}
    for old, name in renamed.items():
        if old in given and name in given:
            raise ConfigError(f"{spelled(name)} is given twice: {spelled(old)} is another name for it")
    return {renamed.get(name, name): value for name, value in given.items()}


LARGEST_BIN = 80.0
"""Largest bound of the reward's bins, before symexp; symexp of much larger values overflows float32 to infinity."""


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


def _is_reward_range(x: Any) -> bool:
    return len(x) == 2 and all(map(_is_number, x)) and -LARGEST_BIN <= x[0] < x[1] <= LARGEST_BIN


_MOST_RATIO = 1_000


def _is_ratio(x: Any) -> bool:
    if not _is_number(x) or x <= 0:
        return False
    return 1 <= x <= _MOST_RATIO and x == int(x) if x >= 1 else round(1 / x) <= _MOST_RATIO and x == 1 / round(1 / x)


def _read_ratio(text: str) -> int | float:
    """A ratio as it is written: 2, 1/4, 0.25."""
    if text.startswith("1/"):
        if not 0 < int(text[2:]) <= _MOST_RATIO:
            raise ValueError
        return 1 / int(text[2:])
    return int(text) if text.lstrip("+-").isdecimal() else float(text)


def _is_parts(x: Any) -> bool:
    return isinstance(x, str) and all(name.strip() for name in x.split(","))


NORMALISE_NONE, NORMALISE_ALL = "none", "all"
"""Values of `normalise_observations` besides names of parts."""
_ACTIVATIONS = typing.get_args(Activation)
_DATA, _TARGETS, _SAMPLING, _ENCODER = "Acting and data", "Targets and returns", "Sampling", "Encoder"
_ACTOR, _CRITICS, _MRQ, _COMPUTE = "Actor", "Critics", "MR.Q only", "Arithmetic"


@dataclasses.dataclass(frozen=True)
class Config:
    """DR.Q's hyperparameters. The defaults are the paper's; one set covers all 73 tasks.

    A config is immutable and hashable. Every field is a setting with a range and a help text: see `docs/settings.md`,
    which is generated from them. A value that is not allowed raises `dr_q.ConfigError`.

    Example:
        ```python
        config = dr_q.Config(batch_size=128, discount=0.97)
        larger = dataclasses.replace(config, zs_dim=1024)
        ```
    """

    exploration_steps: int = setting(
        10_000,
        "agent steps with uniformly random actions, before any update; 0 needs init or prefill, and is the default "
        "with init",
        group=_DATA, paper="Exploration steps", unit="agent steps", least=0, most=MOST_STEPS,
        change="lower it in short runs, or where random actions are costly or dangerous",
    )  # fmt: skip
    exploration_noise: float = setting(
        0.2,
        "standard deviation of the normal noise on actions in [-1, 1]",
        group=_DATA, paper="Exploration noise", least=0, most=1_000,
        change="lower it where small actions matter; raise it where the policy gets stuck early",
    )  # fmt: skip
    replay_ratio: int | float = setting(
        1, "RL updates for each agent step; 1/4 is one for every 4", group=_DATA, paper="Replay ratio (UTD)",
        metavar="N", read=_read_ratio, least=1 / _MOST_RATIO, most=_MOST_RATIO,
        check=(f"a whole number between 1 and {_MOST_RATIO}, or 1/2, 1/3, ... 1/{_MOST_RATIO}", _is_ratio),
        change="raise it where simulation is slow and samples are scarce; 1/k where simulation is fast",
    )  # fmt: skip
    replay_capacity: int = setting(
        1_000_000,
        "slots of the replay buffer; a run allocates only what it can fill",
        group=_DATA, paper="Replay buffer size", unit="slots", least=1, most=MOST_STEPS,
        change="lower it if memory is short; agents then forget sooner",
    )  # fmt: skip
    normalise_observations: str = setting(
        NORMALISE_NONE,
        "vectors of observations to normalise by their running mean and variance: all, or names of parts with commas "
        "between; without images an observation is one part, obs",
        group=_DATA, metavar="PARTS", check=("none, all, or names of parts with commas between", _is_parts),
        change="set it if observations are in the thousands, or their parts have very different scales",
    )  # fmt: skip
    batch_size: int = setting(
        256,
        "samples in each update",
        group=_DATA,
        paper="Batch size",
        least=1,
        most=65_536,
        change="lower it to save time on a CPU",
    )

    discount: float = setting(
        0.99, "weight of a reward one step later", group=_TARGETS, paper="Discount factor", symbol="gamma",
        least=0, most=1,
        change="closer to 1 for rewards that come late, lower for short tasks",
    )  # fmt: skip
    target_period: int = setting(
        250,
        "RL updates between copies to the target networks; at each copy the encoder is trained (encoder_updates)",
        group=_TARGETS, paper="Target update frequency", symbol="T_target", unit="updates", least=1, most=100_000,
        change="rarely: it also sets how often the encoder is updated",
    )  # fmt: skip
    encoder_updates: int = setting(
        0,
        "encoder updates at each copy to the target networks, at most target_period; 0 means target_period",
        group=_TARGETS, unit="updates", least=0, most=100_000,
        change="set it below target_period to save time: encoder updates are most of the computation",
    )  # fmt: skip
    target_noise: float = setting(
        0.2,
        "standard deviation of the noise on the target actor's action",
        group=_TARGETS, paper="Target policy noise", symbol="sigma", least=0, most=1_000,
    )  # fmt: skip
    target_noise_clip: float = setting(
        0.3, "largest absolute value of the noise on the target actor's action", group=_TARGETS,
        paper="Target policy noise clipping", symbol="c", least=0, most=1_000,
    )  # fmt: skip
    q_horizon: int = setting(
        3, "steps of the critics' n-step return", group=_TARGETS, paper="Critic multi-step return horizon",
        symbol="H_Q", unit="agent steps", least=1, most=_MOST_HORIZON,
        change="lower it if rewards are noisy",
    )  # fmt: skip

    sampling: str = setting(
        "faded-lap",
        "how transitions are drawn from the replay",
        group=_SAMPLING,
        choices=("faded-lap", "uniform"),
        change="for ablations",
    )
    priority_exponent: float = setting(
        0.4,
        "exponent of the TD error; 0 gives every transition priority 1",
        group=_SAMPLING, paper="LAP probability smoothing", symbol="alpha", least=0, most=10,
        change="0 to ignore TD errors, as in an ablation",
    )  # fmt: skip
    min_priority: float = setting(
        1.0,
        "smaller TD errors count as this value",
        group=_SAMPLING,
        paper="LAP minimum priority",
        above=0,
        most=_MOST_WEIGHT,
    )
    fade_decay: float = setting(
        1e-4,
        "fraction of its weight that a transition loses with each transition added after it",
        group=_SAMPLING, paper="Faded PER decay rate", symbol="epsilon", least=0, below=1,
        change="lower it if old transitions stay useful, 0 for no fading",
    )  # fmt: skip
    fade_floor: float = setting(
        0.1,
        "smallest weight to which a transition fades",
        group=_SAMPLING, paper="Faded PER forget weight threshold", symbol="epsilon_low", least=0, most=1,
        change="raise it towards 1 to fade less",
    )  # fmt: skip

    encoder_learning_rate: float = setting(
        3e-4,
        group=_ENCODER,
        paper="Encoder learning rate",
        least=0,
        most=1,
        change="lower it if losses diverge; higher ones learn easy tasks sooner",
    )
    encoder_weight_decay: float = setting(
        0.01, group=_ENCODER, paper="Encoder weight decay", least=0, most=_MOST_WEIGHT
    )
    zs_dim: int = setting(
        512,
        "size of the latent state z_s",
        group=_ENCODER,
        paper="Encoder z_s dim",
        least=1,
        most=_MOST_WIDTH,
        change="lower it for small tasks on a CPU",
    )
    zsa_dim: int = setting(
        512,
        "size of the latent state-action z_sa",
        group=_ENCODER,
        paper="Encoder z_sa dim",
        least=1,
        most=_MOST_WIDTH,
        change="lower it for small tasks on a CPU",
    )
    za_dim: int = setting(
        256, "size of the embedded action z_a", group=_ENCODER,
        paper="Encoder z_a dim (used only in the architecture)", least=1, most=_MOST_WIDTH,
    )  # fmt: skip
    encoder_hidden: int = setting(
        750,
        "width of the encoder's hidden layers",
        group=_ENCODER,
        paper="Encoder hidden dimension",
        least=1,
        most=_MOST_WIDTH,
        change="lower it for small tasks on a CPU",
    )
    encoder_activation: Activation = setting(
        "elu", group=_ENCODER, paper="Encoder activation function", choices=_ACTIVATIONS
    )
    reward_bins: int = setting(
        65, "bins of the two-hot encoding of rewards", group=_ENCODER, paper="Encoder reward bins", least=2, most=10_001
    )
    reward_range: tuple[float, float] = setting(
        (-10.0, 10.0),
        "range of the bins before symexp; +-10 covers rewards of +-22,025",
        group=_ENCODER, paper="Encoder reward range", metavar="LOW HIGH", least=-LARGEST_BIN, most=LARGEST_BIN,
        check=(f"two numbers, the lower first, within +-{LARGEST_BIN:g}", _is_reward_range),
        change="if a warning says that rewards lie outside it",
    )  # fmt: skip
    encoder_horizon: int = setting(
        5, "steps the latent model is rolled out", group=_ENCODER, paper="Encoder horizon", symbol="H",
        unit="agent steps", least=1, most=_MOST_HORIZON,
    )  # fmt: skip
    dynamics_weight: float = setting(
        1.0, "weight of the latent dynamics loss (Eq. 7); 0 leaves it out", group=_ENCODER,
        paper="Latent consistency loss weight", symbol="lambda_d", least=0, most=_MOST_WEIGHT,
        change="0 for an ablation",
    )  # fmt: skip
    reward_weight: float = setting(
        0.1, "weight of the reward loss (Eq. 6); 0 leaves it out", group=_ENCODER,
        paper="Reward loss weight", symbol="lambda_r", least=0, most=_MOST_WEIGHT,
        change="0 for an ablation",
    )  # fmt: skip
    infonce_weight: float = setting(
        0.1, "weight of the InfoNCE loss (Eq. 8); 0 leaves it out", group=_ENCODER,
        paper="InfoNCE loss weight", symbol="lambda_m", least=0, most=_MOST_WEIGHT,
        change="0 for an ablation, or preset no-infonce",
    )  # fmt: skip
    infonce_temperature: float = setting(
        0.1,
        "temperature of the InfoNCE loss",
        group=_ENCODER,
        paper="InfoNCE temperature",
        symbol="tau",
        above=0,
        most=1_000,
        change="in studies of the contrastive loss",
    )
    pixel_shift: int = setting(
        4,
        "largest random shift of images in a training batch; 0 for none",
        group=_ENCODER,
        unit="pixels",
        least=0,
        most=1_000,
        change="0 if a shift by a few pixels changes what an image means",
    )

    actor_learning_rate: float = setting(
        3e-4,
        group=_ACTOR,
        paper="Actor learning rate",
        least=0,
        most=1,
        change="lower it if the policy's return collapses; higher ones learn easy tasks sooner",
    )
    actor_weight_decay: float = setting(0.01, group=_ACTOR, paper="Policy weight decay", least=0, most=_MOST_WEIGHT)
    actor_hidden: int = setting(
        512,
        "width of the actor's hidden layers",
        group=_ACTOR,
        paper="Actor hidden dim",
        least=1,
        most=_MOST_WIDTH,
        change="lower it for small tasks on a CPU",
    )
    actor_activation: Activation = setting(
        "relu", group=_ACTOR, paper="Actor activation function", choices=_ACTIVATIONS
    )

    gumbel_temperature: float = setting(
        10.0, "temperature of the Gumbel-softmax that samples discrete actions", group=_ACTOR, above=0, most=1e6
    )

    critic_learning_rate: float = setting(
        3e-4,
        group=_CRITICS,
        paper="Critic learning rate",
        least=0,
        most=1,
        change="lower it if Q values diverge; higher ones learn easy tasks sooner",
    )
    critic_weight_decay: float = setting(0.01, group=_CRITICS, paper="Value weight decay", least=0, most=_MOST_WEIGHT)
    critic_hidden: int = setting(
        512,
        "width of the critics' hidden layers",
        group=_CRITICS,
        paper="Critic hidden dim",
        least=1,
        most=_MOST_WIDTH,
        change="lower it for small tasks on a CPU",
    )
    critic_activation: Activation = setting(
        "elu", group=_CRITICS, paper="Critic activation function", choices=_ACTIVATIONS
    )

    done_weight: float = setting(
        0.0,
        "weight of MR.Q's done-flag loss; 0: the flag is not predicted",
        group=_MRQ,
        least=0,
        most=_MOST_WEIGHT,
        change="use preset mr.q",
    )
    reward_scaling: bool = setting(
        False,
        "whether the critics learn in units of the replay's mean absolute reward (MR.Q)",
        group=_MRQ,
        change="use preset mr.q",
    )
    critic_grad_clip: float = setting(
        0.0,
        "largest L2 norm of the gradient of both critics together (MR.Q); 0: no limit",
        group=_MRQ,
        least=0,
        most=_MOST_WEIGHT,
        change="use preset mr.q",
    )
    pre_tanh_weight: float = setting(
        0.0,
        "weight of the mean squared pre-tanh action in the actor loss (MR.Q)",
        group=_MRQ,
        least=0,
        most=_MOST_WEIGHT,
        change="use preset mr.q",
    )

    compute: Compute = setting(
        "float32",
        "arithmetic of updates: float32, or mixed (16-bit operands in large products); acting stays float32",
        group=_COMPUTE, choices=typing.get_args(Compute),
        change="mixed on a GPU with tensor cores, for speed",
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        check_settings(self)
        if self.replay_ratio >= 1:  # one spelling of it in files
            object.__setattr__(self, "replay_ratio", int(self.replay_ratio))

    @property
    def updates_per_step(self) -> int:
        """RL updates for each agent step; 0 if there is less than one."""
        return int(self.replay_ratio)

    @property
    def steps_per_update(self) -> int:
        """Agent steps for each RL update; 1 if there are several updates for each."""
        return max(1, round(1 / self.replay_ratio))

    def updates_of_round(self, agent_steps: int, lanes: int) -> int:
        """RL updates that follow one round of the loop, in which every environment of a seed made a step.

        Args:
            agent_steps: Agent steps of the seed after the round.
            lanes: Environments of the seed.

        Returns:
            The number of RL updates.
        """
        if self.updates_per_step:
            return lanes * self.updates_per_step
        return agent_steps // self.steps_per_update - (agent_steps - lanes) // self.steps_per_update

    def most_updates(self, lanes: int) -> int:
        """The largest number of RL updates that follow one round.

        Args:
            lanes: Environments of the seed.

        Returns:
            The number of RL updates.
        """
        return lanes * self.updates_per_step or -(-lanes // self.steps_per_update)

    @property
    def encoder_updates_per_sync(self) -> int:
        """Encoder updates at each copy to the target networks."""
        return min(self.encoder_updates or self.target_period, self.target_period)

    @property
    def horizon(self) -> int:
        """Transitions in the longest window drawn from the replay."""
        return max(self.encoder_horizon, self.q_horizon)

    @property
    def predict_done(self) -> bool:
        """Whether the encoder has an output for the done flag."""
        return self.done_weight > 0


_MRQ_SCALED: dict[str, Any] = {
    "infonce_weight": 0.0,
    "fade_decay": 0.0,
    "done_weight": 0.1,
    "reward_scaling": True,
    "critic_grad_clip": 20.0,
    "pre_tanh_weight": 1e-5,
}

PRESETS: dict[str, dict[str, Any]] = {
    "dr.q": {},
    "no-infonce": {"infonce_weight": 0.0},
    "no-dynamics": {"dynamics_weight": 0.0},
    "only-lap": {"fade_decay": 0.0},
    "only-forget": {"priority_exponent": 0.0},
    "uniform": {"sampling": "uniform", "fade_decay": 0.0, "priority_exponent": 0.0},
    "mr.q": {
        **_MRQ_SCALED,
        "encoder_hidden": 512,
        "encoder_learning_rate": 1e-4,
        "encoder_weight_decay": 1e-4,
        "actor_weight_decay": 1e-4,
        "critic_weight_decay": 1e-4,
    },
    "mr.q-scaled": _MRQ_SCALED,
    "quick": {
        # What solves seven easy tasks soonest on a laptop (benchmarks/results/laptop/quick_settings.md).
        "exploration_steps": 1_000,
        "batch_size": 64,
        "target_period": 125,
        "encoder_updates": 62,
        "encoder_learning_rate": 1e-3,
        "critic_learning_rate": 1e-3,
        "zs_dim": 128,
        "zsa_dim": 128,
        "za_dim": 64,
        "encoder_hidden": 128,
        "actor_hidden": 128,
        "critic_hidden": 128,
    },
}
"""The presets: for each name the settings that differ from the defaults of `Config`. `load_presets` adds those of a
file."""
_BUILT_IN = frozenset(PRESETS)
_PRESET_NAME = re.compile(r"(?!noise\d+$)[A-Za-z0-9][A-Za-z0-9._-]*")
"""Names are parts of folder names, and results of noisy states are listed as PRESET+noise50."""


def preset(name: str, **changes: Any) -> Config:
    """The config of a preset.

    Args:
        name: One of `dr_q.PRESETS`, or several joined by + (`"quick+no-infonce"`). If two change the same setting, the
            last one wins.
        **changes: Further settings of `dr_q.Config`, by name.

    Returns:
        The config.

    Raises:
        ConfigError: The preset or a setting is unknown, or a value is not allowed.

    Example:
        ```python
        config = dr_q.preset("dr.q")
        small = dr_q.preset("quick+no-infonce", batch_size=64)
        ```
    """
    changes = current_names(changes, Config)
    check_names(changes)
    return Config(**{**preset_changes(name), **changes})


def preset_changes(name: str) -> dict[str, Any]:
    """What a preset, or several joined by +, change from DR.Q."""
    if not isinstance(name, str):
        raise ConfigError(f"{spelled('preset')} must be the name of a preset, got {name!r}")
    found: dict[str, Any] = {}
    for part in name.split("+"):
        if part not in PRESETS:
            hint = did_you_mean(part, PRESETS)
            own = f"; one of your own needs {spelled('preset_file', 'dr_q.load_presets')}"
            raise ConfigError(f"unknown preset '{part}'{hint or ';'} presets: {', '.join(PRESETS)}{own}")
        found |= PRESETS[part]
    return found


def is_built_in(name: str) -> bool:
    """Whether a preset, or all of those joined by +, are this package's own."""
    return all(part in _BUILT_IN for part in name.split("+"))


def is_known_preset(name: str) -> bool:
    """Whether there is such a preset in this process."""
    return all(part in PRESETS for part in name.split("+"))


def presets_of_files(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Of the presets that these names consist of, those that are not built in: what each changes from DR.Q."""
    parts = dict.fromkeys(part for name in names for part in name.split("+"))
    return {part: dict(PRESETS[part]) for part in parts if part in PRESETS and part not in _BUILT_IN}


def add_presets(presets: Mapping[str, Mapping[str, Any]]) -> None:
    """Make presets known by name in this process; what each changes from DR.Q is checked.

    Raises:
        ConfigError: For a name that is built in or cannot be a name, and for settings that cannot be.
    """
    for name, changes in presets.items():
        if name in _BUILT_IN:
            raise ConfigError(f"preset '{name}' is built in; choose another name")
        if not _PRESET_NAME.fullmatch(name):
            raise ConfigError(
                f"'{name}' cannot be the name of a preset: letters, digits, '.', '_' and '-', and not noise with a "
                "number, which stands for noisy states"
            )
        try:
            config = preset("dr.q", **{field: plain_value(value) for field, value in changes.items()})
        except ConfigError as error:
            raise ConfigError(f"preset '{name}': {error}") from None
        PRESETS[name] = {field: getattr(config, field) for field in current_names(changes, Config)}


def load_presets(path: str | Path) -> list[str]:
    """Add the presets of a TOML file to `dr_q.PRESETS`, for this process.

    Each table of the file is a preset. `base` names the preset that it starts from: `dr.q` if it is left out, one that
    the file defines above it, or several joined by +. Every other entry is a setting of `dr_q.Config`.

    Args:
        path: The file.

    Returns:
        The names of its presets.

    Raises:
        ConfigError: The file cannot be read, has no preset, or has an unknown setting or a value that is not allowed.

    Example:
        ```python
        Path("mine.toml").write_text('[large-batch]\\nbase = "quick"\\nbatch_size = 512')
        names = dr_q.load_presets("mine.toml")  # ["large-batch"]
        config = dr_q.preset("large-batch")
        ```
    """
    path = Path(path)
    try:
        tables = tomllib.loads(read_small(path).decode())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} cannot be read as a TOML file of presets: {why}") from None
    except RecursionError:
        raise ConfigError(f"{path} cannot be read as a TOML file of presets: it is nested too deeply") from None
    if not tables:
        raise ConfigError(f'{path} has no preset; a preset is a table: [NAME], base = "dr.q", settings with values')
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: '{name}' is in no preset; put it under the preset's name: [NAME]")
        changes = {key.replace("-", "_"): value for key, value in table.items()}
        base = changes.pop("base", "dr.q")
        try:
            if not isinstance(base, str):
                raise ConfigError(f"preset '{name}': base must be the name of a preset, got {base!r}")
            add_presets({name: {**preset_changes(base), **current_names(changes, Config)}})
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
    return list(tables)


OTHER_LIBRARIES = {
    "total_timesteps": "steps",
    "timesteps": "steps",
    "n_envs": "num_envs",
    "gamma": "discount",
    "buffer_size": "replay_capacity",
    "learning_starts": "exploration_steps",
    "n_eval_episodes": "eval_episodes",
    "eval_freq": "eval_every",
    "gradient_steps": "replay_ratio",
    "target_update_interval": "target_period",
    "callback": "callbacks",
}
"""What Stable-Baselines3, CleanRL and others call a setting, and its name here."""


def check_names(names: Iterable[str], others: Iterable[str] = ()) -> None:
    """Refuse a name that is neither a setting of `Config` nor one of the others."""
    known = sorted({*settings_of(Config), *others})
    for name in names:
        if name not in known:
            meant = OTHER_LIBRARIES.get(name)
            hint = f"; did you mean '{meant}'?" if meant in known else did_you_mean(name, known)
            hint = hint or f"; settings: {', '.join(known)}"
            raise ConfigError(f"unknown setting '{name}'{hint}")


def config_from_json(config: Mapping[str, Any] | None) -> Config:
    """A config from a run's or a policy's record; settings that it lacks, newer than it, have their defaults."""
    if not isinstance(config, Mapping):
        raise DamagedFileError(f"the settings of the algorithm are {type(config).__name__}, expected names and values")
    config = current_names(config, Config)
    try:
        check_names(config)
    except ConfigError as error:
        raise ConfigError(f"made by another version of dr-q ({error}): use that one") from None
    try:
        return Config(**{name: plain_value(value) for name, value in config.items()})
    except ConfigError as error:  # it was allowed once
        raise DamagedFileError(f"the settings of the algorithm are damaged: {error}") from None


def changed_settings(preset_name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a config, also one from JSON, that differ from this version's preset; none if it is unknown."""
    if not is_known_preset(preset_name):
        return {}
    usual = dataclasses.asdict(preset(preset_name))
    return {name: value for name, value in config.items() if plain_value(value) != usual.get(name)}
