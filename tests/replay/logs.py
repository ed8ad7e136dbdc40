"""Random logs of transitions, and replays filled with them in one compiled call."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from dr_q import replay as rp
from dr_q.replay.sampling.faded_lap import FadedLap
from dr_q.spaces import SINGLE, ObsSpec, Vector

HORIZON = 5


def empty(capacity: int, stack: int = 1, decay: float = 1e-4, floor: float = 0.1) -> rp.Replay:
    """A replay of one number for each observation, drawn by faded LAP."""
    spec = rp.StorageSpec(capacity, ObsSpec.single(Vector(1, stack=stack)), action_dim=1, horizon=HORIZON)
    return rp.init(spec, FadedLap(exponent=0.4, min_priority=1.0, decay=decay, floor=floor))


def transitions(terminated, truncated) -> rp.Transition:
    """A log whose observation, action and reward are the transition's number, so that what is read can be told."""
    terminated, truncated = jnp.asarray(terminated, bool), jnp.asarray(truncated, bool)
    number = jnp.arange(len(terminated), dtype=jnp.float32)
    return rp.Transition(
        obs={SINGLE: number[:, None]},
        action=number[:, None],
        reward=number,
        next_obs={SINGLE: number[:, None] + 0.5},
        terminated=terminated,
        truncated=truncated,
    )


@jax.jit
def add_all(replay: rp.Replay, log: rp.Transition) -> rp.Replay:
    return jax.lax.scan(lambda state, t: (rp.add(state, t), None), replay, log)[0]


@jax.jit
def add_and_watch(replay: rp.Replay, log: rp.Transition):
    """Validity, cursor and probabilities after each addition."""

    def step(state, transition):
        state = rp.add(state, transition)
        return state, (state.storage.valid.reshape(-1), state.storage.cursor, rp.probability(state))

    return jax.lax.scan(step, replay, log)


draw = jax.jit(rp.draw, static_argnums=2)
probability = jax.jit(rp.probability)


def set_priority(replay: rp.Replay, slots, priority) -> rp.Replay:
    """Priorities as they are, where `rp.write_priority` takes TD errors."""
    assert isinstance(replay.sampler, FadedLap)
    new = replay.sampler.set_priority(replay.sampling, replay.storage, slots, priority)
    return dataclasses.replace(replay, sampling=new)


write_priority = jax.jit(set_priority)


@functools.cache
def random_log(length: int, seed: int, end: float = 0.05) -> rp.Transition:
    rng = np.random.default_rng(seed)
    return transitions(rng.random(length) < end, rng.random(length) < end)
