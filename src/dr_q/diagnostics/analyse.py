"""The paper's analyses of trained runs: from their checkpoints alone, nothing is trained or simulated.

Every random choice is made from a fixed seed: the same run gives the same numbers.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dr_q import agent as drq
from dr_q import replay as rp
from dr_q.config import Config, config_from_json
from dr_q.equations import fade_weight, infonce, latent_mse, reward_bins, two_hot_mean
from dr_q.kit import ConfigError, RunFolderError, resume_call
from dr_q.learner import LearnerSpec, saving
from dr_q.networks import Encoder
from dr_q.report.analyses import AgeBucket, Embedding, Information, Measure, Origin, Priorities
from dr_q.report.results import preset_of
from dr_q.run_folder import Checkpoints, policy_record, read_run
from dr_q.spaces import Spaces, spaces_from_json

SAMPLES = 5_000
"""Transitions in a t-SNE figure (App. E.3)."""
NEWEST = 100_000
"""Transitions whose priorities are drawn (App. E.4)."""
NEGATIVES = 256
"""N of the information bound: DR.Q's batch."""
BATCHES = 10
"""Batches of N that a bound is averaged over."""
PERPLEXITY = 30
_AT_ONCE = 1_000
"""Transitions that go through the networks together."""
_QUANTILES = (0.1, 0.5, 0.9)


class SavedRun(NamedTuple):
    """A run with checkpoints."""

    folder: Path
    settings: dict[str, Any]
    """Those of run.json."""
    listed_as: str
    """Its preset, and the noise that was added."""
    seeds: list[int]
    spaces: Spaces
    checkpoints: Checkpoints

    @property
    def config(self) -> Config:
        """Of its algorithm."""
        return config_from_json(self.settings["config"])

    def spec(self, agent_steps: int) -> LearnerSpec:
        """What the checkpoint of that step is of."""
        stored = self.checkpoints.read(agent_steps)
        return LearnerSpec(self.config, self.spaces.sizes(), stored.capacity, lanes=stored.lanes)

    def origin(self, seed: int | None, agent_steps: int) -> Origin:
        """For a figure."""
        return Origin(self.folder.resolve().name, self.settings["task"], self.listed_as, seed, agent_steps)


class LoadedReplay(NamedTuple):
    """One seed's replay, all but its frames on the device."""

    replay: rp.Replay
    frames: dict[str, np.ndarray]
    """By part, [capacity, *frame]."""
    starts: np.ndarray
    """Slots at which a window may start, oldest first."""
    age: np.ndarray
    """Of each of them."""


class OneStep(NamedTuple):
    """Single transitions."""

    obs: dict[str, Array]
    """By part, [B, *obs]."""
    action: Float[Array, "B A"]
    reward: Float[Array, "B"]
    next_obs: dict[str, Array]
    """By part, [B, *obs]."""


def open_run(folder: Path) -> SavedRun:
    """A run's folder; RunFolderError where it is none, or has no checkpoint."""
    record = read_run(folder, "seeds", "agent_steps")
    checkpoints = Checkpoints(folder, record.info["seeds"])
    if not checkpoints.steps():
        advice = f"resume it: {resume_call(folder)}"
        if record.info["agent_steps"] > 0 and not checkpoints.folder.exists():
            advice = "they were removed; take them from a backup, or train again"
        raise RunFolderError(f"{folder} has no checkpoint, which analyses read; {advice}")
    spaces = spaces_from_json(policy_record(folder)["spaces"])
    settings, seeds = record.info["settings"], record.info["seeds"]
    return SavedRun(folder, settings, preset_of(record), seeds, spaces, checkpoints)


def chosen_step(run: SavedRun, at: int | None) -> int:
    """The checkpoint of that step, by default the last."""
    steps = run.checkpoints.steps()
    if at is not None and at not in steps:
        raise ConfigError(f"{run.folder} has no checkpoint at step {at}; it has {', '.join(map(str, steps))}")
    return steps[-1] if at is None else at


def chosen_seed(run: SavedRun, seed: int | None) -> int:
    """That seed, by default the run's first."""
    if seed is not None and seed not in run.seeds:
        raise ConfigError(f"{run.folder} has no seed {seed}; it has {', '.join(map(str, run.seeds))}")
    return run.seeds[0] if seed is None else seed


