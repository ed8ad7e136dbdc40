"""What the parser of the command line says of a mistake, in a line: it draws boxes of up to forty."""

import contextlib
import difflib
import io
import re
from collections.abc import Callable, Sequence
from typing import Any

from dr_q.agent import ConfigError

_KINDS = {"int()": "a whole number", "float": "a number"}
_SUGGESTED = 3


def parsed(parse: Callable[[], Any], arguments: Sequence[str], commands: Sequence[str]) -> Any:
    """What `parse` gives; ConfigError in one line where it refuses the arguments. Help goes its own way."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return parse()
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        command = _command(arguments, commands)
        raise ConfigError(f"{one_line(said.getvalue(), command)}; see {command} --help") from None


def one_line(box: str, command: str) -> str:
    """The mistake that a box is about; `command` is what was called, by whose options it looks for a similar one."""
    first, *rest = _sections(box)
    text = " ".join(" ".join(line.split()) for line in first)
    if text.startswith("Unrecognized options: "):
        return _unknown(text.removeprefix("Unrecognized options: ").split(", ")[0], rest, command)
    if text.startswith("Missing from "):
        names = [line.strip() for line in first[1:] if line.startswith("    ") and not line.startswith("     ")]
        return f"missing: {', '.join(names)}"
    for pattern, say in _SAID.items():
        if found := re.match(pattern, text):
            return say(*found.groups())
    return text


def _no_value(option: str, count: str) -> str:
    return f"{option} needs {'a value' if count == '1' else f'{count} values'}"


def _no_choice(got: str, option: str, choices: str) -> str:
    allowed = sorted(word for word in choices.rstrip(",").split(", ") if word != "'None'")
    return f"{option} must be {' or '.join(allowed)}, got {got}"


def _value(option: str, why: str) -> str:
    for sign, kind in _KINDS.items():
        if found := re.search(rf"{re.escape(sign)}[^']*: ('.*?')(?: |$)", why):
            return f"{option} must be {kind}, got {found[1]}"
    if found := re.search(r"input length (\d+) did not match expected argument count (\d+)", why):
        return f"{option} needs {found[2]} values, got {found[1]}"
    return f"{option}: {why.partition(' Got errors')[0]}"


_SAID: dict[str, Callable[..., str]] = {
    r"Missing value for argument '(.*?)'\. Expected (\d+)": _no_value,
    r"invalid choice (.*) for argument '(.*)'\. Expected one of \((.*)\)": _no_choice,
    r"Error parsing (\S+): (.*)": _value,
    r"Expected one of \{(.*)\}": lambda names: f"no command given; commands: {names}",
}
"""What the parser says, and what we make of it."""


def _unknown(name: str, rest: list[list[str]], command: str) -> str:
    lines = [line for section in rest for line in section]
    text = " ".join(" ".join(line.split()) for line in lines)
    if found := re.search(r"Available subcommands: (.*?)(?= For full helptext|$)", text):
        names = found[1].split(", ")
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        return f"unknown command '{name}'; {hint}commands: {found[1]}"
    if not name.startswith("-"):
        return f"nothing is to be done with '{name}'"
    options: dict[str, bool] = {}  # whether the command that was called has it
    option = ""
    for line in map(str.strip, lines):
        if line.startswith("--"):
            option = line.split()[0]
        elif option and line.startswith("in dr-q"):
            options[option] = options.get(option, False) or line == f"in {command} --help"
    own = [option for option, here in options.items() if here] or list(options)
    hint = f"; did you mean {' or '.join(own[:_SUGGESTED])}?" if own else ""
    return f"unknown option {name}{hint}"


def _sections(box: str) -> list[list[str]]:
    """Its lines without the frame, cut where it has rules; where there is no Unicode, a title and a rule are above."""
    framed = [line for line in box.splitlines() if line.startswith("│")]
    plain = [] if framed else box.splitlines()[2:]
    sections: list[list[str]] = [[]]
    for line in framed or plain:
        inner = line[2:].rstrip("│").rstrip()
        if set(inner) in ({"─"}, {"-"}):
            sections.append([])
        else:
            sections[-1].append(inner)
    return sections if sections[0] else [[" ".join(box.split())]]


def _command(arguments: Sequence[str], commands: Sequence[str]) -> str:
    words = ["dr-q", *arguments[:1]] if arguments and arguments[0] in commands else ["dr-q"]
    nested = {"experiment": ("list", "run"), "analyse": ("tsne", "priorities", "information")}
    if len(words) == 2 and arguments[1:] and arguments[1] in nested.get(words[1], ()):
        words.append(arguments[1])
    return " ".join(words)
