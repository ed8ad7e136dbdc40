"""Runs: the loop, the seeds axis, evaluation, checkpoints, logs, policies."""

from dr_q.run.api import train
from dr_q.run.errors import TrainingError
from dr_q.run.evaluate import Evaluation
from dr_q.run.loop import Options, Outcome
from dr_q.run.policy import Policy, load
from dr_q.run.settings import Settings, make_settings

__all__ = [
    "Evaluation",
    "Options",
    "Outcome",
    "Policy",
    "Settings",
    "TrainingError",
    "load",
    "make_settings",
    "train",
]
