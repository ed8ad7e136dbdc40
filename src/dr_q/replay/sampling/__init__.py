"""How transitions are drawn: a scheme is one file here, named as in `Config.sampling` with underscores.

Such a file defines `make(config) -> Sampler`.
"""

import importlib

from dr_q.config import Config
from dr_q.replay.sampling.base import Sampler


def make_sampler(config: Config) -> Sampler:
    """The sampler that a config names.

    Args:
        config: The settings. It uses `sampling` and those of that sampler.

    Returns:
        The sampler.

    Example:
        ```python
        sampler = dr_q.replay.make_sampler(dr_q.preset("dr.q", fade_floor=0.2))
        ```
    """
    return importlib.import_module(f"{__name__}.{config.sampling.replace('-', '_')}").make(config)


__all__ = ["Sampler", "make_sampler"]
