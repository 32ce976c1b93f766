"""GSD's Tables 2 to 4 and 6 to 10: cells against the rows, what is lossy, and what the paper prints beside them."""

from typing import Any

import pytest
from gsd_fills import (
    CODE,
    GREEDY,
    LARGE,
    LOSSY,
    SAMPLING,
    SMALL,
    add,
    fill_datasets,
    fill_rules,
    fill_steps,
    fill_table1,
)
from test_report_gsd import build, row, sample_means, speedup

from bench.artifacts.tables import ABSENT
from bench.statistics import graph_metrics

pytestmark = pytest.mark.long


def steps(cells, run_id: str) -> Any:
    found = cells.load().steps
    return found[found["run_id"] == run_id]


def test_table_2_has_every_method_under_both_rules(cells) -> None:
    runs = fill_rules(cells, **LARGE)
    wide, details = build("table2", cells)
    rules = {"": "lossless", " (lossy)": "lossy", " (code)": "code"}
    methods = [name + rule for rule in rules for name in ("SSD", "SSD, drawn", "TSD", "GSD")]
    assert wide.frame["Method"].tolist() == methods
    for header, key in (("SSD", "ssd"), ("SSD, drawn", "ssd_iid"), ("TSD", "tsd")):
        for ending, rule in rules.items():
            assert row(wide, header + ending)["gsm8k"] == f"{speedup(cells, runs[key, rule]):.2f}x"
            assert row(details, header + ending, Dataset="gsm8k")["lossless"] == ("no" if ending else "yes")
    assert wide.frame["gsm8k published"].tolist() == [ABSENT] * 8 + ["1.80x", ABSENT, "1.81x", "2.14x"]
    assert wide.frame["xsum"].tolist() == [ABSENT] * 12


def test_variation_is_the_mean_over_steps_and_only_of_lossy_rules(cells) -> None:
    runs = fill_rules(cells, **LARGE)
    _, details = build("table2", cells)
    found = cells.load().variation
    mean = found.loc[found["run_id"] == runs["tsd", "lossy"], "total_variation"].mean()
    assert row(details, "TSD (lossy)", Dataset="gsm8k")["variation"].startswith(f"{mean:.3f} [")
    assert row(details, "TSD", Dataset="gsm8k")["variation"] == ABSENT


def test_a_run_that_failed_stands_under_its_own_rule(cells) -> None:
    """Such a run does not know whether it would have been lossless."""
    add(cells, "gsd", **SAMPLING | LARGE | {"status": "failed", "lossless": False})
    add(cells, "gsd", **LOSSY | LARGE)
    wide, _ = build("table2", cells)
    assert row(wide, "GSD")["gsm8k"] == "failed"
    assert row(wide, "GSD (lossy)")["gsm8k"].endswith("x")


@pytest.mark.parametrize(("name", "models"), [("table8", SMALL), ("table9", SMALL)])
def test_cells_are_acceptance_and_speedup_as_printed(name: str, models: dict[str, Any], cells) -> None:
    given = models | (CODE if name == "table9" else GREEDY)
    runs = {dataset: add(cells, "gsd", **given | {"dataset": dataset}) for dataset in ("alpaca", "wmt14", "gsm8k")}
    wide, details = build(name, cells)
    header = "GSD (code)" if name == "table9" else "GSD"
    mine = row(wide, header)
    for column, dataset in (("alpaca", "alpaca"), ("wmt14_en_de", "wmt14"), ("gsm8k", "gsm8k")):
        rate = sample_means(cells, runs[dataset])["acceptance_rate"]
        assert mine[column] == f"{rate:.3f} ({speedup(cells, runs[dataset]):.2f}x)"
    printed = ["0.793 (1.34x)", "0.848 (1.31x)"] if name == "table9" else ["0.860 (1.31x)", "0.863 (1.36x)"]
    assert mine[["alpaca published", "wmt14_en_de published"]].tolist() == printed
    assert row(details, header, Dataset="wmt14_en_de")["acceptance published"] == printed[1][:5]
    assert "TSD" in set(wide.frame["Method"]) or name == "table9"


def test_datasets_of_one_pair_share_a_row_and_other_seeds_have_their_own(cells) -> None:
    fill_datasets(cells, **SMALL)
    add(cells, "gsd", **GREEDY | SMALL | {"seed": 1})
    wide, _ = build("table8", cells)
    assert wide.frame["Method"].tolist() == ["SSD", "TSD", "GSD"] * 2
    assert (wide.frame["alpaca"] == ABSENT).tolist() == [False] * 3 + [True] * 3


def test_a_failed_dataset_stands_in_the_row_of_the_others(cells) -> None:
    add(cells, "gsd", **GREEDY | SMALL)
    add(cells, "gsd", **GREEDY | SMALL | {"dataset": "alpaca", "status": "oom"})
    wide, _ = build("table8", cells)
    assert len(wide.frame) == 3
    assert row(wide, "GSD")["alpaca"] == "oom"


