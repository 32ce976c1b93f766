"""Headers that say how a paper counts its tokens."""

from bench.artifacts import definitions
from bench.artifacts.tables import Table, to_markdown
from bench.papers.registry import build


def test_a_table_shows_its_papers_definition_and_keeps_its_columns(table1_cells) -> None:
    (table,) = build("opt_tree/table1", table1_cells.root)
    assert isinstance(table, Table)
    assert {"MAL", "MAL published", "verdict MAL"} <= set(table.frame)
    assert table.header("MAL") == "MAL (new tokens/step, bonus counted)"
    assert table.header("MAL published") == "MAL published"
    assert f"| {table.header('MAL')} |" in to_markdown(table)


def test_the_papers_words_replace_mal_wherever_it_stands() -> None:
    shown = definitions.headers("sequoia", ["N", "MAL", "MAL published", "MAL - F(T)", "verdict MAL", "MALT"])
    assert shown == {
        "MAL": "tokens/step (bonus counted)",
        "MAL published": "tokens/step published",
        "MAL - F(T)": "tokens/step - F(T)",
        "verdict MAL": "verdict tokens/step",
    }
    assert definitions.headers("dyspec", ["MAL - 1"]) == {"MAL - 1": "tokens/step - 1 (accepted, bonus not counted)"}


def test_rates_that_leave_the_bonus_out_say_so() -> None:
    for paper, column in (("gsd", "Acceptance Rate"), ("gsd", "acceptance"), ("improving_mcsd", "alpha")):
        header = definitions.headers(paper, [column])[column]
        assert header.startswith(f"{column} (")
        assert "bonus not counted" in header
    assert definitions.headers("opt_tree", ["alpha", "speedup"]) == {}
