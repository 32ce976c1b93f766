import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bench.artifacts import case_study
from bench.artifacts.case_study import LOOKS, _lines
from bench.artifacts.outputs import NoResultsError, write_all
from bench.papers.gsd import merging
from bench.papers.opt_tree.figures import fig10
from bench.papers.registry import build

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


def test_read_gives_the_fields(folder: Path) -> None:
    study = case_study.read(folder)
    assert study.pieces == [(text, who) for text, who in FIELDS["pieces"]]
    assert (study.mal, study.tokens_per_s, study.run_id) == (2.5, 123.4, "0123456789ab")
    assert [study.count("target"), study.count("draft", "merged")] == [2, 3]


def test_html_is_self_contained_and_says_who_said_what(folder: Path) -> None:
    page, _ = fig10("fig10", case_study.read(folder))
    text = page.text
    draft, target = LOOKS["draft"].words, LOOKS["target"].words
    key, answer = Spans(text).found[:2], Spans(text).found[2:]
    assert key == [(draft, draft), (target, target)]
    assert answer[:3] == [("He", draft), ("llo <b>", target), (" $x$ & y\n\tend \U00020000", draft)]
    assert "".join(part for part, _ in answer) == "".join(piece for piece, _ in FIELDS["pieces"])
    assert "Say &lt;hello&gt; &amp; go." in text
    assert "src=" not in text
    assert "href=" not in text
    assert "3 of 5 pieces are accepted draft tokens" in text
    assert "MAL 2.50" in text
    assert "9.34" in text


@pytest.mark.filterwarnings("error")
def test_figure_is_drawn_with_both_colours(folder: Path, tmp_path: Path) -> None:
    paths = write_all(fig10("fig10", case_study.read(folder)), tmp_path / "out")
    assert [path.name for path in paths] == ["fig10.html", "fig10.png", "fig10.pdf"]
    assert {look.paper for look in LOOKS.values()} <= colours(paths[1])
    assert Image.open(paths[1]).text["run_ids"] == "0123456789ab"


@pytest.mark.filterwarnings("error")
def test_gsds_story_tells_merged_tokens_from_others(folder: Path, tmp_path: Path) -> None:
    outputs = build("gsd/fig6", folder.parents[1])
    paths = write_all(outputs, tmp_path / "out")
    assert [path.name for path in paths] == [f"fig6.{suffix}" for suffix in ("html", "png", "pdf", "md", "tex", "csv")]
    spans = Spans(paths[0].read_text(encoding="utf-8"))
    looks = merging.LOOKS
    assert [text for text, _ in spans.found[:4]] == [
        looks[who].words for who in ("target", "draft", "listed", "merged")
    ]
    said = [(text, looks[who].words) for text, who in FIELDS["pieces"]]
    assert spans.found[4:] == said
    assert {looks["draft"].paper, looks["merged"].paper, looks["target"].ink} <= colours(paths[1])
    for text in (paths[0].read_text(encoding="utf-8"), outputs[0].text):
        assert "3 of 5 pieces are accepted draft tokens, 33.3% of them merged as the paper" in text
        assert "The paper: about 30% of the accepted." in text


def test_colour_is_never_the_only_cue() -> None:
    for looks in (LOOKS, merging.LOOKS):
        kinds = set(looks.values())
        assert len({look.underline for look in kinds}) == len({look.ink for look in kinds}) == len(kinds)
    page, figure, _ = merging.story(
        "fig6", case_study.CaseStudy("t", "p", [(who, who) for who in merging.LOOKS], 1.0, 1.0)
    )
    styles = Spans(page.text).styles
    assert ["underline" in styles[look.words] for look in merging.LOOKS.values()] == [0, 1, 1, 1]
    drawn = [line.get_linestyle() for line in figure.canvas.axes[0].lines]
    assert drawn == [":", "--", "-"] * 2  # in the key and in the answer
    axes = figure.canvas.axes[0]
    assert max(patch.get_x() + patch.get_width() for patch in axes.patches) <= axes.get_xlim()[1], "out of the canvas"


def test_shares_of_a_story(folder: Path) -> None:
    table = merging.story("fig6", case_study.read(folder))[-1]
    assert table.frame.to_numpy().tolist() == [
        ["token of the target", "2", "40.0%", "–", "–"],
        ["accepted draft token", "2", "40.0%", "66.7%", "–"],
        ["accepted, merged or listed behind a copy", "0", "0.0%", "0.0%", "–"],
        ["accepted behind a merge edge", "1", "20.0%", "33.3%", "about 30%"],
    ]
    assert '30% of the accepted drafted tokens "are derived from the subtrees' in table.notes[0]


def test_a_story_in_which_nothing_was_accepted() -> None:
    *_, table = merging.story("fig6", case_study.CaseStudy("t", "p", [("a", "target")], 1.0, 1.0))
    assert table.frame["share of the accepted"].tolist() == ["–"] * 4


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
