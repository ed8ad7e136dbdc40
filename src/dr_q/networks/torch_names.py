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
    """The authors' `Encoder`. Its `model` puts the done flag first; DR.Q does not use it and it is dropped."""
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
    """The authors' `Policy`."""
    return Actor(_mlp(arrays, "policy", activation))


def discrete_actor_from_torch(
    arrays: TorchArrays, *, choices: tuple[int, ...] | None = None, activation: Activation = "relu"
) -> DiscreteActor:
    """The authors' `Policy` of discrete actions; `choices` where its logits are of several choices."""
    mlp = _mlp(arrays, "policy", activation)
    return DiscreteActor(mlp, choices or (mlp.output.bias.size,))


def critic_from_torch(arrays: TorchArrays, *, activation: Activation = "elu") -> TwinCritic:
    """The authors' `Value`: critics `q1` and `q2`, each an MLP `q1` and a Linear `q2`."""
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
