"""The same bytes from the same run: twice with `--deterministic`, and after a resume. On a GPU where there is one.

On a machine with a GPU that has what `pip install dr-q` installs, and pytest (`--noconftest`: nothing else is needed):

    XLA_PYTHON_CLIENT_PREALLOCATE=false PYTHONPATH=src python -m pytest --noconftest -o filterwarnings=default -q -s \
        tests/training/test_deterministic.py -k on_a_gpu

`benchmarks/deterministic.py` measures what it costs.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

from dr_q.kit import ConfigError
from dr_q.training import deterministic
from tests.faults import damages
from tests.training import tiny

HERE = Path(__file__).parents[2]
ON_GPU = jax.default_backend() == "gpu"
gpu = pytest.mark.skipif(not ON_GPU, reason="there is no GPU; on a CPU the same is tested with smaller networks")
FULL = [
    "--preset", "dr.q", "--steps", "900", "--exploration-steps", "300", "--eval-every", "300", "--eval-episodes", "2",
    "--checkpoint-every", "300", "--keep-checkpoints", "9", "--seeds", "2",
]  # fmt: skip


def train(out: Path, *words: str, cache: Path | None = None) -> float:
    """Run the command in a process of its own; the seconds it took."""
    paths = filter(None, [str(HERE / "src"), os.environ.get("PYTHONPATH")])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    if cache is not None:
        environment["JAX_COMPILATION_CACHE_DIR"] = str(cache)
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "dr_q", "train", *words],
        cwd=out.parent, env=environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    return time.monotonic() - start


def results(run: Path, steps: int) -> dict[str, bytes]:
    """Everything that a run computed: evaluations, policies, the best ones, its checkpoint and all chunks it has."""
    index, chunks = damages.index_of(run, steps), damages.chunks_of(run, steps)
    assert len(chunks) >= len(index["seeds"])
    files = [run / "evals.csv", *(run / "policy").rglob("*.safetensors"), *chunks]
    files += (run / "checkpoints" / str(steps)).glob("*.safetensors")
    found = {str(file.relative_to(run)): file.read_bytes() for file in files}
    assert {"best.safetensors", "agents.safetensors", "seed0.safetensors"} <= {Path(name).name for name in found}
    return {**found, "checkpoint.json": json.dumps({name: index[name] for name in ("episodes", "loop")}).encode()}


def differing(first: dict[str, bytes], second: dict[str, bytes]) -> list[str]:
    assert first.keys() == second.keys()
    return [name for name, data in first.items() if data != second[name]]


def forget_after(run: Path, steps: int) -> None:
    """As if it had been killed after that checkpoint."""
    for checkpoint in (run / "checkpoints").iterdir():
        if checkpoint.name.isdecimal() and int(checkpoint.name) > steps:
            shutil.rmtree(checkpoint)


@gpu
@pytest.mark.slow
def test_the_same_bytes_twice_and_after_a_resume_on_a_gpu(tmp_path):
    """Programs are compiled anew by the second run: kernels must not be chosen by timing them."""
    words = ["gym/Hopper-v4", *FULL]
    for name in ("first", "second"):
        took = train(tmp_path / name, *words, "--deterministic", "--out", name, cache=tmp_path / f"cache-{name}")
        print(f"{name}, --deterministic: {took:.1f} s")
    first, second = (results(tmp_path / name, 900) for name in ("first", "second"))
    assert differing(first, second) == []
    shutil.copytree(tmp_path / "first", tmp_path / "resumed")
    forget_after(tmp_path / "resumed", 300)
    train(tmp_path / "resumed", "--resume", "resumed", "--deterministic", cache=tmp_path / "cache-first")
    assert differing(first, results(tmp_path / "resumed", 900)) == []


@gpu
@pytest.mark.slow
def test_a_resume_on_a_gpu_is_exact_with_the_same_programs(tmp_path):
    """Without `--deterministic`, as far as the machine allows: the programs are those of the first run."""
    cache = tmp_path / "cache"
    for name in ("first", "second"):
        train(tmp_path / name, "gym/Hopper-v4", *FULL, "--out", name, cache=cache)
    first, second = (results(tmp_path / name, 900) for name in ("first", "second"))
    if differing(first, second):
        pytest.skip("two unbroken runs differ without --deterministic, so a resume cannot be told from them")
    shutil.copytree(tmp_path / "first", tmp_path / "resumed")
    forget_after(tmp_path / "resumed", 300)
    train(tmp_path / "resumed", "--resume", "resumed", cache=cache)
    assert differing(first, results(tmp_path / "resumed", 900)) == []


@pytest.mark.slow
def test_the_same_bytes_twice_and_after_a_resume(tmp_path):
    """On whatever this machine has, with small networks."""
    words = ["gym/Hopper-v4", *tiny.flags(steps=120), "--deterministic"]
    for name in ("first", "second"):
        train(tmp_path / name, *words, "--out", name)
    first, second = (results(tmp_path / name, 120) for name in ("first", "second"))
    assert differing(first, second) == []
    versions = json.loads((tmp_path / "first" / "run.json").read_text())["versions"]
    assert versions["deterministic"] == "yes"
    forget_after(tmp_path / "second", 40)
    train(tmp_path / "second", "--resume", "second", "--deterministic")
    assert differing(first, results(tmp_path / "second", 120)) == []


def test_flags_come_before_jax(monkeypatch):
    """XLA reads them once: later they would be ignored in silence."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    begun = [False]
    monkeypatch.setattr(deterministic.xla_bridge, "backends_are_initialized", lambda: begun[0])
    deterministic.make_deterministic()
    assert os.environ["XLA_FLAGS"].split() == ["--xla_cpu_enable_fast_math=false", *deterministic.FLAGS]
    begun[0] = True
    deterministic.make_deterministic()  # they were there in time
    monkeypatch.setenv("XLA_FLAGS", "")
    if not ON_GPU:
        deterministic.make_deterministic()  # a CPU needs none


def test_flags_that_come_too_late_are_refused_on_a_gpu(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")

    class Gpu:
        platform = "gpu"

    monkeypatch.setattr(deterministic.xla_bridge, "backends_are_initialized", lambda: True)
    monkeypatch.setattr(deterministic.xla_bridge, "get_backend", Gpu)
    with pytest.raises(ConfigError, match="deterministic must be known before jax computes anything in this process"):
        deterministic.make_deterministic()
