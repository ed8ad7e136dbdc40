"""Compiled steps that write over what they change, and leave the rest alone."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Held:
    """A pytree kept as the list of its arrays, so that a step costs no rebuilding of it."""

    def __init__(self, tree: Any):
        self.leaves, self.structure = jax.tree.flatten(tree)

    @property
    def tree(self) -> Any:
        """The pytree, as it is now."""
        return jax.tree.unflatten(self.structure, self.leaves)


class Uses(NamedTuple):
    """What a step does with the arrays of its tree, by their position."""

    changes: list[int]
    """Makes a new one of."""
    reads: list[int]
    """Needs, and leaves as they are."""


class InPlace:
    """A compiled step(tree, *rest) -> (new tree, seen); what changes of the tree is donated and replaced.

    What a step passes through unchanged is neither donated nor an output of the compiled program: it stays the same
    array. This saves copies, and it is needed for more than speed: jax 0.11 on CUDA has been seen to write over a
    donated argument that the same call returned unchanged (Adam's first moment became a copy of the weights).
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

    def compile(self, held: Held, *rest: Any) -> None:
        """Compile for arrays like these; nothing is run."""
        if self._compiled is None:
            self._uses = uses_of(self._step, held.tree, *rest)
            shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in held.leaves]
            run = jax.jit(self._spread(self._program(held.structure, shapes)), donate_argnums=0)
            self._compiled = run.lower(*self._split(held.leaves), *rest).compile(self._compiler_options)

    def __call__(self, held: Held, *rest: Any) -> Any:
        """Run the step on what is held; gives what it saw."""
        if self._compiled is None:
            self.compile(held, *rest)
            assert self._compiled is not None
        changed, seen = self._compiled(*self._split(held.leaves), *rest)
        for i, leaf in zip(self._uses.changes, changed, strict=True):
            held.leaves[i] = leaf
        return seen

    def _program(self, structure: Any, shapes: list[Any]) -> Callable[..., tuple[list[Any], Any]]:
        def run(changing: list[Any], read: list[Any], *rest: Any) -> tuple[list[Any], Any]:
            seeds = changing[0].shape[0]  # of this device
            leaves = [jnp.zeros((seeds, *x.shape[1:]), x.dtype) for x in shapes]  # what is not used is never made
            for i, leaf in zip((*self._uses.changes, *self._uses.reads), (*changing, *read), strict=True):
                leaves[i] = leaf
            new, seen = self._step(jax.tree.unflatten(structure, leaves), *rest)
            after = jax.tree.leaves(new)
            return [after[i] for i in self._uses.changes], seen

        return run

    def _split(self, leaves: list[Any]) -> tuple[list[Any], list[Any]]:
        return [leaves[i] for i in self._uses.changes], [leaves[i] for i in self._uses.reads]


def uses_of(step: Callable[..., tuple[Any, Any]], tree: Any, *rest: Any) -> Uses:
    """Which arrays of the tree a step changes, and which it only reads; found by tracing."""
    count = len(jax.tree.leaves(tree))
    jaxpr = jax.make_jaxpr(step)(tree, *rest).jaxpr
    before, after = jaxpr.invars[:count], jaxpr.outvars[:count]
    changes = [i for i in range(count) if before[i] is not after[i]]
    needed = {id(x) for equation in jaxpr.eqns for x in equation.invars} | {id(x) for x in jaxpr.outvars[count:]}
    return Uses(changes, [i for i in range(count) if i not in set(changes) and id(before[i]) in needed])
