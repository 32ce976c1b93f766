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


def test_a_large_cell_is_written_by_the_runner_and_is_read_by_all(tmp_path):
    found = dict(costs.of_large_cell(7, 30, tmp_path, ["check", "compare"]))
    assert list(found) == ["run", "check", "compare", "merge", "pack"]
    assert all(seconds > 0 and memory > 0 for seconds, memory in found.values())
    tables = {table: Store(tmp_path / "packed", costs.NAME).read(table) for table in ("runs", "prompts", "steps")}
    assert tables["steps"].groupby("prompt_id").size().tolist() == [30] * 7
    assert tables["steps"]["score_s"].nunique() > 200, "no two steps have one object's times"
    method, plain = (tables["prompts"][tables["prompts"]["arm"] == arm] for arm in ("method", "autoregressive"))
    assert method["output_sha256"].tolist() == plain["output_sha256"].tolist()
    assert tables["runs"]["mal"].tolist() == [tables["steps"]["acceptance_length"].mean()]
