"""What a sampling scheme is."""

from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, Int, Key

from dr_q.replay.storage import Added, Storage, StorageSpec

State = Any
"""A sampler's own arrays, a pytree; what the storage holds (ages, valid starts) is read from there."""


@runtime_checkable
class Sampler(Protocol):
    """A sampling scheme for one seed: a hashable object whose methods are pure functions.

    Its own arrays are in a state, a pytree. Ages and valid starts are read from the storage.
    """

    metric_names: ClassVar[tuple[str, ...]]
    """Names of what `metrics` returns, in the order of the columns in logs."""

    @property
    def watch_age(self) -> int:
        """The age at which `on_add` is given a transition again; `dr_q.equations.NEVER` if age does not matter."""
        ...

    def init(self, spec: StorageSpec) -> State:
        """The state for an empty storage.

        Args:
            spec: Sizes of the storage.

        Returns:
            The state.
        """
        ...

    def on_add(self, state: State, storage: Storage, added: Added) -> State:
        """Update the state after an addition.

        Args:
            state: The state before.
            storage: The storage with the new transition.
            added: The slots that the addition changed.

        Returns:
            The new state.
        """
        ...

    def write_priority(
        self, state: State, storage: Storage, slots: Int[Array, "B"], td_error: Float[Array, "B"]
    ) -> State:
        """Update the state with the TD errors of a batch.

        Args:
            state: The state before.
            storage: The storage.
            slots: Slots of the batch. Those past the end of the storage are ignored.
            td_error: TD error of each transition.

        Returns:
            The new state.
        """
        ...

    def draw(self, state: State, storage: Storage, key: Key[Array, ""], count: int) -> Int[Array, "count"]:
        """Draw valid starts of windows, independently and with replacement.

        Args:
            state: The state.
            storage: The storage.
            key: Decides the draws.
            count: Number of draws.

        Returns:
            Slots; any slots if there is no valid start.
        """
        ...

    def has_valid_start(self, state: State) -> Bool[Array, ""]:
        """Whether there is a valid start to draw.

        Args:
            state: The state.

        Returns:
            Whether `draw` can draw anything.
        """
        ...

    def probability(self, state: State, storage: Storage) -> Float[Array, "capacity"]:
        """The probability of each slot in `draw`. It is for tests and analysis, and may read the whole storage.

        Args:
            state: The state.
            storage: The storage.

        Returns:
            A probability for each slot.
        """
        ...

    def metrics(
        self, state: State, storage: Storage, slots: Int[Array, "B"], td_error: Float[Array, "B"]
    ) -> dict[str, Float[Array, ""]]:
        """Metrics of a batch that was drawn and whose TD errors were written.

        Args:
            state: The state.
            storage: The storage.
            slots: Slots of the batch.
            td_error: TD error of each transition.

        Returns:
            A value for each of `metric_names`.
        """
        ...
