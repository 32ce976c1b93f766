"""Sequoia's Tables 3 to 7 and DySpec's 1 to 4: which run stands for which method, and which published number beside it.

Values and intervals of the reference results are recomputed in test_recomputed_long.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from dyspec_fills import SAMPLING, THRESHOLD, P, fill_large, fill_small, resize

from specdec_trees import published
from specdec_trees.artifacts.outputs import NoResultsError, write_all
from specdec_trees.artifacts.tables import Table
from specdec_trees.artifacts.ties import UNRANKED
from specdec_trees.artifacts.verdict import word
from specdec_trees.papers import dyspec, sequoia
from specdec_trees.papers.dyspec.tables import RATIOS
from specdec_trees.papers.registry import ARTIFACTS
from specdec_trees.published import params_of

NAMES = [f"sequoia/{name}" for name in ("table3", "table4", "table5", "table6", "table7")]
NAMES += [f"dyspec/{name}" for name in dyspec.ARMS]
REAL = {"target": "llama2_7b", "draft": "jf68m", "stand_in": False}
LARGE = {"target": "llama2_70b", "draft": "llama2_7b", "stand_in": False}
CHIP = {"dataset": "c4", "published": REAL, "device": "NVIDIA A100", "conversations": 12}
"""Sequoia's Table 4 has (128, 10) here: tokens per step 5.08; of SpecInfer's trees 3.96 and 4.11."""
EXACT = CHIP | {"conversations": 120}
"""So many that an interval lies within 5% of a published value."""
RATIO = [metric.key for metric in RATIOS.values()]


def table(name: str, cells) -> Table:
    (only,) = ARTIFACTS[name].build(name.partition("/")[2], cells.load())
    assert isinstance(only, Table)
    assert only.long is not None
    return only


def column(made: Table, key: str, name: str = "value", **where: object) -> dict[str, Any]:
    """Of a metric by method: the value, the published number, the verdict; of rows that have this."""
    rows = made.long[made.long["metric"].map(lambda metric: metric.key) == key]
    for header, wanted in where.items():
        rows = rows[rows[header] == wanted]
    return dict(zip(rows["label"], rows[name], strict=True))


def verdicts(made: Table, key: str) -> dict[str, str]:
    return {label: str(words) for label, words in column(made, key, "verdict").items()}


@pytest.mark.parametrize(("name", "tree"), [("sequoia/table4", (128, 10)), ("sequoia/table7", (64, 10))])
def test_the_papers_numbers_stand_beside_ours(name: str, tree: tuple[int, int], cells) -> None:
    options = {"pair": "llama2_7b_jf68m", "published": REAL, "dataset": "c4", "device": "NVIDIA A100"}
    run_id = cells.add("sequoia", params={"n": 127}, depth=9, **options)
    failed = cells.add("spec_infer_5x8", "spec_infer", status="oom", **options)
    made = table(name, cells)
    rows = published.find("sequoia", name.partition("/")[2], target="llama2_7b", draft="jf68m", dataset="c4")
    rows = rows[rows["temperature"] == 0]
    for key, metric in (("mal", "tokens_per_step"), ("speedup", "speedup")):
        ours = column(made, key, "published")
        for label, method, shape in (
            ("Sequoia", "sequoia", None),
            ("SpecInfer 5x8", "specinfer", "5x8"),
            ("SpecInfer 8x8", "specinfer", "8x8"),
        ):
            of_method = rows[(rows["method"] == method) & (rows["metric"] == metric)]
            (value,) = (
                one.value for one in of_method.itertuples() if shape is None or params_of(one.params)["shape"] == shape
            )
            assert ours[label] == value
    assert (column(made, "nodes")["Sequoia"], column(made, "levels")["Sequoia"]) == (128, 10)
    assert (column(made, "nodes", "published")["Sequoia"], column(made, "levels", "published")["Sequoia"]) == tree
    assert [*made.runs] == [run_id, run_id if tree == (128, 10) else "", failed, ""]
    assert made.frame.set_index("label")["speedup"].tolist()[2:] == ["oom", "–"]
    assert verdicts(made, "speedup")["SpecInfer 5x8"] == verdicts(made, "speedup")["SpecInfer 8x8"] == "not run"


def test_tokens_per_step_are_judged_on_the_printed_tree_and_speedup_on_the_chosen_one(cells) -> None:
    options = CHIP | {"pair": "tiny", "published": REAL | {"stand_in": True}}
    cells.add("sequoia_hardware", params={"n": 7, "depth": 3}, depth=3, mal=2.0, speedup=3.0, **options)
    for shape, mal, speedup in (("5x8", 2.9, 1.5), ("8x8", 3.4, 2.2)):
        cells.add(f"spec_infer_{shape}", "spec_infer", mal=mal, speedup=speedup, **options)
    made = table("sequoia/table4", cells)
    others = dict.fromkeys(("SpecInfer 5x8", "SpecInfer 8x8"), "order holds")  # set against each other alone
    printed = {"Sequoia, printed size": "not run"}
    assert verdicts(made, "mal") == {"Sequoia": "not comparable: other tree"} | printed | others
    assert verdicts(made, "speedup") == {"Sequoia": "order holds"} | printed | others
    cells.add("sequoia_printed", params={"n": 127, "depth": 9}, depth=9, mal=2.4, speedup=1.0, **options)
    judged = {name: word(words) for name, words in verdicts(table("sequoia/table4", cells), "mal").items()}
    assert judged == {
        "Sequoia": "not comparable: other tree",
        "Sequoia, printed size": "differs",  # of fewer tokens than SpecInfer's trees, not of more
        "SpecInfer 5x8": "differs",
        "SpecInfer 8x8": "differs",
    }


def test_the_printed_tree_of_the_papers_pair_is_judged_by_value(cells) -> None:
    cells.add("sequoia_hardware", params={"n": 63, "depth": 6}, depth=6, mal=4.0, speedup=4.04, **EXACT)
    cells.add("sequoia_printed", params={"n": 127, "depth": 9}, depth=9, mal=5.08, speedup=1.0, **EXACT)
    made = table("sequoia/table4", cells)
    mal, speedup = (verdicts(made, key) for key in ("mal", "speedup"))
    assert (mal["Sequoia"], speedup["Sequoia"]) == ("not comparable: other tree", "matches")
    assert (mal["Sequoia, printed size"], speedup["Sequoia, printed size"]) == (
        "matches",
        "not comparable: no published value",
    )
    assert column(made, "mal", "published")["Sequoia, printed size"] == 5.08


@pytest.mark.parametrize(("depth", "expected"), [(9, "matches"), (8, "not comparable: other tree")])
def test_an_optimiser_that_finds_the_printed_tree_is_judged_on_it(depth: int, expected: str, cells) -> None:
    run_id = cells.add("sequoia_hardware", params={"n": 127}, depth=depth, mal=5.08, **EXACT)
    made = table("sequoia/table4", cells)
    mal = verdicts(made, "mal")
    assert mal["Sequoia"] == expected
    assert mal["Sequoia, printed size"] == (expected if depth == 9 else "not run")
    assert made.run_ids == {run_id}
    assert set(made.long["mark"]) == {""}, "a run does not tie with itself"


def test_table_3_tells_sizes_apart_and_not_which_tree_was_chosen(cells) -> None:
    options = {"pair": "llama2_7b_jf68m", "dataset": "cnn_dm", "speedup": 1.0, **SAMPLING}
    sizes = {
        n: cells.add("sized_sequoia", "sequoia", params={"n": n - 1}, mal=mal, **options)
        for n, mal in ((64, 2.0), (128, 2.6), (256, 3.2))
    }
    chosen = cells.add("sequoia_hardware", params={"n": 99}, **options | {"predicted_speedup": 1.75})
    made = table("sequoia/table3", cells)
    assert list(made.runs) == [chosen, sizes[128], sizes[256]]
    assert list(column(made, "nodes").values()) == [100, 128, 256]
    assert column(made, "predicted_speedup") == {"hardware-aware": 1.75, "N=128": None, "N=256": None}
    mal = verdicts(made, "mal")
    assert mal == {"hardware-aware": "not comparable: other tree", "N=128": "order holds", "N=256": "order holds"}


def test_a_setting_that_the_paper_has_not_is_a_row_without_its_numbers(cells) -> None:
    cells.add("sequoia", params={"n": 127}, published=REAL, dataset="mt_bench")
    made = table("sequoia/table4", cells)
    assert made.long["published"].isna().all()
    assert not made.long["verdict"].any()


def test_of_several_runs_the_last_that_ended_well_counts_not_the_fastest(cells) -> None:
    cells.add("sequoia", params={"n": 127}, speedup=3.0, **SAMPLING)
    for n, speedup, status in ((31, 3.0, "ok"), (15, 1.0, "oom")):
        cells.add("sequoia_hardware", params={"n": n}, speedup=speedup, status=status, **SAMPLING)
    last = cells.add("sequoia_hardware", params={"n": 63}, speedup=1.5, **SAMPLING)
    cells.add("sequoia_hardware", params={"n": 7}, status="failed", **SAMPLING)
    assert table("sequoia/table4", cells).runs[0] == last


def test_table_6_has_a_row_per_rule_and_top_p(cells) -> None:
    options = {"params": {"n": 127}, "dataset": "cnn_dm", "temperature": 1.0}
    rules = {"without_replacement": "Sequoia", "spec_infer": "SpecInfer", "target_sample": "top-k"}
    runs = {
        (top_p, label): cells.add("sequoia", verifier=rule, top_p=top_p, **options)
        for top_p in (0.9, 1.0)
        for rule, label in rules.items()
    }
    made = table("sequoia/table6", cells)
    for top_p, numbers in ((0.9, None), (1.0, [2.69, 2.55, 2.12])):
        assert column(made, "mal", "run_id", top_p=top_p) == {label: runs[top_p, label] for label in rules.values()}
        printed = list(column(made, "speedup", "published", top_p=top_p).values())
        assert printed == numbers if numbers else None not in printed
    run_id = cells.add("sequoia", verifier="k_seq", **options)  # in no table of the paper
    assert column(table("sequoia/table6", cells), "mal", "run_id", top_p=1.0)["SpecTr"] == run_id


@pytest.mark.few(2)
@pytest.mark.parametrize("name", NAMES)
def test_one_conversation_or_none_is_no_crash(name: str, cells, tmp_path) -> None:
    with pytest.raises(NoResultsError):
        table(name, cells)
    for drafter in ("sequoia", "sequoia_hardware", "dyspec", "dyspec_threshold"):
        cells.add(drafter, params={"n": 127}, conversations=1, predicted_mal=float("nan"))
    made = table(name, cells)
    assert len(write_all([made], tmp_path)) == 4
    assert not made.frame.map(lambda cell: "nan" in cell or "None" in cell).to_numpy().any()


def fill(cells, *sizes: int, **given: Any) -> list[str]:
    """DySpec, Sequoia and SpecInfer with so many nodes, of which the last draws sequences of 8."""
    options = SAMPLING | {"pair": "llama2_7b_jf68m", "published": REAL, "dataset": "gsm8k"} | given
    shape = {"shape": {"num_sequences": sizes[2] // 8, "depth": 8}}
    return [
        cells.add("dyspec", params={"n": sizes[0]}, **options),
        cells.add("sized_sequoia", "sequoia", params={"n": sizes[1]}, **options),
        cells.add("spec_infer_8x8", "spec_infer", params=shape, size=sizes[2], **options),
    ]


@pytest.mark.parametrize(
    ("sizes", "off"), [((64, 64, 64), ()), ((8, 64, 64), (0,)), ((64, 64, 32), (2,)), ((8, 8, 8), (0, 1, 2))]
)
def test_the_papers_numbers_stand_beside_its_budget_alone(sizes, off, cells) -> None:
    fill(cells, *sizes)
    made = table("dyspec/table1", cells)
    assert list(column(made, "budget").values()) == list(sizes)
    for key in ("mal", "speedup"):
        numbers, words = column(made, key, "published"), verdicts(made, key)
        for place, label in enumerate(numbers):
            assert (numbers[label] is None) == (place in off)
            assert (words[label] in ("", f"not comparable: other budget ({sizes[place]})")) == (place in off)


@pytest.mark.parametrize("name", dyspec.ARMS)
def test_the_budgets_are_those_of_the_published_rows(name: str) -> None:
    sizes = {size for text in published.find("dyspec", name)["params"] if (size := params_of(text).get("size"))}
    assert sizes == {str(arm.budget) for arm in dyspec.ARMS[name]}


def test_a_method_of_another_budget_takes_no_part_in_the_order(cells) -> None:
    """Sequoia's order is judged against plain decoding alone, however far DySpec's small tree falls behind it."""
    options = SAMPLING | {"pair": "llama2_7b_jf68m", "published": REAL, "dataset": "gsm8k", "speedup": 2.0}
    cells.add("sized_sequoia", "sequoia", params={"n": 64}, mal=4.0, **options)
    cells.add("dyspec", params={"n": 8}, mal=2.0, **options | {"speedup": 1.1})
    assert verdicts(table("dyspec/table1", cells), "speedup")["Sequoia"] == "order holds"


def test_of_several_runs_the_one_with_the_papers_budget_goes_first(cells) -> None:
    kept = fill(cells, 64, 64, 64)
    fill(cells, 8, 16, 24)
    cells.add("dyspec", params={"n": 64, "max_depth": 4}, status="oom", **SAMPLING)
    assert list(table("dyspec/table1", cells).runs)[:3] == kept


def test_rows_of_one_published_number_are_no_order_of_each_other(cells) -> None:
    """Layers and a call per node draw the same trees: how they lie apart says nothing of the paper."""
    options = {"dataset": "c4", "conversations": 8, "size": 64, "published": REAL | {"stand_in": True}}
    for drafter, mal in (("dyspec", 4.0), ("dyspec_heap", 5.0)):
        cells.add(drafter, params={"n": 64}, mal=mal, **options)
    cells.add("sized_sequoia", "sequoia", params={"n": 64, "acceptance": P}, mal=2.0, **options)
    words = verdicts(table("dyspec/table1", cells), "mal")
    assert words["DySpec"] == words["DySpec, a call per node"] == "order holds"


def test_a_threshold_tree_is_no_arm_of_the_small_tables(cells) -> None:
    cells.add("dyspec_threshold", params={"n": 64})
    cells.add("sized_sequoia", "sequoia", params={"n": 64})
    assert column(table("dyspec/table1", cells), "mal")["DySpec"] is None


def test_a_stand_in_stands_for_the_models_of_each_table(cells) -> None:
    fill_small(cells, dataset="c4", temperature=0.0)
    for name, target, speedup in (("table1", "llama2_7b", 3.15), ("table3", "llama2_70b", 9.42)):
        made = table(f"dyspec/{name}", cells)
        assert set(made.long["target"]) == {target}
        assert column(made, "speedup", "published")["DySpec"] == speedup


@pytest.mark.parametrize(("ours", "other", "ahead"), [(4.0, 2.0, "DySpec"), (2.0, 4.0, "Sequoia"), (3.0, 3.0, None)])
def test_a_lead_is_the_ratio_of_two_runs_in_pairs(ours: float, other: float, ahead: str | None, cells) -> None:
    cells.add("dyspec", params={"n": 64}, mal=ours, speedup=ours / 2)
    cells.add("sized_sequoia", "sequoia", params={"n": 64, "acceptance": P}, mal=other, speedup=other / 2)
    made = table("dyspec/table1", cells)
    for key, ratio in zip(("mal", "speedup"), RATIO, strict=True):
        values, ratios = column(made, key), column(made, ratio)
        assert ratios["DySpec"] is None
        assert ratios["Sequoia"] == pytest.approx(values["DySpec"] / values["Sequoia"])
        if ahead:
            assert column(made, ratio, "ahead")["Sequoia"] == ahead


def test_the_published_lead_is_of_the_two_printed_numbers(cells) -> None:
    fill_small(cells, dataset="openwebtext", temperature=0.0, pair="llama2_7b_jf68m", published=REAL)
    made = table("dyspec/table1", cells)
    assert column(made, RATIO[0], "published")["Sequoia"] == pytest.approx(3.79 / 3.81)
    assert column(made, RATIO[0], "published")["SpecInfer"] == pytest.approx(3.79 / 2.54)
    assert column(made, RATIO[1], "published")["Sequoia"] == pytest.approx(2.28 / 2.19)
    assert column(made, RATIO[0], "published")["DySpec"] is None


def test_of_times_that_are_too_noisy_none_is_ahead(cells) -> None:
    """The autoregressive arm of one run of c4 took four times as long; those of cnn_dm took as long as each other."""
    for dataset, slow in (("c4", 0.016), ("cnn_dm", 0.004)):
        options = {"dataset": dataset, "temperature": 0.6}
        cells.add("dyspec", params={"n": 64}, mal=4.0, speedup=2.0, **options)
        cells.add("sized_sequoia", "sequoia", params={"n": 64}, mal=2.0, base_step_s=slow, **options)
    made = table("dyspec/table1", cells)
    ahead = {name: column(made, RATIO[1], "ahead", dataset=name)["Sequoia"] for name in ("c4", "cnn_dm")}
    assert ahead == {"c4": UNRANKED, "cnn_dm": "DySpec"}
    assert column(made, RATIO[0], "ahead", dataset="c4")["Sequoia"] == "DySpec", "MAL knows no time"
    marks = {name: column(made, "speedup", "mark", dataset=name)["Sequoia"] for name in ahead}
    assert marks == {"c4": UNRANKED, "cnn_dm": ""}


def test_of_uneven_budgets_and_of_one_conversation_none_is_ahead(cells) -> None:
    fill(cells, 8, 64, 64, dataset="c4")
    fill(cells, 8, 8, 8, dataset="gsm8k")
    fill(cells, 64, 64, 64, dataset="cnn_dm", conversations=1)
    made = table("dyspec/table1", cells)
    for ratio in RATIO:
        uneven, even, alone = (
            column(made, ratio, "ahead", dataset=name)["Sequoia"] for name in ("c4", "gsm8k", "cnn_dm")
        )
        assert (uneven, alone) == ("budgets differ", "no interval")
        assert even in ("DySpec", "Sequoia", "neither", UNRANKED)
        assert column(made, ratio, "published", dataset="gsm8k")["Sequoia"] is None


def test_what_was_not_run_is_absent_and_what_failed_is_said(cells) -> None:
    run_id = cells.add("dyspec", params={"n": 64}, mal=3.0)
    failed = cells.add("spec_infer_8x8", "spec_infer", status="oom", lossless=False)
    made = table("dyspec/table1", cells)
    frame = made.frame.set_index("label")
    assert list(made.runs) == [run_id, "", failed]
    assert frame.loc[["Sequoia", "SpecInfer"], "speedup"].tolist() == ["–", "oom"]
    assert frame.loc[["Sequoia", "SpecInfer"], ["lossless", "mal_ratio"]].stack().eq("–").all()
    assert set(verdicts(made, "mal").values()) - {"not run"} == {verdicts(made, "mal")["DySpec"]}


def test_table_4_has_seconds_and_speedups_of_times_on_one_device(cells) -> None:
    fill_large(cells, pair="offloaded", published=LARGE)
    made = table("dyspec/table4", cells)
    assert list(column(made, "s_per_token", "published").values()) == [0.87648, 0.65835, 1.02]
    assert set(column(made, "autoregressive_s_per_token", "published").values()) == {5.2928}
    speedups = column(made, "speedup", "published")
    assert speedups["DySpec"] == pytest.approx(5.2928 / 0.87648)
    assert speedups["SpecInfer"] is None  # its seconds are of another device
    shares = column(made, "speedup"), column(made, "s_per_token"), column(made, "autoregressive_s_per_token")
    for label in speedups:
        speedup, own, plain = (one[label] for one in shares)
        assert speedup == pytest.approx(plain / own)


def test_a_tree_that_its_cap_ends_is_told_from_one_that_its_threshold_ends(cells) -> None:
    runs = fill_large(cells)
    assert column(table("dyspec/table4", cells), "at_cap") == {"DySpec": 1.0, "Sequoia": None, "SpecInfer": None}
    resize(cells, runs["dyspec"], THRESHOLD["n"] - 1)
    steps = len(cells.store.read("steps", [runs["dyspec"]]))
    assert column(table("dyspec/table4", cells), "at_cap")["DySpec"] == pytest.approx((steps - 1) / steps)


def test_specinfers_numbers_in_table_4_are_sequoias() -> None:
    keys = ["dataset", "temperature", "metric"]
    ours, theirs = (
        published.find(paper, name, method="specinfer", metric="tokens_per_step")[[*keys, "value", "hardware"]]
        for paper, name in (("dyspec", "table4"), ("sequoia", "table5"))
    )
    both = ours.merge(theirs, on=[*keys, "value"])
    assert len(both) == len(ours) == 6
    assert set(both["hardware_x"]) == {"L40 offload"}


@pytest.mark.parametrize("name", NAMES)
def test_every_published_number_of_a_method_with_a_draft_has_an_arm(name: str) -> None:
    paper, _, artifact = name.partition("/")
    rows = published.find(paper, artifact).query("method != 'autoregressive'")
    rows = rows.assign(top_p=[params_of(text).get("top_p") for text in rows["params"]])
    for _, group in rows.groupby(["target", "draft", "dataset", "temperature", "top_p"], dropna=False):
        arms = (sequoia if paper == "sequoia" else dyspec).ARMS[artifact]
        assert set(group["value"]) == set(pd.concat([pd.Series(arm.published(group), dtype=float) for arm in arms]))


def test_a_verdict_is_a_word_of_the_rule(cells) -> None:
    fill_small(cells)
    made = table("dyspec/table1", cells)
    assert {word(words) for words in made.long["verdict"] if words} <= {
        "matches",
        "order holds",
        "differs",
        "not resolved",
        "not comparable",
        "not run",
    }
