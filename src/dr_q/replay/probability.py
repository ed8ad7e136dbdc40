"""Drawing starts by Eq. 10 without walking the buffer, and writing priorities.

A draw picks a group of rows, then a row, then a slot, each with a uniform number of its own: one float32 number has
too few digits to tell a million slots apart.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from dr_q.replay.state import Replay
from dr_q.replay.sums import BRANCHING, Sums, power, sum_rows, sum_slots


def draw(replay: Replay, key: Key[Array, ""], count: int) -> Int[Array, "count"]:
    """Starts of windows, independent and with replacement, with the probabilities of Eq. 10.

    Only valid starts are drawn; -1 where the replay has none (see `has_valid_start`).
    """
    spec = replay.spec
    u_group, u_row, u_slot = jax.random.uniform(key, (3, count))
    groups = replay.group_sums.weight(replay.clock, spec.fade_decay, spec.fade_floor)
    group = _pick(jnp.broadcast_to(groups, (count, spec.groups)), u_group)
    rows = _rows_of(replay.row_sums, group).weight(replay.clock, spec.fade_decay, spec.fade_floor)
    row = group * BRANCHING + _pick(rows, u_row)
    slot = row * BRANCHING + _pick(_slot_weight(replay, row), u_slot)
    return jnp.where(has_valid_start(replay), slot, -1)


def has_valid_start(replay: Replay) -> Bool[Array, ""]:
    """Whether anything can be drawn yet. Episodes truncated within the horizon never give a start."""
    return jnp.any((replay.group_sums.young > 0) | (replay.group_sums.old > 0))


def age(replay: Replay, slots: Int[Array, "B"]) -> Int[Array, "B"]:
    """Transitions added since those at `slots`; 0 for the newest."""
    return replay.clock - 1 - replay.stamp[slots // BRANCHING, slots % BRANCHING]


def floored_share(replay: Replay) -> Float[Array, ""]:
    """The share of the sampling probability that transitions at the fade floor have."""
    spec = replay.spec
    whole = jnp.sum(replay.group_sums.weight(replay.clock, spec.fade_decay, spec.fade_floor))
    return spec.fade_floor * jnp.sum(replay.group_sums.old) / jnp.where(whole > 0, whole, 1.0)


def probability(replay: Replay) -> Float[Array, "capacity"]:
    """The chance that `draw` gives each slot: the product of its three picks.

    For tests and analysis: it walks the buffer.
    """
    spec = replay.spec
    groups = replay.group_sums.weight(replay.clock, spec.fade_decay, spec.fade_floor)
    every_group = _rows_of(replay.row_sums, jnp.arange(spec.groups))
    rows = every_group.weight(replay.clock, spec.fade_decay, spec.fade_floor)
    slots = _slot_weight(replay, jnp.arange(spec.rows))
    picks = _share(groups)[:, None, None] * _share(rows)[:, :, None] * _share(slots).reshape(*rows.shape, -1)
    return picks.reshape(-1)[: spec.capacity]


def write_priority(replay: Replay, slots: Int[Array, "B"], priority: Float[Array, "B"]) -> Replay:
    """Give the transitions at `slots` new priorities; of several for one slot the largest."""
    row, column = slots // BRANCHING, slots % BRANCHING
    cleared = replay.priority.at[row, column].set(0.0)
    return sum_again(
        dataclasses.replace(
            replay,
            priority=cleared.at[row, column].max(priority),
            max_priority=jnp.maximum(replay.max_priority, jnp.max(priority)),
        ),
        row,
    )


def sum_again(replay: Replay, rows: Int[Array, "N"]) -> Replay:
    """Compute the sums of `rows`, and of the groups they are in, from what is under them."""
    spec = replay.spec
    mass = jnp.where(replay.valid[rows], replay.priority[rows], 0.0)
    new = sum_slots(mass, replay.stamp[rows], replay.clock, spec.fade_decay, spec.floor_age)
    row_sums = _put(replay.row_sums, rows, new)
    groups = rows // BRANCHING
    group_sums = _put(replay.group_sums, groups, sum_rows(_rows_of(row_sums, groups), spec.fade_decay))
    return dataclasses.replace(replay, row_sums=row_sums, group_sums=group_sums)


def _slot_weight(replay: Replay, rows: Int[Array, "N"]) -> Float[Array, "N 128"]:
    spec = replay.spec
    age = replay.clock - 1 - replay.stamp[rows]
    fade = jnp.where(age < spec.floor_age, power(age, spec.fade_decay), spec.fade_floor)
    return jnp.where(replay.valid[rows], replay.priority[rows] * fade, 0.0)


def _pick(weight: Float[Array, "N K"], uniform: Float[Array, "N"]) -> Int[Array, "N"]:
    """An index of each row with chance proportional to its weight; never one of weight 0 unless all are."""
    running = jnp.cumsum(weight, axis=-1)
    positive = weight > 0
    passed = (running > uniform[:, None] * running[:, -1:]) & positive
    last_positive = weight.shape[-1] - 1 - jnp.argmax(positive[:, ::-1], axis=-1)
    # Rounding may leave no running sum above the threshold: then it is the last entry's turn.
    return jnp.where(jnp.any(passed, axis=-1), jnp.argmax(passed, axis=-1), last_positive).astype(jnp.int32)


def _share(weight: Float[Array, "*N K"]) -> Float[Array, "*N K"]:
    whole = jnp.sum(weight, axis=-1, keepdims=True)
    return weight / jnp.where(whole > 0, whole, 1.0)


def _rows_of(rows: Sums, groups: Int[Array, "N"]) -> Sums:
    return jax.tree.map(lambda x: x.reshape(-1, BRANCHING)[groups], rows)


def _put(sums: Sums, nodes: Int[Array, "N"], new: Sums) -> Sums:
    return jax.tree.map(lambda x, y: x.at[nodes].set(y), sums, new)
