"""Every block of code in README.md, CONTRIBUTING.md and docs/ runs, or says why not.

A block in `python`, `bash`, `sh` or `console` is one of three:

- it is run here, in an empty folder (`make test-slow`, because most blocks train);
- another test runs the blocks of its page (`COVERED`);
- a comment right before it says `<!-- not run: REASON -->`.

`<!-- continues -->` right before a block says that it builds on the block before it: same folder and, from Python to
Python, same variables. `<!-- given: COMMAND -->` makes what the page takes for granted. A Python block that begins with
`# NAME.py` is also written to that file. Runs are tiny, whatever a block says: networks have the widths of
`tests.training.tiny`, training ends after `STEPS` agent steps, and there are at most two tasks and seeds
(`documents/tiny_runs.py`).

Blocks that are not run are checked as well: Python compiles and uses names and settings that exist, each `dr-q` command
parses, and the files and targets of `make` that commands name exist.
"""

import ast
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import dr_q
from dr_q.cli import COMMANDS
from dr_q.cli.options import options_of_command
from dr_q.cli.parse import Group, parse
from dr_q.config import Config, settings_of
from dr_q.kit import ConfigError
from dr_q.settings import Execution, Settings
from tests.training import tiny

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
COVERED = {
    "docs/extending.md": "tests/test_extending.py",
    "docs/callbacks.md": "tests/training/test_callbacks.py",
}
"""Pages whose Python blocks another test runs."""
TOOLS = ROOT / "tests" / "documents"
"""What makes runs tiny, and files that blocks need."""
CHANGES = "docs/extending.md"
"""Its scripts use what its diffs add."""
SHELL = ("bash", "sh", "console")
RUN = ("python", *SHELL)
STEPS = 100
TINY = {**tiny.SIZES, "exploration_steps": 64, "eval_every": STEPS, "eval_episodes": 1}
OTHER_TOOLS = {"--exclusive", "--no-deps"}
"""Options of sbatch and pip in the prose of our pages."""
OTHER_OPTIONS = {"docs/coming-from.md", CHANGES}
"""Pages with options of other libraries, and of changes that the page makes."""
DEADLINE_S = 500


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    line: int
    """Of its first line of code."""
    language: str
    code: str
    not_run: str | None
    """Why it is not run; None if it is."""
    continues: bool
    given: tuple[str, ...]
    """Commands that are run before it, in its folder, and that the page does not show."""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_run_here(self) -> bool:
        covered = self.language == "python" and self.page in COVERED
        return self.language in RUN and self.not_run is None and not covered


def blocks_of(text: str, page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        begin = re.match(r"\s*(`{3,}|~{3,})\s*([\w-]*)", lines[number])
        if not begin:
            number += 1
            continue
        end = next(n for n in range(number + 1, len(lines)) if re.fullmatch(rf"\s*{begin[1]}`*\s*", lines[n]))
        code = "\n".join(lines[number + 1 : end]) + "\n"
        comments = []
        for above in reversed(lines[:number]):
            if not (comment := re.fullmatch(r"\s*<!--\s*(.*?)\s*-->\s*", above)):
                break
            comments.append(comment[1])
        reasons = [comment.partition(":")[2].strip() for comment in comments if comment.startswith("not run:")]
        not_run = reasons[0] if reasons else None
        given = tuple(comment.partition(":")[2].strip() for comment in comments if comment.startswith("given:"))[::-1]
        found.append(Block(page, number + 2, begin[2], code, not_run, "continues" in comments, given))
        number = end + 1
    return found


def commands(code: str) -> Iterator[list[str]]:
    """The words of each `dr-q` command in a block, without prompts, comments, redirections and what follows."""
    for line in code.replace("\\\n", " ").splitlines():
        started = re.match(r"\s*(?:\$ )?(?:nohup )?dr-q(?= )(.*)", line)
        if started:
            yield _up_to_an_operator(shlex.split(started[1], comments=True))


def _up_to_an_operator(words: list[str]) -> list[str]:
    ends = [n for n, word in enumerate(words) if word in (">", ">>", "2>&1", "&", "&&", "|", ";")]
    return words[: ends[0]] if ends else words


def all_options(group: Group = COMMANDS) -> set[str]:
    """Every option of every command."""
    found = {"--help", "--version"}
    for command in group.commands.values():
        if isinstance(command, Group):
            found |= all_options(command)
            continue
        for option in options_of_command(command):
            found |= set(option.spellings) | {f"--no-{name[2:]}" for name in option.spellings if option.is_flag}
    return found


def prose_of(text: str) -> str:
    return re.sub(r"^\s*(```+|~~~+).*?^\s*\1\s*$", "", text, flags=re.MULTILINE | re.DOTALL)


BLOCKS = [block for path in PAGES for block in blocks_of(path.read_text(), path.relative_to(ROOT).as_posix())]
each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())


