"""Networks from arrays under the names and layouts of the authors' PyTorch code.

`arrays` is what `state_dict()` gives, as numpy arrays: `zs_mlp.l1.weight` (out x in), `zs_cnn1.weight`
(out x in x kh x kw), ... All sizes come from the arrays.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from dr_q.config import Activation
from dr_q.networks.actor import Actor, DiscreteActor
from dr_q.networks.critic import Critic, TwinCritic
from dr_q.networks.encoder import (
    CONV_STRIDES,
    Encoder,
    ImageBranch,
    Predictor,
    StateActionEncoder,
    StateEncoder,
    VectorBranch,
)
from dr_q.networks.layers import MLP, Conv, Linear
from dr_q.spaces import SINGLE

TorchArrays = Mapping[str, np.ndarray]


def encoder_from_torch(
    arrays: TorchArrays, *, reward_bins: int, predict_done: bool, activation: Activation = "elu"
) -> Encoder:
    """An encoder with the weights of the `Encoder` of the authors' PyTorch code.

    Its layer `model` has the done flag first. DR.Q does not use the flag; it is dropped without `predict_done`.

    Args:
        arrays: The network's `state_dict()`, its tensors converted to numpy arrays. All sizes come from them.
        reward_bins: Bins of the two-hot encoding of rewards.
        predict_done: Whether to keep the done flag (MR.Q).
        activation: `"elu"` or `"relu"`.

    Returns:
        The encoder.

    Raises:
        KeyError: An array is missing.

    Example:
        ```python
        state = torch.load("encoder.pt", map_location="cpu", weights_only=True)
        arrays = {name: tensor.numpy() for name, tensor in state.items()}
        encoder = dr_q.encoder_from_torch(arrays, reward_bins=65, predict_done=False)
        ```
    """
    z_linear = _linear(arrays, "model")
    done, rest = slice(0, 1), slice(1, None)
    weight, bias = z_linear.weight[rest], z_linear.bias[rest]
    if predict_done:
        weight = jnp.concatenate([weight, z_linear.weight[done]])
        bias = jnp.concatenate([bias, z_linear.bias[done]])
    if "zs_lin.weight" in arrays:
        convs = tuple(_conv(arrays, f"zs_cnn{i}", stride) for i, stride in enumerate(CONV_STRIDES, start=1))
        branch = ImageBranch(convs, _linear(arrays, "zs_lin"), activation)
    else:
        branch = VectorBranch.from_mlp(_mlp(arrays, "zs_mlp", activation))
    return Encoder(
        state=StateEncoder({SINGLE: branch}, activation),
        state_action=StateActionEncoder.from_parts(_linear(arrays, "za"), _mlp(arrays, "zsa", activation)),
        predictor=Predictor.from_linear(Linear(weight, bias), reward_bins, predict_done=predict_done),
    )


def actor_from_torch(arrays: TorchArrays, *, activation: Activation = "relu") -> Actor:
    """An actor with the weights of the `Policy` of the authors' PyTorch code, for continuous actions.

    Args:
        arrays: The network's `state_dict()`, its tensors converted to numpy arrays. All sizes come from them.
        activation: `"elu"` or `"relu"`.

    Returns:
        The actor.

    Raises:
        KeyError: An array is missing.

    Example:
        ```python
        arrays = {name: tensor.numpy() for name, tensor in policy.state_dict().items()}
        actor = dr_q.actor_from_torch(arrays)
        ```
    """
    return Actor(_mlp(arrays, "policy", activation))


def discrete_actor_from_torch(
    arrays: TorchArrays, *, choices: tuple[int, ...] | None = None, activation: Activation = "relu"
) -> DiscreteActor:
    """An actor with the weights of the `Policy` of the authors' PyTorch code, for discrete actions.

    Args:
        arrays: The network's `state_dict()`, its tensors converted to numpy arrays. All sizes come from them.
        choices: Number of values of each choice. Default: one choice, with a value for each logit.
        activation: `"elu"` or `"relu"`.

    Returns:
        The actor.

    Raises:
        KeyError: An array is missing.

    Example:
        ```python
        arrays = {name: tensor.numpy() for name, tensor in policy.state_dict().items()}
        actor = dr_q.discrete_actor_from_torch(arrays, choices=(3, 2))
        ```
    """
    mlp = _mlp(arrays, "policy", activation)
    return DiscreteActor(mlp, choices or (mlp.output.bias.size,))


def critic_from_torch(arrays: TorchArrays, *, activation: Activation = "elu") -> TwinCritic:
    """Twin critics with the weights of the `Value` of the authors' PyTorch code.

    Its critics are `q1` and `q2`, each with an MLP `q1` and a Linear `q2`.

    Args:
        arrays: The network's `state_dict()`, its tensors converted to numpy arrays. All sizes come from them.
        activation: `"elu"` or `"relu"`.

    Returns:
        The critics.

    Raises:
        KeyError: An array is missing.

    Example:
        ```python
        arrays = {name: tensor.numpy() for name, tensor in value.state_dict().items()}
        critic = dr_q.critic_from_torch(arrays)
        ```
    """
    critics = [Critic.from_parts(_mlp(arrays, f"{q}.q1", activation), _linear(arrays, f"{q}.q2")) for q in ("q1", "q2")]
    return TwinCritic(jax.tree.map(lambda *leaves: jnp.stack(leaves), *critics))


def _mlp(arrays: TorchArrays, name: str, activation: Activation) -> MLP:
    hidden1, hidden2, output = (_linear(arrays, f"{name}.l{i}") for i in (1, 2, 3))
    return MLP.from_layers(hidden1, hidden2, output, activation)


def _linear(arrays: TorchArrays, name: str) -> Linear:
    return Linear(*_pair(arrays, name))


def _conv(arrays: TorchArrays, name: str, stride: int) -> Conv:
    return Conv(*_pair(arrays, name), stride)


def _pair(arrays: TorchArrays, name: str) -> tuple[jax.Array, jax.Array]:
    for key in (f"{name}.weight", f"{name}.bias"):
        if key not in arrays:
            raise KeyError(
                f"no array '{key}' among the PyTorch weights; got {', '.join(sorted(arrays)) or 'none'}; "
                "pass the state_dict of one network, its arrays converted to numpy"
            )
    return jnp.asarray(arrays[f"{name}.weight"]), jnp.asarray(arrays[f"{name}.bias"])
