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
from dr_q.networks.half import HalfWeight, Weight, norm_types
from dr_q.networks.layers import MLP, Conv, Linear, product, product_back, product_of_weight
from dr_q.networks.mixed import Rounded, for_compute, round_weights
from dr_q.networks.norm import Activation, NormResiduals, NormTypes, norm_backward, norm_forward, normed
from dr_q.networks.normaliser import Normaliser
from dr_q.networks.packed_convolutions import packs_images
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
    "HalfWeight",
    "ImageBranch",
    "Linear",
    "NormResiduals",
    "NormTypes",
    "Normaliser",
    "Predictor",
    "RewardPrediction",
    "Rounded",
    "StateActionEncoder",
    "StateEncoder",
    "StepPrediction",
    "TwinCritic",
    "VectorBranch",
    "Weight",
    "actor_from_torch",
    "conv_outputs",
    "critic_from_torch",
    "discrete_actor_from_torch",
    "encoder_from_torch",
    "for_compute",
    "init_actor",
    "norm_backward",
    "norm_forward",
    "norm_types",
    "normed",
    "packs_images",
    "product",
    "product_back",
    "product_of_weight",
    "round_weights",
]
