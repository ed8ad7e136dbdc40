"""Programs that were compiled by an earlier process give the same bytes as those compiled anew."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dr_q.training.compile_cache import cpu_name
from tests.training import tiny
from tests.training.test_resume import assert_same

ROOT = Path(__file__).parents[2]


def test_caches_are_kept_apart_by_kind_of_cpu(tmp_path):
    names = []
    for number, flags in enumerate(("avx2 fma", "avx2 fma avx512f", "avx2 fma")):
        info = tmp_path / str(number)
        speed = f"cpu MHz\t\t: 2{number}00"  # changes all the time
        info.write_text(
            "\n".join(f"processor\t: {i}\nmodel name\t: X\n{speed}\nflags\t\t: {flags}\n" for i in range(2))
        )
        names.append(cpu_name(info))
    assert names[0] == names[2] != names[1]
    assert cpu_name(tmp_path / "none").startswith("cpu-")


@pytest.mark.slow
def test_a_run_has_the_same_bytes_with_no_cache_a_cold_one_and_a_warm_one(tmp_path):
    """Each in a process of its own; the run with the warm cache is resumed half-way."""
    place = tmp_path / "cache"
    kept = {k: v for k, v in os.environ.items() if k not in ("JAX_COMPILATION_CACHE_DIR", "XLA_FLAGS")}
    kept.pop("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", None)
    kept |= {"XDG_CACHE_HOME": str(place), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}

    def train(*words: str, **variables: str) -> None:
        command = [sys.executable, "-m", "dr_q", "train", *words]
        subprocess.run(command, env={**kept, **variables}, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)

    def entries() -> set[str]:
        return {file.name for file in place.rglob("*-cache")}

    flags = tiny.flags(eval_every=120, eval_episodes=1)
    train("gym/Pendulum-v1", "--out", str(tmp_path / "none"), *flags, JAX_ENABLE_COMPILATION_CACHE="false")
    assert not entries()
    train("gym/Pendulum-v1", "--out", str(tmp_path / "cold"), *flags)
    cold = entries()
    assert len(cold) > 5
    assert all(file.parent.name == cpu_name() for file in place.rglob("*-cache"))
    train("gym/Pendulum-v1", "--out", str(tmp_path / "warm"), *tiny.flags(eval_every=120, eval_episodes=1, steps=120))
    assert entries() == cold, "something was compiled again"
    assert_same(tmp_path / "none", tmp_path / "cold")
    assert_same(tmp_path / "none", tmp_path / "warm")
    # Stopped half-way, and resumed by another process from the warm cache.
    for old in (tmp_path / "warm" / "checkpoints").glob("120"):
        old.rename(tmp_path / "last")
    train("--resume", str(tmp_path / "warm"))
    assert_same(tmp_path / "none", tmp_path / "warm")
