"""The config against the paper's table, each preset against what it names, and how settings are declared."""

import csv
import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dr_q.cli import COMMANDS, main
from dr_q.cli.options import options_of_command
from dr_q.cli.settings_table import with_tables
from dr_q.config import (
    PRESETS,
    Config,
    Setting,
    check_settings,
    config_from_json,
    current_names,
    preset,
    setting,
    settings_of,
)
from dr_q.kit import ConfigError, spelled_as_options
from dr_q.settings import Execution, Settings

TABLE = list(csv.DictReader((Path(__file__).parent / "data" / "hyperparameters.csv").read_text().splitlines()))
BY_PAPER_NAME = {declared.paper: name for name, (_, declared) in settings_of(Config).items() if declared.paper}
NOT_IN_CONFIG = {  # the optimiser and the initialisers, which are code
    "Optimizer (all networks)",
    "Weight initialization (all networks)",
    "Bias initialization (all networks)",
}
NOT_IN_TABLE = {
    "sampling",
    "pixel_shift",
    "normalise_observations",
    "gumbel_temperature",
    "done_weight",
    "reward_scaling",
    "critic_grad_clip",
    "pre_tanh_weight",
    "encoder_updates",
    "compute",
}
DECLARED = [(kind, name) for kind in (Settings, Execution, Config) for name in settings_of(kind)]


def printed(value) -> str:
    """A config value as the table prints it."""
    if isinstance(value, tuple):
        return "[" + ", ".join(f"{x:g}" for x in value) + "]"
    if isinstance(value, str):
        return {"elu": "ELU", "relu": "ReLU"}[value]
    return f"{value:.10g}"


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["name"])
def test_every_row_of_the_table_is_a_declared_setting(row):
    if row["name"] in NOT_IN_CONFIG:
        return
    field, declared = settings_of(Config)[BY_PAPER_NAME[row["name"]]]
    value = printed(field.default)
    if row["value"].startswith("N(0, "):
        assert row["value"] == f"N(0, {value}^2)"
    elif row["value"].startswith("("):
        assert row["value"] == f"(-{value}, {value})"
    else:
        assert row["value"] == value
    if not row["symbol"].startswith("z_"):  # these are in the name itself
        assert declared.symbol == row["symbol"]


def test_every_setting_is_a_row_or_said_not_to_be():
    assert set(BY_PAPER_NAME.values()) | NOT_IN_TABLE == set(settings_of(Config))
    assert set(BY_PAPER_NAME) | NOT_IN_CONFIG == {row["name"] for row in TABLE}
    assert len(settings_of(Config)) == len(dataclasses.fields(Config)), "every field is a declared setting"


@pytest.mark.parametrize(("kind", "name"), DECLARED)
def test_a_setting_says_what_it_is_and_its_default_is_allowed(kind, name):
    field, declared = settings_of(kind)[name]
    assert declared.describe()
    assert declared.group
    assert field.default is None or declared.accepts(field.type, field.default)
    assert field.default is not None or declared.otherwise, "help must say what happens without it"


def test_train_has_an_option_for_every_setting():
    options = {option.name for option in options_of_command(COMMANDS.commands["train"])}
    assert options >= {settings_of(kind)[name][1].called or name for kind, name in DECLARED}


@dataclasses.dataclass(frozen=True)
class Renamed:
    patience: int = setting(1, "a test", group="Test", aliases=("stamina",), least=0)


def test_old_names_are_accepted_once():
    assert current_names({"stamina": 3, "other": 1}, Renamed) == {"patience": 3, "other": 1}
    with pytest.raises(ConfigError, match=r"^patience is given twice: stamina is another name for it"):
        current_names({"stamina": 3, "patience": 3}, Renamed)


