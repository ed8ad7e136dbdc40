"""Policies: what is left of a run when only acting matters (encoder f and actor)."""

import warnings
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from dr_q import agent as drq
from dr_q.agent.named_arrays import fill_tree, named_arrays
from dr_q.config import config_from_json
from dr_q.run_folder import (
    BEST_FOLDER,
    POLICY_FOLDER,
    policy_file,
    policy_folder,
    policy_record,
    read_policy_weights,
    write_policies,
)
from dr_q.spaces import (
    SINGLE,
    Image,
    Part,
    Spaces,
    Vector,
    at_path,
    one_hot,
    spaces_from_json,
    spaces_to_json,
    to_env_action,
)

_act = jax.jit(lambda networks, obs: networks(obs))


class Policy:
    """A trained policy. `act` takes observations and returns actions in the environment's own units.

    `dr_q.load` makes one, and so do the events of callbacks.

    Example:
        ```python
        policy = dr_q.load("runs/reach")
        obs, _ = env.reset(seed=0)
        obs, reward, terminated, truncated, _ = env.step(policy.act(obs))
        ```
    """

    def __init__(self, networks: drq.PolicyNetworks, record: Mapping[str, Any], seed: int):
        self._networks = networks
        self.record: dict[str, Any] = dict(record)
        """The contents of its folder's `policy.json`: task, config, agent_steps and more."""
        self.spaces: Spaces = spaces_from_json(record["spaces"])
        """Its observations and actions."""
        self._to_env = to_env_action(self.spaces.action)
        self.task: str = record["task"]
        """The task that it was trained on."""
        self.seed: int = seed
        """Its seed in the run."""
        self.noise_dims: int = record.get("noise_dims", 0)
        """Dimensions of noise at the end of its observations (the setting `noise_dims`)."""
        own = {int(s): steps for s, steps in record.get("agent_steps_of", {}).items()}
        self.agent_steps: int = own.get(seed, record["agent_steps"])
        """Agent steps that it was trained for."""
        self.which: Literal["last", "best"] = "best" if own else "last"
        """`"last"`: the policy of the run's last evaluation. `"best"`: the best policy of its seed over time."""
        self.returns: dict[int, float] = {int(s): float(x) for s, x in record.get("returns", {}).items()}
        """Mean return of each seed of the run, at the evaluation whose policy of that seed was saved."""
        self.fresh_returns: dict[int, float] = {int(s): float(x) for s, x in record.get("fresh_returns", {}).items()}
        """Mean return of each seed's best policy on fresh episodes at the end of the run. `returns` of best policies
        are too high on average, because the policies were chosen for them. Empty for `which="last"`."""

    def __repr__(self) -> str:
        """What it is: task, which of the run's policies, step and seed."""
        what = "best over time" if self.which == "best" else "last evaluation"
        return f"<dr_q.Policy of {self.task}: {what}, step {self.agent_steps:,}, seed {self.seed}>"

    @property
    def networks(self) -> drq.PolicyNetworks:
        """Its networks: the state encoder f, the actor, and the normaliser of observations if there is one."""
        return self._networks

    @property
    def obs_shape(self) -> tuple[int, ...]:
        """Shape of one observation, for policies with one part.

        Raises:
            ValueError: Observations have several parts. `spaces.obs` has their shapes.
        """
        shapes = {name: part.shape for name, part in self.spaces.obs.parts}
        if len(shapes) > 1:
            raise ValueError(f"observations have several parts, {shapes}; see policy.spaces.obs")
        (only,) = shapes.values()
        return only

    @property
    def stack(self) -> int:
        """Frames that are stacked in one observation; 1 for vectors."""
        return self.spaces.obs.stack

    @property
    def history(self) -> int:
        """The old name of `stack`."""
        return self.stack

    def episode(self) -> "FrameStackPolicy":
        """The same policy for one episode. It takes images one by one and stacks them.

        Returns:
            A policy that remembers the last frames. Make a new one after every reset.
        """
        return FrameStackPolicy(self)

    def act(self, obs: Any) -> Any:
        """The action for one observation, or the actions for a batch, in the environment's own units.

        Args:
            obs: An observation as the environment gives it, or a batch with a leading axis. Images are the last
                `stack` frames, stacked along the channel axis, oldest first, channels first. `episode()` stacks them
                for you.

        Returns:
            The action without exploration noise, or a batch of actions: float32, or int64 for choices. One `Discrete`
            action is a number (`np.int64`).

        Raises:
            ValueError: The observation has other parts, another shape or another data type than those of `spaces.obs`.
        """
        return self._to_env(self.act_unit(obs))

    def act_unit(self, obs: Any) -> np.ndarray:
        """The action, or the actions of a batch, as the networks return them.

        Args:
            obs: As in `act`.

        Returns:
            A vector in [-1, 1], or a one-hot vector for discrete actions; a batch of them for a batch.

        Raises:
            ValueError: The observation has other parts, another shape or another data type than those of `spaces.obs`.
        """
        arrays = self.parts_of(obs)
        batches = {_batch_shape(x, self.spaces.obs[name].shape) for name, x in arrays.items()}
        if len(batches) > 1:
            raise ValueError(f"observation of {_shapes(arrays)}; expected one of each part, or batches of one size")
        (batch,) = batches
        actions = self.act_parts({name: x if batch else x[None] for name, x in arrays.items()})
        return actions if batch else actions[0]

    def parts_of(self, obs: Any) -> dict[str, np.ndarray]:
        """The parts of an observation, or of a batch, as arrays that the networks take.

        Args:
            obs: As in `act`.

        Returns:
            An array for each part of `spaces.obs`.

        Raises:
            ValueError: The observation has other parts, another shape or another data type than those of `spaces.obs`.
        """
        return {name: self._array(name, part, obs) for name, part in self.spaces.obs.parts}

    def act_parts(self, obs: Mapping[str, np.ndarray]) -> np.ndarray:
        """The actions for a batch of observations that is given by part, as `dr_q.envs` gives it.

        Args:
            obs: An array [B, ...] for each part of `spaces.obs`.

        Returns:
            Actions [B, A] in [-1, 1], or one-hot.
        """
        return np.asarray(_act(self._networks, dict(obs)))

    def _array(self, name: str, part: Part, obs: Any) -> np.ndarray:
        """One part of an observation, or of a batch, as networks take it."""
        if isinstance(obs, tuple) and len(obs) == 2 and isinstance(obs[1], dict) and not self._takes_tuples:
            raise ValueError("got a tuple of two, the second a dict: give the observation alone, obs, _ = env.reset()")
        given = self.entry(name, obs)
        x = np.asarray(given) if isinstance(part, Image) else self._joined(part, given)
        batch = _batch_shape(x, part.shape)
        of = "" if name == SINGLE else f" '{name}'"
        if batch is None or len(batch) > 1:
            raise ValueError(f"observation{of} of shape {x.shape}; expected {part.shape}, or a batch{self._hint(part)}")
        if isinstance(part, Image) and x.dtype != np.uint8:
            raise ValueError(f"images{of} of {x.dtype}; expected uint8, from 0 to 255")
        return np.asarray(x, part.dtype)

    @property
    def _takes_tuples(self) -> bool:
        """Whether the environment's observation space is a Tuple: the first of its entries is at the path 0."""
        parts = self.spaces.obs.parts
        inner = [path for _, part in parts if isinstance(part, Vector) for path, _ in part.fields]
        return any(path.partition("/")[0] == "0" for path in [*(name for name, _ in parts), *inner])

    def entry(self, name: str, obs: Any) -> Any:
        """The entry of the environment's observation that belongs to a part, or all of it.

        Args:
            name: Name of the part.
            obs: An observation as the environment gives it.

        Returns:
            The entry.

        Raises:
            ValueError: The observation has no such entry.
        """
        alone = len(self.spaces.obs.parts) == 1 and name == SINGLE
        if alone and not (isinstance(self.spaces.obs[name], Image) and isinstance(obs, Mapping)):
            return obs
        try:
            return at_path(obs, name)
        except KeyError:
            got = ", ".join(map(str, obs)) if isinstance(obs, Mapping) else f"{type(obs).__name__}"
        names = ", ".join(name for name, _ in self.spaces.obs.parts)
        raise ValueError(f"observation without '{name}': got {got}; expected {names}")

    def _hint(self, part: Part) -> str:
        if part.stack > 1:
            return f"; of images the last {part.stack}, channels first: policy.episode().act(image) stacks them"
        named = [f"{path} {tuple(shape)}" for path, shape in getattr(part, "fields", ()) if path]
        if named:
            return f"; its entries are {', '.join(named)}: give them by name, as the environment does"
        if isinstance(part, Vector) and not part.fields:
            return "; of a Dict or a matrix give gymnasium.spaces.flatten(env.observation_space, obs)"
        return ""

    def _joined(self, part: Vector, obs: Any) -> np.ndarray:
        """Vectors of what may be a Dict, a Tuple, choices, or no vector."""
        fields = dict(part.fields)
        if "" in fields and not isinstance(obs, Mapping):
            whole = np.asarray(obs)
            batch = _batch_shape(whole, fields[""])
            return whole if batch is None else _expand(part, "", whole, batch)
        nested = isinstance(obs, Mapping) or (isinstance(obs, tuple | list) and _has_all(obs, fields))
        if not nested:
            named = [f"{path} {tuple(shape)}" for path, shape in fields.items() if path]
            if named[1:]:  # another order of the same length would go unnoticed
                warnings.warn(
                    f"a flat observation is taken in the order {', '.join(named)}; give its entries by name, as the "
                    "environment does",
                    stacklevel=5,
                )
            return np.asarray(obs)
        found = {key: _numbers(key, at_path(obs, key)) for key in fields if _has_all(obs, [key])}
        batches = {_batch_shape(x, fields[key]) for key, x in found.items()}
        if len(found) < len(fields) or len(batches) != 1 or None in batches:
            got = _shapes(obs) if isinstance(obs, Mapping) else [np.shape(x) for x in obs]
            expected = fields if "" not in fields and fields else f"an array of shape {part.shape}"
            raise ValueError(f"observation of {got}; expected {expected}, or a batch{self._hint(part)}")
        batch = batches.pop() or ()
        return np.concatenate([_expand(part, key, x, batch) for key, x in found.items()], -1)


