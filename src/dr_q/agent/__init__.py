"""The agent of one seed: config, state, losses, updates and actions, all pure."""

from dr_q.agent.act import explore, greedy_action, random_action
from dr_q.agent.config import PRESETS, Config, ConfigError, preset
from dr_q.agent.losses import (
    CriticBatch,
    EncoderTerms,
    actor_loss,
    critic_loss,
    critic_target,
    encoder_loss,
    encoder_terms,
)
from dr_q.agent.state import Agent, Networks, TaskShape, init_agent, init_networks, init_replay
from dr_q.agent.update import (
    ActorCriticMetrics,
    EncoderMetrics,
    actor_critic_step,
    encoder_step,
    renew,
    renew_targets,
    update_actor_critic,
    update_encoder,
)

__all__ = [
    "PRESETS",
    "ActorCriticMetrics",
    "Agent",
    "Config",
    "ConfigError",
    "CriticBatch",
    "EncoderMetrics",
    "EncoderTerms",
    "Networks",
    "TaskShape",
    "actor_critic_step",
    "actor_loss",
    "critic_loss",
    "critic_target",
    "encoder_loss",
    "encoder_step",
    "encoder_terms",
    "explore",
    "greedy_action",
    "init_agent",
    "init_networks",
    "init_replay",
    "preset",
    "random_action",
    "renew",
    "renew_targets",
    "update_actor_critic",
    "update_encoder",
]
