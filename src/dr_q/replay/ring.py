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


def sample_subtrajectory(
    replay: Replay, slots: Int[Array, "B"], horizon: int, frames: Array | None = None
) -> Subtrajectory:
    """The windows of `horizon` transitions that start at `slots`.

    `frames` are those of `subtrajectory_frames`, where the replay does not hold them itself.
    """
    window = _window(replay, slots, horizon)
    frames = _read(replay, subtrajectory_frames(replay, slots, horizon), frames)
    obs = _stack(replay, frames, horizon + 1)
    return Subtrajectory(obs, replay.action[window], replay.reward[window], replay.not_done[window])


def sample_n_step(replay: Replay, slots: Int[Array, "B"], horizon: int, frames: Array | None = None) -> NStepBatch:
    """First and last observation of the windows that start at `slots`, the first action, all rewards.

    `frames` are those of `n_step_frames`, where the replay does not hold them itself.
    """
    window = _window(replay, slots, horizon)
    frames = _read(replay, n_step_frames(replay, slots, horizon), frames)
    first, last = jnp.split(frames, 2)
    return NStepBatch(
        obs=_stack(replay, first, 1)[0],
        action=replay.action[slots],
        reward=replay.reward[window],
        not_done=replay.not_done[window],
        next_obs=_stack(replay, last, 1)[0],
    )


def subtrajectory_frames(replay: Replay, slots: Int[Array, "B"], horizon: int) -> Int[Array, "F B"]:
    """The slots whose frames `sample_subtrajectory` reads; those that neighbouring stacks share are read once."""
    return _frame_slots(replay, slots, range(horizon + 1))


def n_step_frames(replay: Replay, slots: Int[Array, "B"], horizon: int) -> Int[Array, "F B"]:
    """The slots whose frames `sample_n_step` reads."""
    ends = [_frame_slots(replay, slots, range(step, step + 1)) for step in (0, horizon)]
    return jnp.concatenate(ends)


def mean_abs_reward(replay: Replay) -> Float[Array, ""]:
    """Mean |reward| over the transitions in the buffer, at least 1e-8: MR.Q's reward scale."""
    is_transition = replay.priority.reshape(-1)[: replay.spec.capacity] > 0
    size = jnp.sum(jnp.where(is_transition, jnp.abs(replay.reward), 0.0))
    return jnp.maximum(size / jnp.maximum(jnp.sum(is_transition), 1), 1e-8)


def _window(replay: Replay, slots: Int[Array, "B"], horizon: int) -> Int[Array, "H B"]:
    return (slots[None] + jnp.arange(horizon)[:, None]) % replay.spec.capacity


def _frame_slots(replay: Replay, slots: Int[Array, "B"], steps: range) -> Int[Array, "F B"]:
    """Slots of the frames in the stacks at the given steps. At an episode's start the first frame fills the stack."""
    spec = replay.spec
    oldest = steps[0] - (spec.history - 1)
    offsets = jnp.arange(oldest, steps[-1] + 1)
    first = -replay.frames_before[slots].astype(jnp.int32)
    return (slots[None] + jnp.maximum(offsets[:, None], first[None])) % spec.capacity


def _read(replay: Replay, frame_slots: Int[Array, "F B"], frames: Array | None) -> Array:
    if frames is not None:
        return frames
    if replay.obs is None:
        raise ValueError("this replay's frames are kept elsewhere; pass them as `frames`")
    return replay.obs[frame_slots]


def _stack(replay: Replay, frames: Array, steps: int) -> Array:
    """Observations [steps, B, *obs] of [steps + history - 1, B, *frame]; frames become channels, oldest first."""
    history = replay.spec.history
    if history == 1:
        return frames
    return jnp.stack([jnp.concatenate(list(frames[i : i + history]), axis=1) for i in range(steps)])
