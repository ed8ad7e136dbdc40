"""`vmap` over seeds is each seed alone."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dr_q import agent as drq
from dr_q import replay as rp
from dr_q.envs import Transitions
from dr_q.learner import Learner, LearnerSpec, SeedStates, packet_layout, root_keys, steps
from dr_q.learner.donation import DonatedState, DonatingStep, uses_of
from dr_q.spaces import SINGLE
from tests.agent import small

SEEDS = 3
CONFIG = small.config(target_period=4)


def log_of(seed: int) -> rp.Transition:
    return small.random_transitions(small.VECTOR, 260, seed)  # longer than the ring


def stack(trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def pick(tree, seed: int):
    return jax.tree.map(lambda leaf: leaf[seed], tree)


def assert_same(a, b):
    assert not small.differing(a, b)


@functools.cache
def alone() -> list[rp.Replay]:
    return [small.fill(rp.init_replay(CONFIG, small.VECTOR), log_of(seed)) for seed in range(SEEDS)]


@functools.cache
def together() -> rp.Replay:
    empty = stack([rp.init_replay(CONFIG, small.VECTOR)] * SEEDS)
    return jax.jit(jax.vmap(small.fill))(empty, stack([log_of(seed) for seed in range(SEEDS)]))


def test_replay_contents_are_the_same_to_the_bit():
    for seed in range(SEEDS):
        assert_same(pick(together(), seed), alone()[seed])
    cursors = {int(replay.storage.cursor) for replay in alone()}
    assert len(cursors) == SEEDS, "the seeds should end episodes at different times"


def test_drawn_indices_are_the_same():
    keys = jax.random.split(jax.random.key(7), SEEDS)
    batched = jax.jit(jax.vmap(lambda replay, key: rp.draw(replay, key, 4096)))(together(), keys)
    single = jax.jit(lambda replay, key: rp.draw(replay, key, 4096))
    for seed in range(SEEDS):
        np.testing.assert_array_equal(batched[seed], single(alone()[seed], keys[seed]))


def test_written_priorities_are_the_same_to_the_bit():
    slots = jax.random.randint(jax.random.key(1), (SEEDS, 64), 0, 200)
    values = 1 + jax.random.uniform(jax.random.key(2), (SEEDS, 64))
    batched = jax.jit(jax.vmap(rp.write_priority))(together(), slots, values)
    single = jax.jit(rp.write_priority)
    for seed in range(SEEDS):
        assert_same(pick(batched, seed), single(alone()[seed], slots[seed], values[seed]))


def three_updates(agent: drq.Agent, replay: rp.Replay, keys) -> drq.Agent:
    """Encoder and RL updates on batches fixed by given slots."""
    key_draw, key_noise = keys
    slots = rp.draw(replay, key_draw, CONFIG.batch_size)
    window = rp.sample_subtrajectory(replay.storage, slots, CONFIG.encoder_horizon)
    sample = rp.sample_n_step(replay.storage, slots, CONFIG.q_horizon)
    reward = jnp.sum(sample.reward, axis=0)
    batch = drq.CriticBatch(sample.obs, sample.action, reward, jnp.full_like(reward, 0.97), sample.next_obs)
    normal = jax.random.normal(key_noise, sample.action.shape)

    def step(agent, _):
        agent, _ = drq.encoder_step(CONFIG, agent, window, replay.storage.has_terminated)
        agent, _ = drq.actor_critic_step(CONFIG, agent, batch, normal)
        return agent, None

    return jax.lax.scan(step, agent, length=3)[0]


@functools.cache
def learned():
    keys = jax.random.split(jax.random.key(3), (SEEDS, 2))
    agents = [small.init(CONFIG, small.VECTOR, jax.random.key(seed)) for seed in range(SEEDS)]
    run = jax.jit(jax.vmap(three_updates))
    batched = run(stack(agents), together(), keys)
    again = run(stack(agents), together(), keys)
    return agents, keys, batched, again


def test_weights_after_three_updates_are_the_same_to_float_tolerance():
    agents, keys, batched, _ = learned()
    single = jax.jit(three_updates)
    for seed in range(SEEDS):
        one = single(agents[seed], alone()[seed], keys[seed])
        for mine, other in zip(jax.tree.leaves(pick(batched, seed).online), jax.tree.leaves(one.online), strict=True):
            np.testing.assert_allclose(mine, other, rtol=0, atol=1e-5)


def test_the_same_seeds_twice_are_the_same_to_the_bit():
    _, _, batched, again = learned()
    assert_same(batched, again)
    assert small.differing(pick(batched, 0), pick(batched, 1))


SPEC = LearnerSpec(CONFIG, small.VECTOR, CONFIG.replay_capacity)
ROOTS = root_keys([0, 1, 2])
NUMBER = jnp.zeros(SEEDS, jnp.int32)


def fresh_states() -> SeedStates:
    return SeedStates(steps.init_agents(SPEC, ROOTS), jax.tree.map(jnp.copy, together()))


def test_the_online_networks_act_and_are_evaluated_not_the_targets():
    config = small.config(target_period=4, exploration_noise=0.0)
    learner = Learner(LearnerSpec(config, small.VECTOR, config.replay_capacity), range(SEEDS))
    rng = np.random.default_rng(0)
    first, nexts = rng.normal(size=(2, SEEDS, *small.VECTOR.obs[SINGLE].shape)).astype(np.float32)
    learner.begin({SINGLE: first})
    assert learner.pending is not None
    agents = learner.states.agents
    others = jax.tree.map(lambda x: -x, agents.target)
    learner.restore(
        learner.states._replace(agents=eqx.tree_at(lambda agents: agents.target, agents, others)), learner.pending
    )
    online = learner.states.agents.online

    def chosen(networks: drq.Networks) -> np.ndarray:
        one = jax.vmap(lambda f, actor, obs: actor(f(obs)))
        return np.asarray(one(networks.encoder.state, networks.actor, {SINGLE: jnp.asarray(nexts[:, None])}))[:, 0]

    expected = chosen(online)
    obs = {SINGLE: nexts}
    outcome = Transitions.of(packet_layout(learner.spec), obs, obs, np.zeros((SEEDS, 3), np.float32))
    learner.act(outcome)
    np.testing.assert_allclose(learner.actions(), expected, atol=1e-5)
    np.testing.assert_allclose(learner.greedy(learner.policies(), {SINGLE: nexts[:, None]})[:, 0], expected, atol=1e-5)
    assert not np.allclose(chosen(others), expected, atol=1e-2)


def test_compiled_steps_donate_what_they_change_and_nothing_else():
    """What a step returns unchanged must not be donated: jax 0.11 on CUDA was seen to write over it."""
    states = fresh_states()
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in jax.tree.leaves_with_path(states)]

    def shorten(name: str) -> str:
        part = name.split(".")
        return ".".join(part[: 3 if part[1] in ("online", "storage", "sampling") else 2])

    def uses(step) -> tuple[set[str], set[str]]:
        found = uses_of(functools.partial(step, SPEC), states, ROOTS, NUMBER)
        return {shorten(names[i]) for i in found.changes}, {shorten(names[i]) for i in found.reads}

    changes, reads = uses(steps.sync_targets_and_train_encoder)
    assert changes == {"agents.online.encoder", "agents.encoder_optimiser", "agents.target"}
    assert {"agents.online.actor", "agents.online.critic", "replays.storage.obs", "replays.sampling.row_sums"} <= reads
    assert not {"agents.actor_optimiser", "agents.critic_optimiser", "replays.sampling.max_priority"} & reads
    changes, reads = uses(steps.update)
    assert changes == {
        "agents.online.actor",
        "agents.online.critic",
        "agents.actor_optimiser",
        "agents.critic_optimiser",
        "replays.sampling.priority",
        "replays.sampling.row_sums",
        "replays.sampling.group_sums",
        "replays.sampling.max_priority",
        "replays.empty_draws",
    }
    assert {"agents.online.encoder", "agents.target", "replays.storage.obs", "replays.storage.stamp"} <= reads
    assert "agents.encoder_optimiser" not in reads


def test_what_is_small_is_kept_in_one_array_bit_for_bit():
    states = fresh_states()
    donated = DonatedState(states, apart=states.replays)
    kept = {id(x) for x in donated.large.values()}
    assert {id(x) for x in jax.tree.leaves(states.replays) if x.ndim > 1} <= kept
    assert id(states.replays.storage.clock) not in kept
    assert id(states.agents.online.actor.mlp.hidden1.bias) not in kept
    odd = {"bits": jnp.asarray([[0x7FC00001, 1], [-1, 0]], jnp.int32), "nan": jnp.full((2, 3), jnp.nan)}
    odd |= {"flags": jnp.asarray([True, False]), "zero": jnp.asarray([-0.0, 0.0])}
    assert {k: np.asarray(v).tobytes() for k, v in odd.items()} == {
        k: np.asarray(v).tobytes() for k, v in DonatedState(odd).tree.items()
    }


def test_donating_steps_leave_the_rest_as_it_was():
    donated = DonatedState(fresh_states())

    def parts(agents: drq.Agent, names) -> list:
        return [getattr(agents, name, None) or getattr(agents.online, name) for name in names]

    for step, untouched in [
        (steps.sync_targets_and_train_encoder, ("actor", "critic", "actor_optimiser", "critic_optimiser")),
        (steps.update, ("encoder", "encoder_optimiser", "target")),
    ]:
        before = jax.tree.map(np.array, donated.tree)
        DonatingStep(functools.partial(step, SPEC))(donated, ROOTS, NUMBER)
        assert_same(parts(before.agents, untouched), parts(donated.tree.agents, untouched))
        for name in ("obs", "action", "reward", "stamp", "valid"):
            assert_same(getattr(before.replays.storage, name), getattr(donated.tree.replays.storage, name))
        assert small.differing(before.agents, donated.tree.agents)
