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
    """What the encoder makes of observations and actions."""

    z_s: np.ndarray
    """f(s), [B, zs_dim]."""
    z_sa: np.ndarray | None
    """g(z_s, a), [B, zsa_dim]; None: no actions were given."""


class OpenedRun:
    """A run's folder with its checkpoints; `dr_q.open_run` makes it. Nothing is read before it is asked for."""

    def __init__(self, saved: analyse.SavedRun):
        self._saved = saved

    @property
    def folder(self) -> Path:
        """The run's."""
        return self._saved.folder

    @property
    def task(self) -> str:
        """What it was trained on."""
        return self._saved.settings["task"]

    @property
    def seeds(self) -> list[int]:
        """Its seeds."""
        return list(self._saved.seeds)

    @property
    def steps(self) -> list[int]:
        """Agent steps of its checkpoints; train with `keep_checkpoints=N` to have more than two."""
        return list(self._saved.checkpoints.steps())

    @property
    def config(self) -> Config:
        """The settings of its algorithm."""
        return self._saved.config

    @property
    def spaces(self) -> Spaces:
        """What it observes, and how it acts."""
        return self._saved.spaces

    def agent(self, *, seed: int | None = None, at: int | None = None) -> drq.Agent:
        """The agent of a seed at a checkpoint, with target networks and optimiser states.

        Args:
            seed: by default the run's first.
            at: agent steps of a checkpoint, by default the last.
        """
        return analyse.load_agent(self._saved, *self._chosen(seed, at))

    def replay(self, *, seed: int | None = None, at: int | None = None) -> rp.Replay:
        """The replay of a seed at a checkpoint, whole: `draw`, `sample_n_step`, `probability` and `add` work on it.

        Images take their share of a device's memory: slots x bytes of a frame.

        Args:
            seed: by default the run's first.
            at: agent steps of a checkpoint, by default the last.
        """
        loaded = analyse.load_replay(self._saved, *self._chosen(seed, at))
        storage = loaded.replay.storage
        frames = {name: jnp.asarray(x) for name, x in loaded.frames.items()}
        spec = dataclasses.replace(storage.spec, frames_on_host=False)
        whole = dataclasses.replace(storage, spec=spec, obs=frames)
        return dataclasses.replace(loaded.replay, storage=whole)

    def latents(self, obs: Any, actions: Any = None, *, seed: int | None = None, at: int | None = None) -> Latents:
        """z_s of observations and, with actions, z_sa, by the online encoder of a checkpoint.

        Args:
            obs: a batch of observations, [B, ...], as the environment gives them; of several parts a dict of batches by
                part. They are normalised as the run does it (`normalise_observations`).
            actions: [B, A], as the agent acts: in [-1, 1].
            seed: by default the run's first.
            at: agent steps of a checkpoint, by default the last.

        Raises:
            ConfigError: shapes are not those of the run's spaces.
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
        z_s, z_sa = _z_s_and_z_sa(encoder, batch, jnp.asarray(acts))
        return Latents(np.asarray(z_s), np.asarray(z_sa))

    def _chosen(self, seed: int | None, at: int | None) -> tuple[int, int]:
        return analyse.chosen_step(self._saved, at), analyse.chosen_seed(self._saved, seed)


def open_run(folder: str | Path) -> OpenedRun:
    """Open a run that has checkpoints.

    Args:
        folder: of `dr_q.train` or `dr-q train`.

    Raises:
        RunFolderError: it is no run, or has no checkpoint.

    Example:
        run = dr_q.open_run("runs/walker")
        agent, replay = run.agent(seed=0), run.replay(seed=0)
        latents = run.latents(observations, actions)
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
