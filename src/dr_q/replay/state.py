"""What the replay holds.

A ring of slots. A transition takes one slot, which holds its observation (for pixels: one frame), action, reward and
termination; its next observation is the next slot's. An episode's last next-observation takes a slot of its own,
which is never a start, has no priority and no age.
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt8

from dr_q.equations import floor_age
from dr_q.replay.sums import BRANCHING, Sums


@dataclasses.dataclass(frozen=True)
class ReplaySpec:
    """The fixed part of a replay."""

    capacity: int
    """Slots in the ring."""
    frame_shape: tuple[int, ...]
    """Shape of what one slot stores: a vector's (dim,), or one frame's (channels, height, width)."""
    action_dim: int
    """Dimensions of an action."""
    pixels: bool
    """Frames are uint8 images; otherwise float32."""
    history: int
    """Frames stacked into one observation, 1 for vectors."""
    horizon: int
    """Transitions in the longest window drawn; a start is valid once they are all there."""
    fade_decay: float
    """Fraction of a transition's weight lost with each transition added after it."""
    fade_floor: float
    """Weight that age alone cannot go under."""
    frames_elsewhere: bool = False
    """Whether observations are kept outside the replay, in host memory; all else is the same."""

    def __post_init__(self) -> None:
        """Refuse a ring too small for the slots that one addition touches."""
        least = smallest_capacity(self.horizon, self.history)
        if self.capacity < least:
            raise ValueError(
                f"replay capacity {self.capacity} is too small for windows of {self.horizon} transitions and "
                f"{self.history} stacked frames; use at least {least}"
            )

    @property
    def floor_age(self) -> int:
        """The age from which a transition's fade weight no longer changes."""
        return floor_age(self.fade_decay, self.fade_floor)

    @property
    def rows(self) -> int:
        """Rows of `BRANCHING` slots, a multiple of `BRANCHING`."""
        return self.groups * BRANCHING

    @property
    def groups(self) -> int:
        """Groups of `BRANCHING` rows."""
        return -(-self.capacity // BRANCHING**2)


def smallest_capacity(horizon: int, history: int) -> int:
    """The fewest slots in which an addition cannot reach around the ring to its own window."""
    return 2 * (horizon + history + 1)


class Transition(NamedTuple):
    """One agent step. `obs` and `next_obs` are single frames where frames are stacked."""

    obs: Array
    action: Float[Array, "A"]
    reward: Float[Array, ""]
    next_obs: Array
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


class Replay(eqx.Module):
    """The replay of one seed. Arrays named by slot are padded to whole rows and groups of `BRANCHING`."""

    spec: ReplaySpec = eqx.field(static=True)

    # The transitions.
    obs: Array | None
    """Observation or frame of each slot, [capacity, *frame_shape], float32 or uint8; None if kept elsewhere."""
    action: Float[Array, "capacity A"]
    """Action of each slot, in [-1, 1]."""
    reward: Float[Array, "capacity"]
    """Reward of each slot."""
    not_done: Float[Array, "capacity"]
    """0 where the transition terminated its episode, 1 elsewhere."""
    frames_before: UInt8[Array, "capacity"]
    """Earlier frames of the same episode that a stack ending here has, at most history - 1."""

    # What a draw needs.
    priority: Float[Array, "rows 128"]
    """Priority of each slot's transition; 0 for a final observation and an empty slot."""
    valid: Bool[Array, "rows 128"]
    """Whether a window may start at each slot."""
    stamp: Int[Array, "rows 128"]
    """Transitions added before the slot's own (a final observation: before its transition)."""
    row_sums: Sums
    """Weight of each row."""
    group_sums: Sums
    """Weight of each group of rows."""

    # Counters.
    cursor: Int[Array, ""]
    """Slot that is written next."""
    size: Int[Array, ""]
    """Slots written at least once."""
    clock: Int[Array, ""]
    """Transitions added so far. A transition's age is clock - 1 - stamp."""
    floor_slot: Int[Array, ""]
    """Oldest slot whose fade weight still changes."""
    episode_steps: Int[Array, ""]
    """Transitions of the running episode."""
    max_priority: Float[Array, ""]
    """Largest priority seen so far: that of a new transition."""
    has_terminated: Bool[Array, ""]
    """Whether any transition so far terminated."""


def init(spec: ReplaySpec, initial_priority: float = 1.0) -> Replay:
    """An empty replay."""
    capacity = spec.capacity
    frames = (capacity, *spec.frame_shape)

    def count() -> Int[Array, ""]:
        return jnp.zeros((), jnp.int32)  # an array each: buffers that are donated must not be shared

    return Replay(
        spec=spec,
        obs=None if spec.frames_elsewhere else jnp.zeros(frames, jnp.uint8 if spec.pixels else jnp.float32),
        action=jnp.zeros((capacity, spec.action_dim)),
        reward=jnp.zeros(capacity),
        not_done=jnp.zeros(capacity),
        frames_before=jnp.zeros(capacity, jnp.uint8),
        priority=jnp.zeros((spec.rows, BRANCHING)),
        valid=jnp.zeros((spec.rows, BRANCHING), bool),
        stamp=jnp.zeros((spec.rows, BRANCHING), jnp.int32),
        row_sums=Sums.zeros(spec.rows),
        group_sums=Sums.zeros(spec.groups),
        cursor=count(),
        size=count(),
        clock=count(),
        floor_slot=count(),
        episode_steps=count(),
        max_priority=jnp.full((), initial_priority, jnp.float32),
        has_terminated=jnp.zeros((), bool),
    )


def slots_to_fill(agent_steps: int, replay_capacity: int, shortest_episode: int = 1) -> int:
    """Slots worth allocating for a run: what its steps and final observations can fill, at most the capacity.

    `shortest_episode` is a lower bound on the steps of an episode; tasks that never terminate have a large one.
    """
    episodes = -(-agent_steps // shortest_episode)
    return min(replay_capacity, agent_steps + episodes)
