"""Random logs of transitions, and replays filled with them in one compiled call."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from dr_q import replay as rp

HORIZON = 5


def make_spec(capacity: int, history: int = 1, decay: float = 1e-4, floor: float = 0.1) -> rp.ReplaySpec:
    return rp.ReplaySpec(
        capacity=capacity,
        frame_shape=(1,),
        action_dim=1,
        pixels=False,
        history=history,
        horizon=HORIZON,
        fade_decay=decay,
        fade_floor=floor,
    )


def transitions(terminated, truncated) -> rp.Transition:
    """A log whose observation, action and reward are the transition's number, so that what is read can be told."""
    terminated, truncated = jnp.asarray(terminated, bool), jnp.asarray(truncated, bool)
    number = jnp.arange(len(terminated), dtype=jnp.float32)
    return rp.Transition(
        obs=number[:, None],
        action=number[:, None],
        reward=number,
        next_obs=number[:, None] + 0.5,
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
        return state, (state.valid.reshape(-1), state.cursor, rp.probability(state))

    return jax.lax.scan(step, replay, log)


draw = jax.jit(rp.draw, static_argnums=2)
probability = jax.jit(rp.probability)
write_priority = jax.jit(rp.write_priority)


@functools.cache
def random_log(length: int, seed: int, end: float = 0.05) -> rp.Transition:
    rng = np.random.default_rng(seed)
    return transitions(rng.random(length) < end, rng.random(length) < end)
