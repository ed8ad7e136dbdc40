"""What happens at each step, for all seeds: the one place where the agent of one seed becomes the agents of many.

Every function takes all seeds' states, stacked along a leading axis. A random key is made from (seed, purpose, place in
the run): nothing random is carried, so a run can be resumed at any step. The place in the run is the replay's own count
of transitions, so that nothing but simulators' results goes to the device.

With several lanes (environments of one seed), what passes to and from simulators has an axis of lanes after that of
seeds, [S, L, ...]. With one lane there is no such axis.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt8

from dr_q import agent as drq
from dr_q import replay as rp
from dr_q.config import Config
from dr_q.envs import PacketLayout
from dr_q.learner.donation import uses_of
from dr_q.spaces import Spaces

_STREAMS = {"init": 0, "explore": 1, "random": 2, "update": 3, "encoder": 4, "pretrain_policy": 5}
"""What keys are for. The numbers decide every random draw of a run: never change one."""


class SeedStates(NamedTuple):
    """The agents and replays of all seeds."""

    agents: drq.Agent
    replays: rp.Replay


class PendingTransition(NamedTuple):
    """What each seed observed and did: a transition whose outcome is not known yet."""

    frame: dict[str, Array]
    """The observation's newest frames by part, [S, *frame]; with several lanes [S, L, *frame]."""
    action: Float[Array, "*S A"]


class LearnerSpec(NamedTuple):
    """What compiled programs are specialised for; hashable."""

    config: Config
    spaces: Spaces
    capacity: int
    """Slots of each seed's replay."""
    frames_on_host: bool = False
    """Whether the replays' observations are in host memory."""
    lanes: int = 1
    """Environments of each seed."""


def root_keys(seeds: Sequence[int]) -> Key[Array, "S"]:
    """One key for each seed, from which all others come."""
    return jax.vmap(jax.random.key)(jnp.asarray(np.asarray(seeds, np.uint32)))


def pretraining_keys(roots: Key[Array, "S"]) -> Key[Array, "S"]:
    """Root keys of the updates of critics and actor before a run begins: none of their keys is one of the run's."""
    return jax.vmap(lambda root: _stream(root, "pretrain_policy", jnp.zeros((), jnp.int32)))(roots)


def init_agents(spec: LearnerSpec, roots: Key[Array, "S"]) -> drq.Agent:
    """Fresh agents."""

    def one(root: Key[Array, ""]) -> drq.Agent:
        key = _stream(root, "init", jnp.zeros((), jnp.int32))
        return drq.init_agent(spec.config, drq.init_networks(spec.config, spec.spaces, key))

    return jax.vmap(one)(roots)


def init_replays(spec: LearnerSpec, roots: Key[Array, "S"]) -> rp.Replay:
    """Empty replays, one for each key."""

    def one(_: Key[Array, ""]) -> rp.Replay:
        return rp.init_replay(
            spec.config, spec.spaces, spec.capacity, frames_on_host=spec.frames_on_host, lanes=spec.lanes
        )

    return jax.vmap(one)(roots)


def init_states(spec: LearnerSpec, roots: Key[Array, "S"]) -> SeedStates:
    """Fresh agents with empty replays."""
    return SeedStates(init_agents(spec, roots), init_replays(spec, roots))


def first_action(spec: LearnerSpec, roots: Key[Array, "S"], obs: dict[str, Array]) -> PendingTransition:
    """Random actions for the first observations of a run, which explores."""

    def one(root: Array, obs: dict[str, Array]) -> PendingTransition:
        return _each_lane(spec, functools.partial(_random, spec, root))(obs, _places(spec, jnp.zeros((), jnp.int32)))

    return jax.vmap(one)(roots, obs)


def first_policy_action(
    spec: LearnerSpec, states: SeedStates, roots: Key[Array, "S"], obs: dict[str, Array]
) -> PendingTransition:
    """Actions by the policies, with noise, for the first observations of a run that has no random phase."""

    def one(net: drq.Networks, replay: rp.Replay, root: Array, obs: dict[str, Array]) -> PendingTransition:
        choose = functools.partial(_by_policy, spec, net, root)
        return _each_lane(spec, choose)(obs, _places(spec, replay.storage.clock))

    return jax.vmap(one)(states.agents.online, states.replays, roots, obs)


