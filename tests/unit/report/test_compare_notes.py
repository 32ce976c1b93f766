"""What a comparison says beside its numbers: which cells have no counterpart, what differs, what is chance."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
import recomputed
from compared import REFERENCE, alone, alter, compared, copied, run_of
from recomputed import Files, experiments

from specdec_trees.compare.changes import NO_INTERVAL, TIED
from specdec_trees.compare.joined import join
from specdec_trees.compare.notes import notes
from specdec_trees.compare.sides import find

pytestmark = pytest.mark.long


def test_only_what_the_method_decoded_well_is_counted_as_decoded(cells, after) -> None:
    """A conversation whose method failed has rows, and one of the autoregressive arm that ended well."""
    cells.add(), after.add(mal=3.0)
    for one, lost in ((cells, {"p0"}), (after, {"p0", "p1"})):
        (path,) = (one.store.folder / "runs").iterdir()
        alter(
            one.store.folder,
            "prompts",
            path.stem.removeprefix("run_id="),
            status=lambda row, lost=lost: "failed" if row["prompt_id"] in lost and row["arm"] == "method" else "ok",
        )
    said = "\n".join(compared(cells.store.folder, after.store.folder).notes)
    assert "A decoded 5 conversations, B 4; all is of the 4 of both" in said


def test_chance_is_said_of_mal_alone(cells, after) -> None:
    """Two cells whose MAL has an interval of some width; one that accepted the same has none, its times have."""
    for one, mal in ((cells, 2.0), (after, 2.1)):
        one.add(mal=mal, params={"n": 25}), one.add(mal=mal, params={"n": 50}), one.add("eagle25", "eagle_tree")
    (said,) = (note for note in compared(cells.store.folder, after.store.folder).notes if "1 interval" in note)
    assert "interval of MAL in 20" in said
    assert "about 0.1 of 2 here" in said
    found = join(*(find(str(one.store.folder), Path("none")) for one in (cells, after)))
    assert not any("1 interval" in note for note in notes(found, ["speedup"]))


def test_one_conversation_has_no_interval(tmp_path: Path) -> None:
    folder = alone("dyspec/fig6", tmp_path / "one")
    frame = compared(folder, folder).frame
    assert frame[["n", "mal_ratio", "mal_verdict"]].to_numpy().tolist() == [["1", "1.000", NO_INTERVAL]]


def test_differences_and_lonely_cells_are_told(tmp_path: Path) -> None:
    changed = copied("smoke", tmp_path / "smoke")
    one, gone = (run_of(changed, name) for name in ("opt_tree", "binary"))
    alter(changed, "runs", one, lossless=lambda row: False, dtype=lambda row: "bfloat16")
    for rows in ("runs", "prompts", "steps"):
        (changed / rows / f"run_id={gone}.parquet").unlink()
    table = compared(REFERENCE / "smoke", changed)
    said = "\n".join(table.notes)
    both = len(list((changed / "runs").iterdir()))
    assert f"lossless: True in A, False in B (1 of {both} cells)." in said
    assert f"dtype: float32 in A, bfloat16 in B (1 of {both} cells)." in said
    assert f"Only in A: binary on mini at temperature 0 (tiny), run {gone}." in said
    assert "Only in B" not in said
    assert "binary" not in set(table.frame["drafter"])


def test_other_arguments_are_pointed_at(cells, after) -> None:
    """The same cell but for an argument of its drafter is another cell; it is named, to be compared by its id."""
    cells.add("eagle25", "eagle_tree"), after.add("eagle25", "eagle_tree")
    ids = cells.add(params={"n": 25}), after.add(params={"n": 26})
    said = "\n".join(compared(cells.store.folder, after.store.folder).notes)
    assert re.search(rf"Only in A: opt_tree on .*, run {ids[0]} \(other arguments of the drafter: {ids[1]}\)", said)
    assert re.search(rf"Only in B: opt_tree on .*, run {ids[1]} \(other arguments of the drafter: {ids[0]}\)", said)


def test_cells_of_one_name_are_told_apart(cells, after) -> None:
    for one in (cells, after):
        for size in (25, 50):
            one.add(params={"n": size, "delta": 0.5}, mal=2.0 + size / 50)
        one.add("eagle25", "eagle_tree", seed=7)
    frame = compared(cells.store.folder, after.store.folder).frame
    assert frame[["drafter", "arguments"]].to_numpy().tolist() == [
        ["opt_tree", "n 25"],
        ["opt_tree", "n 50"],
        ["eagle25", "–"],
    ]


def test_the_same_cell_of_several_experiments_is_joined_by_experiment(cells, tmp_path: Path) -> None:
    """B's folder has one experiment more, which is told of."""
    roots = [tmp_path / "a", tmp_path / "b"]
    for root, names in zip(roots, (("one/table", "two/table"), ("one/table", "two/table", "three")), strict=True):
        for name in names:
            type(cells)(root, name).add(mal={"one/table": 2.0, "two/table": 3.0, "three": 4.0}[name])
    table = compared(*roots)
    assert table.frame["experiment"].tolist() == ["one/table", "two/table"]
    assert set(table.frame["mal_verdict"]) == {TIED}
    assert table.frame["mal_first"].nunique() == 2
    assert any(note.startswith("Only in B: three: opt_tree on mt_bench") for note in table.notes)


def test_two_runs_are_compared_as_they_are() -> None:
    """Of other drafters: the row names both, the notes what differs in their configs."""
    folder = REFERENCE / "bench" / "mt_bench"
    ids = [run_of(folder, name) for name in ("opt_tree", "opt_tree_n50")]
    table = compared(*ids, results=REFERENCE)
    assert table.frame["drafter"].tolist() == ["opt_tree -> opt_tree_n50"]
    assert table.runs == (" ".join(ids),)
    assert "drafter.n: 25 in A, 50 in B." in table.notes
    steps = [Files(folder).steps(run_id) for run_id in ids]
    recomputed.assert_printed(table.frame["mal_ratio"][0], recomputed.mal_ratio(steps[1], steps[0]), least=3)


def test_of_one_id_in_several_experiments_the_newest_counts() -> None:
    """Two tables of a paper share runs; which rows were taken is said."""
    folders = [Files(REFERENCE / name) for name in experiments(REFERENCE)]
    places = pd.Series([run_id for files in folders for run_id in files.ids()])
    run_id = places[places.duplicated()].iloc[0]
    times = {
        files.folder.relative_to(REFERENCE).as_posix(): files.run(run_id)["created_utc"]
        for files in folders
        if run_id in files.ids()
    }
    newest = [place for place, time in times.items() if time == max(times.values())]
    said = compared(run_id, REFERENCE / newest[0] / run_id[:6], results=REFERENCE).notes
    assert any(f"the rows of {place}, the newest, are taken" in note for place in newest for note in said)
