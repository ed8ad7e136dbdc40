"""Uniform sampling: every valid start has the same chance."""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from dr_q.config import Config
from dr_q.equations import NEVER
from dr_q.replay.sampling.pick import pick_probability, pick_slots, total
from dr_q.replay.storage import ROW, Added, Storage, StorageSpec


class Counts(eqx.Module):
    """Valid starts in each row and in each group of rows."""

    rows: Float[Array, "rows"]
    groups: Float[Array, "groups"]


@dataclasses.dataclass(frozen=True)
class Uniform:
    """Draws every valid start with the same chance; TD errors do not matter."""

    metric_names: ClassVar[tuple[str, ...]] = ("age_mean",)

    @property
    def watch_age(self) -> int:
        """Age does not matter."""
        return NEVER

    def init(self, spec: StorageSpec) -> Counts:
        """No valid start."""
        return Counts(jnp.zeros(spec.rows), jnp.zeros(spec.groups))

    def on_add(self, state: Counts, storage: Storage, added: Added) -> Counts:
        """Count again where starts may have become valid, or stopped being so."""
        rows = added.touched // ROW
        by_row = state.rows.at[rows].set(total(storage.valid[rows].astype(jnp.float32)))
        groups = rows // ROW
        return Counts(by_row, state.groups.at[groups].set(total(by_row.reshape(-1, ROW)[groups])))

    def write_priority(
        self, state: Counts, storage: Storage, slots: Int[Array, "B"], td_error: Float[Array, "B"]
    ) -> Counts:
        """Nothing changes."""
        return state

    def draw(self, state: Counts, storage: Storage, key: Key[Array, ""], count: int) -> Int[Array, "count"]:
        """Valid starts, independent and with replacement."""
        rows = state.rows.reshape(-1, ROW)
        return pick_slots(key, count, state.groups, lambda at: rows[at], lambda at: storage.valid[at].astype("float32"))

    def has_valid_start(self, state: Counts) -> Bool[Array, ""]:
        """Whether anything can be drawn."""
        return jnp.any(state.groups > 0)

    def probability(self, state: Counts, storage: Storage) -> Float[Array, "capacity"]:
        """The chance that `draw` gives each slot."""
        slots = storage.valid.astype(jnp.float32)
        return pick_probability(state.groups, state.rows.reshape(-1, ROW), slots)[: storage.spec.capacity]

    def metrics(
        self, state: Counts, storage: Storage, slots: Int[Array, "B"], td_error: Float[Array, "B"]
    ) -> dict[str, Float[Array, ""]]:
        """The mean age of the transitions drawn, in agent steps."""
        return {"age_mean": jnp.mean(storage.age(slots).astype(jnp.float32))}


def make(config: Config) -> Uniform:
    """From a config; it has no settings."""
    return Uniform()
