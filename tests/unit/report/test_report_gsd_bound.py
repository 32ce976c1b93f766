"""GSD's tables show the runs with the paper's parameters and sampling alone, and say which others there are."""

from typing import Any

import numpy as np
import pytest
from gsd_fills import CLASS_7B, GREEDY, LARGE, LOSSY, SAMPLING, SELF, SMALL, add, fill_rules, fill_steps, fill_table1
from test_report_gsd import build, row, speedup

from bench.artifacts import definitions
from specdec_core.drafters.unmerging import unmerge

pytestmark = pytest.mark.long


WARM: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0}
NOT_HERE = "Not in this table: "


def left_out(table) -> str:
    """The note of the runs that stand in no row."""
    found = [note for note in table.notes if note.startswith(NOT_HERE)]
    assert len(found) < 2
    return found[0] if found else ""


def test_top_p_is_the_papers_sampling_alone(cells) -> None:
    runs = fill_table1(cells, **LARGE)
    warm = add(cells, "gsd", **GREEDY | LARGE | WARM | {"speedup": 9.0})
    wide, details = build("table1", cells)
    both = [speedup(cells, runs["gsd", decoding]) for decoding in ("greedy", "top-p")]
    assert row(wide, "GSD")["Speedup"] == f"{sum(both) / 2:.2f}x"
    assert row(details, "GSD", Target="llama2_70b")["top-p"].startswith(f"{both[1]:.2f} [")
    assert f"GSD by target_sample at temperature 1 (run {warm})" in left_out(wide)
    assert not any("temperature 0 / 0.7 / 1:" in note for note in wide.notes)


@pytest.mark.parametrize("top_p", [0.7, 0.9])
def test_temperature_and_top_p_have_both_to_be_the_papers(top_p: float, cells) -> None:
    run_id = add(cells, "gsd", **LARGE | SAMPLING | {"top_p": top_p})
    wide, _ = build("table2", cells)
    assert ("(not run)" in wide.title) == (top_p == 0.9)
    words = f"GSD by target_sample at temperature 0.7, top-p 0.9 (run {run_id})"
    assert (words in left_out(wide)) == (top_p == 0.9)


@pytest.mark.parametrize("name", ["table2", "table4", "table9", "table10"])
def test_other_sampling_is_in_no_table_of_sampling(name: str, cells) -> None:
    thresholds = {"thresholds": CLASS_7B} if name in ("table9", "table10") else {}
    add(cells, "gsd", **GREEDY | thresholds | WARM | {"rouge": 0.2})
    wide, details = build(name, cells)
    assert not any(wide.runs)
    assert not any(details.runs)
    assert "at temperature 1" in left_out(wide)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"k": 2}, "k=2"),
        ({"tau": 1}, "tau=1"),
        ({"theta_prob": 0.4}, "theta_prob=0.4"),
        ({"theta_sib": 0.1}, "theta_sib=0.1"),
        ({"max_steps": 5}, "max_steps=5"),
        ({"pruning": "whole"}, "pruning=whole"),
    ],
)
def test_runs_with_other_parameters_stand_in_no_row(given: dict[str, Any], words: str, cells) -> None:
    right = add(cells, "gsd", **GREEDY | LARGE | {"spread": False})
    other = add(cells, "gsd", **GREEDY | LARGE | {"params": given})
    wide, _ = build("table1", cells)
    assert right in wide.runs
    assert other not in " ".join(wide.runs)
    assert f"GSD ({words}) by target_sample at temperature 0 (run {other})" in left_out(wide)


def test_every_method_is_bound_to_its_own_parameters(cells) -> None:
    """A run of each with a parameter of the other class."""
    fill_table1(cells, **LARGE)
    before = build("table1", cells)[0]
    for method, name, value in (
        ("ssd", "theta_prob", 0.4),
        ("ssd_noexit", "theta_prob", 0.2),
        ("tsd", "theta_sib", 0.3),
        ("tsd_sib", "theta_sib", 0.0),
        ("gsd", "tau", None),
    ):
        add(cells, method, **GREEDY | LARGE | {"params": {name: value}})
    after = build("table1", cells)[0]
    assert after.frame.equals(before.frame)
    assert left_out(before) == ""
    assert left_out(after).count("(run ") == 5
    assert "GSD (tau=null)" in left_out(after)


def test_the_small_models_have_their_own_class(cells) -> None:
    add(cells, "gsd", **GREEDY | SMALL | {"thresholds": {"tau": 2, "theta_prob": 0.2, "theta_sib": 0.3}})
    wide, _ = build("table8", cells)
    assert not any(wide.runs)
    assert "GSD (tau=2, theta_prob=0.2, theta_sib=0.3)" in left_out(wide)
    mine = add(cells, "gsd", **GREEDY | SMALL)
    assert mine in build("table8", cells)[0].runs


def test_table_3_takes_both_k_and_table_10_both_tau(cells) -> None:
    runs = fill_steps(cells, **LARGE)
    assert build("table3", cells)[0].runs == tuple(runs[name] for name in ("ssd", "tsd_k2", "gsd_k2", "tsd", "gsd"))
    runs = fill_rules(cells, **SMALL)
    wide, _ = build("table10", cells)
    assert runs["gsd_tau2", "lossless"] in wide.runs
    assert "tsd" in left_out(wide)


