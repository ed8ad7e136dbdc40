"""Mistakes on the command line get one line and exit code 2."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dr_q
from dr_q.cli import COMMANDS, main
from dr_q.cli.help import help_text
from dr_q.cli.options import argument, option, options_of, options_of_command
from dr_q.cli.parse import Group, Help, parse, parse_command
from dr_q.cli.training import Train
from dr_q.config import Config, base_kind, settings_of
from dr_q.kit import ConfigError
from dr_q.settings import Execution, Settings, make_settings
from dr_q.training.api import default_folder


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "train x --learning-rate 3",
            "unknown option --learning-rate; did you mean --actor-learning-rate or --critic-",
        ),
        ("sweep dmc --seds 3", "unknown option --seds; did you mean --seeds?; see dr-q sweep --help"),
        ("trian", "unknown command 'trian'; did you mean train? commands: train, sweep, "),
        (
            "analyse tsnee",
            "unknown command 'tsnee'; did you mean tsne? commands: tsne, priorities, information; see dr-q",
        ),
        ("experiment", "no command given; commands: list, run; see dr-q experiment --help"),
        ("experiment run", "missing: NAME; see dr-q experiment run --help"),
        ("--verbose", "unknown option '--verbose'; commands: train, "),
        ("train x --steps", "--steps needs a value; see dr-q train --help"),
        ("train x --steps --seeds 3", "--steps needs a value; see dr-q train --help"),
        (
            "train x --steps 1e4",
            "--steps must be a whole number between 1 and 1000000000, got '1e4'; see dr-q train --help",
        ),
        (
            "train x --eval-every -5",
            "--eval-every must be a whole number between 1 and 1000000000, got -5; see dr-q train --help",
        ),
        ("train x --keep 0", "--keep must be a whole number between 1 and 1000000000, got 0; see dr-q train --help"),
        (
            "train x --max-minutes nan",
            "--max-minutes must be a number, more than 0 and at most 1000000000, got nan; see dr-q train --help",
        ),
        ("train x --discount q", "--discount must be a number between 0 and 1, got 'q'; see dr-q train --help"),
        ("train x --reward-range", "--reward-range needs 2 values; see dr-q train --help"),
        ("train x --reward-range 5", "--reward-range needs 2 values, got 1; see dr-q train --help"),
        ("train x --reward-range 5 b", "--reward-range must be two numbers, the lower first, within +-80, got '5 b'"),
        ("train x --in-process true", "--in-process must be True or False, got 'true'; see dr-q train --help"),
        ("train x --encoder-activation tanh", "--encoder-activation must be 'elu' or 'relu', got 'tanh'; see"),
        ("train x --wandb=yes", "--wandb takes no value, got 'yes'; see dr-q train --help"),
        ("train x y", "unexpected argument 'y'; see dr-q train --help"),
        (
            "eval x --episodes q",
            "--episodes must be a whole number between 1 and 100000, got 'q'; see dr-q eval --help",
        ),
        (
            "report x --compare-at 5 -5",
            "--compare-at must be whole numbers between 0 and 1000000000, got (5, -5); see dr-q report --help",
        ),
        ("report x --compare-at 99999999999999999999999", "--compare-at must be whole numbers between 0 and 10000"),
        (
            "sweep dmc --gpus-per-job 9999999999999999999999999",
            "--gpus-per-job must be a number between 0 and 1, or a whole number up to 1024, got 1e+25; see dr-q",
        ),
        ("tune dmc --gpus-per-job nan", "--gpus-per-job must be a number between 0 and 1, or a whole number up to"),
        ("experiment run x --gpus-per-job 1.5", "--gpus-per-job must be a number between 0 and 1, or a whole number"),
        ("train --out=", "--out must be a path, got ''; see dr-q train --help"),
        ("published nope/x", "the paper has no task 'nope/x'; list: dr-q tasks\n"),
        ("published gym/Antt-v4", "the paper has no task 'gym/Antt-v4'; did you mean 'gym/Ant-v4'? List: dr-q tasks"),
        ("sweep dmc --presets", "--presets needs at least one value; see dr-q sweep --help"),
        ("export", "missing: DIR, --out PATH; see dr-q export --help"),
        ("", "no command given; commands: train, "),
    ],
)
def test_mistakes(arguments, said, capsys):
    assert main(arguments.split()) == 2
    out, error = capsys.readouterr()
    assert error.startswith(f"dr-q: {said}")
    assert (error.count("\n"), out) == (1, "")


def test_help_and_version_are_no_mistakes(capsys):
    assert main(["train", "--help"]) == main(["train", "x", "--steps", "-h"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--eval-every N Agent steps between evaluations; between 1 and 1000000000 [5000; 100000 for Atari]" in text
    assert (
        "--discount X Discount factor (gamma): weight of a reward one step later; between 0 and 1 [dr.q: 0.99]" in text
    )
    assert main(["--version"]) == main(["version"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


def every_command(group: Group = COMMANDS, called: str = "dr-q"):
    for name, command in group.commands.items():
        if isinstance(command, Group):
            yield from every_command(command, f"{called} {name}")
        else:
            yield pytest.param(command, f"{called} {name}", id=f"{called} {name}")


@pytest.mark.parametrize(("command", "called"), list(every_command()))
def test_help_explains_every_option(command, called):
    text = help_text(Help(command, called))
    assert text.startswith(f"usage: {called}")
    assert " ".join(command.__doc__.split()) in " ".join(text.split())
    options = options_of_command(command)
    spellings = [spelling for o in options if not o.is_argument for spelling in o.spellings]
    assert len(set(spellings)) == len(spellings), "an option is declared twice"
    for declared in options:
        assert f"  {declared.usage}" in text
        assert declared.setting.describe()
        assert (
            base_kind(declared.kind) in (int, float, bool, str, Path) or declared.setting.choices or declared.count != 1
        )


def test_every_spelling_gives_the_setting():
    wanted = {"keep_checkpoints": 7, "eval_every": 9}
    for words in ("--keep-checkpoints 7 --eval-every 9", "--keep 7 --eval_every=9", "--eval-every=9 --keep=7"):
        assert parse_command(Train, words.split(), "dr-q train").run_settings == wanted
    assert parse_command(Train, ["--seed", "3"], "dr-q train").run_settings == {"seed": 3}
    for name in ("--max-minutes", "--stop-after"):
        assert parse_command(Train, [name, "1.5"], "dr-q train").execution == {"max_minutes": 1.5}
    sweep = parse(
        COMMANDS, ["sweep", "dmc-easy", "gym", "--presets", "dr.q", "mr.q", "--keep", "4", "--noise-dims", "50"]
    )
    assert (sweep.what, sweep.presets) == (("dmc-easy", "gym"), ("dr.q", "mr.q"))
    assert (sweep.run_settings, sweep.more_settings) == ({"keep_checkpoints": 4}, {"noise_dims": 50})


ALIASES = [
    (name, old) for kind in (Settings, Execution) for name, (_, s) in settings_of(kind).items() for old in s.aliases
]


@pytest.mark.parametrize(("name", "old"), ALIASES)
def test_an_old_name_is_the_setting_everywhere(name, old, tmp_path, monkeypatch):
    """On the command line, in Python, and in a run's file."""
    seen = []

    def begin(settings, _, options):
        seen.append((settings, options))
        raise InterruptedError  # seen enough

    monkeypatch.setattr("dr_q.training.api.run_loop", begin)
    value: Any = 7 if name == "keep_checkpoints" else 7.0
    for used in (name, old):
        with pytest.raises(InterruptedError):
            dr_q.train("gym/Hopper-v4", out=tmp_path / "run", **{used: value})
        command = parse_command(Train, [f"--{used.replace('_', '-')}", "7"], "dr-q train")
        assert {**command.run_settings, **command.execution} == {name: 7}
    assert seen[0] == seen[1]
    assert seen[0][0].keep_checkpoints == 7 or seen[0][1].max_minutes == 7
    with pytest.raises(ConfigError, match=f"{name} is given twice"):
        dr_q.train("gym/Hopper-v4", **{name: value, old: value})


