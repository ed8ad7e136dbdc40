"""Compiled programs that the next run finds again."""

import hashlib
import os
import platform
from pathlib import Path

import jax

from dr_q.envs import cores
from dr_q.kit import ConfigError

_CPU_FACTS = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features", "CPU part")
"""Lines of /proc/cpuinfo that are the same for all cores and all times."""


def keep_compiled_programs() -> None:
    """Let compiled programs be found again by the next run, unless jax was told where to keep them.

    They compile for half a minute. It also makes a resumed run use the very same programs: a GPU's compiler times
    kernels to choose among them, and another choice rounds differently. A CPU's are the same however they are found,
    on the same CPU: those of others are kept apart, because a program may use instructions that another CPU lacks.
    """
    try:
        backend = jax.default_backend()
    except Exception as error:  # jax has many ways to fail here
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise ConfigError(f"no device to compute on: {why}; unset JAX_PLATFORMS, or see dr-q doctor") from None
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        place = home / "dr-q" / "jax"
        place = place if backend != "cpu" else place / cpu_name()
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError:  # a home that cannot be written: everything is compiled again
            return
        jax.config.update("jax_compilation_cache_dir", str(place))
        if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:  # many small programs take seconds together
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def cpu_name(info: Path = Path("/proc/cpuinfo")) -> str:
    """What decides a CPU's programs besides what jax knows of: its instructions, and how many cores there are."""
    said = info.read_text(errors="replace").splitlines() if info.exists() else []
    told = sorted({line for line in said if line.split(":")[0].strip() in _CPU_FACTS})
    facts = [platform.machine(), platform.processor(), platform.system(), str(cores()), *told]
    return f"cpu-{hashlib.sha256(chr(10).join(facts).encode()).hexdigest()[:16]}"
