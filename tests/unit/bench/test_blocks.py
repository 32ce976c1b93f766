"""Rows that are gathered as columns are the rows that came, in their order, and are written as they would be."""

from dataclasses import asdict, replace

import pytest
from filled import row

from specdec_trees.results import blocks
from specdec_trees.results.blocks import Blocks, total
from specdec_trees.results.parquet import file_name, read_table, write_rows
from specdec_trees.results.rows import PromptRow, StepRow


def steps(count, first=0):
    """Rows of which every third tells of a token graph."""
    return [
        replace(
            row(StepRow, run_id="a1", step=number, acceptance_length=number % 5, draft_s=number / 7),
            accepted_ranks=None if number % 2 else [number, 1],
            num_live=number if number % 3 == 0 else None,
            expected_acceptance=None,
        )
        for number in range(first, first + count)
    ]


@pytest.fixture(params=[1, 7, 10**6], ids="full after {}".format)
def full(request, monkeypatch):
    monkeypatch.setattr(blocks, "_ROWS", request.param)


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("sizes", [(), (0,), (1,), (5, 0, 3), (4, 4, 4, 4)])
def test_they_are_the_rows_that_came(sizes):
    gathered, rows = Blocks(StepRow), []
    for size in sizes:
        new = steps(size, len(rows))
        gathered.extend(new)
        rows += new
        assert gathered[len(rows) - size :] == new
        gathered.settle()
        assert list(gathered) == rows
        assert len(gathered) == len(rows)
    gathered.append(steps(1, len(rows))[0])
    rows += steps(1, len(rows))
    assert list(gathered) == rows
    assert gathered[:2] == rows[:2]
    assert gathered[len(rows) - 1] == rows[-1]
    assert total(gathered, "acceptance_length") == sum(one.acceptance_length for one in rows)


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("count", [0, 1, 20])
def test_the_file_has_them(count, tmp_path):
    rows, path = steps(count), tmp_path / file_name("a1")
    gathered = Blocks(StepRow)
    for place in range(0, count, 6):
        gathered.extend(rows[place : place + 6])
        gathered.settle()
    write_rows(path, StepRow, gathered)
    assert read_table(path, StepRow).to_pylist() == [asdict(one) for one in rows]


@pytest.mark.usefixtures("full")
def test_blocks_of_blocks():
    first, other = Blocks(StepRow, steps(3)), Blocks(StepRow, steps(5, 3))
    other.settle()
    other.extend(steps(2, 8))
    first.extend(other)
    assert list(first) == steps(10)
    assert first.only(["step", "num_live"]).to_pydict() == {
        "step": [*range(10)],
        "num_live": [number if number % 3 == 0 else None for number in range(10)],
    }


def test_prompts_keep_their_tokens():
    rows = [row(PromptRow, run_id="a1", output_ids=[*range(number)]) for number in range(4)]
    gathered = Blocks(PromptRow, rows)
    gathered.settle()
    assert list(gathered) == rows
