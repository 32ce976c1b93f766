"""A page in a headless Chromium, and what is wrong with it: each problem a sentence, none for a sound page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

SWITCHES = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
WIDTHS = (1400, 390)
_IMAGES = "() => [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.alt || i.src)"
_TABLES = """() => [...document.querySelectorAll('table')].filter(table => {
    const rows = [...table.querySelectorAll('tbody tr')];
    const said = row => [...row.cells].some(cell => cell.textContent.trim());
    return !rows.length || !rows.every(said);
}).map(table => (table.caption || table).textContent.trim() || 'without a caption')"""
_FRAMES = """() => [...document.querySelectorAll('iframe')].map(frame => frame.title)"""
_LINKS = "() => [...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href'))"
_UNSEEN = """() => [...document.querySelectorAll('td .verdict')].filter(verdict => {
    const box = verdict.getBoundingClientRect(), frame = verdict.closest('.scroll');
    return box.width && box.right > Math.min(innerWidth, frame ? frame.getBoundingClientRect().right : innerWidth);
}).map(verdict => verdict.textContent)"""
_WIDER = "() => [document.scrollingElement.scrollWidth, innerWidth]"


@contextmanager
def chromium() -> Iterator[Browser]:
    """The machine's Chromium; without one the tests are skipped, but never in CI."""
    path = shutil.which("chromium")
    if path is None:
        sentence = "there is no `chromium` on the PATH; install it to check the report's pages"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*SWITCHES])
        yield browser
        browser.close()


@dataclass
class Visit:
    """One page at one width, and what the browser said while it was loaded."""

    page: Page
    path: Path
    said: list[str] = field(default_factory=list)

    def open(self) -> Visit:
        """Load the page; errors and requests from now on are kept."""
        self.page.on("console", lambda line: self._tell(f"console: {line.text}", line.type in ("error", "warning")))
        self.page.on("pageerror", lambda error: self._tell(f"error: {error}", True))
        self.page.on("request", lambda asked: self._tell(f"request: {asked.url[:200]}", _leaves(asked.url)))
        self.page.on("requestfailed", lambda asked: self._tell(f"failed request: {asked.url[:200]}", True))
        self.page.goto(self.path.as_uri(), wait_until="load")
        return self

    def problems(self) -> list[str]:
        """Everything that is wrong."""
        found = list(self.said)
        found += [f"broken image: {name[:200]}" for name in self.page.evaluate(_IMAGES)]
        found += [f"empty table: {name[:200]}" for name in self.page.evaluate(_TABLES)]
        found += [f"dead link: {href}" for href in self.page.evaluate(_LINKS) if not self._leads_somewhere(href)]
        found += [f"verdict out of sight: {words}" for words in self.page.evaluate(_UNSEEN)]
        found += self._frames()
        scrolled, width = self.page.evaluate(_WIDER)
        return found + [f"{scrolled} px wide in a window of {width}"] * (scrolled > width)

    def _tell(self, sentence: str, wrong: bool) -> None:
        if wrong:
            self.said.append(sentence)

    def _leads_somewhere(self, href: str) -> bool:
        """Whether the file of a link exists, and its anchor where it is a page of ours."""
        parts = urlsplit(href)
        if parts.scheme or parts.netloc:
            return False  # the report is self-contained
        target = (self.path.parent / unquote(parts.path)).resolve() if parts.path else self.path
        if not target.exists():
            return False
        return not parts.fragment or f'id="{parts.fragment}"' in target.read_text(encoding="utf-8")

    def _frames(self) -> list[str]:
        inner = [frame for frame in self.page.frames if frame.parent_frame is not None]
        titles = self.page.evaluate(_FRAMES)
        if len(inner) != len(titles):
            return [f"{len(titles)} frames, of which {len(inner)} are loaded"]
        return [
            f"empty frame: {title}"
            for title, frame in zip(titles, inner, strict=True)
            if not frame.locator("body").inner_text().strip()
        ]


def visit(browser: Browser, path: Path, width: int) -> list[str]:
    """What is wrong with a page in a window of that width."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    try:
        return Visit(page, path).open().problems()
    finally:
        page.close()


def _leaves(url: str) -> bool:
    return not url.startswith(("file:", "data:", "about:"))