def chains() -> list[list[Block]]:
    """The blocks that are run here: each with those that continue it."""
    found: list[list[Block]] = []
    for block in BLOCKS:
        if block.is_run_here:
            if block.continues:
                found[-1].append(block)
            else:
                found.append([block])
    return found


# Quick checks of all blocks.


def test_pages_that_another_test_runs_are_named_there():
    for page, test in COVERED.items():
        assert Path(page).name in (ROOT / test).read_text()


def test_marks_are_where_they_say_something():
    for block in BLOCKS:
        assert block.not_run != "", f"{block.place}: say why it is not run"
        assert block.not_run is None or block.language in RUN, f"{block.place}: {block.language} is never run"
        assert block.not_run is None or block.page not in COVERED or block.language != "python", block.place
    first_of_page = {block.page: block for block in reversed(BLOCKS) if block.is_run_here}
    assert not [block.place for block in first_of_page.values() if block.continues]


@each_page
def test_python_blocks_compile_and_use_names_and_settings_that_exist(path):
    known = {*inspect.signature(dr_q.train).parameters, *settings_of(Config)}
    known |= {name for kind in (Settings, Execution) for name in settings_of(kind)}
    for block in blocks_of(path.read_text(), path.relative_to(ROOT).as_posix()):
        if block.language != "python" or block.page == CHANGES:
            continue
        for node in ast.walk(ast.parse(block.code, block.place)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "dr_q":
                assert hasattr(dr_q, node.attr), f"{block.place}: dr_q.{node.attr}"
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "dr_q.train":
                given = {keyword.arg for keyword in node.keywords if keyword.arg}
                assert given <= known, f"{block.place}: dr_q.train has no {', '.join(given - known)}"


@each_page
def test_commands_in_blocks_parse(path):
    for block in blocks_of(path.read_text(), str(path)):
        if block.language in (*SHELL, "", "text"):
            for words in commands(block.code):
                try:
                    parse(COMMANDS, words)
                except ConfigError as error:
                    pytest.fail(f"{block.place}: dr-q {shlex.join(words)}: {error}")


@each_page
def test_commands_and_options_in_prose_exist(path):
    """Values are placeholders there (`--seeds N`, `RUN...`), so only the names are checked."""
    spans = [span.strip() for span in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose_of(path.read_text()))]
    for span in spans:
        if re.match("dr-q [a-z]", span):
            try:
                parse(COMMANDS, span.split()[1:])
            except ConfigError as error:
                if re.search("unknown (option|command '[a-z])", str(error)):
                    pytest.fail(f"{span}: {error}")
    if path.is_relative_to(ROOT) and path.relative_to(ROOT).as_posix() in OTHER_OPTIONS:
        return
    known = all_options() | OTHER_TOOLS
    named = {word for span in spans if span.startswith("--") for word in re.findall(r"(?<!\S)--[a-z][\w-]*", span)}
    assert named - known == set()


@each_page
def test_files_and_targets_that_commands_name_exist(path):
    makefile = (ROOT / "Makefile").read_text()
    text = path.read_text()
    spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose_of(text))
    ours = [block for block in blocks_of(text, str(path)) if block.not_run != "not ours"]
    lines = [line for block in ours if block.language in (*SHELL, "") for line in block.code.splitlines()]
    for line in [*spans, *lines]:
        if target := re.match(r"(?:\$ )?make ([a-z][\w-]*)\b", line):
            assert re.search(rf"^{target[1]}:", makefile, re.MULTILINE), line
        if script := re.match(r"(?:\$ )?(?:\S*/)?python (\w+/[\w/]+\.py)\b", line):
            assert (ROOT / script[1]).exists(), line
        if module := re.match(r"(?:\$ )?(?:\S*/)?python -m ((?:tests|benchmarks|dr_q)[\w.]*)", line):
            name = module[1].replace(".", "/")
            assert any((ROOT / folder / f"{name}.py").exists() for folder in (".", "src")), line


