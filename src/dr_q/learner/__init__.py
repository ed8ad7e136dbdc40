"""The seeds axis: the agents and replays of all seeds of a run, on its devices."""

from dr_q.learner.learner import Learner
from dr_q.learner.placement import Device, Placement
from dr_q.learner.steps import (
    LearnerSpec,
    PendingTransition,
    SeedStates,
    init_states,
    packet_layout,
    root_keys,
    round_agents,
)

__all__ = [
    "Device",
    "Learner",
    "LearnerSpec",
    "PendingTransition",
    "Placement",
    "SeedStates",
    "init_states",
    "packet_layout",
    "root_keys",
    "round_agents",
]
