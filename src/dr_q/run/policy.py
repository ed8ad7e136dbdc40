"""Policies: what is left of a run when only acting matters (encoder f and actor)."""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from dr_q import agent as drq
from dr_q.agent import Config, ConfigError, TaskShape
from dr_q.envs import ActionScale, EnvSpec
from dr_q.networks import Actor, PixelStateEncoder, VectorStateEncoder
from dr_q.run import arrays


class PolicyNetworks(eqx.Module):
    """f and the actor."""

    state: VectorStateEncoder | PixelStateEncoder
    actor: Actor

    def __call__(self, obs: jax.Array) -> jax.Array:
        """Actions in [-1, 1] for a batch of observations."""
        return self.actor(self.state(obs))


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
        self.noise_dims: int = record.get("noise_dims", 0)
        """Dimensions of noise its observations end in."""
        self.agent_steps: int = record["agent_steps"]
        """Agent steps it was trained for."""

    def act(self, obs: np.ndarray) -> np.ndarray:
        """The action for one observation, or actions for a batch of them, in the environment's units."""
        return self._scale.to_env(self.act_unit(obs))

    def act_unit(self, obs: np.ndarray) -> np.ndarray:
        """The same in [-1, 1]."""
        obs = np.asarray(obs)
        if obs.shape == self.obs_shape:
            return self.act_unit(obs[None])[0]
        if obs.shape[1:] != self.obs_shape:
            raise ValueError(f"observation of shape {obs.shape}; expected {self.obs_shape}, or a batch of those")
        dtype = np.uint8 if len(self.obs_shape) == 3 else np.float32
        return np.asarray(_act(self._networks, obs.astype(dtype)))


def save_policies(run: Path, spec: EnvSpec, record: dict[str, Any], policies: PolicyNetworks, seeds: list[int]) -> None:
    """Write `policy/`: one file for each seed, and what is needed to use them."""
    folder = run / "policy"
    folder.mkdir(parents=True, exist_ok=True)
    stacked = arrays.named(policies)
    for index, seed in enumerate(seeds):
        arrays.write(folder / f"seed{seed}.safetensors", {name: x[index] for name, x in stacked.items()})
    whole = {
        "format": 1,
        "obs_shape": spec.obs_shape,
        "history": spec.history,
        "action_low": spec.action_low,
        "action_high": spec.action_high,
        "seeds": seeds,
        **record,
    }
    part = folder / "policy.json.part"
    part.write_text(json.dumps(whole, indent=1) + "\n")
    part.replace(folder / "policy.json")


def load(path: str | Path, seed: int | None = None) -> Policy:
    """A policy from a run's folder or its `policy` folder; by default the seed whose last evaluation was best."""
    folder = Path(path)
    folder = folder if (folder / "policy.json").exists() else folder / "policy"
    if not (folder / "policy.json").exists():
        raise ConfigError(f"no policy in {path}: expected policy/policy.json; give a run's folder or its policy folder")
    record = json.loads((folder / "policy.json").read_text())
    if seed is None:
        seed = int(record["best_seed"])
    if seed not in record["seeds"]:
        raise ConfigError(f"no seed {seed} in {path}; it has {', '.join(map(str, record['seeds']))}")
    config = Config(**{**record["config"], "reward_range": tuple(record["config"]["reward_range"])})
    shape = TaskShape(tuple(record["obs_shape"]), len(record["action_low"]), record["history"])

    def build() -> PolicyNetworks:
        networks = drq.init_networks(config, shape, jax.random.key(0))
        return PolicyNetworks(networks.encoder.state, networks.actor)

    file = folder / f"seed{seed}.safetensors"
    networks = arrays.fill(jax.eval_shape(build), arrays.read(file), str(file))
    return Policy(jax.tree.map(jax.numpy.asarray, networks), record, seed)
