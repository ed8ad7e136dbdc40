"""What works on this machine or in a run's folder, what does not, and the fix."""

import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dr_q
from dr_q.envs.probe import Finding
from dr_q.kit import DamagedFileError, DrQError, RunFolderError, is_installed
from dr_q.run_folder import (
    EVALS,
    Checkpoints,
    evaluation_rows,
    evaluations_begin_with,
    policy_file,
    policy_folder,
    policy_record,
    read_policy_weights,
    read_run_json,
    run_timing,
    source_digest,
)


def examine() -> Iterator[Finding]:
    """Look at versions, devices, simulators and rendering, one by one."""
    yield Finding("dr-q", True, f"{dr_q.__version__}, source {source_digest()}, in {Path(dr_q.__file__).parent}")
    yield Finding("python", sys.version_info >= (3, 11), platform.python_version(), "use Python 3.11 or newer")
    for package in ("jax", "equinox", "optax", "safetensors", "gymnasium", "mujoco", "dm-control"):
        yield _package(package)
    yield _devices()
    yield from _simulators()
    yield from _rendering()
    for module, extra, use in (
        ("matplotlib", "plot", "dr-q plot"),
        ("imageio_ffmpeg", "video", "dr-q video"),
        ("wandb", "wandb", "--wandb"),
        ("sklearn", "report", "dr-q analyse, experiment"),
        ("ray", "ray", "dr-q sweep, experiment"),
        ("optuna", "tune", "dr-q tune"),
        ("minari", "minari", "--prefill minari:ID"),
        ("onnx", "onnx", "dr-q export --format onnx"),
    ):
        there = is_installed(module)
        yield Finding(
            f"{module} (optional, for {use})",
            there,
            "installed" if there else "not installed",
            f"pip install 'dr-q[{extra}]'",
        )


def examine_run(folder: Path) -> Iterator[Finding]:
    """Look at every file of a run; checkpoints are compared with their checksums.

    Raises:
        RunFolderError: If the folder is no run.
    """
    try:
        seeds = read_run_json(folder, "status", "agent_steps", "seeds", "versions")["seeds"]
    except DamagedFileError as error:
        yield Finding("settings and status", False, str(error), "take it from a backup")
        return
    yield Finding("settings and status", True, "can be read")
    yield _looked_at("evaluations", lambda: _evaluations(folder, seeds), "resume the run, which restores them")
    yield _looked_at("metrics", lambda: f"times of {len(run_timing(folder))} parts", "remove the line that it names")
    yield _looked_at("policies", lambda: _policies(folder), "resume the run, which writes them at its next evaluation")
    checkpoints = Checkpoints(folder, seeds)
    try:
        steps = checkpoints.steps()
    except OSError as error:
        found = f"{error.filename} cannot be read: {error.strerror}"
        yield Finding("checkpoints of the run", False, found, "allow reading it")
        return
    if not steps:
        yield Finding(
            "checkpoints of the run",
            False,
            "none",
            f"dr-q train --resume {folder} begins again, if nothing is lost by it",
        )
    for step in steps:
        fix = f"dr-q train --resume {folder} uses the newest checkpoint that is whole"
        yield _looked_at(f"checkpoint of step {step:,}", partial(_checkpoint, checkpoints, step), fix)


def _looked_at(what: str, look: Callable[[], str], fix: str) -> Finding:
    try:
        return Finding(what, True, look())
    except DrQError as error:
        return Finding(what, False, str(error), fix)
    except OSError as error:
        return Finding(what, False, f"{error.filename} cannot be read: {error.strerror}", "allow reading it")


def _evaluations(folder: Path, seeds: list[int]) -> str:
    """The newest checkpoint that can be read has a copy of all rows up to it."""
    found = f"{len(evaluation_rows(folder))} rows"
    checkpoints = Checkpoints(folder, seeds)
    for step in reversed(checkpoints.steps()):
        try:
            copied = checkpoints.read(step).evaluations
        except DamagedFileError:
            continue
        if not copied:
            break
        if not evaluations_begin_with(folder, copied):
            raise DamagedFileError(f"{folder / EVALS} differs from its copy in the checkpoint of step {step:,}")
        return f"{found}, those up to step {step:,} as in the checkpoint"
    return found


def _policies(folder: Path) -> str:
    record = _read_policies(folder)
    try:
        best = policy_folder(folder, "best")
    except RunFolderError:  # a run need not have it
        best = None
    if best is not None:
        _read_policies(best)
    return f"{len(record['seeds'])} seeds, of step {record['agent_steps']:,}"