class FrameStackPolicy:
    """A policy that remembers the last images of one episode. `Policy.episode` makes one; make a new one after a reset.

    Example:
        ```python
        policy = dr_q.load("runs/pixels")
        obs, _ = env.reset(seed=0)
        playing = policy.episode()
        action = playing.act(obs)  # one image, as the environment gives it
        ```
    """

    def __init__(self, policy: Policy):
        self._policy = policy
        parts = dict(policy.spaces.obs.parts)
        self._images = {name: part for name, part in parts.items() if isinstance(part, Image)}
        self._frames: dict[str, deque[np.ndarray]] = {
            name: deque(maxlen=part.stack) for name, part in self._images.items()
        }

    def act(self, obs: Any) -> Any:
        """The action for the next observation of the episode.

        Args:
            obs: The observation as the environment gives it, with images of (height, width, channels). A batch is not
                allowed for images.

        Returns:
            The action in the environment's own units.

        Raises:
            ValueError: The observation has other parts, another shape or another data type than the policy needs.
        """
        if not self._images:
            return self._policy.act(obs)
        given = {name: self._policy.entry(name, obs) for name, _ in self._policy.spaces.obs.parts}
        stacked = {name: self._stacked(name, given[name]) for name in self._images}
        return self._policy.act({**given, **stacked})

    def _stacked(self, name: str, image: Any) -> np.ndarray:
        """The last images with this one."""
        part, frames = self._images[name], self._frames[name]
        expected = (part.height, part.width, part.channels)
        of = "" if name == SINGLE else f" '{name}'"
        if np.shape(image) != expected:
            raise ValueError(f"image{of} of shape {np.shape(image)}; expected {expected}: height, width, channels")
        if np.asarray(image).dtype != np.uint8:
            raise ValueError(f"image{of} of {np.asarray(image).dtype}; expected uint8, from 0 to 255")
        frame = np.array(np.moveaxis(np.asarray(image), -1, 0), order="C")  # a copy: some reuse the image's memory
        frames.extend([frame] * (1 if frames else part.stack))  # as training begins an episode
        return np.concatenate(list(frames))


