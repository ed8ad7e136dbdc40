"""The representation: state encoder f, state-action encoder g, and the linear MDP predictor M (Eq. 5)."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, UInt8

from dr_q.config import Activation
from dr_q.equations import StoredImages
from dr_q.networks.convolutions import conv_features
from dr_q.networks.half import HalfWeight, norm_types
from dr_q.networks.layers import MLP, Conv, Linear, pad_last, padded_input, padded_width, product
from dr_q.networks.norm import ACTIVATIONS, normed
from dr_q.networks.packed_convolutions import packed_conv_features
from dr_q.spaces import Image, ObsSpec, Spaces, Vector

_CONV_CHANNELS = 32
CONV_STRIDES = (2, 2, 2, 1)


class RewardPrediction(NamedTuple):
    """What the linear MDP predictor M predicts from z_sa besides the next latent state."""

    reward_logits: Float[Array, "*B bins"]
    """Predicted reward, as logits over the two-hot bins."""
    done: Float[Array, "*B"] | None
    """Predicted done flag; None without `predict_done` (MR.Q)."""


class StepPrediction(NamedTuple):
    """What the linear MDP predictor M predicts from z_sa."""

    z_s: Float[Array, "*B zs"]
    """Predicted next latent state."""
    reward_logits: Float[Array, "*B bins"]
    """Predicted reward, as logits over the two-hot bins."""
    done: Float[Array, "*B"] | None
    """Predicted done flag; None without `predict_done` (MR.Q)."""


class VectorBranch(eqx.Module):
    """f's branch for a vector: an MLP."""

    mlp: MLP

    @staticmethod
    def from_mlp(mlp: MLP) -> "VectorBranch":
        """The branch around an MLP of its true input size."""
        n_out, n_in = mlp.hidden1.weight.shape
        return VectorBranch(dataclasses.replace(mlp, hidden1=mlp.hidden1.padded(padded_input(n_in), n_out)))

    @staticmethod
    def init(key: Key[Array, ""], part: Vector, zs_dim: int, hidden: int, activation: Activation) -> "VectorBranch":
        """A fresh branch for a part of an observation."""
        return VectorBranch.from_mlp(MLP.init(key, part.shape[0], hidden, zs_dim, activation))

    @property
    def last(self) -> Linear:
        """The layer that gives the branch's share of z_s, before its norm."""
        return self.mlp.output

    def features(self, x: Float[Array, "*B obs"]) -> Float[Array, "*B hidden"]:
        """What the last layer is given."""
        return self.mlp.hidden(pad_last(x, self.mlp.hidden1.weight.shape[1]))


class ImageBranch(eqx.Module):
    """f's branch for a stack of frames: four convolutions, flattened channel-major, then a Linear."""

    convs: tuple[Conv, ...]
    linear: Linear
    activation: Activation = eqx.field(static=True)

    @staticmethod
    def init(key: Key[Array, ""], part: Image, zs_dim: int, hidden: int, activation: Activation) -> "ImageBranch":
        """A fresh branch for a part of an observation; `hidden` is for vectors."""
        *conv_keys, key_linear = jax.random.split(key, len(CONV_STRIDES) + 1)
        channels = [part.shape[0], *(_CONV_CHANNELS for _ in CONV_STRIDES)]
        convs = tuple(map(Conv.init, conv_keys, channels[:-1], channels[1:], CONV_STRIDES))
        height, width = conv_sizes(part)[-1]
        return ImageBranch(convs, Linear.init(key_linear, _CONV_CHANNELS * height * width, zs_dim), activation)

    @property
    def last(self) -> Linear:
        """The layer that gives the branch's share of z_s, before its norm."""
        return self.linear

    def features(self, x: UInt8[Array, "B c h w"] | StoredImages) -> Float[Array, "B features"]:
        """What the last layer is given."""
        packed = isinstance(x, StoredImages) or isinstance(self.convs[0].weight, HalfWeight)
        convolve = packed_conv_features if packed else conv_features
        maps: Array = convolve(self.activation, self.convs, x)  # pyright: ignore[reportAssignmentType] - jax.custom_vjp loses the type
        return maps.reshape(maps.shape[0], -1)


class StateEncoder(eqx.Module):
    """The state encoder f: one branch for each part; z_s = activation(LayerNorm(sum of the branches)).

    With one part this is the paper's encoder.
    """

    branches: dict[str, VectorBranch | ImageBranch]
    """The branch of each part: an MLP for a vector, convolutions for an image."""
    activation: Activation = eqx.field(static=True)
    """Activation function of all layers."""

    @staticmethod
    def init(key: Key[Array, ""], obs: ObsSpec, zs_dim: int, hidden: int, activation: Activation) -> "StateEncoder":
        """A fresh state encoder.

        Args:
            key: Decides the initial weights.
            obs: The parts of an observation.
            zs_dim: Size of z_s.
            hidden: Width of the hidden layers of vector branches.
            activation: `"elu"` or `"relu"`.

        Returns:
            The state encoder.
        """
        keys = [key] if len(obs.parts) == 1 else list(jax.random.split(key, len(obs.parts)))
        kinds: dict[type, Any] = {Vector: VectorBranch, Image: ImageBranch}
        branches = {
            name: kinds[type(part)].init(key_part, part, zs_dim, hidden, activation)
            for key_part, (name, part) in zip(keys, obs.parts, strict=True)
        }
        return StateEncoder(branches, activation)

    def __call__(self, obs: dict[str, Any]) -> Float[Array, "*B zs"]:
        """Latent states, z_s = f(s) (Eq. 5).

        Args:
            obs: Observations by part, [*B, ...]; images have one batch axis.

        Returns:
            Latent states z_s.
        """
        shares = [product(branch.features(obs[name]), branch.last.weight) for name, branch in self.branches.items()]
        biases = [branch.last.bias for branch in self.branches.values()]
        types = norm_types(next(iter(self.branches.values())).last.weight)
        return normed(sum(shares[1:], shares[0]), sum(biases[1:], biases[0]), self.activation, biases[0].size, types)


