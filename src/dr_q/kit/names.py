"""Suggestions for names that are nearly right."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], count: int = 1) -> list[str]:
    """The known names most like this one, the nearest first; empty if none is similar."""
    return difflib.get_close_matches(str(name), list(known), n=count)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'X'?` to append to a message, or nothing."""
    found = nearest(name, known)
    return f"; did you mean '{found[0]}'?" if found else ""
