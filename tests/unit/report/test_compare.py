"""Two sides of a comparison against plain sums, and what is said of cells that changed or are missing."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
import recomputed
from compared import REFERENCE, alter, compared, copied, couples, run_of
from recomputed import Files

from bench.compare.changes import FASTER, NO_INTERVAL, SLOWER, TIED, word
from bench.stats import Interval


def numbers(change: Interval) -> recomputed.Numbers:
    return change.value, change.low, change.high


@pytest.fixture
def after(cells, tmp_path: Path):
    """Another results folder."""
    return type(cells)(tmp_path / "after")


def test_ratios_are_those_of_the_sums_over_conversations(cells, after) -> None:
    ids = cells.add(mal=2.5, speedup=1.2), after.add(mal=3.4, speedup=0.9)
    files = [Files(one.store.folder) for one in (cells, after)]
    steps = [own.steps(run_id) for own, run_id in zip(files, ids, strict=True)]
    sums = [own.speedup_sums(run_id) for own, run_id in zip(files, ids, strict=True)]
    (couple,) = couples(cells.store.folder, after.store.folder)
    mal, gain, speed = (couple.changes[name] for name in ("mal", "speedup", "tokens_per_s"))
    assert numbers(mal.ratio) == pytest.approx(recomputed.mal_ratio(steps[1], steps[0]))
    assert numbers(gain.ratio) == pytest.approx(recomputed.speedup_ratio(sums[1], sums[0]))
    assert (mal.first, mal.second) == pytest.approx([recomputed.mal(one)[0] for one in steps])
    assert (gain.first, gain.second) == pytest.approx([recomputed.gain(one.sum()) for one in sums])
    both = recomputed.of_two(sums[1], sums[0])
    own = recomputed.interval(both, lambda total: (total["t"] / total["s"]) / (total["t_"] / total["s_"]))
    plain = recomputed.interval(both, lambda total: (total["t0"] / total["s0"]) / (total["t0_"] / total["s0_"]))
    assert numbers(speed.ratio) == pytest.approx(own)
    assert numbers(couple.control) == pytest.approx(plain)
    assert (mal.word, gain.word, speed.word) == (FASTER, SLOWER, SLOWER)
    assert (mal.ratio.n, couple.num_conversations) == (6, 6)


def test_only_turns_that_both_decoded_count(cells, after) -> None:
    """B has fewer conversations, and one turn of it did not end well: A's rows of these turns are left out."""
    ids = cells.add(conversations=6), after.add(conversations=4, mal=3.0)
    lost = ("p1", 1)
    alter(
        after.store.folder,
        "prompts",
        ids[1],
        status=lambda row: "failed" if (row["prompt_id"], row["turn"]) == lost else row["status"],
    )
    steps = []
    for one, run_id in zip((cells, after), ids, strict=True):
        rows = Files(one.store.folder).steps(run_id)
        kept = rows["prompt_id"].isin(["p0", "p1", "p2", "p3"]) & ~((rows["prompt_id"] == "p1") & (rows["turn"] == 1))
        steps.append(rows[kept])
    (couple,) = couples(cells.store.folder, after.store.folder)
    assert numbers(couple.changes["mal"].ratio) == pytest.approx(recomputed.mal_ratio(steps[1], steps[0]))
    assert couple.changes["mal"].first == pytest.approx(recomputed.mal(steps[0])[0])
    assert couple.num_conversations == 4
    said = "\n".join(compared(cells.store.folder, after.store.folder).notes)
    assert "A decoded 6 conversations, B 4; all is of the 4 of both" in said
    assert "prompts_sha256: 6 in A, 4 in B" in said


@pytest.mark.parametrize(
    ("bounds", "floor", "expected"),
    [
        ((1.1, 1.01, 1.2), 0, FASTER),
        ((0.9, 0.8, 0.99), 0, SLOWER),
        ((1.1, 0.99, 1.2), 0, TIED),
        ((1.0, 1.0, 1.0), 0, TIED),
        ((1 + 4e-16, 1 + 4e-16, 1 + 4e-16), 0, TIED),  # products in another order
        ((1.1, 1 + 4e-16, 1.2), 0, TIED),
        ((0.9, 0.8, 1 - 4e-16), 0, TIED),
        ((1.1, 1.01, 1.2), 0.15, TIED),
        ((1.1, 1.01, 1.2), 0.05, FASTER),
        ((0.9, 0.8, 0.99), float("nan"), SLOWER),  # without a control nothing is excused
        ((0.9, float("nan"), float("nan")), 0, NO_INTERVAL),
    ],
)
def test_words(bounds: tuple[float, float, float], floor: float, expected: str) -> None:
    assert word(Interval(*bounds, n=5), floor) == expected


def test_a_faster_machine_is_no_faster_method(tmp_path: Path) -> None:
    """All times of B are shorter by a fifth: so are the control's, and the speedup is what it was."""
    faster = copied("smoke", tmp_path / "smoke")
    for path in (faster / "prompts").iterdir():
        alter(faster, "prompts", path.stem.removeprefix("run_id="), decode_s=lambda row: row["decode_s"] * 0.8)
    for couple in couples(REFERENCE / "smoke", faster):
        assert numbers(couple.control) == pytest.approx((1.25, 1.25, 1.25))
        speed, gain = (couple.changes[name] for name in ("tokens_per_s", "speedup"))
        assert speed.ratio.value == pytest.approx(1.25)
        assert (speed.word, gain.word) == (TIED, TIED)


