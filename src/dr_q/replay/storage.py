"""The ring: who is written where. Nothing here knows how transitions are drawn.

A transition takes one slot, which holds its observation (of a stack one frame), action, reward and termination; its
next observation is the next slot's. An episode's last next-observation takes a slot of its own, which is never a start
and has no transition. Where a slot's neighbours in time are is known to this file alone
(`StorageSpec.later`, `after_writing`, `add`).

A seed may have several lanes: streams of experience, one for each of its environments. All lanes add a transition at
once. Their slots alternate: lane l has the slots l, l + lanes, l + 2 lanes, ... So every lane has a ring of its own,
and a replay that is not full grows at its end, whatever the number of lanes.
"""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt8

from dr_q.equations import NEVER
from dr_q.spaces import ObsSpec

ROW = 128
"""Slots in a row. What samplers read by slot lies in rows, [rows, ROW]; rows lie in groups of ROW."""

ROUNDING_BYTES = 32 * 2**20
"""The most that rounding up may add to a seed's replay: vectors are rounded, images are not."""


@dataclasses.dataclass(frozen=True)
class StorageSpec:
    """The sizes of a storage. A capacity that is too small raises `ValueError`."""

    capacity: int
    """Slots in the ring, of all lanes together: a multiple of `lanes`."""
    obs: ObsSpec
    """The parts of an observation; the storage keeps the newest frame of each."""
    action_dim: int
    """Size of an action."""
    horizon: int
    """Transitions in the longest window that is drawn."""
    watch_age: int = NEVER
    """The sampler's `watch_age`; `dr_q.replay.init` sets it."""
    frames_on_host: bool = False
    """Whether observations are kept in host memory, outside the storage."""
    lanes: int = 1
    """Streams of experience, one for each environment."""

    def __post_init__(self) -> None:
        """Refuse a ring too small for the slots that one addition touches."""
        least = smallest_capacity(self.horizon, self.stack, self.lanes)
        if self.capacity % self.lanes:
            raise ValueError(f"replay capacity {self.capacity} is no multiple of its {self.lanes} lanes")
        if self.capacity < least:
            raise ValueError(
                f"replay capacity {self.capacity} is too small for windows of {self.horizon} transitions and "
                f"{self.stack} stacked frames; use at least {least}"
            )

    @property
    def stack(self) -> int:
        """Frames in the longest stack of an observation."""
        return self.obs.stack

    @property
    def groups(self) -> int:
        """Number of groups; a group has 128 rows."""
        return -(-self.capacity // ROW**2)

    @property
    def rows(self) -> int:
        """Number of rows, a multiple of 128; a row has 128 slots."""
        return self.groups * ROW

    def later(self, slots: Int[Array, "*N"], steps: int | Int[Array, "*M"]) -> Int[Array, "*K"]:
        """The slots some steps later in the same lane.

        Args:
            slots: Slots.
            steps: Number of steps; negative for earlier slots.

        Returns:
            Slots.
        """
        return (slots + steps * self.lanes) % self.capacity

    def each_lane(self, first: int = 0) -> Any:
        """A number for each lane: first, first + 1, and so on.

        Args:
            first: The number of the first lane.

        Returns:
            An array [lanes]; a plain number with a single lane.
        """
        return first if self.lanes == 1 else first + jnp.arange(self.lanes, dtype=jnp.int32)


def smallest_capacity(horizon: int, stack: int, lanes: int = 1) -> int:
    """The fewest slots in which an addition cannot reach around the ring to its own window."""
    return 2 * (horizon + stack + 1) * lanes


def slots_to_fill(agent_steps: int, replay_capacity: int, shortest_episode: int = 1, lanes: int = 1) -> int:
    """Slots worth allocating for a run: what its steps and final observations can fill, at most the capacity.

    `shortest_episode` is a lower bound on the steps of an episode; tasks that never terminate have a large one.
    """
    steps = -(-agent_steps // lanes)
    episodes = -(-steps // shortest_episode)
    return min(replay_capacity // lanes, steps + episodes) * lanes


def slot_bytes(obs: ObsSpec, action_dim: int) -> int:
    """Bytes of a slot: its frame, action, reward, not_done, stamp, and two fields of a byte."""
    return obs.frame_bytes + 4 * action_dim + 14


def slots_to_allocate(slots: int, obs: ObsSpec, action_dim: int, lanes: int = 1) -> int:
    """The slots rounded up to whole groups, if that takes little memory: compiled programs depend on their number, and
    runs of other lengths can then use the same ones."""
    group = ROW**2
    if group * slot_bytes(obs, action_dim) > ROUNDING_BYTES:
        return slots
    groups = -(-slots // group)
    whole = groups * group // lanes * lanes
    return whole if whole >= slots else (groups + 1) * group // lanes * lanes


class Transition(NamedTuple):
    """One agent step. With several lanes it has a step of each, along a leading axis.

    Example:
        ```python
        transition = dr_q.replay.Transition(
            obs={"obs": jnp.asarray(obs)},
            action=jnp.asarray(action),
            reward=jnp.asarray(reward),
            next_obs={"obs": jnp.asarray(next_obs)},
            terminated=jnp.asarray(terminated),
            truncated=jnp.asarray(truncated),
        )
        replay = dr_q.replay.add_in_place(replay, transition)
        ```
    """

    obs: dict[str, Array]
    """The observation by part. Stacked parts have only the newest frame."""
    action: Float[Array, "*lanes A"]
    """The action in [-1, 1], or one-hot."""
    reward: Float[Array, "*lanes"]
    """The reward."""
    next_obs: dict[str, Array]
    """The next observation by part, before a reset. Stacked parts have only the newest frame."""
    terminated: Bool[Array, "*lanes"]
    """Whether the step ended the episode in a terminal state."""
    truncated: Bool[Array, "*lanes"]
    """Whether the episode was cut off after the step."""


class Added(NamedTuple):
    """What an addition changed, for samplers."""

    slot: Int[Array, "*lanes"]
    """Where the transition is; with several lanes, that of each."""
    final: Int[Array, "*lanes"]
    """Where its episode's final observation is; past the end of every array if the episode continues."""
    touched: Int[Array, "touched"]
    """Slots that may have become valid starts, or stopped being ones."""
    aged: Int[Array, "aged"]
    """Slots whose transitions may have reached `watch_age`."""


class Storage(eqx.Module):
    """The stored transitions of one seed, in a ring of slots."""

    spec: StorageSpec = eqx.field(static=True)
    """The sizes."""

    obs: dict[str, Array] | None
    """Frame of each slot by part, [capacity, *frame]; None if frames are kept in host memory."""
    action: Float[Array, "capacity A"]
    """Action of each slot, in [-1, 1] or one-hot."""
    reward: Float[Array, "capacity"]
    """Reward of each slot."""
    not_done: Float[Array, "capacity"]
    """0 where the transition terminated its episode, 1 elsewhere."""
    frames_before: UInt8[Array, "capacity"]
    """Number of earlier frames of the same episode in a stack that ends here, at most stack - 1."""
    is_transition: Bool[Array, "capacity"]
    """Whether the slot has a transition; False for empty slots and for the final observation of an episode."""

    valid: Bool[Array, "rows 128"]
    """Whether a window may start at each slot."""
    stamp: Int[Array, "rows 128"]
    """Number of transitions added before the slot's own; for a final observation, before its transition."""

    cursor: Int[Array, "*lanes"]
    """Slot that is written next, of each lane."""
    size: Int[Array, "*lanes"]
    """Number of slots written at least once, of each lane."""
    clock: Int[Array, ""]
    """Number of transitions added so far. The age of a transition is clock - 1 - stamp."""
    watch_slot: Int[Array, "*lanes"]
    """Oldest slot that is younger than `watch_age`, of each lane."""
    episode_steps: Int[Array, "*lanes"]
    """Number of transitions of the running episode, of each lane."""
    has_terminated: Bool[Array, ""]
    """Whether any transition so far terminated its episode."""

    def age(self, slots: Int[Array, "*B"]) -> Int[Array, "*B"]:
        """The age of transitions: the number of transitions added after them.

        Args:
            slots: Slots of transitions.

        Returns:
            Ages; 0 for the newest transition.
        """
        return self.clock - 1 - self.stamp[slots // ROW, slots % ROW]


def init_storage(spec: StorageSpec) -> Storage:
    """An empty ring."""

    def count(*, of_lanes: bool = True) -> Int[Array, "..."]:
        # An array each: buffers that are donated must not be shared.
        return jnp.zeros((spec.lanes,) if of_lanes and spec.lanes > 1 else (), jnp.int32)

    frames = {name: jnp.zeros((spec.capacity, *part.frame_shape), part.dtype) for name, part in spec.obs.parts}
    return Storage(
        spec=spec,
        obs=None if spec.frames_on_host else frames,
        action=jnp.zeros((spec.capacity, spec.action_dim)),
        reward=jnp.zeros(spec.capacity),
        not_done=jnp.zeros(spec.capacity),
        frames_before=jnp.zeros(spec.capacity, jnp.uint8),
        is_transition=jnp.zeros(spec.capacity, bool),
        valid=jnp.zeros((spec.rows, ROW), bool),
        stamp=jnp.zeros((spec.rows, ROW), jnp.int32),
        cursor=count() + spec.each_lane(),
        size=count(),
        clock=count(of_lanes=False),
        watch_slot=count() + spec.each_lane(),
        episode_steps=count(),
        has_terminated=jnp.zeros((), bool),
    )


def add(storage: Storage, transition: Transition) -> tuple[Storage, Added]:
    """Store one transition and, at an episode's end, its final observation; update which starts are valid.

    With several lanes: one transition of each.
    """
    spec = storage.spec
    done = transition.terminated | transition.truncated
    here = storage.cursor
    final, cursor = after_writing(here, done, spec.capacity, spec.lanes)
    final_or_none = jnp.where(done, final, spec.rows * ROW)  # past the end of every array: not written
    touched = spec.later(here[..., None], _offsets(spec))
    stamp = storage.clock + spec.each_lane()
    steps = storage.episode_steps + 1
    stack = spec.stack - 1

    def write(array: Array, x: Any, y: Any) -> Array:
        return array.at[here].set(x).at[final_or_none].set(y, mode="drop")

    written = dataclasses.replace(
        storage,
        obs=None
        if storage.obs is None
        else {name: write(x, transition.obs[name], transition.next_obs[name]) for name, x in storage.obs.items()},
        action=storage.action.at[here].set(transition.action),
        reward=storage.reward.at[here].set(transition.reward),
        not_done=storage.not_done.at[here].set(1.0 - transition.terminated),
        frames_before=write(
            storage.frames_before,
            jnp.minimum(storage.episode_steps, stack).astype(jnp.uint8),
            jnp.minimum(steps, stack).astype(jnp.uint8),
        ),
        is_transition=write(storage.is_transition, True, False),
        stamp=write_slot(storage.stamp, here, stamp, final_or_none, stamp),
        valid=_update_valid(storage, touched, transition, done),
        cursor=cursor,
        size=jnp.maximum(
            storage.size,
            jnp.where(final_or_none < spec.lanes, spec.capacity // spec.lanes, here // spec.lanes + 1 + done),
        ),
        clock=storage.clock + spec.lanes,
        episode_steps=jnp.where(done, 0, steps),
        has_terminated=storage.has_terminated | jnp.any(transition.terminated),
    )
    watch_slot, aged = _pass_watch_age(storage, written, final_or_none)
    added = Added(here, final_or_none, touched.reshape(-1), aged.reshape(-1))
    return dataclasses.replace(written, watch_slot=watch_slot), added


def after_writing(cursor: Any, done: Any, capacity: int, lanes: int = 1) -> tuple[Any, Any]:
    """The slot of an episode's final observation if it ends here, and the cursor after a transition.

    For jax's arrays and numpy's: frames in host memory lie where the storage would put them.
    """
    return (cursor + lanes) % capacity, (cursor + lanes * (1 + done)) % capacity


def write_slot(array: Array, slot: Int[Array, "*lanes"], x: Any, final: Int[Array, "*lanes"], y: Any) -> Array:
    """Values of a transition's slot and of its final observation's, in an array that lies in rows."""
    written = array.at[slot // ROW, slot % ROW].set(x)
    return written.at[final // ROW, final % ROW].set(y, mode="drop")


def mean_abs_reward(storage: Storage) -> Float[Array, ""]:
    """Mean |reward| over the transitions in the storage, at least 1e-8: MR.Q's reward scale."""
    size = jnp.sum(jnp.where(storage.is_transition, jnp.abs(storage.reward), 0.0))
    return jnp.maximum(size / jnp.maximum(jnp.sum(storage.is_transition), 1), 1e-8)


def _offsets(spec: StorageSpec) -> Int[Array, "*one touched"]:
    """Distances from the cursor to the slots whose validity an addition there can change."""
    offsets = jnp.arange(-spec.horizon, spec.stack + 1)
    return offsets if spec.lanes == 1 else offsets[None]


def _update_valid(
    storage: Storage, touched: Int[Array, "*lanes touched"], transition: Transition, done: Bool[Array, "*lanes"]
) -> Bool[Array, "rows 128"]:
    """Validity of every start after the addition.

    A start is valid once the transition `horizon` later of its episode is there, or once its episode terminates
    within its window. Overwritten slots are not valid, nor are starts whose stacks lost older frames.
    """
    horizon, stack = storage.spec.horizon, storage.spec.stack
    offset = _offsets(storage.spec)
    row, column = touched // ROW, touched % ROW
    steps = storage.episode_steps[..., None] + 1
    completed = (offset == -horizon) & (steps > horizon)
    # D3: terminated and truncated at once counts as terminated.
    ended = transition.terminated[..., None] & (offset > -horizon) & (offset <= 0) & (-offset < steps)
    overwritten = (offset >= 0) & (offset < stack + done[..., None])
    valid = (storage.valid[row, column] & ~overwritten) | completed | ended
    return storage.valid.at[row, column].set(valid)


def _pass_watch_age(
    before: Storage, after: Storage, final: Int[Array, "*lanes"]
) -> tuple[Int[Array, "*lanes"], Int[Array, "2 *lanes"]]:
    """Move `watch_slot` past what has now reached `watch_age`; also the slots that may have crossed it.

    An addition ages everything by one, and a stamp belongs to two slots at most: a transition and a final observation.
    With several lanes it ages everything by their number, and so far apart are the stamps of a lane.
    """
    later, slot = before.spec.later, before.watch_slot
    written = (slot == before.cursor) | (slot == final)
    slot = jnp.where(written & (slot // before.spec.lanes < before.size), after.cursor, slot)
    crossed = jnp.stack([slot, later(slot, 1)])
    for _ in range(2):
        passes = (after.age(slot) >= before.spec.watch_age) & (slot != after.cursor)
        slot = jnp.where(passes, later(slot, 1), slot)
    return slot, crossed
