"""What was decoded, in the notes of tables: categories, how much repeats itself, and an excerpt."""

from dataclasses import replace

import pandas as pd
import pytest
from filled import rewrite

from bench.artifacts.blocks import Block, blocks
from bench.artifacts.tables import Table
from bench.artifacts.wording import LOOPS, categories, repetition, scale
from bench.papers.registry import build
from bench.results.rows import RunRow
from bench.results.store import Results


def of(cells, **columns) -> Block:
    """The one block of the runs, with other values in the prompts' columns: functions of a row."""
    results: Results = cells.load()
    prompts = results.prompts.copy()
    for name, value in columns.items():
        prompts[name] = pd.Series([value(row) for row in results.prompts.itertuples()], dtype=object)
    (block,) = blocks(replace(results, prompts=prompts))
    return block


@pytest.mark.parametrize(
    ("category", "words"),
    [
        (lambda row: None, ""),
        (lambda row: "writing", ""),
        (lambda row: f"kind {row.prompt_id}", "1 each of kind p0, kind p1, kind p2, kind p3, kind p4, kind p5"),
        (lambda row: "even" if row.prompt_id in ("p0", "p2", "p4") else "odd", "3 each of even, odd"),
        (lambda row: "first" if row.prompt_id == "p0" else "other", "1 of first, 5 of other"),
    ],
)
def test_conversations_are_counted_by_category(cells, category, words) -> None:
    for drafter in ("opt_tree", "binary"):
        cells.add(drafter)
    block = of(cells, category=category)
    assert categories(block) == words
    assert f": 6 conversations{f' ({words})' if words else ''}, at most 64" in scale(block)


def test_the_scale_says_how_much_of_the_outputs_repeats_itself_and_which_runs_loop(cells) -> None:
    loops, plain = cells.add("opt_tree"), cells.add("binary")
    ids = {(loops, "method"): [1] * 23, (plain, "method"): list(range(23))}  # 19 of 20 4-grams, and none
    block = of(cells, output_ids=lambda row: ids.get((row.run_id, row.arm), [1, 2] * 6))  # 7 of 9
    said = "Repeated 4-grams: 48% of the method outputs', 78% of the autoregressive; loops (50% or more): OPT-Tree."
    assert LOOPS == 0.5
    assert repetition(block) == said
    assert scale(block).endswith(f"Test CPU. {said}")
    ids[plain, "method"] = ids[loops, "method"]
    assert repetition(of(cells, output_ids=lambda row: ids.get((row.run_id, row.arm), []))) == (
        "Repeated 4-grams: 95% of the method outputs'; loops (50% or more): every run."
    )


def test_outputs_too_short_for_4grams_and_runs_that_failed_have_no_sentence(cells) -> None:
    cells.add("opt_tree")
    assert repetition(cells.block()) == ""
    assert scale(cells.block()).endswith("Test CPU.")
    cells.experiment = "opt_tree/table2"
    cells.add("opt_tree", status="oom")
    assert (categories(cells.block()), repetition(cells.block())) == ("", "")


def test_a_table_shows_the_excerpt_of_its_first_run_that_has_one(table1_cells) -> None:
    cells = table1_cells

    def notes() -> list[str]:
        (table,) = (output for output in build("opt_tree/table1", cells.root) if isinstance(output, Table))
        return [note for note in table.notes if note.startswith("What was decoded")]

    assert notes() == []
    runs = cells.store.read("runs")
    for place, row in enumerate(runs.itertuples()):
        path = cells.store.path("runs", row.run_id)
        rewrite(path, RunRow, **({"excerpt": f"It was run {place}"} if place else {}))
    (note,) = notes()
    assert note.startswith('What was decoded, for instance (tiny, mt_bench): "It was run ')
