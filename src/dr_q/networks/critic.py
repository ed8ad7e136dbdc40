"""The twin critics Q1, Q2."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from dr_q.config import Activation
from dr_q.equations import huber, td_error
from dr_q.networks.layers import MLP, Linear, padded_width

CRITICS = 2


class Critic(eqx.Module):
    """z_sa -> scalar: Linear(activation(LayerNorm(MLP(z_sa))))."""

    mlp: MLP
    output: Linear

    @staticmethod
    def from_parts(mlp: MLP, output: Linear) -> "Critic":
        """A critic of an MLP and a Linear of their true sizes."""
        width = output.weight.shape[1]
        stored = padded_width(width)
        padded = dataclasses.replace(mlp, output=mlp.output.padded(mlp.output.weight.shape[1], stored))
        return Critic(padded, output.padded(stored, 1))

    @staticmethod
    def init(key: Key[Array, ""], zsa_dim: int, hidden: int, activation: Activation) -> "Critic":
        """One critic."""
        key_mlp, key_output = jax.random.split(key)
        mlp = MLP.init(key_mlp, zsa_dim, hidden, hidden, activation)
        return Critic.from_parts(mlp, Linear.init(key_output, hidden, 1))

    def __call__(self, z_sa: Float[Array, "B zsa"]) -> Float[Array, "B"]:
        """The value of each state-action."""
        return self.output(self.mlp.normed(z_sa, self.mlp.width))[:, 0]


class TwinCritic(eqx.Module):
    """Two independent critics, stacked along a leading axis of every weight."""

    stacked: Critic
    """A critic whose arrays have a leading axis of critics."""

    @staticmethod
    def init(key: Key[Array, ""], zsa_dim: int, hidden: int, activation: Activation) -> "TwinCritic":
        """Two fresh critics with weights of their own.

        Args:
            key: Decides the initial weights.
            zsa_dim: Size of z_sa.
            hidden: Width of the hidden layers.
            activation: `"elu"` or `"relu"`.

        Returns:
            The critics.
        """
        keys = jax.random.split(key, CRITICS)
        return TwinCritic(jax.vmap(lambda k: Critic.init(k, zsa_dim, hidden, activation))(keys))

    def __call__(self, z_sa: Float[Array, "B zsa"]) -> Float[Array, "B critics"]:
        """Both critics' values of each state-action.

        Args:
            z_sa: Latent state-actions.

        Returns:
            A value for each sample and critic.
        """
        # Broadcast, not shared: XLA makes one wide product of a shared input and transposes the weights for it.
        both = jnp.broadcast_to(z_sa, (CRITICS, *z_sa.shape))
        return jax.vmap(lambda critic, z: critic(z), out_axes=-1)(self.stacked, both)

    def loss(
        self, z_sa: Float[Array, "B zsa"], target: Float[Array, "B"]
    ) -> tuple[Float[Array, ""], Float[Array, "B critics"]]:
        """Huber loss over the batch and both critics (Eq. 13).

        Args:
            z_sa: Latent state-actions.
            target: The value that the critics regress to.

        Returns:
            The loss, and the critics' values.
        """
        q = self(z_sa)
        return jnp.mean(huber(q - target[:, None])), q

    @staticmethod
    def td_error(q: Float[Array, "B critics"], target: Float[Array, "B"]) -> Float[Array, "B"]:
        """The absolute TD error of each sample, the larger one of both critics (Eq. 10).

        Args:
            q: The critics' values.
            target: The value that the critics regress to.

        Returns:
            A TD error for each sample.
        """
        return td_error(q, target)
