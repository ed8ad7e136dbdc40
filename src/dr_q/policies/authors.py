"""Agents that the authors' code saved, as policies of ours."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from dr_q import __version__
from dr_q import agent as drq
from dr_q.agent.named_arrays import fill_tree, named_arrays
from dr_q.config import Config, preset
from dr_q.envs import make_env
from dr_q.kit import ConfigError, DamagedFileError, RunFolderError, shortened, spelled
from dr_q.networks import actor_from_torch, critic_from_torch, discrete_actor_from_torch, encoder_from_torch
from dr_q.policies.torch_files import read_saved_variables, read_state_dict
from dr_q.run_folder import POLICY_FOLDER, check_new_folder, whole_number, write_policies
from dr_q.spaces import DiscreteActions, Image, Spaces

ENCODER, ACTOR, CRITIC, VARIABLES = "encoder.pt", "policy.pt", "value.pt", "agent_var.npy"
"""Files of the authors' `Agent.save`; the last two may be missing."""
_SETTINGS = {
    "batch_size": "batch_size",
    "discount": "discount",
    "target_update_freq": "target_period",
    "buffer_size_before_training": "exploration_steps",
    "exploration_noise": "exploration_noise",
    "target_policy_noise": "target_noise",
    "noise_clip": "target_noise_clip",
    "dyn_weight": "dynamics_weight",
    "reward_weight": "reward_weight",
    "infonce_weight": "infonce_weight",
    "alpha": "priority_exponent",
    "min_priority": "min_priority",
    "enc_horizon": "encoder_horizon",
    "Q_horizon": "q_horizon",
    "enc_lr": "encoder_learning_rate",
    "enc_wd": "encoder_weight_decay",
    "enc_activ": "encoder_activation",
    "value_lr": "critic_learning_rate",
    "value_wd": "critic_weight_decay",
    "value_activ": "critic_activation",
    "policy_lr": "actor_learning_rate",
    "policy_wd": "actor_weight_decay",
    "policy_activ": "actor_activation",
    "gumbel_tau": "gumbel_temperature",
}
"""The authors' hyperparameters under our names. Sizes of networks are read off the weights."""


class Imported(NamedTuple):
    """An imported agent: what `import_authors` returns."""

    folder: Path
    """The policy folder that was written."""
    task: str
    """Its task, by the name in dr-q."""
    agent_steps: int
    """Agent steps that it was trained for."""
    critics: bool
    """Whether it has critics, from `value.pt`."""


def import_authors(
    folder: str | Path,
    task: str,
    out: str | Path | None = None,
    seed: int = 0,
    agent_steps: int | None = None,
) -> Imported:
    """Read an agent that the authors' code saved, and write it as a policy folder.

    The policy folder has the state encoder and the actor, and the other weights of the online networks that the files
    have: g, M and, with `value.pt`, the critics.

    Args:
        folder: The folder to which the authors' `Agent.save` wrote.
        task: The task that it was trained on, by its name in dr-q. Its environment gives the spaces.
        out: The new policy folder. Default: `policy` in the folder.
        seed: The seed under which the policy is stored.
        agent_steps: Agent steps that it was trained for. Default: an estimate from `agent_var.npy`, updates plus
            exploration steps; 0 without that file.

    Returns:
        `folder` (the policy folder), `task`, `agent_steps`, and `critics`: whether there were critics.

    Raises:
        RunFolderError: A file is missing, the weights are of another environment, or `out` is not empty.
        DamagedFileError: A file cannot be read.
        TaskError: There is no such task.

    Example:
        ```python
        dr_q.import_authors("checkpoint/DRQ+Dmc-walker-run+0", "dmc/walker-run", "walker")
        ```
    """
    folder = Path(folder)
    out = folder / POLICY_FOLDER if out is None else Path(out)
    check_new_folder(out)
    arrays = {name: _read(folder, name) for name in (ENCODER, ACTOR)}
    critic = read_state_dict(folder / CRITIC) if (folder / CRITIC).exists() else None
    saved = read_saved_variables(folder / VARIABLES) if (folder / VARIABLES).exists() else {}
    env = make_env(task)
    spaces = env.spec.spaces
    env.close()
    _check_spaces(folder, task, spaces, arrays)
    config = _config(folder, arrays, critic, saved.get("hp", {}))
    if agent_steps is None:
        updates = whole_number(saved.get("training_steps", 0))
        if updates is None or updates < 0:
            got = shortened(saved["training_steps"])
            raise DamagedFileError(f"{folder / VARIABLES}: training_steps must be a whole number, got {got}")
        agent_steps = updates + config.exploration_steps if updates else 0
    weights = _weights(folder, config, spaces, arrays, critic)
    record = {
        "task": task,
        "preset": "dr.q",
        "noise_dims": 0,
        "agent_steps": agent_steps,
        "seeds": [seed],
        "best_seed": seed,
        "config": dataclasses.asdict(config),
        "imported": __version__,
        **_reward_scale(folder, saved),
    }
    write_policies(out, spaces, record, {seed: weights})
    return Imported(out, task, agent_steps, critic is not None)


