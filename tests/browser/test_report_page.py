"""The report of the reference results in a headless Chromium: whole, self-contained, and readable on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import page_checks
import pytest
from page_checks import WIDTHS, chromium, visit
from playwright.sync_api import Browser

from specdec_trees import report
from specdec_trees.papers.registry import TITLES
from specdec_trees.report.__main__ import main
from specdec_trees.results.store import experiments

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
PAGES = ("index", "how_to_read", "which", "claims", *TITLES, "bench")
PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"  # one transparent pixel
SOUND = f'<img src="{PIXEL}" alt="pixel"><table><tbody><tr><td>1</td><td></td></tr></tbody></table>'
BROKEN = {
    "broken image": '<img src="data:image/png;base64,AAAA" alt="scratch">',
    "failed request": '<img src="gone.png" alt="gone">',
    "empty table: of nothing": "<table><caption>of nothing</caption><thead><tr><th>a</th></tr></thead></table>",
    "empty table: of blanks": "<table><caption>of blanks</caption><tbody><tr><td> </td></tr></tbody></table>",
    "dead link: gone.csv": '<a href="gone.csv">csv</a>',
    "dead link: #gone": '<a href="#gone">there</a>',
    "dead link: https://example.invalid/": '<a href="https://example.invalid/">out</a>',
    "request: https://example.invalid": '<img src="https://example.invalid/a.png" alt="away">',
    "console: wrong": "<script>console.error('wrong')</script>",
    "error: ": "<script>nowhere()</script>",
    "verdict out of sight: differs": '<div style="overflow: auto"><table style="width: 700px"><tbody><tr><td>1</td>'
    '<td style="text-align: right"><span class="verdict">differs</span></td></tr></tbody></table></div>',
    "px wide in a window of 360": '<div style="width: 700px">wide</div>',
    "empty frame: hollow": '<iframe srcdoc="" title="hollow"></iframe>',
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The folder of the report, in the short form of one pair; asks for the browser first, to build nothing in vain."""
    out = tmp_path_factory.mktemp("report")
    pair = () if request.config.getoption("--all") else ("--pair", "smollm2_135m_eagle")
    assert main(["--results", str(REFERENCE), "--out", str(out), *pair]) == 0
    return out


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_whole(page: str, width: int, site: Path, browser: Browser) -> None:
    assert visit(browser, site / f"{page}.html", width) == []


@pytest.mark.long
def test_there_are_no_other_pages_and_the_papers_show_what_was_run(site: Path) -> None:
    """Without it, pages with nothing on them would pass."""
    assert {path.stem for path in site.glob("*.html")} == set(PAGES)
    for paper in (*TITLES, "bench"):
        run = [store for store in experiments(REFERENCE) if store.experiment.startswith(f"{paper}/")]
        text = (site / f"{paper}.html").read_text(encoding="utf-8")
        assert text.count("<caption>") + text.count("<img ") >= len(run)


@pytest.mark.long
def test_the_reference_results_build_without_a_failure(site: Path) -> None:
    listed = (site / "index.html").read_text(encoding="utf-8").partition('id="all"')[2]
    assert 'class="badge measured"' in listed
    assert 'class="badge failed"' not in listed


@pytest.mark.parametrize(
    ("column", "first", "again"),
    [
        (0, ["16 sequences", "chain of 4", "DySpec, n = 9", "DySpec, n = 64"], [3, 2, 1, 0]),
        (1, ["1,024.5", "20 / 6", "3.0 [2.0, 4.0] *", "\u2013"], [2, 1, 0, 3]),
    ],
)
def test_a_click_on_a_header_sorts_words_and_numbers(
    column: int, first: list[str], again: list[int], browser: Browser, tmp_path: Path
) -> None:
    """Numbers from the largest on, what is absent last both ways; words from A on, the numbers in them by size."""
    names = ("DySpec, n = 64", "16 sequences", "chain of 4", "DySpec, n = 9")
    cells = ("3.0 [2.0, 4.0] *", "\u2013", "1,024.5", "20 / 6")
    rows = "".join(f"<tr><th>{name}</th><td>{cell}</td></tr>" for name, cell in zip(names, cells, strict=True))
    head = '<thead><tr><th>Method</th><th class="number">MAL</th></tr></thead>'
    script = (Path(report.__file__).parent / "site" / "templates" / "sort.js").read_text(encoding="utf-8")
    page = browser.new_page()
    page.goto(write(tmp_path, f"<table>{head}<tbody>{rows}</tbody></table><script>{script}</script>").as_uri())
    shown, button = page.locator(f"tbody tr > :nth-child({column + 1})"), page.locator("thead button").nth(column)
    button.press("Enter")
    assert shown.all_inner_texts() == first
    button.press("Enter")
    assert shown.all_inner_texts() == [first[place] for place in again]
    assert page.locator("thead th").nth(column).get_attribute("aria-sort")
    page.close()


def test_a_sound_page_has_no_problems(browser: Browser, tmp_path: Path) -> None:
    assert visit(browser, write(tmp_path, SOUND), 360) == []


@pytest.mark.parametrize(("problem", "body"), BROKEN.items(), ids=BROKEN)
def test_what_is_wrong_with_a_page_is_found(problem: str, body: str, browser: Browser, tmp_path: Path) -> None:
    found = visit(browser, write(tmp_path, SOUND + body), 360)
    assert any(problem in sentence for sentence in found)


@pytest.mark.parametrize(("ci", "outcome"), [("1", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_without_a_browser_only_ci_fails(ci: str, outcome: type[BaseException], monkeypatch) -> None:
    monkeypatch.setattr(page_checks.shutil, "which", lambda name: None)
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="install it"), chromium():
        pass


def write(folder: Path, body: str) -> Path:
    path = folder / "page.html"
    path.write_text(f"<!DOCTYPE html><html lang='en'><title>t</title><body>{body}</body></html>", encoding="utf-8")
    return path
