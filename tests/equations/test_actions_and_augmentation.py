import jax
import jax.numpy as jnp
import numpy as np

from dr_q.equations import (
    best_choice,
    discrete_exploration_action,
    discrete_target_action,
    exploration_action,
    gumbel_softmax,
    random_shift,
    target_action,
)

PAD = 4


def test_target_action_clips_noise_then_action():
    action = jnp.asarray([[0.0, 0.0, 0.9, -0.9]])
    draws = jnp.asarray([[1.0, 10.0, 1.0, -1.0]])
    np.testing.assert_allclose(target_action(action, draws, 0.2, 0.3), [[0.2, 0.3, 1.0, -1.0]], rtol=1e-6)


def test_exploration_noise_is_not_clipped_before_the_action_is():
    action, draws = jnp.asarray([0.0, 0.0]), jnp.asarray([2.0, 10.0])
    np.testing.assert_allclose(exploration_action(action, draws, 0.2), [0.4, 1.0], rtol=1e-6)


def test_a_soft_sample_is_a_distribution_over_each_choice():
    logits, gumbel = jnp.asarray([[1.0, 2.0, 0.0, 5.0, -1.0]]), jnp.asarray([[0.5, -0.5, 1.0, 0.0, 2.0]])
    soft = gumbel_softmax(logits, gumbel, 10.0, (2, 3))
    expected = [np.exp(x) / np.sum(np.exp(x)) for x in (np.array([0.15, 0.15]), np.array([0.1, 0.5, 0.1]))]
    np.testing.assert_allclose(soft[0], np.concatenate(expected), rtol=1e-6)


def test_discrete_noise_is_added_before_the_choice_and_clipped_for_targets():
    soft, draws = jnp.asarray([[0.6, 0.4, 0.5, 0.5, 0.3]]), jnp.asarray([[0.0, 10.0, 0.0, 0.0, 10.0]])
    explored = discrete_exploration_action(soft, draws, 0.1, (2, 3))
    np.testing.assert_array_equal(explored, [[0, 1, 0, 0, 1]])
    target = discrete_target_action(soft, draws, 0.1, 0.15, (2, 3))  # 0.55 of the first, 0.45 of the last
    np.testing.assert_array_equal(target, [[1, 0, 1, 0, 0]])
    np.testing.assert_array_equal(best_choice(soft, (5,)), [[1, 0, 0, 0, 0]])


def test_random_shift_is_pad_and_crop():
    images = jax.random.randint(jax.random.key(0), (200, 3, 12, 10), 0, 256).astype(jnp.uint8)
    shifted = np.asarray(random_shift(images, jax.random.key(1), PAD))
    assert shifted.dtype == np.uint8
    padded = np.pad(np.asarray(images), [(0, 0), (0, 0), (PAD, PAD), (PAD, PAD)], mode="edge")
    found = []
    for i in range(len(images)):
        crops = {(y, x): padded[i, :, y : y + 12, x : x + 10] for y in range(2 * PAD + 1) for x in range(2 * PAD + 1)}
        where = [offset for offset, crop in crops.items() if np.array_equal(crop, shifted[i])]
        assert len(where) == 1, "not a crop of the padded image"
        found += where
    # Every offset occurs along both axes, and the axes are independent.
    rows, columns = np.array(found).T
    assert set(rows) == set(columns) == set(range(2 * PAD + 1))
    assert abs(np.corrcoef(rows, columns)[0, 1]) < 0.2
