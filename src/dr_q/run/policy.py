"""Policies: what is left of a run when only acting matters (encoder f and actor)."""

import json
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from dr_q import agent as drq
from dr_q.agent import TaskShape
from dr_q.config import config_from_json
from dr_q.envs import ActionScale, EnvSpec
from dr_q.envs.gym import channels_first
from dr_q.kit import ConfigError
from dr_q.networks import Actor, PixelStateEncoder, VectorStateEncoder
from dr_q.run import arrays
from dr_q.run.files import write_whole


class PolicyNetworks(eqx.Module):
    """f and the actor."""

    state: VectorStateEncoder | PixelStateEncoder
    actor: Actor

    def __call__(self, obs: jax.Array) -> jax.Array:
        """Actions in [-1, 1] for a batch of observations."""
        return self.actor(self.state(obs))


_RECORD = "policy.json"
_NEEDED = ("task", "obs_shape", "history", "action_low", "action_high", "seeds", "best_seed", "agent_steps", "config")
_FILE = "seed{seed}.safetensors"

_act = jax.jit(lambda networks, obs: networks(obs))


class Policy:
    """A trained policy. `act` takes observations and gives actions in the environment's own units."""

    def __init__(self, networks: PolicyNetworks, record: dict[str, Any], seed: int):
        self._networks = networks
        self._scale = ActionScale(np.asarray(record["action_low"]), np.asarray(record["action_high"]))
        self.task: str = record["task"]
        """What it was trained on."""
        self.seed = seed
        """Which of the run's seeds it is."""
        self.obs_shape: tuple[int, ...] = tuple(record["obs_shape"])
        """Shape of one observation."""
        self.history: int = record["history"]
        """Frames stacked in one observation."""
        self._parts = {key: tuple(shape) for key, shape in record.get("obs_parts", ())}
        self._knows_parts = "obs_parts" in record  # older versions did not write them
        own = record.get("action_shape")
        self._action_shape = (len(record["action_low"]),) if own is None else tuple(own)
        self.noise_dims: int = record.get("noise_dims", 0)
        """Dimensions of noise its observations end in."""
        self.agent_steps: int = record["agent_steps"]
        """Agent steps it was trained for."""
        self.returns: dict[int, float] = {int(s): float(x) for s, x in record.get("returns", {}).items()}
        """Of the last evaluation of every seed of its run."""

    def episode(self) -> "Episode":
        """To play one episode with, image by image; of anything else `act` does as well."""
        return Episode(self)

    def act(self, obs: Any) -> np.ndarray:
        """The action for one observation as the environment gives it, or actions for a batch, in its own units.

        Of images it takes the last `history`, oldest first, joined along their channels, channels first: `episode` does
        that.
        """
        actions = self._scale.to_env(self.act_unit(obs))
        return actions.reshape((*actions.shape[:-1], *self._action_shape))

    def act_unit(self, obs: Any) -> np.ndarray:
        """The same as vectors in [-1, 1]."""
        obs = self._joined(obs)
        single = obs.shape == self.obs_shape
        if not single and obs.shape[1:] != self.obs_shape:
            raise ValueError(f"observation of shape {obs.shape}; expected {self.obs_shape}, or a batch{self._hint()}")
        images = len(self.obs_shape) == 3
        if images and obs.dtype != np.uint8:
            raise ValueError(f"images of {obs.dtype}; expected uint8, from 0 to 255")
        actions = np.asarray(
            _act(self._networks, np.asarray(obs[None] if single else obs, None if images else np.float32))
        )
        return actions[0] if single else actions

    def _hint(self) -> str:
        if self.history > 1:
            return f"; of images the last {self.history}, channels first: policy.episode().act(image) joins them"
        if not self._knows_parts:
            return "; of a Dict or a matrix give gymnasium.spaces.flatten(env.observation_space, obs)"
        return ""

    def _joined(self, obs: Any) -> np.ndarray:
        """Vectors, or images, of what may be a Dict or no vector."""
        if not isinstance(obs, Mapping):
            whole = np.asarray(obs)
            batch = _batch_shape(whole, self._parts[""]) if "" in self._parts else None
            return whole if batch is None else whole.reshape((*batch, -1))
        found = {key: np.asarray(obs[key], np.float32) for key in self._parts if key in obs}
        batches = {_batch_shape(x, self._parts[key]) for key, x in found.items()}
        if len(found) < len(self._parts) or len(batches) != 1 or None in batches:
            got = {key: np.shape(x) for key, x in obs.items()}
            expected = self._parts if "" not in self._parts and self._parts else f"an array of shape {self.obs_shape}"
            raise ValueError(f"observation of {got}; expected {expected}, or a batch{self._hint()}")
        batch = batches.pop() or ()
        return np.concatenate([x.reshape((*batch, -1)) for x in found.values()], -1)


