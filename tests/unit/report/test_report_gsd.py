"""GSD's tables: which runs stand in which row, what the paper prints beside them, and GSD against trees in pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drawn import column, table_of, verdicts
from gsd_fills import (
    CHAT,
    CODE,
    GREEDY,
    LARGE,
    LOSSY,
    SAMPLING,
    SELF,
    SMALL,
    add,
    fill_rules,
    fill_steps,
    fill_table1,
)

from specdec_core.drafters.unmerging import unmerge
from specdec_trees.artifacts.outputs import NoResultsError
from specdec_trees.artifacts.verdict import NOT_RUN
from specdec_trees.statistics import graph_metrics

WARM: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0}
PRINTED = ("acceptance_rate", "drafted", "num_displaced", "mean_speedup")


def cell(made, method: str, name: str) -> str:
    (text,) = made.frame.loc[made.frame["label"] == method, name]
    return text


def printed(made, method: str, **where: object) -> list[float | None]:
    return [column(made, key, "published", **where)[method] for key in PRINTED]


@pytest.mark.parametrize("given", [GREEDY, SAMPLING])
def test_without_both_decodings_there_is_no_mean(given: dict[str, Any], cells) -> None:
    run_id = add(cells, "gsd", **given | LARGE)
    made = table_of("gsd/table1", cells)
    known = [column(made, key)["GSD"] is not None for key in ("greedy", "sampled", "mean_speedup")]
    assert known == [given is GREEDY, given is SAMPLING, False]
    assert column(made, "acceptance_rate", "run_id")["GSD"] == run_id
    assert column(made, "acceptance_rate", "run_id")["TSD"] == ""
    assert column(made, "acceptance_rate", "published")["TSD"] == 0.894


def test_the_papers_numbers_stand_beside_its_own_models_and_methods(cells) -> None:
    fill_table1(cells, **LARGE)
    fill_table1(cells, dataset="xsum", **CHAT)
    made = table_of("gsd/table1", cells)
    large = {"target": "llama2_70b", "draft": "llama2_7b", "dataset": "gsm8k"}
    assert printed(made, "GSD", **large) == pytest.approx([0.917, 793.1, 0.277, 1.96])
    assert printed(made, "TSD", target="llama2_70b_chat", draft="llama2_7b_chat") == [0.634, 4601.2, 0.0, 1.30]
    assert printed(made, "SSD", **large) == [0.795, 629.9, None, 1.85]
    for method in ("SSD, no exit", "TSD, sibling pruning"):
        assert printed(made, method, **large) == [None] * 4
    assert printed(made, "Self SSD", draft="none", dataset="gsm8k") == [None, None, None, 1.37]


def test_a_run_that_failed_says_how_under_its_own_rule(cells) -> None:
    add(cells, "ssd", **GREEDY | LARGE)
    add(cells, "gsd", **GREEDY | LARGE | {"status": "oom"})
    add(cells, "gsd", **SAMPLING | LARGE | {"status": "failed", "lossless": False})
    made = table_of("gsd/table1", cells)
    texts = [cell(made, "GSD", name) for name in ("acceptance_rate", "greedy", "sampled", "mean_speedup")]
    assert texts == ["oom", "oom", "failed", "oom"]
    assert verdicts(made, "acceptance_rate")["GSD"] == NOT_RUN
    add(cells, "gsd", **LOSSY | LARGE)
    speedups = column(table_of("gsd/table2", cells), "speedup")
    assert (speedups["GSD"] is None, speedups["GSD (lossy)"] is None) == (True, False)


def test_verdicts_are_by_value_for_the_papers_models_and_by_order_for_others(cells) -> None:
    """Acceptance is mal - 1 of 8 forwards: 0.894 and 0.917 are in the paper."""
    for pair in (LARGE, {}):
        add(cells, "tsd", **GREEDY | {"mal": 1 + 8 * 0.5} | pair)
        add(cells, "gsd", **GREEDY | {"mal": 1 + 8 * 0.917, "spread": False} | pair)
    made = table_of("gsd/table1", cells)
    for stand_in, wanted in ((False, ["differs", "matches"]), (True, ["order holds"] * 2)):
        words = verdicts(made, "acceptance_rate", stand_in=stand_in)
        assert [words[method].split(" (")[0] for method in ("TSD", "GSD")] == wanted


def test_gsd_is_set_against_each_tree_in_pairs(cells) -> None:
    """The ratio of drafted tokens and the difference of rates, the paper's beside them; of trees alone."""
    runs = {
        "TSD": add(cells, "tsd", **GREEDY | LARGE | {"live": 100, "prob": 0}),
        "TSD, sibling pruning": add(cells, "tsd_sib", **GREEDY | LARGE | {"live": 50}),
        "GSD": add(cells, "gsd", **GREEDY | LARGE | {"live": 20, "prob": 0, "sib": 0}),
    }
    add(cells, "ssd", **GREEDY | LARGE)
    steps, made = cells.load().steps, table_of("gsd/table1", cells)
    means = {
        name: graph_metrics.samples(steps[steps["run_id"] == run_id]).mean(numeric_only=True)
        for name, run_id in runs.items()
    }
    ratios, gains = column(made, "drafted_ratio"), column(made, "rate_gain")
    for tree in ("TSD", "TSD, sibling pruning"):
        assert ratios[tree] == pytest.approx(means["GSD"]["drafted"] / means[tree]["drafted"])
        assert gains[tree] == pytest.approx(means["GSD"]["acceptance_rate"] - means[tree]["acceptance_rate"])
    assert (ratios["SSD"], ratios["GSD"], gains["GSD"]) == (None, None, None)
    assert column(made, "drafted_ratio", "published")["TSD"] == pytest.approx(793.1 / 8574.6)
    assert column(made, "rate_gain", "published")["TSD"] == pytest.approx(0.917 - 0.894)
    assert column(made, "drafted_ratio", "published")["TSD, sibling pruning"] is None


