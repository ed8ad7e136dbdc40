"""Headless Chromium for tests of the page; they are skipped where there is none."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """A browser; root may not have Chromium's sandbox."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"] if os.geteuid() == 0 else [], timeout=60_000
        )
        yield found
        found.close()


@contextlib.contextmanager
def opened(browser: Any, file: Path, state: str = "", **options: Any) -> Iterator[Any]:
    """The page, ready; on leaving it must have said nothing in its console and asked nothing of the network."""
    context = browser.new_context(offline=True, **{"viewport": {"width": 1280, "height": 900}, **options})
    page = context.new_page()
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.resolve().as_uri() + state)
    assert page.evaluate("performance.getEntriesByName('dr-q-ready').length") == 1
    yield page
    context.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
