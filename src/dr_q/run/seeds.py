"""The seeds axis: the one place where the agent of one seed becomes the agents of many.

Every compiled function takes all seeds' states, stacked along a leading axis, which may be spread over devices. A
random key is made from (seed, what it is for, where in the run): nothing random is carried, so a run can be taken up at
any step. Where in the run is the replay's own count of transitions, so that nothing but simulators' results goes to the
device.
"""

import concurrent.futures
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, UInt8

from dr_q import agent as drq
from dr_q import replay as rp
from dr_q.config import Config
from dr_q.envs import PacketLayout, Transitions
from dr_q.equations import fade_weight
from dr_q.run.host_frames import HostFrames
from dr_q.run.in_place import Held, InPlace
from dr_q.run.policy import PolicyNetworks

_STREAMS = {"init": 0, "explore": 1, "random": 2, "update": 3, "renew": 4}
_AXIS = "seeds"
_GPU_OPTIONS = {
    # Kernels that do not depend on each other run side by side.
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
    # cuBLAS is as fast for these products, and choosing among Triton's takes half of the compile time.
    "xla_gpu_enable_triton_gemm": False,
    # Merging products that share an operand copies the weights together first.
    "xla_gpu_dot_merger_threshold_mb": 0,
    # A product that adds a slice of another array gets a slow kernel if it reads the slice itself.
    "xla_gpu_enable_dynamic_slice_fusion": False,
}
Device = Any
"""A jax device; its class is not typed."""


class UpdateSummary(NamedTuple):
    """What an RL update saw, in numbers for a log; one per seed.

    A compiled update gives them as the columns of one array.
    """

    critic_loss: Array
    actor_loss: Array
    q_mean: Array
    q_target_mean: Array
    td_error_mean: Array
    priority_mean: Array
    priority_max: Array
    floored_share: Array
    age_mean: Array
    """Of the transitions drawn, in agent steps."""
    fade_mean: Array
    """Their mean weight for age."""

    @staticmethod
    def of(columns: Array) -> "UpdateSummary":
        """From an array [S, fields]."""
        return UpdateSummary(*np.asarray(columns).T)


class SeedStates(NamedTuple):
    """The agents and replays of all seeds."""

    agents: drq.Agent
    replays: rp.Replay


class Turn(NamedTuple):
    """What each seed acted on, and how: a transition whose outcome is not known yet."""

    frame: Array
    """The observation, [S, *frame]; of a stack its newest frame."""
    action: Float[Array, "*S A"]


class Task(NamedTuple):
    """What compiled functions are for; hashable."""

    config: Config
    shape: drq.TaskShape
    capacity: int
    """Slots of each seed's replay."""
    frames_on_host: bool = False


# For all seeds. Keys come from (seed, purpose, place in the run).


def root_keys(seeds: Sequence[int]) -> Key[Array, "S"]:
    """One key for each seed, from which all others come."""
    return jax.vmap(jax.random.key)(jnp.asarray(np.asarray(seeds, np.uint32)))


def init_agents(task: Task, roots: Key[Array, "S"]) -> drq.Agent:
    """Fresh agents."""

    def one(root: Key[Array, ""]) -> drq.Agent:
        key = _stream(root, "init", jnp.zeros((), jnp.int32))
        return drq.init_agent(task.config, drq.init_networks(task.config, task.shape, key))

    return jax.vmap(one)(roots)


def init_replays(task: Task, roots: Key[Array, "S"]) -> rp.Replay:
    """Empty replays, one for each key."""

    def one(_: Key[Array, ""]) -> rp.Replay:
        return drq.init_replay(task.config, task.shape, task.capacity, frames_elsewhere=task.frames_on_host)

    return jax.vmap(one)(roots)


def init_states(task: Task, roots: Key[Array, "S"]) -> SeedStates:
    """Fresh agents with empty replays."""
    return SeedStates(init_agents(task, roots), init_replays(task, roots))


