"""The actor pi."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from dr_q.config import Activation
from dr_q.networks.layers import MLP


class Actor(eqx.Module):
    """z_s -> action in [-1, 1]."""

    mlp: MLP

    @staticmethod
    def init(key: Key[Array, ""], zs_dim: int, action_dim: int, hidden: int, activation: Activation) -> "Actor":
        """An actor with two hidden layers."""
        return Actor(MLP.init(key, zs_dim, hidden, action_dim, activation))

    def pre_tanh(self, z_s: Float[Array, "B zs"]) -> Float[Array, "B A"]:
        """The action before it is squashed."""
        return self.mlp(z_s)

    def __call__(self, z_s: Float[Array, "B zs"]) -> Float[Array, "B A"]:
        """The deterministic action."""
        return jnp.tanh(self.pre_tanh(z_s))
