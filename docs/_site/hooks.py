"""What the site needs besides mkdocs: pages of README, CHANGELOG, CONTRIBUTING and of source files, and formulas.

Documents link files of the repository by relative paths, so that they can be read there too. On the site, a link that
leaves docs/ leads to a page with the file's text, and `#L12` to its line. Formulas become MathML, which browsers draw
without a script.
"""

import html
import logging
import posixpath
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parents[2]
MADE = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
"""Pages that are files of the repository's top folder."""
LONGEST = 300_000
"""Characters of a file that its page shows."""
FENCE = "`" * 8
SHIM = "https://unpkg.com/iframe-worker/shim"

_log = logging.getLogger("mkdocs.hooks.site")
_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
_ATTRIBUTE = re.compile(r'(?<= (?:src)=")([^"]+)(?=")')
_CODE = re.compile(r"^(```+|~~~+).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
_LANGUAGES = {".py": "python", ".md": "markdown", ".json": "json", ".toml": "toml", ".sh": "bash", ".txt": "text"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and one for each file that a document links."""
    for page, source in MADE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    targets: set[str] = set()
    for file in list(files.documentation_pages()):
        folder = posixpath.dirname(_place(file.src_uri))
        for link in _links(file.content_string):
            path = _outside(link, folder)
            if path is not None:
                targets.add(path)
    for path in sorted(targets):
        if not (ROOT / path).exists():
            _log.warning("a document links %s, which is not in the repository", path)
        else:
            files.append(File.generated(config, f"source/{path}.md", content=_source_page(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that leave docs/ into ones that `on_page_content` completes."""
    folder = posixpath.dirname(_place(page.file.src_uri))

    def changed(link: str) -> str:
        path = _outside(link, folder)
        if path is not None:
            return f"source:{path}{'#' + link.split('#')[1] if '#' in link else ''}"
        if page.file.src_uri in MADE and _is_relative(link):
            return _in_docs(posixpath.join(folder, link))
        made = {source: name for name, source in MADE.items()}
        path, _, anchor = link.partition("#")
        place = posixpath.normpath(posixpath.join(folder, path))
        if _is_relative(link) and place in made:
            return posixpath.relpath(made[place], posixpath.dirname(page.file.src_uri)) + (
                f"#{anchor}" if anchor else ""
            )
        return link

    def outside_code(text: str) -> str:
        text = _LINK.sub(lambda found: changed(found[0]), text)
        return _ATTRIBUTE.sub(lambda found: changed(found[0]), text)

    parts, end = [], 0
    for block in _CODE.finditer(markdown):
        parts += [outside_code(markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, outside_code(markdown[end:])])


def on_page_content(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Complete links to pages of source files, and draw formulas."""

    def link(found: re.Match) -> str:
        path, _, anchor = html.unescape(found[1]).partition("#")
        file = files.get_file_from_path(f"source/{path}.md")
        assert file is not None, path
        line = f"#__codelineno-0-{anchor[1:]}" if re.fullmatch(r"L\d+", anchor) else ""
        return f'href="{get_relative_url(file.url, page.url)}{line}"'

    def formula(found: re.Match) -> str:
        tex = html.unescape(found[2]).strip()
        block = tex.startswith("\\[")
        drawn = convert(tex[2:-2].strip(), display="block" if block else "inline")
        return f'<div class="formula">{drawn}</div>' if block else drawn

    return _FORMULA.sub(formula, re.sub(r'href="source:([^"]*)"', link, text))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """The script that lets the search run from disk, from our own files instead of another host."""
    return output.replace(SHIM, get_relative_url("assets/javascripts/iframe-worker.js", page.url))


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """The same in the page for missing addresses."""
    return output.replace(SHIM, "/assets/javascripts/iframe-worker.js")


def _place(uri: str) -> str:
    """Where a page's text is in the repository."""
    return MADE.get(uri, f"docs/{uri}")


def _links(markdown: str) -> list[str]:
    return _LINK.findall(_CODE.sub("", markdown))


def _is_relative(link: str) -> bool:
    return not re.match(r"[a-z]+:|#|/", link)


def _outside(link: str, folder: str) -> str | None:
    """The file or folder outside docs/ that a link leads to, if it does."""
    if not _is_relative(link):
        return None
    path = posixpath.normpath(posixpath.join(folder, link.partition("#")[0]))
    if path.startswith("docs/") or path in MADE.values():
        return None
    return path


def _in_docs(link: str) -> str:
    """A link of a file in the top folder, seen from docs/."""
    path, _, anchor = link.partition("#")
    made = {source: name for name, source in MADE.items()}
    path = made.get(path, path.removeprefix("docs/"))
    return path + (f"#{anchor}" if anchor else "")


def _source_page(path: str) -> str:
    """A page with the text of a file, or the names in a folder."""
    place = ROOT / path
    head = f"---\ntitle: {path}\nsearch:\n  exclude: true\nhide: [toc]\n---\n# {path}\n\n"
    if place.is_dir():
        names = sorted(entry.name + "/" * entry.is_dir() for entry in place.iterdir() if entry.name[0] not in "._")
        return head + "A folder of the repository:\n\n" + "\n".join(f"- `{name}`" for name in names) + "\n"
    text = place.read_bytes()[:LONGEST].decode(errors="replace")
    return head + f'{FENCE}{_LANGUAGES.get(place.suffix, "text")} linenums="1"\n{text}\n{FENCE}\n'
