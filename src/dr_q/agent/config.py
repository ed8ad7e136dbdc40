"""Every setting of the algorithm, and the presets as values of it."""

import dataclasses
import difflib
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from dr_q.networks import Activation


class ConfigError(ValueError):
    """A setting that cannot be: what, got, allowed."""


@dataclasses.dataclass(frozen=True)
class Config:
    """DR.Q's hyperparameters. The defaults are the paper's; one set covers all 73 tasks.

    The docstring of a field that is a row of the paper's table starts with that row's name.
    """

    # Acting and data
    exploration_steps: int = 10_000
    """Exploration steps: agent steps with uniformly random actions, before any update."""
    exploration_noise: float = 0.2
    """Exploration noise: standard deviation of the normal noise on actions in [-1, 1]."""
    replay_ratio: int = 1
    """Replay ratio (UTD): RL updates for each agent step."""
    replay_capacity: int = 1_000_000
    """Replay buffer size, in slots; a run allocates only what it can fill."""
    batch_size: int = 256
    """Batch size of every update."""

    # Targets and returns
    discount: float = 0.99
    """Discount factor (gamma)."""
    target_period: int = 250
    """Target update frequency (T_target): RL updates between target copies, and encoder updates at each copy."""
    target_noise: float = 0.2
    """Target policy noise (sigma): standard deviation of the noise on the target actor's action."""
    target_noise_clip: float = 0.3
    """Target policy noise clipping (c): bound of that noise on either side."""
    q_horizon: int = 3
    """Critic multi-step return horizon (H_Q)."""

    # Sampling
    priority_exponent: float = 0.4
    """LAP probability smoothing (alpha): exponent of the TD error; 0 gives every transition priority 1."""
    min_priority: float = 1.0
    """LAP minimum priority: the TD error under which all count the same."""
    fade_decay: float = 1e-4
    """Faded PER decay rate (epsilon): fraction of its weight a transition loses with each one added after it."""
    fade_floor: float = 0.1
    """Faded PER forget weight threshold (epsilon_low): weight that age alone cannot go under."""

    # Encoder
    encoder_learning_rate: float = 3e-4
    """Encoder learning rate."""
    encoder_weight_decay: float = 0.01
    """Encoder weight decay."""
    zs_dim: int = 512
    """Encoder z_s dim: the latent state."""
    zsa_dim: int = 512
    """Encoder z_sa dim: the latent state-action."""
    za_dim: int = 256
    """Encoder z_a dim (used only in the architecture): the embedded action."""
    encoder_hidden: int = 750
    """Encoder hidden dimension."""
    encoder_activation: Activation = "elu"
    """Encoder activation function."""
    reward_bins: int = 65
    """Encoder reward bins of the two-hot encoding."""
    reward_range: tuple[float, float] = (-10.0, 10.0)
    """Encoder reward range, of the bins before symexp: +-10 covers rewards of +-22,025."""
    encoder_horizon: int = 5
    """Encoder horizon (H): steps the latent model is rolled out."""
    dynamics_weight: float = 1.0
    """Latent consistency loss weight (lambda_d)."""
    reward_weight: float = 0.1
    """Reward loss weight (lambda_r)."""
    infonce_weight: float = 0.1
    """InfoNCE loss weight (lambda_m)."""
    infonce_temperature: float = 0.1
    """InfoNCE temperature (tau)."""
    pixel_shift: int = 4
    """Largest random shift of images in a training batch, in pixels; 0 for none."""

    # Actor
    actor_learning_rate: float = 3e-4
    """Actor learning rate."""
    actor_weight_decay: float = 0.01
    """Policy weight decay."""
    actor_hidden: int = 512
    """Actor hidden dim."""
    actor_activation: Activation = "relu"
    """Actor activation function."""

    # Critics
    critic_learning_rate: float = 3e-4
    """Critic learning rate."""
    critic_weight_decay: float = 0.01
    """Value weight decay."""
    critic_hidden: int = 512
    """Critic hidden dim."""
    critic_activation: Activation = "elu"
    """Critic activation function."""

    # MR.Q only
    done_weight: float = 0.0
    """Weight of MR.Q's done-flag loss; 0: the flag is not predicted."""
    reward_scaling: bool = False
    """Whether the critics learn in units of the buffer's mean absolute reward (MR.Q)."""
    critic_grad_clip: float = 0.0
    """Largest L2 norm of the gradient of both critics together (MR.Q); 0: no limit."""
    pre_tanh_weight: float = 0.0
    """Weight of the mean squared pre-tanh action in the actor loss (MR.Q)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be; numpy's become Python's, which can be written down."""
        for name, (allowed, ok) in _ALLOWED.items():
            got = getattr(self, name)
            if isinstance(got, np.generic):
                got = got.item()
                object.__setattr__(self, name, got)
            try:
                fine = ok(got)
            except TypeError:  # not even of the kind
                fine = False
            if not fine:
                raise ConfigError(f"{name} must be {allowed}, got {got!r}")

    @property
    def horizon(self) -> int:
        """Transitions in the longest window drawn from the replay."""
        return max(self.encoder_horizon, self.q_horizon)

    @property
    def predict_done(self) -> bool:
        """Whether the encoder has an output for the done flag."""
        return self.done_weight > 0

    @property
    def initial_priority(self) -> float:
        """Priority of the first transitions."""
        return self.min_priority**self.priority_exponent


