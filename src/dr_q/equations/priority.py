"""Loss-adjusted priorities (the numerator of Eq. 10 without the fade weight)."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def td_error(q: Float[Array, "B critics"], target: Float[Array, "B"]) -> Float[Array, "B"]:
    """|delta|, the larger one of the critics' (Eq. 10)."""
    return jnp.max(jnp.abs(q - target[:, None]), axis=-1)


def lap_priority(td_error: Float[Array, "B"], minimum: float, exponent: float) -> Float[Array, "B"]:
    """max(|delta|, minimum)^exponent (Eq. 10)."""
    return jnp.maximum(td_error, minimum) ** exponent
