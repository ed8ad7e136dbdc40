"""What a run ran on."""

import contextlib
import importlib.metadata
import platform

import jax

import dr_q
from dr_q.envs.families import families
from dr_q.run_folder import source_digest

_PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium", "mujoco", "dm-control")


def versions(task: str = "", deterministic: bool = False) -> dict[str, str]:
    """What a run of this task ran on; a simulator without releases by a digest of its source.

    `deterministic`: whether that was asked for. It stands here because it decides, on a GPU, how results are rounded.
    """
    found = {"dr-q": dr_q.__version__, "source": source_digest(), "python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    family = families().get(task.partition("/")[0])
    folder = family.source_folder() if family else None
    if folder is not None:
        found[folder.name.replace("_", "-")] = source_digest(folder)
    found["device"] = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    return {**found, "deterministic": "yes"} if deterministic else found
