"""Multi-step returns and the critic's target and loss (Eq. 13)."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def alive_steps(not_done: Float[Array, "H B"]) -> Float[Array, "H B"]:
    """1 for every step up to and including the first termination of a window, 0 after it."""
    return jnp.concatenate([jnp.ones_like(not_done[:1]), jnp.cumprod(not_done, axis=0)[:-1]])


def n_step_return(
    reward: Float[Array, "H B"], not_done: Float[Array, "H B"], discount: float
) -> tuple[Float[Array, "B"], Float[Array, "B"]]:
    """Discounted reward sum up to a termination, and the discount of the bootstrap after it (Eq. 13).

    D7: the terminal reward counts, rewards after it do not, in every preset.
    """
    steps = reward.shape[0]
    gamma = discount ** jnp.arange(steps, dtype=reward.dtype)
    summed = jnp.sum(gamma[:, None] * alive_steps(not_done) * reward, axis=0)
    return summed, discount**steps * jnp.prod(not_done, axis=0)


def q_target(
    n_step_reward: Float[Array, "B"],
    n_step_discount: Float[Array, "B"],
    next_q: Float[Array, "B critics"],
    reward_scale: Float[Array, ""],
    target_reward_scale: Float[Array, ""],
) -> Float[Array, "B"]:
    """The value both critics regress to: n-step reward plus the smaller target Q (Eq. 13).

    Both scales are 1 but in MR.Q, whose critics learn in units of the mean absolute reward.
    """
    return (n_step_reward + n_step_discount * target_reward_scale * jnp.min(next_q, axis=-1)) / reward_scale


def huber(error: Float[Array, "..."]) -> Float[Array, "..."]:
    """Quadratic within +-1, linear outside (the critic loss of Eq. 13)."""
    size = jnp.abs(error)
    return jnp.where(size < 1, 0.5 * jnp.square(error), size - 0.5)
