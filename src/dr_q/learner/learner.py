"""The agents and replays of all seeds, as they learn."""

import concurrent.futures
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dr_q import agent as drq
from dr_q.envs import Transitions
from dr_q.learner.donation import DonatedState, DonatingStep
from dr_q.learner.host_frames import HostFrames
from dr_q.learner.placement import Device, Placement
from dr_q.learner.programs import compiled_part, programs_for
from dr_q.learner.steps import LearnerSpec, PendingTransition, SeedStates, packet_layout, root_keys


def _donated(states: SeedStates) -> DonatedState:
    # Replays apart: programs must not differ in more than they have to between capacities, or results would.
    return DonatedState(states, apart=states.replays)


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
        numbers = np.arange(spec.config.replay_ratio, dtype=np.int32)
        self._numbers = [self.placement.put(np.full(len(seeds), n)) for n in numbers]
        self._donated = DonatedState(())
        self.pending: PendingTransition | None = None
        self._arrived: tuple[PendingTransition, Any] | None = None
        """A pending transition and the packet of its outcome, not in the replay yet."""
        self.frames: HostFrames | None = None
        if on_host:
            self.frames = HostFrames(spec.spaces.obs, spec.capacity, len(seeds))

    @property
    def states(self) -> SeedStates:
        """Agents and replays as they are now; the next step may write over them."""
        return self._donated.tree

    def begin(self, obs: dict[str, np.ndarray]) -> None:
        """Fresh agents, acting on their first observations."""
        self._donated = _donated(self._programs.init_states(self._roots))
        self.pending = self._programs.first_action(self._roots, self.placement.put(obs))

    def restore(self, states: SeedStates, pending: PendingTransition) -> None:
        """Continue from a checkpoint's states; frames in host memory have been written already."""
        placed = self.placement.put(states)
        if self.placement.devices[0].platform == "cpu":
            # What a step donates must be the device's own; here it may be memory that numpy still holds, whatever
            # device_put's may_alias says. A GPU's is its own, and has no room for a copy of a large replay.
            placed = self._programs.copy(placed)
        self._donated = _donated(placed)
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
        packets = jax.ShapeDtypeStruct((len(self._roots), packet_layout(self.spec).size), jnp.uint8)
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
        """The actions chosen last, in [-1, 1]; waits for them."""
        assert self.pending is not None
        return np.asarray(self.pending.action)

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
            frame = {name: np.asarray(x) for name, x in self.pending.frame.items()}
            self.frames.add(frame, final, arrived.terminated | arrived.truncated)
        pending, packets = act(self._donated, self._roots, self.placement.put_step(arrived.packet))
        pending.action.copy_to_host_async()  # under way while the update is dispatched
        self.pending, self._arrived = pending, (self.pending, packets)

    def add(self) -> None:
        """Complete the last transition in the replays, unless that is done."""
        if self._arrived is not None:
            self._programs.add(self._donated, *self._arrived)
            self._arrived = None

    def update(self, number: int) -> Float[Array, "S fields"]:
        """`add`, then an RL update of every seed, the given one of this agent step; columns of `metric_names`."""
        rest = (self._roots, self._numbers[number])
        if self._fuse and self._arrived is not None:
            arrived, self._arrived = self._arrived, None
            return self._programs.add_and_update(self._donated, *arrived, *rest)
        self.add()
        if self.frames is None:
            return self._programs.update(self._donated, *rest)
        plan = self._programs.plan_update(self.states.replays, *rest)
        frames = self.placement.put(self.frames.gather(_to_host(plan.frames)))
        return self._programs.learn_actor_critic(self._donated, plan.draw, frames)

    def sync_targets_and_train_encoder(self, number: int) -> drq.EncoderMetrics:
        """`add`, then target copies and encoder updates of every seed, before that RL update."""
        self.add()
        rest = (self._roots, self._numbers[number])
        if self.frames is None:
            return self._programs.sync_targets_and_train_encoder(self._donated, *rest)
        plan = self._programs.plan_encoder_training(self._donated, *rest)
        slots, updates = _to_host(plan.frames), self.spec.config.target_period
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


def _to_host(slots: dict[str, Array]) -> dict[str, np.ndarray]:
    return {name: np.asarray(x) for name, x in slots.items()}
