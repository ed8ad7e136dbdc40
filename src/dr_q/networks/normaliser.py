"""Running mean and variance of the numbers in observations (`normalise_observations`); ours, not the paper's."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from dr_q.config import NORMALISE_ALL, NORMALISE_NONE
from dr_q.kit import ConfigError, spelled
from dr_q.spaces import ObsSpec, Vector

EPSILON = 1e-8
"""Added to a variance: a number that never changed has none."""
LARGEST = 10.0
"""Normalised numbers are clipped to +- this."""


class Normaliser(eqx.Module):
    """Running mean and variance of the vectors that are normalised. One-hot entries keep mean 0 and variance 1."""

    count: Float[Array, "1"]
    """Number of observations seen; a vector, because files of policies hold no single numbers."""
    mean: dict[str, Float[Array, "n"]]
    """Mean by part; of one step if the part is stacked."""
    variance: dict[str, Float[Array, "n"]]
    """Variance by part; of one step if the part is stacked."""

    @staticmethod
    def init(obs: ObsSpec, which: str) -> "Normaliser | None":
        """A fresh normaliser for the parts that the setting `normalise_observations` names.

        Args:
            obs: The parts of an observation.
            which: The setting: `"none"`, `"all"`, or names of parts with commas between.

        Returns:
            The normaliser; None if no part is normalised.

        Raises:
            ConfigError: There is no such part, or it is an image.
        """
        vectors = [name for name, part in obs.parts if isinstance(part, Vector)]
        if which == NORMALISE_NONE or (which == NORMALISE_ALL and not vectors):
            return None
        names = vectors if which == NORMALISE_ALL else [name.strip() for name in which.split(",")]
        for name in names:
            if name not in vectors:
                allowed = ", ".join(vectors) or "none: all are images"
                allowed += "" if obs.images else " (without images an observation is one part)"
                raise ConfigError(
                    f"{spelled('normalise_observations')} names '{name}'; parts that can be normalised: {allowed}; "
                    f"or give {NORMALISE_ALL}"
                )
        sizes = {name: obs[name].frame_shape for name in names}
        return Normaliser(
            jnp.zeros(1),
            {name: jnp.zeros(size) for name, size in sizes.items()},
            {name: jnp.ones(size) for name, size in sizes.items()},
        )

    def add(self, obs: ObsSpec, frame: dict[str, Array]) -> "Normaliser":
        """The normaliser with one more observation (Welford's algorithm).

        Args:
            obs: The parts of an observation.
            frame: The newest step of the observation, by part.

        Returns:
            The new normaliser.
        """
        count = self.count + 1
        means, variances = {}, {}
        for name, mean in self.mean.items():
            part, x = obs[name], frame[name]
            assert isinstance(part, Vector)
            new_mean = mean + (x - mean) / count
            old = jnp.where(self.count > 0, self.variance[name], 0.0)
            new = old + ((x - mean) * (x - new_mean) - old) / count
            means[name] = jnp.where(part.is_number, new_mean, 0.0)
            variances[name] = jnp.where(part.is_number, new, 1.0)
        return Normaliser(count, means, variances)

    def __call__(self, obs: dict[str, Any]) -> dict[str, Any]:
        """Normalise observations, and clip them to +-10.

        Args:
            obs: Observations by part, with any leading axes.

        Returns:
            The observations; parts that are not normalised stay as they are.
        """
        return {**obs, **{name: self._normalised(name, obs[name]) for name in self.mean}}

    def _normalised(self, name: str, x: Float[Array, "*B m"]) -> Float[Array, "*B m"]:
        mean, variance = self.mean[name], self.variance[name]
        steps = x.shape[-1] // mean.size
        mean, variance = (jnp.broadcast_to(jnp.tile(y, steps), x.shape) for y in (mean, variance))
        scaled = (x - mean) / jnp.sqrt(variance + EPSILON)
        return jnp.clip(scaled, -LARGEST, LARGEST)