class StateActionEncoder(eqx.Module):
    """g: embeds the action, z_a = activation(Linear(a)), then MLP(concat(z_s, z_a)).

    The MLP's first layer is linear in (z_s, z_a) and kept by halves: a half that is known earlier, or used twice, is
    computed once, and no gradient is taken of a half that is constant.
    """

    embed_action: Linear
    from_state: Linear
    """The first layer's part for z_s, and its bias."""
    from_action: Any
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
        types = norm_types(self.from_state.weight, self.hidden2.weight)
        y = normed(state_half, action_half, self.activation, self.width, types)
        return self.output(self.hidden2.normed(y, self.activation, self.width, self.output.weight))


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
    """The encoder of one seed: f, g and M of the paper (Eq. 5). The RL losses do not train it.

    Example:
        ```python
        encoder = dr_q.open_run("runs/walker").agent().online.encoder
        z_s = encoder.z_s({"obs": observations})
        z_sa = encoder.z_sa(z_s, actions)
        next_z_s, reward_logits, done = encoder.predict(z_sa)
        ```
    """

    state: StateEncoder
    """The state encoder f."""
    state_action: StateActionEncoder
    """The state-action encoder g."""
    predictor: Predictor
    """The linear MDP predictor M."""

    @staticmethod
    def init(
        key: Key[Array, ""],
        spaces: Spaces,
        *,
        zs_dim: int,
        za_dim: int,
        zsa_dim: int,
        hidden: int,
        activation: Activation,
        reward_bins: int,
        predict_done: bool,
    ) -> "Encoder":
        """A fresh encoder for an environment. `dr_q.agent.init_networks` takes the sizes from a config.

        Args:
            key: Decides the initial weights.
            spaces: Observations and actions of the environment.
            zs_dim: Size of the latent state z_s.
            za_dim: Size of the embedded action z_a.
            zsa_dim: Size of the latent state-action z_sa.
            hidden: Width of the hidden layers.
            activation: `"elu"` or `"relu"`.
            reward_bins: Bins of the two-hot encoding of rewards.
            predict_done: Whether M predicts the done flag (MR.Q).

        Returns:
            The encoder.
        """
        key_state, key_action, key_state_action, key_predictor = jax.random.split(key, 4)
        return Encoder(
            state=StateEncoder.init(key_state, spaces.obs, zs_dim, hidden, activation),
            state_action=StateActionEncoder.from_parts(
                Linear.init(key_action, spaces.action.dim, za_dim),
                MLP.init(key_state_action, zs_dim + za_dim, hidden, zsa_dim, activation),
            ),
            predictor=Predictor.from_linear(
                Linear.init(key_predictor, zsa_dim, zs_dim + reward_bins + predict_done),
                reward_bins,
                predict_done=predict_done,
            ),
        )

    def z_s(self, obs: dict[str, Any]) -> Float[Array, "*B zs"]:
        """Latent states, z_s = f(s) (Eq. 5).

        Args:
            obs: Observations by part, [*B, ...]; normalised if the agent normalises them.

        Returns:
            Latent states z_s.
        """
        return self.state(obs)

    def z_sa(self, z_s: Float[Array, "*B zs"], action: Float[Array, "*B A"]) -> Float[Array, "*B zsa"]:
        """Latent state-actions, z_sa = g(z_s, a) (Eq. 5).

        Args:
            z_s: Latent states.
            action: Actions in [-1, 1], or one-hot.

        Returns:
            Latent state-actions z_sa.
        """
        g = self.state_action
        return g.join(g.state_half(z_s), g.action_half(action))

    def predict(self, z_sa: Float[Array, "*B zsa"]) -> StepPrediction:
        """Next latent state and reward, which M predicts as linear functions of z_sa (Eq. 5).

        Args:
            z_sa: Latent state-actions.

        Returns:
            Next latent states, reward logits, and the done flag in MR.Q.
        """
        return StepPrediction(self.next_z_s(z_sa), *self.reward(z_sa))

    def next_z_s(self, z_sa: Float[Array, "*B zsa"]) -> Float[Array, "*B zs"]:
        """The next latent state of `predict`, which is all that the next step of a roll-out needs.

        Args:
            z_sa: Latent state-actions.

        Returns:
            Predicted next latent states.
        """
        return self.predictor.next_state(z_sa)

    def reward(self, z_sa: Float[Array, "*B zsa"]) -> RewardPrediction:
        """The reward and the done flag of `predict`.

        Args:
            z_sa: Latent state-actions.

        Returns:
            Reward logits, and the done flag in MR.Q.
        """
        m = self.predictor
        out = m.outcome(z_sa)
        return RewardPrediction(out[..., : m.reward_bins], out[..., m.reward_bins] if m.predict_done else None)


def conv_sizes(part: Image) -> list[tuple[int, int]]:
    """Height and width after each convolution."""
    sizes = [(part.height, part.width)]
    for stride in CONV_STRIDES:
        height, width = sizes[-1]
        sizes.append(((height - Conv.KERNEL) // stride + 1, (width - Conv.KERNEL) // stride + 1))
    return sizes[1:]


def conv_outputs(part: Image) -> int:
    """Numbers that all convolutions together make of one stack of frames."""
    return sum(_CONV_CHANNELS * height * width for height, width in conv_sizes(part))