def test_rules_and_repeated_runs_are_told(cells) -> None:
    lossy = add(cells, "gsd", **LOSSY | LARGE)
    first, second = (add(cells, "gsd", **GREEDY | LARGE | {"params": {"verify_cap": cap}}) for cap in (50, 100))
    wide, _ = build("table1", cells)
    assert second in " ".join(wide.runs)
    assert f"GSD by gsd_nondeterministic at temperature 0.7, top-p 0.7 (run {lossy})" in left_out(wide)
    assert f"GSD by target_sample at temperature 0 (run {first})" in left_out(wide)
    assert "or another run of the same is shown" in left_out(wide)


def test_the_title_of_a_mean_has_no_temperature(cells) -> None:
    fill_table1(cells, **LARGE)
    assert all("temperature" not in table.title for name in ("table1", "table4") for table in build(name, cells))
    assert "temperature 0" in build("table6", cells)[0].title


@pytest.mark.parametrize("name", ["table1", "table3", "table4"])
def test_the_draft_temperature_is_told_where_it_is_not_the_papers(name: str, cells) -> None:
    add(cells, "gsd", **GREEDY | {"params": {"draft_temperature": 0.6}})
    words = "Draft temperature 0.6 for tiny (the papers: 1; DySpec: 0.6)"
    assert any(note.startswith(words) for note in build(name, cells)[0].notes)
    add(cells, "gsd", **GREEDY | {"params": {"draft_temperature": 1.0}})
    assert not any(note.startswith(words) for note in build(name, cells)[0].notes)  # the later run is shown


def test_what_is_drawn_has_the_temperature_of_the_decoding(cells) -> None:
    add(cells, "ssd_iid", **SAMPLING | LARGE | {"params": {"draft_temperature": 0.7}, "verifier": "spec_infer"})
    wide, _ = build("table2", cells)
    assert any(wide.runs)
    assert not any("Draft temperature" in note for note in wide.notes)


def test_a_target_drafting_for_itself_is_called_so(cells) -> None:
    add(cells, "ssd", **GREEDY | SELF)
    add(cells, "gsd", **GREEDY | SELF)
    for name in ("table1", "table4", "table3"):
        table = build(name, cells)[0]
        assert "tiny_self" in table.title
        assert not any("+ none" in text or "for none" in text for text in (table.title, *table.notes))
        assert not (table.frame == "tiny_self (for none)").to_numpy().any()
    assert "tiny_self (stands in for llama2_70b without a draft model)" in build("table1", cells)[0].title


def test_a_difference_without_an_interval_is_no_evidence(cells) -> None:
    given = SMALL | {"dataset": "xsum", "rouge": 0.25}
    add(cells, "ssd", **SAMPLING | given)
    add(cells, "ssd", **LOSSY | given | {"conversations": 1})
    notes = " ".join(build("table10", cells)[0].notes)
    assert "Of 3 differences of lossless rules" in notes
    assert "of lossy rules" not in notes  # one prompt has no interval


def test_equal_scores_are_not_counted(cells, monkeypatch) -> None:
    monkeypatch.setattr("gsd_fills.ROUGE", {"rouge1": 0.0, "rouge2": 0.0, "rouge_l": 1.0})
    for given in (SAMPLING, LOSSY):
        add(cells, "ssd", **given | SMALL | {"dataset": "xsum", "rouge": 0.25, "conversations": 12})
    notes = " ".join(build("table10", cells)[0].notes)
    for word in ("lossless", "lossy"):
        assert f"Of 1 differences of {word} rules" in notes
        assert f"Not counted: 2 differences of {word} rules whose interval has no width" in notes
    assert notes.count("1 in 20 such intervals") == 1
    assert "Of either rule more miss it where prompts are few" in notes


def test_the_caveat_of_few_prompts_is_told_of_a_lossy_rule_alone_too(cells) -> None:
    add(cells, "ssd", **LOSSY | SMALL | {"dataset": "xsum", "rouge": 0.1, "conversations": 12})
    assert "Of either rule more miss it where prompts are few" in " ".join(build("table10", cells)[0].notes)


@pytest.mark.parametrize(("cap", "depth", "capped"), [(3, 2, False), (2, 2, False), (1, 2, True), (2, None, True)])
def test_capped_is_a_cut_by_the_cap_and_not_by_depth(cap: int, depth: int | None, capped: bool, cells) -> None:
    """A chain of three drafted tokens; what the column says is what the graph's own flag says."""
    chain = unmerge(np.array([-1, 0, 1, 2]), np.ones(4), np.full(4, -1), cap=cap, depth=depth)
    assert chain.capped is capped
    assert "the cap of verified nodes cut" in definitions.CAPPED
    add(cells, "gsd", **GREEDY | LARGE | {"capped": float(chain.capped)})
    _, details = build("table1", cells)
    assert row(details, "GSD")["capped"] == ("100%" if chain.capped else "0.0%")
