"""What an update changes, and what it must leave alone."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dr_q import agent as drq
from dr_q import replay as rp
from dr_q.agent import terms
from dr_q.agent.rollout import roll_out
from dr_q.config import PRESETS
from dr_q.equations import infonce
from dr_q.replay.sampling.faded_lap import FadedLap
from dr_q.spaces import SINGLE
from tests.agent import small


@pytest.fixture(scope="module")
def replay() -> rp.Replay:
    empty = rp.init_replay(small.config(), small.VECTOR)
    return small.fill(empty, small.random_transitions(small.VECTOR, 150, seed=0))


@pytest.fixture(scope="module")
def agent() -> drq.Agent:
    return small.init(small.config(), small.VECTOR, jax.random.key(0))


def test_encoder_update_changes_the_encoder_alone(agent, replay):
    new, metrics = small.update_encoder(small.config(), agent, replay, jax.random.key(1))
    changed = small.differing(agent, new)
    assert {part.split(".")[0] for part in changed} == {"online", "encoder_optimiser"}
    assert "online.encoder" in changed
    assert "online.actor" not in changed
    assert "online.critic" not in changed
    assert float(metrics.loss) > 0


def test_rl_update_never_changes_the_encoder(agent, replay):
    new, _, _ = small.update_actor_critic(small.config(), agent, replay, jax.random.key(1))
    changed = small.differing(agent, new)
    assert {"online.actor", "online.critic"} <= changed
    assert "online.encoder" not in changed
    assert not any(part.startswith("target") for part in changed)


def test_rl_update_writes_the_priorities_of_what_it_drew(agent, replay):
    _, new, metrics = small.update_actor_critic(small.config(), agent, replay, jax.random.key(1))
    changed = small.differing(replay, new)
    assert {part.split(".")[0] for part in changed} <= {"sampling"}
    key_draw, _, _ = jax.random.split(jax.random.key(1), 3)
    slots = np.asarray(rp.draw(replay, key_draw, small.config().batch_size))
    written = np.asarray(new.sampling.priority).reshape(-1)
    assert isinstance(replay.sampler, FadedLap)
    priority = np.asarray(jax.jit(replay.sampler.priority_of)(metrics.td_error))
    for slot in set(slots):
        np.testing.assert_allclose(written[slot], priority[slots == slot].max(), rtol=1e-6)
    np.testing.assert_allclose(new.sampling.max_priority, max(1.0, priority.max()), rtol=1e-6)


def test_weight_decay_reaches_every_parameter_biases_included(agent):
    """With no gradient, a step scales each parameter by 1 - lr * decay."""
    config = small.config()
    ones = jax.tree.map(jnp.ones_like, agent.online.encoder)
    agent = dataclasses.replace(agent, online=dataclasses.replace(agent.online, encoder=ones))
    still = dataclasses.replace(config, dynamics_weight=0.0, reward_weight=0.0, infonce_weight=0.0)
    batch = rp.Subtrajectory({SINGLE: jnp.ones((6, 4, 5))}, jnp.ones((5, 4, 2)), jnp.ones((5, 4)), jnp.ones((5, 4)))
    step = jax.jit(drq.encoder_step, static_argnums=0)
    new, _ = step(still, agent, batch, jnp.asarray(False))
    for leaf in jax.tree.leaves(new.online.encoder):
        np.testing.assert_allclose(leaf, 1 - 3e-4 * 0.01, rtol=1e-7)


def test_d1_dead_samples_lose_their_own_row_only():
    """The InfoNCE of a dead step is left out for that sample, and counts fully for the others."""
    config = small.config(encoder_horizon=2)
    agent = small.init(config, small.VECTOR, jax.random.key(0))
    rng = np.random.default_rng(0)
    obs = jnp.asarray(rng.normal(size=(3, 4, 5)), jnp.float32)
    action = jnp.asarray(rng.uniform(-1, 1, (2, 4, 2)), jnp.float32)
    not_done = jnp.ones((2, 4)).at[0, 1].set(0.0)  # sample 1 dies in step 0: its step 1 is dead

    batch = rp.Subtrajectory({SINGLE: obs}, action, jnp.zeros((2, 4)), not_done)
    encoder, target = agent.online.encoder, agent.target.encoder

    @jax.jit
    def infonce_term(batch):
        return drq.encoder_terms(config, drq.predict(encoder, target, batch, jnp.asarray(True)))["infonce"]

    some_dead = infonce_term(batch)
    all_alive = infonce_term(batch._replace(not_done=jnp.ones((2, 4))))

    @jax.jit
    def rows(encoder, target):
        z_s, losses = encoder.z_s({SINGLE: obs[0]}), []
        for t in range(2):
            z_s = encoder.predict(encoder.z_sa(z_s, action[t])).z_s
            losses.append(infonce(z_s, target.z_s({SINGLE: obs[t + 1]}), config.infonce_temperature))
        return losses

    first, second = (np.asarray(row) for row in rows(encoder, target))
    np.testing.assert_allclose(all_alive, (first.sum() + second.sum()) / 4, rtol=1e-5)
    np.testing.assert_allclose(some_dead, (first.sum() + second.sum() - second[1]) / 4, rtol=1e-5)


def test_targets_are_copied_and_only_mrq_scales_rewards(agent, replay):
    moved, _ = small.update_encoder(small.config(), agent, replay, jax.random.key(1))
    synced = small.sync_targets(small.config(), moved, replay)
    assert not small.differing(synced.online, synced.target)
    assert float(synced.reward_scale) == float(synced.target_reward_scale) == 1.0
    mrq = small.config("mr.q")
    once = small.sync_targets(mrq, agent, replay)
    assert float(once.target_reward_scale) == 1.0
    assert float(once.reward_scale) == pytest.approx(float(rp.mean_abs_reward(replay.storage)))
    twice = small.sync_targets(mrq, once, replay)
    assert float(twice.target_reward_scale) == float(once.reward_scale)


@pytest.mark.parametrize(
    "changes",
    [
        {"target_period": 3},
        {"target_period": 7, "encoder_updates": 3},
        {"target_period": 3, "encoder_updates": 9},
    ],
)
def test_a_target_period_is_a_copy_and_then_the_encoder_updates_one_by_one(agent, replay, changes):
    config = small.config(**changes)
    key = jax.random.key(5)
    synced, metrics = jax.jit(drq.sync_targets_and_train_encoder, static_argnums=0)(config, agent, replay, key)
    expected = small.sync_targets(config, agent, replay)
    losses = []
    for key_update in jax.random.split(key, 3):
        expected, seen = small.update_encoder(config, expected, replay, key_update)
        losses.append(float(seen.loss))
    assert not small.differing(synced.target, expected.target)
    for mine, other in zip(jax.tree.leaves(synced.online), jax.tree.leaves(expected.online), strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-6)
    assert float(metrics.loss) == pytest.approx(np.mean(losses), rel=1e-5)


def test_done_flag_is_trained_only_once_something_terminated():
    config = small.config("mr.q", encoder_horizon=2)
    agent = small.init(config, small.VECTOR, jax.random.key(0))
    batch = rp.Subtrajectory({SINGLE: jnp.ones((3, 4, 5))}, jnp.ones((2, 4, 2)), jnp.ones((2, 4)), jnp.ones((2, 4)))
    encoders = agent.online.encoder, agent.target.encoder
    without, with_done = (drq.predict(*encoders, batch, jnp.asarray(flag)) for flag in (False, True))
    found = drq.encoder_terms(config, with_done)
    gap = float(drq.encoder_loss(config, with_done, found)) - float(drq.encoder_loss(config, without, found))
    assert gap == pytest.approx(0.1 * float(found["done"]), rel=1e-4)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("spaces", [small.VECTOR, small.PIXELS], ids=["vector", "pixels"])
def test_every_preset_updates(name, spaces):
    """Traced, not run: every preset's update fits together for vectors and pixels."""
    config = small.config(name)

    def learn(key):
        agent = small.make_agent(config, spaces, key)
        replay = rp.init_replay(config, spaces)
        agent = drq.sync_targets(config, agent, replay)
        agent, _ = small.update_encoder(config, agent, replay, key)
        agent, replay, metrics = drq.update_actor_critic(config, agent, replay, key)
        return agent, replay, metrics

    agent, replay, metrics = jax.eval_shape(learn, jax.random.key(0))
    assert metrics.td_error.shape == (16,)
    assert replay.storage.obs[SINGLE].shape[0] == 200
    assert agent.reward_scale.shape == ()


