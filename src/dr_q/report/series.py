"""What a reader can show and hide: presets of ours and algorithms of the paper's, each with its own look."""

from typing import NamedTuple

from dr_q.report.model import Report, counterpart
from dr_q.report.style import COLOURS


class Series(NamedTuple):
    """A preset of ours, or an algorithm of the paper's."""

    key: str
    """Its name after `ours` or `paper`: a preset may be called what an algorithm is."""
    name: str
    ours: bool
    counterpart: str
    """The published algorithm that a preset is, or the preset that an algorithm is; empty if none is here."""
    style: int
    """Which colour, dash and marker; -1: grey."""
    reference: bool = False
    """Whether it is a reference's: a curve like a preset's, and no verdicts."""


def series_of(report: Report) -> list[Series]:
    """Presets, references, then algorithms; a preset and the algorithm that it is look alike."""
    mine = [Series(ours(name), name, True, counterpart(name) or "", i) for i, name in enumerate(report.presets)]
    same = {series.counterpart: series for series in reversed(mine) if series.counterpart}
    theirs = [
        Series(
            paper(name), name, False, same[name].name if name in same else "", same[name].style if name in same else -1
        )
        for name in report.algorithms
    ]
    # From the end of the styles: the grey of the last is unlike those of the first presets.
    others = [
        Series(f"reference {name}", name, True, "", (len(COLOURS) - 1 - i) % len(COLOURS), True)
        for i, name in enumerate(report.references)
    ]
    return mine + others + theirs


def ours(preset: str) -> str:
    """A preset's key."""
    return f"ours {preset}"


def paper(algorithm: str) -> str:
    """A published algorithm's key."""
    return f"paper {algorithm}"
