"""The agent of one seed: state, losses, updates, metrics and actions, all pure."""

from dr_q.agent.act import explore, greedy_action, random_action
from dr_q.agent.losses import CriticBatch, actor_loss, critic_batch, critic_target
from dr_q.agent.metrics import METRICS, metric_names, update_metrics
from dr_q.agent.rollout import Rollout, roll_out
from dr_q.agent.state import Agent, Networks, PolicyNetworks, init_agent, init_networks
from dr_q.agent.terms import TERMS, Prediction, Term, encoder_loss, encoder_terms, predict
from dr_q.agent.update import (
    ActorCriticMetrics,
    CriticDraw,
    EncoderDraws,
    EncoderMetrics,
    actor_critic_step,
    draw_for_critic,
    draw_for_encoder,
    encoder_step,
    learn_actor_critic,
    learn_encoder,
    sync_targets,
    sync_targets_and_train_encoder,
    update_actor_critic,
)

__all__ = [
    "METRICS",
    "TERMS",
    "ActorCriticMetrics",
    "Agent",
    "CriticBatch",
    "CriticDraw",
    "EncoderDraws",
    "EncoderMetrics",
    "Networks",
    "PolicyNetworks",
    "Prediction",
    "Rollout",
    "Term",
    "actor_critic_step",
    "actor_loss",
    "critic_batch",
    "critic_target",
    "draw_for_critic",
    "draw_for_encoder",
    "encoder_loss",
    "encoder_step",
    "encoder_terms",
    "explore",
    "greedy_action",
    "init_agent",
    "init_networks",
    "learn_actor_critic",
    "learn_encoder",
    "metric_names",
    "predict",
    "random_action",
    "roll_out",
    "sync_targets",
    "sync_targets_and_train_encoder",
    "update_actor_critic",
    "update_metrics",
]
