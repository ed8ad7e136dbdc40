"""Tables read from CSV files: whatever is wrong is named with its file and its line."""

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dr_q.kit import DamagedFileError, read_file

_LARGEST = 2**63 - 1
"""Of whole numbers: what arrays hold."""


class Table(NamedTuple):
    """The rows of a CSV file."""

    columns: list[str]
    rows: list[dict[Any, Any]]
    """By column."""
    lines: list[int]
    """In which line of the file each row ends, from 1."""

    def numbered(self) -> Iterator[tuple[int, dict[Any, Any]]]:
        """Each row with its line."""
        return zip(self.lines, self.rows, strict=True)


def read_table(path: Path) -> Table:
    """A CSV file.

    Raises:
        DamagedFileError: It is not text, no CSV file, or a row has more or fewer values than there are columns.
    """
    table = parse_table(read_file(path), path)
    for line, row in table.numbered():
        check_values(row, path, line)
    return table


def read_rows(path: Path) -> list[dict[Any, Any]]:
    """The rows of a CSV file, by column; raises what `read_table` does."""
    return read_table(path).rows


def parse_table(content: bytes, path: Path) -> Table:
    """The rows in some bytes of a CSV file, which begin with its header.

    Values beyond the columns are under None, and columns without a value have it.

    Raises:
        DamagedFileError: They are not text, or not CSV.
    """
    reader = csv.DictReader(io.StringIO(decoded(content, path), newline=""))
    rows, lines = [], []
    try:
        columns = list(reader.fieldnames or [])
        for row in reader:
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        where = f"{path} is not a CSV file: line {reader.line_num + 1}: {error}"
        raise DamagedFileError(f"{where}; fix or remove that line") from None
    return Table(columns, rows, lines)


def decoded(content: bytes, path: Path) -> str:
    """The text of a CSV file."""
    try:
        return content.decode("utf-8-sig")  # some editors begin a file with a byte-order mark
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DamagedFileError(
            f"{path} is not a CSV file: line {line} is not text in UTF-8; fix or remove that line"
        ) from None


def has_every_value(row: dict[Any, Any]) -> bool:
    """Whether a row has as many values as there are columns."""
    return None not in row and None not in row.values()


def check_values(row: dict[Any, Any], path: Path, line: int) -> None:
    """Refuse a row that has more or fewer values than there are columns."""
    if not has_every_value(row):
        raise damaged_line(path, line, "it has too many or too few values")


def damaged_line(path: Path, line: int, damage: str) -> DamagedFileError:
    """The error for a line that is not as expected."""
    return DamagedFileError(f"{path} is damaged in line {line}: {damage}; fix or remove that line")


def whole_number(text: Any) -> int | None:
    """The whole number that a value is; None if it is none, or larger than arrays hold."""
    try:
        number = int(text)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) <= _LARGEST else None


def finite_number(text: Any) -> float | None:
    """The finite number that a value is; None if it is none."""
    try:
        number = float(text)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
