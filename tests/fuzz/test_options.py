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
from dr_q.config import base_kind, number_kind
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


NUMBERS = [
    pytest.param(option, id=f"{' '.join(words)} {option.name}")
    for words, command in ALL.items()
    for option in options_of_command(command)
    if number_kind(option.kind) is not None
]
NO_NUMBERS = ["nan", "inf", "-inf", "1e400", "-1e400", "9" * 400, f"-{'9' * 400}", "9" * 5_000, "1" + "0" * 25, "", "x"]


def beyond(option: Option) -> list[str]:
    """Values just outside the bounds of an option."""
    declared, found = option.setting, []
    for bound, away in ((declared.least, -1), (declared.most, 1)):
        found += [] if bound is None else [bound + away]
    for bound, away in ((declared.above, -1), (declared.below, 1)):
        found += [] if bound is None else [bound, bound + away]
    return [repr(int(x) if number_kind(option.kind) is int else float(x)) for x in found]


def places(option: Option, value: str) -> list[list[str]]:
    """The words of an option with a value in each place that it may have; the others are right."""
    if option.count in (1, None):
        return [[value]]
    right = list(map(str, option.default))
    return [[*right[:i], value, *right[i + 1 :]] for i in range(len(right))]


@pytest.mark.parametrize("option", NUMBERS)
def test_every_number_has_a_limit_on_both_sides(option):
    """A number without a limit is accepted at any size, and fails much later or not at all."""
    declared = option.setting
    assert (declared.least, declared.above) != (None, None), "it has no lower limit"
    assert (declared.most, declared.below) != (None, None), "it has no upper limit"
    for value in [*NO_NUMBERS, *beyond(option)]:
        for words in places(option, value):
            assert refusal(lambda w=words: option.value(w, "--x")), f"{' '.join(words)[:80]} is accepted"
    if option.default is not None and option.count == 1:
        assert not refusal(lambda: option.value([str(option.default)], "--x")), "its own default is refused"


def wrong_values(option: Option) -> list[list[str]]:
    """What an option must refuse, by what is declared of it and not by what it does."""
    if number_kind(option.kind) is not None:
        half = ["1.5"] if number_kind(option.kind) is int else []
        return [words for value in [*NO_NUMBERS, *beyond(option), *half] for words in places(option, value)]
    if option.setting.choices:
        return [["x"], [""], ["9" * 400], [option.setting.choices[0].upper() + "x"]]
    return [["x"], [""], ["true"], ["1"]] if base_kind(option.kind) is bool else []


WRONG = [
    pytest.param(words, option.spellings[0], values, id=f"{' '.join(words)} {option.name}")
    for words, command in ALL.items()
    for option in options_of_command(command)
    if not option.is_argument and not option.is_flag and (values := wrong_values(option))
]


@pytest.mark.parametrize(("words", "option", "values"), WRONG)
def test_a_wrong_value_ends_the_command_before_it_does_anything(words, option, values, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for value in values:
        start = time.monotonic()
        assert main([*words, *([f"{option}={value[0]}"] if len(value) == 1 else [option, *value])]) == 2
        out, said = capsys.readouterr()
        assert (out, said.count("\n")) == ("", 1), value
        assert said.startswith("dr-q: ")
        assert len(said) < 2_000
        assert time.monotonic() - start < AT_MOST
    assert list(tmp_path.iterdir()) == []


SEARCH = ["--search", "infonce-weight=0.1..1"]
NOWHERE = {
    "train": ["no/such-task", "--preset", "nope", "--steps", "5"],
    "sweep": ["no-such-suite", "--seeds", "2"],
    "tune": ["no-such-suite", *SEARCH],
    "watch": ["no-such-sweep"],
    "eval": ["no-such-run"],
    "video": ["no-such-run"],
    "export": ["no-such-run", "--out", "new"],
    "import-authors": ["no-such-agent", "--task", "gym/Hopper-v4"],
    "plot": ["no-such-run"],
    "analyse tsne": ["no-such-run"],
    "analyse priorities": ["no-such-run"],
    "analyse information": ["no-such-run"],
    "experiment run": ["no-such-experiment"],
    "results": ["no-such.csv"],
    "compare": ["no-such-run", "no-such-other"],
    "report": ["no-such-run"],
    "doctor": ["no/such-task"],
    "check": ["no/such-task"],
    "bench": ["no/such-task", "--steps", "1"],
    "published": ["no/such-task"],
    "tasks": ["no-such-suite"],
    "presets": ["--preset-file", "no-such.toml"],
}
HAVE_NO_INPUT = {"version", "experiment list"}


def test_every_command_is_among_them():
    assert {" ".join(words) for words in ALL} == {*NOWHERE, *HAVE_NO_INPUT}


@pytest.mark.parametrize("command", NOWHERE)
def test_what_is_not_there_is_said_in_one_line(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), *NOWHERE[command]]) == 2
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
