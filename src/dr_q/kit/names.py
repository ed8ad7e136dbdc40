"""Suggestions for names that are nearly right, how users spell the name of a setting, and values in messages."""

import contextlib
import contextvars
import difflib
from collections.abc import Iterable, Iterator
from typing import Any

_AS_OPTIONS = contextvars.ContextVar("as_options", default=False)
_LONGEST_SHOWN = 200
"""Characters of a refused value that a message shows."""


def nearest(name: str, known: Iterable[str], count: int = 1) -> list[str]:
    """The known names most like this one, the nearest first; empty if none is similar."""
    return difflib.get_close_matches(str(name), list(known), n=count)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'X'?` to append to a message, or nothing."""
    found = nearest(name, known)
    return f"; did you mean '{found[0]}'?" if found else ""


def spelled(name: str, in_python: str = "") -> str:
    """A setting's name as the user writes it: `eval_every` in Python, `--eval-every` on the command line.

    Args:
        name: Its name.
        in_python: Its name in Python, where that is another.
    """
    return f"--{name.replace('_', '-')}" if _AS_OPTIONS.get() else in_python or name


def shortened(value: Any, most: int = _LONGEST_SHOWN) -> str:
    """A value as a message shows it: what a user gave, or a file holds, may be any length."""
    try:
        shown = repr(value)
    except ValueError:  # Python does not write out whole numbers of more than 4,300 digits
        return "a whole number of thousands of digits"
    return shown if len(shown) <= most else f"{shown[:most]}... ({len(shown):,} characters)"


def resume_call(folder: object) -> str:
    """How the user resumes a run: a command, or a call in Python."""
    return f"dr-q train --resume {folder}" if _AS_OPTIONS.get() else f"dr_q.train(resume={str(folder)!r})"


@contextlib.contextmanager
def spelled_as_options() -> Iterator[None]:
    """Within this block, messages name settings as options of the command line."""
    token = _AS_OPTIONS.set(True)
    try:
        yield
    finally:
        _AS_OPTIONS.reset(token)
