"""Observations of several parts: stored, stacked and read part by part, joined in f, learnt from and saved."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dr_q import replay as rp
from dr_q.agent.update import shift_images
from dr_q.envs import Transitions
from dr_q.learner import Learner, LearnerSpec, packet_layout
from dr_q.learner.saving import Saved, load, to_checkpoint
from dr_q.networks import normed
from dr_q.run_folder import Checkpoints
from dr_q.spaces import Image, ObsSpec, Spaces, Vector, spaces_from_json, spaces_to_json
from tests.agent import small

PARTS = (("wrist", Image(1, 31, 33, stack=2)), ("joints", Vector(3)), ("camera", Image(3, 33, 31, stack=3)))
MIXED = Spaces(ObsSpec(PARTS), small.ACTIONS)
TWO = Spaces(ObsSpec(PARTS[:2]), small.ACTIONS)
"""Fewer networks, which compile faster."""
CONFIG = small.config(batch_size=4, encoder_horizon=2, q_horizon=2)
LENGTH = 60


@functools.cache
def log() -> rp.Transition:
    return small.random_transitions(MIXED, LENGTH, seed=3)


@functools.cache
def replay(spaces: Spaces = MIXED) -> rp.Replay:
    names = [name for name, _ in spaces.obs.parts]

    def some(obs: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {name: obs[name] for name in names}

    own = log()._replace(obs=some(log().obs), next_obs=some(log().next_obs))
    return small.fill(rp.init_replay(CONFIG, spaces), own)


def test_windows_stack_each_part_by_its_own_length():
    storage, episode = replay().storage, 0
    window = rp.sample_subtrajectory(storage, jnp.arange(100), 1)
    ends = np.asarray(log().terminated | log().truncated)
    slot = 0
    for number in range(LENGTH):
        for name, part in PARTS:
            steps = [max(number - back, episode) for back in range(part.stack - 1, -1, -1)]
            expected = np.concatenate([np.asarray(log().obs[name][step]) for step in steps])
            np.testing.assert_array_equal(window.obs[name][0, slot], expected)
            assert window.obs[name].dtype == part.dtype
        slot += 1 + ends[number]
        episode = number + 1 if ends[number] else episode


def test_f_is_the_norm_of_the_sum_of_its_branches():
    encoder = small.init(CONFIG, TWO, jax.random.key(0)).online.encoder.state
    obs = {name: x[0] for name, x in rp.sample_subtrajectory(replay(TWO).storage, jnp.arange(4), 1).obs.items()}
    shares = [encoder.branches[name].last(encoder.branches[name].features(obs[name])) for name, _ in TWO.obs.parts]
    expected = normed(
        jnp.sum(jnp.stack(shares), axis=0), jnp.zeros(CONFIG.zs_dim), CONFIG.encoder_activation, CONFIG.zs_dim
    )
    z_s = eqx.filter_jit(encoder)
    np.testing.assert_allclose(z_s(obs), expected, rtol=1e-5, atol=1e-5)
    for name, _ in TWO.obs.parts:
        blank = {**obs, name: jnp.zeros_like(obs[name])}
        assert not np.allclose(z_s(blank), expected, atol=1e-3), f"{name} does not matter"


def test_each_image_is_shifted_by_itself_and_vectors_are_not():
    obs = {name: x[0] for name, x in rp.sample_subtrajectory(replay().storage, jnp.arange(8), 1).obs.items()}
    shifted = shift_images(CONFIG, MIXED.obs, obs, jax.random.key(1))
    assert shifted["joints"] is obs["joints"]
    for name in MIXED.obs.images:
        assert shifted[name].shape == obs[name].shape
        assert (np.asarray(shifted[name]) != np.asarray(obs[name])).any()


def test_updates_learn_from_every_part():
    agent = small.init(CONFIG, TWO, jax.random.key(0))
    trained, metrics = small.update_encoder(CONFIG, agent, replay(TWO), jax.random.key(1))
    assert np.isfinite(float(metrics.loss))
    before, after = agent.online.encoder.state.branches, trained.online.encoder.state.branches
    for name, _ in TWO.obs.parts:
        assert small.differing(before[name], after[name]), f"the branch of {name} did not learn"
    _, _, seen = small.update_actor_critic(CONFIG, trained, replay(TWO), jax.random.key(2))
    assert np.isfinite(np.asarray(seen.td_error)).all()


def test_a_checkpoint_brings_back_every_part(tmp_path):
    spec = LearnerSpec(CONFIG, TWO.sizes(), 64)
    rng = np.random.default_rng(0)

    def observe() -> dict[str, np.ndarray]:
        return {
            name: rng.integers(0, 256, (2, *part.shape)).astype(part.dtype)
            if isinstance(part, Image)
            else rng.normal(size=(2, *part.shape)).astype(part.dtype)
            for name, part in TWO.obs.parts
        }

    learner = Learner(spec, [0, 1])
    learner.begin(observe())
    made = [Transitions.of(packet_layout(spec), observe(), observe(), np.zeros((2, 3), np.float32)) for _ in range(12)]
    for arrived in made:
        learner.act_randomly(arrived)
        learner.add()
    assert learner.pending is not None
    checkpoints = Checkpoints(tmp_path, [0, 1])
    episodes = [(0, np.zeros((12, 2), np.float32))] * 2
    saved = Saved(12, learner.states, learner.pending, made[-1], episodes)
    checkpoints.write(to_checkpoint(saved, [0, 1]))
    found = load(checkpoints, 12, spec)
    assert not small.differing(found.states, jax.tree.map(np.asarray, learner.states))
    assert not small.differing(found.pending, learner.pending)
    np.testing.assert_array_equal(found.arrived.packet, made[-1].packet)


def test_a_policys_record_keeps_parts_and_their_order():
    assert spaces_from_json(spaces_to_json(MIXED)) == MIXED
