"""Our replay against the authors': masks, cursor, probabilities and windows after a recorded log of additions."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dr_q import replay as rp
from dr_q.config import Config
from dr_q.equations import alive_steps
from dr_q.spaces import SINGLE, ObsSpec, Vector
from tests import golden_data
from tests.replay.logs import set_priority

FILES = golden_data.files("replay_*")


def batch_first(ours) -> np.ndarray:
    """[H, B, ...] as ours, [B, H, ...] as recorded."""
    return np.swapaxes(np.asarray(ours), 0, 1)


def moments(arrays) -> list[int]:
    return sorted({int(name.split("/")[0][2:]) for name in arrays if name.startswith("at")})


CASES = [(path, step) for path in FILES for step in moments(golden_data.load(path))]


@functools.cache
def replayed(path: Path) -> tuple[dict[str, np.ndarray], dict[int, rp.Replay]]:
    """The recorded arrays, and our replay at each recorded moment."""
    arrays = golden_data.load(path)
    config = Config()
    history, obs_dim = int(arrays["meta/history"]), int(arrays["meta/obs_dim"])
    spec = rp.StorageSpec(
        capacity=int(arrays["meta/capacity"]),
        obs=ObsSpec.single(Vector(obs_dim, stack=history)),
        action_dim=int(arrays["meta/action_dim"]),
        horizon=int(arrays["meta/horizon"]),
    )
    add, write = golden_data.compiled(rp.add), golden_data.compiled(set_priority)
    replay, found = rp.init(spec, rp.make_sampler(config)), {}
    for t in range(len(arrays["log/reward"])):
        transition = rp.Transition(
            obs={SINGLE: jnp.asarray(arrays["log/state"][t][-obs_dim:])},
            action=jnp.asarray(arrays["log/action"][t]),
            reward=jnp.asarray(arrays["log/reward"][t], jnp.float32),
            next_obs={SINGLE: jnp.asarray(arrays["log/next_state"][t][-obs_dim:])},
            terminated=jnp.asarray(arrays["log/terminated"][t]),
            truncated=jnp.asarray(arrays["log/truncated"][t]),
        )
        replay = add(replay, transition)
        if f"prio/{t}/slot" in arrays:
            slots = jnp.asarray(arrays[f"prio/{t}/slot"], jnp.int32)
            replay = write(replay, slots, jnp.asarray(arrays[f"prio/{t}/value"]))
        if t in moments(arrays):
            found[t] = replay
    return arrays, found


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].stem}-at{case[1]}")
def moment(request) -> tuple[dict[str, np.ndarray], rp.Replay, int]:
    path, step = request.param
    arrays, found = replayed(path)
    return golden_data.under(arrays, f"at{step}"), found[step], int(arrays["meta/horizon"])


def test_golden_mask_and_cursor(moment):
    theirs, replay, _ = moment
    valid = np.asarray(replay.storage.valid).reshape(-1)
    np.testing.assert_array_equal(valid[: replay.spec.capacity], theirs["mask"] == 1)
    assert not valid[replay.spec.capacity :].any()
    assert int(replay.storage.cursor) == theirs["cursor"]
    # Theirs counts an episode's final observation only once the next episode's first step is there.
    size = int(replay.storage.size)
    ends_final = float(replay.sampling.priority.reshape(-1)[size - 1]) == 0
    assert theirs["size"] in (size, size - ends_final)
    assert float(replay.sampling.max_priority) == theirs["max_priority"]


def test_golden_probability(moment):
    """Theirs multiplies float32 weights by 0.9999 at every addition: up to half a last digit is lost each time."""
    theirs, replay, _ = moment
    lost = float(np.finfo(np.float32).eps) / 2 * int(replay.storage.clock)
    np.testing.assert_allclose(rp.probability(replay), theirs["probability"], rtol=max(1e-5, lost), atol=0)


def test_golden_draws_are_valid(moment):
    theirs, replay, _ = moment
    drawn = np.asarray(rp.draw(replay, jax.random.key(0), 4096))
    slots = theirs["slots"]
    assert set(drawn) <= set(slots)
    # A slot whose share is less than this may well not be among so many draws.
    likely = slots[theirs["probability"][slots] > 20 / len(drawn)]
    assert set(drawn) >= set(likely)


def test_golden_subtrajectories(moment):
    theirs, replay, horizon = moment
    batch = rp.sample_subtrajectory(replay.storage, jnp.asarray(theirs["slots"], jnp.int32), horizon)
    alive = theirs["sub_alive"] == 1
    np.testing.assert_array_equal(batch_first(alive_steps(batch.not_done)) == 1, alive)
    for ours, name in [
        (batch.obs[SINGLE][:-1], "sub_state"),
        (batch.obs[SINGLE][1:], "sub_next_state"),
        (batch.action, "sub_action"),
        (batch.reward[..., None], "sub_reward"),
        (batch.not_done[..., None], "sub_not_done"),
    ]:
        np.testing.assert_array_equal(batch_first(ours)[alive], theirs[name][alive], err_msg=name)


def test_golden_n_step_samples(moment):
    theirs, replay, _ = moment
    n_step = theirs["n_reward"].shape[1]
    batch = rp.sample_n_step(replay.storage, jnp.asarray(theirs["slots"], jnp.int32), n_step)
    not_done = theirs["n_not_done"][..., 0]
    alive = batch_first(alive_steps(jnp.asarray(not_done.T))) == 1
    np.testing.assert_array_equal(batch.obs[SINGLE], theirs["n_state"])
    np.testing.assert_array_equal(batch.action, theirs["n_action"])
    np.testing.assert_array_equal(batch_first(batch.reward)[alive], theirs["n_reward"][..., 0][alive])
    np.testing.assert_array_equal(batch_first(batch.not_done)[alive], not_done[alive])
    bootstraps = not_done.all(axis=1)
    np.testing.assert_array_equal(np.asarray(batch.next_obs[SINGLE])[bootstraps], theirs["n_next_state"][bootstraps])
