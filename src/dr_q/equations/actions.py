"""Actions with noise (Eq. 11). Noise comes in as standard normal draws, so that these functions are exact."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def target_action(
    action: Float[Array, "B A"], standard_normal: Float[Array, "B A"], noise: float, noise_clip: float
) -> Float[Array, "B A"]:
    """The target actor's action with clipped noise, clipped to [-1, 1] (Eq. 11)."""
    return jnp.clip(action + jnp.clip(noise * standard_normal, -noise_clip, noise_clip), -1, 1)


def exploration_action(
    action: Float[Array, "*B A"], standard_normal: Float[Array, "*B A"], noise: float
) -> Float[Array, "*B A"]:
    """The online actor's action with noise, clipped to [-1, 1].

    Eq. 11 writes the target actor and clipped noise here too; the code that made the paper's curves has neither.
    """
    return jnp.clip(action + noise * standard_normal, -1, 1)
