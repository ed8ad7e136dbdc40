"""Adding a transition to the ring."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from dr_q.replay.probability import sum_again
from dr_q.replay.state import Replay, Transition
from dr_q.replay.sums import BRANCHING


def add(replay: Replay, transition: Transition) -> Replay:
    """Store one transition and, at an episode's end, its final observation; renew which starts are valid."""
    spec = replay.spec
    done = transition.terminated | transition.truncated
    here = replay.cursor
    final = (here + 1) % spec.capacity
    final_or_none = jnp.where(done, final, spec.rows * BRANCHING)  # past the end of every array: not written
    steps = replay.episode_steps + 1
    stack = spec.history - 1
    cursor = (here + 1 + done) % spec.capacity
    written = dataclasses.replace(
        replay,
        obs=None if replay.obs is None else _at(replay.obs, here, transition.obs, final_or_none, transition.next_obs),
        action=replay.action.at[here].set(transition.action),
        reward=replay.reward.at[here].set(transition.reward),
        not_done=replay.not_done.at[here].set(1.0 - transition.terminated),
        frames_before=_at(
            replay.frames_before,
            here,
            jnp.minimum(replay.episode_steps, stack).astype(jnp.uint8),
            final_or_none,
            jnp.minimum(steps, stack).astype(jnp.uint8),
        ),
        priority=_at_slot(replay.priority, here, replay.max_priority, final_or_none, 0.0),
        stamp=_at_slot(replay.stamp, here, replay.clock, final_or_none, replay.clock),
        valid=_renew_valid(replay, transition, done),
        cursor=cursor,
        size=jnp.maximum(replay.size, jnp.where(final_or_none == 0, spec.capacity, here + 1 + done)),
        clock=replay.clock + 1,
        episode_steps=jnp.where(done, 0, steps),
        has_terminated=replay.has_terminated | transition.terminated,
    )
    floor_slot, crossed = _pass_floor(replay, written, done)
    touched = jnp.concatenate([_touched(replay), crossed])
    return sum_again(dataclasses.replace(written, floor_slot=floor_slot), touched // BRANCHING)


def _touched(replay: Replay) -> Int[Array, "touched"]:
    """Slots whose validity an addition at the cursor can change."""
    offsets = jnp.arange(-replay.spec.horizon, replay.spec.history + 1)
    return (replay.cursor + offsets) % replay.spec.capacity


def _renew_valid(replay: Replay, transition: Transition, done: Bool[Array, ""]) -> Bool[Array, "rows 128"]:
    """Validity of every start after the addition.

    A start is valid once the transition `horizon` later of its episode is there, or once its episode terminates
    within its window. What is overwritten is not, nor are stacks whose older frames are.
    """
    horizon, history = replay.spec.horizon, replay.spec.history
    offset = jnp.arange(-horizon, history + 1)
    slots = _touched(replay)
    row, column = slots // BRANCHING, slots % BRANCHING
    steps = replay.episode_steps + 1
    completed = (offset == -horizon) & (steps > horizon)
    # D3: terminated and truncated at once counts as terminated.
    ended = transition.terminated & (offset > -horizon) & (offset <= 0) & (-offset < steps)
    overwritten = (offset >= 0) & (offset < history + done)
    valid = (replay.valid[row, column] & ~overwritten) | completed | ended
    return replay.valid.at[row, column].set(valid)


def _pass_floor(before: Replay, after: Replay, done: Bool[Array, ""]) -> tuple[Int[Array, ""], Int[Array, "2"]]:
    """Move `floor_slot` past what has now reached the floor age; also the slots that may have crossed.

    An addition ages everything by one, and a stamp belongs to two slots at most: a transition and a final observation.
    """
    capacity = before.spec.capacity
    here, final = before.cursor, (before.cursor + 1) % capacity
    slot = before.floor_slot
    lapped = ((slot == here) & (here < before.size)) | (done & (slot == final) & (final < before.size))
    slot = jnp.where(lapped, after.cursor, slot)
    crossed = jnp.stack([slot, (slot + 1) % capacity])
    for _ in range(2):
        age = after.clock - 1 - after.stamp[slot // BRANCHING, slot % BRANCHING]
        passes = (age >= before.spec.floor_age) & (slot != after.cursor)
        slot = jnp.where(passes, (slot + 1) % capacity, slot)
    return slot, crossed


def _at(array: Array, here: Int[Array, ""], x: Array, final: Int[Array, ""], y: Array) -> Array:
    return array.at[here].set(x).at[final].set(y, mode="drop")


def _at_slot(array: Array, here: Int[Array, ""], x: Array, final: Int[Array, ""], y: Array | float) -> Array:
    written = array.at[here // BRANCHING, here % BRANCHING].set(x)
    return written.at[final // BRANCHING, final % BRANCHING].set(y, mode="drop")
