"""Faded LAP: by TD error, faded with age (Eq. 10), without walking the storage.

Sums of weights are kept for rows of slots and groups of rows (`sums.py`).
"""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from dr_q.config import Config
from dr_q.equations import fade_power, fade_weight, floor_age, lap_priority
from dr_q.replay.sampling.pick import pick_probability, pick_slots
from dr_q.replay.sampling.sums import Sums, sum_rows, sum_slots
from dr_q.replay.storage import ROW, Added, Storage, StorageSpec, write_slot


class Priorities(eqx.Module):
    """The priorities of one seed's transitions, and sums of sampling weights."""

    priority: Float[Array, "rows 128"]
    """Priority of each slot's transition; 0 for a final observation and an empty slot."""
    row_sums: Sums
    """Weight of each row."""
    group_sums: Sums
    """Weight of each group of rows."""
    max_priority: Float[Array, ""]
    """Largest priority seen so far: that of a new transition."""


@dataclasses.dataclass(frozen=True)
class FadedLap:
    """Draws by priority, max(|TD error|, minimum)^exponent, times a weight that fades with age down to a floor."""

    exponent: float
    min_priority: float
    decay: float
    floor: float
    metric_names: ClassVar[tuple[str, ...]] = (
        "priority_mean",
        "priority_max",
        "floored_share",
        "age_mean",
        "fade_mean",
    )

    @property
    def watch_age(self) -> int:
        """The age from which a transition's fade weight no longer changes."""
        return floor_age(self.decay, self.floor)

    def init(self, spec: StorageSpec) -> Priorities:
        """No priorities; that of the first transition is the smallest possible."""
        return Priorities(
            priority=jnp.zeros((spec.rows, ROW)),
            row_sums=Sums.zeros(spec.rows),
            group_sums=Sums.zeros(spec.groups),
            max_priority=jnp.full((), self.min_priority**self.exponent, jnp.float32),
        )

    def on_add(self, state: Priorities, storage: Storage, added: Added) -> Priorities:
        """A new transition has the largest priority seen so far."""
        priority = write_slot(state.priority, added.slot, state.max_priority, added.final, 0.0)
        slots = jnp.concatenate([added.touched, added.aged])
        return self._sum_again(dataclasses.replace(state, priority=priority), storage, slots // ROW)

    def write_priority(
        self, state: Priorities, storage: Storage, slots: Int[Array, "B"], td_error: Float[Array, "B"]
    ) -> Priorities:
        """Give the transitions at `slots` new priorities: the largest where a slot is there several times."""
        return self.set_priority(state, storage, slots, self.priority_of(td_error))

    def priority_of(self, td_error: Float[Array, "B"]) -> Float[Array, "B"]:
        """The numerator of Eq. 10 without the fade weight."""
        return lap_priority(td_error, self.min_priority, self.exponent)

    def set_priority(
        self, state: Priorities, storage: Storage, slots: Int[Array, "B"], priority: Float[Array, "B"]
    ) -> Priorities:
        """The same with the priorities given."""
        row, column = slots // ROW, slots % ROW
        cleared = state.priority.at[row, column].set(0.0, mode="drop")
        written = jnp.where(slots < storage.spec.rows * ROW, priority, 0.0)  # past the end: nothing was drawn
        new = dataclasses.replace(
            state,
            priority=cleared.at[row, column].max(priority, mode="drop"),
            max_priority=jnp.maximum(state.max_priority, jnp.max(written)),
        )
        return self._sum_again(new, storage, row)

    def draw(self, state: Priorities, storage: Storage, key: Key[Array, ""], count: int) -> Int[Array, "count"]:
        """Starts of windows, independent and with replacement, with the probabilities of Eq. 10."""
        return pick_slots(
            key,
            count,
            self._weight(state.group_sums, storage),
            lambda groups: self._weight(_rows_of(state.row_sums, groups), storage),
            lambda rows: self._slot_weight(state, storage, rows),
        )

    def has_valid_start(self, state: Priorities) -> Bool[Array, ""]:
        """Whether anything can be drawn. Episodes truncated within the horizon never give a start."""
        return jnp.any((state.group_sums.young > 0) | (state.group_sums.old > 0))

    def probability(self, state: Priorities, storage: Storage) -> Float[Array, "capacity"]:
        """The chance that `draw` gives each slot."""
        every_group = _rows_of(state.row_sums, jnp.arange(storage.spec.groups))
        return pick_probability(
            self._weight(state.group_sums, storage),
            self._weight(every_group, storage),
            self._slot_weight(state, storage, jnp.arange(storage.spec.rows)),
        )[: storage.spec.capacity]

    def metrics(
        self, state: Priorities, storage: Storage, slots: Int[Array, "B"], td_error: Float[Array, "B"]
    ) -> dict[str, Float[Array, ""]]:
        """Priorities, ages (in agent steps) and fade weights of the transitions drawn."""
        age = storage.age(slots)
        return {
            "priority_mean": jnp.mean(self.priority_of(td_error)),
            "priority_max": state.max_priority,
            "floored_share": self.floored_share(state, storage),
            "age_mean": jnp.mean(age.astype(jnp.float32)),
            "fade_mean": jnp.mean(fade_weight(age, self.decay, self.floor)),
        }

    def floored_share(self, state: Priorities, storage: Storage) -> Float[Array, ""]:
        """The share of the sampling probability that transitions at the fade floor have."""
        whole = jnp.sum(self._weight(state.group_sums, storage))
        return self.floor * jnp.sum(state.group_sums.old) / jnp.where(whole > 0, whole, 1.0)

    def _weight(self, sums: Sums, storage: Storage) -> Float[Array, "*N"]:
        return sums.weight(storage.clock, self.decay, self.floor)

    def _slot_weight(self, state: Priorities, storage: Storage, rows: Int[Array, "N"]) -> Float[Array, "N 128"]:
        age = storage.clock - 1 - storage.stamp[rows]
        # Not `fade_weight`: it must agree with the sums on which slots are young, to the bit.
        fade = jnp.where(age < self.watch_age, fade_power(age, self.decay), self.floor)
        return jnp.where(storage.valid[rows], state.priority[rows] * fade, 0.0)

    def _sum_again(self, state: Priorities, storage: Storage, rows: Int[Array, "N"]) -> Priorities:
        """Compute the sums of `rows`, and of the groups they are in, from what is under them."""
        mass = jnp.where(storage.valid[rows], state.priority[rows], 0.0)
        new = sum_slots(mass, storage.stamp[rows], storage.clock, self.decay, self.watch_age)
        row_sums = _put(state.row_sums, rows, new)
        groups = rows // ROW
        group_sums = _put(state.group_sums, groups, sum_rows(_rows_of(row_sums, groups), self.decay))
        return dataclasses.replace(state, row_sums=row_sums, group_sums=group_sums)


def _rows_of(rows: Sums, groups: Int[Array, "N"]) -> Sums:
    return jax.tree.map(lambda x: x.reshape(-1, ROW)[groups], rows)


def _put(sums: Sums, nodes: Int[Array, "N"], new: Sums) -> Sums:
    return jax.tree.map(lambda x, y: x.at[nodes].set(y, mode="drop"), sums, new)


def make(config: Config) -> FadedLap:
    """From a config."""
    return FadedLap(config.priority_exponent, config.min_priority, config.fade_decay, config.fade_floor)
