"""The representation: state encoder f, state-action encoder g, and the linear MDP predictor M (Eq. 5)."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, UInt8

from dr_q.config import Activation
from dr_q.networks.convolutions import conv_features
from dr_q.networks.layers import MLP, Conv, Linear, pad_last, padded_input, padded_width, product
from dr_q.networks.norm import ACTIVATIONS, normed

_CONV_CHANNELS = 32
CONV_STRIDES = (2, 2, 2, 1)
_KERNEL = 3


class Outcome(NamedTuple):
    """What M reads off z_sa besides the next latent state."""

    reward_logits: Float[Array, "*B bins"]
    """Predicted reward, a distribution over two-hot bins."""
    done: Float[Array, "*B"] | None
    """Predicted done flag; MR.Q only."""


class Prediction(NamedTuple):
    """What the linear MDP predictor M reads off z_sa."""

    z_s: Float[Array, "*B zs"]
    """Predicted next latent state."""
    reward_logits: Float[Array, "*B bins"]
    """Predicted reward, a distribution over two-hot bins."""
    done: Float[Array, "*B"] | None
    """Predicted done flag; MR.Q only."""


class VectorStateEncoder(eqx.Module):
    """f for vectors: activation(LayerNorm(MLP(obs)))."""

    mlp: MLP

    @staticmethod
    def from_mlp(mlp: MLP) -> "VectorStateEncoder":
        """f around an MLP of its true input size."""
        n_out, n_in = mlp.hidden1.weight.shape
        return VectorStateEncoder(dataclasses.replace(mlp, hidden1=mlp.hidden1.padded(padded_input(n_in), n_out)))

    def __call__(self, obs: Float[Array, "*B obs"]) -> Float[Array, "*B zs"]:
        """Latent state of each observation."""
        obs = pad_last(obs, self.mlp.hidden1.weight.shape[1])
        return self.mlp.normed(obs, self.mlp.output.bias.size)


class PixelStateEncoder(eqx.Module):
    """f for images: four convolutions, flattened channel-major, then activation(LayerNorm(Linear))."""

    convs: tuple[Conv, ...]
    linear: Linear
    activation: Activation = eqx.field(static=True)

    def __call__(self, obs: UInt8[Array, "B c h w"]) -> Float[Array, "B zs"]:
        """Latent state of each stack of frames."""
        x: Array = conv_features(self.activation, self.convs, obs)  # pyright: ignore[reportAssignmentType] - jax.custom_vjp loses the type
        return self.linear.normed(x.reshape(x.shape[0], -1), self.activation, self.linear.bias.size)


class StateActionEncoder(eqx.Module):
    """g: embeds the action, z_a = activation(Linear(a)), then MLP(concat(z_s, z_a)).

    The MLP's first layer is linear in (z_s, z_a) and kept by halves: a half that is known earlier, or used twice, is
    computed once, and no gradient is taken of a half that is constant.
    """

    embed_action: Linear
    from_state: Linear
    """The first layer's part for z_s, and its bias."""
    from_action: Float[Array, "hidden za"]
    """The first layer's part for z_a."""
    hidden2: Linear
    output: Linear
    activation: Activation = eqx.field(static=True)
    width: int = eqx.field(static=True)
    """Hidden width; the arrays may be padded beyond it."""

    @staticmethod
    def from_parts(embed_action: Linear, mlp: MLP) -> "StateActionEncoder":
        """g from the action embedding and the MLP on the concatenation."""
        za_dim, action_dim = embed_action.weight.shape
        zs_dim = mlp.hidden1.weight.shape[1] - za_dim
        return StateActionEncoder(
            embed_action=embed_action.padded(padded_input(action_dim), za_dim),
            from_state=Linear(mlp.hidden1.weight[:, :zs_dim], mlp.hidden1.bias),
            from_action=mlp.hidden1.weight[:, zs_dim:],
            hidden2=mlp.hidden2,
            output=mlp.output,
            activation=mlp.activation,
            width=mlp.width,
        )

    def state_half(self, z_s: Float[Array, "*B zs"]) -> Float[Array, "*B hidden"]:
        """What z_s contributes to the first layer."""
        return product(z_s, self.from_state.weight)

    def action_half(self, action: Float[Array, "*B A"]) -> Float[Array, "*B hidden"]:
        """What z_a and the bias contribute to the first layer."""
        action = pad_last(action, self.embed_action.weight.shape[1])
        half = product(ACTIVATIONS[self.activation](self.embed_action(action)), self.from_action)
        return half + jnp.broadcast_to(self.from_state.bias, half.shape)

    def join(
        self, state_half: Float[Array, "*B hidden"], action_half: Float[Array, "*B hidden"]
    ) -> Float[Array, "*B zsa"]:
        """z_sa from the two halves of the first layer."""
        y = normed(state_half, action_half, self.activation, self.width)
        return self.output(self.hidden2.normed(y, self.activation, self.width))


