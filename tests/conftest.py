"""Shared by all tests: shapes are checked, ranks are not promoted, compiled functions are shared."""

import jax
from hypothesis import settings
from jaxtyping import install_import_hook

# Checks every shape annotation of the package when a function is called or traced.
install_import_hook("dr_q", "beartype.beartype")

jax.config.update("jax_numpy_rank_promotion", "raise")

settings.register_profile("tests", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("tests")
