"""Documents, docstrings, comments and messages are in plain technical English, with the words of the field.

`BANNED` lists phrases that have a better word, each with the contexts in which it is right. Documents are README.md,
docs/, results/*.md, benchmarks/*.md and the released parts of CHANGELOG.md. Code blocks and inline code are not prose
and are not checked, except for paths of a machine.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "results").glob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
]
SOURCES = sorted((ROOT / "src" / "dr_q").rglob("*.py"))
MOST_SEMICOLONS = 2
"""In a sentence of README.md and docs/."""
MACHINE_PATH = re.compile(r"(?<![\w.}/-])/(work|tmp|root|home|mnt)/[\w.~-]")
CODE = "`code`"
"""Stands for inline code in prose."""


class Phrase(NamedTuple):
    """A phrase that has a better word."""

    pattern: str
    better: str
    example: str
    """A sentence in which it is wrong."""
    allowed: tuple[str, ...] = ()
    """Contexts in which it is right, as patterns that contain the phrase."""
    allowed_in: tuple[str, ...] = ()
    """Files in which it is right, as globs from the repository's root."""
    prose_only: bool = False
    """Whether it is looked for in documents only, not in source files."""


_NO_NOUN = "and|or|is|are|was|were|in|at|on|by|to|of|with|than|from|for|as|have|has|do|does|ones?"
BANNED = (
    Phrase(r"\bmend(?:s|ed|ing)?\b", "fix", "The file was mended by hand."),
    Phrase(
        r"\b(?:go|goes|going|went|gone) on\b",
        "resume, continue",
        "The run goes on from its checkpoint.",
        allowed=(r"\bgo(?:es)? on the (?:device|GPU|CPU)\b", r"\bgoing on\b"),
    ),
    Phrase(r"\bbeside\b", "next to, compared with", "Our scores beside the paper's."),
    Phrase(r"\bin print\b", "published", "Scores that are in print.", allowed=(r"\bin print (?:layout|preview)",)),
    Phrase(
        r"\b(?:told|tells?|telling)(?: \w+){0,3} apart\b|\btold from\b",
        "distinguish, significantly different",
        "The two cannot be told apart.",
    ),
    Phrase(
        r"\bnumbers? that (?:are|is) none\b|\bnot finite\b|\bno finite numbers?\b",
        "NaN or infinite",
        "Rewards that are not finite end the run.",
    ),
    Phrase(r"\bpictures?\b", "figure, plot, image", "The picture shows ten seeds."),
    Phrase(
        r"\bprograms?\b",
        "version, commit; compiled program",
        "Measured with the program of November.",
        allowed=(
            r"\bcompiled programs?\b",
            r"\bprograms? (?:is |are )?compiled\b",
            r"\b(?:other|another|two|training) programs?\b",
        ),
        allowed_in=(  # compiled programs, in the code that makes them
            "src/dr_q/learner/*",
            "src/dr_q/networks/*",
            "src/dr_q/spaces.py",
            "src/dr_q/training/compile_cache.py",
            "src/dr_q/envs/processes/fence.py",
        ),
    ),
    Phrase(
        rf"\bauthors'(?=\s*(?:[.,;:!?)|]|$)|\s+(?:{_NO_NOUN})\b)",
        "the authors' code, the authors' runs",
        "Our curve lies above the authors'.",
    ),
    Phrase(
        r"\bhow many seeds at once\b|\bseeds? at once\b|\bseed's place\b",
        "number of seeds; seed index",
        "It says how many seeds at once are trained.",
    ),
    Phrase(r"\blook(?:s|ed|ing)? at shared memory\b", "poll", "A worker looks at shared memory."),
    Phrase(r"\bby turns\b", "alternating", "Both versions ran by turns."),
    Phrase(r"\b(?:wants|shall|whichever)\b", "needs, must, any", "An image policy wants three frames."),
    Phrase(
        r"(?:^|(?<=[.;:] ))Of (?:[\w'`-]+ ){1,3}(?:it|we|they)\b",
        "subject, verb, object",
        "Of images it needs the last three.",
        prose_only=True,
    ),
    Phrase(
        r"\b(?:as before|no longer|not any ?more|until now|used to be|in earlier versions)\b",
        "what is true now; history belongs to CHANGELOG.md",
        "The file is no longer written.",
        allowed_in=("docs/results/history.md", "docs/changelog.md", "CHANGELOG.md"),
        prose_only=True,
    ),
)


