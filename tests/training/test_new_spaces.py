"""Runs of discrete actions and of mixed observations: known answers, and exact resumes after kill -9."""

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import dr_q
from dr_q.cli import main
from dr_q.envs import make_env
from dr_q.policies.watch import evaluate_policy, record_video
from dr_q.spaces import SINGLE
from tests.envs import mixed_toys
from tests.training import tiny
from tests.training.test_probes import DISCOUNT, SETTINGS, learned
from tests.training.test_resume import assert_same, unbroken, unbroken_and_killed

MIXED = {"batch_size": 4, "eval_every": 80, "eval_episodes": 1}
"""Convolutions are slow."""


def actions_and_values(networks, steps: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The policy's action at each step of the episode, one-hot, and its Q, the mean of both critics."""
    z_s = networks.encoder.z_s({SINGLE: jnp.eye(8)[jnp.asarray(steps)]})
    action = networks.actor(z_s)
    return np.asarray(action), np.asarray(jnp.mean(networks.critic(networks.encoder.z_sa(z_s, action)), axis=1))


@pytest.mark.slow
def test_a_discrete_bandit(tmp_path):
    action, value = actions_and_values(learned(mixed_toys.DiscreteBandit, tmp_path / "run"), [0])
    assert action.argmax(1).tolist() == [1]
    np.testing.assert_allclose(value, [1.0], atol=0.08)


@pytest.mark.slow
def test_a_discrete_chain_with_termination(tmp_path):
    action, value = actions_and_values(learned(mixed_toys.DiscreteChain, tmp_path / "run"), [0, 2, 4])
    assert action.argmax(1).tolist() == [1, 1, 1]
    np.testing.assert_allclose(value, [DISCOUNT**4, DISCOUNT**2, 1.0], atol=0.1)


@pytest.mark.slow
def test_a_product_of_choices(tmp_path):
    action, value = actions_and_values(learned(mixed_toys.TwoChoices, tmp_path / "run"), [0])
    assert action[0].tolist() == [0, 0, 1, 1, 0]
    np.testing.assert_allclose(value, [1.0], atol=0.1)


POSITIONS = (-0.8, -0.3, 0.0, 0.3, 0.8)
GOALS = (-0.5, 0.5)
WAYS = [[int(goal > x) for x in POSITIONS] for goal in GOALS]
"""The action towards each goal from each position."""


def test_neither_part_alone_tells_the_way():
    """What the next test asks for is no function of the image, nor one of the position."""
    assert all(len(set(row)) == 2 for row in WAYS), "the image alone gives one action at every position"
    assert any(len(set(column)) == 2 for column in zip(*WAYS, strict=True)), "the position alone gives one for each"


@pytest.mark.slow
def test_the_image_tells_the_goal_and_the_vector_the_position(tmp_path):
    steps, env = 1_200, mixed_toys.ImageGoalSigns()
    schedule = {"eval_every": steps, "eval_episodes": 1, "checkpoint_every": steps, "quiet": True, "in_process": True}
    changes = {"batch_size": 32, "exploration_steps": 300, "pixel_shift": 0}  # the goal is where the image is white
    dr_q.train(mixed_toys.ImageGoalSigns, steps=steps, out=tmp_path / "run", **schedule, **{**SETTINGS, **changes})
    policy = dr_q.load(tmp_path / "run")

    def action(goal: float, x: float) -> int:
        env.goal, env.x = goal, x
        return int(policy.episode().act(env.observe()))

    assert [[action(goal, x) for x in POSITIONS] for goal in GOALS] == WAYS


class LargeImages(mixed_toys.Toy):
    """The largest images, with the most channels."""

    observation_space = spaces.Box(0, 255, (256, 256, 4), np.uint8)
    action_space = spaces.Discrete(2)

    def observe(self):
        return np.full((256, 256, 4), 20 * self.t, np.uint8)

    def outcome(self, action):
        return float(action), self.t == 5, False


@pytest.mark.slow
def test_images_of_256_pixels_and_four_channels_are_learnt_from(tmp_path):
    sizes = {**tiny.SIZES, "batch_size": 2, "exploration_steps": 14, "target_period": 2, "replay_capacity": 30}
    schedule = {"eval_every": 16, "eval_episodes": 1, "checkpoint_every": 16, "quiet": True}
    found = dr_q.train(LargeImages, steps=16, out=tmp_path / "run", **schedule, **sizes)
    assert found.status == "finished"
    policy = dr_q.load(tmp_path / "run")
    assert policy.obs_shape == (12, 256, 256)
    assert policy.episode().act(LargeImages().reset(seed=0)[0]) in (0, 1)


@pytest.mark.parametrize("more", [{}, {"num_envs": 2}], ids=["one", "lanes"])
def test_environments_that_look_actions_up_can_be_trained(more, tmp_path):
    """FrozenLake, Taxi and CliffWalking have a dict of what follows each action."""
    settings = {**tiny.RUN, **tiny.SIZES, **more, "eval_episodes": 1, "in_process": True}
    found = dr_q.train("gym/FrozenLake-v1", steps=50, out=tmp_path / "run", **settings)
    assert found.status == "finished"


@pytest.mark.parametrize("task", ["gym/FrozenLake-v1", "gym/Taxi-v4", "gym/CliffWalking-v1"])
def test_check_steps_an_environment_of_choices(task, capsys):
    """Taxi has arrays in its info, which two environments are not compared by."""
    assert main(["check", task, "--steps", "20"]) == 0
    assert f"{task} can be trained on" in capsys.readouterr().out


def test_a_run_in_two_parts_is_the_unbroken_one(tmp_path):
    toy, more = mixed_toys.DiscreteChain, {"seeds": 2, "normalise_observations": "all"}
    whole = unbroken(toy, tmp_path / "whole", **more)
    broken = tmp_path / "broken"
    dr_q.train(toy, steps=80, out=broken, **{**tiny.RUN, **tiny.SIZES, **more})
    dr_q.train(toy, resume=broken, steps=tiny.STEPS, quiet=True)
    assert_same(whole, broken)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "more"),
    [
        ("gym/CartPole-v1", {"seeds": 2, "normalise_observations": "all"}),
        ("tests.envs.mixed_toys:drq-image-goal-v0", {"batch_size": 4, "eval_episodes": 1}),
    ],
    ids=["discrete", "mixed"],
)
def test_kill_9_between_checkpoints_loses_nothing(task, more, tmp_path):
    arguments = ["train", task, *tiny.flags(checkpoint_every=50, **more)]
    whole, broken = unbroken_and_killed(arguments, tmp_path)
    assert main(["train", "--resume", str(broken)]) == 0
    assert_same(whole, broken)


def test_a_mixed_run_is_evaluated_and_filmed(tmp_path):
    task, run = "tests.envs.mixed_toys:drq-image-goal-v0", tmp_path / "run"
    settings = {**tiny.RUN, **tiny.SIZES, **MIXED, "exploration_steps": 40, "target_period": 2}
    dr_q.train(task, steps=46, out=run, **{**settings, "eval_every": 46})
    policy, played = evaluate_policy(run, None, 3)
    assert played.returns.shape == (3,)
    film = record_video(run, tmp_path / "film.mp4", None)
    assert film.agent_steps == mixed_toys.ImageGoal.LENGTH
    assert policy.spaces == make_env(task).spec.spaces
