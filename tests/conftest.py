"""Shared by all tests: shapes are checked, ranks are not promoted, compiled functions are shared."""

import jax
import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

# Checks every shape annotation of the package when a function is called or traced.
install_import_hook("dr_q", "beartype.beartype")

jax.config.update("jax_numpy_rank_promotion", "raise")

settings.register_profile("tests", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("tests")


LONGEST_FIRST = (
    "sweep/test_sweep.py",
    "training/test_commands.py",
    "test_golden_agent.py",
    "diagnostics/test_analyse.py",
    "training/test_new_spaces.py",
    "training/test_resume.py",
    "learner/test_places.py",
    "run_folder/test_earlier_versions.py",
    "faults/test_full_disk.py",
    "faults/test_checkpoint_files.py",
    "training/test_stopping.py",
    "agent/test_update.py",
    "learner/test_seeds.py",
)
"""Files that take a minute or longer. Workers begin with them, so that none is left with a long one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        return next((i for i, name in enumerate(LONGEST_FIRST) if item.path.match(f"tests/{name}")), len(LONGEST_FIRST))

    items.sort(key=place)
