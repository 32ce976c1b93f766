"""The pages: what they list, what they say of each artifact, and where their links lead."""

import json
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest
from matplotlib.figure import Figure as Canvas

from bench import published
from bench.artifacts.outputs import Artifact, Html, NoResultsError
from bench.artifacts.style import Figure
from bench.artifacts.tables import Table
from bench.papers import registry as artifacts
from bench.papers.registry import ARTIFACTS, TITLES
from bench.report.__main__ import main
from bench.results import progress

NASTY = '<script>alert("1")</script> & </style>'
CASE = {"title": NASTY, "prompt": NASTY, "pieces": [["a", "draft"]], "mal": 2.0, "tokens_per_s": 1.0, "run_id": "ab"}


class Page(HTMLParser):
    """Text, tags with their attributes, and the states beside the links of the index."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.tags, self.words = path, list[tuple[str, dict]](), list[str]()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] != "style" and data.strip():
            self.words.append(data.strip())

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def all(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
def registry(monkeypatch) -> dict[str, Artifact]:
    """A registry to fill, in place of the real one."""
    found: dict[str, Artifact] = {}
    monkeypatch.setattr(artifacts, "ARTIFACTS", found)
    monkeypatch.setattr(artifacts, "SUMMARIES", {})
    return found


def add(registry, name: str, *outputs, error: Exception | None = None) -> None:
    def build(*_) -> list:
        if error:
            raise error
        return list(outputs)

    registry[name] = Artifact(build, lambda folder, pair: None)


def report(tmp_path: Path, capsys, *more: str, code: int = 0) -> tuple[Path, str, str]:
    (tmp_path / "results").mkdir(exist_ok=True)
    out = tmp_path / "out"
    assert main(("--results", str(tmp_path / "results"), "--out", str(out), *more)) == code
    return out, *capsys.readouterr()


def statuses(out: Path) -> dict[str, str]:
    """Artifact by its link in the index, and what is said between it and the next one."""
    text = (out / "index.html").read_text(encoding="utf-8")
    items = text.partition('id="all"')[2].split('class="name" href="')[1:]
    return {item.partition('"')[0]: item.partition("</li>")[0] for item in items}


def test_an_empty_folder_gives_all_pages_and_lists_every_artifact(tmp_path: Path, capsys) -> None:
    out, said, err = report(tmp_path, capsys)
    listed = published.artifacts()
    papers = {f"{paper}.html" for paper in (*TITLES, "bench")}
    assert {path.name for path in out.iterdir()} == {"index.html", "how_to_read.html", *papers}
    found = statuses(out)
    expected = {f"{row.paper}.html#{row.artifact}" for row in listed.itertuples()}
    expected |= {f"{name.partition('/')[0]}.html#{name.partition('/')[2]}" for name in ARTIFACTS if "/" in name}
    assert set(found) == expected | {"bench.html#smoke", "bench.html#claims"}
    for row in listed.itertuples():
        item = found[f"{row.paper}.html#{row.artifact}"]
        assert ("nothing to measure" in item) == bool(row.absent)
        assert ("not run" in item) != bool(row.absent)
    left_out = int((listed["absent"] != "").sum())
    assert said.splitlines()[0] == f"{len(found) - left_out} not run, {left_out} nothing to measure"
    assert "Traceback" not in err


def test_what_cannot_be_built_is_listed_and_stops_no_other(registry, tmp_path: Path, capsys) -> None:
    add(registry, "sequoia/table1", error=ZeroDivisionError("by nothing"))
    add(registry, "sequoia/table2", error=ValueError("the rows are of another time"))
    add(registry, "sequoia/table3", error=NoResultsError("none"))
    add(registry, "sequoia/table4", Table("table4", "T", pd.DataFrame({"MAL": ["2.5"]})))
    out, said, err = report(tmp_path, capsys, code=1)
    found = statuses(out)
    assert "ZeroDivisionError: by nothing" in found["sequoia.html#table1"]
    assert "the rows are of another time" in found["sequoia.html#table2"]
    assert "not run" in found["sequoia.html#table3"]
    assert "measured" in found["sequoia.html#table4"]
    assert said.startswith("1 measured, 2 failed, 1 not run, ")
    assert "sequoia/table1 could not be built" in err
    assert "raise error\nZeroDivisionError: by nothing" in err
    assert (out / "sequoia" / "table4.csv").exists()


@pytest.mark.long
def test_an_empty_figure_or_table_counts_as_failed_and_is_not_shown(registry, tmp_path: Path, capsys) -> None:
    canvas = Canvas()
    canvas.add_subplot().set_title("nothing here")
    add(registry, "gsd/fig3", Figure("fig3", "F", canvas, ()))
    add(registry, "gsd/table1", Table("table1", "T", pd.DataFrame({"MAL": []})))
    out, said, _ = report(tmp_path, capsys, code=1)
    assert said.startswith("2 failed, ")
    assert "nothing is shown in fig3" in statuses(out)["gsd.html#fig3"]
    assert "nothing is shown in table1" in statuses(out)["gsd.html#table1"]
    page = Page(out / "gsd.html")
    assert not page.all("img")
    assert not page.all("table")


def test_everything_is_escaped(registry, tmp_path: Path, capsys) -> None:
    frame = pd.DataFrame({NASTY: [NASTY], "verdict": [NASTY], "MAL": [f"2.5 [1, 2] {NASTY}"]})
    legend = {NASTY: NASTY, "MAL": NASTY}
    add(registry, "gsd/table1", Table("table1", NASTY, frame, (NASTY,), legend, (NASTY,)))
    add(registry, "gsd/fig6", Html("fig6", f"<!DOCTYPE html><title>t</title>{NASTY}"))
    add(registry, "gsd/table2", error=ValueError(NASTY))
    out, _, _ = report(tmp_path, capsys, code=1)
    for path in out.glob("*.html"):
        page = Page(path)
        assert not page.all("script")
        assert path.read_text(encoding="utf-8").count("</style>") == 1
    page = Page(out / "gsd.html")
    (frame,) = page.all("iframe")
    assert frame["srcdoc"] == f"<!DOCTYPE html><title>t</title>{NASTY}"
    assert "sandbox" in frame
    assert page.text.count(NASTY) >= 6


def test_a_table_is_one_of_html_with_scopes_caption_and_meanings(registry, tmp_path: Path, capsys) -> None:
    frame = pd.DataFrame({"Method": ["OPT-Tree"], "MAL": ["2.58 [2.51, 2.66] *"], "verdict MAL": ["order holds"]})
    add(registry, "opt_tree/table1", Table("table1", "Of MAL", frame, ("A note.",), {"MAL": "tokens a step"}))
    out, _, _ = report(tmp_path, capsys)
    page = Page(out / "opt_tree.html")
    assert [attributes["scope"] for attributes in page.all("th")] == ["col", "col", "row"]
    assert page.all("abbr") == [{"title": "tokens a step"}]
    assert len(page.all("caption")) == 1
    assert "2.58 [2.51, 2.66] *" in page.text
    assert "A note." in page.text
    header = "MAL (new tokens/step, bonus counted)"
    assert f"{header} tokens a step" in page.text  # the legend, visible without a mouse
    assert {"class": "verdict fair"} in page.all("span")


def test_results_lead_to_their_files_folders_and_provenance(table1_cells, tmp_path: Path, capsys) -> None:
    (table1_cells.root / "opt_tree" / "fig10").mkdir()
    (table1_cells.root / "opt_tree" / "fig10" / "case_study.json").write_text(json.dumps(CASE), encoding="utf-8")
    out, said, _ = report(tmp_path, capsys)
    assert said.startswith("2 measured, ")
    page = Page(out / "opt_tree.html")
    links = [link["href"].partition("#") for link in page.all("a")]
    targets = [(out / unquote(href)).resolve() for href, _, _ in links if href]
    assert all(target.exists() for target in targets)
    folder = table1_cells.root / "opt_tree" / "table1"
    assert {folder / table for table in ("runs", "prompts", "steps")} <= set(targets)
    assert {out / "opt_tree" / f"table1.{suffix}" for suffix in ("md", "tex", "csv")} <= set(targets)
    assert {out / "opt_tree" / f"fig10.{suffix}" for suffix in ("html", "png", "pdf")} <= set(targets)
    runs = table1_cells.load().runs
    assert all(run in page.text for run in runs["run_id"])
    assert "Test CPU" in page.text
    (image,) = page.all("img")
    assert image["src"].startswith("data:image/png;base64,")
    assert image["alt"] == f"OPT-Tree Figure 10: {NASTY}"
    index = Page(out / "index.html").text
    assert all(words in index for words in ("Test CPU", "torch 2", "2026-01-01", "6 cells"))


def test_a_pair_without_results_is_not_run(table1_cells, tmp_path: Path, capsys) -> None:
    table1_cells.experiment = "opt_tree/table2"
    table1_cells.add(pair="llama")
    out, _, _ = report(tmp_path, capsys, "--pair", "llama")
    assert "make reproduce TABLE=opt_tree/table1 PAIR=llama" in (out / "opt_tree.html").read_text(encoding="utf-8")
    index = Page(out / "index.html").text
    assert "1 cell " in index
    assert "6 cells" not in index


@pytest.mark.long
def test_of_a_pair_its_own_cells_are_counted(table1_cells, tmp_path: Path, capsys) -> None:
    table1_cells.add("binary", pair="llama")
    cells = {
        more: statuses(report(tmp_path, capsys, *more)[0])["opt_tree.html#table1"] for more in ((), ("--pair", "llama"))
    }
    assert ["7 cells" in cells[()], "1 cell<" in cells["--pair", "llama"]] == [True, True]


def test_a_progress_that_cannot_be_told_stops_no_other(table1_cells, tmp_path: Path, capsys, monkeypatch) -> None:
    read = progress.read

    def broken(root: Path, artifact: str, pair: str | None = None) -> progress.Progress:
        if artifact == "opt_tree/table1":
            raise ZeroDivisionError("by nothing")
        return read(root, artifact, pair)

    monkeypatch.setattr(progress, "read", broken)
    out, said, _ = report(tmp_path, capsys, code=1)
    assert said.startswith("1 failed, ")
    assert "ZeroDivisionError: by nothing" in statuses(out)["opt_tree.html#table1"]


def test_what_is_the_same_in_all_rows_is_a_note_and_no_column(registry, tmp_path: Path, capsys) -> None:
    frame = pd.DataFrame(
        {"target": ["T&T"] * 2, "draft": ["small"] * 2, "method": ["a", "b"], "temperature": ["0"] * 2}
    )
    add(registry, "gsd/table1", Table("table1", "T", frame, ("The second note.",), {"target": "the larger model"}))
    add(registry, "gsd/table2", Table("table2", "T", frame[:1]))
    out, _, _ = report(tmp_path, capsys)
    text = (out / "gsd.html").read_text(encoding="utf-8")
    first, _, second = text.partition('id="table2"')
    assert first.index("In all rows: target T&amp;T, draft small.") < first.index("The second note.")
    assert '<th scope="col">method</th>' in first
    assert '<th scope="row">a</th>' in first
    assert '<th scope="col">target</th>' not in first
    assert "the larger model" in first
    assert '<th scope="row">T&amp;T</th>' in second, "one row has nothing in common"


def test_what_is_judged_stands_behind_the_method_with_its_verdict(registry, tmp_path: Path, capsys) -> None:
    row = {"Method": "a", "N": "8", "MAL": "2.5 [2, 3]", "MAL published": "2.6", "verdict MAL": "differs"}
    add(registry, "gsd/table1", Table("table1", "T", pd.DataFrame([row, row | {"Method": "b", "N": "9"}])))
    out, _, _ = report(tmp_path, capsys)
    page = Page(out / "gsd.html")
    judged = page.text.partition(" T ")[2].partition(" How to read ")[0]
    assert judged.startswith("Method MAL (new tokens/step, bonus counted) N a 2.5 [2, 3] paper: 2.6 differs 8 b ")


def test_what_was_run_comes_first_and_the_rest_is_folded_away(registry, tmp_path: Path, capsys) -> None:
    add(registry, "sequoia/table1", error=NoResultsError("none"))
    add(registry, "sequoia/table4", Table("table4", "T", pd.DataFrame({"MAL": ["2.5"]})))
    out, _, _ = report(tmp_path, capsys)
    paper, index = ((out / f"{page}.html").read_text(encoding="utf-8") for page in ("sequoia", "index"))
    for text, place in ((paper, 'id="{}"'), (index.partition('<h3><a href="sequoia.html">')[2], "#{}")):
        shown, _, folded = text.partition('<details class="unrun">')
        assert place.format("table4") in shown
        assert place.format("table1") not in shown
        assert place.format("table1") in folded


def test_the_guide_is_a_page_that_all_others_lead_to(tmp_path: Path, capsys) -> None:
    out, _, _ = report(tmp_path, capsys)
    assert all('href="how_to_read.html"' in path.read_text(encoding="utf-8") for path in out.glob("*.html"))
    text = (out / "how_to_read.html").read_text(encoding="utf-8")
    assert "<h1>How to read a table</h1>" in text
    assert "<li><strong>differs</strong>: " in text
    assert "<code>MCSD 4-2-2-1</code>" in text
    assert "**" not in text


def test_the_verdicts_of_our_own_tables_are_left_out_of_the_total(registry, tmp_path: Path, capsys) -> None:
    for name, given in (("gsd/table1", "matches"), ("bench/gsm8k", "differs"), ("smoke", "differs")):
        add(registry, name, Table("t", "T", pd.DataFrame({"verdict": [given]})))
    out, _, _ = report(tmp_path, capsys)
    head = (out / "index.html").read_text(encoding="utf-8").partition("</header>")[0]
    assert "<b>1</b> matches" in head
    assert "differs" not in head
    assert "the papers' tables" in head
    assert "<b>2</b> differs" in (out / "bench.html").read_text(encoding="utf-8")


def test_headings_go_down_in_order(table1_cells, tmp_path: Path, capsys) -> None:
    out, _, _ = report(tmp_path, capsys)
    for path in out.glob("*.html"):
        page = Page(path)
        levels = [int(tag[1]) for tag, _ in page.tags if tag in ("h1", "h2", "h3", "h4")]
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in zip([0, *levels], levels, strict=False))
        assert page.all("html") == [{"lang": "en"}]
        ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
        assert len(ids) == len(set(ids))