def load_replay(run: SavedRun, agent_steps: int, seed: int) -> LoadedReplay:
    """A seed's replay of a checkpoint; ConfigError if nothing can be drawn from it yet."""
    replay, frames = saving.load_replay(run.checkpoints.read(agent_steps), run.spec(agent_steps), seed)
    starts = np.flatnonzero(np.asarray(replay.storage.valid).reshape(-1))
    if not len(starts):
        raise ConfigError(f"the replay of {run.folder} at step {agent_steps} has no whole window yet; use a later one")
    age = int(replay.storage.clock) - 1 - np.asarray(replay.storage.stamp).reshape(-1)[starts]
    order = np.argsort(-age, kind="stable")
    return LoadedReplay(jax.tree.map(jnp.asarray, replay), frames, starts[order], age[order])


def load_agent(run: SavedRun, agent_steps: int, seed: int) -> drq.Agent:
    """A seed's agent of a checkpoint."""
    agents = saving.load_agents(run.checkpoints.read(agent_steps), run.spec(agent_steps))
    return jax.tree.map(lambda x: jnp.asarray(x[run.seeds.index(seed)]), agents)


# t-SNE of z_sa (App. E.3)


def embed(
    run: SavedRun, *, samples: int = SAMPLES, colour: str = "value", seed: int | None = None, at: int | None = None
) -> Embedding:
    """z_sa of transitions drawn uniformly from the replay, without replacement, in two dimensions by t-SNE."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    agent_steps, seed = chosen_step(run, at), chosen_seed(run, seed)
    loaded, agent = load_replay(run, agent_steps, seed), load_agent(run, agent_steps, seed)
    rows = np.sort(np.random.default_rng(0).permutation(len(loaded.starts))[:samples])
    z_sa, value = z_sa_of(loaded, agent, loaded.starts[rows])
    if len(rows) <= 3:
        raise ConfigError(f"t-SNE needs more than 3 transitions; {run.folder} gives {len(rows)}: ask for more samples")
    perplexity = min(PERPLEXITY, (len(rows) - 1) / 3)
    with threadpool_limits(1):  # several threads add up in any order, and t-SNE makes the difference large
        points = TSNE(init="pca", perplexity=perplexity, random_state=0).fit_transform(z_sa)
    colours = {
        "value": value,
        "reward": np.asarray(loaded.replay.storage.reward)[loaded.starts[rows]],
        "age": loaded.age[rows],
    }
    return Embedding(run.origin(seed, agent_steps), points, colours[colour].astype(float), loaded.age[rows], perplexity)


def z_sa_of(loaded: LoadedReplay, agent: drq.Agent, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """z_sa of the transitions at slots, and their value: the smaller Q, in units of reward."""
    parts = []
    for mine, count in _batches(slots):
        steps = read_steps(loaded, mine)
        z_sa, value = _z_sa_and_value(agent, steps.obs, steps.action)
        parts.append((np.asarray(z_sa)[:count], np.asarray(value)[:count]))
    return np.concatenate([z for z, _ in parts]), np.concatenate([v for _, v in parts])


@jax.jit
def _z_sa_and_value(agent: drq.Agent, obs: dict[str, Array], action: Array) -> tuple[Array, Array]:
    encoder = agent.online.encoder
    z_sa = encoder.z_sa(encoder.z_s(agent.online.normalised(obs)), action)
    return z_sa, jnp.min(agent.online.critic(z_sa), axis=-1) * agent.reward_scale


# Priorities by age (App. E.4)


def priorities(run: SavedRun, *, newest: int = NEWEST, seed: int | None = None, at: int | None = None) -> Priorities:
    """|TD error| x fade weight of the newest transitions, by the checkpoint's networks; sampling probability by age."""
    agent_steps, seed = chosen_step(run, at), chosen_seed(run, seed)
    loaded, agent = load_replay(run, agent_steps, seed), load_agent(run, agent_steps, seed)
    config = run.config
    young = loaded.age < newest
    error = td_errors(config, loaded, agent, loaded.starts[young])
    age = loaded.age[young]
    faded = error * np.asarray(fade_weight(jnp.asarray(age), config.fade_decay, config.fade_floor))
    chance = np.asarray(rp.probability(loaded.replay), np.float64)[loaded.starts]
    buckets = []
    edges = bucket_edges(min(newest, int(loaded.replay.storage.clock)))
    for first, end in itertools.pairwise([*edges, math.inf]):
        inside = (loaded.age >= first) & (loaded.age < end)
        mine = inside[young]
        if inside.any() or end < math.inf:
            buckets.append(
                AgeBucket(
                    first=int(first),
                    last=int(loaded.age.max()) if end == math.inf else int(end) - 1,
                    transitions=int(inside.sum()),
                    td_error=_quantiles(error[mine]),
                    faded=_quantiles(faded[mine]),
                    probability=float(chance[inside].sum()),
                )
            )
    return Priorities(run.origin(seed, agent_steps), config.fade_decay > 0, age, faded, buckets)


