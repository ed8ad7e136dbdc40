"""Starting from the weights of an agent that exists (`init`): of a run's checkpoint, or of a policy."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dr_q.agent.named_arrays import named_arrays
from dr_q.config import Config, config_from_json
from dr_q.kit import ConfigError, DamagedFileError, RunFolderError, spelled
from dr_q.learner import LearnerSpec
from dr_q.learner.learner import REWARD_SCALE
from dr_q.learner.saving import load_agents
from dr_q.policies.card import steps_taken
from dr_q.run_folder import (
    Checkpoints,
    is_run,
    policy_file,
    policy_record,
    read_policy_weights,
    read_run_json,
    step_of_seed,
)
from dr_q.spaces import Spaces, spaces_from_json

_SHAPING = (
    "zs_dim", "zsa_dim", "za_dim", "encoder_hidden", "encoder_activation", "actor_hidden", "actor_activation",
    "normalise_observations",
)  # fmt: skip
"""Settings that decide what a policy's weights mean."""
_SHAPING_MODEL = ("reward_bins", "reward_range")
"""Besides, of the latent model."""
_SHAPING_CRITICS = ("critic_hidden", "critic_activation")
"""Besides, of critics."""
_SHAPING_ALL = (*_SHAPING, *_SHAPING_MODEL, *_SHAPING_CRITICS)
"""Of a whole agent."""


class InitialWeights(NamedTuple):
    """What agents begin with."""

    arrays: dict[str, np.ndarray]
    """By the names of `Networks`, [S, ...]."""
    record: dict[str, Any]
    """For run.json."""

    @property
    def line(self) -> str:
        """What was taken and what is fresh."""
        record = self.record
        seeds = ", ".join(f"{own} from {other}" for own, other in record["seeds"].items())
        at = ", ".join(f"{step:,}" for step in steps_taken(record))
        return (
            f"weights of {record['source']}, {record['task']} at step {at}: {record['taken']} (seed {seeds}); "
            f"fresh: {record['fresh']}"
        )


def read_initial_weights(source: str, config: Config, spaces: Spaces, seeds: Sequence[int]) -> InitialWeights:
    """The weights that `init` names.

    A run gives the agents of its newest whole checkpoint, critics included. A policy, or a run without a checkpoint,
    gives the state encoder and the actor, and what else its file has: one of `dr-q import-authors` has all networks.
    A seed takes the weights of the source's seed of the same number; if the
    source does not have all of them, every seed takes its best seed's.

    Args:
        source: A run's folder, or a policy's.
        config: Of the new run.
        spaces: Of its environment.
        seeds: Of the new run.

    Raises:
        RunFolderError: There is no such thing, or it is of another environment.
        ConfigError: The new run has networks of another kind.
    """
    path = Path(source)
    if not os.path.isdir(source):  # noqa: PTH112 - False, too, for what can be no path
        raise RunFolderError(f"{spelled('init')} {source} is not a folder; give a run's folder or a policy's")
    record = policy_record(path)
    _check_spaces(source, spaces_from_json(record["spaces"]), spaces, record["task"])
    taken = _from_checkpoint(path, record, config, spaces, seeds) if is_run(path) else None
    if taken is None:
        taken = _from_policy(path, record, config, seeds)
    digest = hashlib.sha256()
    for name in sorted(taken.arrays):
        digest.update(name.encode() + np.ascontiguousarray(taken.arrays[name]).tobytes())
    about = {"source": source, "task": record["task"], **taken.record, "sha256": digest.hexdigest()}
    return InitialWeights(taken.arrays, about)


def seeds_of_source(seeds: Sequence[int], there: Sequence[int], best: int) -> dict[int, int]:
    """Which of the source's seeds each seed takes: the same number, or the best where one is missing."""
    same = set(seeds) <= set(there)
    return {seed: seed if same else best for seed in seeds}


