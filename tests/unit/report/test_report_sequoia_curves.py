"""Sequoia's Figures 3, 4, 5b and 5c: what is drawn and what stands in their tables, against the rows."""

import math

import pandas as pd
import pytest
from drawn import build, labels, lines, row_of, speedup_of
from sequoia_fills import RULES, SAMPLING, SETTING, P, fill_hardware, fill_rejections, fill_temperatures, sized

from bench.artifacts import style
from bench.artifacts.outputs import NoResultsError

pytestmark = pytest.mark.long


def test_rejection_rates_by_rule_and_temperature(cells) -> None:
    fill_rejections(cells)
    found, table = build("fig3", cells)
    assert [axes.get_title() for axes in found] == [f"tiny, cnn_dm, temperature {t}" for t in ("0.2", "0.6", "1")]
    for axes in found:
        drawn = lines(axes)
        assert len(drawn) == 3  # SpecTr has no rates
        for line in drawn:
            assert [k for k, _ in line] == [1, 2, 3, 4]
            assert [rate for _, rate in line] == pytest.approx([0.5, 0.3, 0.2, 0.15])
        assert labels(axes) == ["Sequoia (b = 0.75)", "SpecInfer (b = 0.75)", "top-k (b = 0.75)"]
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert table.frame["Rule"].tolist() == ["Sequoia", "SpecInfer", "SpecTr", "top-k"] * 3
    assert table.frame[["r_1", "r_4"]].iloc[0].tolist() == ["0.5000 [0.4500, 0.5500]", "0.1500 [0.1350, 0.1650]"]
    assert table.frame[["b", "r_1", "r_4"]].iloc[2].tolist() == ["–", "–", "–"]


def test_rates_that_are_zero_or_unknown_are_left_out(cells) -> None:
    cells.add_vector([0.6, 0.4, 0.0], **SETTING)
    cells.add_vector([0.5, 0.3], measured=False, **SETTING | {"temperature": 1.0})
    (axes,), table = build("fig3", cells)
    assert lines(axes) == [[(1, 0.4)]]
    assert len(table.frame) == 2
    assert labels(axes) == ["Sequoia (no fit)"]


def test_two_vectors_of_a_rule_are_told_apart(cells) -> None:
    for width, estimator in ((3, "analytic"), (4, "counts")):
        cells.add_vector(P[:width], estimator=estimator, exponent=0.5, **SETTING)
    (axes,), _ = build("fig3", cells)
    assert sorted(labels(axes)) == [
        f"Sequoia (b = 0.50, estimator {e}, width {w})" for e, w in (("analytic", 3), ("counts", 4))
    ]
    assert len(lines(axes, linestyle="-")) == len(lines(axes, linestyle="--")) == 1


def test_no_rate_at_all_says_so(cells) -> None:
    cells.add_vector(P, measured=False, **SETTING)
    with pytest.raises(NoResultsError, match="rejection rate"):
        build("fig3", cells)


def test_forward_times_have_no_flat_span_of_another_paper(cells) -> None:
    cells.add_latency(sizes=(1, 64))
    (axes,), table = build("fig4", cells)
    times = cells.load().latency.groupby(["role", "num_tokens"])["forward_s"].median() * 1000
    assert lines(axes) == [
        [(size, pytest.approx(times[role, size])) for size in (1, 64)] for role in ("target", "draft")
    ]
    assert table.title.startswith("Sequoia Figure 4")
    assert not [note for note in table.notes if "paper" in note]
    assert not [label for label in labels(axes) if "flat" in label]
    assert table.frame["Device"].tolist() == ["Test CPU"] * 4


def test_speedup_by_temperature_has_a_line_per_rule(cells) -> None:
    fill_temperatures(cells)
    (axes,), table = build("fig5b", cells)
    runs = cells.load().runs
    drawn = {line.get_label(): line for line in axes.lines}
    for rule, label in zip(RULES, ("Sequoia", "SpecInfer", "top-k"), strict=True):
        own = runs[runs["verifier"] == rule].sort_values("temperature")
        expected = [speedup_of(cells, run_id) for run_id in own["run_id"]]
        assert list(drawn[label].get_xdata()) == [0.2, 0.6, 1.0]
        assert list(drawn[label].get_ydata()) == pytest.approx(expected)
    assert "N = 128" in axes.get_title()
    assert table.frame["Rule"].tolist() == ["Sequoia"] * 3 + ["SpecInfer"] * 3 + ["top-k"] * 3