def _expand(part: Vector, path: str, x: np.ndarray, batch: tuple[int, ...]) -> np.ndarray:
    """A field as vectors, [*batch, n]."""
    flat = x.reshape((*batch, -1))
    for at, choices, start in part.choices:
        if at == path:
            return one_hot(flat, choices, start)
    return flat


def _numbers(key: str, x: Any) -> np.ndarray:
    """An entry of an observation as an array."""
    try:
        return np.asarray(x, np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"observation '{key}' is no array of numbers: {error}") from None


def _has_all(obs: Any, paths: Iterable[str]) -> bool:
    try:
        for path in paths:
            at_path(obs, path)
    except KeyError:
        return False
    return True


def _shapes(obs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _shapes(x) if isinstance(x, Mapping) else np.shape(x) for key, x in obs.items()}


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


def save_best_policies(
    run: Path, spaces: Spaces, record: Mapping[str, Any], by_seed: Mapping[int, Mapping[str, np.ndarray]]
) -> None:
    """Write a run's `policy/best`: the record of all seeds, and the weights of those given."""
    write_policies(run / POLICY_FOLDER / BEST_FOLDER, spaces, record, by_seed)


def policy_of_seed(
    policies: drq.PolicyNetworks, index: int, seed: int, spaces: Spaces, record: Mapping[str, Any]
) -> Policy:
    """The policy of one seed, from those of all."""
    networks = jax.tree.map(lambda x: jax.numpy.asarray(np.asarray(x)[index]), policies)
    return Policy(networks, {**record, "spaces": spaces_to_json(spaces)}, seed)


