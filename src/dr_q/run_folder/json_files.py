"""Records read from JSON files, field by field: a wrong one is named with its file, its name and its value."""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dr_q.kit import DamagedFileError, read_file, shortened

_LONGEST_VALUE = 60
_LARGEST = 2**63 - 1
_DEEPEST = 100


class Fields:
    """The fields of a JSON object in a file; whatever is missing or of another kind is a DamagedFileError."""

    def __init__(self, path: Path, values: Mapping[str, Any], advice: str = "", within: str = ""):
        """
        Args:
            path: The file, for messages.
            values: What it holds.
            advice: What to do about damage, for messages.
            within: The object that these are the fields of, if the file holds it in another one.
        """
        self.path, self.values = path, values
        self._advice, self._within = advice, within

    def any(self, name: str) -> Any:
        """A field, whatever it is."""
        if name not in self.values:
            raise self.damaged(f"it has no {self._within}{name}")
        return self.values[name]

    def whole(self, name: str, least: int = 0, most: int = _LARGEST) -> int:
        """A whole number."""
        value = self.any(name)
        if not _is_whole(value, least, most):
            raise self.wrong(name, f"a whole number {_range(least, most)}")
        return value

    def number(self, name: str, least: float = -math.inf) -> float:
        """A finite number."""
        value = self.any(name)
        kind = isinstance(value, int | float) and not isinstance(value, bool)
        if not kind or not -sys.float_info.max <= value <= sys.float_info.max or value < least:
            raise self.wrong(name, "a finite number" + ("" if least == -math.inf else f", at least {least:g}"))
        return float(value)

    def text(self, name: str, among: Sequence[str] = ()) -> str:
        """A string, if need be one of some."""
        value = self.any(name)
        if not isinstance(value, str) or (among and value not in among):
            raise self.wrong(name, f"one of {', '.join(among)}" if among else "text")
        return value

    def wholes(self, name: str, count: int | None = None, most: int = _LARGEST) -> list[int]:
        """A list of whole numbers, if need be of that length."""
        value = self.list(name, count)
        if not all(_is_whole(x, 0, most) for x in value):
            raise self.wrong(name, f"a list of whole numbers {_range(0, most)}")
        return value

    def texts(self, name: str) -> list[str]:
        """A list of strings."""
        value = self.list(name)
        if not all(isinstance(x, str) for x in value):
            raise self.wrong(name, "a list of texts")
        return value

    def list(self, name: str, count: int | None = None) -> list[Any]:
        """A list, if need be of that length."""
        value = self.any(name)
        if not isinstance(value, list) or (count is not None and len(value) != count):
            raise self.wrong(name, "a list" + ("" if count is None else f" of {count}"))
        return value

    def object(self, name: str) -> dict[str, Any]:
        """An object."""
        value = self.any(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "names and values")
        return value

    def objects(self, name: str) -> dict[str, dict[str, Any]]:
        """An object of objects."""
        value = self.object(name)
        if not all(isinstance(x, dict) for x in value.values()):
            raise self.wrong(name, "names and values for each name")
        return value

    def inner(self, name: str) -> "Fields":
        """The fields of an object."""
        return Fields(self.path, self.object(name), self._advice, f"{self._within}{name}.")

    def wrong(self, name: str, expected: str) -> DamagedFileError:
        """The error for a field that is not as expected."""
        value = shortened(self.values.get(name), _LONGEST_VALUE)
        return self.damaged(f"{self._within}{name} must be {expected}, got {value}")

    def damaged(self, what: str) -> DamagedFileError:
        """The error for a file that is not as expected."""
        return DamagedFileError(f"{self.path} is damaged: {what}{f'; {self._advice}' if self._advice else ''}")


def read_json(path: Path) -> dict[str, Any]:
    """The object that a file holds; an empty one if it holds no JSON, something else, or one nested too deeply."""
    content = read_file(path)
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) and _is_flat_enough(record) else {}


def _is_flat_enough(value: Any) -> bool:
    """Whether values lie no deeper than ours do: whoever walks through them recursively must not run out of stack."""
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        inner = (x.values() if isinstance(x, dict) else x for x in level if isinstance(x, dict | list))
        level = [x for values in inner for x in values]
    return not level


def _is_whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _range(least: int, most: int) -> str:
    return f"of at least {least}" if most == _LARGEST else f"between {least} and {most}"
