"""A trained run as values of this library: its agents and replays at any checkpoint, and latents of observations."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dr_q import agent as drq
from dr_q import replay as rp
from dr_q.config import Config
from dr_q.diagnostics import analyse
from dr_q.kit import ConfigError
from dr_q.networks import Encoder
from dr_q.spaces import SINGLE, Spaces


class Latents(NamedTuple):
    """Latents of a batch of observations and actions: what `OpenedRun.latents` returns."""

    z_s: np.ndarray
    """Latent states z_s = f(s), [B, zs_dim]."""
    z_sa: np.ndarray | None
    """Latent state-actions z_sa = g(z_s, a), [B, zsa_dim]; None if no actions were given."""


class OpenedRun:
    """A trained run: agents, replays and latents at its checkpoints. `dr_q.open_run` makes one.

    Agents and replays are read when they are asked for.

    Example:
        ```python
        run = dr_q.open_run("runs/walker")
        print(run.task, run.seeds, run.steps)
        agent = run.agent(seed=0, at=run.steps[-1])
        replay = run.replay(seed=0)
        latents = run.latents(observations, actions)
        ```
    """

    def __init__(self, saved: analyse.SavedRun):
        self._saved = saved

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self._saved.folder

    @property
    def task(self) -> str:
        """The task that it was trained on."""
        return self._saved.settings["task"]

    @property
    def seeds(self) -> list[int]:
        """The run's seeds."""
        return list(self._saved.seeds)

    @property
    def steps(self) -> list[int]:
        """Agent steps of its checkpoints, in order. A run keeps the last two; `keep_checkpoints=N` keeps more."""
        return list(self._saved.checkpoints.steps())

    @property
    def config(self) -> Config:
        """The settings of the algorithm."""
        return self._saved.config

    @property
    def spaces(self) -> Spaces:
        """Its observations and actions."""
        return self._saved.spaces

    def agent(self, *, seed: int | None = None, at: int | None = None) -> drq.Agent:
        """The agent of a seed at a checkpoint, with target networks and optimiser states.

        Args:
            seed: One of `seeds`. Default: the first.
            at: One of `steps`: agent steps of a checkpoint. Default: the last.

        Returns:
            The agent.

        Raises:
            ConfigError: The run has no such seed or no checkpoint at that step.
            DamagedFileError: The checkpoint is damaged.
        """
        return analyse.load_agent(self._saved, *self._chosen(seed, at))

    def replay(self, *, seed: int | None = None, at: int | None = None) -> rp.Replay:
        """The whole replay of a seed at a checkpoint, for the functions of `dr_q.replay`.

        Observations are on the device, also if the run kept them in host memory. Images take slots x bytes of a frame.

        Args:
            seed: One of `seeds`. Default: the first.
            at: One of `steps`: agent steps of a checkpoint. Default: the last.

        Returns:
            The replay.

        Raises:
            ConfigError: The run has no such seed or checkpoint, or the replay has no whole window to draw yet.
            DamagedFileError: The checkpoint is damaged.
        """
        loaded = analyse.load_replay(self._saved, *self._chosen(seed, at))
        storage = loaded.replay.storage
        frames = {name: jnp.asarray(x) for name, x in loaded.frames.items()}
        spec = dataclasses.replace(storage.spec, frames_on_host=False)
        whole = dataclasses.replace(storage, spec=spec, obs=frames)
        return dataclasses.replace(loaded.replay, storage=whole)

    def latents(self, obs: Any, actions: Any = None, *, seed: int | None = None, at: int | None = None) -> Latents:
        """Latent states z_s of observations and, with actions, latent state-actions z_sa.

        The online encoder of a checkpoint computes them. Observations are normalised as the run does it
        (`normalise_observations`).

        Args:
            obs: A batch of observations [B, ...] as the environment gives them, or a dict with a batch for each part.
            actions: A batch of actions [B, A] as the agent acts: in [-1, 1], or one-hot. None for z_s alone.
            seed: One of `seeds`. Default: the first.
            at: One of `steps`: agent steps of a checkpoint. Default: the last.

        Returns:
            `z_s` and `z_sa` as numpy arrays.

        Raises:
            ConfigError: Shapes differ from those of `spaces`, or the run has no such seed or checkpoint.
            DamagedFileError: The checkpoint is damaged.
        """
        given = dict(obs) if isinstance(obs, Mapping) else {SINGLE: obs}
        parts = {name: np.asarray(x) for name, x in given.items()}
        expected = {name: part.shape for name, part in self.spaces.obs.parts}
        found = {name: x.shape[1:] for name, x in parts.items()}
        if found != expected:
            raise ConfigError(
                f"observations of {_shapes(found)}; this run's are {_shapes(expected)}, a batch of them each"
            )
        batch = {name: jnp.asarray(parts[name], part.dtype) for name, part in self.spaces.obs.parts}
        online = self.agent(seed=seed, at=at).online
        batch, encoder = online.normalised(batch), online.encoder
        if actions is None:
            return Latents(np.asarray(_z_s(encoder, batch)), None)
        acts = np.asarray(actions, np.float32)
        rows = len(next(iter(parts.values())))
        if acts.shape != (rows, self.spaces.action.dim):
            raise ConfigError(f"actions of shape {acts.shape}; expected {(rows, self.spaces.action.dim)}, in [-1, 1]")
        if acts.size and not np.abs(acts).max() <= 1:  # true for NaN
            raise ConfigError(
                f"actions up to {np.abs(acts).max():g}; expected [-1, 1], as the agent acts; policy.act gives the "
                "environment's units, policy.act_unit those of the agent"
            )
        z_s, z_sa = _z_s_and_z_sa(encoder, batch, jnp.asarray(acts))
        return Latents(np.asarray(z_s), np.asarray(z_sa))

    def _chosen(self, seed: int | None, at: int | None) -> tuple[int, int]:
        return analyse.chosen_step(self._saved, at), analyse.chosen_seed(self._saved, seed)


def open_run(folder: str | Path) -> OpenedRun:
    """Open a run that has checkpoints.

    Args:
        folder: The folder of a run of `dr_q.train` or `dr-q train`.

    Returns:
        The run.

    Raises:
        RunFolderError: The folder is not a run, or has no evaluation, no policy or no checkpoint.
        DamagedFileError: `run.json`, `evals.csv` or `policy.json` is damaged.

    Example:
        ```python
        run = dr_q.open_run("runs/walker")
        agent, replay = run.agent(seed=0), run.replay(seed=0)
        latents = run.latents(observations, actions)
        ```
    """
    return OpenedRun(analyse.open_run(Path(folder)))


@jax.jit
def _z_s(encoder: Encoder, obs: dict[str, jax.Array]) -> jax.Array:
    return encoder.z_s(obs)


@jax.jit
def _z_s_and_z_sa(encoder: Encoder, obs: dict[str, jax.Array], actions: jax.Array) -> tuple[jax.Array, jax.Array]:
    z_s = encoder.z_s(obs)
    return z_s, encoder.z_sa(z_s, actions)


def _shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items())