def _from_checkpoint(
    path: Path, record: Mapping[str, Any], config: Config, spaces: Spaces, seeds: Sequence[int]
) -> InitialWeights | None:
    info = read_run_json(path, "seeds")
    checkpoints = Checkpoints(path, info["seeds"])
    was = config_from_json(info["settings"].get("config"))
    for step in reversed(checkpoints.steps()):
        try:
            stored = checkpoints.read(step)
            agents = load_agents(stored, LearnerSpec(was, spaces.sizes(), stored.capacity))
        except DamagedFileError:
            continue
        _check_config(str(path), was, config, _SHAPING_ALL)
        of_seed = seeds_of_source(seeds, stored.seeds, record["best_seed"])
        rows = [stored.seeds.index(of_seed[seed]) for seed in seeds]
        arrays = {name: x[rows] for name, x in named_arrays(agents.online).items()}
        arrays[REWARD_SCALE] = np.asarray(agents.reward_scale)[rows]
        about = {
            "kind": "checkpoint",
            "agent_steps": step,
            "seeds": {str(seed): of_seed[seed] for seed in seeds},
            "taken": "encoder, actor, critics",
            "fresh": "optimisers, replay",
        }
        return InitialWeights(arrays, about)
    return None


def _from_policy(path: Path, record: Mapping[str, Any], config: Config, seeds: Sequence[int]) -> InitialWeights:
    of_seed = seeds_of_source(seeds, record["seeds"], record["best_seed"])
    weights = [read_policy_weights(policy_file(path, record, of_seed[seed])[0], record) for seed in seeds]
    model, critics = (any(name.startswith(part) for name in weights[0]) for part in ("encoder.", "critic."))
    shaping = (*_SHAPING, *(_SHAPING_MODEL if model else ()), *(_SHAPING_CRITICS if critics else ()))
    _check_config(str(path), config_from_json(record["config"]), config, shaping)
    arrays = {
        f"encoder.{name}" if name.startswith("state.") else name: np.stack([w[name] for w in weights])
        for name in weights[0]
    }
    if critics:
        arrays[REWARD_SCALE] = np.full(len(seeds), record.get("reward_scale", 1.0), np.float32)
    steps = {str(seed): step_of_seed(record, of_seed[seed]) for seed in seeds}
    latent, values = "latent model g and M", "critics"
    about = {
        "kind": "policy only" if not (model or critics) else "policy with other networks",
        "agent_steps": max(steps.values()),
        **({"agent_steps_of": steps} if len(set(steps.values())) > 1 else {}),
        "seeds": {str(seed): of_seed[seed] for seed in seeds},
        "taken": ", ".join(("state encoder f, actor", *([latent] if model else []), *([values] if critics else []))),
        "fresh": ", ".join(([] if model else [latent]) + ([] if critics else [values]) + ["optimisers", "replay"]),
    }
    return InitialWeights(arrays, about)


def _check_spaces(source: str, there: Spaces, here: Spaces, task: str) -> None:
    if there.sizes() == here.sizes():
        return
    what, got, expected = "actions", there.action, here.action
    if there.sizes().obs != here.sizes().obs:
        what, got, expected = "observations", there.obs, here.obs
    raise RunFolderError(
        f"{spelled('init')} {source} is an agent of {task} with {what} {described(got)}; this environment's are "
        f"{described(expected)}: choose an agent of the same spaces"
    )


def described(spec: Any) -> str:
    """A space in few words: sizes and kinds."""
    if hasattr(spec, "parts"):
        return ", ".join(described for name, part in spec.parts for described in _entries(name, part))
    if not hasattr(spec, "low"):
        return f"of choices {spec.choices}"
    return f"of {len(spec.low)} number{'s' if len(spec.low) > 1 else ''}"


def _entries(name: str, part: Any) -> list[str]:
    """A part, or the entries of a Dict that are joined in it."""
    fields = [(path, shape) for path, shape in getattr(part, "fields", ()) if path]
    return [f"{path} {tuple(shape)}" for path, shape in fields] or [f"{name} {part.shape}"]


def _check_config(source: str, there: Config, here: Config, names: Sequence[str]) -> None:
    differing = [name for name in names if getattr(there, name) != getattr(here, name)]
    if differing:
        got = ", ".join(f"{spelled(name)} {_words(getattr(here, name))}" for name in differing)
        raise ConfigError(f"{spelled('init')} {source} has other networks than {got}: give {_given(there, differing)}")


def _given(config: Config, names: Sequence[str]) -> str:
    """Settings as they are given: on the command line, or in Python."""
    if spelled("init").startswith("--"):
        return " ".join(f"{spelled(name)} {_words(getattr(config, name))}" for name in names)
    return ", ".join(f"{name}={getattr(config, name)!r}" for name in names)


def _words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
