"""Small Gymnasium environments with known answers, importable by worker processes."""

import contextlib
import json
import os
import re
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Toy(gymnasium.Env):
    """Observations are the step as a one-hot vector, one action in [-1, 1]; subclasses say what a step gives."""

    observation_space: spaces.Space = spaces.Box(0, 1, (8,), np.float32)
    action_space: spaces.Space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self) -> None:
        self.t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.t = 0
        return self.observe(), {}

    def observe(self) -> Any:
        return np.eye(8, dtype=np.float32)[min(self.t, 7)]

    def step(self, action):
        reward, terminated, truncated = self.outcome(float(np.asarray(action).reshape(-1)[0]))
        self.t += 1
        return self.observe(), reward, terminated, truncated, {}

    def outcome(self, action: float) -> tuple[float, bool, bool]:
        raise NotImplementedError  # each toy has its own


class OneStep(Toy):
    """Reward 1, then the end: Q = 1."""

    def outcome(self, action):
        return 1.0, True, False


class TwoSteps(Toy):
    """Nothing, then reward 1 and the end: Q = discount, 1."""

    def outcome(self, action):
        return float(self.t == 1), self.t == 1, False


class Chain(Toy):
    """Six steps, reward 1 at the end: Q = discount^(steps left)."""

    def outcome(self, action):
        return float(self.t == 5), self.t == 5, False


class Forever(Toy):
    """Reward 1 each step, truncated after 20, the same observation always: Q = 1 / (1 - discount)."""

    def observe(self):
        return np.eye(8, dtype=np.float32)[0]

    def outcome(self, action):
        return 1.0, False, self.t == 19


class Bandit(Toy):
    """Reward -(a - 0.4)^2: the policy is 0.4."""

    def outcome(self, action):
        return -((action - 0.4) ** 2), True, False


