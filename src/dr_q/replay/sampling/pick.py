"""Picking slots by weight without walking the storage: a group of rows, then a row, then a slot.

Each pick has a uniform number of its own: one float32 number has too few digits to distinguish a million slots.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from dr_q.replay.storage import ROW


def pick_slots(
    key: Key[Array, ""],
    count: int,
    groups: Float[Array, "G"],
    rows_of: Callable[[Int[Array, "N"]], Float[Array, "N 128"]],
    slots_of: Callable[[Int[Array, "N"]], Float[Array, "N 128"]],
) -> Int[Array, "count"]:
    """Slots with chances proportional to their weights.

    Args:
        key: Decides the picks.
        count: How many.
        groups: Weight of each group.
        rows_of: Weights of the rows in each of some groups.
        slots_of: Weights of the slots in each of some rows.
    """
    u_group, u_row, u_slot = jax.random.uniform(key, (3, count))
    group = pick(jnp.broadcast_to(groups, (count, groups.size)), u_group)
    row = group * ROW + pick(rows_of(group), u_row)
    return row * ROW + pick(slots_of(row), u_slot)


def pick(weight: Float[Array, "N K"], uniform: Float[Array, "N"]) -> Int[Array, "N"]:
    """An index of each row with chance proportional to its weight; never one of weight 0 unless all are."""
    running = jnp.cumsum(weight, axis=-1)
    positive = weight > 0
    passed = (running > uniform[:, None] * running[:, -1:]) & positive
    last_positive = weight.shape[-1] - 1 - jnp.argmax(positive[:, ::-1], axis=-1)
    # Rounding may leave no running sum above the threshold: then it is the last entry's turn.
    return jnp.where(jnp.any(passed, axis=-1), jnp.argmax(passed, axis=-1), last_positive).astype(jnp.int32)


def pick_probability(
    groups: Float[Array, "G"], rows: Float[Array, "G 128"], slots: Float[Array, "R 128"]
) -> Float[Array, "slots"]:
    """The chance that `pick_slots` gives each slot: the product of its three picks."""
    picks = _share(groups)[:, None, None] * _share(rows)[:, :, None] * _share(slots).reshape(*rows.shape, -1)
    return picks.reshape(-1)


def total(x: Float[Array, "*N K"]) -> Float[Array, "*N"]:
    """Sum over the last axis in an order that batching does not change."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x[..., 0]


def _share(weight: Float[Array, "*N K"]) -> Float[Array, "*N K"]:
    whole = jnp.sum(weight, axis=-1, keepdims=True)
    return weight / jnp.where(whole > 0, whole, 1.0)
