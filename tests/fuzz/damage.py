"""Damaged files: bytes flipped, cut, doubled and inserted; JSON whose values have other types."""

import json
from typing import Any

from hypothesis import strategies as st

_BYTES = st.one_of(
    st.binary(min_size=1, max_size=8),
    st.sampled_from(
        [b"\0", b'"', b"\n", b",", b"{", b"[", b"nan", b"-1", b"9" * 30, b"\xff\xfe", b"../", b"x" * 140_000]
    ),
)
_CHANGES = st.tuples(
    st.sampled_from(["flip", "cut", "double", "insert", "end"]), st.integers(0, 10**6), st.integers(0, 300), _BYTES
)


def _changed(data: bytes, change: tuple[str, int, int, bytes]) -> bytes:
    how, place, count, new = change
    at = place * len(data) // 10**6 if data else 0
    if how == "flip" and data:
        at = min(at, len(data) - 1)
        return data[:at] + bytes([data[at] ^ (1 << count % 8)]) + data[at + 1 :]
    if how == "cut":
        return data[:at] + data[at + count :]
    if how == "double":
        return data[: at + count] + data[at:]
    if how == "end":
        return data[:at]
    return data[:at] + new + data[at:]


@st.composite
def damaged(draw: Any, data: bytes) -> bytes:
    """A file with a few changes anywhere in it."""
    for change in draw(st.lists(_CHANGES, min_size=1, max_size=3)):
        data = _changed(data, change)
    return data


_VALUES: list[Any] = [
    None, True, False, 0, -1, 1.5, 10**30, -(10**400), 1e308, float("nan"), float("inf"), "", "x", "../../x", "é\n\0",
    "9" * 5_000, [], [None], {}, {"x": 1}, [[[]]], [1, "a", None],
]  # fmt: skip


@st.composite
def damaged_json(draw: Any, text: str) -> bytes:
    """A JSON file with a few values replaced, removed or renamed."""
    tree = json.loads(text)
    for _ in range(draw(st.integers(1, 2))):
        tree = _with_damage(draw, tree)
    return json.dumps(tree).encode()


def _with_damage(draw: Any, tree: Any) -> Any:
    inner = list(tree) if isinstance(tree, dict) else list(range(len(tree))) if isinstance(tree, list) else []
    if not inner or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(_VALUES))
    place = draw(st.sampled_from(inner))
    how = draw(st.sampled_from(["within", "within", "within", "remove", "rename"]))
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    if how == "within":
        copy[place] = _with_damage(draw, tree[place])
    else:
        value = copy.pop(place)
        if how == "rename" and isinstance(copy, dict):
            copy[draw(st.sampled_from(["x", "", "task", "format", "é"]))] = value
    return copy
