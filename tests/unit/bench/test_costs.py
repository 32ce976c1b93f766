"""Folders of many cells, as `make bench-costs` makes them, and the table of costs."""

import pytest
from cells import cell, execute

from specdec_trees.results import progress
from specdec_trees.results.store import Store
from specdec_trees.speed import costs


@pytest.mark.parametrize("packed", [False, True])
def test_copies_are_the_cells_that_a_sweep_over_seeds_has(tmp_path, packed):
    assert execute(tmp_path / "one", *costs.SETTING, f"name={costs.NAME}") == "ok"
    one, copies = Store(tmp_path / "one", costs.NAME), Store(tmp_path / "many", "table")
    costs.multiply(one, 3, copies)
    assert not packed or copies.pack() == 9
    found = progress.read(copies.root, "table")
    assert (found.planned, found.done, found.others) == (3, 3, 0)
    runs = copies.read("runs").set_index("seed")
    wanted = cell(*costs.SETTING, "seed=2", new=8)
    assert runs.at[2, "run_id"] == wanted.run_id
    assert copies.row(wanted.run_id)["experiment"] == "table"
    columns = ["prompt_id", "output_sha256", "decode_s"]
    same = copies.read("prompts", [wanted.run_id])[columns]
    assert same.equals(one.read("prompts")[columns])


def test_the_table_has_costs_and_how_they_grow():
    found = {100: {"status": (2.0, 0.25)}, 1000: {"status": (5.0, 0.5)}}
    *_, line = costs.table(found)
    assert line == "| status | 2.0 s, 0.25 GB | 5.0 s, 0.50 GB | 2.5 |"
