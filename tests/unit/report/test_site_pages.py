"""The pages: what they list, what they say of each artifact, and where their links lead."""

import json
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest
from matplotlib.figure import Figure as Canvas

from specdec_trees import published
from specdec_trees.artifacts.outputs import Artifact, Html, NoResultsError
from specdec_trees.artifacts.style import Figure
from specdec_trees.artifacts.tables import Table
from specdec_trees.papers import registry as artifacts
from specdec_trees.papers.registry import ARTIFACTS, TITLES, command
from specdec_trees.report.__main__ import main
from specdec_trees.report.site.facts import FAILED, MEASURED, NOT_RUN, NOTHING, PRINTED
from specdec_trees.results import progress

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
    out, _, err = report(tmp_path, capsys)
    listed = published.artifacts()
    papers = {f"{page}.html" for page in ("which", "claims", *TITLES, "bench")}
    drawn = {path.name for path in out.iterdir() if path.stem != "baselines"}  # of the papers' numbers alone
    assert drawn == {"index.html", "how_to_read.html", *papers}
    assert all('href="how_to_read.html"' in path.read_text(encoding="utf-8") for path in out.glob("*.html"))
    found = statuses(out)
    expected = {f"{row.paper}.html#{row.artifact}" for row in listed.itertuples()}
    expected |= {f"{name.partition('/')[0]}.html#{name.partition('/')[2]}" for name in ARTIFACTS if "/" in name}
    assert set(found) == expected | {
        "bench.html#smoke",
        "bench.html#baselines",
        "which.html#which",
        "claims.html#claims",
    }
    for row in listed.itertuples():
        item = found[f"{row.paper}.html#{row.artifact}"]
        assert (NOTHING in item, NOT_RUN in item) == (bool(row.absent), not row.absent)
    assert PRINTED in found["bench.html#baselines"]
    assert MEASURED not in found["bench.html#baselines"]
    assert "nothing was run" in found["which.html#which"]
    assert "To run it" not in (out / "which.html").read_text(encoding="utf-8")
    assert "Traceback" not in err


def test_what_cannot_be_built_or_shows_nothing_is_listed_and_stops_no_other(registry, tmp_path: Path, capsys) -> None:
    canvas = Canvas()
    canvas.add_subplot().set_title("nothing here")
    add(registry, "sequoia/table1", error=ZeroDivisionError("by nothing"))
    add(registry, "sequoia/table2", error=ValueError("the rows are of another time"))
    add(registry, "sequoia/table3", error=NoResultsError("none"))
    add(registry, "sequoia/table4", Table("table4", "T", pd.DataFrame({"mal": ["2.5"]})))
    add(registry, "gsd/fig3", Figure("fig3", "F", canvas, ()))
    add(registry, "gsd/table1", Table("table1", "T", pd.DataFrame({"mal": []})))
    out, _, err = report(tmp_path, capsys, code=1)
    found = statuses(out)
    for place, words in {
        "sequoia.html#table1": "ZeroDivisionError: by nothing",
        "sequoia.html#table2": "the rows are of another time",
        "sequoia.html#table3": NOT_RUN,
        "sequoia.html#table4": MEASURED,
        "gsd.html#fig3": FAILED,
        "gsd.html#table1": FAILED,
    }.items():
        assert words in found[place]
    assert "sequoia/table1" in err
    assert (out / "sequoia" / "table4.csv").exists()
    assert not Page(out / "gsd.html").all("img")
    paper, index = ((out / f"{page}.html").read_text(encoding="utf-8") for page in ("sequoia", "index"))
    for text, place in ((paper, 'id="{}"'), (index.partition('<h3><a href="sequoia.html">')[2], "#{}")):
        shown, _, folded = text.partition('<details class="unrun">')
        assert place.format("table4") in shown, "what was run comes first"
        assert place.format("table3") not in shown
        assert place.format("table3") in folded


