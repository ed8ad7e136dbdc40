"""`add` as a compiled function of its own that writes in place, for loops of your own."""

import functools
from typing import Any

import jax

from dr_q.replay.replay import Replay, add
from dr_q.replay.storage import Transition


def add_in_place(replay: Replay, transition: Transition) -> Replay:
    """Store one transition in the memory of the given replay. The function is compiled.

    A plain `jax.jit(add)` copies every array of the replay at each call. Here the arrays that an addition changes are
    donated, so the call takes about as long with a million slots as with a thousand. Inside a compiled function of your
    own (`jax.jit`, `jax.lax.scan`) call `add` and donate the replay there.

    Args:
        replay: The replay of one seed. Its arrays are donated: use the returned replay from here on.
        transition: The transition, or one of each lane along a leading axis.

    Returns:
        The replay with the transition.

    Example:
        ```python
        replay = dr_q.replay.init_replay(config, spaces)
        for transition in transitions:
            replay = dr_q.replay.add_in_place(replay, transition)
        ```
    """
    leaves, structure = jax.tree.flatten(replay)
    shapes = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves)
    given, transition_structure = jax.tree.flatten(transition)
    changed = _changed(structure, shapes, transition_structure, tuple(jax.typeof(x) for x in given))
    kept = [x for x, new in zip(leaves, changed, strict=True) if not new]
    news = _add(structure, changed, [x for x, new in zip(leaves, changed, strict=True) if new], kept, transition)
    return _join(structure, changed, list(news), kept)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _add(structure: Any, changed: tuple[bool, ...], donated: list, kept: list, transition: Transition) -> list:
    after = add(_join(structure, changed, donated, kept), transition)
    return [x for x, new in zip(jax.tree.leaves(after), changed, strict=True) if new]


def _join(structure: Any, changed: tuple[bool, ...], donated: list, kept: list) -> Replay:
    """The replay of arrays that change and arrays that do not."""
    first, second = iter(donated), iter(kept)
    return jax.tree.unflatten(structure, [next(first) if new else next(second) for new in changed])


@functools.lru_cache
def _changed(structure: Any, shapes: tuple, transition_structure: Any, given: tuple) -> tuple[bool, ...]:
    """Which arrays of a replay an addition changes: the others come out as the very same values.

    An array that passes through must not be donated: CUDA with jax 0.11.2 corrupted such arrays.
    """
    found: list[bool] = []

    def trace(leaves: list, parts: list) -> None:
        after = add(jax.tree.unflatten(structure, leaves), jax.tree.unflatten(transition_structure, parts))
        found.extend(a is not b for a, b in zip(leaves, jax.tree.leaves(after), strict=True))

    jax.eval_shape(trace, list(shapes), [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in given])
    return tuple(found)
