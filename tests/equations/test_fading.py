import jax.numpy as jnp
import numpy as np
import pytest

from dr_q.equations import fade_weight, floor_age, lap_priority, td_error
from dr_q.equations.fading import NEVER


def test_fade_weight_is_the_power_until_its_floor():
    ages = np.array([0, 1, 100, 10_000, 23_024, 23_025, 1_000_000])
    expected = np.maximum(0.1, (1 - 1e-4) ** ages.astype(np.float64))
    np.testing.assert_allclose(fade_weight(jnp.asarray(ages), 1e-4, 0.1), expected, rtol=1e-6)


def test_floor_is_reached_at_23025():
    assert floor_age(1e-4, 0.1) == 23_025
    assert (1 - 1e-4) ** 23_024 > 0.1 >= (1 - 1e-4) ** 23_025


@pytest.mark.parametrize(("decay", "floor", "age"), [(0.0, 0.1, NEVER), (1e-4, 0.0, NEVER), (1e-4, 1.0, 0)])
def test_floor_age_at_the_ends(decay, floor, age):
    assert floor_age(decay, floor) == age


def test_lap_priority_takes_the_larger_error_and_a_minimum():
    q = jnp.asarray([[0.0, 5.0], [1.0, 1.2]])
    target = jnp.asarray([1.0, 1.0])
    np.testing.assert_allclose(lap_priority(td_error(q, target), 1.0, 0.4), [4.0**0.4, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(lap_priority(td_error(q, target), 1.0, 0.0), [1.0, 1.0])
