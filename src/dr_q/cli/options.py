"""What commands share: how arguments are described, one option for each of the algorithm's settings, how to print."""

import ast
import dataclasses
import inspect
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from dr_q.agent import Config, ConfigError

FAILURE = 1
"""Exit code where something failed that was asked for rightly."""


def named(kind: Any, metavar: str) -> Any:
    """An argument by its place, under a name that says what it is."""
    return tyro.conf.Positional[Annotated[kind, tyro.conf.arg(metavar=metavar)]]


def optional(kind: Any, metavar: str, help_text: str | None = None) -> Any:
    """An option that may be left out; its help names the default itself."""
    return Annotated[kind | None, tyro.conf.arg(metavar=metavar, help=help_text, help_behavior_hint="")]


_METAVAR = {int: "N", float: "X", bool: "{True,False}", tuple[float, float]: "LOW HIGH"}


def _option_groups() -> dict[str, Any]:
    """A dataclass for each group of the config's fields, every field optional: what is given overrides the preset."""
    source = inspect.getsource(Config)
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    lines, docs = source.splitlines(), {}
    group, groups = "", {}
    fields = {field.name: field for field in dataclasses.fields(Config)}
    for line, following in zip(body.body, body.body[1:], strict=False):
        if not (isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)):
            continue
        above = lines[line.lineno - 2].strip()
        group = above.removeprefix("# ") if above.startswith("# ") else group
        name = line.target.id
        assert isinstance(following, ast.Expr)
        docs[name] = f"{ast.literal_eval(following.value)} [dr.q: {fields[name].default}]"
        kind = optional(fields[name].type, _METAVAR.get(fields[name].type, "{elu,relu}"), docs[name])  # pyright: ignore
        groups.setdefault(group, []).append((name, kind, None))
    return {title: dataclasses.make_dataclass("Settings", entries) for title, entries in groups.items()}


_GROUPS = _option_groups()

_NAMES = {title: title.lower().replace(" ", "_").replace(".", "").replace(",", "") for title in _GROUPS}

AllSettings = dataclasses.make_dataclass(
    "AllSettings",
    [
        (
            _NAMES[title],
            Annotated[group, tyro.conf.arg(help=f"{title}; default: the preset's.")],
            dataclasses.field(default_factory=group),
        )
        for title, group in _GROUPS.items()
    ],
)


def at_least(name: str, value: int, least: int) -> None:
    """Refuse less."""
    if value < least:
        raise ConfigError(f"{name} must be at least {least}, got {value}")


def say(line: str) -> None:
    """Progress, which is not a command's output."""
    print(line, file=sys.stderr, flush=True)


class Tables(Console):
    """Prints tables, so wide where no terminal says how wide."""

    def __init__(self, width: int):
        super().__init__(width=None if sys.stdout.isatty() else width)

    def on_broken_pipe(self) -> None:
        """Left to `main`: rich's own way is exit code 1."""
        raise BrokenPipeError


def say_what_is_left_out(sources: list[Path]) -> None:
    """Runs in folders that have nothing to show yet."""
    from dr_q.report.results import without_evaluations

    for run in without_evaluations(sources):
        say(f"dr-q: {run} has no evaluation yet and is left out")


def given_settings(algorithm: Any) -> dict[str, Any]:
    """The algorithm's settings that were given, of an `AllSettings`."""
    groups = vars(algorithm).values()
    return {name: value for group in groups for name, value in vars(group).items() if value is not None}