def test_table_4_has_medusa_as_printed_and_the_mean_speedup(cells) -> None:
    runs = fill_table1(cells, **LARGE)
    wide, _ = build("table4", cells)
    large = {"Target": "llama2_70b"}
    both = [speedup(cells, runs["gsd", decoding]) for decoding in ("greedy", "top-p")]
    medusa, gsd = (row(wide, method, **large) for method in ("Medusa", "GSD"))
    assert gsd[["gsm8k", "gsm8k published"]].tolist() == [f"{sum(both) / 2:.2f}x", "1.96x"]
    assert medusa[["gsm8k", "gsm8k published", "xsum published"]].tolist() == [ABSENT, "2.01x", "1.62x"]


def test_operations_are_milliseconds_a_step_by_k(cells) -> None:
    runs = fill_steps(cells, **LARGE)
    wide, details = build("table3", cells)
    for header, name in (("SSD", "ssd"), ("TSD (k=2)", "tsd_k2"), ("GSD (k=4)", "gsd")):
        found = graph_metrics.operation_times(steps(cells, runs[name])) * 1000
        mine = [row(wide, header)[f"{column} ms"] for column in ("Draft", "Verification", "Others")]
        assert mine == [f"{value:.{digits}f}" for value, digits in zip(found, (1, 1, 3), strict=True)]
    assert wide.frame["Draft ms published"].tolist() == ["224.9", "257.0", "225.9", "323.9", "209.0"]
    assert wide.frame["Others ms published"].tolist() == ["45.8", "46.9", "45.5", "49.8", "50.2"]
    assert row(details, "GSD (k=4)")["Draft ms"].startswith(row(wide, "GSD (k=4)")["Draft ms"] + " [")
    notes = " ".join(wide.notes)
    assert "drafting takes GSD (k=4) " in notes
    assert "The paper: 0.65x." in notes
    assert "Without a GPU the milliseconds mean nothing" in notes


def test_rouge_is_a_mean_over_first_turns_with_plain_decoding_beside(cells) -> None:
    runs = {
        "lossless": add(cells, "gsd", **SAMPLING | SMALL | {"dataset": "xsum", "rouge": 0.25, "params": {"tau": 1}})
    }
    lossy = LOSSY | SMALL | {"dataset": "xsum", "rouge": 0.15, "params": {"tau": 1}}
    runs["lossy"] = add(cells, "gsd", **lossy)
    wide, details = build("table10", cells)
    quality = cells.load().quality.dropna(subset=["rouge1"])
    for header, rule in (("GSD (tau=1)", "lossless"), ("GSD (tau=1) (lossy)", "lossy")):
        own = quality[quality["run_id"] == runs[rule]].set_index(["prompt_id", "arm"])
        method, plain = (own.xs(arm, level="arm")[["rouge1", "rouge2"]] for arm in ("method", "autoregressive"))
        assert row(wide, header)[["ROUGE-1", "ROUGE-2"]].tolist() == [f"{value:.3f}" for value in method.mean()]
        difference = (method - plain).mean()["rouge1"]
        assert row(details, header)["difference ROUGE-1"].startswith(f"{difference:+.3f} [")
    plain = quality[quality["arm"] == "autoregressive"].groupby("prompt_id")["rouge1"].mean().mean()
    assert row(wide, "vanilla")[["ROUGE-1", "ROUGE-1 published"]].tolist() == [f"{plain:.3f}", "0.25"]
    assert row(wide, "GSD (tau=1) (lossy)")["ROUGE-L published"] == ABSENT
    assert row(wide, "GSD (tau=1) (code)")["ROUGE-L published"] == "0.18"
    assert row(wide, "GSD (tau=2)")["ROUGE-1"] == ABSENT
    assert row(details, "GSD (tau=1) (lossy)")["lossless"] == "no"


@pytest.mark.parametrize(("merges", "said"), [((0, 0), True), ((0, 2), False)])
def test_a_note_says_where_tau_changes_nothing(merges: tuple[int, int], said: bool, cells) -> None:
    for tau, alias in zip((1, 2), merges, strict=True):
        add(cells, "gsd", **SAMPLING | SMALL | {"dataset": "xsum", "params": {"tau": tau}, "alias": alias})
    notes = " ".join(build("table10", cells)[0].notes)
    assert ("No candidate was merged in 2 of 2 runs of GSD: there tau changes nothing." in notes) == said


def test_notes_say_whether_rouge_is_kept(cells) -> None:
    given = {"dataset": "xsum", "conversations": 12}
    add(cells, "ssd", **SAMPLING | SMALL | given | {"rouge": 0.25})
    add(cells, "ssd", **LOSSY | SMALL | given | {"rouge": 0.1})
    notes = " ".join(build("table10", cells)[0].notes)
    assert "Of 3 differences of lossless rules to plain decoding 3 hold 0 in their 95% interval." in notes
    assert "Of 3 differences of lossy rules to plain decoding 0 hold 0 in their 95% interval; not so: SSD" in notes


def test_without_scores_there_is_no_rouge(cells) -> None:
    add(cells, "ssd", **SAMPLING | SMALL | {"dataset": "xsum"})
    wide, _ = build("table10", cells)
    assert wide.frame["ROUGE-1"].unique().tolist() == [ABSENT]
    assert not any("differences" in note for note in wide.notes)
