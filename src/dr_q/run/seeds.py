"""The seeds axis: the one place where the agent of one seed becomes the agents of many.

Every function is compiled once for a config and takes all seeds' states, stacked along a leading axis. A random key is
made from (seed, what it is for, where in the run): nothing random is carried, so a run can be taken up at any step.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dr_q import agent as drq
from dr_q import replay as rp
from dr_q.run.in_place import in_place

_STREAMS = {"init": 0, "explore": 1, "random": 2, "update": 3, "renew": 4}


class UpdateSummary(NamedTuple):
    """What an RL update saw, in numbers for a log; one per seed."""

    critic_loss: Array
    actor_loss: Array
    q_mean: Array
    q_target_mean: Array
    td_error_mean: Array
    priority_mean: Array
    priority_max: Array
    floored_share: Array


class SeedStates(NamedTuple):
    """The agents and replays of all seeds."""

    agents: drq.Agent
    replays: rp.Replay


def root_keys(seeds: list[int]) -> Key[Array, "S"]:
    """One key for each seed, from which all others come."""
    return jax.vmap(jax.random.key)(jnp.asarray(np.asarray(seeds, np.uint32)))


def stream(roots: Key[Array, "S"], name: str, where: Array) -> Key[Array, "S"]:
    """A key for each seed, for one purpose at one place of the run."""
    return jax.vmap(lambda root: jax.random.fold_in(jax.random.fold_in(root, _STREAMS[name]), where))(roots)


@functools.partial(jax.jit, static_argnums=(0, 1))
def init_agents(config: drq.Config, shape: drq.TaskShape, roots: Key[Array, "S"]) -> drq.Agent:
    """Fresh agents."""
    keys = stream(roots, "init", jnp.zeros((), jnp.int32))
    return jax.vmap(lambda key: drq.init_agent(config, drq.init_networks(config, shape, key)))(keys)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def init_replays(config: drq.Config, shape: drq.TaskShape, capacity: int, seeds: int) -> rp.Replay:
    """Empty replays."""
    return jax.vmap(lambda _: drq.init_replay(config, shape, capacity))(jnp.arange(seeds))


@functools.partial(jax.jit, static_argnums=0)
def random_actions(action_dim: int, roots: Key[Array, "S"], step: Array) -> Float[Array, "S A"]:
    """Uniform actions of the exploration phase."""
    return jax.vmap(lambda key: drq.random_action(action_dim, key))(stream(roots, "random", step))


@functools.partial(jax.jit, static_argnums=0)
def explore(
    config: drq.Config, networks: drq.Networks, obs: Array, roots: Key[Array, "S"], step: Array
) -> Float[Array, "S A"]:
    """Noisy actions for one observation of each seed."""
    keys = stream(roots, "explore", step)
    return jax.vmap(lambda net, o, key: drq.explore(config, net, o, key))(networks, obs, keys)


@jax.jit
def greedy(networks: drq.Networks, obs: Array) -> Float[Array, "S E A"]:
    """Actions without noise for [S, E, ...] observations."""
    return jax.vmap(lambda net, o: net.actor(net.encoder.z_s(o)))(networks, obs)


@in_place
def _add(_: None, replays: rp.Replay, transitions: rp.Transition) -> tuple[rp.Replay, None]:
    return jax.vmap(rp.add)(replays, transitions), None


def add(replays: rp.Replay, transitions: rp.Transition) -> rp.Replay:
    """One transition for each seed."""
    return _add(None, replays, transitions)[0]


@in_place
def update(
    config: drq.Config, states: SeedStates, roots: Key[Array, "S"], index: Array
) -> tuple[SeedStates, UpdateSummary]:
    """RL update number `index`, from 0, of every seed."""

    def one(agent: drq.Agent, replay: rp.Replay, key: Array) -> tuple[SeedStates, UpdateSummary]:
        agent, replay, seen = drq.update_actor_critic(config, agent, replay, key)
        td_error = jnp.max(jnp.abs(seen.q - seen.q_target[:, None]), axis=-1)
        summary = UpdateSummary(
            critic_loss=seen.critic_loss,
            actor_loss=seen.actor_loss,
            q_mean=jnp.mean(seen.q),
            q_target_mean=jnp.mean(seen.q_target),
            td_error_mean=jnp.mean(td_error),
            priority_mean=jnp.mean(seen.priority),
            priority_max=replay.max_priority,
            floored_share=rp.floored_share(replay),
        )
        return SeedStates(agent, replay), summary

    return jax.vmap(one)(states.agents, states.replays, stream(roots, "update", index))


@in_place
def renew(
    config: drq.Config, states: SeedStates, roots: Key[Array, "S"], index: Array
) -> tuple[SeedStates, drq.EncoderMetrics]:
    """Target copies and encoder updates of every seed, before RL update number `index`."""

    def one(agent: drq.Agent, replay: rp.Replay, key: Array) -> tuple[SeedStates, drq.EncoderMetrics]:
        agent, seen = drq.renew(config, agent, replay, key)
        return SeedStates(agent, replay), seen

    return jax.vmap(one)(states.agents, states.replays, stream(roots, "renew", index))


@jax.jit
def have_valid_start(replays: rp.Replay) -> Array:
    """Whether each seed's replay has anything to draw."""
    return jax.vmap(rp.has_valid_start)(replays)


@jax.jit
def truncate_episodes(replays: rp.Replay, which: Array) -> rp.Replay:
    """Close the running episodes of some seeds."""

    def one(replay: rp.Replay, close: Array) -> rp.Replay:
        closed = rp.truncate_episode(replay)
        return jax.tree.map(lambda new, old: jnp.where(close, new, old), closed, replay)

    return jax.vmap(one)(replays, which)