def td_errors(config: Config, loaded: LoadedReplay, agent: drq.Agent, slots: np.ndarray) -> np.ndarray:
    """The larger |TD error| of the two critics, of the transitions at slots; in MR.Q in units of its reward scale.

    The target's noise comes from a fixed key.
    """
    found = []
    for number, (mine, count) in enumerate(_batches(slots)):
        frames = _gather(loaded, rp.n_step_frames(loaded.replay.storage, jnp.asarray(mine), config.q_horizon))
        key = jax.random.fold_in(jax.random.key(0), number)
        error = _td_error(config, agent, loaded.replay, jnp.asarray(mine), frames, key)
        found.append(np.asarray(error)[:count])
    return np.concatenate(found) if found else np.zeros(0, np.float32)


@functools.partial(jax.jit, static_argnums=0)
def _td_error(
    config: Config, agent: drq.Agent, replay: rp.Replay, slots: Array, frames: rp.Frames, key: Array
) -> Float[Array, "B"]:
    sample = rp.sample_n_step(replay.storage, slots, config.q_horizon, frames)
    obs, next_obs = map(agent.online.normalised, (sample.obs, sample.next_obs))
    sample = sample._replace(obs=obs, next_obs=next_obs)
    batch, noise = drq.critic_batch(config, sample), drq.draw_noise(agent.online.actor, sample.action.shape, key)
    target = drq.critic_target(config, agent, batch, *noise)
    encoder, critic = agent.online.encoder, agent.online.critic
    return critic.td_error(critic(encoder.z_sa(encoder.z_s(sample.obs), sample.action)), target)


def bucket_edges(newest: int) -> list[int]:
    """Ages 0, ..., newest: steps of 1, 2, 5 over its last two decades."""
    start = 10 ** max(0, int(math.log10(newest)) - 2)
    edges = [0, *(step * decade for decade in (start, 10 * start, 100 * start) for step in (1, 2, 5))]
    return [edge for edge in edges if edge < newest] + [newest]


def _quantiles(values: np.ndarray) -> tuple[float, float, float]:
    if not len(values):
        return math.nan, math.nan, math.nan
    low, middle, high = np.quantile(values, _QUANTILES)
    return float(low), float(middle), float(high)


# Information (Theorem 4.1)


def information(runs: Sequence[SavedRun], say: Callable[[str], None] = lambda line: None) -> list[Information]:
    """The InfoNCE bound, latent MSE and reward error of every checkpoint of every run, on held-out replay.

    With two seeds or more, a seed's networks are asked about transitions of the seed after it (the first after the
    last), which they never trained on; from every run of the task the same number, so that runs are compared on the
    same transitions. A single seed is asked about its own, added after its last checkpoint but one.
    """
    samples: dict[tuple[Path, int], OneStep] = {}
    found = []
    for run in runs:
        alike = [other for other in runs if _asked_alike(run, other)]
        several = all(len(other.seeds) > 1 for other in alike)
        steps = run.checkpoints.steps()
        batches = [_other_seeds(alike, i, samples) if several else _later(run, i) for i in range(len(run.seeds))]
        measures = []
        for agent_steps in steps:
            held_out = several or agent_steps < steps[-1]
            agents = saving.load_agents(run.checkpoints.read(agent_steps), run.spec(agent_steps))
            for index, seed in enumerate(run.seeds):
                agent = jax.tree.map(lambda x, i=index: jnp.asarray(x[i]), agents)
                values = np.mean([measure(run.config, agent, batch) for batch in batches[index]], axis=0)
                size = len(batches[index][0].reward)
                measures.append(Measure(agent_steps, seed, held_out, size, *map(float, values)))
            say(f"{run.folder}: {agent_steps:,} steps")
        found.append(Information(run.origin(None, steps[-1]), measures))
    return found


def information_note(found: Sequence[Information]) -> str:
    """What the held-out transitions of a figure are."""
    size = " or ".join(map(str, sorted({m.negatives for run in found for m in run.measures})))
    text = (
        f"N = {size}; one step ahead; mean over seeds, 95% interval (t) from 3 seeds on, cut at the lower "
        "axis where it ends there. Asked about: "
    )
    if all(m.held_out for run in found for m in run.measures):
        return text + (
            "transitions of the next seed's replay, drawn uniformly from its last checkpoint, equally many from each "
            "run of the task. A seed's networks never trained on them."
        )
    return text + (
        "transitions that the same seed added after its last checkpoint but one; for its last checkpoint (hollow) they "
        "are not held out. With 2 seeds or more in each run of a task, the next seed's are used instead."
    )


