"""Replay as a value: a ring of transitions, each observation stored once, and a sampler that draws from it.

`init_replay` makes an empty `Replay`; `add`, `draw` and `write_priority` are pure functions on it,
`sample_subtrajectory` and `sample_n_step` on its storage, all for one seed, and `vmap` over seeds.
"""

from dr_q.replay.in_place import add_in_place
from dr_q.replay.replay import (
    Replay,
    add,
    draw,
    has_valid_start,
    init,
    init_replay,
    probability,
    sampling_metrics,
    write_priority,
)
from dr_q.replay.sampling import Sampler, make_sampler
from dr_q.replay.storage import (
    ROW,
    Storage,
    StorageSpec,
    Transition,
    mean_abs_reward,
    slot_bytes,
    slots_to_allocate,
    slots_to_fill,
    smallest_capacity,
)
from dr_q.replay.windows import (
    Frames,
    NStepBatch,
    Subtrajectory,
    n_step_frames,
    sample_n_step,
    sample_subtrajectory,
    subtrajectory_frames,
)

__all__ = [
    "ROW",
    "Frames",
    "NStepBatch",
    "Replay",
    "Sampler",
    "Storage",
    "StorageSpec",
    "Subtrajectory",
    "Transition",
    "add",
    "add_in_place",
    "draw",
    "has_valid_start",
    "init",
    "init_replay",
    "make_sampler",
    "mean_abs_reward",
    "n_step_frames",
    "probability",
    "sample_n_step",
    "sample_subtrajectory",
    "sampling_metrics",
    "slot_bytes",
    "slots_to_allocate",
    "slots_to_fill",
    "smallest_capacity",
    "subtrajectory_frames",
    "write_priority",
]
