"""The worked changes of docs/extending.md: each diff applies, touches few files, and does what its script shows.

A diff that no longer applies: `git apply --reject` it to a checkout, finish it by hand, and paste `git diff -U2`.
`python -m tests.test_extending` writes the table of the page anew.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "extending.md"
MOST_FILES = {"Auxiliary loss": 2, "Sampling scheme": 2, "Critic": 3, "Preset": 2, "Family": 2, "Logged metric": 2}
CHANGES = {*MOST_FILES, "Network", "Analysis"}
DATA = Path("tests/data/runs-675da62")
MARKED = re.compile(r"(?<=<!-- made: files -->\n).*?(?=<!-- end: files -->)", re.DOTALL)


class Change(NamedTuple):
    """A section of the page that has a diff."""

    title: str
    diffs: list[str]
    scripts: list[str]

    @property
    def files(self) -> list[str]:
        """What it touches."""
        return re.findall(r"^diff --git a/(\S+) ", self.diffs[0], re.MULTILINE)

    @property
    def added(self) -> int:
        """Lines that it adds."""
        return len(re.findall(r"^\+(?!\+\+ )", self.diffs[0], re.MULTILINE))


def read_changes() -> list[Change]:
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    found = [Change(text.partition("\n")[0], blocks(text, "diff"), blocks(text, "python")) for text in sections]
    return [change for change in found if change.diffs]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def files_table(changes: list[Change]) -> str:
    rows = ["| change | source files | lines added | files |", "|---|---|---|---|"]
    for change in changes:
        names = ", ".join(f"`{name.removeprefix('src/dr_q/')}`" for name in change.files)
        link = f"[{change.title.lower()}](#{change.title.lower().replace(' ', '-')})"
        rows.append(f"| {link} | {len(change.files)} | {change.added} | {names} |")
    return "\n".join(rows) + "\n"


def with_table(text: str) -> str:
    return MARKED.sub(lambda _: files_table(read_changes()), text)


def apply(change: Change, folder: Path) -> None:
    """A copy of the package with the change."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "change.diff").write_text(change.diffs[0])
    # With a repository of its own, git does not look for one around the folder.
    for command in (["git", "init", "-q"], ["git", "apply", "--whitespace=error", "change.diff"]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


each_change = pytest.mark.parametrize("change", read_changes(), ids=lambda change: change.title.replace(" ", "-"))


def test_the_page_has_all_changes_each_with_one_diff_and_one_script():
    changes = read_changes()
    assert {change.title for change in changes} == CHANGES
    for change in changes:
        assert (len(change.diffs), len(change.scripts)) == (1, 1), change.title


def test_the_table_is_what_the_diffs_give():
    assert PAGE.read_text() == with_table(PAGE.read_text()), "python -m tests.test_extending writes it anew"


@each_change
def test_a_change_touches_few_files(change):
    assert change.files
    assert all(name.startswith("src/dr_q/") for name in change.files)
    assert len(change.files) <= MOST_FILES.get(change.title, 3), change.files


@each_change
def test_a_diff_applies_and_is_written_in_our_style(change, tmp_path):
    apply(change, tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for command in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--no-cache", *change.files]
        done = subprocess.run(ruff, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@each_change
def test_a_change_does_what_its_script_shows(change, tmp_path):
    apply(change, tmp_path)
    shutil.copytree(ROOT / DATA, tmp_path / DATA)
    is_ours = f"\nimport dr_q\n\nassert dr_q.__file__.startswith({str(tmp_path)!r}), dr_q.__file__\n"
    (tmp_path / "script.py").write_text(change.scripts[0] + is_ours)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