def test_leads_stand_beside_the_papers(cells) -> None:
    fill_temperatures(cells)
    failed = cells.add("sequoia", params={"n": 127}, verifier="k_seq", status="failed", **SETTING)
    _, table = build("fig5b", cells)
    assert (table.frame["lead"] == "–").tolist() == [True] * 3 + [False] * 3 + [True] + [False] * 3
    assert table.frame["lead published"].tolist() == ["–"] * 3 + ["1.65"] * 3 + ["–"] + ["1.27"] * 3
    assert row_of(table, failed)["speedup"] == "failed"
    largest = max(table.frame["lead"][3:6])
    assert any(f"over SpecInfer is {largest}, " in note and "1.65" in note for note in table.notes)


def test_a_lead_over_other_conversations_is_absent(cells) -> None:
    for rule in ("without_replacement", "spec_infer"):
        cells.add("sequoia", params={"n": 127}, verifier=rule, **SETTING)
    assert build("fig5b", cells)[1].frame["lead"].str.contains(r"^(?:–|\d\.\d{3} \[\d\.\d{3}, \d\.\d{3}\])$").all()
    path = cells.store.path("prompts", cells.load().runs.set_index("verifier")["run_id"]["spec_infer"])
    rows = pd.read_parquet(path)
    rows.assign(prompt_id="other " + rows["prompt_id"]).to_parquet(path)
    _, table = build("fig5b", cells)
    assert table.frame["lead"].tolist() == ["–", "–"]
    assert not any("largest lead" in note for note in table.notes)


def test_trees_of_several_sizes_are_lines_of_their_own(cells) -> None:
    for n in (63, 127):
        cells.add("sequoia", params={"n": n}, verifier="spec_infer", **SETTING)
    (axes,), table = build("fig5b", cells)
    assert labels(axes) == ["SpecInfer (Sequoia, N = 64)", "SpecInfer (Sequoia, N = 128)"]
    assert table.frame["lead"].tolist() == ["–", "–"]


def test_speedup_by_size_and_the_chosen_tree(cells) -> None:
    fill_hardware(cells)
    (axes,), table = build("fig5c", cells)
    runs = cells.load().runs
    sizes = [speedup_of(cells, run_id) for run_id in runs.loc[runs["method"] == "sequoia", "run_id"]]
    chosen = runs.loc[runs["method"] == "sequoia_hardware", "run_id"].item()
    own = speedup_of(cells, chosen)
    assert lines(axes, color=style.of_method("sequoia")["color"]) == [
        list(zip([8, 64, 512], map(pytest.approx, sizes), strict=True))
    ]
    assert [(64, pytest.approx(own))] in lines(axes, color=style.COLOURS[2])
    assert [y for _, y in lines(axes, color=style.COLOURS[2], linestyle="-")[0]] == pytest.approx([own, own])
    assert [y for _, y in lines(axes, linestyle="--")[0]] == [2.25, 2.25]
    assert labels(axes)[1:] == [f"hardware-aware, N = 64, 6 levels: {own:.2f}x", "predicted for it: 2.25x"]
    assert row_of(table, chosen)[["N", "levels", "speedup predicted", "MAL predicted"]].tolist() == [
        "64",
        "6",
        "2.25",
        "3.10",
    ]


def test_without_a_prediction_there_is_no_dashed_line(cells) -> None:
    cells.add("sequoia_hardware", params={"n": 63}, predicted_speedup=math.nan, **SAMPLING)
    failed = sized(cells, "sequoia", 1023, status="oom")
    (axes,), table = build("fig5c", cells)
    assert not lines(axes, linestyle="--")
    assert row_of(table, failed)[["N", "speedup"]].tolist() == ["1024", "oom"]
