"""Small agents that learn fast enough to test, compiled once."""

import jax
import jax.numpy as jnp
import numpy as np

from dr_q import agent as drq
from dr_q import replay as rp
from dr_q.config import Config, preset

VECTOR = drq.TaskShape((5,), 2)
PIXELS = drq.TaskShape((9, 84, 84), 2, history=3)


def config(name: str = "dr.q", **changes) -> Config:
    sizes = {
        "batch_size": 16,
        "zs_dim": 16,
        "zsa_dim": 16,
        "za_dim": 8,
        "encoder_hidden": 24,
        "actor_hidden": 16,
        "critic_hidden": 16,
        "replay_capacity": 200,
    }
    return preset(name, **{**sizes, **changes})


def make_agent(config: Config, shape: drq.TaskShape, key) -> drq.Agent:
    return drq.init_agent(config, drq.init_networks(config, shape, key))


def random_transitions(shape: drq.TaskShape, length: int, seed: int) -> rp.Transition:
    rng = np.random.default_rng(seed)

    def frames() -> jax.Array:
        if shape.pixels:
            return jnp.asarray(rng.integers(0, 256, (length, *shape.frame_shape), np.uint8))
        return jnp.asarray(rng.normal(size=(length, *shape.frame_shape)), jnp.float32)

    return rp.Transition(
        obs=frames(),
        action=jnp.asarray(rng.uniform(-1, 1, (length, shape.action_dim)), jnp.float32),
        reward=jnp.asarray(rng.normal(size=length), jnp.float32),
        next_obs=frames(),
        terminated=jnp.asarray(rng.random(length) < 0.1),
        truncated=jnp.asarray(rng.random(length) < 0.1),
    )


@jax.jit
def fill(replay: rp.Replay, log: rp.Transition) -> rp.Replay:
    return jax.lax.scan(lambda state, t: (rp.add(state, t), None), replay, log)[0]


init = jax.jit(make_agent, static_argnums=(0, 1))
update_encoder = jax.jit(drq.update_encoder, static_argnums=0)
update_actor_critic = jax.jit(drq.update_actor_critic, static_argnums=0)
renew_targets = jax.jit(drq.renew_targets, static_argnums=0)


def differing(a, b) -> set[str]:
    """The top parts of two pytrees that are not the same to the bit."""
    found = set()
    for (path, x), y in zip(jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True):
        if not np.array_equal(np.asarray(x), np.asarray(y)):
            found.add(".".join(key.name for key in path[:2] if hasattr(key, "name")))
    return found
