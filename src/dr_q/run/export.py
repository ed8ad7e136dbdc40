"""A policy to give away: encoder f and actor of one seed, in few bytes, with a card that says what it is."""

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from dr_q.agent import ConfigError
from dr_q.paper import paper_tasks, published_score
from dr_q.report import Result, read_results
from dr_q.run import arrays
from dr_q.run.policy import load, policy_file, policy_record, write_policies
from dr_q.run.watch import evaluate_policy

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
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} is not empty; choose another --out, a new or empty folder")
    record = policy_record(path)
    if episodes and record["task"].startswith("callable:"):
        raise ConfigError(
            f"{record['task']} can only be made by your own code, so it cannot be evaluated here; add --episodes 0"
        )
    file, seed = policy_file(path, record, seed)
    weights = {name: x.astype(precision) for name, x in arrays.read(file).items()}
    lost = [name for name, x in weights.items() if not np.isfinite(x).all()]
    if lost:
        raise ConfigError(f"{lost[0]} of {file} is not finite in {precision}; use --precision float32")
    kept = {name: value for name, value in record.items() if name not in ("seeds", "best_seed")}
    of_seeds = load(path, seed).returns  # refuses weights of another version
    write_policies(out, {**kept, "best_seed": seed, "seeds": [seed]}, {seed: weights})
    returns = evaluate_policy(out, seed, episodes)[1] if episodes else None
    size = (out / file.name).stat().st_size
    (out / "README.md").write_text(_card(path, record, seed, of_seeds, precision, size, returns))
    return Exported(out, seed, size, returns)


def _card(
    path: Path,
    record: dict[str, Any],
    seed: int,
    of_seeds: dict[int, float],
    precision: Precision,
    size: int,
    returns: np.ndarray | None,
) -> str:
    """The model card. What is known of the run stands in its folder; a bare policy's card is shorter."""
    task, preset, steps = record["task"], record.get("preset", "dr.q"), record["agent_steps"]
    info = json.loads((path / "run.json").read_text()) if (path / "run.json").exists() else None
    last = _evaluation(path, seed, steps)
    known, published = paper_tasks().get(task), published_score(task)
    chosen = ""
    if of_seeds and of_seeds[seed] == max(of_seeds.values()) and len(of_seeds) > 1:
        chosen = f" Its last evaluation was the best of {len(of_seeds)} seeds: it says little about the others."
    rows = []
    if last is not None:
        rows.append(
            f"| evaluated while training, {last.more['episodes']} episodes | "
            f"{last.score:.1f} +- {float(last.more['return_std']):.1f} |"
        )
    if len(of_seeds) > 1:
        average = sum(of_seeds.values()) / len(of_seeds)
        rows.append(f"| mean of all {len(of_seeds)} seeds of the run, then | {average:.1f} |")
    if returns is not None:
        rows.append(f"| this file, {len(returns)} fresh episodes | {returns.mean():.1f} +- {returns.std():.1f} |")
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
        f"action = policy.act(obs)  # observations {tuple(record['obs_shape'])}, actions in the environment's units",
        "```",
        "`dr-q eval THIS_FOLDER` plays episodes, `dr-q video THIS_FOLDER` records one.",
    ]
    if info is not None:
        settings, versions = info["settings"], info["versions"]
        lines += [
            "",
            "## Training",
            f"`dr-q train {task} --preset {preset} --seeds {settings['seeds']} --seed {settings['first_seed']} --steps "
            f"{settings['steps']} --eval-every {settings['eval_every']}`; all settings are in `policy.json`.",
            "",
            ", ".join(f"{name} {version}" for name, version in versions.items()) + ".",
        ]
    lines += [
        "",
        "## Limits",
        "Made for this task, its observations and its simulator; other versions of the physics may give other",
        "returns. Noise, starts that the task does not make and other goals were not tried. Not for real robots.",
        "",
    ]
    return "\n".join(lines)


def _evaluation(path: Path, seed: int, agent_steps: int) -> Result | None:
    """What training's own evaluation of these weights gave."""
    results = read_results([path]) if (path / "evals.csv").exists() else []
    return next((r for r in results if (r.seed, r.agent_steps) == (seed, agent_steps)), None)
