"""Our two-hot encoding against the authors'."""

import jax.numpy as jnp
import numpy as np
import pytest

from dr_q.config import Config
from dr_q.equations import reward_bins, two_hot
from tests import golden_data


@pytest.mark.parametrize("path", golden_data.files("two_hot*"), ids=lambda path: path.stem)
def test_golden_two_hot(path):
    arrays = golden_data.load(path)
    bins = reward_bins(*Config().reward_range, arrays["bins"].size)
    np.testing.assert_allclose(bins, arrays["bins"], rtol=1e-5)
    encoded = two_hot(jnp.asarray(arrays["x"]), jnp.asarray(arrays["bins"]))
    np.testing.assert_allclose(encoded, arrays["two_hot"], rtol=1e-5, atol=1e-6)
