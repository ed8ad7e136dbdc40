"""From the words of a command line to a command, by the options that commands declare.

Every mistake is a ConfigError in one line, which says what to do next.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from dr_q.cli.options import Option, options_of_command
from dr_q.kit import ConfigError, nearest, shortened

_HELP = ("-h", "--help")
_SUGGESTED = 3


@dataclasses.dataclass(frozen=True)
class Group:
    """Commands under a common word: `dr-q experiment list`."""

    help: str
    commands: "Mapping[str, type | Group]"


@dataclasses.dataclass(frozen=True)
class Help:
    """Help was asked for: of a command, or of the commands in a group."""

    what: "type | Group"
    called: str


def parse(group: Group, words: Sequence[str], called: str = "dr-q") -> Any:
    """The command that the words name, with its options; or `Help`.

    Args:
        group: The commands that there are.
        words: What was written after `dr-q`.
        called: `dr-q`, and the words before these.

    Raises:
        ConfigError: For a mistake in the words.
    """
    try:
        if not words:
            raise ConfigError(f"no command given; commands: {', '.join(group.commands)}")
        first, *rest = words
        if first in _HELP:
            return Help(group, called)
        if first not in group.commands:
            raise ConfigError(_unknown_command(first, group))
    except ConfigError as error:
        raise ConfigError(f"{error}; see {called} --help") from None
    command, called = group.commands[first], f"{called} {first}"
    return parse(command, rest, called) if isinstance(command, Group) else parse_command(command, rest, called)


def parse_command(command: type, words: Sequence[str], called: str) -> Any:
    """A command with the options in the words; or `Help`."""
    ours = words[: words.index("--")] if "--" in words else words
    if any(word in _HELP for word in ours):
        return Help(command, called)
    try:
        return command(**_fields(options_of_command(command), list(words)))
    except ConfigError as error:
        raise ConfigError(f"{error}; see {called} --help") from None


def _fields(options: Sequence[Option], words: list[str]) -> dict[str, Any]:
    """The values of a command's fields, as far as they are given."""
    fields: dict[str, Any] = {}

    def give(option: Option, value: Any) -> None:
        if option.in_dict:
            fields.setdefault(option.field, {})[option.name] = value
        elif option.count is None:  # given twice, it has the values of both
            fields[option.field] = (*fields.get(option.field, ()), *value)
        else:
            fields[option.field] = value

    loose = _give_options(options, words, give)
    arguments = [option for option in options if option.is_argument]
    for option in arguments:
        taken, loose = (loose, []) if option.count is None else (loose[:1], loose[1:])
        if taken:
            give(option, option.value(taken, option.metavar))
    if loose:
        raise ConfigError(f"unexpected argument {shortened(loose[0])}")
    missing = [option.usage for option in options if option.is_required and option.field not in fields]
    if missing:
        raise ConfigError(f"missing: {', '.join(missing)}")
    return fields


def _give_options(options: Sequence[Option], words: list[str], give: Any) -> list[str]:
    """Give the values of all options among the words; the words that are left are arguments."""
    named = {spelling: option for option in options if not option.is_argument for spelling in option.spellings}
    negated = {f"--no-{spelling[2:]}": option for spelling, option in named.items() if option.is_flag}
    loose: list[str] = []
    while words:
        word = words.pop(0)
        if word == "--":
            return loose + words
        if not _is_option(word):
            loose.append(word)
            continue
        written, equals, value = word.partition("=")
        spelling = written.replace("_", "-")  # --eval_every is accepted for --eval-every
        if spelling not in named and spelling not in negated:
            raise ConfigError(_unknown_option(written, [*named, *negated]))
        option = named.get(spelling) or negated[spelling]
        if option.is_flag:
            if equals:
                raise ConfigError(f"{written} takes no value, got {shortened(value)}")
            give(option, spelling in named)
            continue
        give(option, option.value([value] if equals else _take(words, option.count), written))
    return loose


def _take(words: list[str], count: int | None) -> list[str]:
    """Remove the values of an option from the words after it: up to the next option, and no more than it needs."""
    taken: list[str] = []
    while words and not _is_option(words[0]) and (count is None or len(taken) < count):
        taken.append(words.pop(0))
    return taken


def _is_option(word: str) -> bool:
    if not word.startswith("-") or word == "-":
        return False
    try:
        float(word)  # a negative number is a value
    except ValueError:
        return True
    return False


def _unknown_command(name: str, group: Group) -> str:
    found = nearest(name, group.commands)
    hint = f"did you mean {found[0]}? " if found else ""
    kind = "option" if name.startswith("-") else "command"
    return f"unknown {kind} {shortened(name)}; {hint}commands: {', '.join(group.commands)}"


def _unknown_option(written: str, known: Sequence[str]) -> str:
    """The options that end in what was written, as --actor-learning-rate does for --learning-rate; else the nearest."""
    longer = [option for option in known if option.endswith(f"-{written.lstrip('-')}")]
    found = sorted(longer, key=len)[:_SUGGESTED] or nearest(written, known)
    hint = f"; did you mean {' or '.join(found)}?" if found else ""
    return f"unknown option {written if len(written) < 200 else shortened(written)}{hint}"
