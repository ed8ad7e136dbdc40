"""The actor pi, for continuous and for discrete actions."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from dr_q.config import Activation
from dr_q.equations import best_choice, gumbel_softmax
from dr_q.networks.layers import MLP
from dr_q.spaces import ActionSpec, DiscreteActions


class Actor(eqx.Module):
    """z_s -> action in [-1, 1]."""

    mlp: MLP

    @staticmethod
    def init(key: Key[Array, ""], zs_dim: int, action_dim: int, hidden: int, activation: Activation) -> "Actor":
        """An actor with two hidden layers."""
        return Actor(MLP.init(key, zs_dim, hidden, action_dim, activation))

    def pre_activation(self, z_s: Float[Array, "B zs"]) -> Float[Array, "B A"]:
        """The action before it is squashed."""
        return self.mlp(z_s)

    def __call__(self, z_s: Float[Array, "B zs"]) -> Float[Array, "B A"]:
        """The deterministic action."""
        return jnp.tanh(self.pre_activation(z_s))


class DiscreteActor(eqx.Module):
    """z_s -> one-hot action, from logits; joined one-hot vectors where there are several choices."""

    mlp: MLP
    choices: tuple[int, ...] = eqx.field(static=True)
    """How many values each choice has."""

    @staticmethod
    def init(
        key: Key[Array, ""], zs_dim: int, choices: tuple[int, ...], hidden: int, activation: Activation
    ) -> "DiscreteActor":
        """An actor with two hidden layers."""
        return DiscreteActor(MLP.init(key, zs_dim, hidden, sum(choices), activation), choices)

    def pre_activation(self, z_s: Float[Array, "B zs"]) -> Float[Array, "B A"]:
        """The logits of every value of every choice."""
        return self.mlp(z_s)

    def sample(self, z_s: Float[Array, "B zs"], gumbel: Float[Array, "B A"], temperature: float) -> Float[Array, "B A"]:
        """A soft sample, through which gradients flow."""
        return gumbel_softmax(self.pre_activation(z_s), gumbel, temperature, self.choices)

    def __call__(self, z_s: Float[Array, "B zs"]) -> Float[Array, "B A"]:
        """The deterministic action: the largest logit (D11)."""
        return best_choice(self.pre_activation(z_s), self.choices)


def init_actor(
    key: Key[Array, ""], zs_dim: int, action: ActionSpec, hidden: int, activation: Activation
) -> Actor | DiscreteActor:
    """A fresh actor for a kind of actions."""
    if isinstance(action, DiscreteActions):
        return DiscreteActor.init(key, zs_dim, action.choices, hidden, activation)
    return Actor.init(key, zs_dim, action.dim, hidden, activation)
