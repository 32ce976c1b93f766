import io
import math
from dataclasses import replace
from pathlib import Path

import pandas as pd

from specdec_trees.artifacts import definitions, tables
from specdec_trees.artifacts.tables import Table, to_csv, to_html, to_latex, to_markdown
from specdec_trees.statistics import samples
from specdec_trees.statistics.intervals import Interval

AWKWARD = r"50% of a_b & c|d #1 {x} $y$ ~ ^ \n <z>"
TABLE = Table(
    "t",
    "Title with 5% & more",
    pd.DataFrame({"label": ["a", AWKWARD], "mal": ["1.00", "2,5"]}),
    notes=("A note_1.",),
    legend={"mal": "mean | length", "absent": "never shown"},
    runs=("0123456789ab", ""),
)


def test_markdown_has_one_line_per_row_and_escapes_pipes() -> None:
    lines = to_markdown(TABLE).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert [line.replace(r"\|", "").count("|") for line in rows] == [3, 3, 3, 3]
    assert len({len(line) for line in rows}) == 1  # padded
    assert r"c\|d" in rows[-1]
    assert lines[0] == "### Title with 5% & more"
    assert "- A note_1." in lines
    assert not any("0123456789ab" in line for line in lines), "ids are the CSV's"
    assert r"- **mal**: mean \| length" in lines
    assert not any("never shown" in line for line in lines)


def test_markdown_keeps_a_cell_on_its_line() -> None:
    text = to_markdown(Table("t", "T", pd.DataFrame({"a": ["one\ntwo"]})))
    assert "| one two |" in text


def test_latex_escapes_and_uses_booktabs() -> None:
    text = to_latex(TABLE)
    expected = (
        r"50\% of a\_b \& c\textbar{}d \#1 \{x\} \$y\$ \textasciitilde{} \textasciicircum{} "
        r"\textbackslash{}n \textless{}z\textgreater{} & 2,5 \\"
    )
    assert expected in text
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert r"\begin{tabular}{ll}" in text
    assert r"\caption{Title with 5\% \& more}" in text
    assert r"A note\_1." in text


def test_latex_explains_no_column_that_it_lacks() -> None:
    legend = {"mal": "a mean", "label": "a name"}
    text = to_latex(replace(TABLE, legend=legend, aside=("mal",)))
    assert "a name" in text
    assert "a mean" not in text
    assert "a mean" in to_markdown(replace(TABLE, legend=legend, aside=("mal",)))


def test_csv_reads_back_with_the_runs() -> None:
    frame = pd.read_csv(io.StringIO(to_csv(TABLE)), dtype=str, keep_default_na=False)
    assert frame["label"].tolist() == ["a", AWKWARD]
    assert frame["mal"].tolist() == ["1.00", "2,5"]
    assert frame["run_id"].tolist() == ["0123456789ab", ""]


def test_what_stands_above_a_column_is_in_no_key_and_no_csv() -> None:
    """A changed word moves neither what tests and readers of CSV take, nor what a page nests in a cell."""
    table = replace(TABLE, headers={"mal": "a word"})
    head = next(line for line in to_markdown(table).splitlines() if line.startswith("|"))
    assert [cell.strip() for cell in head.strip("|").split("|")] == ["label", "a word"]
    assert r"label & a word \\" in to_latex(table)
    assert to_csv(table) == to_csv(TABLE)
    counted = definitions.counted("sequoia", {"mal": "MAL", "mal_published": "MAL published", "n": "N", "x": "MALT"})
    assert counted["mal"] != "MAL"
    assert "MAL" not in counted["mal_published"]
    assert (counted["n"], counted["x"]) == ("N", "MALT")


def test_a_verdict_stands_behind_the_papers_number_and_in_a_column_of_its_own_in_the_csv() -> None:
    frame = pd.DataFrame({"mal": ["2.0", "3.0"], "mal_published": ["1.9", "–"], "mal_verdict": ["matches", ""]})
    table = Table("t", "T", frame, (), {"mal_verdict": "a rule"}, aside=("mal_verdict",))
    lines = to_markdown(table).splitlines()
    assert [line.count("|") for line in lines if line.startswith("|")] == [3] * 4
    assert "1.9: matches" in to_latex(table)
    assert "–: " not in to_html(table)
    assert any(line.endswith("**: a rule") for line in lines)
    assert to_csv(table).splitlines()[0] == "mal,mal_published,mal_verdict"


def test_an_empty_table_renders() -> None:
    empty = Table("t", "T", tables.frame([], ["a", "b"]))
    assert "| a   | b   |" in to_markdown(empty)
    assert r"a & b \\" in to_latex(empty)
    assert to_csv(empty) == "a,b\n"


def test_write_makes_three_files(tmp_path: Path) -> None:
    assert [path.name for path in TABLE.write(tmp_path)] == ["t.md", "t.tex", "t.csv", "t.json"]
    assert all(path.stat().st_size for path in tmp_path.iterdir())


def test_numbers() -> None:
    nan = float("nan")
    assert tables.number(2.346) == "2.35"
    assert tables.number(None) == tables.number(nan) == tables.ABSENT
    assert tables.interval(Interval(2.0, 1.5, 2.5, 6)) == "2.00 [1.50, 2.50]"
    assert tables.interval(Interval(2.0, 1.5, 2.5, 5)) == "2.00 (1.50 to 2.50)"
    assert tables.ratio(Interval(1.0526, 0.98, 1.1, 2)) == "1.053 (0.980 to 1.100)"
    assert tables.signed(Interval(-0.1, -0.2, 0.05, 2)) == "-0.100 (-0.200 to +0.050)"
    assert tables.interval(Interval(2.0, nan, nan, 1)) == "2.00"
    assert tables.interval(None) == tables.ABSENT
    assert [tables.percent(share) for share in (1.0, 0.9999, 0.5, 0.0, None)] == ["100%", "99.9%", "50.0%", "0.0%", "–"]


def test_a_ratio_has_its_interval_and_of_nothing_shared_is_absent() -> None:
    assert tables.ratio(Interval(1.0526, 0.98, 1.1, 9)) == "1.053 [0.980, 1.100]"
    assert tables.ratio(Interval(1.0526, math.nan, math.nan, 1)) == "1.053"
    assert tables.ratio(None) == tables.ratio(samples.paired_ratio(None, None)) == "–"
