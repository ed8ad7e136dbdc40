"""Reading windows off the storage: sub-trajectories for the encoder, n-step samples for the critics."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dr_q.equations import StoredImages
from dr_q.replay.storage import Storage

Frames = dict[str, Array]
"""Frames of each part, [F, B, *frame], or the slots they are at, [F, B]."""


class Subtrajectory(NamedTuple):
    """Windows of H consecutive transitions, time first. Steps after a termination inside a window have no meaning."""

    obs: dict[str, Any]
    """Observations s_0 to s_H by part, [H + 1, B, *obs]; s_{t+1} is the true next observation of step t (D8).

    Arrays, or `StoredImages` for the parts `in_place`."""
    action: Float[Array, "H B A"]
    """Actions in [-1, 1], or one-hot."""
    reward: Float[Array, "H B"]
    """Rewards."""
    not_done: Float[Array, "H B"]
    """0 where the step terminated its episode, 1 elsewhere."""


class NStepBatch(NamedTuple):
    """First and last observation of windows of H transitions, with the rewards between."""

    obs: dict[str, Any]
    """Observations at the start by part, [B, *obs]."""
    action: Float[Array, "B A"]
    """Actions at the start, in [-1, 1] or one-hot."""
    reward: Float[Array, "H B"]
    """Rewards of all H steps."""
    not_done: Float[Array, "H B"]
    """0 where the step terminated its episode, 1 elsewhere."""
    next_obs: dict[str, Any]
    """Observations H steps later, [B, *obs]. They have no meaning if the window contains a termination."""


def sample_subtrajectory(
    storage: Storage,
    slots: Int[Array, "B"],
    horizon: int,
    frames: Frames | None = None,
    in_place: Sequence[str] = (),
) -> Subtrajectory:
    """Read the windows of transitions that start at slots, for the encoder.

    Args:
        storage: The storage of a replay, `replay.storage`.
        slots: What `draw` returned.
        horizon: Transitions in a window, at most the replay's horizon.
        frames: Frames at the slots of `subtrajectory_frames`, for a replay whose frames are in host memory.
        in_place: Image parts whose frames are not read yet; the result has their `StoredImages`.

    Returns:
        The windows, time first.

    Raises:
        ValueError: The replay's frames are in host memory, and `frames` is not given.

    Example:
        ```python
        slots = dr_q.replay.draw(replay, jax.random.key(0), 256)
        windows = dr_q.replay.sample_subtrajectory(replay.storage, slots, horizon=5)
        print(windows.obs["obs"].shape)  # (6, 256, 17)
        ```
    """
    window = _window(storage, slots, horizon)
    at = subtrajectory_frames(storage, slots, horizon)
    read = _read(storage, {name: x for name, x in at.items() if name not in in_place}, frames)
    obs: dict[str, Any] = {name: _stack(x, storage.spec.obs[name].stack, horizon + 1) for name, x in read.items()}
    for name in in_place:
        obs[name] = _in_place(storage, name, at[name], frames, range(horizon + 1))
    return Subtrajectory(obs, storage.action[window], storage.reward[window], storage.not_done[window])


def sample_n_step(
    storage: Storage,
    slots: Int[Array, "B"],
    horizon: int,
    frames: Frames | None = None,
    in_place: Sequence[str] = (),
) -> NStepBatch:
    """Read n-step samples that start at slots, for the critics.

    Args:
        storage: The storage of a replay, `replay.storage`.
        slots: What `draw` returned.
        horizon: The number of steps n, at most the replay's horizon.
        frames: Frames at the slots of `n_step_frames`, for a replay whose frames are in host memory.
        in_place: Image parts whose frames are not read yet; the result has their `StoredImages`.

    Returns:
        First and last observations, first actions, and the rewards of all n steps.

    Raises:
        ValueError: The replay's frames are in host memory, and `frames` is not given.

    Example:
        ```python
        slots = dr_q.replay.draw(replay, jax.random.key(0), 256)
        sample = dr_q.replay.sample_n_step(replay.storage, slots, horizon=3)
        batch = dr_q.agent.critic_batch(config, sample)
        ```
    """
    window = _window(storage, slots, horizon)
    at = n_step_frames(storage, slots, horizon)
    read = _read(storage, {name: x for name, x in at.items() if name not in in_place}, frames)
    ends = {name: jnp.split(x, 2) for name, x in read.items()}
    both_ends: list[dict[str, Any]] = [
        {name: _stack(halves[i], storage.spec.obs[name].stack, 1)[0] for name, halves in ends.items()} for i in (0, 1)
    ]
    first, last = both_ends
    for name in in_place:
        stack = storage.spec.obs[name].stack
        both = _in_place(storage, name, at[name], frames, range(0, 2 * stack, stack))
        first[name], last[name] = both.at(0), both.at(1)
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
        return {name: frames[name] for name in frame_slots}
    if storage.obs is None:
        raise ValueError("this replay's frames are kept in host memory; pass them as `frames`")
    stored = storage.obs
    return {name: stored[name][at] for name, at in frame_slots.items()}


def _in_place(storage: Storage, name: str, at: Int[Array, "F B"], frames: Frames | None, starts: range) -> StoredImages:
    """The stacks that begin with these of the frames at [F, B] slots, where the frames are."""
    if frames is None:
        assert storage.obs is not None, "frames kept in host memory are given"
        stored = storage.obs[name]
    else:
        stored = frames[name].reshape(-1, *frames[name].shape[2:])
        at = jnp.arange(at.size, dtype=at.dtype).reshape(at.shape)
    stack = storage.spec.obs[name].stack
    slots = jnp.stack([jnp.stack(list(at[i : i + stack]), axis=-1) for i in starts])
    return StoredImages(stored, slots, jnp.zeros((*slots.shape[:-1], 2), jnp.int32))


def _stack(frames: Array, stack: int, steps: int) -> Array:
    """Observations [steps, B, *obs] of [steps + stack - 1, B, *frame]; frames become channels, oldest first."""
    if stack == 1:
        return frames
    return jnp.stack([jnp.concatenate(list(frames[i : i + stack]), axis=1) for i in range(steps)])
