"""Atari games, as the authors' code preprocesses them: grey frames of 84 x 84, of which the last 4 are stacked.

An agent step is 4 frames of the emulator. What is seen of it is the larger of the last two frames, pixel by pixel,
resized by areas. The emulator repeats the last action with probability 0.25 (sticky actions). An episode ends when the
game is over, or after 108,000 frames; losing a life does not end it. Rewards are not clipped.
"""

from collections import deque
from typing import Any

import numpy as np

from dr_q.envs.families.base import Family, UnknownIdError
from dr_q.envs.protocol import EnvSpec, Step
from dr_q.kit import MissingPackageError, is_installed
from dr_q.paper import TaskInfo
from dr_q.spaces import SINGLE, DiscreteActions, ObsSpec, Spaces, to_env_action

# fmt: off
GAMES = (
    "Alien", "Amidar", "Assault", "Asterix", "Asteroids", "Atlantis", "BankHeist", "BattleZone", "BeamRider",
    "Berzerk", "Bowling", "Boxing", "Breakout", "Centipede", "ChopperCommand", "CrazyClimber", "Defender",
    "DemonAttack", "DoubleDunk", "Enduro", "FishingDerby", "Freeway", "Frostbite", "Gopher", "Gravitar", "Hero",
    "IceHockey", "Jamesbond", "Kangaroo", "Krull", "KungFuMaster", "MontezumaRevenge", "MsPacman", "NameThisGame",
    "Phoenix", "Pitfall", "Pong", "PrivateEye", "Qbert", "Riverraid", "RoadRunner", "Robotank", "Seaquest",
    "Skiing", "Solaris", "SpaceInvaders", "StarGunner", "Surround", "Tennis", "TimePilot", "Tutankham", "UpNDown",
    "Venture", "VideoPinball", "WizardOfWor", "YarsRevenge", "Zaxxon",
)
# fmt: on
AGENT_STEPS = 2_500_000
EVAL_EVERY = 100_000
EVAL_EPSILON = 0.001
FRAME_SKIP = 4
FRAME_SIZE = 84
STACKED_FRAMES = 4
MOST_FRAMES = 108_000
STICKY = 0.25
_FRAMES_PER_SECOND = 60
INSTALL = "pip install 'dr-q[atari]'"


class AtariEnv:
    """One game. Its actions are those of the game's own minimal set."""

    def __init__(self, game: str, render: bool = False):
        if game not in GAMES:
            raise UnknownIdError(game, GAMES)
        if not installed():
            raise MissingPackageError(f"atari/{game} needs ale-py and OpenCV, which are not installed: {INSTALL}")
        import ale_py
        import cv2
        import gymnasium

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # it greets on standard error
        gymnasium.register_envs(ale_py)
        drawing: dict[str, Any] = {"render_mode": "rgb_array"} if render else {}
        self._env = gymnasium.make(
            f"ALE/{game}-v5", frameskip=1, obs_type="grayscale", repeat_action_probability=STICKY, **drawing
        )
        self._resize = lambda frame: cv2.resize(frame, (FRAME_SIZE, FRAME_SIZE), interpolation=cv2.INTER_AREA)
        space: Any = self._env.action_space
        actions = DiscreteActions((int(space.n),))
        self._to_env = to_env_action(actions)
        self._last_two: deque[np.ndarray] = deque(maxlen=2)
        self._stack: deque[np.ndarray] = deque(maxlen=STACKED_FRAMES)
        self._frames = 0
        self.spec = EnvSpec(
            Spaces(ObsSpec.image(1, FRAME_SIZE, FRAME_SIZE, STACKED_FRAMES), actions),
            action_repeat=FRAME_SKIP,
            episode_length=MOST_FRAMES // FRAME_SKIP,
            step_seconds=FRAME_SKIP / _FRAMES_PER_SECOND,
            eval_epsilon=EVAL_EPSILON,
        )

    def reset(self, seed: int) -> dict[str, np.ndarray]:
        """Start a game; the seed decides when actions stick."""
        frame, _ = self._env.reset(seed=seed % 2**31)  # the emulator's seeds have 31 bits
        self._frames = 0
        self._last_two.extend([frame, frame])
        self._stack.extend([self._seen()] * STACKED_FRAMES)
        return self._observe()

    def step(self, action: np.ndarray) -> Step:
        """One agent step: the same action for 4 frames, or until the game is over."""
        own, total = self._to_env(action), 0.0
        terminated = truncated = False
        info: dict[str, Any] = {}
        for _ in range(FRAME_SKIP):
            frame, reward, terminated, truncated, info = self._env.step(own)
            self._frames += 1
            total += float(reward)
            self._last_two.append(frame)
            if terminated or truncated:
                break
        self._stack.append(self._seen())
        too_long = self._frames >= MOST_FRAMES
        return Step(self._observe(), total, bool(terminated), bool(truncated) or too_long, info)

    def render(self, size: tuple[int, int]) -> np.ndarray:
        """The emulator's image, in colour and in its own size."""
        frame: Any = self._env.render()
        return np.asarray(frame)

    def close(self) -> None:
        """Close the emulator."""
        self._env.close()

    def _seen(self) -> np.ndarray:
        """The larger of the last two frames, resized: some games draw things in every other frame only."""
        return self._resize(np.maximum(*self._last_two))[None]

    def _observe(self) -> dict[str, np.ndarray]:
        return {SINGLE: np.concatenate(list(self._stack))}


def installed() -> bool:
    """Whether the emulator and OpenCV can be imported."""
    return all(is_installed(name) for name in ("ale_py", "cv2"))


FAMILY = Family(
    prefix="atari",
    title="Atari",
    spelling="atari/GAME",
    tasks=tuple(
        TaskInfo(f"atari/{game}", "atari", AGENT_STEPS, FRAME_SKIP, MOST_FRAMES // FRAME_SKIP, None, None)
        for game in GAMES
    ),
    make=AtariEnv,
    agent_steps=AGENT_STEPS,
    eval_every=EVAL_EVERY,
    probe="atari/Pong",
    installed=installed,
    install=INSTALL,
)
