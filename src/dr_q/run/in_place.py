"""Compiled steps that write over what they change, and leave the rest alone."""

import functools
from collections.abc import Callable
from typing import Any

import jax


def in_place(step: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
    """Compile step(config, state, *rest) -> (new state, seen); of `state`, what changes is donated.

    What a step passes through unchanged is neither donated nor an output of the compiled program: it stays the same
    array. This saves copies, and it is needed for more than speed: jax 0.11 on CUDA has been seen to write over a
    donated argument that the same call returned unchanged (Adam's first moment became a copy of the weights).
    """
    compiled: dict[Any, tuple[list[bool], Callable[..., Any]]] = {}

    @functools.wraps(step)
    def call(config: Any, state: Any, *rest: Any) -> tuple[Any, Any]:
        leaves, structure = jax.tree.flatten(state)
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        if (config, structure, shapes) not in compiled:
            changes = changed_leaves(step, config, state, *rest)
            compiled[config, structure, shapes] = (changes, _compile(step, config, structure, changes))
        changes, run = compiled[config, structure, shapes]
        constant = _pick(leaves, changes, False)
        changed, seen = run(_pick(leaves, changes, True), constant, *rest)
        return jax.tree.unflatten(structure, _merge(changed, constant, changes)), seen

    return call


def changed_leaves(step: Callable[..., tuple[Any, Any]], config: Any, state: Any, *rest: Any) -> list[bool]:
    """For each array of `state`, whether the step makes a new one of it; found by tracing."""
    found: list[bool] = []

    def trace(state: Any, *rest: Any) -> Any:
        new, seen = step(config, state, *rest)
        before, after = jax.tree.leaves(state), jax.tree.leaves(new)
        found.extend(a is not b for a, b in zip(before, after, strict=True))
        return seen

    jax.eval_shape(trace, state, *rest)
    return found


def _compile(step: Callable[..., Any], config: Any, structure: Any, changes: list[bool]) -> Callable[..., Any]:
    @functools.partial(jax.jit, donate_argnums=0)
    def run(changing: list[Any], constant: list[Any], *rest: Any) -> tuple[list[Any], Any]:
        state = jax.tree.unflatten(structure, _merge(changing, constant, changes))
        new, seen = step(config, state, *rest)
        return _pick(jax.tree.leaves(new), changes, True), seen

    return run


def _pick(leaves: list[Any], changes: list[bool], which: bool) -> list[Any]:
    return [leaf for leaf, changed in zip(leaves, changes, strict=True) if changed == which]


def _merge(changed: list[Any], constant: list[Any], changes: list[bool]) -> list[Any]:
    one, other = iter(changed), iter(constant)
    return [next(one) if change else next(other) for change in changes]
