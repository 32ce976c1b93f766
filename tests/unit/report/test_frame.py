"""The long frame: who stands in which block, what is beside a value, and who is marked and judged among whom."""

from __future__ import annotations

import pandas as pd
from conftest import Cells

from specdec_trees.artifacts import frame, metrics, verdict
from specdec_trees.artifacts.table import table

PAPER = {"target": "llama2_7b", "draft": "jf68m", "hardware": "1x RTX 4090"}


def long_of(cells: Cells, published: dict[str, float], on: str = "drafter") -> pd.DataFrame:
    """MAL of all runs, beside it what a paper has by the name in a column."""
    paper = pd.DataFrame([PAPER | {on: name, "metric": "length", "value": value} for name, value in published.items()])
    long = frame.measure(frame.load(cells.load()), [metrics.MAL])
    return frame.beside(long, paper, ["target", "draft", on], {"mal": "length"})


def test_a_failed_run_stands_in_every_block_of_its_setting(cells: Cells) -> None:
    for name in ("dyspec", "sequoia"):
        cells.add(name, device="one")
    cells.add("dyspec", device="other")
    lost, alone = cells.add("opt_tree", status="oom"), cells.add("opt_tree", status="failed", seed=1)
    runs = frame.load(cells.load())
    assert runs.groupby("block")["run_id"].agg(list).map(lambda ids: lost in ids).tolist() == [True, True, False]
    assert runs.loc[runs["run_id"] == alone, "block"].tolist() == [2]
    assert runs["setting"].nunique() == 3


def test_a_published_number_stands_beside_its_own_row_in_our_unit(cells: Cells) -> None:
    for name in ("dyspec", "sequoia", "chain4"):
        cells.add(name)
    long = long_of(cells, {"dyspec": 3.0, "sequoia": 2.0, "eagle": 9.0})
    assert long.set_index("drafter")["published"].to_dict() == {"dyspec": 3.0, "sequoia": 2.0, "chain4": None}


def test_an_order_is_judged_among_the_rows_of_a_block(cells: Cells) -> None:
    cells.add("dyspec", mal=4.0, conversations=12)
    cells.add("sequoia", mal=2.0, conversations=12)
    cells.add("dyspec", mal=1.5, conversations=12, seed=1)
    long = frame.judge(long_of(cells, {"dyspec": 3.0, "sequoia": 2.0}), "drafter")
    assert long["verdict"].tolist() == ["order holds", "order holds", "not comparable: other models"]
    reverse = frame.judge(long_of(cells, {"dyspec": 2.0, "sequoia": 3.0}), "drafter")
    assert [verdict.word(words) for words in reverse["verdict"]][:2] == ["differs", "differs"]


def test_rows_of_one_published_number_are_no_order_of_each_other(cells: Cells) -> None:
    cells.add("dyspec", "twin", mal=4.0, conversations=12)
    cells.add("sequoia", "twin", mal=2.0, conversations=12)
    long = frame.judge(long_of(cells, {"twin": 3.0}, "method"), "drafter")
    assert set(long["verdict"]) == {"not comparable: other models"}


def test_a_reason_stands_for_a_verdict_and_what_is_alone_counts_for_no_other(cells: Cells) -> None:
    cells.add("dyspec", mal=2.0, conversations=12)
    cells.add("sequoia", mal=4.0, conversations=12)
    long = long_of(cells, {"dyspec": 3.0, "sequoia": 2.0})
    why = frame.judge(frame.put(long, why=["", "other tree"], alone=[False, True]), "drafter")
    assert why["verdict"].tolist() == ["not comparable: other models", "not comparable: other tree"]


def test_the_best_is_marked_among_its_like(cells: Cells) -> None:
    for name, mal in (("dyspec", 4.0), ("sequoia", 2.0)):
        for seed in (0, 1):
            cells.add(name, mal=mal + seed, conversations=12, seed=seed)
    long = frame.measure(frame.load(cells.load()), [metrics.MAL, metrics.LOSSLESS])
    marked = frame.rank(long)
    assert marked.loc[marked["mark"] == " *", "drafter"].tolist() == ["dyspec", "dyspec"]
    one = frame.rank(long, ["drafter"], only=long["seed"] == 0)
    assert set(one["mark"]) == {""}


def test_a_table_has_a_line_for_each_run_and_a_verdict_where_there_is_one(cells: Cells) -> None:
    ids = [cells.add(name, mal=mal, conversations=12) for name, mal in (("dyspec", 4.0), ("sequoia", 2.0))]
    ids.append(cells.add("chain4", status="oom"))
    long = frame.rank(frame.judge(long_of(cells, {"dyspec": 3.0, "sequoia": 2.0, "chain4": 1.0}), "drafter"))
    speeds = frame.measure(frame.load(cells.load()), [metrics.SPEEDUP, metrics.LOSSLESS])
    made = table(
        "name",
        "Title",
        pd.concat([long, frame.put(speeds, published=[None] * len(speeds), mark=[""] * len(speeds))])
        .fillna({"verdict": ""})
        .reset_index(drop=True),
        ["drafter"],
        [metrics.MAL, metrics.SPEEDUP, metrics.LOSSLESS],
        aside=["lossless"],
    )
    assert made.runs == tuple(ids)
    main, details = ["drafter", "mal", "mal_published", "speedup", "mal_verdict"], ["drafter", "lossless"]
    assert ([*made.main], [*made.details]) == (main, details)
    assert made.frame["mal_verdict"].tolist() == ["order holds", "order holds", ""]
    assert made.frame["mal"].str[:4].tolist()[:2] == [f"{value:.2f}" for value in long["value"][:2]]
    assert made.frame.loc[2, ["mal", "speedup", "lossless"]].tolist() == ["oom", "oom", "–"]
