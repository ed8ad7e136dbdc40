"""Training: settings, memory plan, loop, evaluation, signals, and the Python API."""

from dr_q.training.api import train
from dr_q.training.loop import Options, TrainResult
from dr_q.training.settings import Settings, make_settings

__all__ = ["Options", "Settings", "TrainResult", "make_settings", "train"]