class Episode:
    """A policy that remembers the last images of one episode; make a new one after every reset."""

    def __init__(self, policy: Policy):
        self._policy = policy
        self._frames: deque[np.ndarray] = deque(maxlen=policy.history)

    def act(self, obs: Any) -> np.ndarray:
        """The action for the next observation as the environment gives it: images one by one, channels last."""
        if self._policy.history == 1:
            return self._policy.act(obs)
        channels, height, width = self._policy.obs_shape
        expected = (height, width, channels // self._policy.history)
        if np.shape(obs) != expected:
            raise ValueError(f"image of shape {np.shape(obs)}; expected {expected}: height, width, channels")
        if np.asarray(obs).dtype != np.uint8:
            raise ValueError(f"image of {np.asarray(obs).dtype}; expected uint8, from 0 to 255")
        frame = channels_first(obs)
        self._frames.extend([frame] * (1 if self._frames else self._policy.history))  # as training begins an episode
        return self._policy.act(np.concatenate(list(self._frames)))


def _batch_shape(x: np.ndarray, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """What comes before that shape; None for an array of another one."""
    at = x.ndim - len(shape)
    return x.shape[:at] if at >= 0 and x.shape[at:] == shape else None


def save_policies(run: Path, spec: EnvSpec, record: dict[str, Any], policies: PolicyNetworks, seeds: list[int]) -> None:
    """Write `policy/`: one file for each seed, and what is needed to use them."""
    stacked = arrays.named(policies)
    whole = {
        "format": 1,
        "obs_shape": spec.obs_shape,
        "history": spec.history,
        "action_low": spec.action_low,
        "action_high": spec.action_high,
        "obs_parts": spec.obs_parts,
        "action_shape": spec.action_shape,
        "seeds": seeds,
        **record,
    }
    by_seed = {seed: {name: x[index] for name, x in stacked.items()} for index, seed in enumerate(seeds)}
    write_policies(run / "policy", whole, by_seed)


def write_policies(folder: Path, record: dict[str, Any], by_seed: dict[int, dict[str, np.ndarray]]) -> None:
    """A policy folder: a file of weights for each seed, and the record that says what they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, weights in by_seed.items():
        arrays.write(folder / _FILE.format(seed=seed), weights)
    write_whole(folder / _RECORD, json.dumps(record, indent=1) + "\n")


def policy_record(path: str | Path) -> dict[str, Any]:
    """What a run's folder, or its `policy` folder, says of its policies."""
    file = _policy_folder(path) / _RECORD
    try:
        record = json.loads(file.read_text())
    except ValueError:
        record = {}
    missing = [name for name in _NEEDED if not isinstance(record, dict) or name not in record]
    if missing:
        raise arrays.DamagedError(f"{file} is damaged: it has no {missing[0]}; take it from a backup or export again")
    return record


def policy_file(path: str | Path, record: dict[str, Any], seed: int | None) -> tuple[Path, int]:
    """The weights of a seed, by default of the one whose last evaluation was best, and which it is."""
    seed = int(record["best_seed"] if seed is None else seed)
    if seed not in record["seeds"]:
        raise ConfigError(f"no seed {seed} in {path}; it has {', '.join(map(str, record['seeds']))}")
    file = _policy_folder(path) / _FILE.format(seed=seed)
    if not file.exists():
        raise ConfigError(f"{file} is not there, though the folder's {_RECORD} names it; choose another seed")
    return file, seed


def _policy_folder(path: str | Path) -> Path:
    folder = Path(path)
    folder = folder if (folder / _RECORD).exists() else folder / "policy"
    if not (folder / _RECORD).exists():
        raise ConfigError(f"no policy in {path}: expected policy/{_RECORD}; give a run's folder or its policy folder")
    return folder


def load(path: str | Path, seed: int | None = None) -> Policy:
    """A policy from a run's folder or its `policy` folder; by default the seed whose last evaluation was best."""
    record = policy_record(path)
    file, seed = policy_file(path, record, seed)
    config = config_from_json(record["config"])
    shape = TaskShape(tuple(record["obs_shape"]), len(record["action_low"]), record["history"])

    def build() -> PolicyNetworks:
        networks = drq.init_networks(config, shape, jax.random.key(0))
        return PolicyNetworks(networks.encoder.state, networks.actor)

    networks = arrays.fill(jax.eval_shape(build), arrays.read(file), str(file))
    return Policy(jax.tree.map(jax.numpy.asarray, networks), record, seed)
