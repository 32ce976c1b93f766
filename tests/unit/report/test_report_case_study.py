import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from specdec_trees.artifacts import case_study
from specdec_trees.artifacts.case_study import LOOKS, _lines
from specdec_trees.artifacts.outputs import NoResultsError, write_all
from specdec_trees.papers.gsd import merging
from specdec_trees.papers.opt_tree.figures import fig10
from specdec_trees.papers.registry import build

FIELDS = {
    "title": "tiny, opt_tree",
    "prompt": "Say <hello> & go.\nPlease.",
    "pieces": [
        ["He", "draft"],
        ["llo <b>", "target"],
        [" $x$ & y\n", "draft"],
        ["\tend \U00020000", "merged"],
        [" word" * 40, "target"],
    ],
    "mal": 2.5,
    "tokens_per_s": 123.4,
    "run_id": "0123456789ab",
}


class Spans(HTMLParser):
    """Text by what its span is said to be, with the span's style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.styles: dict[str, str] = {}
        self.who = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs) -> None:
        self.who = dict(attrs)["title"] if tag == "span" else ""
        if self.who:
            self.styles[self.who] = dict(attrs)["style"]

    def handle_endtag(self, tag: str) -> None:
        self.who = ""

    def handle_data(self, data: str) -> None:
        if self.who:
            self.found.append((data, self.who))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "gsd" / "fig6"
    path.mkdir(parents=True)
    (path / case_study.FILE).write_text(json.dumps(FIELDS), encoding="utf-8")
    return path


def colours(path: Path) -> set[str]:
    pixels = np.asarray(Image.open(path).convert("RGB")).reshape(-1, 3)
    return {f"#{red:02X}{green:02X}{blue:02X}" for red, green, blue in np.unique(pixels, axis=0).tolist()}


def test_a_page_is_self_contained_and_says_who_said_what(folder: Path) -> None:
    page, _ = fig10("fig10", case_study.read(folder))
    draft, target = LOOKS["draft"].words, LOOKS["target"].words
    key, answer = Spans(page.text).found[:2], Spans(page.text).found[2:]
    assert key == [(draft, draft), (target, target)]
    assert answer[:3] == [("He", draft), ("llo <b>", target), (" $x$ & y\n\tend \U00020000", draft)]
    assert "".join(part for part, _ in answer) == "".join(piece for piece, _ in FIELDS["pieces"])
    assert "Say &lt;hello&gt; &amp; go." in page.text
    assert "src=" not in page.text
    assert "href=" not in page.text


@pytest.mark.filterwarnings("error")
def test_gsds_story_tells_merged_tokens_from_others(folder: Path, tmp_path: Path) -> None:
    paths = write_all(build("gsd/fig6", folder.parents[1]), tmp_path / "out")
    spans, looks = Spans(paths[0].read_text(encoding="utf-8")), merging.LOOKS
    assert spans.found[4:] == [(text, looks[who].words) for text, who in FIELDS["pieces"]]
    assert {looks["draft"].paper, looks["merged"].paper, looks["target"].ink} <= colours(paths[1])
    assert Image.open(paths[1]).text["run_ids"] == "0123456789ab"


def test_colour_is_never_the_only_cue() -> None:
    for looks in (LOOKS, merging.LOOKS):
        kinds = set(looks.values())
        assert len({look.underline for look in kinds}) == len({look.ink for look in kinds}) == len(kinds)


def test_shares_of_a_story(folder: Path) -> None:
    shares = merging.story("fig6", case_study.read(folder))[-1].frame
    assert shares["pieces"].tolist() == ["2", "2", "0", "1"]
    assert shares["of_answer"].tolist() == ["40.0%", "40.0%", "0.0%", "20.0%"]
    assert shares["of_accepted"].tolist() == ["–", "66.7%", "0.0%", "33.3%"]
    *_, nothing = merging.story("fig6", case_study.CaseStudy("t", "p", [("a", "target")], 1.0, 1.0))
    assert nothing.frame["of_accepted"].tolist() == ["–"] * 4


def test_lines_fold_at_spaces_and_keep_every_character() -> None:
    text, draft, target = "word " * 60, LOOKS["draft"], LOOKS["target"]
    lines = _lines([(text[:100], draft), (text[100:], target)])
    assert all(sum(len(part) for part, _ in line) <= 92 for line in lines)
    assert "".join(part for line in lines for part, _ in line) == text
    assert all(line[-1][0].endswith(" ") for line in lines)
    assert _lines([("x" * 100, draft)]) == [[("x" * 92, draft)], [("x" * 8, draft)]]


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(NoResultsError, match=r"case_study\.json"):
        case_study.read(tmp_path)
    wrong = [json.dumps(FIELDS | {"pieces": [["a", who]]}) for who in (True, "nobody", None)]
    for content in ("{}", "[]", "not json", '{"pieces": 3}', '{"pieces": [["a", "draft"]]}', *wrong):
        (tmp_path / case_study.FILE).write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match="is not a case study"):
            case_study.read(tmp_path)
