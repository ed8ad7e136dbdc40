"""Weights in 16 bit, which `--compute mixed` keeps between updates: always those of the float32 weights."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from dr_q.learner import Learner, LearnerSpec, SeedStates, init_states, root_keys, round_agents, steps
from dr_q.spaces import SINGLE
from tests.agent import small

SEEDS = [0, 1]
CONFIG = small.config(target_period=3, compute="mixed")


def learning(spaces, **options) -> Learner:
    """A learner with something to learn from."""
    spec = LearnerSpec(CONFIG, spaces, CONFIG.replay_capacity, **options)
    learner = Learner(spec, SEEDS)
    rng = np.random.default_rng(0)
    part = spaces.obs[SINGLE]
    first = rng.integers(0, 255, (len(SEEDS), *part.shape)).astype(part.dtype)
    learner.begin({SINGLE: first})
    logs = [small.random_transitions(spaces, 60, seed) for seed in SEEDS]
    recorded = jax.tree.map(lambda *x: np.stack(x), *logs)
    learner.add_recorded(recorded, np.asarray(recorded.terminated | recorded.truncated))
    return learner


def assert_kept(learner: Learner) -> None:
    kept = learner._donated.tree.agents
    anew = jax.jit(functools.partial(round_agents, learner.spec))(learner.states.agents)
    assert not small.differing(kept.rounded, anew.rounded)


def test_kept_weights_are_those_rounded_anew_after_every_kind_of_update():
    learner = learning(small.VECTOR)
    assert_kept(learner)
    before = learner.states.agents
    for update in range(5):
        learner.learn(update, 0)
        assert_kept(learner)
    assert small.differing(learner.states.agents.target, before.target)
    assert learner.pending is not None
    learner.restore(jax.tree.map(np.asarray, learner.states), learner.pending)
    assert_kept(learner)


def test_frames_in_host_memory_too():
    learner = learning(small.PIXELS, frames_on_host=True)
    learner.learn(0, 0)
    assert_kept(learner)


def test_updates_are_those_that_round_anew():
    learner = learning(small.VECTOR)
    spec, roots, number = learner.spec, root_keys(SEEDS), jnp.zeros(len(SEEDS), jnp.int32)
    states: SeedStates = jax.tree.map(jnp.copy, learner.states)
    learner.learn(0, 0)
    states, _ = jax.jit(functools.partial(steps.sync_targets_and_train_encoder, spec))(states, roots, number)
    states, _ = jax.jit(functools.partial(steps.update, spec))(states, roots, number)
    assert states.agents.rounded is None
    pairs = zip(jax.tree.leaves(states.agents.online), jax.tree.leaves(learner.states.agents.online), strict=True)
    for anew, kept in pairs:
        np.testing.assert_allclose(anew, kept, rtol=0, atol=1e-6)


def test_float32_keeps_nothing_and_checkpoints_have_nothing_of_it():
    spec = LearnerSpec(dataclasses.replace(CONFIG, compute="float32"), small.VECTOR, CONFIG.replay_capacity)
    states = init_states(spec, root_keys(SEEDS))
    assert round_agents(spec, states.agents).rounded is None
    learner = learning(small.VECTOR)
    assert learner._donated.tree.agents.rounded is not None
    assert learner.states.agents.rounded is None