def test_rows_are_the_papers_methods_under_each_rule(cells) -> None:
    runs = fill_rules(cells, **LARGE)
    made = table_of("gsd/table2", cells)
    names = {"SSD": "ssd", "SSD, drawn": "ssd_iid", "TSD": "tsd", "GSD": "gsd_tau2"}  # the later of two alike
    rules = {"": "lossless", " (lossy)": "lossy", " (code)": "code"}
    assert made.frame["label"].tolist() == [name + ending for ending in rules for name in names]
    assert [*made.runs] == [runs[drafter, rule] for rule in rules.values() for drafter in names.values()]
    numbers = column(made, "speedup", "published", dataset="gsm8k")
    assert [numbers[f"{name} (code)"] for name in names] == [1.80, None, 1.81, 2.14]
    variation = column(made, "variation")
    assert (variation["TSD"] is None, variation["TSD (lossy)"] is None) == (True, False)


@pytest.mark.parametrize(("name", "rates"), [("table8", [0.860, 0.863]), ("table9", [0.793, 0.848])])
def test_datasets_of_a_pair_have_the_papers_numbers_and_other_seeds_rows_of_their_own(
    name: str, rates: list[float], cells
) -> None:
    given = SMALL | (CODE if name == "table9" else GREEDY)
    for dataset in ("alpaca", "wmt14", "gsm8k"):
        add(cells, "gsd", **given | {"dataset": dataset})
    add(cells, "gsd", **given | {"seed": 1})
    made, method = table_of(f"gsd/{name}", cells), "GSD (code)" if name == "table9" else "GSD"
    numbers = [column(made, "acceptance_rate", "published", dataset=one)[method] for one in ("alpaca", "wmt14_en_de")]
    assert numbers == rates
    assert made.frame["label"].tolist().count(method) == 4


def test_a_mean_is_of_the_papers_sampling_alone(cells) -> None:
    runs = fill_table1(cells, **LARGE)
    before = table_of("gsd/table1", cells)
    add(cells, "gsd", **GREEDY | LARGE | WARM | {"speedup": 9.0})
    after = table_of("gsd/table1", cells)
    assert after.frame.equals(before.frame)
    assert column(after, "mean_speedup", "run_id")["GSD"] == f"{runs['gsd', 'greedy']} {runs['gsd', 'top-p']}"