def test_pixels_learn_from_frames_stored_once():
    config = small.config(replay_capacity=40, batch_size=4)
    log = small.random_transitions(small.PIXELS, 30, seed=0)
    log = log._replace(terminated=jnp.zeros(30, bool), truncated=jnp.zeros(30, bool))
    frames = np.asarray(log.obs[SINGLE])
    replay = small.fill(rp.init_replay(config, small.PIXELS), log)
    assert replay.storage.obs[SINGLE].shape == (40, 3, 84, 84)
    window = rp.sample_subtrajectory(replay.storage, jnp.asarray([10]), 5)
    np.testing.assert_array_equal(window.obs[SINGLE][0, 0], np.concatenate(frames[8:11]))
    first = rp.sample_subtrajectory(replay.storage, jnp.asarray([0]), 5)
    np.testing.assert_array_equal(first.obs[SINGLE][0, 0], np.concatenate([frames[0]] * 3))
    np.testing.assert_array_equal(first.obs[SINGLE][1, 0], np.concatenate(frames[[0, 0, 1]]))
    agent = small.init(config, small.PIXELS, jax.random.key(0))
    agent, metrics = small.update_encoder(config, agent, replay, jax.random.key(1))
    agent, replay, rl = small.update_actor_critic(config, agent, replay, jax.random.key(2))
    assert np.isfinite(float(metrics.loss))
    assert np.isfinite(float(rl.critic_loss))