def agents_around(spec: LearnerSpec, networks: drq.Networks, reward_scale: Float[Array, "S"]) -> drq.Agent:
    """Agents with these networks, whose targets are a copy; their optimisers are fresh."""

    def one(networks: drq.Networks, scale: Array) -> drq.Agent:
        agent = drq.init_agent(spec.config, networks)
        return dataclasses.replace(agent, reward_scale=scale, target_reward_scale=scale)

    return jax.vmap(one)(networks, reward_scale)


def round_agents(spec: LearnerSpec, agents: drq.Agent) -> drq.Agent:
    """The agents with their weights in 16 bit, which updates with `--compute mixed` keep."""
    return jax.vmap(functools.partial(drq.round_agent, spec.config))(agents)


def add_recorded(
    spec: LearnerSpec, states: SeedStates, recorded: rp.Transition, count: Int[Array, "S"]
) -> tuple[SeedStates, None]:
    """Add the first `count` transitions, the same number for every seed, of [S, N, ...] recorded ones, in order.

    With several lanes they are [S, N, L, ...]. Frames that are in host memory are not among them, but vectors are where
    observations are normalised.
    """

    def add_one(states: SeedStates, transitions: rp.Transition) -> tuple[SeedStates, None]:
        agents = states.agents
        if agents.online.normaliser is not None:
            agents = jax.vmap(functools.partial(_note, spec))(agents, transitions.obs)
        return SeedStates(agents, jax.vmap(rp.add)(states.replays, transitions)), None

    # Only what an addition changes is carried through the loop; all else stays the very same array.
    leaves, structure = jax.tree.flatten(states)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (states, recorded))
    changes = uses_of(lambda states, all_of: add_one(states, _at(all_of, 0)), *shapes).changes

    def add_next(i: Array, changing: list[Array]) -> list[Array]:
        now = dict(enumerate(leaves)) | dict(zip(changes, changing, strict=True))
        after = jax.tree.leaves(add_one(jax.tree.unflatten(structure, list(now.values())), _at(recorded, i))[0])
        return [after[j] for j in changes]

    changed = jax.lax.fori_loop(0, count[0], add_next, [leaves[j] for j in changes])
    after = dict(enumerate(leaves)) | dict(zip(changes, changed, strict=True))
    return jax.tree.unflatten(structure, list(after.values())), None


def _at(recorded: rp.Transition, i: Any) -> rp.Transition:
    return jax.tree.map(lambda x: x[:, i], recorded)


def act_randomly(
    spec: LearnerSpec, states: SeedStates, roots: Key[Array, "S"], packets: UInt8[Array, "S *L N"]
) -> tuple[SeedStates, tuple[PendingTransition, UInt8[Array, "S *L N"]]]:
    """Each seed's next action, at random; the packets, of `PacketLayout`, stay on the device for `add`."""

    def one(replay: rp.Replay, root: Array, packet: Array) -> PendingTransition:
        def choose(packet: Array, where: Array) -> PendingTransition:
            return _random(spec, root, _unpack(spec, packet)[2], where)

        return _each_lane(spec, choose)(packet, _places(spec, replay.storage.clock + spec.lanes))

    return states, (jax.vmap(one)(states.replays, roots, packets), packets)


def act(
    spec: LearnerSpec, states: SeedStates, roots: Key[Array, "S"], packets: UInt8[Array, "S *L N"]
) -> tuple[SeedStates, tuple[PendingTransition, UInt8[Array, "S *L N"]]]:
    """Each seed's next action by its policy, with noise; the packets stay as in `act_randomly`."""

    def one(net: drq.Networks, replay: rp.Replay, root: Array, packet: Array) -> PendingTransition:
        def choose(packet: Array, where: Array) -> PendingTransition:
            return _by_policy(spec, net, root, _unpack(spec, packet)[2], where)

        return _each_lane(spec, choose)(packet, _places(spec, replay.storage.clock + spec.lanes))

    return states, (jax.vmap(one)(states.agents.online, states.replays, roots, packets), packets)


def add(
    spec: LearnerSpec, states: SeedStates, pending: PendingTransition, packets: UInt8[Array, "S *L N"]
) -> tuple[SeedStates, None]:
    """Complete the pending transitions and add them to the replays."""

    def complete(pending: PendingTransition, packet: Array) -> rp.Transition:
        (reward, terminated, truncated), next_obs, _ = _unpack(spec, packet)
        frame = spec.spaces.obs.newest_frames(next_obs)
        return rp.Transition(*pending, reward, frame, terminated > 0, truncated > 0)

    def one(replay: rp.Replay, pending: PendingTransition, packet: Array) -> rp.Replay:
        return rp.add(replay, _each_lane(spec, complete)(pending, packet))

    agents = states.agents
    if agents.online.normaliser is not None:
        agents = jax.vmap(functools.partial(_note, spec))(agents, pending.frame)
    return SeedStates(agents, jax.vmap(one)(states.replays, pending, packets)), None


