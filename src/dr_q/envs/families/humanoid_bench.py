"""HumanoidBench behind the protocol: whole-body tasks of the Unitree H1, without and with hands.

The package is optional and was written for mujoco 3.1.6, gymnasium 0.29 and torch. What it needs to run on the
versions we pin is patched here, in `_load`, and nowhere else.
"""

import contextlib
import importlib
import importlib.util
import io
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dr_q.envs.families.base import Family, UnknownIdError, paper_tasks_of
from dr_q.envs.protocol import EnvSpec, Step
from dr_q.kit import TaskError, is_installed
from dr_q.spaces import SINGLE, ActionScale, ContinuousActions, ObsSpec, Spaces

ACTION_REPEAT = 2

PACKAGE = "humanoid_bench"

# Module to stand in for: (the library without which it cannot be imported, the names asked of it).
STUBS: dict[str, tuple[str, tuple[str, ...]]] = {
    # Pretrained reaching policies, for the package's hierarchical agents; we ask for none.
    f"{PACKAGE}.mjx.flax_to_torch": ("torch", ("TorchModel", "TorchPolicy")),
    # gymnasium's own viewer saves screenshots with it; we draw with mujoco's renderer.
    "imageio": ("imageio", ()),
}

# A plain `pip install git+...` is no way: setup.py leaves out the models and two of the package's own folders.
INSTALL = "git clone https://github.com/carlosferrazza/humanoid-bench && pip install --no-deps -e humanoid-bench"

# Tasks write into these arrays of the model and never put them back: bookshelf_hard moves the markers of the places
# to fill (and colours objects), maze colours its crossings.
WRITTEN_BY_TASKS = ("body_pos", "geom_rgba")


def installed() -> bool:
    """Whether HumanoidBench is there to be imported; imports nothing."""
    return _importable(PACKAGE)


def package_folder() -> Path | None:
    """Where HumanoidBench is, if it is installed; imports nothing."""
    spec = importlib.util.find_spec(PACKAGE)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