def test_an_old_name_of_a_hyperparameter_is_accepted_everywhere(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class WithOldName(Config):
        batch_size: int = setting(256, "a test", group="Test", least=1, aliases=("minibatch",))

    monkeypatch.setattr("dr_q.config.Config", WithOldName)
    assert preset("dr.q", minibatch=8).batch_size == 8
    assert config_from_json({"minibatch": 8}).batch_size == 8


@pytest.mark.parametrize("given", [[-5.0, 5.0], np.array([-5.0, 5.0]), (np.float32(-5), np.float64(5))])
def test_values_become_plain_so_that_settings_can_be_hashed_and_written(given):
    # Not `Config` itself: tests check its annotations, which users' calls do not.
    declared = settings_of(Config)["reward_range"]

    @dataclasses.dataclass(frozen=True)
    class Ranged:
        reward_range: Any = dataclasses.field(default=declared[0].default, metadata=declared[0].metadata)

    values = Ranged(given)
    check_settings(values)
    assert values.reward_range == (-5.0, 5.0)
    assert hash(values) == hash(Ranged((-5.0, 5.0)))
    assert all(type(bound) is float for bound in values.reward_range)
    Config(reward_range=values.reward_range)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"above": 0, "most": 1}, "a number, more than 0 and at most 1"),
        ({"below": 1}, "a number, under 1"),
        ({"least": 0, "below": 1}, "a number, at least 0 and under 1"),
        ({"least": 0, "most": 1}, "a number between 0 and 1"),
    ],
)
def test_any_combination_of_bounds_has_words(bounds, words):
    with pytest.raises(ConfigError, match=f"^x must be {words}, got 2.0$"):
        Setting("a test", "Test", **bounds).refuse(float, 2.0, "x")


def test_messages_name_a_setting_as_the_user_writes_it():
    with pytest.raises(ConfigError, match=r"^batch_size must be a whole number between 1 and 65536, got 0$"):
        Config(batch_size=0)
    with spelled_as_options(), pytest.raises(ConfigError, match=r"^--batch-size must be"):
        Config(batch_size=0)


MRQ = {"infonce_weight", "fade_decay", "done_weight", "reward_scaling", "critic_grad_clip", "pre_tanh_weight"}
DIFFERENCES = {
    "dr.q": set(),
    "no-infonce": {"infonce_weight"},
    "no-dynamics": {"dynamics_weight"},
    "only-lap": {"fade_decay"},
    "only-forget": {"priority_exponent"},
    "uniform": {"sampling", "fade_decay", "priority_exponent"},
    "mr.q-scaled": MRQ,
    "quick": {
        "exploration_steps",
        "batch_size",
        "target_period",
        "encoder_updates",
        "encoder_learning_rate",
        "critic_learning_rate",
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
        ({"batch_size": 0}, "batch_size must be a whole number between 1 and 65536, got 0"),
        ({"discount": 1.5}, "discount must be a number between 0 and 1, got 1.5"),
        (
            {"reward_range": (1.0, -1.0)},
            "reward_range must be two numbers, the lower first, within +-80, got (1.0, -1.0)",
        ),
        ({"fade_decay": 1.0}, "fade_decay must be a number, at least 0 and under 1, got 1.0"),
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


def test_the_page_of_settings_is_what_the_declarations_give():
    page = (Path(__file__).parents[1] / "docs" / "settings.md").read_text()
    assert page == with_tables(page), "run make docs-settings"
    for _, name in DECLARED:
        called = {"first_seed": "seed", "num_envs": "envs"}.get(name, name)
        assert page.count(f"\n|`{called}`") == 1
    with pytest.raises(ConfigError, match="the page has no place for the tables"):
        with_tables("# Settings")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[mine]\na = " + "[" * 5_000, "it is nested too deeply"),
        ("[mine]\nbatch_size = " + "9" * 5_000, "Exceeds the limit"),
        ("[mine]\nname = '\udcff'", "codec can't decode byte"),
        ("[mine]\nbatch_size = 512\n#" + "x" * 2**20, "it has more than 1,048,576 bytes"),
        ("[mine]\nbatch_size", "Expected '='"),
        ("/dev/zero", "it is not a regular file"),
        ("folder", "it is not a regular file"),
        ("pipe", "it is not a regular file"),
        ("nowhere", "No such file"),
    ],
)
def test_a_file_of_presets_that_cannot_be_read_is_said_in_one_line(text, message, tmp_path, capsys):
    """Devices and pipes may never end; none is opened."""
    file = Path(text) if text.startswith("/dev") else tmp_path / "mine.toml"
    if text == "folder":
        file.mkdir()
    elif text == "pipe":
        os.mkfifo(file)
    elif text.startswith("["):
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert main(["presets", "--preset-file", str(file)]) == 2
    out, said = capsys.readouterr()
    assert said.startswith(f"dr-q: {file} cannot be read as a TOML file of presets: ")
    assert message in said
    assert (out, said.count("\n")) == ("", 1)
    assert len(said) < 500
