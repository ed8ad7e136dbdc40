"""Loss-adjusted priorities (the numerator of Eq. 10)."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def lap_priority(
    q: Float[Array, "B critics"], target: Float[Array, "B"], minimum: float, exponent: float
) -> Float[Array, "B"]:
    """max(|delta|, minimum)^exponent, delta the larger TD error of the critics (Eq. 10)."""
    td_error = jnp.max(jnp.abs(q - target[:, None]), axis=-1)
    return jnp.maximum(td_error, minimum) ** exponent
