"""Two-hot encoding of a scalar over symexp-spaced bins: the reward head's target (Eq. 6)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def symexp(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Symmetric exponential, sign(x)(e^|x| - 1)."""
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))


def reward_bins(lower: float, upper: float, count: int) -> Float[Array, "bins"]:
    """Bin centres symexp(linspace(lower, upper))."""
    return symexp(jnp.linspace(lower, upper, count))


def two_hot(x: Float[Array, "B"], bins: Float[Array, "bins"]) -> Float[Array, "B bins"]:
    """Weights on the two bins around x, linear in x, so that their mean is x.

    D2: an x outside the bins goes wholly to the end bin.
    """
    x = jnp.clip(x, bins[0], bins[-1])
    # Compared with every bin: the default search is a loop, which costs a GPU ten times as much.
    lower = jnp.clip(jnp.searchsorted(bins, x, side="right", method="compare_all") - 1, 0, bins.size - 2)
    weight = (x - bins[lower]) / (bins[lower + 1] - bins[lower])
    at_lower = jax.nn.one_hot(lower, bins.size)
    at_upper = jax.nn.one_hot(lower + 1, bins.size)
    return at_lower * (1 - weight)[:, None] + at_upper * weight[:, None]


def two_hot_mean(logits: Float[Array, "B bins"], bins: Float[Array, "bins"]) -> Float[Array, "B"]:
    """The scalar that a distribution over bins stands for: its mean."""
    return jax.nn.softmax(logits) @ bins
