"""The representation's losses, and theorem 4.1's two toy cases on our InfoNCE bound."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dr_q.equations import infonce, latent_mse, reward_bins, reward_cross_entropy, two_hot

BATCH, DIM, TEMPERATURE = 1024, 4, 0.1
bound = jax.jit(lambda pred, target: jnp.log(pred.shape[0]) - jnp.mean(infonce(pred, target, TEMPERATURE)))


def normal(name: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(name), shape)


def test_theorem_4_1_noise_lowers_the_bound_as_it_raises_the_error():
    z, noise = normal(0, BATCH, DIM), normal(1, BATCH, DIM)
    deviations = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2]
    bounds = [float(bound(z, z + s * noise)) for s in deviations]
    errors = [float(jnp.mean(latent_mse(z, z + s * noise))) for s in deviations]
    information = [DIM / 2 * math.log(1 + 1 / s**2) for s in deviations]
    assert np.all(np.diff(errors) > 0)
    assert np.all(np.diff(bounds) < 0)
    for got, most in zip(bounds, information, strict=True):
        assert got < most
        assert got <= math.log(BATCH)
    assert bounds[0] > 2  # the bound sees information, it is not merely small


def test_theorem_4_1_scaling_changes_the_error_and_not_the_bound():
    z = normal(0, BATCH, DIM)
    scales = [0.5, 2.0, 10.0, 100.0]
    bounds = [float(bound(z, k * z)) for k in scales]
    errors = [float(jnp.mean(latent_mse(z, k * z))) for k in scales]
    assert errors[-1] / errors[0] > 1e4
    np.testing.assert_allclose(bounds, bounds[0], rtol=1e-5)


def test_infonce_is_the_cross_entropy_of_cosine_similarities_row_by_row():
    pred, target = np.asarray(normal(0, 6, 3), np.float64), np.asarray(normal(1, 6, 3), np.float64)
    expected = []
    for i in range(6):
        logits = [pred[i] @ t / np.linalg.norm(pred[i]) / np.linalg.norm(t) / 0.1 for t in target]
        expected.append(np.log(np.sum(np.exp(logits))) - logits[i])
    np.testing.assert_allclose(infonce(jnp.float32(pred), jnp.float32(target), 0.1), expected, rtol=1e-5, atol=1e-6)


def test_infonce_gradient_is_finite_at_a_zero_vector():
    pred = normal(0, 4, 3).at[1].set(0.0)
    gradient = jax.grad(lambda p: jnp.sum(infonce(p, normal(1, 4, 3), 0.1)))(pred)
    assert np.isfinite(gradient).all()
    gradient = jax.grad(lambda p: jnp.sum(infonce(p, jnp.zeros((4, 3)), 0.1)))(pred)
    assert np.isfinite(gradient).all()


def test_latent_mse_averages_over_dimensions_only():
    pred, target = normal(0, 5, 7), normal(1, 5, 7)
    np.testing.assert_allclose(
        latent_mse(pred, target), np.mean((np.asarray(pred) - np.asarray(target)) ** 2, axis=1), rtol=1e-6
    )


def test_reward_cross_entropy_is_least_at_the_target():
    bins = reward_bins(-10.0, 10.0, 65)
    reward = jnp.asarray([0.7, -3.0])
    best = reward_cross_entropy(jnp.log(two_hot(reward, bins) + 1e-30), reward, bins)
    other = reward_cross_entropy(normal(0, 2, 65), reward, bins)
    assert (np.asarray(best) < np.asarray(other)).all()


@pytest.mark.parametrize("equation", [infonce, latent_mse])
def test_losses_come_per_sample(equation):
    arguments = (normal(0, 5, 7), normal(1, 5, 7)) + ((0.1,) if equation is infonce else ())
    assert equation(*arguments).shape == (5,)
