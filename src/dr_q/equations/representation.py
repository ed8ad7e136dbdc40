"""Losses that train the representation (Eqs. 6-8). Each returns one value per sample; the caller masks and averages."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dr_q.equations.two_hot import two_hot

_SMALLEST_NORM = 1e-12


def reward_cross_entropy(
    logits: Float[Array, "B bins"], reward: Float[Array, "B"], bins: Float[Array, "bins"]
) -> Float[Array, "B"]:
    """Cross entropy of the predicted reward distribution against the two-hot reward (Eq. 6)."""
    return -jnp.sum(two_hot(reward, bins) * jax.nn.log_softmax(logits), axis=-1)


def latent_mse(pred: Float[Array, "B D"], target: Float[Array, "B D"]) -> Float[Array, "B"]:
    """Squared error of the predicted next latent state, averaged over its dimensions (Eq. 7)."""
    return jnp.mean(jnp.square(pred - target), axis=-1)


def unit(x: Float[Array, "B D"]) -> Float[Array, "B D"]:
    """Rows scaled to length one; a zero row stays zero and its gradient finite."""
    squared_norm = jnp.sum(jnp.square(x), axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.maximum(squared_norm, _SMALLEST_NORM**2))


def infonce(pred: Float[Array, "B D"], target: Float[Array, "B D"], temperature: float) -> Float[Array, "B"]:
    """Contrastive loss of each prediction against its batch (Eq. 8).

    log B minus its mean is a lower bound on the mutual information of predictions and targets.
    """
    logits = unit(pred) @ unit(target).T / temperature
    own = jnp.eye(len(logits), dtype=bool)  # a sum with a mask, because the gradient of a diagonal is a slow scatter
    return -jnp.sum(jnp.where(own, jax.nn.log_softmax(logits), 0), axis=1)
