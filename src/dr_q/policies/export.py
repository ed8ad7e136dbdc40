"""A policy to give away: encoder f and actor of one seed in one of several forms, with a card that says what it is."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import jax
import numpy as np

from dr_q.agent.named_arrays import fill_tree, named_arrays
from dr_q.kit import ConfigError, RunFolderError, ToolError, full_path, spelled
from dr_q.policies.card import CardFacts, model_card
from dr_q.policies.policy import Policy, load
from dr_q.policies.portable.check import (
    LARGEST_DIFFERENCE,
    LARGEST_FLOAT16_DIFFERENCE,
    Difference,
    Latency,
    compare_networks,
    compare_with_policy,
    latency,
    own_rounding,
    sample_observations,
    timed,
)
from dr_q.policies.portable.forms import check_packages, open_form, write_form
from dr_q.policies.portable.model import Precision, portable_policy
from dr_q.policies.watch import PlayedEpisodes, evaluate_loaded
from dr_q.report import read_results
from dr_q.report.results import changes_of, train_command
from dr_q.run_folder import check_new_folder, policy_file, policy_folder, read_run_json, run_of_policy, write_policies
from dr_q.settings import callable_name

Format = Literal["safetensors", "onnx", "numpy", "torch"]
_MOST_SEEN = 500
"""Observations of the card's episodes that are kept to compare the export on."""


class Exported(NamedTuple):
    """An exported policy: what `export_policy` returns."""

    folder: Path
    """Where the files are."""
    seed: int
    """Whose policy it is."""
    size: int
    """Bytes of the weights."""
    played: PlayedEpisodes | None
    """Fresh episodes with these weights; None if none were asked for."""
    difference: float
    """Largest difference from dr-q's actions in [-1, 1] with the same weights; for logits, relative to the largest."""
    rounding: float | None
    """Largest difference from dr-q's actions before the weights were rounded to float16; None for float32."""
    latency: Latency
    """Time of one action on this machine."""

    @property
    def returns(self) -> np.ndarray | None:
        """The returns of the episodes."""
        return None if self.played is None else self.played.returns


