"""Actions with noise (Eq. 11). Noise comes in as standard normal or Gumbel draws, so that these functions are exact.

Discrete actions are one-hot vectors, joined where there are several choices at once; `choices` says how many values
each choice has.
"""

from collections.abc import Callable

import jax
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


def gumbel_softmax(
    logits: Float[Array, "*B A"], gumbel: Float[Array, "*B A"], temperature: float, choices: tuple[int, ...]
) -> Float[Array, "*B A"]:
    """A soft sample of each choice: softmax((logits + gumbel) / temperature)."""
    return _by_choice(lambda x: jax.nn.softmax(x, axis=-1), (logits + gumbel) / temperature, choices)


def best_choice(x: Float[Array, "*B A"], choices: tuple[int, ...]) -> Float[Array, "*B A"]:
    """One-hot vectors of the largest entry of each choice."""
    return _by_choice(lambda part: jax.nn.one_hot(jnp.argmax(part, axis=-1), part.shape[-1]), x, choices)


def discrete_target_action(
    soft: Float[Array, "B A"],
    standard_normal: Float[Array, "B A"],
    noise: float,
    noise_clip: float,
    choices: tuple[int, ...],
) -> Float[Array, "B A"]:
    """The target actor's soft sample with clipped noise, made one-hot (Eq. 11 for discrete actions)."""
    return best_choice(soft + jnp.clip(noise * standard_normal, -noise_clip, noise_clip), choices)


def discrete_exploration_action(
    soft: Float[Array, "*B A"], standard_normal: Float[Array, "*B A"], noise: float, choices: tuple[int, ...]
) -> Float[Array, "*B A"]:
    """The online actor's soft sample with noise, made one-hot."""
    return best_choice(soft + noise * standard_normal, choices)


def _by_choice(function: Callable[[Array], Array], x: Float[Array, "*B A"], choices: tuple[int, ...]) -> Array:
    """What the function gives for each choice's own entries, joined again."""
    if len(choices) == 1:
        return function(x)
    ends = [sum(choices[: i + 1]) for i in range(len(choices) - 1)]
    return jnp.concatenate([function(part) for part in jnp.split(x, ends, axis=-1)], axis=-1)
