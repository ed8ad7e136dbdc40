"""How a number is written: on the page, in tables, sentences and files."""

import math
from collections.abc import Sequence


def number(value: int | float, kind: str) -> str:
    """A number as the page and LaTeX show it; the page's `number` in page/js/numbers.js does the same."""
    if kind == "count":
        return f"{value:,.0f}"
    if kind == "unit":
        return f"{value:.3f}"
    if kind == "share":
        return f"{100 * value:+.1f}%"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    sign = "+" if kind == "signed" else ""
    return f"{value:{sign}.{digits}f}"


def significant(value: float) -> float | None:
    """A number as CSV and the page's data have it: six digits, None where there is none."""
    return None if math.isnan(value) else float(f"{value:.6g}")


def with_interval(estimate: Sequence[float], form: str) -> str:
    """`value [low, high]`, each in Python's format `form`; the value alone where there is no interval."""
    value, low, high = (f"{x:{form}}" for x in estimate)
    return value if math.isnan(estimate[1]) else f"{value} [{low}, {high}]"


def count(amount: int, what: str) -> str:
    """`1 seed`, `1,000 seeds`."""
    return f"{amount:,} {what}{'' if amount == 1 else 's'}"