class Walk(Toy):
    """A random walk pushed by actions; ends at random, so that seeds end episodes at different times."""

    observation_space = spaces.Box(-100, 100, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.normal()
        return self.observe(), {}

    def observe(self):
        return np.array([getattr(self, "x", 0.0)], np.float32)

    def outcome(self, action):
        self.x += action + 0.1 * self.np_random.normal()
        return -abs(self.x), bool(self.np_random.random() < 0.03), self.t == 39


class Forgetful(Walk):
    """Cannot be restored: its noise ignores the seed."""

    def outcome(self, action):
        self.x += float(np.frombuffer(os.urandom(4), np.uint32)[0]) / 2**32
        return 0.0, False, self.t == 39


class Uneven(Toy):
    """Bounds that differ by dimension; tells which action it got."""

    action_space = spaces.Box(np.array([-0.4, 0.0], np.float32), np.array([0.4, 3.0], np.float32))
    observation_space = spaces.Box(-10, 10, (2,), np.float32)

    def observe(self):
        return getattr(self, "got", np.zeros(2, np.float32))

    def step(self, action):
        self.got = np.asarray(action, np.float32)
        return self.got, 0.0, False, False, {}


class Breaks(Walk):
    """Does something wrong at its tenth step, as `wrong` says."""

    wrong = "raises"

    def step(self, action) -> Any:
        obs, reward, _, _, info = super().step(action)
        if self.t != 10:
            return obs, reward, False, False, info
        print("just before it goes wrong")
        if self.wrong == "raises":
            json.loads("serial port")
        if self.wrong == "no reward":
            return obs, None, False, False, info
        if self.wrong == "four values":
            return obs, reward, False, info
        if self.wrong == "another size":
            return np.zeros(3, np.float32), reward, False, False, info
        if self.wrong == "nan reward":
            return obs, np.nan, False, False, info
        return np.array([np.inf], np.float32), reward, False, False, info


class NotMade(Toy):
    """Cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("no robot there")


class Talks(Toy):
    """Prints on both ways."""

    def reset(self, *, seed=None, options=None):
        print("reset")
        return super().reset(seed=seed, options=options)

    def outcome(self, action):
        print(f"to stdout {self.t}")
        print(f"to stderr {self.t}", file=sys.stderr)
        return 1.0, False, False


class Leaves(Toy):
    """Ends the process where it is made."""

    def __init__(self) -> None:
        raise SystemExit(3)


class DictObs(Toy):
    """A Dict of vectors."""

    observation_space = spaces.Dict(
        {"b": spaces.Box(-1, 1, (2,), np.float64), "a": spaces.Box(-1, 1, (2, 2), np.float32)}
    )

    def observe(self):
        return {"b": np.array([5.0, 6.0]), "a": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)}

    def outcome(self, action):
        return 0.0, False, False


class Pixels(Toy):
    """Small images."""

    observation_space = spaces.Box(0, 255, (84, 84, 3), np.uint8)

    def observe(self):
        return np.full((84, 84, 3), self.t, np.uint8)

    def outcome(self, action):
        return 0.0, False, self.t == 9


class TinyPixels(Pixels):
    observation_space = spaces.Box(0, 255, (30, 84, 3), np.uint8)


class ChannelsFirst(Pixels):
    observation_space = spaces.Box(0, 255, (3, 84, 84), np.uint8)


class WholeActions(Toy):
    action_space = spaces.Box(0, 10, (2,), np.int32)


class NoActions(Toy):
    action_space = spaces.Box(-1, 1, (0,), np.float32)


class NotClosed(Toy):
    """Fails when all is done."""

    def outcome(self, action):
        return 0.0, False, self.t == 9

    def close(self):
        raise RuntimeError("no hands left")


class ComplexActions(Toy):
    """Actions of a kind that no agent here can give."""

    action_space = spaces.Dict({"arm": spaces.Box(-1, 1, (2,), np.float32), "grip": spaces.Discrete(2)})


class Unbounded(Toy):
    action_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)


class TextObs(Toy):
    observation_space = spaces.Text(5)


class Dies(Walk):
    """Its process ends in the third step."""

    def outcome(self, action):
        if self.t == 2:
            os._exit(7)
        return super().outcome(action)


class Hangs(Walk):
    """Its third step takes forever."""

    def outcome(self, action):
        if self.t == 2:
            time.sleep(60)
        return super().outcome(action)


class Fails(Walk):
    """Goes wrong once, as `how` says, in the sixth step of an episode; which process it was, it leaves in a file."""

    def __init__(self, how: str, file: str) -> None:
        super().__init__()
        self.how, self.file = how, file

    def outcome(self, action):
        if self.t == 5:
            try:
                with open(self.file, "x") as file:  # noqa: PTH123 - one of several processes succeeds
                    file.write(str(os.getpid()))
            except FileExistsError:
                return super().outcome(action)
            if self.how == "dies":
                os._exit(7)
            if self.how == "raises":
                raise RuntimeError("lost a leg")
            if self.how == "interrupts":
                raise KeyboardInterrupt
            if self.how == "exits":
                raise GeneratorExit
            if self.how == "computes":
                re.match(r"(a+)+$", "a" * 60 + "b")  # for years, and no other thread of Python runs meanwhile
            while self.how == "is stubborn":
                with contextlib.suppress(BaseException):
                    time.sleep(60)
            time.sleep(60)
        return super().outcome(action)


class HangsWhenMade(Walk):
    """Its constructor never returns."""

    def __init__(self) -> None:
        super().__init__()
        time.sleep(600)


class HangsInReset(Walk):
    """Its reset never returns; `stubborn`: not even when it is interrupted."""

    stubborn = False

    def reset(self, *, seed=None, options=None):
        while self.stubborn:
            with contextlib.suppress(BaseException):
                time.sleep(600)
        time.sleep(600)
        return super().reset(seed=seed, options=options)


class Stubborn(HangsInReset):
    stubborn = True


gymnasium.register("drq-walk-v0", entry_point="tests.envs.toys:Walk")
gymnasium.register("drq-unbounded-v0", entry_point="tests.envs.toys:Unbounded")
gymnasium.register("drq-hangs-when-made-v0", entry_point="tests.envs.toys:HangsWhenMade")
gymnasium.register("drq-hangs-in-reset-v0", entry_point="tests.envs.toys:HangsInReset")
gymnasium.register("drq-stubborn-v0", entry_point="tests.envs.toys:Stubborn")
