"""Environments whose values and best actions are known: Q and policy must converge to them."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dr_q
from dr_q import agent as drq
from dr_q.spaces import SINGLE
from tests.envs import toys
from tests.training.test_resume import load_last

pytestmark = pytest.mark.slow

DISCOUNT = 0.9
STEPS = 1_500
SETTINGS: dict[str, Any] = {
    "batch_size": 64,
    "zs_dim": 32,
    "zsa_dim": 32,
    "za_dim": 16,
    "encoder_hidden": 32,
    "actor_hidden": 32,
    "critic_hidden": 32,
    "target_period": 25,
    "exploration_steps": 200,
    "discount": DISCOUNT,
    "encoder_learning_rate": 1e-3,
    "actor_learning_rate": 1e-3,
    "critic_learning_rate": 1e-3,
    "exploration_noise": 0.3,
}


def learned(toy, folder: Path) -> drq.Networks:
    dr_q.train(
        toy, steps=STEPS, out=folder, eval_every=STEPS, eval_episodes=1, checkpoint_every=STEPS, quiet=True, **SETTINGS
    )
    return jax.tree.map(lambda x: x[0], load_last(folder, toy).states.agents.online)


def values(networks: drq.Networks, steps: list[int]) -> np.ndarray:
    """Q of the policy's own action at each step of the episode, the mean of both critics."""
    obs = {SINGLE: jnp.eye(8)[jnp.asarray(steps)]}
    z_s = networks.encoder.z_s(obs)
    return np.asarray(jnp.mean(networks.critic(networks.encoder.z_sa(z_s, networks.actor(z_s))), axis=1))


@pytest.mark.parametrize(
    ("toy", "at", "expected"),
    [
        (toys.OneStep, [0], [1.0]),
        (toys.TwoSteps, [0, 1], [DISCOUNT, 1.0]),
        (toys.Chain, [0, 2, 4, 5], [DISCOUNT**5, DISCOUNT**3, DISCOUNT, 1.0]),
        (toys.Forever, [0], [1 / (1 - DISCOUNT)]),
    ],
)
def test_q_converges_to_the_known_value(toy, at, expected, tmp_path):
    np.testing.assert_allclose(values(learned(toy, tmp_path / "run"), at), expected, atol=0.08, rtol=0.05)


def test_policy_converges_to_the_target_of_a_bandit(tmp_path):
    networks = learned(toys.Bandit, tmp_path / "run")
    action = float(drq.greedy_action(networks, {SINGLE: jnp.eye(8)[0]})[0])
    assert action == pytest.approx(0.4, abs=0.08)
    assert float(values(networks, [0])[0]) == pytest.approx(0.0, abs=0.05)
