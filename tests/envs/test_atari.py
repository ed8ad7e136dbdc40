"""Atari through the real emulator, next to the same preprocessing written out."""

import ale_py
import cv2
import gymnasium
import numpy as np
import pytest

from dr_q.envs import default_eval_every, default_steps, make_env, suite_tasks
from dr_q.envs.families import atari
from dr_q.kit import MissingPackageError, TaskError
from dr_q.policies.episodes import EvaluationNoise
from dr_q.settings import make_settings
from dr_q.spaces import SINGLE, DiscreteActions, Image
from tests.policies.test_policy import policy_of


def test_there_are_57_games_and_the_emulator_has_them():
    gymnasium.register_envs(ale_py)
    assert len(set(atari.GAMES)) == len(suite_tasks("atari")) == 57
    missing = [game for game in atari.GAMES if f"ALE/{game}-v5" not in gymnasium.registry]
    assert not missing


def test_budget_and_evaluations_are_the_authors():
    assert (default_steps("atari/pong"), default_eval_every("atari/pong")) == (2_500_000, 100_000)
    assert make_settings("atari/Pong").eval_every == 100_000
    assert make_settings("atari/Pong", eval_every=500).eval_every == 500
    assert default_eval_every("gym/Hopper-v4") == make_settings("gym/Hopper-v4").eval_every == 5_000


def test_an_unknown_game_gets_the_nearest_name():
    with pytest.raises(TaskError, match="unknown task 'atari/Pog'; did you mean 'atari/Pong'"):
        make_env("atari/Pog")


def test_without_the_emulator_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr(atari, "installed", lambda: False)
    with pytest.raises(MissingPackageError, match=r"atari/Pong needs ale-py and OpenCV.*pip install 'dr-q\[atari\]'"):
        make_env("atari/Pong")


def raw_steps(game: str, seed: int, choices: list[int]):
    """The same game, frame by frame: what an agent step must give."""
    env = gymnasium.make(f"ALE/{game}-v5", frameskip=1, obs_type="grayscale", repeat_action_probability=0.25)
    frame, _ = env.reset(seed=seed)
    shown = [cv2.resize(frame, (84, 84), interpolation=cv2.INTER_AREA)] * 4
    yield np.stack(shown), 0.0, False
    for choice in choices:
        total, before, over = 0.0, frame, False
        for _ in range(4):
            before = frame
            frame, reward, over, _, _ = env.step(choice)
            total += float(reward)
            if over:
                break
        shown = [*shown[1:], cv2.resize(np.maximum(before, frame), (84, 84), interpolation=cv2.INTER_AREA)]
        yield np.stack(shown), total, over
        if over:
            break
    env.close()


@pytest.mark.parametrize("game", ["Pong", "Breakout"])
def test_observations_and_rewards_are_those_of_the_frames(game):
    """To the end of an episode; in Breakout five lives are lost, and it ends with the last."""
    env = make_env(f"atari/{game}")
    assert isinstance(env.spec.action, DiscreteActions)
    assert env.spec.obs[SINGLE] == Image(1, 84, 84, stack=4)
    count = env.spec.action.dim
    choices = np.random.default_rng(0).integers(count, size=400).tolist()
    expected = raw_steps(game, 7, choices)
    np.testing.assert_array_equal(env.reset(7)[SINGLE], next(expected)[0])
    total, ended, played = 0.0, False, 0
    for choice, (obs, reward, over) in zip(choices, expected, strict=False):
        step = env.step(np.eye(count, dtype=np.float32)[choice])
        np.testing.assert_array_equal(step.obs[SINGLE], obs)
        assert (step.reward, step.terminated, step.truncated) == (reward, over, False)
        total, ended, played = total + reward, ended or over, played + 1
    assert ended == (game == "Breakout")
    assert played > 100
    env.close()


def test_actions_stick_by_the_seed():
    env = make_env("atari/Pong")

    def play(seed: int) -> np.ndarray:
        env.reset(seed)
        rng = np.random.default_rng(1)
        return np.stack([env.step(np.eye(6, dtype=np.float32)[rng.integers(6)]).obs[SINGLE] for _ in range(40)])

    first = play(3)
    np.testing.assert_array_equal(play(3), first)
    assert not np.array_equal(play(2**32 - 1), first)
    env.close()


def test_an_episode_is_cut_after_the_most_frames(monkeypatch):
    monkeypatch.setattr(atari, "MOST_FRAMES", 40)
    env = make_env("atari/Pong")
    assert env.spec.episode_length == 10
    for seed in (0, 1):
        env.reset(seed)
        steps = [env.step(np.eye(6, dtype=np.float32)[0]) for _ in range(10)]
        assert [step.truncated for step in steps] == [False] * 9 + [True]
        assert not any(step.terminated for step in steps)
    env.close()


def test_an_evaluation_acts_at_random_now_and_then():
    spec = make_env("atari/Pong").spec
    assert spec.eval_epsilon == 0.001
    seeds = np.arange(200).reshape(2, 100)
    greedy = np.zeros((2, 100, 6), np.float32)
    greedy[..., 2] = 1

    def changed() -> np.ndarray:
        noise = EvaluationNoise(spec, seeds)
        return np.stack([(noise(greedy) != greedy).any(-1) for _ in range(200)])

    first = changed()
    np.testing.assert_array_equal(changed(), first)
    assert 10 <= first.sum() <= 70  # of 40,000 actions; a sixth of the random ones are the greedy ones
    other = make_env("gym/CartPole-v1").spec
    assert EvaluationNoise(other, seeds)(greedy) is greedy


def test_a_policy_of_a_game(tmp_path):
    policy, env = policy_of("atari/Pong", tmp_path), make_env("atari/Pong", render=True)
    assert env.reset(0)[SINGLE].dtype == np.uint8
    action = policy.act(env.reset(0)[SINGLE])
    assert action.shape == ()
    assert 0 <= int(action) < 6
    assert env.render((480, 480)).shape == (210, 160, 3)
    env.close()
