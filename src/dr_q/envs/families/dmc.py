"""DeepMind Control tasks from state vectors; the same class gives them in pixels (`dmc_visual`)."""

import contextlib
import logging
import os
import sys
import warnings
from collections import deque
from typing import Any

import numpy as np

from dr_q.envs.families.base import Family, UnknownIdError, paper_tasks_of
from dr_q.envs.protocol import EnvSpec, Step
from dr_q.kit import TaskError
from dr_q.spaces import SINGLE, ActionScale, ContinuousActions, Image, ObsSpec, Spaces, Vector

ACTION_REPEAT = 2
FRAME_SIZE = 84
STACKED_FRAMES = 3
CAMERA = {"quadruped": 2}  # 0 for every other domain
EPISODE_FRAMES = 1000


class DmcEnv:
    """One dm_control task. It never terminates; it is truncated after 1,000 frames, 500 agent steps.

    It is also truncated where its physics diverges, which happens to complex models now and then: the state is lost, so
    the episode is cut before it. An error would end the other seeds' run too, and again at the same step when resumed.
    """

    def __init__(self, name: str, *, pixels: bool = False):
        domain, _, task = name.partition("-")
        task = task.replace("-", "_")
        self._env = _load(domain, task)
        self._physics_error = _physics_error()
        self._name = f"{domain}-{task}"
        self._camera = CAMERA.get(domain, 0)
        self._pixels = pixels
        self._frames: deque[np.ndarray] = deque(maxlen=STACKED_FRAMES)
        self._steps = 0
        self._seen: dict[str, np.ndarray] = {}
        bounds = self._env.action_spec()
        low = np.broadcast_to(bounds.minimum, bounds.shape)
        high = np.broadcast_to(bounds.maximum, bounds.shape)
        actions = ContinuousActions(tuple(map(float, low)), tuple(map(float, high)))
        self._scale = ActionScale(actions)
        size = sum(int(np.prod(part.shape)) for part in self._env.observation_spec().values())
        part = Image(3, FRAME_SIZE, FRAME_SIZE, STACKED_FRAMES) if pixels else Vector(size)
        self.spec = EnvSpec(
            Spaces(ObsSpec.single(part), actions),
            action_repeat=ACTION_REPEAT,
            episode_length=EPISODE_FRAMES // ACTION_REPEAT,
            can_terminate=False,
            step_seconds=ACTION_REPEAT * float(self._env.control_timestep()),
        )

    def reset(self, seed: int) -> dict[str, np.ndarray]:
        """Start an episode from the task's generator seeded anew."""
        self._env.task.random.seed(seed)
        with _known_warnings():
            time_step = self._env.reset()
        self._steps = 0
        if self._pixels:
            self._frames.extend([self._frame()] * STACKED_FRAMES)
        return self._observe(time_step)

    def step(self, action: np.ndarray) -> Step:
        """The action for two frames, rewards summed."""
        scaled = self._scale.to_env(action)
        self._steps += 1
        try:
            time_steps = [self._env.step(scaled) for _ in range(ACTION_REPEAT)]
        except self._physics_error as error:
            print(f"{self._name}: step {self._steps} of an episode, which ends here: {error}", file=sys.stderr)
            return Step(self._seen, 0.0, False, True)
        reward = sum(float(time_step.reward) for time_step in time_steps)
        if self._pixels:
            self._frames.append(self._frame())
        return Step(self._observe(time_steps[-1]), reward, False, self._steps == self.spec.episode_length)

    def render(self, size: tuple[int, int]) -> np.ndarray:
        """The task's camera."""
        if os.environ.get("MUJOCO_GL") == "disable":
            raise TaskError("nothing can be drawn here: no OpenGL backend works; dr-q doctor says what is missing")
        return self._env.physics.render(*size, camera_id=self._camera)

    def close(self) -> None:
        """Free the simulator and what it draws with.

        dm_control's own close does neither, and a drawing context that is left to the garbage collector may be freed by
        a thread that it does not belong to, which fails.
        """
        self._env.physics.free()

    def _observe(self, time_step: Any) -> dict[str, np.ndarray]:
        if self._pixels:
            parts = list(self._frames)
        else:
            parts = [np.asarray(part, np.float32).reshape(-1) for part in time_step.observation.values()]
        self._seen = {SINGLE: np.concatenate(parts)}
        return self._seen

    def _frame(self) -> np.ndarray:
        return np.ascontiguousarray(self.render((FRAME_SIZE, FRAME_SIZE)).transpose(2, 0, 1))


def _physics_error() -> type[Exception]:
    from dm_control.rl.control import PhysicsError

    return PhysicsError


def _load(domain: str, task: str) -> Any:
    with _known_warnings():
        try:
            from dm_control import suite
        except (ImportError, AttributeError, RuntimeError):  # a renderer that does not work; only images need one
            os.environ["MUJOCO_GL"] = "disable"
            from dm_control import suite

        if (domain, task) not in suite.ALL_TASKS:
            raise UnknownIdError(f"{domain}-{task}", [f"{d}-{t}" for d, t in suite.ALL_TASKS])
        return suite.load(domain, task, task_kwargs={"random": 0})


@contextlib.contextmanager
def _known_warnings() -> Any:
    """Silence what dm_control and MuJoCo are known to say about the suite's own models."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*settotalmass.*")
        logger = logging.getLogger("absl")  # where MuJoCo's compiler speaks, through dm_control
        logger.addFilter(_not_about_total_mass)
        try:
            yield
        finally:
            logger.removeFilter(_not_about_total_mass)


def _not_about_total_mass(record: logging.LogRecord) -> bool:
    """The quadruped's and humanoid's models use an attribute that MuJoCo means to drop."""
    return "settotalmass" not in record.getMessage()


FAMILY = Family(
    prefix="dmc",
    title="DeepMind Control",
    spelling="dmc/DOMAIN-TASK",
    tasks=paper_tasks_of("dmc"),
    make=lambda name, render: DmcEnv(name),
    probe="dmc/walker-run",
    install="pip install 'dm-control' 'mujoco<4'",
)
