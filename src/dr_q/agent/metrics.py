"""What is logged of an RL update, as a table: a new metric is one line here. A sampler adds its own."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dr_q.agent.update import ActorCriticMetrics
from dr_q.config import Config
from dr_q.replay import Replay, make_sampler, sampling_metrics


class Metric(NamedTuple):
    """A metric of RL updates: a row of `METRICS` and a column of `metrics.csv`."""

    name: str
    """Its name, that of the column."""
    value: Callable[[ActorCriticMetrics], Float[Array, ""]]
    """Its value, computed from what an RL update saw."""


METRICS: tuple[Metric, ...] = (
    Metric("critic_loss", lambda seen: seen.critic_loss),
    Metric("actor_loss", lambda seen: seen.actor_loss),
    Metric("q_mean", lambda seen: jnp.mean(seen.q)),
    Metric("q_target_mean", lambda seen: jnp.mean(seen.q_target)),
    Metric("td_error_mean", lambda seen: jnp.mean(seen.td_error)),
)
"""The metrics of RL updates. The sampler adds its own."""


def metric_names(config: Config) -> tuple[str, ...]:
    """Names of what `update_metrics` gives, in its order."""
    return (*(metric.name for metric in METRICS), *make_sampler(config).metric_names)


def update_metrics(replay: Replay, slots: Int[Array, "B"], seen: ActorCriticMetrics) -> Float[Array, "fields"]:
    """All metrics of an RL update on the transitions at `slots`, as one array: each array costs a dispatch the same."""
    sampled = sampling_metrics(replay, slots, seen.td_error)
    return jnp.stack([*(metric.value(seen) for metric in METRICS), *(sampled[n] for n in replay.sampler.metric_names)])
