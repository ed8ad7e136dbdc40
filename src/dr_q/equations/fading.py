"""Faded prioritised replay: how much a transition's age takes from its chance to be drawn (Eqs. 4 and 10)."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

NEVER = 2**31 - 1
"""An age no transition reaches."""


def fade_power(age: Int[Array, "..."], decay: float) -> Float[Array, "..."]:
    """(1 - decay)^age."""
    return jnp.exp(age * math.log1p(-decay))


def fade_weight(age: Int[Array, "..."], decay: float, floor: float) -> Float[Array, "..."]:
    """max(floor, (1 - decay)^age), age counted in transitions added since (Eq. 10; Eq. 4 with floor 0)."""
    return jnp.maximum(floor, fade_power(age, decay))


def floor_age(decay: float, floor: float) -> int:
    """The age from which `fade_weight` is its floor: 23,025 with the paper's values; `NEVER` if none."""
    if floor >= 1:
        return 0
    if decay == 0 or floor == 0:
        return NEVER
    return min(NEVER, math.ceil(math.log(floor) / math.log1p(-decay)))


def faded_probability(
    priority: Float[Array, "N"], age: Int[Array, "N"], valid: Bool[Array, "N"], decay: float, floor: float
) -> Float[Array, "N"]:
    """Chance of each transition to be drawn: priority x fade weight x valid, normalised (Eq. 10).

    The definition, which walks every entry. `dr_q.replay.draw` draws from it without doing so.
    """
    weight = jnp.where(valid, priority * fade_weight(age, decay, floor), 0.0)
    return weight / jnp.sum(weight)
