"""OPT-Tree's Tables 1 to 3: which sizes stand beside the paper's numbers, and which verdicts they have.

Values and intervals of the reference results are recomputed in test_recomputed_long.
"""

import pytest
from drawn import column, row_of, table_of, verdicts

from specdec_trees.artifacts.outputs import NoResultsError
from specdec_trees.papers.opt_tree.tables import dataset_table

REAL = {"published": {"target": "llama2_7b", "draft": "jf68m", "stand_in": False}, "pair": "llama2_7b_chat_jf68m"}
MAL, SPEED, SPEEDUP = "mal_as_published", "tokens_per_s_with_prefill", "speedup_with_prefill"
OTHER_TREE = "not comparable: other tree"


def judged(cells, metric: str = MAL) -> dict[str, str]:
    """The verdicts on the paper's numbers by method."""
    made = table_of("opt_tree/table1", cells)
    return verdicts(made, metric, best=True) | verdicts(made, metric, run_id="")


def test_table_1_has_the_papers_rows_and_marks_the_best_size(table1_cells) -> None:
    frame = table_of("opt_tree/table1", table1_cells).frame
    assert frame["label"].tolist() == ["autoregressive", "binary", "EAGLE's tree", *["OPT-Tree"] * 3]
    assert frame["size_words"].tolist() == ["0", "30", "25", "25", "50 (best)", "60"]
    assert frame[f"{MAL}_published"].tolist() == ["1.00", "2.12", "2.47", "–", "2.58", "–"]
    assert frame[f"{SPEEDUP}_published"].tolist() == ["1.00", "1.32", "1.49", "–", "1.69", "–"]


def test_the_best_size_has_the_largest_speedup_whatever_the_machine_did(cells) -> None:
    """The run with more tokens/s ran in a quicker minute, as its own autoregressive arm shows."""
    cells.add("opt_tree", params={"n": 25}, speedup=1.9)
    cells.add("opt_tree_n50", "opt_tree", params={"n": 50}, speedup=1.3, base_step_s=0.002)
    made = table_of("opt_tree/table1", cells)
    speeds = column(made, "tokens_per_s", who="size", method="opt_tree")
    assert speeds[25] < speeds[50]
    assert column(made, MAL, "published", who="size", method="opt_tree") == {25: 2.58, 50: None}


@pytest.mark.parametrize(("prefill_s", "verdict"), [(0.001, "differs"), (0.06, "matches")])
def test_the_published_speedup_is_judged_with_prefill(cells, prefill_s: float, verdict: str) -> None:
    """Twice as fast in decoding is 1.69 times as fast only if the time of the prefill counts in both arms."""
    options = REAL | {"device": "NVIDIA GeForce RTX 4090", "conversations": 40}
    cells.add("autoregressive", speedup=1.0, **options)
    cells.add("opt_tree", params={"n": 25}, mal=5.0, speedup=2.0, prefill_s=prefill_s, **options)
    assert judged(cells, SPEEDUP)["OPT-Tree"] == verdict


def test_the_published_mal_is_judged_as_its_script_counts(cells) -> None:
    """Of 3 steps a turn MAL is 2/3 of what the script makes of it."""
    options = REAL | {"steps": 3, "spread": False, "conversations": 600}
    for n, speedup in ((25, 1.5), (50, 1.1), (60, 1.0)):
        cells.add("opt_tree", params={"n": n}, mal=2.58 * 2 / 3, speedup=speedup, **options)
    made = table_of("opt_tree/table1", cells)
    assert column(made, "mal", best=True)["OPT-Tree"] < 1.9 < 2.4 < column(made, MAL, best=True)["OPT-Tree"]
    assert judged(cells)["OPT-Tree"] == "matches"


def test_a_stand_in_is_judged_by_order_on_its_best_sizes_alone(table1_cells) -> None:
    """Binary has 30 nodes here, the paper's 25, 50 or 60; plain decoding's speedup is 1 by definition."""
    words = {metric: judged(table1_cells, metric) for metric in (MAL, SPEED, SPEEDUP)}
    assert words[MAL] == {
        "autoregressive": "not comparable: 1 by definition",
        "binary": OTHER_TREE,
        **dict.fromkeys(("EAGLE's tree", "OPT-Tree"), "order holds"),
    }
    assert set(words[SPEED].values()) == {"order holds"}
    assert words[SPEEDUP] == words[SPEED] | {"autoregressive": "not comparable: 1 by definition"}
    assert not any(verdicts(table_of("opt_tree/table1", table1_cells), MAL, best=False).values())