def first_turn(task: Task, exploring: bool, networks: drq.Networks, roots: Key[Array, "S"], obs: Array) -> Turn:
    """Actions for the first observations of a run."""

    def one(net: drq.Networks, root: Key[Array, ""], obs: Array) -> Turn:
        return _turn(task, exploring, net, root, obs, jnp.zeros((), jnp.int32))

    return jax.vmap(one)(networks, roots, obs)


def act(
    task: Task, exploring: bool, states: SeedStates, roots: Key[Array, "S"], packets: UInt8[Array, "S N"]
) -> tuple[SeedStates, tuple[Turn, UInt8[Array, "S N"]]]:
    """Each seed's next turn, on what came of its last one; the packets, of `PacketLayout`, stay there for `add`."""

    def one(net: drq.Networks, replay: rp.Replay, root: Array, packet: Array) -> Turn:
        _, (_, obs) = _unpack(task.shape, packet)
        return _turn(task, exploring, net, root, obs, replay.clock + 1)

    return states, (jax.vmap(one)(states.agents.online, states.replays, roots, packets), packets)


def add(task: Task, states: SeedStates, turn: Turn, packets: UInt8[Array, "S N"]) -> tuple[SeedStates, None]:
    """Add the transitions that began with these turns to the replays."""

    def one(replay: rp.Replay, turn: Turn, packet: Array) -> rp.Replay:
        (reward, terminated, truncated), (next_obs, _) = _unpack(task.shape, packet)
        frame = _newest(task.shape, next_obs)
        return rp.add(replay, rp.Transition(*turn, reward, frame, terminated > 0, truncated > 0))

    return states._replace(replays=jax.vmap(one)(states.replays, turn, packets)), None


def add_and_update(
    task: Task, states: SeedStates, turn: Turn, packets: Array, roots: Key[Array, "S"], number: Int[Array, "S"]
) -> tuple[SeedStates, Float[Array, "S fields"]]:
    """Both, one after the other, in one program."""
    return update(task, add(task, states, turn, packets)[0], roots, number)


def update(
    task: Task, states: SeedStates, roots: Key[Array, "S"], number: Int[Array, "S"]
) -> tuple[SeedStates, Float[Array, "S fields"]]:
    """An RL update of every seed; `number`, from 0, among those of one agent step. Gives columns of `UpdateSummary`."""

    def one(agent: drq.Agent, replay: rp.Replay, root: Array, number: Array) -> tuple[SeedStates, Array]:
        key = _update_key(task, replay, root, number)
        draw = drq.draw_for_critic(task.config, replay, key)
        agent, replay, seen = drq.learn_actor_critic(task.config, agent, replay, draw)
        return SeedStates(agent, replay), _summary(replay, draw.slots, seen)

    return jax.vmap(one)(states.agents, states.replays, roots, number)


def renew(
    task: Task, states: SeedStates, roots: Key[Array, "S"], number: Int[Array, "S"]
) -> tuple[SeedStates, drq.EncoderMetrics]:
    """Target copies and encoder updates of every seed, before the RL update of that number."""

    def one(agent: drq.Agent, replay: rp.Replay, root: Array, number: Array) -> tuple[drq.Agent, drq.EncoderMetrics]:
        return drq.renew(task.config, agent, replay, _renew_key(task, replay, root, number))

    agents, seen = jax.vmap(one)(states.agents, states.replays, roots, number)
    return states._replace(agents=agents), seen


def greedy(policies: PolicyNetworks, obs: Array) -> Float[Array, "S E A"]:
    """Actions without noise for [S, E, ...] observations."""
    return jax.vmap(lambda policy, o: policy(o))(policies, obs)


# The same updates where frames are in host memory: draw, fetch, learn.


class EncoderPlan(NamedTuple):
    """What all encoder updates of a renewal learn from."""

    draws: drq.EncoderDraws
    frames: Int[Array, "S P F B"]
    """Slots of the frames they need."""