def _read_policies(folder: Path) -> dict[str, Any]:
    record = policy_record(folder)
    for seed in record["seeds"]:
        read_policy_weights(policy_file(folder, record, seed)[0], record)
    return record


def _checkpoint(checkpoints: Checkpoints, step: int) -> str:
    stored = checkpoints.read(step)
    damages = stored.damages()
    if damages:
        raise DamagedFileError("; ".join(damages))
    files = len(stored.files)
    if stored.has_checksums:
        return f"{files} files are as they were written (SHA-256)"
    return f"{files} files can be read; its format has no checksums"


def check_task(task: str) -> None:
    """Refuse a task that there is not; known ones are not made to see, because what they need may be what is wrong.

    Raises:
        TaskError: It cannot be made.
    """
    from dr_q.envs import canonical, known_tasks, make_env

    if canonical(task) not in known_tasks():
        make_env(task).close()


def memory_plan(task: str, seeds: int, preset_name: str, steps: int | None) -> list[str]:
    """What a run holds in memory, and where, in lines to print."""
    from dr_q.envs import make_env
    from dr_q.settings import make_settings
    from dr_q.training.plan import plan_for

    settings = make_settings(task, preset_name=preset_name, seeds=seeds, steps=steps)
    env = make_env(settings.task)
    env.close()
    return plan_for(settings, env.spec).lines()


def _package(name: str) -> Finding:
    try:
        return Finding(name, True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, False, "not installed", "pip install dr-q")


def _devices() -> Finding:
    import jax

    try:
        devices = jax.devices()
    except Exception as error:  # jax has many ways to fail here
        return Finding(
            "devices", False, _first_line(error), "unset JAX_PLATFORMS, or pip install 'dr-q[cuda]' for a GPU"
        )
    return Finding("devices", True, f"{len(devices)} x {devices[0].device_kind} ({devices[0].platform})")


def _simulators() -> Iterator[Finding]:
    from dr_q.envs.families import families

    for family in families().values():
        there = family.available
        if family.installed is not None:
            found = "installed" if there else "not installed"
            yield Finding(f"{family.title} (optional)", there, found, family.install)
        if family.probe and there:
            yield _simulator(family.probe, family.install)


def _simulator(task: str, fix: str) -> Finding:
    from dr_q.envs import make_env

    try:
        env = make_env(task)
        env.reset(0)
        env.close()
    except Exception as error:  # to find out what does not work is what this is for
        return Finding(task, False, _first_line(error), fix)
    return Finding(task, True, "loads and resets")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), 'it does not say why')}"


# GL names its renderer: a GPU, or software.
_DRAW = """
from dr_q.envs import make_env
env = make_env("dmc/walker-run")
env.reset(0)
contrast = env.render((84, 84)).std()
try:
    from OpenGL import GL
    with env._env.physics.contexts.gl.make_current() as context:
        renderer = context.call(GL.glGetString, GL.GL_RENDERER).decode()
except Exception:
    renderer = "an unknown renderer"
print(contrast, renderer)
"""


def _rendering() -> Iterator[Finding]:
    """Each backend in a process of its own: MuJoCo picks one when it is imported."""
    works, drawn_by = [], []
    for backend in ("egl", "osmesa", "glfw"):
        environment = {**os.environ, "MUJOCO_GL": backend, "PYOPENGL_PLATFORM": backend}
        if backend == "glfw":
            environment.pop("PYOPENGL_PLATFORM")
        command = [sys.executable, "-c", _DRAW]
        try:
            result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        except subprocess.TimeoutExpired:
            continue
        contrast, _, renderer = (result.stdout.splitlines() or [""])[-1].partition(" ")
        if result.returncode == 0 and float(contrast) > 0:
            works.append(backend)
            drawn_by.append(renderer)
    fix = "apt-get install libegl1 (GPU or software), or libosmesa6; a screen for glfw"
    found = "no backend works"
    if works:
        drawn = "; ".join(f"{backend} draws with {renderer}" for backend, renderer in zip(works, drawn_by, strict=True))
        found = f"works with MUJOCO_GL={', '.join(works)}; {drawn}"
    yield Finding("rendering (pixels, videos)", bool(works), found, fix)
    current = os.environ.get("MUJOCO_GL", "")
    if works and current not in works:
        yield Finding("MUJOCO_GL", False, current or "not set", f"export MUJOCO_GL={works[0]}")