# Running them.


@pytest.mark.slow
@pytest.mark.parametrize("chain", chains(), ids=lambda chain: chain[0].place)
def test_blocks_run(chain, tmp_path):
    environment = prepared(tmp_path)
    work = tmp_path / "work"
    for number, group in enumerate(grouped(chain)):
        for command in group[0].given:
            _run(["bash", "-e", "-c", command], work, environment, group[0])
        if group[0].language == "python":
            for block in group:
                if named := re.match(r"# (\w+\.py)\n", block.code):
                    (work / named[1]).write_text(block.code)
            job = tmp_path / f"blocks-{number}.json"
            job.write_text(json.dumps([("\n" * (block.line - 1) + block.code, block.page) for block in group]))
            command = [sys.executable, str(TOOLS / "run_blocks.py"), str(job)]
        else:
            command = ["bash", "-e", "-u", "-o", "pipefail", "-c", shell_code(group[0])]
        _run(command, work, environment, group[0])


def _run(command: list[str], work: Path, environment: dict[str, str], block: Block) -> None:
    done = subprocess.run(
        command, cwd=work, env=environment, capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
    assert done.returncode == 0, f"{block.place}\n{done.stdout[-3000:]}{done.stderr[-5000:]}"


def grouped(chain: list[Block]) -> list[list[Block]]:
    """Python blocks in a row run in one process, unless something is given for one, and each shell block in one."""
    found: list[list[Block]] = []
    for block in chain:
        if found and block.language == found[-1][0].language == "python" and not block.given:
            found[-1].append(block)
        else:
            found.append([block])
    return found


def shell_code(block: Block) -> str:
    if block.language != "console":
        return block.code
    return "\n".join(line[2:] for line in block.code.splitlines() if line.startswith("$ "))


def prepared(folder: Path) -> dict[str, str]:
    """Make a folder `work` with the examples and what is given to blocks, and a tiny `dr-q`; return variables."""
    (folder / "work").mkdir()
    (folder / "work" / "examples").symlink_to(ROOT / "examples")
    (folder / "bin").mkdir()
    (folder / "work" / "given").symlink_to(TOOLS / "given")
    start = {"dr-q": "-c 'import tiny_runs; tiny_runs.command()' ", "python": ""}
    for name, words in start.items():
        (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words}"$@"\n')
        (folder / "bin" / name).chmod(0o755)
    source = Path(dr_q.__file__).parents[1]
    return {
        **os.environ,
        "PATH": os.pathsep.join((str(folder / "bin"), os.environ["PATH"])),
        "PYTHONPATH": os.pathsep.join((str(source), str(TOOLS))),
        "DRQ_TINY": json.dumps({"settings": TINY, "steps": STEPS}),
        "MPLBACKEND": "Agg",
        "MINARI_DATASETS_PATH": str(folder / "work" / "minari"),
    }


# The checks themselves.


def test_blocks_and_their_marks_are_found():
    page = (
        "# T\n\n<!-- not run: needs a GPU -->\n```bash\ndr-q train x\n```\nText.\n\n"
        "<!-- given: touch a -->\n<!-- given: touch b -->\n```python\na = 1\n```\n"
        "<!-- continues -->\n```python\nb = a\n```\n- item\n  ```\n  dr-q version\n  ```\n"
    )
    found = blocks_of(page, "page.md")
    assert [(b.line, b.language, b.not_run, b.continues, b.given) for b in found] == [
        (5, "bash", "needs a GPU", False, ()),
        (12, "python", None, False, ("touch a", "touch b")),
        (16, "python", None, True, ()),
        (20, "", None, False, ()),
    ]
    assert [b.is_run_here for b in found] == [False, True, True, False]


def test_commands_are_found_with_their_words():
    code = "$ dr-q train x \\\n  --seeds 2   # words\nnohup dr-q watch a > log 2>&1 &\nls\ndr-q: no command\n"
    assert list(commands(code)) == [["train", "x", "--seeds", "2"], ["watch", "a"]]


def test_a_renamed_option_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```bash\ndr-q train gym/Pendulum-v1 --evaluate-every 5\n```\n`--evaluate-every`\n")
    with pytest.raises(pytest.fail.Exception, match="unknown option --evaluate-every"):
        test_commands_in_blocks_parse(page)
    with pytest.raises(AssertionError, match="--evaluate-every"):
        test_commands_and_options_in_prose_exist(page)
