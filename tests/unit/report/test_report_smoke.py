"""The marks of the smoke table: MAL among trees of one size, times among all."""

from bench.artifacts import ties
from bench.artifacts.ties import BEST
from bench.papers.beyond import smoke


def opt_tree(cells, drafter: str, size: int, mal: float, **given) -> None:
    cells.add(drafter, "opt_tree", params={"n": size, "delta": 0.2}, dataset="mini", mal=mal, conversations=8, **given)


def marks(cells, column: str) -> dict[str, str]:
    frame = smoke.smoke_table(cells.load()).frame.set_index("Drafter")
    return {drafter: cell[cell.index("]") + 1 :] for drafter, cell in frame[column].items()}


def test_a_large_tree_is_not_the_best_by_what_it_accepts(cells) -> None:
    opt_tree(cells, "small", 25, 2.0, speedup=1.5)
    opt_tree(cells, "small_better", 25, 4.0, speedup=1.5)
    opt_tree(cells, "large", 127, 6.0, speedup=0.5)
    assert marks(cells, "MAL") == {
        "OPT-Tree, n = 25 (small)": "",
        "OPT-Tree, n = 25 (small_better)": BEST,
        "OPT-Tree, n = 127": "",
    }
    assert BEST not in {marks(cells, column)["OPT-Tree, n = 127"] for column in ("tokens/s", "speedup")}
    table = smoke.smoke_table(cells.load())
    assert {ties.NOTE, smoke.EVEN} <= set(table.notes)


def test_times_are_marked_among_all_sizes(cells) -> None:
    for size, speedup in ((4, 3.0), (25, 1.0), (127, 0.3)):
        opt_tree(cells, f"n{size}", size, 3.0, speedup=speedup)
    assert set(marks(cells, "MAL").values()) == {""}
    assert [drafter for drafter, mark in marks(cells, "speedup").items() if mark == BEST] == ["OPT-Tree, n = 4"]


def test_a_table_without_marks_does_not_explain_them(cells) -> None:
    opt_tree(cells, "alone", 25, 3.0)
    assert not {ties.NOTE, smoke.EVEN} & set(smoke.smoke_table(cells.load()).notes)


def test_tokens_per_second_stand_beside_those_of_the_runs_own_autoregressive_arm(cells) -> None:
    """A speedup of 1.09 beside 333 and 322 tokens/s is of two speeds of one run, both of which are printed."""
    opt_tree(cells, "quick_minute", 25, 3.0, speedup=1.2, base_step_s=0.002)
    opt_tree(cells, "slow_minute", 50, 3.0, speedup=1.4)
    frame = smoke.smoke_table(cells.load()).frame
    for _, row in frame.iterrows():
        own, plain, gain = (
            float(row[name].split(" ")[0]) for name in ("tokens/s", "tokens/s autoregressive", "speedup")
        )
        assert abs(own / plain - gain) < 0.01
