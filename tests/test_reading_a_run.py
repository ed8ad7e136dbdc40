"""docs/reading-a-run.md names every file, field and column that a run writes, and no other."""

import csv
import json
import re
from pathlib import Path

import pytest

import dr_q
from dr_q.run_folder.record import _KINDS
from dr_q.run_folder.tables import EVAL_COLUMNS
from tests.training.tiny import RUN, SIZES, STEPS

PAGE = Path(__file__).parents[1] / "docs" / "reading-a-run.md"
OPTIONAL_COLUMNS = ("success_mean",)
"""That this run has none of: its environment does not say whether an episode succeeded."""
ONLY_WHEN_ASKED_FOR = {"videos", "wandb_id"}
"""Files that a run with the defaults does not have."""


def named(heading: str) -> list[str]:
    """The names in the first cells of the first table below a heading."""
    (section,) = re.findall(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reading") / "run"
    dr_q.train("gym/Pendulum-v1", steps=STEPS, out=folder, in_process=True, **SIZES, **RUN)
    return folder


@pytest.mark.parametrize("table", ["evals.csv", "metrics.csv"])
def test_the_page_names_every_column(table, run):
    with (run / table).open(newline="") as file:
        assert [name for name in named(table) if name not in OPTIONAL_COLUMNS] == next(csv.reader(file))
    assert table != "evals.csv" or tuple(named(table)) == EVAL_COLUMNS


def test_the_page_names_every_field_of_run_json(run):
    fields = named("run.json")
    assert set(fields) == {*_KINDS, "updated"}
    assert [name for name in json.loads((run / "run.json").read_text()) if name not in fields] == []


def test_the_page_names_every_file(run):
    files = {name.rstrip("/") for name in named("Files")}
    assert {path.name for path in run.iterdir()} == {name for name in files if "/" not in name} - ONLY_WHEN_ASKED_FOR
    assert (run / "policy" / "best").is_dir()


def test_every_figure_is_there():
    figures = re.findall(r"\]\((images/[^)]+)\)", PAGE.read_text())
    assert len(figures) == 7
    assert [name for name in figures if not (PAGE.parent / name).exists()] == []
