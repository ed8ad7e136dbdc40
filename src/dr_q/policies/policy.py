"""Policies: what is left of a run when only acting matters (encoder f and actor)."""

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dr_q import agent as drq
from dr_q.agent.named_arrays import fill_tree, named_arrays
from dr_q.config import config_from_json
from dr_q.run_folder import POLICY_FOLDER, policy_file, policy_record, read_policy_weights, write_policies
from dr_q.spaces import Image, Part, Spaces, Vector, spaces_from_json, to_env_action

_act = jax.jit(lambda networks, obs: networks(obs))


class Policy:
    """A trained policy. `act` takes observations and gives actions in the environment's own units.

    Example:
        >>> policy = dr_q.load("runs/reach")
        >>> action = policy.act(obs)
    """

    def __init__(self, networks: drq.PolicyNetworks, record: Mapping[str, Any], seed: int):
        self._networks = networks
        self.spaces: Spaces = spaces_from_json(record["spaces"])
        """What it observes, and how it acts."""
        self._to_env = to_env_action(self.spaces.action)
        self.task: str = record["task"]
        """What it was trained on."""
        self.seed = seed
        """Which of the run's seeds it is."""
        self.noise_dims: int = record.get("noise_dims", 0)
        """Dimensions of noise its observations end in."""
        self.agent_steps: int = record["agent_steps"]
        """Agent steps it was trained for."""
        self.returns: dict[int, float] = {int(s): float(x) for s, x in record.get("returns", {}).items()}
        """Of the last evaluation of every seed of its run."""

    @property
    def obs_shape(self) -> tuple[int, ...]:
        """Shape of one observation."""
        return self._single[1].shape

    @property
    def stack(self) -> int:
        """Frames stacked in one observation; 1 for vectors."""
        return self.spaces.obs.stack

    @property
    def history(self) -> int:
        """The old name of `stack`."""
        return self.stack

    @property
    def _single(self) -> tuple[str, Part]:
        (only,) = self.spaces.obs.parts
        return only

    def episode(self) -> "FrameStackPolicy":
        """The same policy for one episode, which takes images one by one and stacks them."""
        return FrameStackPolicy(self)

    def act(self, obs: Any) -> np.ndarray:
        """The action for one observation, or actions for a batch, in the environment's own units.

        Args:
            obs: As the environment gives it. Image policies take the last `stack` frames, stacked along the channel
                axis, oldest first, channels first; `episode()` does this for you.
        """
        return self._to_env(self.act_unit(obs))

    def act_unit(self, obs: Any) -> np.ndarray:
        """The same as vectors in [-1, 1]; discrete actions as one-hot vectors."""
        name, part = self._single
        x = self._joined(obs)
        single = x.shape == part.shape
        if not single and x.shape[1:] != part.shape:
            raise ValueError(f"observation of shape {x.shape}; expected {part.shape}, or a batch{self._hint()}")
        if isinstance(part, Image) and x.dtype != np.uint8:
            raise ValueError(f"images of {x.dtype}; expected uint8, from 0 to 255")
        actions = self.act_parts({name: np.asarray(x[None] if single else x, part.dtype)})
        return actions[0] if single else actions

    def act_parts(self, obs: Mapping[str, np.ndarray]) -> np.ndarray:
        """The same for a batch of observations by part, as `dr_q.envs` gives them."""
        return np.asarray(_act(self._networks, dict(obs)))

    def _hint(self) -> str:
        if self.stack > 1:
            return f"; of images the last {self.stack}, channels first: policy.episode().act(image) stacks them"
        if isinstance(part := self._single[1], Vector) and not part.fields:
            return "; of a Dict or a matrix give gymnasium.spaces.flatten(env.observation_space, obs)"
        return ""

    def _joined(self, obs: Any) -> np.ndarray:
        """Vectors, or images, of what may be a Dict or no vector."""
        part = self._single[1]
        fields = dict(part.fields) if isinstance(part, Vector) else {}
        if not isinstance(obs, Mapping):
            whole = np.asarray(obs)
            batch = _batch_shape(whole, fields[""]) if "" in fields else None
            return whole if batch is None else whole.reshape((*batch, -1))
        found = {key: np.asarray(obs[key], np.float32) for key in fields if key in obs}
        batches = {_batch_shape(x, fields[key]) for key, x in found.items()}
        if len(found) < len(fields) or len(batches) != 1 or None in batches:
            got = {key: np.shape(x) for key, x in obs.items()}
            expected = fields if "" not in fields and fields else f"an array of shape {part.shape}"
            raise ValueError(f"observation of {got}; expected {expected}, or a batch{self._hint()}")
        batch = batches.pop() or ()
        return np.concatenate([x.reshape((*batch, -1)) for x in found.values()], -1)


class FrameStackPolicy:
    """A policy that remembers the last images of one episode; make a new one after every reset."""

    def __init__(self, policy: Policy):
        self._policy = policy
        self._frames: deque[np.ndarray] = deque(maxlen=policy.stack)

    def act(self, obs: Any) -> np.ndarray:
        """The action for the next observation as the environment gives it: images one by one, channels last."""
        part = self._policy.spaces.obs.parts[0][1]
        if not isinstance(part, Image):
            return self._policy.act(obs)
        expected = (part.height, part.width, part.channels)
        if np.shape(obs) != expected:
            raise ValueError(f"image of shape {np.shape(obs)}; expected {expected}: height, width, channels")
        if np.asarray(obs).dtype != np.uint8:
            raise ValueError(f"image of {np.asarray(obs).dtype}; expected uint8, from 0 to 255")
        frame = np.array(np.moveaxis(np.asarray(obs), -1, 0), order="C")  # a copy: some reuse the image's memory
        self._frames.extend([frame] * (1 if self._frames else part.stack))  # as training begins an episode
        return self._policy.act(np.concatenate(list(self._frames)))


def _batch_shape(x: np.ndarray, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """What comes before that shape; None for an array of another one."""
    at = x.ndim - len(shape)
    return x.shape[:at] if at >= 0 and x.shape[at:] == shape else None


def save_policies(
    run: Path, spaces: Spaces, record: Mapping[str, Any], policies: drq.PolicyNetworks, seeds: list[int]
) -> None:
    """Write a run's `policy/` from the policies of all seeds."""
    stacked = named_arrays(policies)
    by_seed = {seed: {name: x[index] for name, x in stacked.items()} for index, seed in enumerate(seeds)}
    write_policies(run / POLICY_FOLDER, spaces, {**record, "seeds": seeds}, by_seed)


def load(path: str | Path, seed: int | None = None) -> Policy:
    """A policy from a run's folder or its `policy` folder.

    Args:
        path: The folder.
        seed: Which of the run's seeds; by default the one whose last evaluation was best.

    Raises:
        RunFolderError: If there is no such policy.
        DamagedFileError: If a file is not whole.
    """
    record = policy_record(path)
    file, seed = policy_file(path, record, seed)
    config, spaces = config_from_json(record["config"]), spaces_from_json(record["spaces"])
    template = jax.eval_shape(lambda: drq.init_networks(config, spaces, jax.random.key(0)).policy)
    networks = fill_tree(template, read_policy_weights(file, record), str(file))
    return Policy(jax.tree.map(jax.numpy.asarray, networks), record, seed)
