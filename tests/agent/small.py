"""Small agents that learn fast enough to test, compiled once."""

import jax
import jax.numpy as jnp
import numpy as np

from dr_q import agent as drq
from dr_q import replay as rp
from dr_q.config import Config, preset
from dr_q.spaces import ContinuousActions, Image, ObsSpec, Spaces

ACTIONS = ContinuousActions((-1.0, -1.0), (1.0, 1.0))
VECTOR = Spaces(ObsSpec.vector(5), ACTIONS)
PIXELS = Spaces(ObsSpec.image(3, 84, 84, stack=3), ACTIONS)


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


def make_agent(config: Config, spaces: Spaces, key) -> drq.Agent:
    return drq.init_agent(config, drq.init_networks(config, spaces, key))


def random_transitions(spaces: Spaces, length: int, seed: int) -> rp.Transition:
    rng = np.random.default_rng(seed)

    def frames() -> dict[str, jax.Array]:
        found = {}
        for name, part in spaces.obs.parts:
            size = (length, *part.frame_shape)
            is_image = isinstance(part, Image)
            found[name] = jnp.asarray(
                rng.integers(0, 256, size, np.uint8) if is_image else rng.normal(size=size), part.dtype
            )
        return found

    return rp.Transition(
        obs=frames(),
        action=jnp.asarray(rng.uniform(-1, 1, (length, spaces.action.dim)), jnp.float32),
        reward=jnp.asarray(rng.normal(size=length), jnp.float32),
        next_obs=frames(),
        terminated=jnp.asarray(rng.random(length) < 0.1),
        truncated=jnp.asarray(rng.random(length) < 0.1),
    )


@jax.jit
def fill(replay: rp.Replay, log: rp.Transition) -> rp.Replay:
    return jax.lax.scan(lambda state, t: (rp.add(state, t), None), replay, log)[0]


init = jax.jit(make_agent, static_argnums=(0, 1))


def _update_encoder(config, agent, replay, key):
    """One encoder update on a fresh batch."""
    key_draw, key_shift = jax.random.split(key)
    draw = drq.EncoderDraws(rp.draw(replay, key_draw, config.batch_size), key_shift)
    return drq.learn_encoder(config, agent, replay, draw)


update_encoder = jax.jit(_update_encoder, static_argnums=0)
update_actor_critic = jax.jit(drq.update_actor_critic, static_argnums=0)
sync_targets = jax.jit(drq.sync_targets, static_argnums=0)


def differing(a, b) -> set[str]:
    """The top parts of two pytrees that are not the same to the bit."""
    found = set()
    for (path, x), y in zip(jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True):
        if not np.array_equal(np.asarray(x), np.asarray(y)):
            found.add(".".join(key.name for key in path[:2] if hasattr(key, "name")))
    return found