@pytest.mark.parametrize("name", ["table2", "table9", "table10"])
@pytest.mark.parametrize("given", [WARM, {"temperature": 0.7, "top_p": 0.9}, {"temperature": 1.0, "top_p": 0.7}])
def test_other_sampling_is_in_no_table_of_sampling(name: str, given: dict[str, Any], cells) -> None:
    add(cells, "gsd", **GREEDY | given)
    with pytest.raises(NoResultsError):
        table_of(f"gsd/{name}", cells)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        *(("gsd", one) for one in ({"k": 2}, {"tau": 1}, {"tau": None}, {"theta_prob": 0.4}, {"theta_sib": 0.1})),
        *(("gsd", one) for one in ({"max_steps": 5}, {"pruning": "whole"})),
        ("ssd", {"theta_prob": 0.4}),
        ("ssd_noexit", {"theta_prob": 0.2}),
        ("tsd", {"theta_sib": 0.3}),
        ("tsd_sib", {"theta_sib": 0.0}),
    ],
)
def test_runs_with_other_parameters_stand_in_no_row_and_are_named(method: str, params: dict[str, Any], cells) -> None:
    right = add(cells, method, **GREEDY | LARGE | {"spread": False})
    other = add(cells, method, **GREEDY | LARGE | {"params": params})
    made = table_of("gsd/table1", cells)
    assert (right in made.run_ids, other in made.run_ids) == (True, False)
    ((name, value),) = params.items()
    text = f"({name}={'null' if value is None else value if isinstance(value, str) else f'{value:g}'})"
    assert any(text in note for note in made.notes)


def test_the_small_models_have_their_own_class(cells) -> None:
    add(cells, "gsd", **GREEDY | SMALL | {"thresholds": {"tau": 2, "theta_prob": 0.2, "theta_sib": 0.3}})
    assert table_of("gsd/table8", cells).run_ids == set()
    mine = add(cells, "gsd", **GREEDY | SMALL)
    assert table_of("gsd/table8", cells).run_ids == {mine}


def test_of_repeated_runs_the_last_is_shown_and_none_of_another_rule(cells) -> None:
    add(cells, "gsd", **LOSSY | LARGE)
    _, second = (add(cells, "gsd", **GREEDY | LARGE | {"params": {"verify_cap": cap}}) for cap in (50, 100))
    made = table_of("gsd/table1", cells)
    assert made.run_ids == {second}
    assert column(made, "sampled")["GSD"] is None


def test_a_target_drafting_for_itself_has_no_draft_model(cells) -> None:
    add(cells, "ssd", **GREEDY | SELF)
    add(cells, "gsd", **GREEDY | SELF)
    for name in ("table1", "table4"):
        assert set(table_of(f"gsd/{name}", cells).frame["draft_words"]) == {"no draft model"}


@pytest.mark.parametrize(("cap", "depth", "capped"), [(3, 2, False), (2, 2, False), (1, 2, True), (2, None, True)])
def test_capped_is_a_cut_by_the_cap_and_not_by_depth(cap: int, depth: int | None, capped: bool, cells) -> None:
    """A chain of three drafted tokens; what the column says is what the graph's own flag says."""
    chain = unmerge(np.array([-1, 0, 1, 2]), np.ones(4), np.full(4, -1), cap=cap, depth=depth)
    assert chain.capped is capped
    add(cells, "gsd", **GREEDY | LARGE | {"capped": float(chain.capped)})
    assert column(table_of("gsd/table1", cells), "capped")["GSD"] == capped


def test_table_3_takes_both_k_and_has_the_ratio_of_drafting_times(cells) -> None:
    runs = fill_steps(cells, **LARGE)
    made = table_of("gsd/table3", cells)
    assert made.runs == tuple(runs[name] for name in ("ssd", "tsd_k2", "gsd_k2", "tsd", "gsd"))
    assert [*column(made, "draft_ms", "published").values()] == [224.9, 257.0, 225.9, 323.9, 209.0]
    assert [*column(made, "other_ms", "published").values()] == [45.8, 46.9, 45.5, 49.8, 50.2]
    ours = column(made, "draft_ms")
    assert any(f"{ours['GSD (k=4)'] / ours['TSD (k=4)']:.3f} [" in note for note in made.notes)


