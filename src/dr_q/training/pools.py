"""The simulators of a run: those that it trains on, and those that evaluate in the background."""

from collections.abc import Callable
from typing import Any

import jax

from dr_q.envs import EnvSpec, Pool, Source, cores, open_pool
from dr_q.settings import Settings

_CORES_TO_EVALUATE = 6
"""Beyond one for each training simulator."""


def training_pool(
    settings: Settings,
    in_process: bool | None,
    accept: Callable[[EnvSpec], None],
    **failing: Any,
) -> Pool:
    """Simulators to train on: in this process or, by default for several environments, in processes of their own.

    Args:
        settings: Of the run.
        in_process: Whether they are in this process; None for the default.
        accept: May refuse the first seed's environment before those of the others are started.
        failing: What happens to those that fail, and how many share a process: see `open_pool`. And of `Source`:
            `info_keys`, `probed`.
    """
    here = settings.seeds * settings.num_envs == 1 if in_process is None else in_process
    return _pool(settings, in_process=here, accept=accept, **failing)


def evaluation_pool(settings: Settings, background: bool | None = None, **failing: Any) -> Callable[[], Pool] | None:
    """How to open simulators for evaluating in the background, if that is asked for or, by default, worth it."""
    if background is None:  # on the CPU the cores are busy learning; a caller's own environment may not travel
        named = isinstance(settings.task, str)
        background = (
            named
            and jax.default_backend() != "cpu"
            and cores() >= settings.seeds * settings.num_envs + _CORES_TO_EVALUATE
        )
    return (lambda: _pool(settings, in_process=False, spin=False, **failing)) if background else None


def _pool(settings: Settings, *, info_keys: tuple[str, ...] = (), probed: bool = False, **how: Any) -> Pool:
    source = Source(settings.task, settings.noise_dims, info_keys, probed)
    return open_pool(source, settings.seed_list, settings.eval_episodes, lanes=settings.num_envs, **how)
