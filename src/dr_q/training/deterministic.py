"""The same bytes from the same run twice, on a GPU too (`--deterministic`)."""

import os

from jax._src import xla_bridge

from dr_q.kit import ConfigError, spelled

FLAGS = ("--xla_gpu_deterministic_ops=true", "--xla_gpu_autotune_level=0")
"""No atomic additions, whose order differs from run to run; no kernels chosen by timing them."""


def make_deterministic() -> None:
    """Have XLA compute the same bytes every time; before jax computes anything in this process.

    A CPU does so anyway. XLA reads its flags once, when jax first looks for devices.

    Raises:
        ConfigError: If jax has begun without these flags.
    """
    given = os.environ.get("XLA_FLAGS", "").split()
    missing = [flag for flag in FLAGS if flag not in given]
    if not missing:
        return
    if xla_bridge.backends_are_initialized():
        if xla_bridge.get_backend().platform == "cpu":
            return
        raise ConfigError(
            f"{spelled('deterministic')} must be known before jax computes anything in this process: start Python with "
            f'XLA_FLAGS="{" ".join(FLAGS)}", or train before you use jax'
        )
    os.environ["XLA_FLAGS"] = " ".join([*given, *missing])