class CriticPlan(NamedTuple):
    """What one RL update learns from."""

    draw: drq.CriticDraw
    frames: Int[Array, "S F B"]


def plan_renewal(
    task: Task, states: SeedStates, roots: Key[Array, "S"], number: Int[Array, "S"]
) -> tuple[SeedStates, EncoderPlan]:
    """Target copies, and what the encoder updates after them will learn from."""

    def one(agent: drq.Agent, replay: rp.Replay, root: Array, number: Array) -> tuple[drq.Agent, EncoderPlan]:
        draws = drq.draw_for_encoder(task.config, replay, _renew_key(task, replay, root, number))
        read = jax.vmap(lambda slots: rp.subtrajectory_frames(replay, slots, task.config.encoder_horizon))
        return drq.renew_targets(task.config, agent, replay), EncoderPlan(draws, read(draws.slots))

    agents, plan = jax.vmap(one)(states.agents, states.replays, roots, number)
    return states._replace(agents=agents), plan


def learn_encoder(
    task: Task, states: SeedStates, draw: drq.EncoderDraws, frames: Array
) -> tuple[SeedStates, drq.EncoderMetrics]:
    """One encoder update of every seed on frames fetched for it."""
    learn = functools.partial(drq.learn_encoder, task.config)
    agents, seen = jax.vmap(learn)(states.agents, states.replays, draw, frames)
    return states._replace(agents=agents), seen


def plan_update(task: Task, replays: rp.Replay, roots: Key[Array, "S"], number: Int[Array, "S"]) -> CriticPlan:
    """What an RL update will learn from."""

    def one(replay: rp.Replay, root: Array, number: Array) -> CriticPlan:
        draw = drq.draw_for_critic(task.config, replay, _update_key(task, replay, root, number))
        return CriticPlan(draw, rp.n_step_frames(replay, draw.slots, task.config.q_horizon))

    return jax.vmap(one)(replays, roots, number)


def learn_actor_critic(
    task: Task, states: SeedStates, draw: drq.CriticDraw, frames: Array
) -> tuple[SeedStates, Float[Array, "S fields"]]:
    """One RL update of every seed on frames fetched for it."""

    def one(agent: drq.Agent, replay: rp.Replay, draw: drq.CriticDraw, *rest: Any) -> tuple[SeedStates, Array]:
        agent, replay, seen = drq.learn_actor_critic(task.config, agent, replay, draw, *rest)
        return SeedStates(agent, replay), _summary(replay, draw.slots, seen)

    return jax.vmap(one)(states.agents, states.replays, draw, frames)


# For one seed.


def _stream(root: Key[Array, ""], name: str, where: Int[Array, ""]) -> Key[Array, ""]:
    """A key for one purpose at one place of the run."""
    return jax.random.fold_in(jax.random.fold_in(root, _STREAMS[name]), where)


def _update_key(task: Task, replay: rp.Replay, root: Array, number: Array) -> Key[Array, ""]:
    return _stream(root, "update", replay.clock * task.config.replay_ratio + number)


def _renew_key(task: Task, replay: rp.Replay, root: Array, number: Array) -> Key[Array, ""]:
    return _stream(root, "renew", replay.clock * task.config.replay_ratio + number)


def _turn(
    task: Task, exploring: bool, net: drq.Networks, root: Key[Array, ""], obs: Array, where: Int[Array, ""]
) -> Turn:
    if exploring:
        action = drq.random_action(task.shape.action_dim, _stream(root, "random", where))
    else:
        action = drq.explore(task.config, net, obs, _stream(root, "explore", where))
    return Turn(_newest(task.shape, obs), action)