def _number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


def _whole(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and x >= 1


_COUNT = ("a whole number, at least 1", _whole)
_SHARE = ("between 0 and 1", lambda x: _number(x) and 0 <= x <= 1)
_NOT_NEGATIVE = ("a number, 0 or more", lambda x: _number(x) and x >= 0)
_POSITIVE = ("a number, more than 0", lambda x: _number(x) and x > 0)
_LARGEST_BIN = 80.0
"""Of the reward's bins, before symexp: a little more is no number in float32 any more."""
_ACTIVATION = ("'elu' or 'relu'", lambda x: x in ("elu", "relu"))

_ALLOWED = {
    "exploration_steps": _COUNT,
    "exploration_noise": _NOT_NEGATIVE,
    "replay_ratio": _COUNT,
    "replay_capacity": _COUNT,
    "batch_size": _COUNT,
    "discount": _SHARE,
    "target_period": _COUNT,
    "target_noise": _NOT_NEGATIVE,
    "target_noise_clip": _NOT_NEGATIVE,
    "q_horizon": _COUNT,
    "priority_exponent": _NOT_NEGATIVE,
    "min_priority": _POSITIVE,
    "fade_decay": ("at least 0 and under 1", lambda x: _number(x) and 0 <= x < 1),
    "fade_floor": _SHARE,
    "encoder_learning_rate": _NOT_NEGATIVE,
    "encoder_weight_decay": _NOT_NEGATIVE,
    "zs_dim": _COUNT,
    "zsa_dim": _COUNT,
    "za_dim": _COUNT,
    "encoder_hidden": _COUNT,
    "encoder_activation": _ACTIVATION,
    "reward_bins": ("a whole number, at least 2", lambda x: _whole(x) and x >= 2),
    "reward_range": (
        f"two numbers, the lower first, within +-{_LARGEST_BIN:g}",
        lambda x: len(x) == 2 and all(map(_number, x)) and -_LARGEST_BIN <= x[0] < x[1] <= _LARGEST_BIN,
    ),
    "encoder_horizon": _COUNT,
    "dynamics_weight": _NOT_NEGATIVE,
    "reward_weight": _NOT_NEGATIVE,
    "infonce_weight": _NOT_NEGATIVE,
    "infonce_temperature": _POSITIVE,
    "pixel_shift": ("a whole number, 0 or more", lambda x: (x == 0 and isinstance(x, int)) or _whole(x)),
    "actor_learning_rate": _NOT_NEGATIVE,
    "actor_weight_decay": _NOT_NEGATIVE,
    "actor_hidden": _COUNT,
    "actor_activation": _ACTIVATION,
    "critic_learning_rate": _NOT_NEGATIVE,
    "critic_weight_decay": _NOT_NEGATIVE,
    "critic_hidden": _COUNT,
    "critic_activation": _ACTIVATION,
    "done_weight": _NOT_NEGATIVE,
    "reward_scaling": ("True or False", lambda x: isinstance(x, bool)),
    "critic_grad_clip": _NOT_NEGATIVE,
    "pre_tanh_weight": _NOT_NEGATIVE,
}

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
    "uniform": {"fade_decay": 0.0, "priority_exponent": 0.0},
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
        "exploration_steps": 1_000,
        "batch_size": 128,
        "zs_dim": 128,
        "zsa_dim": 128,
        "za_dim": 64,
        "encoder_hidden": 128,
        "actor_hidden": 128,
        "critic_hidden": 128,
    },
}
"""What each preset changes, and nothing else."""


def preset(name: str, **changes: Any) -> Config:
    """The config of a preset, with further changes by field name."""
    if name not in PRESETS:
        close = difflib.get_close_matches(str(name), PRESETS, n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise ConfigError(f"unknown preset '{name}'; {hint}presets: {', '.join(PRESETS)}")
    check_names(changes)
    return Config(**{**PRESETS[name], **changes})


def check_names(names: Iterable[str], others: Iterable[str] = ()) -> None:
    """Refuse a name that is neither a setting of `Config` nor one of the others."""
    known = sorted({field.name for field in dataclasses.fields(Config)} | set(others))
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean '{close[0]}'?" if close else f"; settings: {', '.join(known)}"
            raise ConfigError(f"unknown setting '{name}'{hint}")