@pytest.mark.parametrize("name", ["smoke", "sequoia"])
def test_results_against_themselves_are_tied(name: str) -> None:
    """An experiment, and a folder of several: ratios print as 1, outputs are identical, and nothing differs."""
    table = compared(REFERENCE / name, REFERENCE / name)
    assert len(table.frame) == len(list((REFERENCE / name).rglob("runs/*.parquet")))
    assert ("Experiment" in table.frame) == (name == "sequoia")
    for header in ("MAL", "tokens/s", "speedup"):
        assert set(table.frame[f"verdict {header}"]) == {TIED}
        assert set(table.frame[f"{header} B/A"]) == {"1.000 [1.000, 1.000]"}
        assert (table.frame[f"{header} A"] == table.frame[f"{header} B"]).all()
    assert set(table.frame["control"]) == {"1.000 [1.000, 1.000]"}
    assert set(table.frame["identical"]) == {"100%"}
    assert table.notes[1:] == ("Nothing got worse beyond its interval by MAL or speedup.",)


def test_one_conversation_has_no_interval() -> None:
    frame = compared(REFERENCE / "dyspec" / "fig6", REFERENCE / "dyspec" / "fig6").frame
    assert frame[["n", "MAL B/A", "verdict MAL"]].to_numpy().tolist() == [["1", "1.000 [–, –]", NO_INTERVAL]]


def test_other_outputs_are_counted(tmp_path: Path) -> None:
    changed = copied("smoke", tmp_path / "smoke")
    run_id = run_of(changed, "opt_tree")
    alter(
        changed,
        "prompts",
        run_id,
        output_sha256=lambda row: row["output_sha256"] + "x" * (row["turn"] == 0 and row["arm"] == "method"),
    )
    turns = Files(changed).turns("method", run_id)["turn"]
    frame = compared(REFERENCE / "smoke", changed).frame.set_index("Drafter")
    recomputed.assert_printed(frame.loc["opt_tree", "identical"], 100 * float((turns != 0).mean()), least=1)
    assert (frame.drop("opt_tree")["identical"] == "100%").all()


def test_differences_and_lonely_cells_are_told(tmp_path: Path) -> None:
    changed = copied("smoke", tmp_path / "smoke")
    one, gone = (run_of(changed, name) for name in ("opt_tree", "binary"))
    alter(changed, "runs", one, lossless=lambda row: False, dtype=lambda row: "bfloat16")
    for rows in ("runs", "prompts", "steps"):
        (changed / rows / f"run_id={gone}.parquet").unlink()
    table = compared(REFERENCE / "smoke", changed)
    said = "\n".join(table.notes)
    assert "lossless: True in A, False in B (1 of 11 cells)." in said
    assert "dtype: float32 in A, bfloat16 in B (1 of 11 cells)." in said
    assert f"Only in A: binary on mini at temperature 0 (tiny), run {gone}." in said
    assert "Only in B" not in said
    assert "binary" not in set(table.frame["Drafter"])


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
    assert frame[["Drafter", "arguments"]].to_numpy().tolist() == [
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
    assert table.frame["Experiment"].tolist() == ["one/table", "two/table"]
    assert set(table.frame["verdict MAL"]) == {TIED}
    assert table.frame["MAL A"].nunique() == 2
    assert any(note.startswith("Only in B: three: opt_tree on mt_bench") for note in table.notes)


def test_two_runs_are_compared_as_they_are() -> None:
    """Of other drafters: the row names both, the notes what differs in their configs."""
    ids = [run_of(REFERENCE / "smoke", name) for name in ("opt_tree", "opt_tree_n50")]
    table = compared(*ids, results=REFERENCE)
    assert table.frame["Drafter"].tolist() == ["opt_tree -> opt_tree_n50"]
    assert table.runs == (" ".join(ids),)
    assert "drafter.n: 25 in A, 50 in B." in table.notes
    steps = [Files(REFERENCE / "smoke").steps(run_id) for run_id in ids]
    recomputed.assert_printed(table.frame["MAL B/A"][0], recomputed.mal_ratio(steps[1], steps[0]), least=3)


def test_of_one_id_in_several_experiments_the_newest_counts() -> None:
    """Two tables of a paper share runs; which rows were taken is said."""
    places = pd.Series([path.stem for path in REFERENCE.rglob("runs/*.parquet")])
    run_id = places[places.duplicated()].iloc[0].removeprefix("run_id=")
    times = {
        path.parents[1].relative_to(REFERENCE).as_posix(): Files(path.parents[1]).run(run_id)["created_utc"]
        for path in REFERENCE.rglob(f"runs/run_id={run_id}.parquet")
    }
    newest = max(times, key=times.__getitem__)
    said = compared(run_id, REFERENCE / newest / run_id[:6], results=REFERENCE).notes
    assert any(f"the rows of {newest}, the newest, are taken" in note for note in said)
