"""GSD's tables: which runs stand in which row, what the paper prints beside them, and what is said of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
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

from bench.artifacts.outputs import NoResultsError
from bench.artifacts.tables import Table, named_rows
from bench.artifacts.verdict import NOT_RUN
from bench.papers.registry import ARTIFACTS
from bench.statistics import graph_metrics
from specdec_core.drafters.unmerging import unmerge

pytestmark = pytest.mark.long

WARM: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0}
PRINTED = ("acceptance_rate", "drafted", "num_displaced", "mean_speedup")
LLAMA = {"target": "llama2_70b", "draft": "llama2_7b"}


def build(name: str, cells) -> Table:
    (table,) = ARTIFACTS[f"gsd/{name}"].build(name, cells.load())
    assert isinstance(table, Table)
    return table


def line(table: Table, method: str, key: str, **where: Any) -> Any:
    """The row of a method and metric in the long frame."""
    where |= {"label": method}
    rows = named_rows(table.long)
    (found,) = (
        row for row in rows if row.metric.key == key and all(getattr(row, name) == one for name, one in where.items())
    )
    return found


def published(table: Table, method: str, *keys: str, **where: Any) -> list[float | None]:
    return [line(table, method, key, **where).published for key in keys]


def cell(table: Table, method: str, header: str) -> str:
    (text,) = table.frame.loc[table.frame["Method"] == method, header]
    return text


def means(cells, run_id: str) -> dict[str, float]:
    steps = cells.load().steps
    return graph_metrics.samples(steps[steps["run_id"] == run_id]).mean(numeric_only=True).to_dict()


@pytest.mark.parametrize("given", [GREEDY, SAMPLING])
def test_without_both_decodings_there_is_no_mean(given: dict[str, Any], cells) -> None:
    run_id = add(cells, "gsd", **given | LARGE)
    table = build("table1", cells)
    known = [line(table, "GSD", key).value is not None for key in ("greedy", "top_p", "mean_speedup")]
    assert known == [given is GREEDY, given is SAMPLING, False]
    assert line(table, "GSD", "acceptance_rate").run_id == run_id
    assert (
        line(
            table,
            "TSD",
            "acceptance_rate",
        ).run_id
        == ""
    )
    assert published(table, "TSD", "acceptance_rate") == [0.894]


def test_the_papers_numbers_stand_beside_its_own_models_and_methods(cells) -> None:
    fill_table1(cells, **LARGE)
    fill_table1(cells, dataset="xsum", **CHAT)
    table = build("table1", cells)
    large, chat = LLAMA | {"dataset": "gsm8k"}, {"target": "llama2_70b_chat", "draft": "llama2_7b_chat"}
    assert published(table, "GSD", *PRINTED, **large) == pytest.approx([0.917, 793.1, 0.277, 1.96])
    assert published(table, "TSD", *PRINTED, **chat) == [0.634, 4601.2, 0.0, 1.30]
    assert published(table, "SSD", *PRINTED, **large) == [0.795, 629.9, None, 1.85]
    for method in ("SSD, no exit", "TSD, sibling pruning"):
        assert published(table, method, *PRINTED, **large) == [None] * 4
    assert published(table, "Self SSD", *PRINTED, draft="none", dataset="gsm8k") == [None, None, None, 1.37]
    assert cell(table, "Self SSD", "Draft") == "no draft model"
    assert table.frame["Method"].iloc[0] == "Self SSD"
    assert {*table.frame.columns[4:]} <= {*table.legend} | {name for name in table.frame if " published" in name} | {
        name for name in table.frame if name.startswith("verdict ")
    }


def test_a_run_that_failed_says_how(cells) -> None:
    add(cells, "ssd", **GREEDY | LARGE)
    add(cells, "gsd", **GREEDY | LARGE | {"status": "oom"})
    add(cells, "gsd", **SAMPLING | LARGE | {"status": "failed", "lossless": False})
    table = build("table1", cells)
    texts = [cell(table, "GSD", header) for header in ("acceptance rate", "speedup greedy", "speedup top-p", "speedup")]
    assert texts == ["oom", "oom", "failed", "oom"]
    assert line(table, "GSD", "acceptance_rate").verdict == NOT_RUN
    add(cells, "gsd", **LOSSY | LARGE)
    table = build("table2", cells)  # a failed run stands under its own rule
    assert cell(table, "GSD", "speedup") == "failed"
    assert line(table, "GSD (lossy)", "speedup").value is not None


def test_verdicts_are_by_value_for_the_papers_models_and_by_order_for_others(cells) -> None:
    """Acceptance is mal - 1 of 8 forwards: 0.894 and 0.917 are in the paper."""
    for pair in (LARGE, {}):
        add(cells, "tsd", **GREEDY | {"mal": 1 + 8 * 0.5} | pair)
        add(cells, "gsd", **GREEDY | {"mal": 1 + 8 * 0.917, "spread": False} | pair)
    table = build("table1", cells)
    for stand_in, wanted in ((False, ["differs", "matches"]), (True, ["order holds"] * 2)):
        rows = [line(table, method, "acceptance_rate", stand_in=stand_in) for method in ("TSD", "GSD")]
        assert [row.verdict.split(" (")[0] for row in rows] == wanted


@pytest.mark.parametrize(
    ("live", "mal", "words"),
    [(20, 5.0, ("fewer", "not")), (20, 3.0, ("fewer", "lower")), (200, 8.0, ("more", "higher"))],
)
def test_whether_gsd_drafts_fewer_nodes_is_said_from_the_rows_in_pairs(
    live: int, mal: float, words: tuple[str, str], cells
) -> None:
    given = GREEDY | LARGE | {"spread": False, "conversations": 12}
    tree = add(cells, "tsd", **given | {"live": 100, "prob": 0, "mal": 5.0})
    graph = add(cells, "gsd", **given | {"live": live, "prob": 0, "sib": 0, "mal": mal})
    (note,) = (note for note in build("table1", cells).notes if "0.09x at +0.023" in note)
    first, other = (means(cells, run) for run in (graph, tree))
    for number in (
        f"{first['drafted'] / other['drafted']:.3f} [",
        f"{first['acceptance_rate'] - other['acceptance_rate']:+.3f} [",
    ):
        assert number in note
    assert all(f" {word} " in note.replace(".", " ") for word in words)


def test_rows_are_the_papers_methods_under_each_rule(cells) -> None:
    runs = fill_rules(cells, **LARGE)
    table = build("table2", cells)
    names = {"SSD": "ssd", "SSD, drawn": "ssd_iid", "TSD": "tsd", "GSD": "gsd_tau2"}  # the later of two alike
    rules = {"": "lossless", " (lossy)": "lossy", " (code)": "code"}
    assert table.frame["Method"].tolist() == [name + ending for ending in rules for name in names]
    assert [*table.runs] == [runs[drafter, rule] for rule in rules.values() for drafter in names.values()]
    numbers = [published(table, f"{name} (code)", "speedup", dataset="gsm8k")[0] for name in names]
    assert numbers == [1.80, None, 1.81, 2.14]
    assert line(table, "TSD (lossy)", "variation").value is not None
    assert line(table, "TSD", "variation").value is None
    assert line(table, "TSD", "lossless").value == "yes"


@pytest.mark.parametrize(("name", "rates"), [("table8", [0.860, 0.863]), ("table9", [0.793, 0.848])])
def test_datasets_of_a_pair_have_the_papers_numbers_and_other_seeds_rows_of_their_own(
    name: str, rates: list[float], cells
) -> None:
    given = SMALL | (CODE if name == "table9" else GREEDY)
    for dataset in ("alpaca", "wmt14", "gsm8k"):
        add(cells, "gsd", **given | {"dataset": dataset})
    add(cells, "gsd", **given | {"seed": 1})
    add(cells, "ssd", **given | {"dataset": "wmt14", "status": "oom"})
    table, method = build(name, cells), "GSD (code)" if name == "table9" else "GSD"
    both = [published(table, method, "acceptance_rate", dataset=one)[0] for one in ("alpaca", "wmt14_en_de")]
    assert both == rates
    assert len(table.frame[table.frame["Method"] == method]) == 4
    assert "oom" in set(table.frame["speedup"])


def test_a_mean_is_of_the_papers_sampling_alone(cells) -> None:
    runs = fill_table1(cells, **LARGE)
    before = build("table1", cells)
    add(cells, "gsd", **GREEDY | LARGE | WARM | {"speedup": 9.0})
    after = build("table1", cells)
    assert after.frame.equals(before.frame)
    assert line(after, "GSD", "mean_speedup").run_id == f"{runs['gsd', 'greedy']} {runs['gsd', 'top-p']}"
    assert len(after.notes) == len(before.notes) + 1
    assert all("temperature" not in build(name, cells).title for name in ("table1", "table4"))


@pytest.mark.parametrize("name", ["table2", "table9", "table10"])
@pytest.mark.parametrize("given", [WARM, {"temperature": 0.7, "top_p": 0.9}, {"temperature": 1.0, "top_p": 0.7}])
def test_other_sampling_is_in_no_table_of_sampling(name: str, given: dict[str, Any], cells) -> None:
    add(cells, "gsd", **GREEDY | given)
    with pytest.raises(NoResultsError):
        build(name, cells)


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
    table = build("table1", cells)
    assert (right in table.run_ids, other in table.run_ids) == (True, False)
    ((name, value),) = params.items()
    text = f"({name}={'null' if value is None else value if isinstance(value, str) else f'{value:g}'})"
    assert any(text in note for note in table.notes)


def test_the_small_models_have_their_own_class(cells) -> None:
    other = add(cells, "gsd", **GREEDY | SMALL | {"thresholds": {"tau": 2, "theta_prob": 0.2, "theta_sib": 0.3}})
    assert other not in build("table8", cells).run_ids
    mine = add(cells, "gsd", **GREEDY | SMALL)
    assert build("table8", cells).run_ids == {mine}


def test_of_repeated_runs_the_last_is_shown_and_none_of_another_rule(cells) -> None:
    lossy = add(cells, "gsd", **LOSSY | LARGE)
    _, second = (add(cells, "gsd", **GREEDY | LARGE | {"params": {"verify_cap": cap}}) for cap in (50, 100))
    table = build("table1", cells)
    assert table.run_ids == {second}
    assert lossy not in table.run_ids
    assert line(table, "GSD", "top_p").value is None


def test_a_target_drafting_for_itself_is_called_so(cells) -> None:
    add(cells, "ssd", **GREEDY | SELF)
    add(cells, "gsd", **GREEDY | SELF)
    for name in ("table1", "table4"):
        table = build(name, cells)
        assert not any("+ none" in text or "for none" in text for text in (table.title, *table.notes))
        assert set(table.frame["Draft"]) == {"no draft model"}


@pytest.mark.parametrize(("cap", "depth", "capped"), [(3, 2, False), (2, 2, False), (1, 2, True), (2, None, True)])
def test_capped_is_a_cut_by_the_cap_and_not_by_depth(cap: int, depth: int | None, capped: bool, cells) -> None:
    """A chain of three drafted tokens; what the column says is what the graph's own flag says."""
    chain = unmerge(np.array([-1, 0, 1, 2]), np.ones(4), np.full(4, -1), cap=cap, depth=depth)
    assert chain.capped is capped
    add(cells, "gsd", **GREEDY | LARGE | {"capped": float(chain.capped)})
    assert line(build("table1", cells), "GSD", "capped").value == capped


