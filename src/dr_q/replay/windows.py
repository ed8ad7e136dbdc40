"""Reading windows off the storage: sub-trajectories for the encoder, n-step samples for the critics."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dr_q.replay.storage import Storage

Frames = dict[str, Array]
"""Frames of each part, [F, B, *frame], or the slots they are at, [F, B]."""


class Subtrajectory(NamedTuple):
    """Windows of H consecutive transitions, time first. Steps after a termination inside a window have no meaning."""

    obs: dict[str, Array]
    """Observations s_0 .. s_H by part, [H + 1, B, *obs]; s_{t+1} is the true next observation of step t (D8)."""
    action: Float[Array, "H B A"]
    reward: Float[Array, "H B"]
    not_done: Float[Array, "H B"]


class NStepBatch(NamedTuple):
    """The ends of windows of H transitions, with the rewards between."""

    obs: dict[str, Array]
    """Observation at the start by part, [B, *obs]."""
    action: Float[Array, "B A"]
    reward: Float[Array, "H B"]
    not_done: Float[Array, "H B"]
    next_obs: dict[str, Array]
    """Observation H steps later, [B, *obs]; without meaning where the window holds a termination."""


def sample_subtrajectory(
    storage: Storage, slots: Int[Array, "B"], horizon: int, frames: Frames | None = None
) -> Subtrajectory:
    """The windows of `horizon` transitions that start at `slots`.

    `frames` are those at `subtrajectory_frames`, where they are kept in host memory.
    """
    window = _window(storage, slots, horizon)
    frames = _read(storage, subtrajectory_frames(storage, slots, horizon), frames)
    obs = {name: _stack(x, storage.spec.obs[name].stack, horizon + 1) for name, x in frames.items()}
    return Subtrajectory(obs, storage.action[window], storage.reward[window], storage.not_done[window])


def sample_n_step(storage: Storage, slots: Int[Array, "B"], horizon: int, frames: Frames | None = None) -> NStepBatch:
    """First and last observation of the windows that start at `slots`, the first action, all rewards.

    `frames` are those at `n_step_frames`, where they are kept in host memory.
    """
    window = _window(storage, slots, horizon)
    frames = _read(storage, n_step_frames(storage, slots, horizon), frames)
    ends = {name: jnp.split(x, 2) for name, x in frames.items()}
    first, last = (
        {name: _stack(halves[i], storage.spec.obs[name].stack, 1)[0] for name, halves in ends.items()} for i in (0, 1)
    )
    return NStepBatch(
        obs=first,
        action=storage.action[slots],
        reward=storage.reward[window],
        not_done=storage.not_done[window],
        next_obs=last,
    )


def subtrajectory_frames(storage: Storage, slots: Int[Array, "B"], horizon: int) -> Frames:
    """The slots whose frames `sample_subtrajectory` reads; those that neighbouring stacks share are read once."""
    return {name: _frame_slots(storage, slots, range(horizon + 1), part.stack) for name, part in storage.spec.obs.parts}


def n_step_frames(storage: Storage, slots: Int[Array, "B"], horizon: int) -> Frames:
    """The slots whose frames `sample_n_step` reads."""
    return {
        name: jnp.concatenate(
            [_frame_slots(storage, slots, range(step, step + 1), part.stack) for step in (0, horizon)]
        )
        for name, part in storage.spec.obs.parts
    }


def _window(storage: Storage, slots: Int[Array, "B"], horizon: int) -> Int[Array, "H B"]:
    return storage.spec.later(slots[None], jnp.arange(horizon)[:, None])


def _frame_slots(storage: Storage, slots: Int[Array, "B"], steps: range, stack: int) -> Int[Array, "F B"]:
    """Slots of the frames in the stacks at the given steps. At an episode's start the first frame fills the stack."""
    oldest = steps[0] - (stack - 1)
    offsets = jnp.arange(oldest, steps[-1] + 1)
    first = -storage.frames_before[slots].astype(jnp.int32)
    return storage.spec.later(slots[None], jnp.maximum(offsets[:, None], first[None]))


def _read(storage: Storage, frame_slots: Frames, frames: Frames | None) -> Frames:
    if frames is not None:
        return frames
    if storage.obs is None:
        raise ValueError("this replay's frames are kept in host memory; pass them as `frames`")
    return jax.tree.map(lambda x, at: x[at], storage.obs, frame_slots)


def _stack(frames: Array, stack: int, steps: int) -> Array:
    """Observations [steps, B, *obs] of [steps + stack - 1, B, *frame]; frames become channels, oldest first."""
    if stack == 1:
        return frames
    return jnp.stack([jnp.concatenate(list(frames[i : i + stack]), axis=1) for i in range(steps)])
