"""The paper's tables: tasks, every published score with its interval, published aggregates, and errors in the tables.

Figures are as published; what looks wrong is listed in `TABLE_NOTES` and changed nowhere.
"""

import csv
import dataclasses
import functools
import importlib.resources
from typing import NamedTuple

_PREFIX = {"dmc-easy": "dmc", "dmc-hard": "dmc", "hbench-hand": "hbench"}
SUITES = ("gym", "dmc-easy", "dmc-hard", "dmc-visual", "hbench", "hbench-hand")
"""The suites of the paper, a table of scores each."""
OURS = "DR.Q"
DMC_HIGHEST = 1000


@dataclasses.dataclass(frozen=True)
class TaskInfo:
    """A task with a known suite and budget: one of the paper's 73, or one of another family."""

    name: str
    """Its name, `family/id`."""
    suite: str
    """Its suite."""
    agent_steps: int
    """Its budget in agent steps; the paper's for the paper's tasks."""
    action_repeat: int
    """Simulator frames for each agent step."""
    episode_length: int
    """Length of an episode in agent steps."""
    random_score: float | None
    """Return of random actions; None if the paper gives none."""
    reference_score: float | None
    """The return that is a normalised score of 1; None if the suite has none."""
    note: str = ""
    """An error about the task in the published tables."""

    def normalise(self, score: float) -> float:
        """The normalised score.

        With `random_score` and `reference_score`, 0 is random and 1 is the reference (TD3 in Gym, success in
        HumanoidBench). Without them it is the return divided by 1,000, as in the DeepMind Control Suite.

        Args:
            score: A return.

        Returns:
            The normalised score.
        """
        if self.random_score is None or self.reference_score is None:
            return score / DMC_HIGHEST
        return (score - self.random_score) / (self.reference_score - self.random_score)


class Published(NamedTuple):
    """One published cell: the mean over seeds at the end of the budget, and its 95% interval (nan where none is)."""

    mean: float
    low: float
    high: float


class Aggregate(NamedTuple):
    """One published aggregate of a suite."""

    suite: str
    algorithm: str
    statistic: str
    """IQM, Median or Mean."""
    value: float
    low: float
    high: float


class TableNote(NamedTuple):
    """Something published that does not add up."""

    suite: str
    what: str


TABLE_NOTES = (
    TableNote(
        "dmc-easy",
        "cheetah-run of SimBa (920) and SimBaV2 (821) look swapped: with them exchanged the means of both columns come "
        "to within 0.003 of the published ones, and published runs of SimBaV2 end above 900.",
    ),
    TableNote("dmc-easy", "The published Mean of MR.Q, 0.874, is not that of its column, 0.871."),
    TableNote(
        "all",
        "'Median' is computed in two ways: for some columns it is the median over tasks (in DMC TD-MPC2, TD7, "
        "DreamerV3, PPO), for others (DR.Q, MR.Q, SimBa, SimBaV2, FoG) a number near the Mean, which that median is "
        "not. They cannot be compared.",
    ),
    TableNote(
        "dmc-visual",
        "The caption's normalisation is not the one of the numbers: the published Means are those of return / 1000.",
    ),
)
"""Known errors in the published tables, besides those of single tasks (`TaskInfo.note`)."""


@functools.cache
def paper_tasks() -> dict[str, TaskInfo]:
    """All 73 tasks of the paper, by name."""
    return {
        _name(row): TaskInfo(
            name=_name(row),
            suite=row["suite"],
            agent_steps=int(row["agent_steps"]),
            action_repeat=int(row["action_repeat"]),
            episode_length=int(row["episode_length"]),
            random_score=float(row["random_score"]) if row["random_score"] else None,
            reference_score=float(row["reference_score"]) if row["reference_score"] else None,
            note=row["note"],
        )
        for row in _rows("tasks.csv")
    }


@functools.cache
def published_scores() -> dict[tuple[str, str], Published]:
    """Every published score, by task and algorithm, in the order of the paper."""
    return {
        (_name(row), row["algorithm"]): Published(float(row["mean"]), *(_number(row[k]) for k in ("ci_low", "ci_high")))
        for row in _rows("scores.csv")
    }


def published_score(task: str, algorithm: str = OURS) -> Published | None:
    """The paper's score of an algorithm on a task, if it has one."""
    return published_scores().get((task, algorithm))


@functools.cache
def published_aggregates() -> tuple[Aggregate, ...]:
    """Every published aggregate."""
    return tuple(
        Aggregate(
            row["suite"],
            row["algorithm"],
            row["statistic"],
            *(_number(row[k]) for k in ("value", "ci_low", "ci_high")),
        )
        for row in _rows("aggregates.csv")
    )


@functools.cache
def algorithms(suite: str | None = None) -> tuple[str, ...]:
    """The algorithms with a published score in a suite, or anywhere: ours first, then by how many tasks they have."""
    counts: dict[str, int] = {}
    for task, algorithm in published_scores():
        if suite is None or paper_tasks()[task].suite == suite:
            counts[algorithm] = counts.get(algorithm, 0) + 1
    return tuple(sorted(counts, key=lambda name: (name != OURS, -counts[name], name.lower())))


def _rows(file: str) -> list[dict[str, str]]:
    text = (importlib.resources.files("dr_q.paper") / file).read_text()
    return list(csv.DictReader(text.splitlines()))


def _name(row: dict[str, str]) -> str:
    family = _PREFIX.get(row["suite"], row["suite"])
    return f"{family}/{row['env_id'].removeprefix('visual-')}"


def _number(text: str) -> float:
    return float(text) if text else float("nan")
