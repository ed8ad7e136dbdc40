"""Every option of every command, from the metadata that declares it: wrong values, wrong types, combinations."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dr_q.cli import COMMANDS, main
from dr_q.cli.options import Option, options_of_command
from dr_q.cli.parse import Group, parse
from dr_q.config import base_kind
from dr_q.kit import ConfigError

HERE = Path(__file__).parents[2]
AT_MOST = 5.0
bounded = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def commands(group: Group = COMMANDS, words: tuple[str, ...] = ()) -> dict[tuple[str, ...], type]:
    found: dict[tuple[str, ...], type] = {}
    for name, command in group.commands.items():
        inner = commands(command, (*words, name)) if isinstance(command, Group) else {(*words, name): command}
        found |= inner
    return found


ALL = commands()
ODD = [
    "", " ", "-", "--", "x", "é", "0", "-1", "1", "1.5", "1e400", "-1e400", "nan", "inf", "-inf", "1e-400", "0x10",
    "1_0", "True", "true", "None", "9" * 25, "9" * 400, "9" * 5_000, "a b", "../..", "\n", "x" * 3_000, "--help=", "=",
    "dr.q",
]  # fmt: skip


def near(option: Option) -> list[str]:
    """Values at the bounds of an option and just beyond them."""
    declared, found = option.setting, []
    for bound in (declared.least, declared.above, declared.most, declared.below):
        if bound is not None:
            found += [str(bound), str(bound - 1), str(bound + 1), str(bound * 10), f"{bound + 0.5}"]
    return [*found, *declared.choices]


def option_words(option: Option) -> st.SearchStrategy[list[str]]:
    """An option as someone might write it, right or wrong."""
    spellings = st.sampled_from(option.spellings)
    if option.is_flag:
        return spellings.flatmap(lambda word: st.sampled_from([[word], [f"--no-{word[2:]}"], [f"{word}=yes"]]))
    values = st.sampled_from([*near(option), *ODD])
    apart = st.tuples(spellings, st.lists(values, max_size=(option.count or 2) + 1)).map(lambda x: [x[0], *x[1]])
    return st.one_of(apart, st.tuples(spellings, values).map(lambda x: ["=".join(x)]))


def refusal(call: Callable[[], Any]) -> str:
    """What a call refuses, in one line; empty if it does not."""
    try:
        call()
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_a_command_line_is_a_command_or_one_line(words):
    """Whatever is written, parsing gives a command with values of the kinds that are declared, or one ConfigError."""
    options = [option for option in options_of_command(ALL[words]) if not option.is_argument]
    if not options:
        return

    every = st.one_of([option_words(option) for option in options])

    @bounded
    @given(chosen=st.lists(every, max_size=4), arguments=st.lists(st.sampled_from(ODD), max_size=2))
    def check(chosen: list[list[str]], arguments: list[str]) -> None:
        start = time.monotonic()
        given = [*words, *arguments, *(word for each in chosen for word in each)]
        said = refusal(lambda: parse(COMMANDS, given))
        assert "\n" not in said
        assert len(said) < 2_000
        assert time.monotonic() - start < AT_MOST

    check()


def wrong_values() -> list[Any]:
    """For each option of each command that refuses something, what it refuses."""
    found = []
    for words, command in ALL.items():
        for option in options_of_command(command):
            if option.is_argument or option.is_flag or option.count != 1:
                continue
            possible = [value for value in [*near(option), *ODD] if not value.startswith("--")]
            wrong = [value for value in possible if refusal(lambda o=option, v=value: o.value([v], "--x"))]
            if wrong:
                found.append(pytest.param(words, option.spellings[0], wrong, id=f"{' '.join(words)} {option.name}"))
    return found


WRONG = wrong_values()


def test_every_number_has_a_limit_on_both_sides():
    """A number without a limit is accepted at any size, and fails much later or not at all."""
    missing = []
    for words, command in ALL.items():
        for option in options_of_command(command):
            declared = option.setting
            if base_kind(option.kind) not in (int, float) or declared.check is not None:
                continue
            low, high = (declared.least, declared.above), (declared.most, declared.below)
            if low == (None, None) or high == (None, None):
                missing.append(f"{' '.join(words)} --{option.name}")
    assert missing == []


@pytest.mark.parametrize(("words", "option", "values"), WRONG)
def test_a_wrong_value_ends_the_command_before_it_does_anything(words, option, values, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for value in values[:12]:
        start = time.monotonic()
        assert main([*words, f"{option}={value}"]) == 2
        out, said = capsys.readouterr()
        assert (out, said.count("\n")) == ("", 1), value[:100]
        assert said.startswith("dr-q: ")
        assert len(said) < 2_000
        assert time.monotonic() - start < AT_MOST
    assert list(tmp_path.iterdir()) == []


NOWHERE = {
    "train": ["no/such-task", "--preset", "nope", "--steps", "5"],
    "sweep": ["no-such-suite", "--seeds", "2"],
    "eval": ["no-such-run"],
    "video": ["no-such-run"],
    "export": ["no-such-run", "--out", "new"],
    "import-authors": ["no-such-agent", "--task", "gym/Hopper-v4"],
    "plot": ["no-such-run"],
    "results": ["no-such.csv"],
    "compare": ["no-such-run", "no-such-other"],
    "report": ["no-such-run"],
    "bench": ["no/such-task", "--steps", "1"],
}


@pytest.mark.parametrize("command", NOWHERE)
def test_what_is_not_there_is_said_in_one_line(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([command, *NOWHERE[command]]) == 2
    out, said = capsys.readouterr()
    assert (out, said.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["train", "gym/Hopper-v4", "--seeds", "100000000"],
        ["train", "gym/Hopper-v4", "--noise-dims", "1000000000"],
        ["train", "--resume", "nowhere"],
    ],
)
def test_as_a_process_of_its_own(words, tmp_path):
    """As above, with Python's start and end: no traceback, nothing left behind."""
    done = subprocess.run(
        [sys.executable, "-m", "dr_q", *words],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        env={"PYTHONPATH": str(HERE / "src"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 2
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []
