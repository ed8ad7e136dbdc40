"""The replay of one seed: storage, and a sampler with its state. Every function is pure and takes one seed's."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from dr_q.config import Config
from dr_q.replay.sampling import Sampler, make_sampler
from dr_q.replay.storage import ROW, Storage, StorageSpec, Transition, init_storage
from dr_q.replay.storage import add as add_to_storage
from dr_q.spaces import Spaces


class Replay(eqx.Module):
    """Transitions, and what decides which of them are drawn."""

    sampler: Sampler = eqx.field(static=True)
    storage: Storage
    sampling: Any
    """The sampler's state."""
    empty_draws: Int[Array, ""]
    """Updates that found no valid start to draw: they learnt from nothing, and the run must not continue."""

    @property
    def spec(self) -> StorageSpec:
        """The fixed part of the storage."""
        return self.storage.spec


def init(spec: StorageSpec, sampler: Sampler) -> Replay:
    """An empty replay; the storage watches the age that the sampler asks for."""
    spec = dataclasses.replace(spec, watch_age=sampler.watch_age)
    return Replay(sampler, init_storage(spec), sampler.init(spec), jnp.zeros((), jnp.int32))


def init_replay(
    config: Config, spaces: Spaces, capacity: int | None = None, *, frames_on_host: bool = False, lanes: int = 1
) -> Replay:
    """An empty replay for a task; `capacity` slots where the run needs fewer than the config allows."""
    spec = StorageSpec(
        capacity=config.replay_capacity // lanes * lanes if capacity is None else capacity,
        obs=spaces.obs,
        action_dim=spaces.action.dim,
        horizon=config.horizon,
        frames_on_host=frames_on_host,
        lanes=lanes,
    )
    return init(spec, make_sampler(config))


def add(replay: Replay, transition: Transition) -> Replay:
    """Store one transition; with several lanes one of each, along a leading axis.

    Under a plain `jax.jit` this copies the whole replay: call `add_in_place` instead, or donate the argument of the
    compiled function that calls this one (`donate_argnums`).
    """
    storage, added = add_to_storage(replay.storage, transition)
    return dataclasses.replace(replay, storage=storage, sampling=replay.sampler.on_add(replay.sampling, storage, added))


def draw(replay: Replay, key: Key[Array, ""], count: int) -> Int[Array, "count"]:
    """Starts of windows, independent and with replacement; -1 where the replay has none (see `has_valid_start`)."""
    slots = replay.sampler.draw(replay.sampling, replay.storage, key, count)
    return jnp.where(has_valid_start(replay), slots, -1)


def has_valid_start(replay: Replay) -> Bool[Array, ""]:
    """Whether anything can be drawn."""
    return replay.sampler.has_valid_start(replay.sampling)


def probability(replay: Replay) -> Float[Array, "capacity"]:
    """The chance that `draw` gives each slot. For tests and analysis: it walks the storage."""
    return replay.sampler.probability(replay.sampling, replay.storage)


def write_priority(replay: Replay, slots: Int[Array, "B"], td_error: Float[Array, "B"]) -> Replay:
    """Tell the sampler the TD errors of the transitions at `slots`; -1, nothing drawn, is counted and passed over."""
    nowhere = slots < 0
    slots = jnp.where(nowhere, replay.spec.rows * ROW, slots)
    return dataclasses.replace(
        replay,
        sampling=replay.sampler.write_priority(replay.sampling, replay.storage, slots, td_error),
        empty_draws=replay.empty_draws + jnp.any(nowhere),
    )


def sampling_metrics(
    replay: Replay, slots: Int[Array, "B"], td_error: Float[Array, "B"]
) -> dict[str, Float[Array, ""]]:
    """The sampler's numbers for the log."""
    return replay.sampler.metrics(replay.sampling, replay.storage, slots, td_error)
