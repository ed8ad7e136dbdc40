"""Sums of sampling weights over rows of slots and groups of rows, that stay right as everything ages.

A transition younger than the floor age has weight mass * d^age, an older one mass * floor. A young sum is kept
relative to the newest stamp in it, so that one factor d^(age of that stamp) brings it up to date: time passing costs
nothing, and no decayed array exists. Only a transition that crosses the floor age moves from `young` to `old`.

Every sum is computed anew from what is under it, never adjusted: no rounding error builds up.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dr_q.equations import fade_power
from dr_q.replay.sampling.pick import total


class Sums(eqx.Module):
    """Sampling weight of each of N nodes (rows, or groups of rows)."""

    young: Float[Array, "*N"]
    """Sum of mass * d^(newest - stamp) over transitions younger than the floor age."""
    old: Float[Array, "*N"]
    """Sum of mass over the others."""
    newest: Int[Array, "*N"]
    """Newest stamp in the node."""

    @staticmethod
    def zeros(nodes: int) -> "Sums":
        """Nodes without any weight."""
        return Sums(jnp.zeros(nodes), jnp.zeros(nodes), jnp.zeros(nodes, jnp.int32))

    def weight(self, clock: Int[Array, ""], decay: float, floor: float) -> Float[Array, "*N"]:
        """Each node's weight when `clock` transitions have been added."""
        return self.young * fade_power(clock - 1 - self.newest, decay) + floor * self.old


def sum_slots(
    mass: Float[Array, "N 128"],
    stamp: Int[Array, "N 128"],
    clock: Int[Array, ""],
    decay: float,
    floor_age: int,
) -> Sums:
    """Sums of N rows from their slots; `mass` is the priority where a window may start, 0 elsewhere."""
    newest = jnp.max(stamp, axis=-1)
    young = clock - 1 - stamp < floor_age
    faded = mass * fade_power(newest[:, None] - stamp, decay)
    return Sums(total(jnp.where(young, faded, 0.0)), total(jnp.where(young, 0.0, mass)), newest)


def sum_rows(rows: Sums, decay: float) -> Sums:
    """Sums of N groups from [N, 128] rows."""
    newest = jnp.max(rows.newest, axis=-1)
    faded = rows.young * fade_power(newest[:, None] - rows.newest, decay)
    return Sums(total(faded), total(rows.old), newest)
