"""docs/paper-map.md: every equation with its function, and every link at the line where its name is."""

import re
from pathlib import Path

import pytest

from dr_q.cli.paper_map import LINK, with_lines
from dr_q.kit import ConfigError

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "paper-map.md").read_text()


@pytest.mark.parametrize("name", ["paper-map.md", "how-it-works.md"])
def test_links_are_at_the_lines_of_their_names(name):
    page = (DOCS / name).read_text()
    assert with_lines(page, DOCS) == page, "run: make docs-settings"
    assert len(list(LINK.finditer(page))) > 5
    for found in LINK.finditer(page):
        line = (DOCS / found["file"]).read_text().splitlines()[int(found["line"]) - 1]
        assert found["name"].rpartition(".")[2].rstrip("*") in line


def test_every_equation_has_a_function_a_test_and_the_authors_code():
    rows = {row.split("|")[1].strip(): row.split("|")[2:] for row in PAGE.splitlines() if row.startswith("| Eq.")}
    assert list(rows) == [f"Eq. {n}" for n in range(4, 14)]
    for row in rows.values():
        assert "../src/dr_q/" in row[1]
        assert "../tests/" in row[2]
        assert re.search(r"DR\.Q/blob/cc307a5/DRQ/\w+\.py#L\d+", row[3])
    steps = [row for row in PAGE[PAGE.index("## Algorithm 1") :].splitlines() if re.match(r"\| \d", row)]
    assert len(steps) == 10
    assert all("../src/dr_q/" in step for step in steps)


def test_files_without_a_line_are_there():
    for file in re.findall(r"\]\((\.\./[\w/.-]+|[\w-]+\.md)[#)]", PAGE):
        assert (DOCS / file).exists(), file


def test_a_line_that_moved_and_a_name_that_is_gone_are_found(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "src").mkdir()
    code = "X = 1\nY: int = 2\n\n\nclass A:\n    def b(self): ...\n\n\ndef test_x_1(): ...\n"
    (tmp_path / "src" / "a.py").write_text(code)
    link = "[`{}`](../src/a.py#L{})"
    old = " ".join(link.format(name, 99) for name in ("X", "Y", "A", "A.b", "test_x*"))
    new = " ".join(link.format(*pair) for pair in (("X", 1), ("Y", 2), ("A", 5), ("A.b", 6), ("test_x*", 9)))
    assert with_lines(old, tmp_path / "docs") == new
    for name, file, message in (("c", "a.py", "has no `c`"), ("X", "b.py", "which is not there")):
        with pytest.raises(ConfigError, match=re.escape(message)):
            with_lines(f"[`{name}`](../src/{file}#L1)", tmp_path / "docs")
