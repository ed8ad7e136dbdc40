import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_q.config import Config
from dr_q.equations import reward_bins, two_hot, two_hot_mean

BINS = reward_bins(*Config().reward_range, Config().reward_bins)
LARGEST = float(BINS[-1])
encode = jax.jit(lambda x: two_hot(x[None], BINS)[0])


@given(st.floats(-LARGEST, LARGEST, width=32))
def test_round_trip_over_the_whole_range(x):
    weights = np.asarray(encode(x), np.float64)
    assert np.isclose(weights.sum(), 1, atol=1e-6)
    assert (weights >= 0).all()
    used = np.flatnonzero(weights)
    assert len(used) <= 2
    assert used[-1] - used[0] <= 1
    # Linear weights lose what float32 loses at the scale of the two bins around x.
    scale = np.abs(np.asarray(BINS))[used].max()
    assert np.isclose(weights @ np.asarray(BINS, np.float64), x, atol=1e-6 * max(scale, 1), rtol=1e-6)


@pytest.mark.parametrize("index", [0, 1, 32, 63, 64])
def test_a_bin_centre_is_one_hot(index):
    np.testing.assert_array_equal(encode(BINS[index]), np.eye(65)[index])


@pytest.mark.parametrize(("x", "index"), [(1e6, 64), (-1e6, 0), (22_026.0, 64), (-22_026.0, 0), (np.inf, 64)])
def test_d2_rewards_outside_the_range_go_wholly_to_the_end_bin(x, index):
    np.testing.assert_array_equal(encode(x), np.eye(65)[index])


def test_decoding_a_certain_distribution_gives_the_bin():
    logits = jnp.log(jnp.eye(65) + 1e-30)
    np.testing.assert_allclose(two_hot_mean(logits, BINS), BINS, rtol=1e-6, atol=1e-6)


@given(st.floats(-1000, 1000, width=32))
def test_decoding_inverts_encoding(x):
    logits = jnp.log(encode(x) + 1e-30)[None]
    assert np.isclose(float(two_hot_mean(logits, BINS)[0]), x, rtol=1e-5, atol=1e-5)
