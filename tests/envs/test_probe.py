"""What is found wrong with an environment before a run compiles anything, and by `dr-q check`."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

import dr_q
from dr_q.cli import main
from dr_q.envs import make_env
from dr_q.envs.probe import probe
from dr_q.kit import is_installed
from dr_q.spaces import Vector
from tests.envs import toys
from tests.envs.toys import Forgetful
from tests.policies.test_policy import policy_of


def probed(env: type) -> tuple[str, ...]:
    return probe(lambda: make_env(env))


class FirstStepFails(toys.Walk):
    def step(self, action):
        raise RuntimeError("no motor")


class Large(toys.Walk):
    observation_space = spaces.Box(-1e6, 1e6, (1,), np.float32)

    def observe(self):
        return super().observe() + 5_000


class TwoKinds(toys.Walk):
    made = 0

    def __init__(self):
        super().__init__()
        TwoKinds.made += 1
        self.observation_space = spaces.Box(-100, 100, (TwoKinds.made,), np.float32)

    def observe(self):
        return np.zeros(self.observation_space.shape or (), np.float32)


class NanInADict(toys.Toy):
    observation_space = spaces.Dict(
        {
            "arm": spaces.Dict({"angle": spaces.Box(-1, 1, (2,)), "speed": spaces.Box(-9, 9, (3,))}),
            "t": spaces.Box(0, 9),
        }
    )

    def observe(self):
        speed = np.array([0, np.nan if self.t >= 2 else 0, 0], np.float32)
        return {"arm": {"angle": np.zeros(2, np.float32), "speed": speed}, "t": np.zeros(1, np.float32)}

    def outcome(self, action):
        return 0.0, False, False


class Endless(toys.Walk):
    def step(self, action):
        obs, reward, *_ = super().step(action)
        return obs, reward, False, False, {}


class OutOfBounds(toys.Walk):
    observation_space = spaces.Box(-0.01, 0.01, (1,), np.float32)


class FloatImage(toys.Toy):
    observation_space = spaces.Box(0, 1, (36, 36, 3), np.float32)

    def observe(self):
        return np.full((36, 36, 3), 0.5, np.float32)

    def outcome(self, action):
        return 0.0, self.t == 9, False


def test_a_good_environment_has_nothing_to_say():
    assert probed(toys.Walk) == ()


def test_what_a_run_says_of_an_environment_that_it_can_train_on():
    (said,) = probed(Forgetful)
    assert said.startswith(
        "a second environment with the same seed and actions gave something else at step 1; give reset"
    )
    assert probed(Large) == ()  # the run itself warns of it, if it does not normalise them
    (said,) = probed(FloatImage)
    assert said.startswith("obs of shape (36, 36, 3) is taken for 3,888 plain numbers; if it is an image, give uint8")


def test_what_a_check_warns_of_can_be_trained_on(capsys):
    for env in (Large, Endless, OutOfBounds, FloatImage, Forgetful):
        gymnasium.register("drq-warned-v0", entry_point=f"{__name__}:{env.__name__}", disable_env_checker=True)
        try:
            assert main(["check", "gym/drq-warned-v0", "--steps", "40"]) == 0
        finally:
            gymnasium.registry.pop("drq-warned-v0")
        *lines, last = capsys.readouterr().out.splitlines()
        assert last == "gym/drq-warned-v0 can be trained on; look at what is marked with !"
        (warned,) = [line for line in lines if not line.startswith("ok  ") and "ends of episodes" not in line] or [""]
        ends = [line for line in lines if line.startswith("!   ends of episodes: no episode ended in 40 random steps")]
        expected = {
            Large: "!   size of observations: observations reach 5",
            Endless: "",
            OutOfBounds: "!   bounds of observations: component 0 reaches ",
            FloatImage: "!   images: obs of shape (36, 36, 3) is taken for 3,888 plain numbers  ->  if it is an image",
            Forgetful: "!   repeated: a second environment",
        }[env]
        assert warned.startswith(expected)
        assert bool(ends) == (env is Endless)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (FirstStepFails, r"FirstStepFails failed in step\(action\): RuntimeError: no motor"),
        (TwoKinds, "a second environment has Spaces"),
        (NanInADict, r"an observation that is NaN or infinite in 'arm/speed'\[1\], in step 1 of random actions"),
    ],
)
def test_an_environment_that_fails_is_refused_before_anything_is_compiled(env, message, tmp_path, monkeypatch):
    def compiled(*_):
        raise AssertionError("something was compiled")

    TwoKinds.made = 0
    monkeypatch.setattr("dr_q.training.loop.Learner", compiled)
    with pytest.raises(dr_q.DrQError, match=message):
        dr_q.train(env, steps=40, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_folder_of_a_package_s_name_is_no_package(tmp_path, monkeypatch):
    """W&B leaves a folder `wandb` where it ran."""
    (tmp_path / "absent_package").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_installed("absent_package")
    assert is_installed("numpy")
    assert not is_installed("no_such_package")


def test_a_missing_package_is_found_before_anything_is_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("dr_q.training.loop.training_pool", lambda *_, **__: pytest.fail("a simulator was started"))
    with pytest.raises(dr_q.MissingPackageError, match=r"wandb needs wandb, .* pip install 'dr-q\[wandb\]'"):
        dr_q.train(toys.Walk, out=tmp_path / "run", wandb=True)
    with pytest.raises(dr_q.MissingPackageError, match=r"prefill minari:a/b-v0 needs minari, .* 'dr-q\[minari\]'"):
        dr_q.train(toys.Walk, out=tmp_path / "run", prefill="minari:a/b-v0")


def test_check_reports_what_it_finds(capsys):
    assert main(["check", "gym/Pendulum-v1", "--steps", "250"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ok  made: Pendulum-v1: TimeLimit<OrderEnforcing<PassiveEnvChecker<PendulumEnv>>>")
    assert "ok  actions: 1 number from -2 to 2" in lines
    assert "ok  bounds of observations: within the declared space" in lines
    assert "ok  observations: obs vector (3,)" in lines
    assert "ok  episode length: truncated after 200 steps" in lines
    assert "ok  repeated: a second environment with the same seed and actions gave the same" in lines
    assert any(line.startswith("ok  random actions: mean return -") and line.endswith("1 episode") for line in lines)
    assert lines[-1] == "gym/Pendulum-v1 can be trained on"
    assert main(["check", "gym/Pendulun-v1"]) == 2
    assert "Pendulun-v1" in capsys.readouterr().err


def test_a_check_of_an_environment_that_fails_ends_there(capsys):
    gymnasium.register("drq-nan-v0", entry_point=f"{__name__}:NanInADict")
    try:
        assert main(["check", "gym/drq-nan-v0"]) == 1
    finally:
        gymnasium.registry.pop("drq-nan-v0")
    assert "--  failed: the environment gave an observation that is NaN or infinite in 'arm/speed'[1], in step 1" in (
        out := capsys.readouterr().out
    )
    assert out.splitlines()[-1] == "gym/drq-nan-v0 cannot be trained on before what is marked with -- is fixed"
    found = dr_q.check_env(toys.Walk, 100)
    assert all(finding.ok and not finding.fix and not finding.warning for finding in found)


@pytest.mark.parametrize(
    ("name", "what"),
    [("drq-hangs-when-made-v0", "making the environment"), ("drq-hangs-in-reset-v0", "reset(seed=...)")],
)
def test_a_check_of_an_environment_that_hangs_ends(name, what, capsys):
    start = time.monotonic()
    assert main(["check", f"tests.envs.toys:{name}", "--env-timeout", "0.5"]) == 1
    assert time.monotonic() - start < 5
    *_, failed, last = capsys.readouterr().out.splitlines()
    assert failed == (
        f"--  failed: {what} has not returned for 0.5 s (--env-timeout); it hangs or is very slow  ->  "
        "fix the environment"
    )
    assert last.endswith("cannot be trained on before what is marked with -- is fixed")


def test_a_check_ends_where_the_environment_cannot_be_interrupted():
    command = ["check", "tests.envs.toys:drq-stubborn-v0", "--env-timeout", "0.5"]
    code = "import sys; sys.modules['jax'] = None; from dr_q.envs.processes import watchdog; watchdog.PATIENCE = 0.5\n"
    code += f"from dr_q.cli import main; sys.exit(main({command}))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60, check=False,
        cwd=Path(__file__).parents[2], env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 1
    *_, failed, last = done.stdout.splitlines()
    assert failed.startswith("--  failed: reset(seed=...) has not returned for 0.5 s (--env-timeout); it hangs")
    assert last.endswith("before what is marked with -- is fixed")
    assert done.stderr == ""


def test_a_bare_id_of_gymnasium_suggests_its_family(tmp_path, capsys):
    assert main(["train", "Pendulum-v1", "--out", str(tmp_path / "run")]) == 2
    assert "unknown task 'Pendulum-v1'; did you mean 'gym/Pendulum-v1'?" in capsys.readouterr().err


def test_components_are_named_by_the_environments_keys():
    part = Vector(6, fields=(("a", (2,)), ("mode", ()), ("b", ())), choices=(("mode", (3,), (0,)),))
    names = [part.component(i, "obs") for i in range(6)]
    assert names == ["'a'[0]", "'a'[1]", "'mode'[0]", "'mode'[1]", "'mode'[2]", "'b'"]
    assert Vector(3).component(2, "obs") == "component 2"
    assert Vector(3).component(2, "joints") == "'joints'[2]"
    assert Vector(4, fields=(("", (2, 2)),)).component(3, "obs") == "component 3"


class SharesItsState(toys.Walk):
    """All instances draw from one generator."""

    shared = np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        found = super().reset(seed=seed)
        type(self).shared = np.random.default_rng(seed)
        return found

    def outcome(self, action):
        self.x += action + 0.1 * type(self).shared.normal()
        return -abs(self.x), False, self.t == 39


class SucceedsQuietly(toys.Walk):
    """Says that it succeeded under a name that nobody reads."""

    def step(self, action):
        return *super().step(action)[:4], {"success": True}


class GreyImage(toys.Toy):
    """An image without an axis of channels."""

    observation_space = spaces.Box(0, 255, (40, 36), np.uint8)

    def observe(self) -> Any:
        return np.full((40, 36), self.t, np.uint8)

    def outcome(self, action):
        return 1.0, False, self.t == 9


class ChannelsInTheMiddle(GreyImage):
    """Axes in an order that makes no sense as an image."""

    observation_space = spaces.Box(0, 255, (32, 36, 40), np.uint8)

    def observe(self) -> Any:
        return np.full((32, 36, 40), self.t, np.uint8)


class OtherDtype(gymnasium.Env):
    """Observations of float64 in a space of float32, which Gymnasium's checker warns of in every environment."""

    observation_space = spaces.Box(-9, 9, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(size=2), {}

    def step(self, action):
        return self.np_random.uniform(size=2), 1.0, False, False, {}


def registered_other_dtype() -> gymnasium.Env:
    entry: Any = OtherDtype  # Gymnasium's types know functions alone
    spec = EnvSpec("OtherDtype-v0", entry_point=entry, max_episode_steps=20)
    return gymnasium.make(spec)


@pytest.mark.parametrize(
    ("make", "what", "said"),
    [
        (registered_other_dtype, "Gymnasium's checker", "expecting numpy array dtype to be float32"),
        (SharesItsState, "independent", "stepping another environment in the same process changed this one, at step "),
        (SucceedsQuietly, "success", "info['success'] is not read"),
        (GreyImage, "images", "of shape (40, 36) is taken for 1,440 plain numbers"),
        (ChannelsInTheMiddle, "images", "is an image of 40 channels, 32 x 36 pixels"),
    ],
)
def test_what_looks_like_a_mistake_is_said(make, what, said):
    (finding,) = [finding for finding in dr_q.check_env(make, steps=60) if finding.what == what and not finding.ok]
    assert said in finding.found
    assert finding.warning
    assert str(finding).startswith(f"!   {what}: ")


def test_environments_of_their_own_are_independent():
    (finding,) = [finding for finding in dr_q.check_env(toys.Walk, steps=60) if finding.what == "independent"]
    assert finding.ok
    assert str(finding).startswith("ok  independent: ")


class NumberedKeys(toys.Walk):
    """A Dict with keys that are no text."""

    observation_space = spaces.Dict({1: spaces.Box(-9, 9, (2,)), 2: spaces.Box(-9, 9, (1,))})  # pyright: ignore

    def observe(self) -> Any:
        return {1: np.zeros(2, np.float32), 2: np.ones(1, np.float32)}


class SamePaths(toys.Walk):
    """Two entries that have one path."""

    observation_space = spaces.Dict({"a/b": spaces.Box(-9, 9, (1,)), "a": spaces.Dict({"b": spaces.Box(-9, 9, (2,))})})

    def observe(self) -> Any:
        return {"a/b": np.zeros(1, np.float32), "a": {"b": np.ones(2, np.float32)}}


def test_the_order_of_a_dict_is_said(tmp_path):
    found = dr_q.check_env(NumberedKeys, steps=60)
    assert next(x.found for x in found if x.what == "observations") == "obs vector (3,): 1 (2,), 2 (1,)"
    policy = policy_of(NumberedKeys, tmp_path / "run")
    whole = NumberedKeys().observe()
    assert policy.act(whole).shape == (1,)
    with pytest.warns(UserWarning, match="in the order 1"):
        np.testing.assert_array_equal(policy.act(np.array([0, 0, 1], np.float32)), policy.act(whole))
    with (
        pytest.warns(UserWarning, match="in the order 1"),
        pytest.raises(ValueError, match=r"of shape \(2,\); .*; its entries are 1 \(2,\), 2 \(1,\): give them by name"),
    ):
        policy.act(whole[1])
    with pytest.raises(dr_q.TaskError, match="two entries have the same path; rename one"):
        make_env(SamePaths)