def test_methods_that_were_not_run_and_runs_that_failed_are_rows(cells) -> None:
    cells.add("opt_tree", params={"n": 25})
    failed = cells.add("eagle25", "eagle_tree", status="oom")
    made = table_of("opt_tree/table1", cells)
    assert column(made, MAL, "published", run_id="") == {"autoregressive": 1.0, "binary": 2.12}
    words = judged(cells)
    assert words["binary"] == words["autoregressive"] == "not run"
    assert words["OPT-Tree"] == OTHER_TREE, "the paper's n may be 50 or 60"
    assert judged(cells, SPEEDUP)["OPT-Tree"] == "order holds", "over autoregressive decoding, 1 by definition"
    assert row_of(made, failed)[["mal", "speedup"]].tolist() == ["oom", "oom"]


def test_without_any_run_there_is_no_table(cells) -> None:
    with pytest.raises(NoResultsError):
        table_of("opt_tree/table1", cells)


@pytest.mark.parametrize(
    ("device", "conversations", "speedup", "words"),
    [
        ("NVIDIA GeForce RTX 4090", 40, 1.69, ("matches", "differs")),
        ("NVIDIA H200", 6, 5.0, ("order holds", "order holds")),
    ],
)
def test_a_real_pair_is_judged_by_value_and_times_of_another_device_by_order(
    device: str, conversations: int, speedup: float, words: tuple[str, str], cells
) -> None:
    options = REAL | {"device": device, "conversations": conversations}
    cells.add("autoregressive", speedup=1.0, **options)
    cells.add("opt_tree", params={"n": 25}, mal=5.0, speedup=speedup, **options)
    assert tuple(judged(cells, metric)["OPT-Tree"] for metric in (SPEEDUP, SPEED)) == words


def test_other_prompts_and_seeds_are_blocks_of_their_own(table1_cells) -> None:
    table1_cells.add("opt_tree", params={"n": 25}, conversations=3, seed=1)
    frame = table_of("opt_tree/table1", table1_cells).frame
    assert frame["target_words"].value_counts().tolist() == [6, 4]


@pytest.mark.parametrize("given", [{"dataset": "mini"}, {"published": None, "pair": "mine"}])
def test_what_no_paper_has_stands_without_its_numbers(given: dict, cells) -> None:
    cells.add("opt_tree", **given)
    assert list(column(table_of("opt_tree/table1", cells), MAL, "published").values()) == [None]


def test_table_3_takes_temperature_1_and_the_papers_rows(cells) -> None:
    cells.add("opt_tree", params={"n": 50}, temperature=1.0)
    cells.add("eagle25", "eagle_tree", temperature=1.0)
    assert column(table_of("opt_tree/table3", cells), MAL, "published") == {"OPT-Tree": 2.72, "EAGLE's tree": None}


def test_one_conversation_has_no_interval(cells) -> None:
    cells.add("eagle25", "eagle_tree", conversations=1)
    assert judged(cells)["EAGLE's tree"] == "not comparable: no interval"


def test_mal_is_judged_where_every_size_the_paper_may_have_chosen_gives_the_same_verdict(cells) -> None:
    """The paper has OPT-Tree's 2.58 ahead of EAGLE's 2.47 at an n of 25, 50 or 60."""
    cells.add("eagle25", "eagle_tree", mal=3.0)
    for n, mal in ((25, 3.6), (50, 4.0)):
        cells.add("opt_tree", params={"n": n}, mal=mal, speedup=2 - n / 100)
    assert judged(cells)["OPT-Tree"] == OTHER_TREE, "60 was not run"
    assert judged(cells)["EAGLE's tree"] == "not comparable: other models", "nothing to set it against"
    cells.add("opt_tree", params={"n": 60}, mal=4.4)
    assert judged(cells)["OPT-Tree"] == judged(cells)["EAGLE's tree"] == "order holds (uncorrected)"
    cells.add("opt_tree", params={"n": 90}, mal=4.6, speedup=3.0)
    assert judged(cells)["OPT-Tree"] == OTHER_TREE, "the fastest is none of the paper's"


def test_sizes_that_disagree_leave_mal_without_a_verdict(cells) -> None:
    cells.add("eagle25", "eagle_tree", mal=3.0)
    for n, mal in ((25, 2.2), (50, 3.6), (60, 4.4)):
        cells.add("opt_tree", params={"n": n}, mal=mal, speedup=1 + n / 100)
    assert judged(cells)["OPT-Tree"] == judged(cells)["EAGLE's tree"] == OTHER_TREE


@pytest.mark.parametrize(("dataset", "published"), [("mt_bench", 2.58), ("gsm8k", 2.78), ("c4", None)])
def test_dataset_table_finds_the_papers_numbers_for_its_setting(cells, dataset: str, published: float | None) -> None:
    """MAL is shown as the paper counts it, if it has a number."""
    cells.add("opt_tree", dataset=dataset)
    (made,) = dataset_table(dataset, cells.load())
    assert column(made, MAL, "published")["OPT-Tree"] == published
    assert {MAL, "mal"} & set(made.main) == {MAL if published else "mal"}
