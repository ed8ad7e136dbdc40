"""The agents and replays of all seeds, as they learn."""

import concurrent.futures
import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dr_q import agent as drq
from dr_q import replay as rp
from dr_q.agent.named_arrays import fill_tree, named_arrays
from dr_q.envs import Transitions
from dr_q.learner.donation import DonatedState, DonatingStep
from dr_q.learner.host_frames import HostFrames
from dr_q.learner.placement import Device, Placement
from dr_q.learner.programs import compiled_part, programs_for
from dr_q.learner.steps import (
    LearnerSpec,
    PendingTransition,
    SeedStates,
    packet_layout,
    pretraining_keys,
    root_keys,
)

REWARD_SCALE = "reward_scale"
"""What MR.Q's critics have as their unit, among the weights that agents begin with."""
_RECORDED_AT_ONCE = 1_024
"""Recorded transitions that go to the device together, and how many bytes of frames at most."""
_RECORDED_BYTES = 64 * 2**20


class Learner:
    """The agents and replays of all seeds, as they learn."""

    def __init__(
        self,
        spec: LearnerSpec,
        seeds: Sequence[int],
        devices: Sequence[Device] | None = None,
        *,
        fuse: bool | None = None,
    ):
        """`fuse`: add and update in one program, which costs compiling the update twice; by default on a GPU."""
        self.spec = spec
        self.placement = Placement(len(seeds), devices)
        on_host = spec.frames_on_host
        self._fuse = not on_host and (self.placement.devices[0].platform != "cpu" if fuse is None else fuse)
        self._programs = programs_for(compiled_part(spec), len(seeds), self.placement.devices)
        self._roots = self.placement.put(root_keys(seeds))
        numbers = np.arange(spec.config.most_updates(spec.lanes), dtype=np.int32)
        self._numbers = [self.placement.put(np.full(len(seeds), n)) for n in numbers]
        self._donated = DonatedState(())
        self.pending: PendingTransition | None = None
        self._arrived: tuple[PendingTransition, Any] | None = None
        """A pending transition and the packet of its outcome, not in the replay yet."""
        self.frames: HostFrames | None = None
        if on_host:
            self.frames = HostFrames(spec.spaces.obs, spec.capacity, len(seeds), spec.lanes)

    @property
    def states(self) -> SeedStates:
        """Agents and replays as they are now; the next step may write over them."""
        states: SeedStates = self._donated.tree
        if states.agents.rounded is None:
            return states
        return states._replace(agents=eqx.tree_at(lambda agents: agents.rounded, states.agents, None))

    def _keep(self, states: SeedStates) -> None:
        """Learn with these from now on."""
        if self.spec.config.compute != "float32":
            states = states._replace(agents=self._programs.round_agents(states.agents))
        # Replays apart: programs must not differ in more than they have to between capacities, or results would.
        self._donated = DonatedState(states, apart=states.replays)

    def begin(self, obs: dict[str, np.ndarray]) -> None:
        """Fresh agents, acting on their first observations, [S x L, ...]."""
        self.begin_agents()
        self.begin_acting(obs)

    def begin_agents(self, weights: Mapping[str, np.ndarray] | None = None) -> None:
        """Fresh agents with empty replays; `weights` takes the place of what they have of these names, [S, ...].

        Names are those of `Networks`; `REWARD_SCALE` is the unit of critics among them.
        """
        states = self._programs.init_states(self._roots)
        if weights:
            networks = named_arrays(states.agents.online)
            scale = weights.get(REWARD_SCALE, np.ones(len(self._roots), np.float32))
            known = {name: x for name, x in weights.items() if name in networks}
            filled = fill_tree(states.agents.online, {**networks, **known}, "the weights")
            states = states._replace(
                agents=self._programs.agents_around(self.placement.put(filled), self.placement.put(scale))
            )
        self._keep(states)

    def begin_acting(self, obs: dict[str, np.ndarray], *, at_random: bool = True) -> None:
        """Choose the first actions of a run, on observations [S x L, ...]."""
        placed = self.placement.put({name: self._by_seed(x) for name, x in obs.items()})
        if at_random:
            self.pending = self._programs.first_action(self._roots, placed)
        else:
            self.pending = self._programs.first_policy_action(self.states, self._roots, placed)

    def add_recorded(self, transitions: rp.Transition, terminal: np.ndarray) -> None:
        """Add [S, N, ...] recorded transitions in order, before a run begins; with several lanes [S, N, L, ...].

        Args:
            transitions: Their frames are the newest of each observation, as the replay stores them.
            terminal: [S, N] or [S, N, L], whether an episode ends with each.
        """
        seeds, count = terminal.shape[:2]
        if self.frames is not None:
            for i in range(count):
                both = (transitions.obs, transitions.next_obs)
                now, after = ({k: self._by_lane(x[:, i]) for k, x in obs.items()} for obs in both)
                self.frames.add(now, after, self._by_lane(terminal[:, i]))
            vectors = {k: x for k, x in transitions.obs.items() if k not in self.spec.spaces.obs.images}
            transitions = transitions._replace(obs=vectors, next_obs={})
        frame_bytes = max(1, seeds * self.spec.lanes * self.spec.spaces.obs.frame_bytes)
        at_once = int(min(_RECORDED_AT_ONCE, max(1, _RECORDED_BYTES // frame_bytes)))
        for start in range(0, count, at_once):
            part = jax.tree.map(lambda x, a=start: _padded(x[:, a : a + at_once], at_once), transitions)
            size = np.full(seeds, min(at_once, count - start), np.int32)
            self._programs.add_recorded(self._donated, self.placement.put(part), self.placement.put(size))

    def pretrain_encoder(self, rounds: int) -> drq.EncoderMetrics | None:
        """Target copies and a target period of encoder updates each, before a run begins."""
        seen = None
        for i in range(rounds):
            # Places before those of all updates of the run, whose keys stay as they are: nothing was learnt there.
            seen = self.sync_targets_and_train_encoder(-(i + 1))
        return seen

    def pretrain_policy(self, update: int) -> tuple[drq.EncoderMetrics | None, Float[Array, "S fields"]]:
        """RL update number `update`, from 0, before a run begins: as in training, with keys of its own purpose."""
        # Nothing is added meanwhile: the number alone distinguishes the updates.
        return self.learn(update, update, self._pretraining_roots)

    @functools.cached_property
    def _pretraining_roots(self) -> Any:
        return self.placement.put(pretraining_keys(self._roots))

    def restore(self, states: SeedStates, pending: PendingTransition) -> None:
        """Continue from a checkpoint's states; frames in host memory have been written already."""
        placed = self.placement.put(states)
        if self.placement.devices[0].platform == "cpu":
            # What a step donates must be the device's own; here it may be memory that numpy still holds, whatever
            # device_put's may_alias says. A GPU's is its own, and has no room for a copy of a large replay.
            placed = self._programs.copy(placed)
        self._keep(placed)
        self.pending = self.placement.put(pending)
        if self.frames is not None:
            self.frames.restore(np.asarray(states.replays.storage.cursor))

    def wait(self) -> None:
        """Until the device has done all that was asked of it."""
        self._donated.wait()

    def compile(self) -> float:
        """Compile what a run needs; the seconds it took. Once for a task and number of seeds.

        With frames in host memory, an update's programs are compiled when it is first made: some of what they take
        has no shape before.
        """
        start = time.perf_counter()
        lanes = (self.spec.lanes,) if self.spec.lanes > 1 else ()
        packets = jax.ShapeDtypeStruct((len(self._roots), *lanes, packet_layout(self.spec).size), jnp.uint8)
        (packets,) = self.placement.shapes((packets,))
        run, state, roots, numbers = self._programs, self._donated, self._roots, self._numbers[0]
        jobs: list[tuple[DonatingStep, tuple[Any, ...]]] = [
            (run.act_randomly, (roots, packets)),
            (run.act, (roots, packets)),
            (run.add, (self.pending, packets)),
        ]
        if self.frames is None:
            jobs += [(run.update, (roots, numbers)), (run.sync_targets_and_train_encoder, (roots, numbers))]
        if self._fuse:
            jobs.append((run.add_and_update, (self.pending, packets, roots, numbers)))
        with concurrent.futures.ThreadPoolExecutor(len(jobs)) as threads:
            for job in [threads.submit(program.compile, state, *rest) for program, rest in jobs]:
                job.result()
        return time.perf_counter() - start

    def actions(self) -> np.ndarray:
        """The actions chosen last, [S x L, A] in [-1, 1]; waits for them."""
        assert self.pending is not None
        return self._by_lane(self.pending.action)

    def act_randomly(self, arrived: Transitions) -> None:
        """Choose the next actions at random; `add` what came of the last ones next."""
        self._act(self._programs.act_randomly, arrived)

    def act(self, arrived: Transitions) -> None:
        """Choose the next actions by the policies, with noise, on what came of the last ones; `add` that next."""
        self._act(self._programs.act, arrived)

    def _act(self, act: DonatingStep, arrived: Transitions) -> None:
        assert self.pending is not None
        assert self._arrived is None, "what came before is not in the replay yet"
        if self.frames is not None:
            final = self.spec.spaces.obs.newest_frames(arrived.next_obs, axis=1)
            frame = {name: self._by_lane(x) for name, x in self.pending.frame.items()}
            self.frames.add(frame, final, arrived.terminated | arrived.truncated)
        pending, packets = act(self._donated, self._roots, self.placement.put_step(self._by_seed(arrived.packet)))
        pending.action.copy_to_host_async()  # under way while the update is dispatched
        self.pending, self._arrived = pending, (self.pending, packets)

    def _by_seed(self, x: np.ndarray) -> np.ndarray:
        """What simulators gave, [S x L, ...], as programs take it: with several lanes [S, L, ...]."""
        return x if self.spec.lanes == 1 else x.reshape(-1, self.spec.lanes, *x.shape[1:])

    def _by_lane(self, x: Any) -> np.ndarray:
        """The reverse, as simulators take it."""
        return np.asarray(x) if self.spec.lanes == 1 else np.asarray(x).reshape(-1, *x.shape[2:])

    def add(self) -> None:
        """Complete the last transition in the replays, unless that is done."""
        if self._arrived is not None:
            self._programs.add(self._donated, *self._arrived)
            self._arrived = None

    def learn(
        self, update: int, number: int, roots: Any = None
    ) -> tuple[drq.EncoderMetrics | None, Float[Array, "S fields"]]:
        """RL update `update` of every seed, from 0; before it, where they are due, target copies and encoder updates.

        Args:
            update: Its number in the run.
            number: Its number in this round.
            roots: Root keys, if not the run's.
        """
        due = update % self.spec.config.target_period == 0
        seen = self.sync_targets_and_train_encoder(number, roots) if due else None
        return seen, self.update(number, roots)

    def _keys_of(self, number: int, roots: Any) -> tuple[Any, Any]:
        """Root keys and the number of an update in its round, from which its keys come."""
        usual = 0 <= number < len(self._numbers)
        placed = self._numbers[number] if usual else self.placement.put(np.full(len(self._roots), number, np.int32))
        return self._roots if roots is None else roots, placed

    def update(self, number: int, roots: Any = None) -> Float[Array, "S fields"]:
        """`add`, then an RL update of every seed, the given one of this round; columns of `metric_names`."""
        rest = self._keys_of(number, roots)
        if self._fuse and self._arrived is not None:
            arrived, self._arrived = self._arrived, None
            return self._programs.add_and_update(self._donated, *arrived, *rest)
        self.add()
        if self.frames is None:
            return self._programs.update(self._donated, *rest)
        plan = self._programs.plan_update(self.states.replays, *rest)
        frames = self.placement.put(self.frames.gather(_to_host(plan.frames)))
        return self._programs.learn_actor_critic(self._donated, plan.draw, frames)

    def sync_targets_and_train_encoder(self, number: int, roots: Any = None) -> drq.EncoderMetrics:
        """`add`, then target copies and encoder updates of every seed, before that RL update."""
        self.add()
        rest = self._keys_of(number, roots)
        if self.frames is None:
            return self._programs.sync_targets_and_train_encoder(self._donated, *rest)
        plan = self._programs.plan_encoder_training(self._donated, *rest)
        slots, updates = _to_host(plan.frames), self.spec.config.encoder_updates_per_sync
        seen = []
        ahead = self.frames.gather_ahead({name: x[:, 0] for name, x in slots.items()})
        for i in range(updates):
            frames = self.placement.put(ahead.result())
            if i + 1 < updates:
                ahead = self.frames.gather_ahead({name: x[:, i + 1] for name, x in slots.items()})
            draw = jax.tree.map(lambda x, i=i: x[:, i], plan.draws)
            seen.append(self._programs.learn_encoder(self._donated, draw, frames))
        return jax.tree.map(lambda *x: jnp.mean(jnp.stack(x), axis=0), *seen)

    def have_valid_start(self) -> np.ndarray:
        """Whether each seed's replay has anything to draw."""
        return np.asarray(self._programs.have_valid_start(self.states.replays))

    def policies(self) -> drq.PolicyNetworks:
        """A copy of what acts, which further steps leave alone."""
        online = self.states.agents.online
        return self._programs.copy(online.policy)

    def greedy(self, policies: drq.PolicyNetworks, obs: dict[str, np.ndarray]) -> np.ndarray:
        """Actions without noise of [S, E, ...] observations; waits for them."""
        return np.asarray(self._programs.greedy(policies, jax.tree.map(self.placement.put_step, obs)))

    def empty_draws(self) -> np.ndarray:
        """Updates of each seed that found nothing to draw; waits for them."""
        return np.asarray(self.states.replays.empty_draws)


def _padded(x: np.ndarray, count: int) -> np.ndarray:
    """[S, n, ...] as [S, count, ...], so that one compiled program adds any number."""
    missing = count - x.shape[1]
    return np.pad(x, [(0, 0), (0, missing), *[(0, 0)] * (x.ndim - 2)]) if missing else x


def _to_host(slots: dict[str, Array]) -> dict[str, np.ndarray]:
    return {name: np.asarray(x) for name, x in slots.items()}
