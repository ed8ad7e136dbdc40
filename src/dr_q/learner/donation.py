"""Compiled steps that write over what they change, and leave the rest alone."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

_SMALL = 4096
"""Entries of a seed up to which an array is kept together with others."""


class Packing(NamedTuple):
    """How the arrays of a pytree, with a leading axis of seeds, are kept: large ones each, small ones in one array.

    A program's dispatch costs the host a few microseconds for each array that goes in or comes out, and most arrays of
    an agent are biases, counts and their moments.
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    """Shape of each array, for one seed."""
    dtypes: tuple[Any, ...]
    large: tuple[int, ...]
    """Positions of those that are kept as they are."""
    small: tuple[int, ...]

    @staticmethod
    def of(tree: Any, apart: Any = None) -> "Packing":
        """For arrays like these; all that `apart`, a part of the tree, has besides scalars counts as large."""
        leaves, structure = jax.tree.flatten(tree)
        kept_apart = {id(x) for x in jax.tree.leaves(apart) if x.ndim > 1}
        small = {i for i, x in enumerate(leaves) if _fits(x) and id(x) not in kept_apart}
        return Packing(
            structure,
            tuple(tuple(x.shape[1:]) for x in leaves),
            tuple(x.dtype for x in leaves),
            tuple(i for i in range(len(leaves)) if i not in small),
            tuple(sorted(small)),
        )

    def pack(self, leaves: Sequence[Array]) -> Int[Array, "S N"]:
        """The small ones in one array of bits."""
        return jnp.concatenate([_as_bits(leaves[i]) for i in self.small], axis=1)

    def unpack(self, packed: Int[Array, "S N"]) -> list[Array]:
        """The small ones out of it, in order."""
        sizes = [math.prod(self.shapes[i]) for i in self.small]
        ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
        parts = jnp.split(packed, ends[:-1], axis=1)
        return [_from_bits(x, self.shapes[i], self.dtypes[i]) for i, x in zip(self.small, parts, strict=True)]


def _fits(x: Any) -> bool:
    return math.prod(x.shape[1:]) <= _SMALL and x.dtype in (jnp.float32, jnp.int32, jnp.bool_)


def _as_bits(x: Array) -> Int[Array, "S n"]:
    bits = x.astype(jnp.int32) if x.dtype == jnp.bool_ else jax.lax.bitcast_convert_type(x, jnp.int32)
    return bits.reshape(x.shape[0], -1)


def _from_bits(bits: Int[Array, "S n"], shape: tuple[int, ...], dtype: Any) -> Array:
    bits = bits.reshape(bits.shape[0], *shape)
    return bits.astype(dtype) if dtype == jnp.bool_ else jax.lax.bitcast_convert_type(bits, dtype)


@functools.partial(jax.jit, static_argnums=0)
def _pack(packing: Packing, leaves: list[Array]) -> Array:
    return packing.pack(leaves)


@functools.partial(jax.jit, static_argnums=0)
def _unpack(packing: Packing, packed: Array) -> list[Array]:
    return packing.unpack(packed)


class DonatedState:
    """A pytree of arrays with a leading axis of seeds, kept as compiled steps take it."""

    def __init__(self, tree: Any, apart: Any = None):
        """See `Packing.of`."""
        self.packing = Packing.of(tree, apart)
        leaves = jax.tree.leaves(tree)
        self.large: dict[int, Any] = {i: leaves[i] for i in self.packing.large}
        """Arrays that are kept as they are, by their position in the tree."""
        self.packed: Any = _pack(self.packing, leaves) if self.packing.small else None
        """All others."""

    @property
    def tree(self) -> Any:
        """The pytree, as it is now."""
        leaves = dict(self.large)
        if self.packed is not None:
            leaves |= dict(zip(self.packing.small, _unpack(self.packing, self.packed), strict=True))
        return jax.tree.unflatten(self.packing.structure, [leaves[i] for i in sorted(leaves)])

    def wait(self) -> None:
        """Until every step given to the device is done."""
        jax.block_until_ready((self.large, self.packed))


class Uses(NamedTuple):
    """What a step does with the arrays of its tree, by their position."""

    changes: list[int]
    """Makes a new one of."""
    reads: list[int]
    """Needs, and leaves as they are."""