def test_runs_of_earlier_versions_are_read():
    settings = Settings("gym/Hopper-v4", "dr.q", Config(), keep_checkpoints=9)
    record = settings.to_json()
    earlier = {"keep" if name == "keep_checkpoints" else name: value for name, value in record.items()}
    assert Settings.from_json(earlier) == Settings.from_json(record) == settings


@pytest.mark.parametrize(("kind", "code"), [("ConfigError", 2), ("MissingPackageError", 2), ("ToolError", 1)])
def test_the_exit_code_is_the_errors(kind, code, monkeypatch, capsys):
    def fails(_: object) -> int:
        raise getattr(dr_q, kind)("what happened,\n  and what to do")

    monkeypatch.setattr("dr_q.cli.Version.run", fails)
    assert main(["version"]) == code
    assert capsys.readouterr().err == "dr-q: what happened, and what to do\n"


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        (["plot", "tests/data/runs-675da62/states", "--out", "OUT"], "matplotlib", "plot"),
        (["report", "tests/data/runs-675da62/states", "--out", "OUT"], "matplotlib", "report"),
        (["analyse", "tsne", "tests/data/runs-675da62/states", "--out", "OUT"], "sklearn", "report"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    words, package, extra, tmp_path, monkeypatch, capsys
):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.chdir(Path(__file__).parents[1])
    assert main([str(tmp_path / "out.png") if word == "OUT" else word for word in words]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"dr-q: {words[0]} needs {package}")
    assert said.endswith(f", which is not installed: pip install 'dr-q[{extra}]'")


