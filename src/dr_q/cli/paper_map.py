"""The line numbers of the links in docs/paper-map.md: `python -m dr_q.cli.paper_map docs/paper-map.md` sets them anew.

A link is written [`name`](../src/dr_q/file.py#L12): the name is a function, a class, `Class.method` or a constant of
that file, and the number its line. A name that ends in * stands for the first test that begins like it.
"""

import ast
import re
import sys
from pathlib import Path

from dr_q.kit import ConfigError

LINK = re.compile(r"\[`(?P<name>[\w.*]+)`\]\((?P<file>\.\./(?:src|tests)/[\w/.]+\.py)(?:#L(?P<line>\d+))?\)")


def with_lines(page: str, folder: Path) -> str:
    """The page with the lines of its links as they are now.

    Args:
        page: Markdown.
        folder: where the page is; links are relative to it.

    Raises:
        ConfigError: a file is not there, or has no such name.
    """
    return LINK.sub(lambda found: _link(found["name"], found["file"], folder), page)


def _link(name: str, file: str, folder: Path) -> str:
    path = folder / file
    if not path.is_file():
        raise ConfigError(f"the page links {file}, which is not there; write where `{name}` is now")
    line = line_of(name, ast.parse(path.read_text(encoding="utf-8")).body)
    if line is None:
        raise ConfigError(f"{file} has no `{name}`; write where it is now, or its new name")
    return f"[`{name}`]({file}#L{line})"


def line_of(name: str, body: list[ast.stmt]) -> int | None:
    """The line on which a name is defined; None: it is not."""
    first, _, rest = name.partition(".")
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if first.endswith("*") and node.name.startswith(first[:-1]):
                return node.lineno
            if node.name == first:
                return line_of(rest, node.body) if rest else node.lineno
        names = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == first for target in names):
            return node.lineno
    return None


def main(path: Path) -> None:
    """Set the lines of a page."""
    path.write_text(with_lines(path.read_text(encoding="utf-8"), path.parent), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
