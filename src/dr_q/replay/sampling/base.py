"""What a sampling scheme is."""

from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, Int, Key

from dr_q.replay.storage import Added, Storage, StorageSpec

State = Any
"""A sampler's own arrays, a pytree; what the storage holds (ages, valid starts) is read from there."""


@runtime_checkable
class Sampler(Protocol):
    """A sampling scheme for one seed: a hashable value whose methods are pure functions."""

    metric_names: ClassVar[tuple[str, ...]]
    """Names of what `metrics` gives, in the order of the log's columns."""

    @property
    def watch_age(self) -> int:
        """The age of which `on_add` is told when transitions reach it; `equations.NEVER` if it matters to nothing."""
        ...

    def init(self, spec: StorageSpec) -> State:
        """The state for an empty storage."""
        ...

    def on_add(self, state: State, storage: Storage, added: Added) -> State:
        """Take note of an addition, which the storage has already."""
        ...

    def write_priority(
        self, state: State, storage: Storage, slots: Int[Array, "B"], td_error: Float[Array, "B"]
    ) -> State:
        """Take note of the TD errors of transitions; slots past the end of the storage are ignored."""
        ...

    def draw(self, state: State, storage: Storage, key: Key[Array, ""], count: int) -> Int[Array, "count"]:
        """Valid starts of windows, independent and with replacement; any slots where there is none."""
        ...

    def has_valid_start(self, state: State) -> Bool[Array, ""]:
        """Whether anything can be drawn."""
        ...

    def probability(self, state: State, storage: Storage) -> Float[Array, "capacity"]:
        """The chance that `draw` gives each slot. For tests and analysis: it may walk the storage."""
        ...

    def metrics(
        self, state: State, storage: Storage, slots: Int[Array, "B"], td_error: Float[Array, "B"]
    ) -> dict[str, Float[Array, ""]]:
        """Numbers for the log about a batch that was drawn and written back."""
        ...