def test_an_import_that_fails_in_a_command_without_an_extra_is_not_hidden(monkeypatch):
    def fails(_: object) -> int:
        raise ImportError("ours")

    monkeypatch.setattr("dr_q.cli.Version.run", fails)
    with pytest.raises(ImportError, match="ours"):
        main(["version"])


@dataclasses.dataclass(kw_only=True)
class Everything:
    """Of every kind one."""

    place: str = argument(help="a place", metavar="PLACE")
    others: tuple[Path, ...] = argument((), "the rest", metavar="FILE...")
    needed: int = option(help="needed")
    flag: bool = option(False, "a flag")
    words: tuple[str, ...] = option((), "any number")
    execution: dict = options_of(Execution)  # noqa: RUF009  # declares a field


def test_words_become_values():
    got = parse_command(
        Everything, ["--needed", "-3", "a", "--flag", "b", "--words", "x", "y", "--wandb", "--", "--c"], "test"
    )
    assert got == Everything(
        place="a",
        others=(Path("b"), Path("--c")),
        needed=-3,
        flag=True,
        words=("x", "y"),
        execution={"wandb": True},
    )
    assert not parse_command(Everything, ["a", "--needed", "1", "--flag", "--no-flag"], "test").flag
    with pytest.raises(ConfigError, match=r"^missing: PLACE, --needed N; see test --help$"):
        parse_command(Everything, [], "test")


OPTIONS = [o for o in options_of_command(Train) if not o.is_argument and not o.is_flag]
CHECKED = [o for o in OPTIONS if base_kind(o.kind) not in (str, Path, tuple[str, ...]) or o.setting.choices]


@settings(max_examples=10)
@given(text=st.text(alphabet="abcxyzé,;~ \n", min_size=1).filter(lambda text: text.strip() not in ("", "-")))
def test_a_value_of_the_wrong_kind_is_refused_in_one_line(text):
    for declared in CHECKED:
        words = ["train", "gym/Hopper-v4", declared.spellings[0], *[text] * (declared.count or 1)]
        with pytest.raises(ConfigError) as error:
            parse(COMMANDS, words)
        assert error.value.exit_code == 2
        said = str(error.value)
        assert said.startswith(f"{declared.spellings[0]} must be {declared.setting.allowed(declared.kind)}, got ")
        assert "\n" not in said


@given(words=st.lists(st.one_of(st.sampled_from([s for o in OPTIONS for s in o.spellings]), st.text(max_size=5))))
def test_any_words_give_a_command_or_one_line(words):
    said = ""
    try:
        assert isinstance(parse(COMMANDS, ["train", *words]), Train | Help)
    except ConfigError as error:
        said = str(error)
    assert said == "" or said.endswith("; see dr-q train --help")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "gym/Pendulum-v1", "--out", "deep/LONG"], "dr-q: cannot use deep/xxxxxxx"),
        (["train", "gym/LONG"], "dr-q: Gymnasium cannot make 'xxxxxxx"),
        (["eval", "LONG"], "dr-q: cannot use xxxxxxx"),
        (["results", "LONG"], "dr-q: cannot use xxxxxxx"),
        (["compare", "LONG", "LONG"], "dr-q: cannot use xxxxxxx"),
        (["plot", "loop"], "dr-q: loop is not there"),
        (["train", "gym/Pendulum-v1", "--out", "loop"], "dr-q: cannot use loop: "),
        (["sweep", "gym/Pendulum-v1", "--local", "--out", "loop/x"], "dr-q: cannot use "),
    ],
)
def test_a_name_that_is_too_long_is_a_mistake_and_shown_in_part(words, said, tmp_path, monkeypatch, capsys):
    """So are links that lead in a circle."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    assert main([word.replace("LONG", "x" * 3_000) for word in words]) == 2
    out, error = capsys.readouterr()
    assert error.startswith(said)
    assert (out, error.count("\n")) == ("", 1)
    assert len(error) < 1_000
    assert "LONG" not in words[-1] or "characters)..." in error
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


def test_messages_are_one_line_of_bounded_length():
    """Their end is kept: it says what to do."""
    said = str(ConfigError(f"{'x' * 5_000} and\n {'y ' * 5_000}do this"))
    assert len(said) < 2_100
    assert said.startswith(f"{'x' * 200}...(5,000 characters)...x")
    assert said.endswith("y y y do this")
    assert str(ConfigError("short,\n and in one line")) == "short, and in one line"
    settings = make_settings(f"gym/{'x' * 3_000}")
    folder = default_folder(settings)
    assert len(folder.name) < 240
    assert folder != default_folder(make_settings(f"gym/{'x' * 3_001}"))
    assert default_folder(make_settings("gym/Ant-v4")).name == "gym-Ant-v4-dr.q-seeds0-0"
