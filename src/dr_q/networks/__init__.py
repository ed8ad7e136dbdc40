"""The networks: encoder (f, g, M), actor and twin critics, and the mapping from PyTorch's names to them."""

from dr_q.networks.actor import Actor, DiscreteActor, init_actor
from dr_q.networks.critic import Critic, TwinCritic
from dr_q.networks.encoder import (
    Encoder,
    ImageBranch,
    Predictor,
    RewardPrediction,
    StateActionEncoder,
    StateEncoder,
    StepPrediction,
    VectorBranch,
    conv_outputs,
)
from dr_q.networks.layers import MLP, Conv, Linear, product
from dr_q.networks.norm import Activation, NormResiduals, norm_backward, norm_forward, normed
from dr_q.networks.normaliser import Normaliser
from dr_q.networks.torch_names import (
    actor_from_torch,
    critic_from_torch,
    discrete_actor_from_torch,
    encoder_from_torch,
)

__all__ = [
    "MLP",
    "Activation",
    "Actor",
    "Conv",
    "Critic",
    "DiscreteActor",
    "Encoder",
    "ImageBranch",
    "Linear",
    "NormResiduals",
    "Normaliser",
    "Predictor",
    "RewardPrediction",
    "StateActionEncoder",
    "StateEncoder",
    "StepPrediction",
    "TwinCritic",
    "VectorBranch",
    "actor_from_torch",
    "conv_outputs",
    "critic_from_torch",
    "discrete_actor_from_torch",
    "encoder_from_torch",
    "init_actor",
    "norm_backward",
    "norm_forward",
    "normed",
    "product",
]
