"""Replay as a value: a ring of observations stored once, drawn by TD error faded with age (Eq. 10).

`init` makes an empty `Replay`; `add`, `draw`, `sample_subtrajectory`, `sample_n_step` and `write_priority` are pure
functions on it, for one seed, and `vmap` over seeds.
"""

from dr_q.replay.probability import age, draw, floored_share, has_valid_start, probability, write_priority
from dr_q.replay.ring import (
    NStepBatch,
    Subtrajectory,
    mean_abs_reward,
    n_step_frames,
    sample_n_step,
    sample_subtrajectory,
    subtrajectory_frames,
)
from dr_q.replay.state import Replay, ReplaySpec, Transition, init, slots_to_fill, smallest_capacity
from dr_q.replay.write import add

__all__ = [
    "NStepBatch",
    "Replay",
    "ReplaySpec",
    "Subtrajectory",
    "Transition",
    "add",
    "age",
    "draw",
    "floored_share",
    "has_valid_start",
    "init",
    "mean_abs_reward",
    "n_step_frames",
    "probability",
    "sample_n_step",
    "sample_subtrajectory",
    "slots_to_fill",
    "smallest_capacity",
    "subtrajectory_frames",
    "write_priority",
]
