"""Which arrays a compiled step is given, and which it gives back."""

import jax.numpy as jnp
import numpy as np

from dr_q.learner.donation import DonatedState, DonatingStep, uses_of

TREE = {name: jnp.full((2, 5_000), value) for name, value in (("a", 1.0), ("b", 2.0), ("c", 3.0))}


def test_an_array_that_only_becomes_another_one_is_needed():
    """It is no equation's input: without it the other array would become zeros."""

    def copy_b_over_a(tree):
        return {**tree, "a": tree["b"]}, None

    uses = uses_of(copy_b_over_a, TREE)
    assert (uses.changes, uses.reads) == ([0], [1])
    state = DonatedState(dict(TREE))
    DonatingStep(copy_b_over_a)(state)
    assert {name: float(np.unique(x)[0]) for name, x in state.tree.items()} == {"a": 2.0, "b": 2.0, "c": 3.0}


def test_what_is_exchanged_changes():
    state = DonatedState({name: jnp.copy(x) for name, x in TREE.items()})
    DonatingStep(lambda tree: ({**tree, "a": tree["b"], "b": tree["a"]}, None))(state)
    assert {name: float(np.unique(x)[0]) for name, x in state.tree.items()} == {"a": 2.0, "b": 1.0, "c": 3.0}
