"""The config against the paper's table, row by row, and each preset against what it names."""

import ast
import csv
import dataclasses
import inspect
from pathlib import Path

import pytest

from dr_q.agent import PRESETS, Config, ConfigError, preset

TABLE = list(csv.DictReader((Path(__file__).parents[1] / "data" / "hyperparameters.csv").read_text().splitlines()))

FIELD_OF_ROW = {
    "Target policy noise": "target_noise",
    "Target policy noise clipping": "target_noise_clip",
    "LAP probability smoothing": "priority_exponent",
    "LAP minimum priority": "min_priority",
    "Exploration steps": "exploration_steps",
    "Exploration noise": "exploration_noise",
    "Discount factor": "discount",
    "Replay buffer size": "replay_capacity",
    "Batch size": "batch_size",
    "Target update frequency": "target_period",
    "Replay ratio (UTD)": "replay_ratio",
    "Encoder learning rate": "encoder_learning_rate",
    "Encoder weight decay": "encoder_weight_decay",
    "Encoder z_s dim": "zs_dim",
    "Encoder z_sa dim": "zsa_dim",
    "Encoder z_a dim (used only in the architecture)": "za_dim",
    "Encoder hidden dimension": "encoder_hidden",
    "Encoder activation function": "encoder_activation",
    "Encoder reward bins": "reward_bins",
    "Encoder reward range": "reward_range",
    "Encoder horizon": "encoder_horizon",
    "Actor learning rate": "actor_learning_rate",
    "Actor hidden dim": "actor_hidden",
    "Actor activation function": "actor_activation",
    "Critic learning rate": "critic_learning_rate",
    "Critic hidden dim": "critic_hidden",
    "Critic activation function": "critic_activation",
    "Critic multi-step return horizon": "q_horizon",
    "Latent consistency loss weight": "dynamics_weight",
    "Reward loss weight": "reward_weight",
    "InfoNCE loss weight": "infonce_weight",
    "Faded PER decay rate": "fade_decay",
    "Faded PER forget weight threshold": "fade_floor",
    "InfoNCE temperature": "infonce_temperature",
    "Value weight decay": "critic_weight_decay",
    "Policy weight decay": "actor_weight_decay",
}
NOT_IN_CONFIG = {  # the optimiser and the initialisers, which are code
    "Optimizer (all networks)",
    "Weight initialization (all networks)",
    "Bias initialization (all networks)",
}
NOT_IN_TABLE = {"pixel_shift", "done_weight", "reward_scaling", "critic_grad_clip", "pre_tanh_weight"}


def printed(value) -> str:
    """A config value as the table prints it."""
    if isinstance(value, tuple):
        return "[" + ", ".join(f"{x:g}" for x in value) + "]"
    if isinstance(value, str):
        return {"elu": "ELU", "relu": "ReLU"}[value]
    return f"{value:.10g}"


def field_docs() -> dict[str, str]:
    """The docstring under each field of the config."""
    body = ast.parse(inspect.getsource(Config)).body[0]
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for line, following in zip(body.body, body.body[1:], strict=False):
        if isinstance(line, ast.AnnAssign) and isinstance(following, ast.Expr):
            assert isinstance(line.target, ast.Name)
            docs[line.target.id] = ast.literal_eval(following.value)
    return docs


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["name"])
def test_every_row_of_the_table_is_a_documented_field(row):
    if row["name"] in NOT_IN_CONFIG:
        return
    field = FIELD_OF_ROW[row["name"]]
    value = printed(getattr(Config(), field))
    if row["value"].startswith("N(0, "):
        assert row["value"] == f"N(0, {value}^2)"
    elif row["value"].startswith("("):
        assert row["value"] == f"(-{value}, {value})"
    else:
        assert row["value"] == value
    doc = field_docs()[field]
    assert doc.startswith(row["name"])
    if row["symbol"] and not row["symbol"].startswith("z_"):
        assert f"({row['symbol']})" in doc


def test_every_field_is_a_row_or_said_not_to_be():
    fields = {field.name for field in dataclasses.fields(Config)}
    assert set(FIELD_OF_ROW.values()) | NOT_IN_TABLE == fields
    assert set(FIELD_OF_ROW) | NOT_IN_CONFIG == {row["name"] for row in TABLE}
    assert set(field_docs()) == fields


MRQ = {"infonce_weight", "fade_decay", "done_weight", "reward_scaling", "critic_grad_clip", "pre_tanh_weight"}
DIFFERENCES = {
    "dr.q": set(),
    "no-infonce": {"infonce_weight"},
    "no-dynamics": {"dynamics_weight"},
    "only-lap": {"fade_decay"},
    "only-forget": {"priority_exponent"},
    "uniform": {"fade_decay", "priority_exponent"},
    "mr.q-scaled": MRQ,
    "quick": {
        "exploration_steps",
        "batch_size",
        "zs_dim",
        "zsa_dim",
        "za_dim",
        "encoder_hidden",
        "actor_hidden",
        "critic_hidden",
    },
    "mr.q": MRQ
    | {
        "encoder_hidden",
        "encoder_learning_rate",
        "encoder_weight_decay",
        "actor_weight_decay",
        "critic_weight_decay",
    },
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_changes_only_what_it_names(name):
    got, base = preset(name), Config()
    fields = {f.name for f in dataclasses.fields(Config) if getattr(got, f.name) != getattr(base, f.name)}
    assert fields == DIFFERENCES[name]


def test_mrq_is_mrq():
    got = preset("mr.q")
    assert (got.encoder_hidden, got.encoder_learning_rate, got.critic_grad_clip) == (512, 1e-4, 20.0)
    assert got.encoder_weight_decay == got.actor_weight_decay == got.critic_weight_decay == 1e-4
    assert (got.done_weight, got.pre_tanh_weight, got.reward_scaling) == (0.1, 1e-5, True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number, at least 1, got 0"),
        ({"discount": 1.5}, "discount must be between 0 and 1, got 1.5"),
        (
            {"reward_range": (1.0, -1.0)},
            "reward_range must be two numbers, the lower first, within +-80, got (1.0, -1.0)",
        ),
        ({"fade_decay": 1.0}, "fade_decay must be at least 0 and under 1, got 1.0"),
        ({"infonce_wieght": 0.0}, "unknown setting 'infonce_wieght'; did you mean 'infonce_weight'?"),
    ],
)
def test_bad_values_are_refused_in_one_line(changes, message):
    with pytest.raises(ConfigError) as error:
        preset("dr.q", **changes)
    assert str(error.value) == message


def test_unknown_preset_suggests_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown preset 'no-infonse'; did you mean 'no-infonce'\?"):
        preset("no-infonse")