def add_and_update(
    spec: LearnerSpec,
    states: SeedStates,
    pending: PendingTransition,
    packets: Array,
    roots: Key[Array, "S"],
    number: Int[Array, "S"],
) -> tuple[SeedStates, Float[Array, "S fields"]]:
    """Both, one after the other, in one program."""
    return update(spec, add(spec, states, pending, packets)[0], roots, number)


def update(
    spec: LearnerSpec, states: SeedStates, roots: Key[Array, "S"], number: Int[Array, "S"]
) -> tuple[SeedStates, Float[Array, "S fields"]]:
    """An RL update of every seed; `number`, from 0, among those of one round. Gives `metric_names`."""

    def one(agent: drq.Agent, replay: rp.Replay, root: Array, number: Array) -> tuple[SeedStates, Array]:
        key = _update_key(spec, "update", replay, root, number)
        return _learn(spec, agent, replay, drq.draw_for_critic(spec.config, replay, key))

    return jax.vmap(one)(states.agents, states.replays, roots, number)


def sync_targets_and_train_encoder(
    spec: LearnerSpec, states: SeedStates, roots: Key[Array, "S"], number: Int[Array, "S"]
) -> tuple[SeedStates, drq.EncoderMetrics]:
    """Target copies and encoder updates of every seed, before the RL update of that number."""

    def one(agent: drq.Agent, replay: rp.Replay, root: Array, number: Array) -> tuple[drq.Agent, drq.EncoderMetrics]:
        key = _update_key(spec, "encoder", replay, root, number)
        return drq.sync_targets_and_train_encoder(spec.config, agent, replay, key)

    agents, seen = jax.vmap(one)(states.agents, states.replays, roots, number)
    return states._replace(agents=agents), seen


def greedy(policies: drq.PolicyNetworks, obs: dict[str, Array]) -> Float[Array, "S E A"]:
    """Actions without noise for [S, E, ...] observations."""
    return jax.vmap(lambda policy, o: policy(o))(policies, obs)


# The same updates where frames are in host memory: draw, fetch, learn.


class EncoderPlan(NamedTuple):
    """What all encoder updates of a target period learn from."""

    draws: drq.EncoderDraws
    frames: rp.Frames
    """Slots of the frames they need by part, [S, P, F, B]."""


class CriticPlan(NamedTuple):
    """What one RL update learns from."""

    draw: drq.CriticDraw
    frames: rp.Frames
    """Slots of the frames it needs by part, [S, F, B]."""


def plan_encoder_training(
    spec: LearnerSpec, states: SeedStates, roots: Key[Array, "S"], number: Int[Array, "S"]
) -> tuple[SeedStates, EncoderPlan]:
    """Target copies, and what the encoder updates after them will learn from."""

    def one(agent: drq.Agent, replay: rp.Replay, root: Array, number: Array) -> tuple[drq.Agent, EncoderPlan]:
        draws = drq.draw_for_encoder(spec.config, replay, _update_key(spec, "encoder", replay, root, number))
        read = jax.vmap(lambda slots: rp.subtrajectory_frames(replay.storage, slots, spec.config.encoder_horizon))
        return drq.sync_targets(spec.config, agent, replay), EncoderPlan(draws, read(draws.slots))

    agents, plan = jax.vmap(one)(states.agents, states.replays, roots, number)
    return states._replace(agents=agents), plan


def learn_encoder(
    spec: LearnerSpec, states: SeedStates, draw: drq.EncoderDraws, frames: rp.Frames
) -> tuple[SeedStates, drq.EncoderMetrics]:
    """One encoder update of every seed on frames fetched for it."""
    learn = functools.partial(drq.learn_encoder, spec.config)
    agents, seen = jax.vmap(learn)(states.agents, states.replays, draw, frames)
    return states._replace(agents=agents), seen