def test_table_3_takes_both_k_and_has_the_ratio_of_drafting_times(cells) -> None:
    runs = fill_steps(cells, **LARGE)
    table = build("table3", cells)
    assert table.runs == tuple(runs[name] for name in ("ssd", "tsd_k2", "gsd_k2", "tsd", "gsd"))
    methods = table.frame["Method"]
    drafting = [published(table, method, "draft_ms")[0] for method in methods]
    assert drafting == [224.9, 257.0, 225.9, 323.9, 209.0]
    assert [published(table, method, "other_ms")[0] for method in methods] == [45.8, 46.9, 45.5, 49.8, 50.2]
    ours = [line(table, method, "draft_ms").value for method in ("GSD (k=4)", "TSD (k=4)")]
    (note,) = (note for note in table.notes if f"{drafting[4] / drafting[3]:.2f}x" in note)
    assert f"{ours[0] / ours[1]:.3f} [" in note


def test_rouge_is_a_mean_over_first_turns_with_plain_decoding_beside(cells) -> None:
    given = SMALL | {"dataset": "xsum", "params": {"tau": 1}}
    runs = {"": add(cells, "gsd", **SAMPLING | given | {"rouge": 0.25})}
    runs[" (lossy)"] = add(cells, "gsd", **LOSSY | given | {"rouge": 0.15})
    table = build("table10", cells)
    quality = cells.load().quality.dropna(subset=["rouge1"])
    for ending, run_id in runs.items():
        own = quality[quality["run_id"] == run_id].set_index(["prompt_id", "arm"])["rouge1"]
        method, plain = (own.xs(arm, level="arm") for arm in ("method", "autoregressive"))
        values = [line(table, f"GSD (tau=1){ending}", key).value for key in ("rouge1", "difference_rouge1")]
        assert values == pytest.approx([method.mean(), (method - plain).mean()])
    vanilla = line(table, "vanilla", "rouge1")
    assert vanilla.value == pytest.approx(
        quality[quality["arm"] == "autoregressive"].groupby("prompt_id")["rouge1"].mean().mean()
    )
    assert (vanilla.run_id, vanilla.published) == ("", 0.25)
    assert [line(table, "vanilla", key).value for key in ("difference_rouge1", "variation", "lossless")] == [None] * 3
    assert published(table, "GSD (tau=1) (code)", "rouge_l") == [0.18]
    assert published(table, "GSD (tau=1) (lossy)", "rouge_l") == [None]
    assert "GSD (tau=2)" not in set(table.frame["Method"])  # neither run nor printed
    assert line(table, "GSD (tau=1) (lossy)", "lossless").value == "no"


@pytest.mark.parametrize(("merges", "alike"), [((0, 0), True), ((0, 2), False)])
def test_a_note_says_where_tau_changes_nothing(merges: tuple[int, int], alike: bool, cells) -> None:
    for tau, alias in zip((1, 2), merges, strict=True):
        add(cells, "gsd", **SAMPLING | SMALL | {"dataset": "xsum", "params": {"tau": tau}, "alias": alias})
    assert any("2 of 2 runs" in note for note in build("table10", cells).notes) == alike


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
    notes = [note for note in build("table10", cells).notes if "differences of" in note]
    numbers = [[int(word) for word in note.split(";")[0].split() if word.isdigit()] for note in notes]
    assert [(first, rest[0] if rest[1:] else None) for first, *rest in numbers] == counts