def test_rouge_is_a_mean_over_first_turns_with_plain_decoding_beside(cells) -> None:
    given = SMALL | {"dataset": "xsum", "params": {"tau": 1}}
    runs = {"": add(cells, "gsd", **SAMPLING | given | {"rouge": 0.25})}
    runs[" (lossy)"] = add(cells, "gsd", **LOSSY | given | {"rouge": 0.15})
    made = table_of("gsd/table10", cells)
    scores, differences = column(made, "rouge1"), column(made, "difference_rouge1")
    quality = cells.load().quality.dropna(subset=["rouge1"])
    for ending, run_id in runs.items():
        own = quality[quality["run_id"] == run_id].set_index(["prompt_id", "arm"])["rouge1"]
        method, plain = (own.xs(arm, level="arm") for arm in ("method", "autoregressive"))
        assert scores[f"GSD (tau=1){ending}"] == pytest.approx(method.mean())
        assert differences[f"GSD (tau=1){ending}"] == pytest.approx((method - plain).mean())
    plain = quality[quality["arm"] == "autoregressive"].groupby("prompt_id")["rouge1"].mean().mean()
    assert scores["vanilla"] == pytest.approx(plain)
    assert [column(made, key)["vanilla"] for key in ("difference_rouge1", "variation", "lossless")] == [None] * 3
    assert column(made, "rouge1", "published")["vanilla"] == 0.25
    numbers = column(made, "rouge_l", "published")
    assert (numbers["GSD (tau=1) (code)"], numbers["GSD (tau=1) (lossy)"]) == (0.18, None)
    assert "GSD (tau=2)" not in scores, "neither run nor printed"


@pytest.mark.parametrize(("merges", "alike"), [((0, 0), True), ((0, 2), False)])
def test_a_note_says_where_tau_changes_nothing(merges: tuple[int, int], alike: bool, cells) -> None:
    for tau, alias in zip((1, 2), merges, strict=True):
        add(cells, "gsd", **SAMPLING | SMALL | {"dataset": "xsum", "params": {"tau": tau}, "alias": alias})
    assert any("2 of 2 runs" in note for note in table_of("gsd/table10", cells).notes) == alike


@pytest.mark.parametrize(
    ("lossy", "scores", "counts"),
    [
        ({"rouge": 0.1, "conversations": 12}, {}, [(3, 3), (3, 0)]),
        ({"rouge": 0.25, "conversations": 1}, {}, [(3, 3)]),  # one prompt has no interval
        ({"rouge": 0.25, "conversations": 12}, {"rouge1": 0.0, "rouge2": 0.0}, [(1, 1), (2, None), (1, 1), (2, None)]),
        ({"conversations": 12}, {}, [(3, 3)]),  # without scores
    ],
)
def test_differences_of_rouge_are_counted_that_hold_0(
    lossy: dict[str, Any], scores: dict[str, float], counts: list[tuple[int, int | None]], cells, monkeypatch
) -> None:
    """By rule: how many have an interval, and how many of these hold 0; those without width stand apart."""
    monkeypatch.setattr("gsd_fills.ROUGE", {"rouge1": 1.0, "rouge2": 0.4, "rouge_l": 0.8} | scores)
    given = SMALL | {"dataset": "xsum", "conversations": 12}
    add(cells, "ssd", **SAMPLING | given | {"rouge": 0.25})
    add(cells, "ssd", **LOSSY | given | lossy)
    notes = [note for note in table_of("gsd/table10", cells).notes if "differences of" in note]
    numbers = [[int(word) for word in note.split(";")[0].split() if word.isdigit()] for note in notes]
    assert [(first, rest[0] if rest[1:] else None) for first, *rest in numbers] == counts
