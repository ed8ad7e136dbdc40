"""How transitions are drawn: a scheme is one file here, named as in `Config.sampling` with underscores.

Such a file defines `make(config) -> Sampler`.
"""

import importlib

from dr_q.config import Config
from dr_q.replay.sampling.base import Sampler


def make_sampler(config: Config) -> Sampler:
    """The sampler that a config names."""
    return importlib.import_module(f"{__name__}.{config.sampling.replace('-', '_')}").make(config)


__all__ = ["Sampler", "make_sampler"]
