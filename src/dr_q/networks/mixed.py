"""Networks as `--compute mixed` sees them in an update: which layers multiply with 16-bit operands.

Float32 stay the layers whose inputs or outputs have a scale of their own (of observations and actions, and the critics'
and the reward head's outputs), and InfoNCE. They are small. The networks that learn, act and are saved stay float32.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
from jaxtyping import Array, Float

from dr_q.config import Compute
from dr_q.networks.actor import Actor, DiscreteActor
from dr_q.networks.critic import TwinCritic
from dr_q.networks.encoder import Encoder, ImageBranch
from dr_q.networks.half import HalfWeight

Network = TypeVar("Network", Encoder, TwinCritic, Actor | DiscreteActor)


class Rounded(NamedTuple):
    """What a network's weights are rounded to, of the layers that multiply with 16-bit operands."""

    forward: list[Float[Array, "..."]]
    """For forward products."""
    backward: list[Float[Array, "..."]] | None
    """For gradients; None for a network through which none flow."""


def round_weights(network: Network) -> Rounded:
    """What a network's weights are rounded to."""
    halves = [HalfWeight.of(weight) for weight in _weights(network)(network)]
    return Rounded([half.forward for half in halves], [half.backward for half in halves])


def for_compute(compute: Compute, network: Network, rounded: Rounded | None = None) -> Network:
    """A network as an update computes with it; its gradients are those of the network given.

    Args:
        compute: The setting.
        network: The network, in float32.
        rounded: What `round_weights` gave of it, if that is known already.
    """
    if compute == "float32":
        return network
    pick = _weights(network)
    if rounded is None:
        return eqx.tree_at(pick, network, replace_fn=HalfWeight.of)
    backward = rounded.forward if rounded.backward is None else rounded.backward
    halves = [HalfWeight(*of_weight) for of_weight in zip(pick(network), rounded.forward, backward, strict=True)]
    return eqx.tree_at(pick, network, halves)


def _weights(network: Any) -> Callable[[Any], list[Any]]:
    """Picks the weights of the layers that multiply with 16-bit operands."""
    if isinstance(network, Encoder):
        return _of_encoder
    if isinstance(network, TwinCritic):
        return lambda critic: [layer.weight for layer in _layers(critic.stacked.mlp, "hidden1", "hidden2", "output")]
    return lambda actor: [layer.weight for layer in _layers(actor.mlp, "hidden1", "hidden2")]


def _of_encoder(encoder: Encoder) -> list[Any]:
    weights: list[Any] = []
    for branch in encoder.state.branches.values():
        if isinstance(branch, ImageBranch):
            weights += [*(conv.weight for conv in branch.convs), branch.linear.weight]
        else:
            weights += [layer.weight for layer in _layers(branch.mlp, "hidden2", "output")]
    g = encoder.state_action
    weights += [g.from_state.weight, g.from_action, g.hidden2.weight, g.output.weight]
    return [*weights, encoder.predictor.next_state.weight]


def _layers(mlp: Any, *names: str) -> list[Any]:
    return [getattr(mlp, name) for name in names]
