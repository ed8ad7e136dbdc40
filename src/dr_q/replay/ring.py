"""Reading windows off the ring: sub-trajectories for the encoder, n-step samples for the critics."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dr_q.replay.state import Replay


class Subtrajectory(NamedTuple):
    """Windows of H consecutive transitions, time first. What follows a termination inside one has no meaning."""

    obs: Array
    """Observations s_0 .. s_H, [H + 1, B, *obs]; s_{t+1} is the true next observation of step t (D8)."""
    action: Float[Array, "H B A"]
    reward: Float[Array, "H B"]
    not_done: Float[Array, "H B"]


class NStepBatch(NamedTuple):
    """The ends of windows of H transitions, with the rewards between."""

    obs: Array
    """Observation at the start, [B, *obs]."""
    action: Float[Array, "B A"]
    reward: Float[Array, "H B"]
    not_done: Float[Array, "H B"]
    next_obs: Array
    """Observation H steps later, [B, *obs]; without meaning where the window holds a termination."""


def sample_subtrajectory(replay: Replay, slots: Int[Array, "B"], horizon: int) -> Subtrajectory:
    """The windows of `horizon` transitions that start at `slots`."""
    window = _window(replay, slots, horizon)
    obs = _observations(replay, slots, range(horizon + 1))
    return Subtrajectory(obs, replay.action[window], replay.reward[window], replay.not_done[window])


def sample_n_step(replay: Replay, slots: Int[Array, "B"], horizon: int) -> NStepBatch:
    """First and last observation of the windows that start at `slots`, the first action, all rewards."""
    window = _window(replay, slots, horizon)
    return NStepBatch(
        obs=_observations(replay, slots, range(1))[0],
        action=replay.action[slots],
        reward=replay.reward[window],
        not_done=replay.not_done[window],
        next_obs=_observations(replay, slots, range(horizon, horizon + 1))[0],
    )


def mean_abs_reward(replay: Replay) -> Float[Array, ""]:
    """Mean |reward| over the transitions in the buffer, at least 1e-8: MR.Q's reward scale."""
    is_transition = replay.priority.reshape(-1)[: replay.spec.capacity] > 0
    size = jnp.sum(jnp.where(is_transition, jnp.abs(replay.reward), 0.0))
    return jnp.maximum(size / jnp.maximum(jnp.sum(is_transition), 1), 1e-8)


def _window(replay: Replay, slots: Int[Array, "B"], horizon: int) -> Int[Array, "H B"]:
    return (slots[None] + jnp.arange(horizon)[:, None]) % replay.spec.capacity


def _observations(replay: Replay, slots: Int[Array, "B"], steps: range) -> Array:
    """The (stacked) observations at the given steps after each slot, [steps, B, *obs].

    Frames that neighbouring stacks share are read once. At an episode's start the first frame fills the stack.
    """
    spec = replay.spec
    oldest = steps[0] - (spec.history - 1)
    offsets = jnp.arange(oldest, steps[-1] + 1)
    first = -replay.frames_before[slots].astype(jnp.int32)
    frames = replay.obs[(slots[None] + jnp.maximum(offsets[:, None], first[None])) % spec.capacity]
    if spec.history == 1:
        return frames
    # Frames become channels of one observation, oldest first.
    return jnp.stack([jnp.concatenate(list(frames[i : i + spec.history]), axis=1) for i in range(len(steps))])
