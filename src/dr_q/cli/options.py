"""How commands declare their options: as dataclass fields with the same metadata as settings (`dr_q.config`)."""

import dataclasses
import functools
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from dr_q.config import Setting, base_kind, load_presets, number_kind, setting, settings_of
from dr_q.kit import ConfigError, shortened

ARGUMENTS, OPTIONS = "Arguments", "Options"


def option(default: Any = dataclasses.MISSING, help: str = "", **facts: Any) -> Any:
    """Declare an option of a command; without a default, it must be given.

    Args:
        default: Its value if it is not given.
        help: What it is, in a sentence.
        facts: Further fields of `Setting`: a range, what stands for its value in `--help`.
    """
    return setting(default, help, group=OPTIONS, **facts)


def argument(default: Any = dataclasses.MISSING, help: str = "", *, metavar: str, **facts: Any) -> Any:
    """Declare an argument of a command, which is given by its place; one of a tuple type takes all that are left."""
    return setting(default, help, group=ARGUMENTS, metavar=metavar, **facts)


def preset_file() -> Any:
    """Declare `--preset-file`; the command's `run` calls `use_presets` with it."""
    return option(
        None, "a TOML file with presets of your own: a table for each, with base and settings", metavar="FILE"
    )


def use_presets(path: Path | None) -> None:
    """Make the presets of a file known, if one is given."""
    if path is not None:
        load_presets(path)


def options_of(kind: type, *names: str, by_preset: bool = False, **defaults: Any) -> Any:
    """Declare an option for each setting of a dataclass; the field is a dict of those that are given.

    Args:
        kind: The dataclass that declares the settings.
        names: Which of them; by default all.
        by_preset: Whether their defaults are the preset's.
        defaults: What the command uses where that is not the declared default.
    """
    chosen = names or tuple(settings_of(kind))
    metadata = {"options_of": (kind, chosen, by_preset, defaults)}
    return dataclasses.field(default_factory=dict, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Option:
    """An option or an argument of a command, as a field declares it."""

    field: str
    """The command's field; `name` is its entry there if that is a dict."""
    name: str
    """What users call it."""
    kind: Any
    default: Any
    setting: Setting
    in_dict: bool = False
    by_preset: bool = False

    @property
    def is_argument(self) -> bool:
        """Whether it is given by its place."""
        return self.setting.group == ARGUMENTS

    @property
    def is_required(self) -> bool:
        """Whether it must be given."""
        return self.default is dataclasses.MISSING

    @property
    def is_flag(self) -> bool:
        """Whether it takes no value: `--wandb`, `--no-wandb`."""
        return self.kind is bool and not self.by_preset

    @property
    def spellings(self) -> tuple[str, ...]:
        """How it may be written, today's spelling first, old ones after it."""
        return tuple(f"--{name.replace('_', '-')}" for name in (self.name, *self.setting.aliases))

    @property
    def count(self) -> int | None:
        """How many values it takes; None for any number."""
        if self.is_flag:
            return 0
        parts = typing.get_args(base_kind(self.kind)) if typing.get_origin(base_kind(self.kind)) is tuple else None
        if parts is None:
            return 1
        return None if Ellipsis in parts else len(parts)

    @property
    def metavar(self) -> str:
        """What stands for its value in help and messages."""
        if self.setting.metavar or self.is_flag:
            return self.setting.metavar
        if self.setting.choices:
            return f"{{{','.join(self.setting.choices)}}}"
        unit = self.setting.unit.upper()
        kinds = {int: "N", float: unit or "X", bool: "{True,False}", Path: "PATH", str: "NAME"}
        return kinds.get(base_kind(self.kind), "NAME...")

    @property
    def usage(self) -> str:
        """How it is written: `--seeds N`, `TASK`."""
        return self.metavar if self.is_argument else f"{self.spellings[0]} {self.metavar}".strip()

    def value(self, words: list[str], written: str) -> Any:
        """The value that the user wrote; ConfigError if it is not allowed."""
        if self.count is not None and len(words) < self.count:
            needed = "a value" if self.count == 1 else f"{self.count} values"
            raise ConfigError(f"{written} needs {needed}" + (f", got {len(words)}" if words else ""))
        if self.count is None and not words:
            raise ConfigError(f"{written} needs at least one value")
        base = base_kind(self.kind)
        kind = typing.get_args(base)[0] if typing.get_origin(base) is tuple else base
        convert = self.setting.read or _converter(kind)
        try:
            values = tuple(convert(word) for word in words)
        except ValueError:
            allowed = self.setting.allowed(self.kind)
            raise ConfigError(f"{written} must be {allowed}, got {shortened(' '.join(words))}") from None
        value = values[0] if self.count == 1 else values
        if "" in words and (kind is Path or self.is_argument):  # a variable of the shell that is not set, perhaps
            raise ConfigError(f"{written} must be {'a path' if kind is Path else 'text'}, got ''")
        if base is bool or number_kind(base) or self.setting.choices or self.setting.check:
            self.setting.refuse(self.kind, value, written)
        return value


def _true_or_false(word: str) -> bool:
    if word not in ("True", "False"):
        raise ValueError
    return word == "True"


def _converter(kind: Any) -> Callable[[str], Any]:
    if kind is bool:
        return _true_or_false
    return str if typing.get_origin(kind) is Literal else kind


@functools.cache
def options_of_command(command: type) -> tuple[Option, ...]:
    """Every option and argument of a command, in the order of its help."""
    found: list[Option] = []
    for field in dataclasses.fields(command):
        if "options_of" in field.metadata:
            kind, names, by_preset, defaults = field.metadata["options_of"]
            for name in names:
                inner, declared = settings_of(kind)[name]
                default = defaults.get(name, inner.default)
                found.append(_option(inner, declared, default, in_dict=True, by_preset=by_preset, field=field.name))
        else:
            found.append(_option(field, field.metadata["setting"], field.default, field=field.name))
    return tuple(found)


def _option(declaring: dataclasses.Field, declared: Setting, default: Any, **where: Any) -> Option:
    base: Any = base_kind(declaring.type)
    if typing.get_origin(base) is Literal and not declared.choices:
        declared = dataclasses.replace(declared, choices=typing.get_args(base))
    name = declared.called or declaring.name
    return Option(name=name, kind=declaring.type, default=default, setting=declared, **where)
