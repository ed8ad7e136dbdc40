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
    """The replay of one seed: stored transitions, and the sampler that draws them. It is an immutable pytree.

    `dr_q.replay.init_replay` makes an empty one, and `OpenedRun.replay` reads that of a run.
    """

    sampler: Sampler = eqx.field(static=True)
    """The sampling scheme."""
    storage: Storage
    """The transitions."""
    sampling: Any
    """The sampler's state: its own arrays, a pytree."""
    empty_draws: Int[Array, ""]
    """Number of batches drawn without a valid start; `write_priority` counts them. Such a batch ends a run."""

    @property
    def spec(self) -> StorageSpec:
        """The sizes of the storage."""
        return self.storage.spec


def init(spec: StorageSpec, sampler: Sampler) -> Replay:
    """An empty replay with a given storage and sampler. `init_replay` takes both from a config.

    Args:
        spec: Sizes of the storage. Its `watch_age` is replaced by that of the sampler.
        sampler: The sampling scheme.

    Returns:
        The replay.

    Example:
        ```python
        spec = dr_q.replay.StorageSpec(capacity=10_000, obs=spaces.obs, action_dim=spaces.action.dim, horizon=5)
        replay = dr_q.replay.init(spec, dr_q.replay.make_sampler(dr_q.preset("uniform")))
        ```
    """
    spec = dataclasses.replace(spec, watch_age=sampler.watch_age)
    return Replay(sampler, init_storage(spec), sampler.init(spec), jnp.zeros((), jnp.int32))


def init_replay(
    config: Config, spaces: Spaces, capacity: int | None = None, *, frames_on_host: bool = False, lanes: int = 1
) -> Replay:
    """An empty replay for an environment.

    Args:
        config: The settings. It uses `replay_capacity`, the horizons and those of sampling.
        spaces: Observations and actions of the environment.
        capacity: Slots, a multiple of `lanes`. Default: `replay_capacity`, rounded down to a multiple of `lanes`.
        frames_on_host: Whether the caller keeps observations in host memory, outside the replay.
        lanes: Number of environments, each of which adds a transition at every call of `add`.

    Returns:
        The replay.

    Raises:
        ValueError: The capacity is too small for the horizons and stacked frames, or not a multiple of `lanes`.

    Example:
        ```python
        config = dr_q.preset("dr.q")
        spaces = dr_q.Spaces(dr_q.ObsSpec.vector(17), dr_q.ContinuousActions((-1.0,) * 6, (1.0,) * 6))
        replay = dr_q.replay.init_replay(config, spaces, capacity=100_000)
        ```
    """
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
    """Store one transition, or one of each lane along a leading axis.

    Under a plain `jax.jit` this copies the whole replay. Call `add_in_place` instead, or donate the replay in the
    compiled function of yours that calls `add` (`donate_argnums`).

    Args:
        replay: The replay.
        transition: The transition.

    Returns:
        The replay with the transition. When it is full, the oldest transition is overwritten.

    Example:
        ```python
        add_all = jax.jit(
            lambda replay, transitions: jax.lax.scan(
                lambda state, one: (dr_q.replay.add(state, one), None), replay, transitions
            )[0],
            donate_argnums=0,
        )
        replay = add_all(replay, transitions)
        ```
    """
    storage, added = add_to_storage(replay.storage, transition)
    return dataclasses.replace(replay, storage=storage, sampling=replay.sampler.on_add(replay.sampling, storage, added))


def draw(replay: Replay, key: Key[Array, ""], count: int) -> Int[Array, "count"]:
    """Draw starts of windows, independently and with replacement.

    A start is valid once the transition `horizon` steps later in its episode is stored, or once its episode terminated
    within the window.

    Args:
        replay: The replay.
        key: Decides the draws.
        count: Number of draws.

    Returns:
        Slots, for `sample_n_step` and `sample_subtrajectory`. They are -1 if there is no valid start.

    Example:
        ```python
        slots = dr_q.replay.draw(replay, jax.random.key(0), 256)
        batch = dr_q.replay.sample_n_step(replay.storage, slots, 3)
        ```
    """
    slots = replay.sampler.draw(replay.sampling, replay.storage, key, count)
    return jnp.where(has_valid_start(replay), slots, -1)


def has_valid_start(replay: Replay) -> Bool[Array, ""]:
    """Whether the replay has a valid start to draw.

    Args:
        replay: The replay.

    Returns:
        Whether `draw` can draw anything.

    Example:
        ```python
        if dr_q.replay.has_valid_start(replay):
            slots = dr_q.replay.draw(replay, jax.random.key(0), 256)
        ```
    """
    return replay.sampler.has_valid_start(replay.sampling)


def probability(replay: Replay) -> Float[Array, "capacity"]:
    """The probability of each slot in `draw`. It is for tests and analysis: it reads the whole storage.

    Args:
        replay: The replay.

    Returns:
        A probability for each slot; 0 for slots that are not valid starts.

    Example:
        ```python
        chance = dr_q.replay.probability(replay)
        most_likely = int(jnp.argmax(chance))
        ```
    """
    return replay.sampler.probability(replay.sampling, replay.storage)


def write_priority(replay: Replay, slots: Int[Array, "B"], td_error: Float[Array, "B"]) -> Replay:
    """Give the sampler the TD errors of a batch. Faded LAP computes new priorities from them.

    Args:
        replay: The replay.
        slots: What `draw` returned. Slots of -1 are ignored; `empty_draws` counts batches that have any.
        td_error: TD error of each transition, at least 0.

    Returns:
        The replay with the new priorities.

    Example:
        ```python
        agent, metrics = dr_q.agent.actor_critic_step(config, agent, batch, *noise)
        replay = dr_q.replay.write_priority(replay, slots, metrics.td_error)
        ```
    """
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
