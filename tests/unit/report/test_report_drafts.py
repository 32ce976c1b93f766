"""`bench/drafts` against plain means: rows by draft and method, columns by budget, the whole target in every panel."""

import pytest
from drawn import axes_of, labels, lines, mal_of, table_of

from specdec_trees.papers.beyond.drafts import NO_DRAFT, PART, WHOLE

NAME = "bench/drafts"
ITSELF = {"kind": "layer_skip", "skipped_layers": []}
SIZES = (8, 32)
DRAFTS = {"Head A": None, "Model B": None, PART: ITSELF | {"skipped_layers": [3]}}


def add(cells, method: str, n: int, **given) -> str:
    return cells.add(f"sized_{method}", method, params={"n": n}, conversations=8, **given)


def fill(cells) -> dict[tuple[str, str, int], str]:
    """Two methods of three drafts, one without a draft that all pairs were run with, and the whole target."""
    cells.experiment, runs = NAME, {}
    for place, (draft, config) in enumerate(DRAFTS.items()):
        pair = {"pair": f"pair{place}", "draft_id": draft, "draft": config}
        for n in SIZES:
            for method in ("opt_tree", "eagle2"):
                mal = 1.5 + place / 2 + n / 50 + (method == "opt_tree") / 4
                runs[draft, method, n] = add(cells, method, n, mal=mal, **pair)
            runs.setdefault((NO_DRAFT, "suffix_decoding", n), add(cells, "suffix_decoding", n, depth=0, **pair))
    for n in SIZES:
        whole = {"pair": "whole", "draft_id": "tiny/target", "draft": ITSELF}
        runs[WHOLE, "best_first", n] = add(cells, "best_first", n, mal=5 + n / 20, **whole)
    return runs


def test_each_draft_and_method_has_a_row_and_each_budget_a_column(cells):
    runs, table = fill(cells), table_of(NAME, cells)
    long = table.long
    assert sorted(" ".join(table.runs).split()) == sorted(runs.values())
    values = {(row.drafted_by, row.method, row.metric.key): row.value for row in long.itertuples()}
    steps = cells.load().steps.groupby("run_id")
    expected = {}
    for (draft, method, n), run_id in runs.items():
        expected[draft, method, f"mal_{n}"] = pytest.approx(mal_of(cells, run_id))
        expected[draft, method, "forwards"] = pytest.approx(steps.get_group(run_id)["draft_forwards"].mean())
    assert values == expected


def test_the_best_of_a_budget_is_marked_and_never_the_whole_target(cells):
    fill(cells)
    long = table_of(NAME, cells).long
    marked = long[long["mark"] != ""]
    assert {*marked["metric"].map(lambda metric: metric.key)} == {f"mal_{n}" for n in SIZES}
    assert WHOLE not in {*marked["drafted_by"]}
    others = long[(long["drafted_by"] != WHOLE) & long["metric"].map(lambda metric: metric.ranked)]
    for _, rows in others.groupby(others["metric"].map(lambda metric: metric.key)):
        assert rows.loc[rows["value"].astype(float).idxmax(), "mark"]


def test_every_draft_has_a_panel_with_its_methods_and_the_bound(cells):
    runs, panels = fill(cells), [axes for axes in axes_of(NAME, cells) if axes.get_title()]
    assert len(panels) == len(DRAFTS) + 1
    whole = [mal_of(cells, runs[WHOLE, "best_first", n]) for n in SIZES]
    for axes in panels:
        curves = [[y for _, y in points] for points in lines(axes)]
        assert whole in [pytest.approx(curve) for curve in curves]
        assert len(curves) == len(labels(axes)) == (2 if NO_DRAFT in axes.get_title() else 3)


def test_without_the_bound_there_are_drafts_alone(cells):
    cells.experiment = NAME
    for n in SIZES:
        add(cells, "opt_tree", n, draft_id="Head A")
    (axes,) = (axes for axes in axes_of(NAME, cells) if axes.get_title())
    assert len(lines(axes)) == 1
    assert {*table_of(NAME, cells).long["drafted_by"]} == {"Head A"}


def test_other_methods_of_the_whole_target_are_rows_and_a_panel_of_their_own(cells):
    runs = fill(cells)
    for n in SIZES:
        add(cells, "chain", n, mal=8, pair="whole", draft_id="tiny/target", draft=ITSELF)
    panels = [axes for axes in axes_of(NAME, cells) if axes.get_title()]
    assert len(panels) == len(DRAFTS) + 2
    whole = [mal_of(cells, runs[WHOLE, "best_first", n]) for n in SIZES]
    for axes in panels:
        of_whole = [points for points in lines(axes) if [y for _, y in points] == pytest.approx(whole)]
        assert len(of_whole) == 1
    rows = {(row.drafted_by, row.method) for row in table_of(NAME, cells).long.itertuples()}
    assert {(WHOLE, "chain"), (WHOLE, "best_first")} <= rows


def test_two_pairs_of_one_draft_are_told_apart_and_none_is_dropped(cells):
    cells.experiment = NAME
    runs = [add(cells, "opt_tree", n, pair=pair, draft_id="Head A") for n in SIZES for pair in ("one", "two")]
    table = table_of(NAME, cells)
    assert sorted(" ".join(table.runs).split()) == sorted(runs)
    assert {*table.long["drafted_by"]} == {"Head A (one)", "Head A (two)"}


def test_settings_that_are_not_alike_say_in_what(cells):
    """Other prompts: each has its own best, and a column says what is not alike."""
    cells.experiment = NAME
    for pair, conversations in (("one", 8), ("two", 10)):
        for n in SIZES:
            cells.add(
                "sized_opt_tree", "opt_tree", params={"n": n}, conversations=conversations, pair=pair, draft_id=pair
            )
    table = table_of(NAME, cells)
    assert {*table.long["apart"]} == {"prompts_sha256 8", "prompts_sha256 10"}
    assert "apart" in table.frame
    assert [axes.get_title() for axes in axes_of(NAME, cells)][:2] == ["one prompts_sha256 8", "two prompts_sha256 10"]


def test_a_budget_that_a_method_was_not_run_with_is_empty(cells):
    cells.experiment = NAME
    for n in SIZES:
        add(cells, "opt_tree", n, draft_id="Head A")
    add(cells, "eagle2", SIZES[0], draft_id="Head A")
    values = {(row.method, row.metric.key): row.value for row in table_of(NAME, cells).long.itertuples()}
    assert values["eagle2", "mal_32"] is None
    assert values["eagle2", "mal_8"] is not None