def export_policy(
    path: str | Path,
    out: str | Path,
    seed: int | None = None,
    precision: Precision = "float32",
    episodes: int = 10,
    form: Format = "safetensors",
    which: Literal["last", "best"] = "last",
) -> Exported:
    """Write a run's policy to a new folder, with a model card.

    The written files are read again and compared with the policy on 1,000 observations. If anything fails, no folder is
    left.

    Args:
        path: A run's folder, or a policy folder.
        out: The new folder.
        seed: One of the run's seeds. Default: the seed whose last evaluation was best.
        precision: Data type of the weights, `"float32"` or `"float16"`. Actions are always computed in float32.
        episodes: Number of fresh episodes to play with these weights, for the card; 0 for none.
        form: `"safetensors"` for dr-q itself; `"onnx"`, `"numpy"` and `"torch"` for use without dr-q.
        which: `"last"`: the policy of the run's last evaluation. `"best"`: the best policy of its seed over time.

    Returns:
        `folder`, `seed`, `size` (bytes of the weights), `played` (episodes), `difference` (of actions) and `latency`.

    Raises:
        ConfigError: `form` or `precision` is unknown, or the episodes need an environment that only your code makes.
        RunFolderError: The folder has no policy or no such seed, or `out` is not empty.
        MissingPackageError: The package for this form is not installed.
        ToolError: The export's actions differ from the policy's by more than is allowed.

    Example:
        ```python
        dr_q.export_policy("runs/pendulum", "pendulum", form="onnx", which="best")
        ```
    """
    path, out = Path(path), Path(out)
    check_choice("form", form, get_args(Format))
    check_choice("precision", precision, get_args(Precision))
    check_new_folder(out)
    if form != "safetensors":
        check_packages(form)
    path = policy_folder(path, which)
    policy = load(path, seed)  # refuses weights of another version
    if episodes and callable_name(policy.task):
        raise ConfigError(
            f"{policy.task} can only be made by your own code, so it cannot be evaluated here; "
            f"give {spelled('episodes')} 0"
        )
    training = _training(path, policy.seed, policy.agent_steps)
    policy.record |= {"training": training} if training else {}
    written = _rounded(policy, precision, path)
    seen = _Seen(written)
    part = full_path(out).with_name(f".{out.name}.part")  # there whole or not at all: an evaluation may fail
    shutil.rmtree(part, ignore_errors=True)
    try:
        played = evaluate_loaded(seen, episodes) if episodes else None
        observations = sample_observations(written, seen.observations)
        size, difference, took = _write(written, form, precision, part, observations)
        rounding = compare_networks(policy, written, observations).largest if precision == "float16" else None
        said = _checked(form, difference, LARGEST_DIFFERENCE + own_rounding(written, observations), rounding)
        facts = CardFacts(form, precision, size, played, said)
        (part / "README.md").write_text(model_card(written, facts))
        part.replace(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Exported(out, policy.seed, size, played, difference.largest, rounding, took)


def check_choice(name: str, value: str, allowed: Sequence[str]) -> None:
    """ConfigError for an argument that is none of these."""
    if value not in allowed:
        raise ConfigError(f"{name} must be {', '.join(allowed[:-1])} or {allowed[-1]}, got {value!r}")


def _rounded(policy: Policy, precision: Precision, path: Path) -> Policy:
    """The policy with the weights that are written."""
    weights = named_arrays(policy.networks)
    with np.errstate(over="ignore"):  # it is said below, in words
        rounded = {name: _in_precision(name, x, precision) for name, x in weights.items()}
    for name, x in rounded.items():
        if not np.isfinite(weights[name]).all():
            raise RunFolderError(
                f"seed {policy.seed} has diverged: {name} of {path} is NaN or infinite; "
                f"choose another {spelled('seed')}"
            )
        if not np.isfinite(x).all():
            raise ConfigError(f"{name} of {path} is NaN or infinite in {precision}; use {spelled('precision')} float32")
    networks = fill_tree(policy.networks, rounded, str(path))
    return Policy(jax.tree.map(jax.numpy.asarray, networks), policy.record, policy.seed)


def _in_precision(name: str, x: np.ndarray, precision: Precision) -> np.ndarray:
    """An array as it is written: what normalises observations stays as it is, its numbers may be large."""
    return x if name.startswith("normaliser.") else x.astype(precision)


def _write(
    policy: Policy, form: Format, precision: Precision, folder: Path, observations: Mapping[str, np.ndarray]
) -> tuple[int, Difference, Latency]:
    """Write a form; gives the weights' bytes, how what was written differs from the policy, and its latency."""
    if form == "safetensors":
        weights = {name: _in_precision(name, x, precision) for name, x in named_arrays(policy.networks).items()}
        own = {"best_seed": policy.seed, "seeds": [policy.seed], "agent_steps": policy.agent_steps}
        record = {**policy.record, **own}
        write_policies(folder, policy.spaces, record, {policy.seed: weights})
        again = load(folder)
        one = {name: x[:1] for name, x in observations.items()}
        size = policy_file(folder, again.record, None)[0].stat().st_size
        return size, compare_networks(policy, again, observations), timed(lambda: again.act_parts(one))
    portable = portable_policy(policy, precision)
    weights_file, *_ = write_form(form, portable, folder)
    runner = open_form(form, folder)
    difference = compare_with_policy(policy, portable.spec, runner, observations)
    took = latency(portable.spec, runner, policy.spaces.obs, observations)
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    return weights_file.stat().st_size, difference, took


def _checked(form: Format, difference: Difference, allowed: float, rounding: float | None) -> str:
    """What was compared, in a sentence.

    Raises:
        ToolError: If the export is another policy.
    """
    if difference.largest > allowed:
        raise ToolError(
            f"the export in {form} was not kept: its actions differ from the policy's by up to "
            f"{difference.largest:.1e}, allowed are {allowed:.1e}; use another {spelled('format')}"
        )
    said = (
        f"On {difference.observations:,} observations the actions of this export differ by at most "
        f"{difference.largest:.1e} from the policy's, computed in float64; those of dr-q's own float32 policy by "
        f"{allowed - LARGEST_DIFFERENCE:.1e} (actions between -1 and 1; logits: of the largest)."
    )
    if rounding is None:
        return said
    if rounding > LARGEST_FLOAT16_DIFFERENCE:
        raise ToolError(
            f"the export was not kept: weights in float16 change this policy's actions by up to {rounding:.1e}, "
            f"allowed are {LARGEST_FLOAT16_DIFFERENCE:g}; use {spelled('precision')} float32"
        )
    return f"{said} Rounding the weights to float16 changed actions by at most {rounding:.1e}."


class _Seen(Policy):
    """The policy, keeping some of the observations that it is given: each with the same probability."""

    def __init__(self, policy: Policy):
        super().__init__(policy.networks, policy.record, policy.seed)
        self._kept: list[dict[str, np.ndarray]] = []
        self._count, self._rng = 0, np.random.default_rng(0)

    def act_parts(self, obs: Mapping[str, np.ndarray]) -> np.ndarray:
        """The policy's actions."""
        self._count += 1
        at = self._count - 1 if self._count <= _MOST_SEEN else int(self._rng.integers(self._count))
        if at < _MOST_SEEN:
            self._kept[at : at + 1] = [{name: np.array(x) for name, x in obs.items()}]
        return super().act_parts(obs)

    @property
    def observations(self) -> dict[str, np.ndarray] | None:
        """By part; None if there were none."""
        if not self._kept:
            return None
        return {name: np.concatenate([obs[name] for obs in self._kept]) for name in self._kept[0]}


def _training(path: Path, seed: int, agent_steps: int) -> dict[str, Any] | None:
    """How a run's policy came to be; None for a policy that has left its run."""
    run = run_of_policy(path)
    if run is None:
        return None
    info = read_run_json(run, "versions")
    results = read_results([run])
    last = next((r for r in results if (r.seed, r.agent_steps) == (seed, agent_steps)), None)
    training = {"command": train_command({**info, "changed": changes_of(info)}), "versions": info["versions"]}
    training |= {name: info[name] for name in ("started_from", "earlier_environments") if name in info}
    if last is not None:
        more = {"return_std": float(last.more["return_std"]), "episodes": int(last.more["episodes"])}
        training["evaluation"] = {"return": last.score, **more}
    return training