def _unpack(shape: drq.TaskShape, packet: UInt8[Array, "N"]) -> tuple[Float[Array, "3"], Array]:
    """Numbers and [2, *obs] observations of a packet."""
    layout = packet_layout(shape)

    def floats(part: UInt8[Array, "n"]) -> Float[Array, "m"]:
        return jax.lax.bitcast_convert_type(part.reshape(-1, 4), jnp.float32)

    numbers, rest = jnp.split(packet, [layout.numbers_bytes])
    observations = rest[: layout.observations_bytes]
    observations = observations if shape.pixels else floats(observations)
    return floats(numbers), observations.reshape(2, *shape.obs_shape)


def packet_layout(shape: drq.TaskShape) -> PacketLayout:
    """How a step's outcome comes from simulators."""
    return PacketLayout(shape.obs_shape, shape.pixels)


def _newest(shape: drq.TaskShape, obs: Array) -> Array:
    """Of a stack of frames the last; a vector whole."""
    return obs[obs.shape[0] - shape.frame_shape[0] :]


def _summary(replay: rp.Replay, slots: Array, seen: drq.ActorCriticMetrics) -> Float[Array, "fields"]:
    age = rp.age(replay, slots)
    td_error = jnp.max(jnp.abs(seen.q - seen.q_target[:, None]), axis=-1)
    return jnp.stack(
        UpdateSummary(
            critic_loss=seen.critic_loss,
            actor_loss=seen.actor_loss,
            q_mean=jnp.mean(seen.q),
            q_target_mean=jnp.mean(seen.q_target),
            td_error_mean=jnp.mean(td_error),
            priority_mean=jnp.mean(seen.priority),
            priority_max=replay.max_priority,
            floored_share=rp.floored_share(replay),
            age_mean=jnp.mean(age.astype(jnp.float32)),
            fade_mean=jnp.mean(fade_weight(age, replay.spec.fade_decay, replay.spec.fade_floor)),
        )
    )


# Where they are, and what runs there.


