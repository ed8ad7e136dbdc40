"""Which optional packages are there."""

import importlib.util
import sys


def is_installed(package: str) -> bool:
    """Whether a package can be imported, without importing it.

    A folder of that name in the current one is no package: W&B leaves `wandb/`, Ray may leave `ray/`.
    """
    if package in sys.modules:
        return sys.modules[package] is not None
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None
