"""The paper's printed scores."""

import csv
import functools
import importlib.resources
from typing import NamedTuple

_PREFIX = {"dmc-easy": "dmc", "dmc-hard": "dmc", "hbench-hand": "hbench"}


class Published(NamedTuple):
    """One printed cell: the mean over ten seeds at the end of the budget, and its 95% interval."""

    mean: float
    low: float
    high: float


@functools.cache
def _scores() -> dict[tuple[str, str], Published]:
    text = (importlib.resources.files("dr_q.report") / "data" / "scores.csv").read_text()
    found = {}
    for row in csv.DictReader(text.splitlines()):
        family = _PREFIX.get(row["suite"], row["suite"])
        name = f"{family}/{row['env_id'].removeprefix('visual-')}"
        low, high = (float(row[k]) if row[k] else float("nan") for k in ("ci_low", "ci_high"))
        found[name, row["algorithm"]] = Published(float(row["mean"]), low, high)
    return found


def published_score(task: str, algorithm: str = "DR.Q") -> Published | None:
    """The paper's score of an algorithm on a task, if it has one."""
    return _scores().get((task, algorithm))