def _reward_scale(folder: Path, saved: Mapping[str, Any]) -> dict[str, float]:
    """The unit of the critics' values: the mean absolute reward of the replay that they last learnt from."""
    if "reward_scale" not in saved:
        return {}
    try:
        scale = float(saved["reward_scale"])
    except (TypeError, ValueError):
        scale = math.nan
    if not (math.isfinite(scale) and scale > 0):
        raise DamagedFileError(f"{folder / VARIABLES}: reward_scale must be a number above 0")
    return {"reward_scale": scale}


def _read(folder: Path, name: str) -> dict[str, np.ndarray]:
    if not (folder / name).is_file():
        raise RunFolderError(
            f"no {name} in {folder}; give the folder that the authors' Agent.save wrote: {ENCODER}, {ACTOR}, {CRITIC}"
        )
    return read_state_dict(folder / name)


def _check_spaces(folder: Path, task: str, spaces: Spaces, arrays: Mapping[str, dict[str, np.ndarray]]) -> None:
    """Refuse weights whose inputs and outputs are not the task's."""
    encoder, actor = arrays[ENCODER], arrays[ACTOR]
    if len(spaces.obs.parts) != 1:
        raise RunFolderError(f"{task} observes several parts; the authors' code has policies of one vector or image")
    part = dict(spaces.obs.parts).popitem()[1]
    first = "zs_cnn1.weight" if isinstance(part, Image) else "zs_mlp.l1.weight"
    kind = "images" if "zs_cnn1.weight" in encoder else "vectors"
    if first not in encoder:
        raise RunFolderError(
            f"the agent in {folder} observes {kind}, {task} gives others; choose another {spelled('task')}"
        )
    taken, given = encoder[first].shape[1], part.shape[0]
    if "policy.l3.bias" not in actor:
        raise DamagedFileError(f"{folder / ACTOR} is not of the authors' agent: it has no array policy.l3.bias")
    gives = actor["policy.l3.bias"].size
    if (taken, gives) != (given, spaces.action.dim):
        raise RunFolderError(
            f"the agent in {folder} takes {taken} and gives {gives} numbers ({kind}); {task} gives {given} and takes "
            f"{spaces.action.dim}; choose another {spelled('task')}"
        )


def _config(
    folder: Path,
    arrays: Mapping[str, dict[str, np.ndarray]],
    critic: Mapping[str, np.ndarray] | None,
    hyperparameters: Any,
) -> Config:
    """The settings of the authors' agent: sizes from its weights, the others as saved or as in their code."""
    encoder, actor = arrays[ENCODER], arrays[ACTOR]
    try:
        zs_dim = actor["policy.l1.weight"].shape[1]
        sizes = {
            "zs_dim": zs_dim,
            "za_dim": encoder["za.weight"].shape[0],
            "zsa_dim": encoder["zsa.l3.weight"].shape[0],
            "encoder_hidden": encoder["zsa.l1.weight"].shape[0],
            "actor_hidden": actor["policy.l1.weight"].shape[0],
            "reward_bins": encoder["model.weight"].shape[0] - zs_dim - 1,
        }
        if critic is not None:
            sizes["critic_hidden"] = critic["q1.q1.l1.weight"].shape[0]
    except KeyError as error:
        raise DamagedFileError(f"{folder} has no array {error}: it was not saved by the authors' DR.Q agent") from None
    found = hyperparameters if isinstance(hyperparameters, dict) else {}
    given: dict[str, Any] = {ours: found[theirs] for theirs, ours in _SETTINGS.items() if theirs in found}
    if "lower" in found and "upper" in found:
        given["reward_range"] = (found["lower"], found["upper"])
    try:
        return preset("dr.q", **sizes, **given)
    except ConfigError as error:
        raise DamagedFileError(f"{folder / VARIABLES} has a setting that dr-q does not have: {error}") from error


def _weights(
    folder: Path,
    config: Config,
    spaces: Spaces,
    arrays: Mapping[str, dict[str, np.ndarray]],
    critic: Mapping[str, np.ndarray] | None,
) -> dict[str, np.ndarray]:
    """The arrays of a policy's file, then those that `Networks` has besides, under its names."""
    try:
        encoder = encoder_from_torch(
            arrays[ENCODER],
            reward_bins=config.reward_bins,
            predict_done=config.predict_done,
            activation=config.encoder_activation,
        )
        if isinstance(spaces.action, DiscreteActions):
            choices = spaces.action.choices
            actor = discrete_actor_from_torch(arrays[ACTOR], choices=choices, activation=config.actor_activation)
        else:
            actor = actor_from_torch(arrays[ACTOR], activation=config.actor_activation)
        critics = None if critic is None else critic_from_torch(critic, activation=config.critic_activation)
    except KeyError as error:
        raise DamagedFileError(f"{folder} has not all weights of the authors' agent: {error.args[0]}") from None
    whole = jax.eval_shape(lambda: drq.init_networks(config, spaces, jax.random.key(0)))
    checked = [
        (drq.PolicyNetworks(encoder.state, actor), whole.policy, ""),
        (encoder.state_action, whole.encoder.state_action, "encoder.state_action."),
        (encoder.predictor, whole.encoder.predictor, "encoder.predictor."),
        (critics, whole.critic if critics is not None else None, "critic."),
    ]
    found: dict[str, np.ndarray] = {}
    for ours, template, where in checked:
        named = named_arrays(ours)
        fill_tree(template, named, str(folder))  # refuses other shapes
        found |= {f"{where}{name}": np.asarray(x, np.float32) for name, x in named.items()}
    return found