@functools.partial(jax.jit, static_argnums=0)
def measure(config: Config, agent: drq.Agent, steps: OneStep) -> Float[Array, "3"]:
    """Of a batch of N transitions: log N - InfoNCE (Eq. 8), latent MSE (Eq. 7), mean |predicted - true reward|."""
    encoder: Encoder = agent.online.encoder
    obs, next_obs = map(agent.online.normalised, (steps.obs, steps.next_obs))
    prediction = encoder.predict(encoder.z_sa(encoder.z_s(obs), steps.action))
    target_z_s = agent.target.encoder.z_s(next_obs)
    loss = jnp.mean(infonce(prediction.z_s, target_z_s, config.infonce_temperature))
    reward = two_hot_mean(prediction.reward_logits, reward_bins(*config.reward_range, config.reward_bins))
    return jnp.stack(
        [
            math.log(len(steps.reward)) - loss,
            jnp.mean(latent_mse(prediction.z_s, target_z_s)),
            jnp.mean(jnp.abs(reward - steps.reward)),
        ]
    )


def _asked_alike(run: SavedRun, other: SavedRun) -> bool:
    return run.settings["task"] == other.settings["task"] and run.spaces.sizes() == other.spaces.sizes()


def _other_seeds(runs: Sequence[SavedRun], index: int, samples: dict[tuple[Path, int], OneStep]) -> list[OneStep]:
    """Batches of the transitions of the seed after each run's index-th."""
    parts = []
    for run in runs:
        following = (index + 1) % len(run.seeds)
        key = (run.folder, following)
        if key not in samples:
            samples[key] = _sample(run, following, NEGATIVES * BATCHES // len(runs), after=0)
        parts.append(samples[key])
    fewest = min(len(part.reward) for part in parts)
    return _shuffled(jax.tree.map(lambda *fields: jnp.concatenate([x[:fewest] for x in fields]), *parts))


def _later(run: SavedRun, index: int) -> list[OneStep]:
    """Batches of a seed's transitions added after its last checkpoint but one; of all, if that is its only one."""
    earlier = run.checkpoints.steps()[:-1]
    return _shuffled(_sample(run, index, NEGATIVES * BATCHES, after=earlier[-1] if earlier else 0))


def _sample(run: SavedRun, index: int, count: int, after: int) -> OneStep:
    """Transitions drawn uniformly, without replacement, from the last checkpoint's, of those after a step."""
    last = run.checkpoints.steps()[-1]
    loaded = load_replay(run, last, run.seeds[index])
    late = loaded.starts[int(loaded.replay.storage.clock) - 1 - loaded.age >= after]
    if len(late) < 2:
        raise ConfigError(
            f"{run.folder} has {len(late)} whole windows after step {after:,}, and a bound needs at least 2; "
            "let checkpoints be further apart, or train more seeds"
        )
    chosen = np.random.default_rng([0, index]).permutation(late)[:count]
    return read_steps(loaded, chosen)


def _shuffled(steps: OneStep) -> list[OneStep]:
    """Batches of N, or one of all if they are fewer."""
    order = np.random.default_rng(0).permutation(len(steps.reward))
    size = min(NEGATIVES, len(order))
    return [
        jax.tree.map(lambda field, start=start: field[order[start : start + size]], steps)
        for start in range(0, len(order) - size + 1, size)
    ]


# Reading


def _batches(slots: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """Slots in batches of one size, the last filled up; and how many of each count."""
    for start in range(0, len(slots), _AT_ONCE):
        mine = slots[start : start + _AT_ONCE]
        yield np.resize(mine, _AT_ONCE), len(mine)


def read_steps(loaded: LoadedReplay, slots: np.ndarray) -> OneStep:
    """The transitions at slots."""
    places = jnp.asarray(slots)
    storage = loaded.replay.storage
    frames = _gather(loaded, rp.subtrajectory_frames(storage, places, 1))
    window = rp.sample_subtrajectory(storage, places, 1, frames)
    obs, next_obs = ({name: x[i] for name, x in window.obs.items()} for i in (0, 1))
    return OneStep(obs, window.action[0], window.reward[0], next_obs)


def _gather(loaded: LoadedReplay, slots: rp.Frames) -> rp.Frames:
    return {name: jnp.asarray(loaded.frames[name][np.asarray(at)]) for name, at in slots.items()}