class Predictor(eqx.Module):
    """M: one linear map, kept by what it predicts. Only the next latent state is needed to roll out further."""

    next_state: Linear
    outcome: Linear
    """Reward logits, then the done flag in MR.Q; padded."""
    reward_bins: int = eqx.field(static=True)
    predict_done: bool = eqx.field(static=True)

    @staticmethod
    def from_linear(whole: Linear, reward_bins: int, *, predict_done: bool) -> "Predictor":
        """M from one Linear to (next latent state, reward logits, done flag)."""
        columns = reward_bins + predict_done
        zsa_dim, zs_dim = whole.weight.shape[1], whole.bias.size - columns
        outcome = Linear(whole.weight[zs_dim:], whole.bias[zs_dim:])
        return Predictor(
            Linear(whole.weight[:zs_dim], whole.bias[:zs_dim]),
            outcome.padded(zsa_dim, padded_width(columns)),
            reward_bins,
            predict_done,
        )


class Encoder(eqx.Module):
    """f, g and M of one seed. The RL losses never train it."""

    state: VectorStateEncoder | PixelStateEncoder
    state_action: StateActionEncoder
    predictor: Predictor

    @staticmethod
    def init(
        key: Key[Array, ""],
        obs_shape: tuple[int, ...],
        action_dim: int,
        *,
        zs_dim: int,
        za_dim: int,
        zsa_dim: int,
        hidden: int,
        activation: Activation,
        reward_bins: int,
        predict_done: bool,
    ) -> "Encoder":
        """An encoder for observations of shape (dim,) or (channels, height, width)."""
        key_state, key_action, key_state_action, key_predictor = jax.random.split(key, 4)
        return Encoder(
            state=_init_state_encoder(key_state, obs_shape, zs_dim, hidden, activation),
            state_action=StateActionEncoder.from_parts(
                Linear.init(key_action, action_dim, za_dim),
                MLP.init(key_state_action, zs_dim + za_dim, hidden, zsa_dim, activation),
            ),
            predictor=Predictor.from_linear(
                Linear.init(key_predictor, zsa_dim, zs_dim + reward_bins + predict_done),
                reward_bins,
                predict_done=predict_done,
            ),
        )

    def z_s(self, obs: Array) -> Float[Array, "B zs"]:
        """Latent state, z_s = f(s) (Eq. 5)."""
        return self.state(obs)

    def z_sa(self, z_s: Float[Array, "*B zs"], action: Float[Array, "*B A"]) -> Float[Array, "*B zsa"]:
        """Latent state-action, z_sa = g(z_s, a) (Eq. 5)."""
        g = self.state_action
        return g.join(g.state_half(z_s), g.action_half(action))

    def predict(self, z_sa: Float[Array, "*B zsa"]) -> Prediction:
        """Next latent state and reward as linear functions of z_sa (Eq. 5)."""
        return Prediction(self.next_z_s(z_sa), *self.outcome(z_sa))

    def next_z_s(self, z_sa: Float[Array, "*B zsa"]) -> Float[Array, "*B zs"]:
        """The part of `predict` that a roll-out needs to go on."""
        return self.predictor.next_state(z_sa)

    def outcome(self, z_sa: Float[Array, "*B zsa"]) -> Outcome:
        """The part of `predict` that can wait until all steps are rolled out."""
        m = self.predictor
        out = m.outcome(z_sa)
        return Outcome(out[..., : m.reward_bins], out[..., m.reward_bins] if m.predict_done else None)


def conv_outputs(obs_shape: tuple[int, ...]) -> int:
    """Numbers that all convolutions together make of one stack of frames."""
    _, height, width = obs_shape
    count = 0
    for stride in CONV_STRIDES:
        height, width = ((size - _KERNEL) // stride + 1 for size in (height, width))
        count += _CONV_CHANNELS * height * width
    return count


def _init_state_encoder(
    key: Key[Array, ""], obs_shape: tuple[int, ...], zs_dim: int, hidden: int, activation: Activation
) -> VectorStateEncoder | PixelStateEncoder:
    if len(obs_shape) == 1:
        return VectorStateEncoder.from_mlp(MLP.init(key, obs_shape[0], hidden, zs_dim, activation))
    channels, height, width = obs_shape
    keys = jax.random.split(key, len(CONV_STRIDES) + 1)
    convs = []
    for key_conv, stride in zip(keys[:-1], CONV_STRIDES, strict=True):
        convs.append(Conv.init(key_conv, channels, _CONV_CHANNELS, stride))
        channels = _CONV_CHANNELS
        height, width = ((size - _KERNEL) // stride + 1 for size in (height, width))
    return PixelStateEncoder(tuple(convs), Linear.init(keys[-1], channels * height * width, zs_dim), activation)
