"""Model cards: README.md of an export, with the header that model hubs read."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dr_q import __version__
from dr_q.config import changed_settings
from dr_q.envs import closed
from dr_q.paper import paper_tasks, published_score
from dr_q.policies.policy import Policy
from dr_q.policies.watch import PlayedEpisodes
from dr_q.report.numbers import with_interval
from dr_q.report.statistics import FEWEST_SEEDS, mean
from dr_q.settings import callable_name
from dr_q.spaces import SINGLE, DiscreteActions, Image

_HELD = {
    "safetensors": "weights in safetensors, for dr-q",
    "onnx": "an ONNX model, `policy.onnx`",
    "numpy": "`policy.py`, which needs NumPy alone, and `weights.npz`",
    "torch": "`policy.py`, which needs PyTorch, and `weights.pt`",
}


class CardFacts(NamedTuple):
    """What a card says of an export besides what its policy says itself."""

    form: str
    precision: str
    size: int
    """Bytes of the weights."""
    played: PlayedEpisodes | None
    """Of fresh episodes."""
    difference: str
    """What the comparison with our own policy found, in a sentence."""


def model_card(policy: Policy, facts: CardFacts) -> str:
    """README.md of an export; shorter where nothing is known of the training."""
    record = policy.record
    training = record.get("training", {})
    lines = [
        *_header(policy, facts),
        f"# {policy.task}, {_preset(policy)}, seed {policy.seed}, {policy.agent_steps:,} agent steps",
        "",
        f"A policy trained by DR.Q: {_HELD[facts.form]}, {facts.precision}, "
        f"{facts.size / 2**20:.1f} MiB.{_chosen(policy)}",
        "",
        "## Score",
        "| | return |",
        "|---|---|",
        *_scores(policy, facts.played),
        "",
        "A return with +- is the mean and the standard deviation over episodes; [ , ] is a 95% interval over seeds.",
        "",
        "## Use",
        *_use(policy, facts.form),
        "",
        facts.difference,
        "",
        "## Training",
        *_training(policy, training),
        "",
        "## Limits",
        "Made for this task, its observations and its simulator; other versions of the physics may give other",
        "returns. Noise, starts that the task does not make and other goals were not tried. Not tried on real robots.",
        "",
    ]
    return "\n".join(lines)


def _header(policy: Policy, facts: CardFacts) -> list[str]:
    """What hubs read, in YAML."""
    kind = "discrete-actions" if isinstance(policy.spaces.action, DiscreteActions) else "continuous-control"
    tags = ["reinforcement-learning", "deep-reinforcement-learning", kind, "dr.q", facts.form]
    score, spread = _own_score(policy, None if facts.played is None else facts.played.returns)
    lines = [
        "---",
        "library_name: dr-q",
        "pipeline_tag: reinforcement-learning",
        f"tags: {json.dumps(tags)}",
    ]
    if score is not None:
        task = json.dumps(policy.task)
        value = json.dumps(f"{score:.2f}" + ("" if spread is None else f" +/- {spread:.2f}"))
        lines += [
            "model-index:",
            f"- name: {json.dumps(f'DR.Q, {policy.task}')}",
            "  results:",
            "  - task: {type: reinforcement-learning, name: reinforcement-learning}",
            f"    dataset: {{name: {task}, type: {task}}}",
            "    metrics:",
            f"    - {{type: mean_reward, name: mean_reward, value: {value}, verified: false}}",
        ]
    return [*lines, "---"]


def _own_score(policy: Policy, returns: np.ndarray | None) -> tuple[float | None, float | None]:
    """The return of this policy, fresh episodes before those of its training, and its standard deviation."""
    if returns is not None:
        return float(returns.mean()), float(returns.std()) if len(returns) > 1 else None
    if policy.which == "best":  # the evaluation that chose it is too high
        return policy.fresh_returns.get(policy.seed), None
    last = policy.record.get("training", {}).get("evaluation")
    if last is not None:
        return last["return"], last["return_std"]
    return policy.returns.get(policy.seed), None


def _preset(policy: Policy) -> str:
    return policy.record.get("preset", "dr.q")


def _chosen(policy: Policy) -> str:
    returns = policy.returns
    if policy.which == "best":
        again = policy.fresh_returns.get(policy.seed)
        fresh = "" if again is None else f"; measured again on fresh episodes it was {again:.1f}"
        return f" It is the best of its seed over time. The evaluation that chose it gives too high a return{fresh}."
    if len(returns) < 2 or returns.get(policy.seed) != max(returns.values()):
        return ""
    return f" Its last evaluation was the best of {len(returns)} seeds: it says little about the others."


def _scores(policy: Policy, played: PlayedEpisodes | None) -> list[str]:
    rows = []
    last = policy.record.get("training", {}).get("evaluation")
    if last is not None:
        rows.append(
            f"| evaluated while training, {_episodes(last['episodes'])} | "
            f"{last['return']:.1f} +- {last['return_std']:.1f} |"
        )
    best = policy.which == "best"  # of each seed the highest of many evaluations: their mean would be too high
    of_seeds = policy.fresh_returns if best else policy.returns
    if len(of_seeds) > 1:
        seeds = len(of_seeds)
        few = "" if seeds >= FEWEST_SEEDS else f" (under {FEWEST_SEEDS} seeds: no interval)"
        average = with_interval(mean(of_seeds.values()), ".1f")
        what = "mean of the best policies of all" if best else "mean of all"
        when = "measured again on fresh episodes" if best else "then"
        rows.append(f"| {what} {seeds} seeds of the run, {when} | {average}{few} |")
    if played is not None:
        rows.append(f"| these weights, {_episodes(len(played.returns), 'fresh ')} played by dr-q | {played} |")
    known, published = paper_tasks().get(policy.task), published_score(policy.task)
    if known is not None and published is not None:
        rows.append(f"| the paper's DR.Q after {known.agent_steps:,} steps, mean of ten seeds | {published.mean:g} |")
    return rows or ["| not evaluated | |"]


def _episodes(count: int, kind: str = "") -> str:
    return f"{count} {kind}episode{'s' if count != 1 else ''}"


def _training(policy: Policy, training: dict[str, Any]) -> list[str]:
    record, config = policy.record, policy.record["config"]
    changed = changed_settings(_preset(policy), config)
    listed = ", ".join(f"{name} {value}" for name, value in changed.items())
    lines = []
    if "imported" in record:
        lines += [f"Trained by the authors' code; its saved agent was imported by dr-q {record['imported']}.", ""]
    if training:
        lines += [f"`{training['command']}`", ""]
    lines += [
        f"{policy.agent_steps:,} agent steps, seed {policy.seed}, preset {_preset(policy)}"
        + (f"; settings that differ from the preset: {listed}." if changed else ", its settings unchanged."),
        "",
    ]
    if training:
        lines += [
            "Versions: " + ", ".join(f"{name} {version}" for name, version in training["versions"].items()) + ".",
            *started_from_lines(training),
            "",
        ]
    return [
        *lines,
        f"Exported by dr-q {__version__}.",
        "",
        "<details><summary>All settings</summary>",
        "",
        "```json",
        json.dumps(config, indent=1),
        "```",
        "</details>",
    ]


def steps_taken(init: Mapping[str, Any]) -> list[int]:
    """Agent steps of the weights that a run started from; several where its seeds took some of different steps."""
    return sorted(set(init.get("agent_steps_of", {}).values())) or [init["agent_steps"]]


def started_from_lines(training: dict[str, Any]) -> list[str]:
    """What a run started from, and environments that it had before, for a model card; nothing for most runs."""
    started = training.get("started_from", {})
    lines = []
    if "init" in started:
        init = started["init"]
        at = ", ".join(f"{step:,}" for step in steps_taken(init))
        lines.append(
            f"Started from weights of `{init['source']}` ({init['task']}, {at} agent steps): {init['taken']}; "
            f"SHA-256 {init['sha256'][:16]}."
        )
    if "prefill" in started:
        data = started["prefill"]
        kinds = {"pretrain": "encoder updates", "pretrain_policy": "updates of critics and actor"}
        made = [f"{data[name]:,} {what}" for name, what in kinds.items() if data.get(name)]
        updates = f", with {' and '.join(made)} on them before step 0" if made else ""
        lines.append(
            f"Its replay began with {data['transitions']:,} transitions of `{data['source']}`{updates}; "
            f"SHA-256 {data['sha256'][:16]}."
        )
    for before in training.get("earlier_environments", []):
        name = " ".join(part for part in (before["task"], closed(before.get("made_from", ""))) if part)
        lines.append(f"Until agent step {before['until']:,} it was trained in another environment: {name}.")
    return ["", *lines] if lines else []


def _use(policy: Policy, form: str) -> list[str]:
    if form == "onnx":
        return _onnx_use(policy)
    code = {"safetensors": _own_use, "numpy": _code_use, "torch": _code_use}[form](policy)
    lines = ["```python", *code, "```"]
    if form == "safetensors" and not callable_name(policy.task):
        lines.append("`dr-q eval THIS_FOLDER` plays episodes, `dr-q video THIS_FOLDER` records one.")
    return lines


def _code_use(policy: Policy) -> list[str]:
    return [
        "from policy import Policy  # policy.py of this folder; neither dr-q nor JAX is needed",
        "",
        "policy = Policy()",
        "policy.reset()  # after every reset of the environment",
        f"action = policy.act(obs)  # obs as the environment gives it: {_observed(policy)}",
    ]


def _onnx_use(policy: Policy) -> list[str]:
    from dr_q.policies.portable.model import fields, portable_policy
    from dr_q.policies.portable.onnx_model import FIRST, frames_name, input_name

    spec = portable_policy(policy, "float32").spec
    kinds = {"image": "uint8", "choice": "int64", "number": "float32"}
    rows = [f"| `{input_name(f['path'])}` | {kinds[f['kind']]} | {_shape(f['shape'])} |" for f in fields(spec)]
    given = [f'"{input_name(f["path"])}": ...' for f in fields(spec)]
    stacked = [part for part in spec["parts"] if part["stack"] > 1]
    after = []
    if stacked:
        rows.append(f"| `{FIRST}` | bool | [batch]; true where an episode begins |")
        given.append(f'"{FIRST}": np.array([first])')
    for part in stacked:
        before, output = frames_name(part)
        rows.append(f"| `{before}` | as `{output}` | the last call's output `{output}`; zeros at first |")
        after.append(f"`{output}` is the stack of the last {part['stack']} frames: give it to the next call.")
    call = f'(action,) = session.run(["action"], {{{", ".join(given)}}})  # a batch; in the environment\'s units'
    lines = [call]
    if stacked:  # frames must be given back, or the first image would be repeated for ever
        outputs = [output for _, output in map(frames_name, stacked)]
        shapes = "{x.name: np.zeros((1, *x.shape[1:]), np.uint8) for x in session.get_inputs() if x.name in inputs}"
        lines = [
            f"inputs = {[before for before, _ in map(frames_name, stacked)]}",
            f"frames, first = {shapes}, True",
            "while True:  # one episode",
            f'    action, *after = session.run(["action", *{outputs}], {{{", ".join(given)}, **frames}})',
            "    frames, first = dict(zip(inputs, after)), False",
            "    ...  # send the action, read the sensors again",
        ]
    raw = "logits" if spec["action"]["kind"] == "discrete" else "unit_action"
    return [
        "```python",
        "import numpy as np",
        "import onnxruntime",
        "",
        'session = onnxruntime.InferenceSession("policy.onnx")',
        *lines,
        "```",
        "| input | type | shape |",
        "|---|---|---|",
        *rows,
        "",
        f"Further outputs: `{raw}`, " + ("the logits." if raw == "logits" else "the action in [-1, 1]."),
        *after,
    ]


def _shape(shape: Sequence[int]) -> str:
    return f"[{', '.join(['batch', *map(str, shape)])}]"


def _observed(policy: Policy) -> str:
    """What the environment gives, by the paths of its entries: `{"arm/angles": float32 (2,), "mode": int64 ()}`."""
    from dr_q.policies.portable.model import fields, portable_policy

    kinds = {"image": "uint8", "choice": "int64", "number": "float32"}
    found = {
        f["path"]: f"{kinds[f['kind']]} {tuple(f['shape'])}" for f in fields(portable_policy(policy, "float32").spec)
    }
    if list(found) in ([""], [SINGLE]):
        return next(iter(found.values()))
    return "{" + ", ".join(f'"{path}": {kind}' for path, kind in found.items()) + "}"


def _own_use(policy: Policy) -> list[str]:
    start = ["import dr_q", "", 'policy = dr_q.load("THIS FOLDER")']
    (_, part), *others = policy.spaces.obs.parts
    if others:
        names = ", ".join(f"{name} {part.frame_shape}" for name, part in policy.spaces.obs.parts)
        return [
            *start,
            "playing = policy.episode()  # a new one after every reset",
            "action = playing.act(obs)  # one observation after the other, as the environment gives it:",
            f"# {names}; images uint8, here channels first",
        ]
    if not isinstance(part, Image):
        return [*start, f"action = policy.act(obs)  # observations {part.shape}, actions in the environment's units"]
    image = (part.height, part.width, part.channels)
    return [
        *start,
        "playing = policy.episode()  # a new one after every reset",
        f"action = playing.act(image)  # uint8 {image}, one after the other; actions in the environment's units",
    ]
