"""`--compute mixed` against the authors' agent, at the tolerance of 16-bit operands, and what it must leave alone."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dr_q import agent as drq
from dr_q.spaces import SINGLE
from tests import golden_data
from tests.test_golden_agent import Case, actor_critic_step, encoder_step, load_case

FILES = [
    *golden_data.files("drq_vector", "mrq_vector_terminations"),
    *(pytest.param(path, marks=pytest.mark.slow) for path in golden_data.files("drq_pixel")),
]


@pytest.fixture(params=FILES, ids=lambda path: path.stem, scope="module")
def case(request) -> Case:
    return load_case(request.param)


def of_length(ours, theirs, before) -> float:
    """How far weights are from theirs, as a part of how far theirs moved."""
    apart, moved = 0.0, 0.0
    for leaves in zip(*map(jax.tree.leaves, (ours, theirs, before)), strict=True):
        mine, other, old = (np.asarray(x, np.float64) for x in leaves)
        apart += np.sum((mine - other) ** 2)
        moved += np.sum((other - old) ** 2)
    return float(np.sqrt(apart / moved))


def test_mixed_updates_are_the_authors_within_rounding(case: Case):
    config = dataclasses.replace(case.config, compute="mixed")
    agent, seen = encoder_step(config, case.agent, case.encoder_batch, jnp.asarray(case.terminates))
    exact_agent, exact = encoder_step(case.config, case.agent, case.encoder_batch, jnp.asarray(case.terminates))
    for name, term in seen.terms.items():
        np.testing.assert_allclose(term, exact.terms[name], rtol=1e-2, err_msg=name)
    assert float(seen.loss) != float(exact.loss), "nothing was rounded"
    theirs, before = case.encoder("enc_after1/encoder"), case.agent.online.encoder
    assert of_length(exact_agent.online.encoder, theirs, before) < 1e-2
    assert of_length(agent.online.encoder, theirs, before) < 0.25  # a first step of Adam is +-1 for any gradient

    agent, metrics = actor_critic_step(config, case.agent, case.critic_batch, *case.noise)
    scale = np.max(np.abs(case["rl/q_target"]))
    np.testing.assert_allclose(metrics.q, case["rl/q"], atol=5e-3 * np.max(np.abs(case["rl/q"])))
    np.testing.assert_allclose(metrics.q_target, case["rl/q_target"][:, 0], atol=5e-3 * scale)
    assert of_length(agent.online.critic, case.critic("rl_after1/value"), case.agent.online.critic) < 0.25
    assert of_length(agent.online.actor, case.actor("rl_after1/policy"), case.agent.online.actor) < 0.25
    for leaf in jax.tree.leaves(agent):
        assert leaf.dtype in (jnp.float32, jnp.int32), "what learns and is saved has no 16-bit arrays"


@pytest.mark.parametrize("path", golden_data.files("drq_vector"), ids=lambda path: path.stem)
def test_policies_act_in_float32(path: Path):
    """Nothing of `compute` reaches what acts, evaluates and is exported."""
    case = load_case(path)
    jaxpr = str(jax.make_jaxpr(case.agent.online.policy)({SINGLE: jnp.asarray(case["rl/state"])}))
    assert "f16" not in jaxpr
    config = dataclasses.replace(case.config, compute="mixed")
    mixed = str(
        jax.make_jaxpr(drq.encoder_step, static_argnums=0)(config, case.agent, case.encoder_batch, jnp.asarray(True))
    )
    assert ":f16[" in mixed
    assert ":bf16[" in mixed