class Placement:
    """On which devices the seeds are: equal shares of them, in order."""

    def __init__(self, seeds: int, devices: Sequence[Device] | None = None):
        """The most devices that can have equal shares; by default of all of the default platform."""
        devices = jax.devices() if devices is None else devices
        count = max(n for n in range(1, len(devices) + 1) if seeds % n == 0)
        self.devices = tuple(devices[:count])
        if count == 1:
            self._mesh = None
            self._sharding: jax.sharding.Sharding = jax.sharding.SingleDeviceSharding(self.devices[0])
        else:
            self._mesh = jax.sharding.Mesh(np.asarray(self.devices), (_AXIS,))
            self._sharding = jax.sharding.NamedSharding(self._mesh, jax.sharding.PartitionSpec(_AXIS))

    def put(self, tree: Any) -> Any:
        """Arrays with a leading axis of seeds, on their devices."""
        return jax.device_put(tree, self._sharding)

    def put_step(self, array: np.ndarray) -> Any:
        """The same for what goes to a compiled program at every step: to one device, the program sends it faster."""
        return array if self._mesh is None else self.put(array)

    def spread(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function on each device for its own seeds; nothing passes between devices."""
        if self._mesh is None:
            return function
        by_seed = jax.sharding.PartitionSpec(_AXIS)
        return jax.shard_map(function, mesh=self._mesh, in_specs=by_seed, out_specs=by_seed, check_vma=False)

    def shapes(self, tree: Any) -> Any:
        """What arrays placed so look like, to compile for."""
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self._sharding), tree)


class Programs:
    """The compiled functions of a task, for a number of seeds on given devices."""

    def __init__(self, task: Task, placement: Placement):
        spread = placement.spread
        options = _GPU_OPTIONS if placement.devices[0].platform == "gpu" else None

        def function(step: Callable[..., Any]) -> Any:
            return jax.jit(spread(step))

        def in_place(step: Callable[..., Any]) -> InPlace:
            return InPlace(functools.partial(step, task), spread, options)

        self.init_states = function(functools.partial(init_states, task))
        self.first_turn = {e: function(functools.partial(first_turn, task, e)) for e in (True, False)}
        self.act = {e: InPlace(functools.partial(act, task, e), spread, options) for e in (True, False)}
        self.add, self.add_and_update = in_place(add), in_place(add_and_update)
        self.greedy = function(greedy)
        self.copy = function(lambda tree: jax.tree.map(jnp.copy, tree))
        self.have_valid_start = function(jax.vmap(rp.has_valid_start))
        self.renew, self.update = in_place(renew), in_place(update)
        self.plan_renewal, self.learn_encoder = in_place(plan_renewal), in_place(learn_encoder)
        self.learn_actor_critic = in_place(learn_actor_critic)
        self.plan_update = function(functools.partial(plan_update, task))


@functools.lru_cache(maxsize=16)
def _programs(task: Task, seeds: int, devices: tuple[Device, ...]) -> Programs:
    return Programs(task, Placement(seeds, devices))


def _hold(states: SeedStates) -> Held:
    # Replays apart: programs must not differ in more than they have to between capacities, or results would.
    return Held(states, apart=states.replays)


class Seeds:
    """The agents and replays of all seeds, as they learn."""

    def __init__(
        self,
        task: Task,
        seeds: Sequence[int],
        devices: Sequence[Device] | None = None,
        *,
        fuse: bool | None = None,
    ):
        """`fuse`: add and update in one program, which costs compiling the update twice; by default on a GPU."""
        self.task = task
        self.placement = Placement(len(seeds), devices)
        on_host = task.frames_on_host
        self._fuse = not on_host and (self.placement.devices[0].platform != "cpu" if fuse is None else fuse)
        self._run = _programs(task, len(seeds), self.placement.devices)
        self._roots = self.placement.put(root_keys(seeds))
        numbers = np.arange(task.config.replay_ratio, dtype=np.int32)
        self._numbers = [self.placement.put(np.full(len(seeds), n)) for n in numbers]
        self._held = Held(())
        self.turn: Turn | None = None
        self._arrived: tuple[Turn, Any] | None = None
        """A turn and the packet of what came of it, not in the replay yet."""
        self.frames: HostFrames | None = None
        if on_host:
            self.frames = HostFrames(jax.eval_shape(lambda: init_replays(task, root_keys([0]))).spec, len(seeds))

    @property
    def states(self) -> SeedStates:
        """Agents and replays as they are now; the next step may write over them."""
        return self._held.tree

    def begin(self, obs: np.ndarray) -> None:
        """Fresh agents, acting on their first observations."""
        self._held = _hold(self._run.init_states(self._roots))
        exploring = self.task.config.exploration_steps > 0
        self.turn = self._run.first_turn[exploring](self.states.agents.online, self._roots, self.placement.put(obs))

    def restore(self, states: SeedStates, turn: Turn) -> None:
        """Go on from a checkpoint's states; frames in host memory have been written already."""
        placed = self.placement.put(states)
        if self.placement.devices[0].platform == "cpu":
            # What a step donates must be the device's own; here it may be memory that numpy still holds, whatever
            # device_put's may_alias says. A GPU's is its own, and has no room for a copy of a large replay.
            placed = self._run.copy(placed)
        self._held = _hold(placed)
        self.turn = self.placement.put(turn)
        if self.frames is not None:
            self.frames.restore(np.asarray(states.replays.cursor))

    def wait(self) -> None:
        """Until the device has done all that was asked of it."""
        self._held.wait()

    def compile(self) -> float:
        """Compile what a run needs; the seconds it took. Once for a task and number of seeds."""
        start = time.perf_counter()
        packets = jax.ShapeDtypeStruct((len(self._roots), packet_layout(self.task.shape).size), jnp.uint8)
        (packets,) = self.placement.shapes((packets,))
        run, held, roots, numbers = self._run, self._held, self._roots, self._numbers[0]
        jobs: list[tuple[InPlace, tuple[Any, ...]]] = [(run.act[e], (roots, packets)) for e in (True, False)]
        jobs.append((run.add, (self.turn, packets)))
        if self.frames is None:
            jobs += [(run.update, (roots, numbers)), (run.renew, (roots, numbers))]
        if self._fuse:
            jobs.append((run.add_and_update, (self.turn, packets, roots, numbers)))
        with concurrent.futures.ThreadPoolExecutor(len(jobs)) as threads:
            for job in [threads.submit(program.compile, held, *rest) for program, rest in jobs]:
                job.result()
        return time.perf_counter() - start

    def actions(self) -> np.ndarray:
        """The actions chosen last, in [-1, 1]; waits for them."""
        assert self.turn is not None
        return np.asarray(self.turn.action)

    def act(self, arrived: Transitions, *, exploring: bool) -> None:
        """Choose the next actions, on what came of the last ones; `add` is to follow."""
        assert self.turn is not None
        assert self._arrived is None, "what came before is not in the replay yet"
        if self.frames is not None:
            channels = self.task.shape.frame_shape[0]
            final = arrived.next_obs[:, arrived.next_obs.shape[1] - channels :]
            self.frames.add(np.asarray(self.turn.frame), final, arrived.terminated | arrived.truncated)
        turn, packets = self._run.act[exploring](self._held, self._roots, self.placement.put_step(arrived.packet))
        turn.action.copy_to_host_async()  # under way while the update is dispatched
        self.turn, self._arrived = turn, (self.turn, packets)

    def add(self) -> None:
        """Put what came of the turn before in the replays, unless that is done."""
        if self._arrived is not None:
            self._run.add(self._held, *self._arrived)
            self._arrived = None

    def update(self, number: int) -> Float[Array, "S fields"]:
        """`add`, then an RL update of every seed, the given one of this agent step; columns of `UpdateSummary`."""
        rest = (self._roots, self._numbers[number])
        if self._fuse and self._arrived is not None:
            arrived, self._arrived = self._arrived, None
            return self._run.add_and_update(self._held, *arrived, *rest)
        self.add()
        if self.frames is None:
            return self._run.update(self._held, *rest)
        plan = self._run.plan_update(self.states.replays, *rest)
        frames = self.placement.put(self.frames.gather(np.asarray(plan.frames)))
        return self._run.learn_actor_critic(self._held, plan.draw, frames)

    def renew(self, number: int) -> drq.EncoderMetrics:
        """`add`, then target copies and encoder updates of every seed, before that RL update."""
        self.add()
        rest = (self._roots, self._numbers[number])
        if self.frames is None:
            return self._run.renew(self._held, *rest)
        plan = self._run.plan_renewal(self._held, *rest)
        slots = np.asarray(plan.frames)
        seen = []
        ahead = self.frames.gather_ahead(slots[:, 0])
        for i in range(slots.shape[1]):
            frames = self.placement.put(ahead.result())
            if i + 1 < slots.shape[1]:
                ahead = self.frames.gather_ahead(slots[:, i + 1])
            draw = jax.tree.map(lambda x, i=i: x[:, i], plan.draws)
            seen.append(self._run.learn_encoder(self._held, draw, frames))
        return jax.tree.map(lambda *x: jnp.mean(jnp.stack(x), axis=0), *seen)

    def have_valid_start(self) -> np.ndarray:
        """Whether each seed's replay has anything to draw."""
        return np.asarray(self._run.have_valid_start(self.states.replays))

    def policies(self) -> PolicyNetworks:
        """A copy of what acts, which further steps leave alone."""
        online = self.states.agents.online
        return self._run.copy(PolicyNetworks(online.encoder.state, online.actor))

    def greedy(self, policies: PolicyNetworks, obs: np.ndarray) -> np.ndarray:
        """Actions without noise of [S, E, ...] observations; waits for them."""
        return np.asarray(self._run.greedy(policies, self.placement.put_step(obs)))
