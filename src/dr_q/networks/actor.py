"""The actor pi, for continuous and for discrete actions."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from dr_q.config import Activation
from dr_q.equations import best_choice, gumbel_softmax
from dr_q.networks.layers import MLP
from dr_q.spaces import ActionSpec, DiscreteActions


class Actor(eqx.Module):
    """The actor pi for continuous actions: from z_s to an action in [-1, 1]."""

    mlp: MLP
    """Two hidden layers and the output."""

    @staticmethod
    def init(key: Key[Array, ""], zs_dim: int, action_dim: int, hidden: int, activation: Activation) -> "Actor":
        """A fresh actor with two hidden layers.

        Args:
            key: Decides the initial weights.
            zs_dim: Size of z_s.
            action_dim: Size of an action.
            hidden: Width of the hidden layers.
            activation: `"elu"` or `"relu"`.

        Returns:
            The actor.
        """
        return Actor(MLP.init(key, zs_dim, hidden, action_dim, activation))

    def pre_activation(self, z_s: Float[Array, "B zs"]) -> Float[Array, "B A"]:
        """The action before tanh.

        Args:
            z_s: Latent states.

        Returns:
            Unbounded numbers.
        """
        return self.mlp(z_s)

    def __call__(self, z_s: Float[Array, "B zs"]) -> Float[Array, "B A"]:
        """The deterministic action.

        Args:
            z_s: Latent states.

        Returns:
            Actions in [-1, 1].
        """
        return jnp.tanh(self.pre_activation(z_s))


class DiscreteActor(eqx.Module):
    """The actor pi for discrete actions: from z_s to a one-hot action, joined if there are several choices."""

    mlp: MLP
    """Two hidden layers and the logits."""
    choices: tuple[int, ...] = eqx.field(static=True)
    """Number of values of each choice."""

    @staticmethod
    def init(
        key: Key[Array, ""], zs_dim: int, choices: tuple[int, ...], hidden: int, activation: Activation
    ) -> "DiscreteActor":
        """A fresh actor with two hidden layers.

        Args:
            key: Decides the initial weights.
            zs_dim: Size of z_s.
            choices: Number of values of each choice.
            hidden: Width of the hidden layers.
            activation: `"elu"` or `"relu"`.

        Returns:
            The actor.
        """
        return DiscreteActor(MLP.init(key, zs_dim, hidden, sum(choices), activation), choices)

    def pre_activation(self, z_s: Float[Array, "B zs"]) -> Float[Array, "B A"]:
        """The logits of every value of every choice.

        Args:
            z_s: Latent states.

        Returns:
            Logits.
        """
        return self.mlp(z_s)

    def sample(self, z_s: Float[Array, "B zs"], gumbel: Float[Array, "B A"], temperature: float) -> Float[Array, "B A"]:
        """A soft sample by Gumbel-softmax, through which gradients flow.

        Args:
            z_s: Latent states.
            gumbel: Standard Gumbel noise.
            temperature: Temperature of the softmax.

        Returns:
            For each choice, positive numbers that sum to 1.
        """
        return gumbel_softmax(self.pre_activation(z_s), gumbel, temperature, self.choices)

    def __call__(self, z_s: Float[Array, "B zs"]) -> Float[Array, "B A"]:
        """The deterministic action: the largest logit of each choice (D11).

        Args:
            z_s: Latent states.

        Returns:
            One-hot vectors, joined.
        """
        return best_choice(self.pre_activation(z_s), self.choices)


def init_actor(
    key: Key[Array, ""], zs_dim: int, action: ActionSpec, hidden: int, activation: Activation
) -> Actor | DiscreteActor:
    """A fresh actor for a kind of actions."""
    if isinstance(action, DiscreteActions):
        return DiscreteActor.init(key, zs_dim, action.choices, hidden, activation)
    return Actor.init(key, zs_dim, action.dim, hidden, activation)
