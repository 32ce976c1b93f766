"""What was decoded, in the notes of tables: categories, how much repeats itself, and an excerpt."""

import re
from dataclasses import replace

import pandas as pd
import pytest
from filled import rewrite

from specdec_trees.artifacts import frame, notes
from specdec_trees.artifacts.tables import Table
from specdec_trees.papers.registry import build
from specdec_trees.results.rows import RunRow


def words(cells, kind: str, **columns) -> str:
    """What is said of the one block of the runs, with other values in the prompts' columns: functions of a row."""
    results = cells.load()
    prompts = results.prompts.copy()
    for name, value in columns.items():
        prompts[name] = pd.Series([value(row) for row in results.prompts.itertuples()], dtype=object)
    (text,) = notes.facts(frame.load(replace(results, prompts=prompts)))[kind]
    return text


@pytest.mark.parametrize(
    ("category", "counts"),
    [
        (lambda row: None, ""),
        (lambda row: "writing", ""),
        (lambda row: "even" if row.prompt_id in ("p0", "p2", "p4") else "odd", " (3 each of even, odd)"),
        (lambda row: "first" if row.prompt_id == "p0" else "other", " (1 each of first; 5 each of other)"),
    ],
)
def test_conversations_are_counted_by_category(cells, category, counts) -> None:
    for drafter in ("opt_tree", "binary"):
        cells.add(drafter)
    assert words(cells, "conversations", category=category) == f"6 conversations{counts}"


def test_shares_of_repeated_4grams_are_of_both_arms_and_name_the_runs_that_loop(cells) -> None:
    loops, plain = cells.add("opt_tree"), cells.add("binary")
    ids = {(loops, "method"): [1] * 23, (plain, "method"): list(range(23))}  # 19 of 20 4-grams, and none
    text = words(cells, "repetition", output_ids=lambda row: ids.get((row.run_id, row.arm), [1, 2] * 6))  # 7 of 9
    assert re.findall(r"\d+%", text) == ["48%", "78%"]
    assert "OPT-Tree" in text
    assert words(cells, "repetition", output_ids=lambda row: [1]) == ""


def test_a_table_shows_the_excerpt_of_its_first_run_that_has_one(table1_cells) -> None:
    cells = table1_cells

    def excerpts() -> list[str]:
        (table,) = (output for output in build("opt_tree/table1", cells.root) if isinstance(output, Table))
        return [note for note in table.notes if note.startswith("What was decoded")]

    assert excerpts() == []
    runs = cells.store.read("runs")
    for place, row in enumerate(runs.itertuples()):
        path = cells.store.path("runs", row.run_id)
        rewrite(path, RunRow, **({"excerpt": f"It was run {place}"} if place else {}))
    (note,) = excerpts()
    assert note.startswith('What was decoded, for instance (tiny, mt_bench): "It was run ')