def test_actions_stay_in_bounds_and_noise_is_reproducible(agent):
    obs, config = {SINGLE: jnp.ones(5) * 3}, small.config()
    greedy = drq.greedy_action(agent.online, obs)
    noisy = drq.explore(config, agent.online, obs, jax.random.key(0))
    np.testing.assert_array_equal(noisy, drq.explore(config, agent.online, obs, jax.random.key(0)))
    assert (np.abs(np.asarray(noisy)) <= 1).all()
    assert not np.array_equal(greedy, noisy)
    draws = np.asarray(
        jax.vmap(lambda k: drq.random_action(small.ACTIONS, k))(jax.random.split(jax.random.key(0), 500))
    )
    assert draws.min() < -0.95
    assert draws.max() > 0.95
    assert (np.abs(draws) <= 1).all()


def test_the_roll_outs_gradient_is_that_of_automatic_differentiation():
    """Weights' gradients are summed over the steps in one product each, by hand; small.config's width is not padded."""
    config = small.config(encoder_hidden=70)  # padded to 80
    encoder = drq.init_networks(config, small.VECTOR, jax.random.key(0)).encoder
    z_s = jax.random.normal(jax.random.key(1), (6, config.zs_dim))
    action = jax.random.uniform(jax.random.key(2), (4, 6, small.VECTOR.action.dim))
    weight = jax.random.normal(jax.random.key(3), (4, 6, config.zs_dim))

    def by_hand(encoder, z_s):
        rollout = roll_out(encoder, z_s, action)
        return jnp.sum(weight * rollout.pred_z_s) + jnp.sum(jnp.sin(rollout.z_sa))

    def automatic(encoder, z_s):
        total = jnp.zeros(())
        for t in range(4):
            z_sa = encoder.z_sa(z_s, action[t])
            z_s = encoder.next_z_s(z_sa)
            total += jnp.sum(weight[t] * z_s) + jnp.sum(jnp.sin(z_sa))
        return total

    value, gradient = jax.value_and_grad(by_hand, argnums=(0, 1))(encoder, z_s)
    expected_value, expected = jax.value_and_grad(automatic, argnums=(0, 1))(encoder, z_s)
    np.testing.assert_allclose(value, expected_value, rtol=1e-5)
    for (path, ours), theirs in zip(jax.tree.leaves_with_path(gradient), jax.tree.leaves(expected), strict=True):
        scale = max(np.abs(theirs).max(), 1e-6)
        np.testing.assert_allclose(ours, theirs, atol=2e-5 * scale, err_msg=jax.tree_util.keystr(path))
    of_hidden = np.asarray(gradient[0].state_action.hidden2.weight)
    assert of_hidden[:70, :70].any()
    assert not of_hidden[70:].any()
    assert not of_hidden[:, 70:].any()


def test_logged_columns_are_what_their_names_say(agent, replay):
    config, key = small.config(), jax.random.key(1)
    draw = drq.draw_for_critic(config, replay, key)
    _, after, seen = small.update_actor_critic(config, agent, replay, key)
    columns = dict(zip(drq.metric_names(config), np.asarray(drq.update_metrics(after, draw.slots, seen)), strict=True))
    assert isinstance(after.sampler, FadedLap)
    priority = np.maximum(np.asarray(seen.td_error), config.min_priority) ** config.priority_exponent
    age = np.asarray(after.storage.age(draw.slots))
    expected = {
        "critic_loss": seen.critic_loss,
        "actor_loss": seen.actor_loss,
        "q_mean": np.mean(seen.q),
        "q_target_mean": np.mean(seen.q_target),
        "td_error_mean": np.mean(seen.td_error),
        "priority_mean": priority.mean(),
        "priority_max": after.sampling.max_priority,
        "floored_share": 0.0,
        "age_mean": age.mean(),
        "fade_mean": np.maximum(config.fade_floor, (1 - config.fade_decay) ** age).mean(),
    }
    assert columns.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(columns[name], value, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("shape", [(), (4,), (2, 1)])
def test_a_term_of_another_shape_is_named(shape, monkeypatch):
    """A scalar, or a value for each sample, would be counted once for each step."""
    config = small.config(encoder_horizon=2)
    agent = small.init(config, small.VECTOR, jax.random.key(0))
    batch = rp.Subtrajectory({SINGLE: jnp.zeros((3, 4, 5))}, jnp.zeros((2, 4, 2)), jnp.zeros((2, 4)), jnp.ones((2, 4)))
    prediction = drq.predict(agent.online.encoder, agent.target.encoder, batch, jnp.asarray(False))
    mine = terms.Term("mine", weight="infonce_weight", loss=lambda *_: jnp.zeros(shape))
    monkeypatch.setattr(terms, "TERMS", (mine,))
    with pytest.raises(
        ValueError, match=r"the encoder term mine returned shape .*, expected \(2, 4\): a value for each"
    ):
        drq.encoder_terms(config, prediction)