class DonatingStep:
    """A compiled step(tree, *rest) -> (new tree, seen); what changes of the tree is replaced, large arrays in place.

    Arrays that a step passes through unchanged are neither donated nor outputs of the compiled program: they stay the
    same arrays. This saves copies, and it is needed for more than speed: jax 0.11 on CUDA has been seen to write over a
    donated argument that the same call returned unchanged (Adam's first moment became a copy of the weights). Small
    arrays, of which a step may pass on some unchanged, are not donated.
    """

    def __init__(
        self,
        step: Callable[..., tuple[Any, Any]],
        spread: Callable[[Callable], Callable] = lambda f: f,
        compiler_options: dict[str, Any] | None = None,
    ):
        """`spread` may lay the program out over devices."""
        self._step, self._spread, self._compiler_options = step, spread, compiler_options
        self._compiled: Callable[..., Any] | None = None
        self._uses = Uses([], [])
        """How the step uses large arrays."""
        self._changes_small = False

    def compile(self, state: DonatedState, *rest: Any) -> None:
        """Compile for arrays like these; nothing is run."""
        if self._compiled is None:
            self.use(self.lower(state, *rest).compile(self._compiler_options))

    def lower(self, state: DonatedState, *rest: Any) -> jax.stages.Lowered:
        """Trace for arrays like these. `compile` does this, too; benchmarks compile with options of their own."""
        packing = state.packing
        changes, reads = uses_of(self._step, _one_tree(packing, _seeds(state)), *rest)
        large = set(packing.large)
        self._uses = Uses([i for i in changes if i in large], [i for i in reads if i in large])
        self._changes_small = any(i not in large for i in changes)
        run = jax.jit(self._spread(self._program(packing)), donate_argnums=0)
        return run.lower(*self._arguments(state), *rest)

    def use(self, compiled: Callable[..., Any]) -> None:
        """Run what was compiled of `lower`."""
        self._compiled = compiled

    def __call__(self, state: DonatedState, *rest: Any) -> Any:
        """Run the step on the state; gives what it saw."""
        if self._compiled is None:
            self.compile(state, *rest)
            assert self._compiled is not None
        changed, packed, seen = self._compiled(*self._arguments(state), *rest)
        if self._changes_small:
            state.packed = packed
        state.large.update(zip(self._uses.changes, changed, strict=True))
        return seen

    def _program(self, packing: Packing) -> Callable[..., tuple[list[Any], Any, Any]]:
        def run(changing: list[Any], read: list[Any], packed: Any, *rest: Any) -> tuple[list[Any], Any, Any]:
            seeds = (*changing, *read, packed)[0].shape[0]  # of this device
            # What is not used is never made.
            leaves: list[Any] = [jnp.zeros((seeds, *s), d) for s, d in zip(packing.shapes, packing.dtypes, strict=True)]
            for i, leaf in zip((*self._uses.changes, *self._uses.reads), (*changing, *read), strict=True):
                leaves[i] = leaf
            for i, leaf in zip(packing.small, packing.unpack(packed) if packing.small else (), strict=True):
                leaves[i] = leaf
            new, seen = self._step(jax.tree.unflatten(packing.structure, leaves), *rest)
            after = jax.tree.leaves(new)
            return [after[i] for i in self._uses.changes], packing.pack(after) if self._changes_small else None, seen

        return run

    def _arguments(self, state: DonatedState) -> tuple[list[Any], list[Any], Any]:
        large = state.large
        return [large[i] for i in self._uses.changes], [large[i] for i in self._uses.reads], state.packed


def _seeds(state: DonatedState) -> int:
    return (state.packed if state.packed is not None else next(iter(state.large.values()))).shape[0]


def _one_tree(packing: Packing, seeds: int) -> Any:
    leaves = [jax.ShapeDtypeStruct((seeds, *s), d) for s, d in zip(packing.shapes, packing.dtypes, strict=True)]
    return jax.tree.unflatten(packing.structure, leaves)


def uses_of(step: Callable[..., tuple[Any, Any]], tree: Any, *rest: Any) -> Uses:
    """Which arrays of the tree a step changes, and which it only reads; found by tracing."""
    count = len(jax.tree.leaves(tree))
    jaxpr = jax.make_jaxpr(step)(tree, *rest).jaxpr
    before, after = jaxpr.invars[:count], jaxpr.outvars[:count]
    changes = [i for i in range(count) if before[i] is not after[i]]
    # An array may also be needed for nothing but to become another one of the tree.
    given = [*(after[i] for i in changes), *jaxpr.outvars[count:]]
    needed = {id(x) for equation in jaxpr.eqns for x in equation.invars} | {id(x) for x in given}
    return Uses(changes, [i for i in range(count) if i not in set(changes) and id(before[i]) in needed])
