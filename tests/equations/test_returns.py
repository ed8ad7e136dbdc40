import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dr_q.equations import alive_steps, huber, n_step_return, q_target

STEPS, DISCOUNT = 3, 0.99
rewards = st.lists(st.floats(-100, 100, width=32), min_size=STEPS, max_size=STEPS)
terminations = st.lists(st.booleans(), min_size=STEPS, max_size=STEPS)
compiled = jax.jit(lambda reward, not_done: n_step_return(reward, not_done, DISCOUNT))


def column(values) -> jax.Array:
    return jnp.asarray(values, jnp.float32)[:, None]


@given(rewards, terminations)
def test_d7_n_step_return_is_the_plain_loop(reward, terminated):
    total, discount = 0.0, 1.0
    for r, end in zip(reward, terminated, strict=True):
        total += discount * r
        discount *= DISCOUNT
        if end:
            discount = 0.0
            break
    got_total, got_discount = compiled(column(reward), column([not end for end in terminated]))
    np.testing.assert_allclose(got_total[0], total, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(got_discount[0], discount, rtol=1e-5)


@given(terminations)
def test_steps_are_alive_up_to_the_first_termination(terminated):
    alive = alive_steps(column([not end for end in terminated]))[:, 0]
    first = terminated.index(True) if True in terminated else STEPS
    np.testing.assert_array_equal(alive, [t <= first for t in range(STEPS)])


def test_q_target_takes_the_smaller_critic_and_rescales():
    y = q_target(jnp.asarray([1.0]), jnp.asarray([0.5]), jnp.asarray([[4.0, 8.0]]), jnp.asarray(2.0), jnp.asarray(3.0))
    np.testing.assert_allclose(y, [(1.0 + 0.5 * 3.0 * 4.0) / 2.0])


@given(st.floats(-10, 10))
def test_huber_and_its_slope(error):
    expected = 0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5
    np.testing.assert_allclose(huber(jnp.asarray(error)), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.grad(huber)(error), np.clip(error, -1, 1), rtol=1e-6, atol=1e-6)
