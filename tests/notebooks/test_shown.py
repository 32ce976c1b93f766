"""What notebooks call: numbers as the CSVs have them, tables as HTML, sentences for what is not there."""

import base64
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from specdec_trees import published
from specdec_trees.artifacts.case_study import FILE
from specdec_trees.artifacts.tables import ABSENT, Table, to_html
from specdec_trees.report import notebook
from specdec_trees.report.notebook import printed
from specdec_trees.results import store

SETTING = ("target", "draft", "dataset", "temperature", "method", "params", "hardware", "remarks")


class Cells(HTMLParser):
    """The texts of all cells."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._inside = tag in ("td", "th")
        self.texts += [""] * self._inside

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[-1] += data


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is displayed, as mime bundles or objects."""
    calls: list[Any] = []
    monkeypatch.setattr("IPython.display.display", lambda given, **_: calls.append(given))
    return calls


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(notebook.VARIABLE, str(tmp_path))
    return tmp_path


def test_every_printed_number_is_in_its_table_once() -> None:
    for paper in published.papers():
        for artifact, rows in published.load(paper).groupby("artifact"):
            table = printed(paper, str(artifact)).frame
            cells = [text for name in table if name not in SETTING for text in table[name] if text != ABSENT]
            values = Counter(float(value) for text in cells for value in text.split(" / "))
            assert values == Counter(float(f"{value:g}") for value in rows["value"])


def test_a_printed_number_stands_beside_its_setting_and_remarks() -> None:
    table = printed("opt_tree", "table1", target="llama2_7b")
    row = table.frame[(table.frame["draft"] == "llama_1b") & (table.frame["method"] == "opt_tree")].iloc[0]
    source = published.find("opt_tree", "table1", target="llama2_7b", draft="llama_1b", method="opt_tree")
    assert float(row["mal (tokens)"]) == source.set_index("metric")["value"]["mal"]
    remarks = {note.split(": ", 1)[0]: note.split(": ", 1)[1] for note in table.notes}
    assert {remarks[number] for number in row["remarks"].split(", ")} == {
        f"{remark}." for note in source["notes"] for remark in note.split("; ")
    }
    assert "target llama2_7b" in table.title


def test_what_all_rows_share_of_their_params_stands_in_the_title() -> None:
    table = printed("gsd", "table1", target="llama2_70b")
    assert "verify=deterministic" in table.title
    assert not table.frame["params"].str.contains("verify").any()


def test_unknown_numbers_are_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'table99' of opt_tree.*table1"):
        printed("opt_tree", "table99")
    with pytest.raises(ValueError, match="method=nothing"):
        printed("opt_tree", "table1", method="nothing")


def test_html_has_every_cell_and_escapes_it() -> None:
    frame = pd.DataFrame({"Target": ["a", "a"], "x": ["<b>", "1 [0, 2]"], "y": ["&", "z" * 60]})
    text = to_html(Table("t", "A < B", frame, ("note <i>",), {"x": "its < meaning"}, ("r1", "r1")))
    parser = Cells()
    parser.feed(text)
    assert parser.texts == ["x", "y", "<b>", "&", "1 [0, 2]", "z" * 60]
    assert "In all rows: Target a." in text
    assert "A &lt; B" in text
    assert "note &lt;i&gt;" in text
    assert "its &lt; meaning" in text
    assert text.count("r1") == 1


def test_what_stands_aside_is_folded() -> None:
    frame = pd.DataFrame({"x": ["first"], "y": ["second"]})
    assert "<details>" not in to_html(Table("t", "T", frame))
    before, _, folded = to_html(Table("t", "T", frame, aside=("y",))).partition("<details>")
    assert ("second" in before, "second" in folded) == (False, True)


def test_what_was_not_run_is_a_sentence_with_its_command(shown: list[Any], nowhere: Path) -> None:
    notebook.show("sequoia/table4", pair="llama2_7b_jf68m")
    assert len(shown) == 1
    assert "make reproduce TABLE=sequoia/table4 PAIR=llama2_7b_jf68m" in shown[0].data


def test_what_is_not_reproduced_says_why(shown: list[Any], nowhere: Path) -> None:
    every = published.artifacts()
    absent = every[every["absent"] != ""].iloc[0]
    notebook.show(f"{absent.paper}/{absent.artifact}")
    assert absent.absent in shown[0].data


def test_a_misspelt_artifact_is_told_its_nearest_names(nowhere: Path) -> None:
    with pytest.raises(KeyError, match="opt_tree/table1"):
        notebook.show("opt_tre/table1")


def test_pages_are_framed_and_figures_are_images(shown: list[Any], nowhere: Path) -> None:
    folder = nowhere / "opt_tree" / "fig10"
    folder.mkdir(parents=True)
    study = '{"title": "T", "prompt": "P", "pieces": [["a&b", "draft"]], "mal": 2.0, "tokens_per_s": 3.0}'
    (folder / FILE).write_text(study)
    notebook.show("opt_tree/fig10")
    page, image = shown
    assert re.search(r'<iframe srcdoc="[^"]*a&amp;amp;b', page["text/html"])
    assert base64.b64decode(image["image/png"]).startswith(b"\x89PNG")


def test_the_list_has_every_artifact_and_says_what_is_there(shown: list[Any], nowhere: Path) -> None:
    for place, paper in enumerate(published.papers()):
        notebook.available(paper)
        parser = Cells()
        parser.feed(shown[place]["text/html"])
        artifacts = published.artifacts().query("paper == @paper")
        assert parser.texts[5::5] == list(artifacts["artifact"])
        assert parser.texts[8::5] == [f"not measured: {why}" if why else "not run" for why in artifacts["absent"]]
        assert {*parser.texts[9::5]} == {ABSENT}
        assert f"make reproduce TABLE={paper}/ARTIFACT " in shown[place]["text/html"]


def test_of_what_was_run_the_pairs_are_listed(shown: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    reference = Path(notebook.__file__).parents[2] / notebook.REFERENCE
    monkeypatch.setenv(notebook.VARIABLE, str(reference))
    notebook.available("opt_tree")
    parser = Cells()
    parser.feed(shown[0]["text/html"])
    pairs = dict(zip(parser.texts[5::5], parser.texts[9::5], strict=True))
    rows = store.load(reference, "opt_tree/table1").runs
    assert {*pairs["table1"].split(", ")} == {*rows["pair"]}
    assert len({*rows["pair"]}) > 1
    assert pairs["fig1"] == ABSENT


def test_a_relative_folder_is_found_from_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    monkeypatch.setenv(notebook.VARIABLE, "mine")
    assert notebook.results_folder() == tmp_path / "mine"
    monkeypatch.setenv(notebook.VARIABLE, "elsewhere")
    with pytest.raises(ValueError, match="elsewhere"):
        notebook.results_folder()
    monkeypatch.delenv(notebook.VARIABLE)
    assert notebook.results_folder().samefile(Path(notebook.__file__).parents[2] / "results" / "reference")