def test_a_table_is_one_of_html_whose_cells_hold_verdicts_and_everything_is_escaped(
    registry, tmp_path: Path, capsys
) -> None:
    nasty = pd.DataFrame({NASTY: [NASTY], "verdict": [NASTY], "mal": [f"2.5 [1, 2] {NASTY}"]})
    add(registry, "gsd/table1", Table("table1", NASTY, nasty, (NASTY,), {NASTY: NASTY, "mal": NASTY}, (NASTY,)))
    add(registry, "gsd/fig6", Html("fig6", f"<!DOCTYPE html><title>t</title>{NASTY}"))
    add(registry, "gsd/table2", error=ValueError(NASTY))
    row = {
        "target": "T&T",
        "label": "a",
        "n": "8",
        "mal": "2.5 [2, 3] *",
        "mal_published": "2.6",
        "mal_verdict": "differs",
    }
    rows = pd.DataFrame([row, row | {"label": "b", "n": "9"}])
    legend, headers = {"mal": "tokens a step", "target": "the larger model"}, {"mal": "length", "target": "Target"}
    add(registry, "opt_tree/table1", Table("table1", "Of MAL", rows, ("A note.",), legend, headers=headers))
    for name, given in (("dyspec/table1", "matches"), ("bench/gsm8k", "differs"), ("smoke", "differs")):
        add(registry, name, Table("t", "T", pd.DataFrame({"verdict": [given]})))
    out, _, _ = report(tmp_path, capsys, code=1)
    for path in out.glob("*.html"):
        page = Page(path)
        assert len(page.all("script")) == 1, "our own, by which tables are sorted"
        assert path.read_text(encoding="utf-8").count("</style>") == 1
        levels = [int(tag[1]) for tag, _ in page.tags if tag in ("h1", "h2", "h3", "h4")]
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in zip([0, *levels], levels, strict=False))
        ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
        assert len(ids) == len(set(ids))
    (frame,) = Page(out / "gsd.html").all("iframe")
    assert frame["srcdoc"] == f"<!DOCTYPE html><title>t</title>{NASTY}"
    assert "sandbox" in frame
    page = Page(out / "opt_tree.html")
    assert [attributes["scope"] for attributes in page.all("th")] == [*["col"] * 3, "row", "row"]
    assert {"title": "tokens a step"} in page.all("abbr")
    assert page.text.index("Target T&T") < page.text.index("A note."), "what is the same in all rows is a note"
    judged = page.text.partition(" Of MAL ")[2]
    places = [judged.index(words) for words in ("2.5 [2, 3] *", "2.6", "differs", " 9 ")]
    assert places == sorted(places), "what is judged stands behind the method, with its verdict"
    head = (out / "index.html").read_text(encoding="utf-8").partition('id="all"')[0]
    assert "<b>1</b> matches" in head, "verdicts of our own tables are left out of the total"
    assert "<b>2</b> differs" in (out / "bench.html").read_text(encoding="utf-8")


def test_results_lead_to_their_files_folders_and_provenance(table1_cells, tmp_path: Path, capsys, monkeypatch) -> None:
    """And a progress that cannot be told stops no other."""
    (table1_cells.root / "opt_tree" / "fig10").mkdir()
    (table1_cells.root / "opt_tree" / "fig10" / "case_study.json").write_text(json.dumps(CASE), encoding="utf-8")
    for experiment, drafter in (("default", "chain4"), ("mine/first", "eagle25"), ("sequoia/table4", "sequoia")):
        table1_cells.experiment = experiment
        table1_cells.add(drafter, dataset="mini")
    read = progress.read

    def broken(root: Path, artifact: str, pair: str | None = None) -> progress.Progress:
        if artifact == "sequoia/table4":
            raise ZeroDivisionError("by nothing")
        return read(root, artifact, pair)

    monkeypatch.setattr(progress, "read", broken)
    out, _, _ = report(tmp_path, capsys, code=1)
    page = Page(out / "opt_tree.html")
    links = [link["href"].partition("#") for link in page.all("a")]
    targets = [(out / unquote(href)).resolve() for href, _, _ in links if href]
    assert all(target.exists() for target in targets)
    folder = table1_cells.root / "opt_tree" / "table1"
    assert {folder / table for table in ("runs", "prompts", "steps")} <= set(targets)
    assert {out / "opt_tree" / f"table1.{suffix}" for suffix in ("md", "tex", "csv", "json")} <= set(targets)
    assert {out / "opt_tree" / f"fig10.{suffix}" for suffix in ("html", "png", "pdf")} <= set(targets)
    runs = table1_cells.store.root.joinpath("opt_tree/table1/runs").glob("*.parquet")
    assert all(path.stem.partition("=")[2] in page.text for path in runs)
    (image,) = page.all("img")
    assert image["src"].startswith("data:image/png;base64,")
    assert "ZeroDivisionError: by nothing" in statuses(out)["sequoia.html#table4"]
    yours = Page(out / "yours.html")
    assert {"default", "mine-first"} <= {attributes.get("id") for _, attributes in yours.tags}
    assert all(drafter in yours.text for drafter in ("chain4", "eagle25"))
    assert 'href="yours.html#mine-first"' in (out / "index.html").read_text(encoding="utf-8")


def test_of_a_pair_its_own_cells_are_counted(table1_cells, tmp_path: Path, capsys) -> None:
    table1_cells.add("binary", pair="llama")
    table1_cells.experiment = "opt_tree/table2"
    table1_cells.add(pair="other")
    found = {
        pair: statuses(report(tmp_path, capsys, "--pair", pair)[0])["opt_tree.html#table1"]
        for pair in ("llama", "other")
    }
    assert "1 cell<" in found["llama"]
    assert NOT_RUN in found["other"]
    assert command("opt_tree/table1", "other") in (tmp_path / "out" / "opt_tree.html").read_text(encoding="utf-8")
