"""The look of each preset, the same on screen, on paper and in grey: its colour, dash and marker."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#a0508a", "#b8860b", "#3aa0d8", "#5a4fcf", "#7a5c3e", "#4d4d4d")
"""After Okabe and Ito; page.css has the same, and lighter ones for a dark background."""
DASHES = ("", "7 3", "2 2", "8 3 2 3", "12 4", "4 2 1 2", "1 3", "6 2 2 2 2 2", "3 5")
"""Lengths of strokes and gaps, as SVG writes them; page/js/data.js has the same."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
"""matplotlib's names; page/js/elements.js draws the same shapes."""


def style(index: int) -> dict:
    """What matplotlib takes for a line of this index."""
    dash = DASHES[index % len(DASHES)]
    lengths = tuple(float(x) / 1.5 for x in dash.split())
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": (0, lengths) if lengths else "-",
        "marker": MARKERS[index % len(MARKERS)],
    }