class Text(NamedTuple):
    """A piece of prose: a paragraph, a list item, a table cell, a string or a block of comments."""

    line: int
    words: str


def problems(path: Path, root: Path = ROOT) -> list[str]:
    """Banned phrases in a document or a source file, a line each."""
    name = path.relative_to(root).as_posix()
    source = path.suffix == ".py"
    texts = list(source_texts(path.read_text()) if source else document_texts(released(path)))
    found = []
    for phrase in BANNED:
        if (source and phrase.prose_only) or any(fnmatch(name, glob) for glob in phrase.allowed_in):
            continue
        for text in texts:
            if (hit := wrong(phrase, text.words)) is not None:
                found.append(f"{name}:{text.line}: '{hit}'; better: {phrase.better}")
    return found


def wrong(phrase: Phrase, words: str) -> str | None:
    """What is wrong with these words; None if nothing is."""
    right = [match.span() for allowed in phrase.allowed for match in re.finditer(allowed, words, re.IGNORECASE)]
    for match in re.finditer(phrase.pattern, words, re.IGNORECASE):
        if not any(begin <= match.start() and match.end() <= end for begin, end in right):
            return words[max(0, match.start() - 30) : match.end() + 30]
    return None


def released(path: Path) -> str:
    """A document; of CHANGELOG.md without its unreleased part, as many lines long."""
    text = path.read_text()
    if path.name != "CHANGELOG.md":
        return text
    unreleased = re.search(r"^## Unreleased$.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return text if unreleased is None else text.replace(unreleased[0], "\n" * unreleased[0].count("\n"))


def document_texts(document: str) -> Iterator[Text]:
    """Paragraphs, list items, headings and table cells of a Markdown document, without code."""
    blank = re.compile(r"^(```|~~~).*?^\1[^\S\n]*$|<!--.*?-->", re.MULTILINE | re.DOTALL)
    prose = blank.sub(lambda match: "\n" * match[0].count("\n"), document)
    begin, lines = 1, []
    for number, line in enumerate([*prose.splitlines(), ""], start=1):
        starts = not line.strip() or re.match(r"\s*([-*+]|\d+\.)\s|#|\s*\|", line)
        if starts and lines:
            yield from _cells(begin, " ".join(lines))
            lines = []
        if line.strip():
            begin = begin if lines else number
            lines.append(line.strip())
            if line.lstrip().startswith("#"):
                yield from _cells(begin, " ".join(lines))
                lines = []


def _cells(line: int, paragraph: str) -> Iterator[Text]:
    prose = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", CODE, paragraph)
    prose = re.sub(r"\]\([^)]*\)", "]", prose)
    prose = re.sub(r"^\s*(#+|[-*+]|\d+\.)\s+", "", prose)
    for cell in prose.split("|") if prose.startswith("|") else [prose]:
        if words := " ".join(cell.replace("*", "").split()):
            yield Text(line, words)


def source_texts(source: str) -> Iterator[Text]:
    """Strings (joined where they are written in several pieces) and blocks of comments of a Python file."""
    tree = ast.parse(source)
    pieces = {id(piece) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for piece in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pieces:
            yield from _string(node.lineno, node.value)
        elif isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else CODE for part in node.values]
            yield from _string(node.lineno, "".join(map(str, parts)))
    comments = [
        token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type == tokenize.COMMENT
    ]
    block: list[tokenize.TokenInfo] = []
    for token in [*comments, None]:
        if block and (token is None or token.start != (block[-1].start[0] + 1, block[-1].start[1])):
            yield from _string(block[0].start[0], " ".join(one.string.lstrip("# ") for one in block))
            block = []
        if token is not None:
            block.append(token)


def _string(line: int, string: str) -> Iterator[Text]:
    prose = re.sub(r"`[^`\n]+`", CODE, string)
    for paragraph in re.split(r"\n\s*\n", prose):
        if words := " ".join(paragraph.split()):
            yield Text(line, words)


def chained(document: str) -> list[str]:
    """Sentences with more than `MOST_SEMICOLONS` semicolons."""
    sentences = [
        Text(text.line, sentence)
        for text in document_texts(document)
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`\[(])", text.words)
    ]
    return [f"line {one.line}: {one.words}" for one in sentences if one.words.count(";") > MOST_SEMICOLONS]


# The repository.


@pytest.mark.parametrize("path", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_have_no_banned_phrase(path):
    assert problems(path) == []


def test_strings_and_comments_have_no_banned_phrase():
    assert [found for path in SOURCES for found in problems(path)] == []


@pytest.mark.parametrize(
    "path",
    [path for path in DOCUMENTS if path == ROOT / "README.md" or ROOT / "docs" in path.parents],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_no_sentence_is_a_chain_of_semicolons(path):
    assert chained(path.read_text()) == []


@pytest.mark.parametrize("path", [*DOCUMENTS, *SOURCES], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_path_of_a_machine(path):
    lines = enumerate(path.read_text().splitlines(), start=1)
    assert [f"line {number}: {line}" for number, line in lines if MACHINE_PATH.search(line)] == []


# The checks themselves.


@pytest.mark.parametrize("phrase", BANNED, ids=lambda phrase: phrase.example)
def test_a_planted_phrase_is_found(phrase, tmp_path):
    document = tmp_path / "planted.md"
    document.write_text(f"# Title\n\nA good sentence.\n\n- An item.\n- {phrase.example.replace(' ', chr(10), 1)}\n")
    (found,) = problems(document, tmp_path)
    assert found.startswith("planted.md:6: ")
    assert found.endswith(phrase.better)
    source = tmp_path / "planted.py"
    start, rest = phrase.example[: len(phrase.example) // 2], phrase.example[len(phrase.example) // 2 :]
    source.write_text(
        f'"""Good."""\n\n\ndef f(x):\n    print({start!r}\n        f"{rest} {{x}}")\n    # {phrase.example}\n'
    )
    assert len(problems(source, tmp_path)) == (0 if phrase.prose_only else 2)


def test_contexts_in_which_phrases_are_right(tmp_path):
    document = tmp_path / "right.md"
    document.write_text(
        "A compiled program runs while other programs keep the cores busy. Besides, arrays go on the device.\n\n"
        "The authors' code, `the picture`, and:\n\n```\nit goes on\n```\n<!-- it goes on -->\n"
    )
    assert problems(document, tmp_path) == []
    log = tmp_path / "CHANGELOG.md"
    log.write_text("# Changelog\n\n## Unreleased\n- It goes on.\n\n## 1.0\n- Good.\n- A picture.\n")
    assert [found.split(":")[1] for found in problems(log, tmp_path)] == ["8"]


def test_chains_of_semicolons_are_counted_by_sentence():
    assert chained("One; two; three. Four; `a; b; c;` five.\n\n| a; b | c; d; e |\n- f; g\n- h; i; j\n") == []
    assert chained("Good.\n\nOne; two;\nthree; four.\n") == ["line 3: One; two; three; four."]


def test_paths_of_a_machine_are_recognised():
    assert MACHINE_PATH.search("see /tmp/runs/a")
    assert MACHINE_PATH.search("`/root/x`")
    assert not MACHINE_PATH.search("--out /shared/easy, ${TMPDIR:-/tmp}/dr-q, docs/work/x, https://a.org/home/b")
