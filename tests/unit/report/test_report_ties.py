"""Marks of the best value of a block and of those tied with it, against a t-test of pairs."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from conftest import Cells
from scipy import stats

from specdec_trees.artifacts import ties
from specdec_trees.artifacts.tables import ABSENT, Table, to_csv, to_latex, to_markdown
from specdec_trees.artifacts.ties import BEST, TIED, UNRANKED, Entry, marks
from specdec_trees.papers.opt_tree.tables import paper_table
from specdec_trees.papers.registry import build
from specdec_trees.statistics.intervals import Interval
from specdec_trees.statistics.samples import Sample


def entry(over: list[float], *, lossless: bool = True) -> Entry:
    """Sums over conversations of one step each."""
    sums = pd.DataFrame({"tokens": over, "steps": 1.0}, index=[f"p{place}" for place in range(len(over))])
    value = float(np.mean(over))
    return Entry(Interval(value, value - 1, value + 1, len(over)), Sample(sums, ("tokens",), ("steps",)), lossless)


def test_the_best_is_marked_and_what_the_pairs_cannot_tell_from_it() -> None:
    values = {"best": [6.0, 2.0, 4.0] * 2, "close": [5.0, 3.0, 3.4] * 2, "always less": [5.9, 1.9, 3.8] * 2}
    p = {name: stats.ttest_rel(values["best"], one).pvalue for name, one in values.items() if name != "best"}
    assert p["always less"] < 0.01 < 0.4 < p["close"]
    assert np.mean(values["always less"]) > np.mean(values["close"])  # though it is nearer by value
    assert marks([entry(one) for one in values.values()]) == [BEST, TIED, ""]
    assert marks([entry(one) for one in reversed(values.values())]) == ["", TIED, BEST]


def test_equal_sums_are_tied() -> None:
    assert marks([entry([3.0, 7.0] * 3), entry([3.0, 7.0] * 3)]) == [BEST, TIED]


def test_rows_that_are_not_lossless_are_ranked_among_themselves() -> None:
    rows = [entry([2.0, 3.0] * 3), entry([1.0, 1.5] * 3)]
    rows += [entry([9.0, 9.5] * 3, lossless=False), entry([4.0, 4.5] * 3, lossless=False)]
    assert marks(rows) == [BEST, "", BEST, ""]
    assert marks(rows[:3]) == [BEST, "", ""]  # one alone is set against none


def test_what_has_no_interval_is_neither_best_nor_tied() -> None:
    unsure = Entry(Interval(9.0, np.nan, np.nan, 1), entry([9.0]).sample)
    assert marks([unsure, entry([2.0, 3.0] * 3), Entry(None, None)]) == ["", "", ""]
    assert marks([unsure, entry([2.0, 3.0] * 3), entry([1.0, 1.5] * 3)]) == ["", BEST, ""]
    assert marks([entry([2.0, 3.0, 2.0, 3.0, 2.0]), entry([1.0] * 5)]) == ["", ""]  # a range of five is no interval


def test_marks_stand_behind_the_cells_and_survive_every_rendering() -> None:
    signs = marks([entry([2.0, 3.0] * 3), entry([3.0, 2.0] * 3)])
    frame = pd.DataFrame({"label": ["a", "b"], "mal": [f"2.50 [1.50, 3.50]{sign}" for sign in signs]})
    table = Table("t", "T", frame, ties.note(frame))
    for text in (to_markdown(table), to_latex(table), to_csv(table)):
        assert "2.50 [1.50, 3.50] *" in text
        assert "2.50 [1.50, 3.50] =" in text
    assert rf"- \{ties.NOTE}" in to_markdown(table).splitlines()
    assert ties.note(frame[["label"]]) == ()


@pytest.mark.parametrize("metric", ["mal", "tokens_per_s", "speedup"])
def test_a_table_marks_one_best_of_its_block(table1_cells, metric: str) -> None:
    (table,) = paper_table("table1", table1_cells.load())
    cells = table.frame[metric]
    chosen = (
        table.frame["mal_as_published_published"] != ABSENT
    )  # of each method the size that is set against the paper
    values = [float(cell.split()[0]) if own else 0.0 for cell, own in zip(cells, chosen, strict=True)]
    assert not any(cell.endswith((BEST, TIED)) for cell in cells[~chosen])
    (best,) = (place for place, cell in enumerate(cells) if cell.endswith(BEST))
    assert values[best] == max(values)
    assert all(cell.endswith((BEST, TIED, "]")) for cell in cells if cell != ABSENT)
    assert ties.NOTE in table.notes


def timed(over: list[float], control: list[float], **more: bool) -> Entry:
    """A time whose run's autoregressive arm has these sums."""
    one = entry(over, **more)
    return replace(one, sample=replace(one.sample, controls=(entry(control).sample,)))


def test_times_of_a_busy_machine_are_not_ranked() -> None:
    quiet = [timed([6.0, 2.0, 4.0] * 2, [1.0] * 6), timed([3.0, 1.0, 2.0] * 2, [1.15] * 6)]
    assert marks(quiet) == [BEST, ""]
    assert marks([*quiet, timed([2.0, 3.0, 4.0] * 2, [0.8] * 6)]) == [UNRANKED] * 3  # 1.15, 1.25, 1.44: mostly
    assert marks([*quiet, timed([2.0, 3.0, 4.0] * 2, [0.9] * 6)]) == [BEST, "", TIED]  # 1.15, 1.11, 1.28: one pair
    lossy = timed([2.0, 3.0, 4.0] * 2, [0.8] * 6, lossless=False)
    unsure = Entry(Interval(9.0, np.nan, np.nan, 1), entry([9.0]).sample)
    assert marks([*quiet, lossy, unsure, Entry(None, None)]) == [UNRANKED] * 3 + [""] * 2
    assert marks([replace(one, sample=replace(one.sample, controls=())) for one in (*quiet, lossy)]) == [BEST, "", ""]


def test_a_note_stands_for_the_marks_that_cells_have() -> None:
    frame = pd.DataFrame({"tokens_per_s": [f"2.0{UNRANKED}", "3.0"]})
    assert ties.note(frame) == (ties.BUSY_NOTE,)
    assert ties.note(pd.concat([frame, pd.DataFrame({"tokens_per_s": [f"4.0{BEST}"]})])) == (ties.NOTE, ties.BUSY_NOTE)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("name", ["smoke", "opt_tree/table1", "bench/mt_bench"])
def test_whether_times_are_too_noisy_is_one_decision(name: str, plain: bool, tmp_path) -> None:
    """One of four baselines is four times as slow, and half of the pairs far apart; with plain decoding's most are not.

    The marks, the sentence above the table, what it shows below and the verdicts say the same.
    """
    cells = Cells(tmp_path, name)
    for method, base_step_s in {"opt_tree": 0.004, "eagle_tree": 0.016, "binary": 0.004, "sequoia": 0.004}.items():
        cells.add(method, params={"n": 25}, speedup=1.5, base_step_s=base_step_s)
    if plain:
        cells.add("autoregressive", speedup=1.0)
    made = next(one for one in build(name, tmp_path) if isinstance(one, Table))
    marked = made.frame["speedup"].str.endswith((BEST, TIED)).any()
    assert marked == plain
    assert ("noisy" in f"{made.warning} {' '.join(made.findings)}") == (not marked)
    if made.long is not None and "verdict" in made.long:
        judged = made.long[made.long["metric"].map(lambda one: one.timed) & made.long["published"].notna()]
        assert judged["verdict"].str.contains("noisy").any() == (not marked)
