import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bench.report import case_study
from bench.report.figures.text import _lines
from bench.report.outputs import NoResultsError, write_all

FIELDS = {
    "title": "tiny, opt_tree",
    "prompt": "Say <hello> & go.\nPlease.",
    "pieces": [
        ["He", True],
        ["llo <b>", False],
        [" $x$ & y\n", True],
        ["\tend \U00020000", True],
        [" word" * 40, False],
    ],
    "mal": 2.5,
    "tokens_per_s": 123.4,
    "run_id": "0123456789ab",
}


class Spans(HTMLParser):
    """Text by class of the answer's spans."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.css = ""

    def handle_starttag(self, tag: str, attrs) -> None:
        self.css = dict(attrs).get("class", "") if tag == "span" else ""

    def handle_endtag(self, tag: str) -> None:
        self.css = ""

    def handle_data(self, data: str) -> None:
        if self.css:
            self.found.append((data, self.css))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / case_study.FILE).write_text(json.dumps(FIELDS), encoding="utf-8")
    return tmp_path


def test_read_gives_the_fields(folder: Path) -> None:
    study = case_study.read(folder)
    assert study.pieces == [(text, drafted) for text, drafted in FIELDS["pieces"]]
    assert (study.mal, study.tokens_per_s, study.run_id) == (2.5, 123.4, "0123456789ab")


def test_html_is_self_contained_and_says_who_said_what(folder: Path) -> None:
    page, _ = case_study.render(case_study.read(folder))
    text = page.text
    spans = Spans()
    spans.feed(text)
    answer = [span for span in spans.found if span[0] not in (case_study.DRAFT, case_study.TARGET)]
    assert answer[:3] == [("He", "draft"), ("llo <b>", "target"), (" $x$ & y\n\tend \U00020000", "draft")]
    assert "".join(part for part, _ in answer) == "".join(piece for piece, _ in FIELDS["pieces"])
    assert "Say &lt;hello&gt; &amp; go." in text
    assert "src=" not in text
    assert "href=" not in text
    assert "MAL 2.50" in text
    assert "9.34" in text


@pytest.mark.filterwarnings("error")
def test_figure_is_drawn_with_both_colours(folder: Path, tmp_path: Path) -> None:
    paths = write_all(case_study.render(case_study.read(folder)), tmp_path / "out")
    assert [path.name for path in paths] == ["fig10.html", "fig10.png", "fig10.pdf"]
    image = Image.open(paths[1])
    colours = {tuple(pixel) for pixel in np.asarray(image.convert("RGB")).reshape(-1, 3)[::7].tolist()}
    assert {(0xD6, 0xE9, 0xF5), (0xFB, 0xE0, 0xCC)} <= colours
    assert image.text["run_ids"] == "0123456789ab"


def test_lines_fold_at_spaces_and_keep_every_character() -> None:
    text = "word " * 60
    lines = _lines([(text[:100], True), (text[100:], False)])
    assert all(sum(len(part) for part, _ in line) <= 92 for line in lines)
    assert "".join(part for line in lines for part, _ in line) == text
    assert all(line[-1][0].endswith(" ") for line in lines)
    assert _lines([("x" * 100, True)]) == [[("x" * 92, True)], [("x" * 8, True)]]


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(NoResultsError, match=r"case_study\.json"):
        case_study.read(tmp_path)
    for content in ("{}", "[]", "not json", '{"pieces": 3}', '{"pieces": [["a", true]]}'):
        (tmp_path / case_study.FILE).write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match="is not a case study"):
            case_study.read(tmp_path)