def load(path: str | Path, seed: int | None = None, which: Literal["last", "best"] = "last") -> Policy:
    """Load a policy from the folder of a run, its `policy` folder, or an exported policy.

    Args:
        path: The folder.
        seed: One of the run's seeds. Default: the seed whose last evaluation was best, for both values of `which`.
        which: `"last"`: the policy of the last evaluation. `"best"`: the policy of the evaluation of this seed with the
            highest return.

    Returns:
        The policy. Its `agent_steps`, `seed` and `which` say which one it is.

    Raises:
        ConfigError: `which` is neither `"last"` nor `"best"`, or another version of dr-q made the policy.
        RunFolderError: The folder has no policy, no such seed or no best policy.
        DamagedFileError: A file is damaged.

    Example:
        ```python
        policy = dr_q.load("runs/walker")
        best = dr_q.load("runs/walker", seed=2, which="best")
        print(best.agent_steps, best.returns[2])
        ```
    """
    path = policy_folder(path, which)
    record = policy_record(path)
    file, seed = policy_file(path, record, seed)
    config, spaces = config_from_json(record["config"]), spaces_from_json(record["spaces"])
    template = jax.eval_shape(lambda: drq.init_networks(config, spaces, jax.random.key(0)).policy)
    networks = fill_tree(template, read_policy_weights(file, record), str(file))
    return Policy(jax.tree.map(jax.numpy.asarray, networks), record, seed)
