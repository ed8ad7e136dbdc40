"""The losses of the actor (Eq. 12) and the critics' target (Eq. 13); the critics own their loss, `TwinCritic.loss`."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from dr_q.agent.state import Agent, Networks
from dr_q.config import Config
from dr_q.equations import n_step_return, q_target, target_action
from dr_q.networks import Actor, Encoder, TwinCritic
from dr_q.replay import NStepBatch


class CriticBatch(NamedTuple):
    """What the critics learn from."""

    obs: dict[str, Array]
    action: Float[Array, "B A"]
    n_step_reward: Float[Array, "B"]
    """Discounted sum of the rewards up to a termination."""
    n_step_discount: Float[Array, "B"]
    """gamma^n, or 0 after a termination."""
    next_obs: dict[str, Array]


def critic_batch(config: Config, sample: NStepBatch) -> CriticBatch:
    """What the critics learn from, of a sample of the replay."""
    reward, discount = n_step_return(sample.reward, sample.not_done, config.discount)
    return CriticBatch(sample.obs, sample.action, reward, discount, sample.next_obs)


def critic_target(
    config: Config, agent: Agent, batch: CriticBatch, standard_normal: Float[Array, "B A"]
) -> Float[Array, "B"]:
    """The value the critics regress to, from the target networks (Eq. 13)."""
    target: Networks = agent.target
    next_z_s = target.encoder.z_s(batch.next_obs)
    next_action = target_action(target.actor(next_z_s), standard_normal, config.target_noise, config.target_noise_clip)
    next_q = target.critic(target.encoder.z_sa(next_z_s, next_action))
    return q_target(batch.n_step_reward, batch.n_step_discount, next_q, agent.reward_scale, agent.target_reward_scale)


def actor_loss(
    config: Config,
    actor: Actor,
    encoder: Encoder,
    critic: TwinCritic,
    z_s: Float[Array, "B zs"],
    state_half: Float[Array, "B hidden"],
) -> Float[Array, ""]:
    """The critics' values of the actor's action, negated (Eq. 12); MR.Q adds a pull of pre-tanh actions to 0.

    `state_half` is g's of z_s, which the critics' update has computed already.
    """
    pre_tanh = actor.pre_tanh(z_s)
    g = encoder.state_action
    q = critic(g.join(state_half, g.action_half(jnp.tanh(pre_tanh))))
    return -jnp.mean(q) + config.pre_tanh_weight * jnp.mean(jnp.square(pre_tanh))
