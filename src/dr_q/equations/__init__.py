"""The paper's equations, one short pure function each. `docs/paper-map.md` lists equation, function and test."""

from dr_q.equations.actions import (
    best_choice,
    discrete_exploration_action,
    discrete_target_action,
    exploration_action,
    gumbel_softmax,
    target_action,
)
from dr_q.equations.augmentation import StoredImages, random_shift, random_shifts
from dr_q.equations.fading import NEVER, fade_power, fade_weight, faded_probability, floor_age
from dr_q.equations.priority import lap_priority, td_error
from dr_q.equations.representation import infonce, latent_mse, reward_cross_entropy, unit
from dr_q.equations.returns import alive_steps, huber, n_step_return, q_target
from dr_q.equations.two_hot import reward_bins, symexp, two_hot, two_hot_mean

__all__ = [
    "NEVER",
    "StoredImages",
    "alive_steps",
    "best_choice",
    "discrete_exploration_action",
    "discrete_target_action",
    "exploration_action",
    "fade_power",
    "fade_weight",
    "faded_probability",
    "floor_age",
    "gumbel_softmax",
    "huber",
    "infonce",
    "lap_priority",
    "latent_mse",
    "n_step_return",
    "q_target",
    "random_shift",
    "random_shifts",
    "reward_bins",
    "reward_cross_entropy",
    "symexp",
    "target_action",
    "td_error",
    "two_hot",
    "two_hot_mean",
    "unit",
]
