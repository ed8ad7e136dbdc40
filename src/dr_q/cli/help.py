"""The text of `--help`, from the declarations that options are made of."""

import inspect
import shutil
import textwrap
from typing import Any

from dr_q.cli.options import ARGUMENTS, OPTIONS, Option, options_of_command
from dr_q.cli.parse import Group, Help

_COLUMN = 30
"""Where explanations begin."""
_WIDEST = 120
_NO_BREAK = "\xa0"


def help_text(asked: Help) -> str:
    """What `--help` prints of a command, or of a group of commands."""
    if isinstance(asked.what, Group):
        return _of_group(asked.what, asked.called)
    return _of_command(asked.what, asked.called)


def _of_group(group: Group, called: str) -> str:
    rows = [(name, _summary(one)) for name, one in group.commands.items()]
    tail = f"{called} COMMAND --help explains a command and lists its options."
    return "\n\n".join((f"usage: {called} COMMAND ...", _wrapped(group.help), _section("Commands", rows), tail))


def _of_command(command: type, called: str) -> str:
    options = options_of_command(command)
    arguments = [o.usage if o.is_required else f"[{o.usage}]" for o in options if o.is_argument]
    required = [o.usage for o in options if not o.is_argument and o.is_required]
    usage = " ".join(("usage:", called, *arguments, *required, "[OPTIONS]" if options else "")).strip()
    sections = [usage, _wrapped(_doc(command))]
    groups = dict.fromkeys((ARGUMENTS, OPTIONS, *(option.setting.group for option in options)))
    for title in groups:
        members = [option for option in options if option.setting.group == title]
        if members:
            by_preset = " (default: the preset's)" if any(option.by_preset for option in members) else ""
            sections.append(_section(f"{title}{by_preset}", [(o.usage, explained(o)) for o in members]))
    return "\n\n".join(sections)


def explained(option: Option) -> str:
    """What an option is: the paper's name and symbol, what it does, its range and its default."""
    declared = option.setting
    among = "" if declared.choices else declared.range()
    parts = "; ".join(part for part in (declared.describe(), among) if part)
    return f"{parts[:1].upper()}{parts[1:]}{_default(option)}"


def _default(option: Option) -> str:
    if option.by_preset:
        return f" [dr.q:{_NO_BREAK}{as_text(option.default)}]"
    shown = option.setting.otherwise or ("" if option.is_flag else as_text(option.default))
    return f" [{shown}]" if shown and not option.is_required else ""


def as_text(value: Any) -> str:
    """A default as one would write it on the command line; empty for none."""
    if value is None:
        return ""
    return " ".join(map(as_text, value)) if isinstance(value, tuple) else str(value)


def _summary(command: type | Group) -> str:
    """What a command does, in the list of commands."""
    if isinstance(command, Group):
        return f"{command.help} Commands: {', '.join(command.commands)}."
    return _doc(command)


def _doc(command: type) -> str:
    return " ".join((inspect.getdoc(command) or "").split())


def _width() -> int:
    return min(shutil.get_terminal_size((100, 24)).columns, _WIDEST)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _width(), break_on_hyphens=False)


def _section(title: str, rows: list[tuple[str, str]]) -> str:
    lines = [f"{title}:"]
    for name, text in rows:
        body = textwrap.wrap(text, max(_width() - _COLUMN, 30), break_on_hyphens=False) or [""]
        body = [line.replace(_NO_BREAK, " ") for line in body]
        head = f"  {name}"
        if len(head) + 2 > _COLUMN:
            lines.append(head)
            head = ""
        lines.append(f"{head:{_COLUMN}}{body[0]}".rstrip())
        lines += [f"{'':{_COLUMN}}{line}" for line in body[1:]]
    return "\n".join(lines)
