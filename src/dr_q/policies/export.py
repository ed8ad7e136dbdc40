"""A policy to give away: encoder f and actor of one seed, in few bytes, with a card that says what it is."""

import shutil
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from dr_q.kit import ConfigError, RunFolderError, spelled
from dr_q.paper import paper_tasks, published_score
from dr_q.policies.policy import load
from dr_q.policies.watch import evaluate_policy, returns_text
from dr_q.report import read_results
from dr_q.report.results import changes_of, train_command
from dr_q.run_folder import (
    check_new_folder,
    policy_file,
    policy_record,
    read_policy_weights,
    read_run_json,
    run_of_policy,
    write_policies,
)
from dr_q.settings import callable_name
from dr_q.spaces import Image, spaces_from_json

Precision = Literal["float16", "float32"]


class Exported(NamedTuple):
    """What was written."""

    folder: Path
    seed: int
    size: int
    """Bytes of the weights."""
    returns: np.ndarray | None
    """Of fresh episodes with these weights; None if none were asked for."""


def export_policy(
    path: Path, out: Path, seed: int | None = None, precision: Precision = "float16", episodes: int = 10
) -> Exported:
    """Write a run's policy to a folder of its own, with a model card; evaluate it as it was written."""
    check_new_folder(out)
    record = policy_record(path)
    if episodes and callable_name(record["task"]):
        raise ConfigError(
            f"{record['task']} can only be made by your own code, so it cannot be evaluated here; "
            f"give {spelled('episodes')} 0"
        )
    file, seed = policy_file(path, record, seed)
    whole, spaces = read_policy_weights(file, record), spaces_from_json(record["spaces"])
    with np.errstate(over="ignore"):  # it is said below, in words
        # What normalises observations stays as it is: its counts and variances may be large.
        weights = {n: x if n.startswith("normaliser.") else x.astype(precision) for n, x in whole.items()}
    for name, x in weights.items():
        if not np.isfinite(whole[name]).all():
            raise RunFolderError(
                f"seed {seed} has diverged: {name} of {file} is NaN or infinite; choose another {spelled('seed')}"
            )
        if not np.isfinite(x).all():
            raise ConfigError(f"{name} of {file} is NaN or infinite in {precision}; use {spelled('precision')} float32")
    training = _training(path, seed, record["agent_steps"])
    record |= {"training": training} if training else {}
    of_seeds = load(path, seed).returns  # refuses weights of another version
    part = out.resolve().with_name(f".{out.name}.part")  # there whole or not at all: an evaluation may fail
    shutil.rmtree(part, ignore_errors=True)
    try:
        write_policies(part, spaces, {**record, "best_seed": seed, "seeds": [seed]}, {seed: weights})
        returns = evaluate_policy(part, seed, episodes)[1] if episodes else None
        size = (part / file.name).stat().st_size
        (part / "README.md").write_text(_card(record, seed, of_seeds, precision, size, returns))
        part.replace(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Exported(out, seed, size, returns)


def _card(
    record: dict[str, Any],
    seed: int,
    of_seeds: dict[int, float],
    precision: Precision,
    size: int,
    returns: np.ndarray | None,
) -> str:
    """The model card; shorter where nothing is known of the training."""
    task, preset, steps = record["task"], record.get("preset", "dr.q"), record["agent_steps"]
    training = record.get("training", {})
    last = training.get("evaluation")
    known, published = paper_tasks().get(task), published_score(task)
    chosen = ""
    if of_seeds and of_seeds[seed] == max(of_seeds.values()) and len(of_seeds) > 1:
        chosen = f" Its last evaluation was the best of {len(of_seeds)} seeds: it says little about the others."
    rows = []
    if last is not None:
        rows.append(
            f"| evaluated while training, {_episodes(last['episodes'])} | "
            f"{last['return']:.1f} +- {last['return_std']:.1f} |"
        )
    if len(of_seeds) > 1:
        average = sum(of_seeds.values()) / len(of_seeds)
        rows.append(f"| mean of all {len(of_seeds)} seeds of the run, then | {average:.1f} |")
    if returns is not None:
        rows.append(f"| this file, {_episodes(len(returns), 'fresh ')} | {returns_text(returns)} |")
    if known is not None and published is not None:
        rows.append(f"| the paper's DR.Q after {known.agent_steps:,} steps, mean of ten seeds | {published.mean:g} |")
    lines = [
        "---",
        "library_name: dr-q",
        "tags: [reinforcement-learning, continuous-control, dr.q]",
        "---",
        f"# {task}, {preset}, seed {seed}, {steps:,} agent steps",
        "",
        f"State encoder f and actor, {precision}, {size / 2**20:.1f} MiB.{chosen}",
        "",
        "| | return, mean +- standard deviation over episodes |",
        "|---|---|",
        *rows,
        "",
        "```python",
        "import dr_q",
        "",
        'policy = dr_q.load("THIS FOLDER")',
        *_use(record),
        "```",
    ]
    if not callable_name(task):
        lines.append("`dr-q eval THIS_FOLDER` plays episodes, `dr-q video THIS_FOLDER` records one.")
    if training:
        lines += [
            "",
            "## Training",
            f"`{training['command']}`; all settings are in `policy.json`.",
            "",
            ", ".join(f"{name} {version}" for name, version in training["versions"].items()) + ".",
        ]
    lines += [
        "",
        "## Limits",
        "Made for this task, its observations and its simulator; other versions of the physics may give other",
        "returns. Noise, starts that the task does not make and other goals were not tried. Not for real robots.",
        "",
    ]
    return "\n".join(lines)


def _use(record: dict[str, Any]) -> list[str]:
    obs = spaces_from_json(record["spaces"]).obs
    (_, part), *others = obs.parts
    if others:
        names = ", ".join(f"{name} {part.frame_shape}" for name, part in obs.parts)
        return [
            "playing = policy.episode()  # anew after every reset",
            "action = playing.act(obs)  # one observation after the other, as the environment gives it:",
            f"# {names}; images uint8, here channels first",
        ]
    if not isinstance(part, Image):
        return [f"action = policy.act(obs)  # observations {part.shape}, actions in the environment's units"]
    image = (part.height, part.width, part.channels)
    return [
        "playing = policy.episode()  # anew after every reset",
        f"action = playing.act(image)  # uint8 {image}, one after the other; actions in the environment's units",
    ]


def _episodes(count: int, kind: str = "") -> str:
    return f"{count} {kind}episode{'s' if count != 1 else ''}"


def _training(path: Path, seed: int, agent_steps: int) -> dict[str, Any] | None:
    """How a run's policy came to be; None for a policy that has left its run."""
    run = run_of_policy(path)
    if run is None:
        return None
    info = read_run_json(run, "versions")
    results = read_results([run])
    last = next((r for r in results if (r.seed, r.agent_steps) == (seed, agent_steps)), None)
    training = {"command": train_command({**info, "changed": changes_of(info)}), "versions": info["versions"]}
    if last is not None:
        more = {"return_std": float(last.more["return_std"]), "episodes": int(last.more["episodes"])}
        training["evaluation"] = {"return": last.score, **more}
    return training