class HumanoidBenchEnv:
    """One HumanoidBench task, by its registered name such as 'h1-walk-v0' or 'h1hand-pole-v0'."""

    def __init__(self, env_id: str):
        """Load the task; a `TaskError` says why it cannot be had."""
        self._env = _make(env_id)
        # The package's own class; gymnasium's types know only `gym.Env`.
        self._raw: Any = self._env.unwrapped
        self._model = self._raw.model
        self._written = {name: getattr(self._model, name).copy() for name in WRITTEN_BY_TASKS}
        self._random = _legacy_state(0)
        self._renderer: Any = None  # a mujoco.Renderer, once an image is asked for
        actions = _actions_of(self._env)
        self._scale = ActionScale(actions)
        self.spec = _spec_of(self._env, actions)

    def reset(self, seed: int) -> dict[str, np.ndarray]:
        """Start an episode; the seed alone decides it."""
        self._random = _legacy_state(seed)
        for name, value in self._written.items():
            getattr(self._model, name)[:] = value
        with self._own_random():
            obs, _ = self._env.reset(seed=seed)
        return {SINGLE: np.asarray(obs, np.float32)}

    def step(self, action: np.ndarray) -> Step:
        """Two frames under the same action, fewer where the episode ends."""
        scaled = self._scale.to_env(action)
        total, terminated, truncated, obs, info = 0.0, False, False, None, {}
        with self._own_random():
            for _ in range(ACTION_REPEAT):
                obs, reward, terminated, truncated, info = self._env.step(scaled)
                total += float(reward)
                if terminated or truncated:
                    break
        return Step({SINGLE: np.asarray(obs, np.float32)}, total, bool(terminated), bool(truncated), info)

    def render(self, size: tuple[int, int]) -> np.ndarray:
        """The current state as an RGB image of (height, width), from the task's own camera."""
        renderer = self._renderer_of(size)
        renderer.update_scene(self._raw.data, camera=self._raw.camera_name)
        return renderer.render()

    def close(self) -> None:
        """Free the simulator and, if there was an image, the GL context."""
        self._close_renderer()
        self._env.close()

    @contextlib.contextmanager
    def _own_random(self) -> Iterator[None]:
        """Lend numpy's global random state to the tasks, which draw goals and starts from it, and take it back."""
        callers = np.random.get_state()  # noqa: NPY002
        np.random.set_state(self._random)  # noqa: NPY002
        try:
            yield
        finally:
            self._random = np.random.get_state()  # noqa: NPY002
            np.random.set_state(callers)  # noqa: NPY002

    def _renderer_of(self, size: tuple[int, int]) -> Any:
        import mujoco

        height, width = size
        if self._renderer is not None and (self._renderer.height, self._renderer.width) != size:
            self._close_renderer()
        if self._renderer is None:
            # mujoco draws nothing larger than the model's off-screen buffer.
            buffer = self._model.vis.global_
            buffer.offheight, buffer.offwidth = max(buffer.offheight, height), max(buffer.offwidth, width)
            try:
                self._renderer = mujoco.Renderer(self._model, height, width)
            except Exception as error:  # mujoco.FatalError, and whatever GL raises
                raise TaskError(f"nothing can be drawn here ({error}); dr-q doctor says what is missing") from error
        return self._renderer

    def _close_renderer(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def _make(env_id: str) -> Any:
    import gymnasium

    known = _load()
    if env_id not in known:
        raise UnknownIdError(env_id, known)
    try:
        # Bookshelf tasks print a line about themselves. Any render_mode but None opens a GL context.
        with contextlib.redirect_stdout(io.StringIO()):
            return gymnasium.make(env_id, render_mode=None, disable_env_checker=True)
    except OSError as error:
        # More names are registered (every robot with every task) than there are models.
        raise TaskError(f"HumanoidBench has no model for {env_id!r}, though the name is registered: {error}") from error


def _load() -> list[str]:
    """Import HumanoidBench, make it run on our versions and list the tasks of the H1."""
    import gymnasium

    try:
        with _stubs():
            importlib.import_module(PACKAGE)
        sizes = importlib.import_module(f"{PACKAGE}.dmc_deps.dmc_sizes")
    except ImportError as error:
        raise TaskError(
            f"HumanoidBench cannot be imported ({error}); it is on no registry: {INSTALL}; or put the checkout on "
            "PYTHONPATH"
        ) from error
    _drop_unknown_fields(sizes.array_sizes)
    return [name for name, spec in gymnasium.registry.items() if name.startswith("h1") and _is_ours(spec)]


def _is_ours(spec: Any) -> bool:
    return str(spec.entry_point).startswith(PACKAGE)


@contextlib.contextmanager
def _stubs() -> Iterator[None]:
    """Stand-ins, while the package is imported, for modules that cannot be imported here and that no task uses."""
    missing = [stub for stub, (needs, _) in STUBS.items() if not _importable(needs) and stub not in sys.modules]
    for name in missing:
        module = types.ModuleType(name)
        vars(module).update(dict.fromkeys(STUBS[name][1]))
        sys.modules[name] = module
    try:
        yield
    finally:
        # Anyone who imports these modules must still be told that they are missing.
        for name in missing:
            del sys.modules[name]


def _importable(module: str) -> bool:
    return is_installed(module)


def _drop_unknown_fields(sizes: dict[str, dict[str, Any]]) -> None:
    """Remove what newer mujocos no longer have from the package's table of struct fields, copied from mujoco 3.1.6.

    It reads every field of the table when an environment is made; the tasks use none of the removed ones.
    """
    import mujoco

    for name, struct_name in (("mjmodel", "MjModel"), ("mjdata", "MjData")):
        struct = getattr(mujoco, struct_name)  # compiled: type checkers do not see it
        for field in [field for field in sizes[name] if not hasattr(struct, field)]:
            del sizes[name][field]


def _legacy_state(seed: int) -> Any:
    """A state for numpy's global generator; through a SeedSequence, so that any size of seed will do."""
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seed))).get_state()


def _actions_of(env: Any) -> ContinuousActions:
    return ContinuousActions(tuple(env.action_space.low.tolist()), tuple(env.action_space.high.tolist()))


def _spec_of(env: Any, actions: ContinuousActions) -> EnvSpec:
    (size,) = env.observation_space.shape
    return EnvSpec(
        Spaces(ObsSpec.vector(size), actions),
        action_repeat=ACTION_REPEAT,
        episode_length=env.spec.max_episode_steps // ACTION_REPEAT,
        can_terminate=True,
        step_seconds=ACTION_REPEAT * float(env.unwrapped.dt),
    )


FAMILY = Family(
    prefix="hbench",
    title="HumanoidBench",
    spelling="hbench/ROBOT-TASK-VERSION",
    tasks=paper_tasks_of("hbench"),
    make=lambda name, render: HumanoidBenchEnv(name),
    probe="hbench/h1-walk-v0",
    installed=installed,
    install=INSTALL,
    source_folder=package_folder,
)