def plan_update(spec: LearnerSpec, replays: rp.Replay, roots: Key[Array, "S"], number: Int[Array, "S"]) -> CriticPlan:
    """What an RL update will learn from."""

    def one(replay: rp.Replay, root: Array, number: Array) -> CriticPlan:
        draw = drq.draw_for_critic(spec.config, replay, _update_key(spec, "update", replay, root, number))
        return CriticPlan(draw, rp.n_step_frames(replay.storage, draw.slots, spec.config.q_horizon))

    return jax.vmap(one)(replays, roots, number)


def learn_actor_critic(
    spec: LearnerSpec, states: SeedStates, draw: drq.CriticDraw, frames: rp.Frames
) -> tuple[SeedStates, Float[Array, "S fields"]]:
    """One RL update of every seed on frames fetched for it."""
    return jax.vmap(functools.partial(_learn, spec))(states.agents, states.replays, draw, frames)


def have_valid_start(replays: rp.Replay) -> Bool[Array, "S"]:
    """Whether each seed's replay has anything to draw."""
    return jax.vmap(rp.has_valid_start)(replays)


# For one seed.


def _stream(root: Key[Array, ""], name: str, where: Int[Array, ""]) -> Key[Array, ""]:
    """A key for one purpose at one place of the run."""
    return jax.random.fold_in(jax.random.fold_in(root, _STREAMS[name]), where)


def _each_lane(spec: LearnerSpec, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function for each lane; with one lane the function itself, so that nothing of it changes."""
    return function if spec.lanes == 1 else jax.vmap(function)


def _places(spec: LearnerSpec, first: Int[Array, ""]) -> Int[Array, "*lanes"]:
    """Places in the run of transitions that are added together, one of each lane, from `first` on."""
    return first if spec.lanes == 1 else first + jnp.arange(spec.lanes, dtype=jnp.int32)


def _update_key(spec: LearnerSpec, purpose: str, replay: rp.Replay, root: Array, number: Array) -> Key[Array, ""]:
    """The key of an update. Places count updates, from a number that depends on the ratio alone."""
    clock, config = replay.storage.clock, spec.config
    if config.updates_per_step:
        return _stream(root, purpose, clock * config.updates_per_step + number)
    return _stream(root, purpose, (clock - spec.lanes) // config.steps_per_update + 1 + number)


def _note(spec: LearnerSpec, agent: drq.Agent, frame: dict[str, Array]) -> drq.Agent:
    """Let observations enter the normaliser: one, or one of each lane."""
    note = drq.note_observation if spec.lanes == 1 else drq.note_observations
    return note(spec.spaces.obs, agent, frame)


def _random(spec: LearnerSpec, root: Array, obs: dict[str, Array], where: Int[Array, ""]) -> PendingTransition:
    action = drq.random_action(spec.spaces.action, _stream(root, "random", where))
    return PendingTransition(spec.spaces.obs.newest_frames(obs), action)


def _by_policy(
    spec: LearnerSpec, net: drq.Networks, root: Array, obs: dict[str, Array], where: Int[Array, ""]
) -> PendingTransition:
    action = drq.explore(spec.config, net, obs, _stream(root, "explore", where))
    return PendingTransition(spec.spaces.obs.newest_frames(obs), action)


def _learn(
    spec: LearnerSpec, agent: drq.Agent, replay: rp.Replay, draw: drq.CriticDraw, frames: rp.Frames | None = None
) -> tuple[SeedStates, Float[Array, "fields"]]:
    agent, replay, seen = drq.learn_actor_critic(spec.config, agent, replay, draw, frames)
    return SeedStates(agent, replay), drq.update_metrics(replay, draw.slots, seen)


def packet_layout(spec: LearnerSpec) -> PacketLayout:
    """How a step's outcome comes from simulators."""
    return PacketLayout(spec.spaces.obs)


def _unpack(
    spec: LearnerSpec, packet: UInt8[Array, "N"]
) -> tuple[Float[Array, "3"], dict[str, Array], dict[str, Array]]:
    """What a packet holds: reward, terminated and truncated; where the step led; what to act on next."""
    layout = packet_layout(spec)

    def floats(part: UInt8[Array, "n"]) -> Float[Array, "m"]:
        return jax.lax.bitcast_convert_type(part.reshape(-1, 4), jnp.float32)

    next_obs, obs = {}, {}
    for part in layout.parts:
        both = packet[part.offset : part.offset + part.nbytes]
        both = both if part.dtype == np.uint8 else floats(both)
        next_obs[part.name], obs[part.name] = both.reshape(2, *part.shape)
    return floats(packet[: layout.numbers_bytes]), next_obs, obs
