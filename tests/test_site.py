"""The documentation site: it is built without a warning, asks nothing of other hosts, and can be read by everybody."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.report.browser import browser, needs_chromium

ROOT = Path(__file__).parents[1]
LOOKED_AT = ("index", "quickstart", "settings", "api/training", "how-it-works")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Built as `make docs` does: warnings, among them links that lead nowhere, are errors."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class Elements(HTMLParser):
    """What a page loads, links, and shows as images; the ids that links can lead to."""

    def __init__(self, text: str):
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.ids: set[str] = set()
        self.headings: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids |= {found[name] or "" for name in ("id", "name") if name in found}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"] or "")
        if tag == "img":
            self.images.append(found)
        if tag in ("script", "img", "iframe", "source") and found.get("src"):
            self.loaded.append(found["src"] or "")
        if tag == "link" and found.get("rel") in ("stylesheet", "icon", "preconnect", "preload"):
            self.loaded.append(found["href"] or "")
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(tag)


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Elements]:
    return {path: Elements(path.read_text()) for path in sorted(site.rglob("*.html"))}


def test_every_page_is_there_and_only_its_own_files_are_loaded(site, pages):
    names = {path.relative_to(site).as_posix() for path in pages}
    assert {"index.html", "quickstart.html", "settings.html", "changelog.html", "contributing.html"} <= names
    foreign = {path.name: url for path, page in pages.items() for url in page.loaded if urlsplit(url).scheme}
    assert foreign == {}


def test_links_lead_somewhere(site, pages):
    """Of pages and of their parts. mkdocs checks links of documents; this also sees those that our hook makes."""
    lost = []
    for path, page in pages.items():
        if path.name == "404.html":  # served for any address
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            no_such_part = anchor and target in pages and anchor not in pages[target].ids
            if not target.exists() or no_such_part:
                lost.append((path.name, link))
    assert lost == []


def test_images_have_words_for_those_who_cannot_see_them(pages):
    bare = [
        (path.name, image.get("src")) for path, page in pages.items() for image in page.images if not image.get("alt")
    ]
    assert bare == []


def test_a_page_has_one_title(site, pages):
    wrong = [path.name for path, page in pages.items() if page.headings.count("h1") != 1 and path.name != "404.html"]
    assert wrong == []


CONTRAST = """() => {
  const shade = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((x) => {
      const v = x / 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (!/rgba\\(.*, 0(\\.\\d+)?\\)|transparent/.test(colour)) return colour; }
    return 'rgb(255, 255, 255)'; };
  const low = [];
  for (const e of document.querySelectorAll('.md-content :is(p, li, td, th, h1, h2)')) {
    if (!e.innerText.trim() || e.closest('svg')) continue;
    const pair = [shade(getComputedStyle(e).color), shade(behind(e))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < 4.5) low.push(`${ratio.toFixed(2)} ${e.tagName} ${e.innerText.slice(0, 40)}`); }
  return low; }"""


@needs_chromium
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_pages_in_a_browser(site, width, scheme):
    """On a desktop and on a phone: nothing is asked of the network, no page scrolls sideways, text is legible."""
    with browser() as found:
        context = found.new_context(offline=True, viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        asked: list[str] = []
        errors: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        for name in LOOKED_AT:
            page.goto((site / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            assert page.evaluate(CONTRAST) == [], name
            pictures = "[...document.images].filter((i) => i.loading !== 'lazy' && !i.naturalWidth).map((i) => i.src)"
            assert page.evaluate(pictures) == [], name
        context.close()
    assert errors == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
