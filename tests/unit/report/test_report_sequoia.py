"""Sequoia's Tables 1 and 2 and its figures: formulas by hand, and which vectors, runs and printed numbers they take.

That curves have their tables' values is in test_drawn, what these are in test_recomputed_long.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate, pairwise

import pandas as pd
import pytest
import recomputed
from drawn import axes_of, build, column, labels, lines, mal_of, outputs, row_of, speedup_of, table_of
from sequoia_fills import (
    GROWTH,
    SAMPLING,
    SETTING,
    P,
    fill_hardware,
    fill_rejections,
    fill_sizes,
    fill_temperatures,
    sized,
)

from specdec_trees.artifacts.outputs import NoResultsError, read_results
from specdec_trees.papers.sequoia import bounds
from specdec_trees.papers.sequoia.tokens import places

ACCEPTED = list(accumulate(P))
LLAMA_13B = {"target": "llama2_13b", "draft": "jf68m", "stand_in": False}


def test_bounds_by_hand() -> None:
    assert bounds.k_ary(ACCEPTED, 1) == pytest.approx(2)
    assert bounds.sequence_of(ACCEPTED, 2) == pytest.approx(1 + 0.5 + 0.25)
    assert bounds.k_sequences(ACCEPTED, 3) == pytest.approx(1 + 0.8 / 0.5)
    assert bounds.k_sequences_loose(ACCEPTED, 3) == pytest.approx(1 + 1 / 0.2)
    assert bounds.k_ary(ACCEPTED, 4) == pytest.approx(1 / 0.15)
    assert bounds.k_ary([1.0], 1) == math.inf


def test_limits_are_those_at_the_best_k() -> None:
    limits = bounds.limits(ACCEPTED)
    assert {name: k for name, (_, k) in limits.items()} == {"sequence": 1, "k_sequences": 4, "binary": 2, "k_ary": 4}
    values = [limits[name][0] for name in ("sequence", "k_sequences", "binary", "k_ary")]
    assert values == pytest.approx([2, 1 + 0.85 / 0.5, 1 / 0.3, 1 / 0.15])


@pytest.mark.parametrize("p", [P, [0.2, 0.5, 0.1], [0.0, 0.3, 0.3]])
def test_k_sequences_never_pass_their_limit(p: list[float]) -> None:
    """F of k sequences of length l is 1 + (p_1 + ... + p_k) (1 + p_1 + ... + p_1^(l-1)), for the smoothed p."""
    sums = [0.0, *bounds.concave(list(accumulate(p)))]
    smooth = [after - before for before, after in pairwise(sums)]
    assert all(after <= before + 1e-12 for before, after in pairwise(smooth))
    assert sum(smooth) == pytest.approx(sum(p))
    limit = bounds.limits(list(accumulate(p)))["k_sequences"][0]
    for k in range(1, len(p) + 1):
        for length in (1, 3, 40):
            value = 1 + sum(smooth[:k]) * sum(smooth[0] ** depth for depth in range(length))
            assert value <= limit + 1e-12
    assert 1 + sum(smooth) * sum(smooth[0] ** depth for depth in range(200)) == pytest.approx(limit)


def test_concave_leaves_a_falling_vector_alone_and_pools_a_rising_one() -> None:
    assert bounds.concave(ACCEPTED) == pytest.approx(ACCEPTED)
    assert bounds.concave([0.2, 0.7, 0.8]) == pytest.approx([0.35, 0.7, 0.8])


def test_table_1_evaluates_the_bounds_at_the_vector(cells) -> None:
    run_id = cells.add_vector(P, growth={"sequoia": {3: 1.85, 15: 2.6}})
    made = table_of("sequoia/table1", cells)
    rows = made.frame.set_index("structure")
    assert rows.loc["Sequence", "value"] == "2.00 [1.82, 2.22]"  # 1 / 0.5, 1 / 0.55, 1 / 0.45
    assert rows.loc["k independent sequences", ["k_2", "k_4", "k_8"]].tolist() == ["2.40", "2.70", "–"]
    assert rows.loc["Binary tree", "value"].startswith("3.33 [")
    assert rows.loc["k-ary tree", "k_4"].startswith("6.67 [")
    assert rows.loc["Sequoia", "largest"] == "2.60 at N=16"
    assert set(made.runs) == {run_id}


def test_table_2_has_the_finite_sequence_and_the_forward_times(cells) -> None:
    cells.add_vector(P)
    cells.add_latency(sizes=(1, 8))
    made = table_of("sequoia/table2", cells)
    rows = made.frame.set_index("structure")
    assert rows.loc["1 sequence", "size_4"] == f"{1 + 0.5 + 0.25 + 0.125 + 0.0625:.2f}"
    assert rows.loc["1 sequence", "limit"].startswith("2.00 [")
    assert rows.loc["k independent sequences", "size_2"] == f"{1 + 1 / 0.3:.2f}"
    assert rows.loc["Sequoia", "largest"] == "–"
    times = cells.load().latency.groupby(["role", "num_tokens"])["forward_s"].median()
    assert any(f"t(8) = {times['target', 8] / times['target', 1]:.2f}; c = " in note for note in made.notes)


def test_formulas_of_a_rule_without_rejection_rates_and_of_one_that_never_rejects(cells) -> None:
    cells.add_vector(P, measured=False, verifier="k_seq", draws="iid")
    cells.add_vector([1.0], verifier="target_sample", draws="topk")
    rows = table_of("sequoia/table1", cells).frame.set_index(["rule", "structure"])
    assert rows.loc[("SpecTr", "Sequence"), "value"] == "2.00"
    assert rows.loc[("top-k", "Sequence"), "value"] == "infinite"
    assert rows.loc[("top-k", "Binary tree"), "value"] == "–"


def test_without_a_vector_there_are_no_formulas_and_one_alone_is_read(cells) -> None:
    cells.add("sequoia", params={"n": 127})
    for name in ("table1", "table2"):
        with pytest.raises(NoResultsError):
            build(f"sequoia/{name}", cells)
    cells.add_vector(P)
    assert len(read_results(cells.store.folder, None).acceptance) == len(P)


# Figures 1, 2 and 5a


def test_limits_are_at_the_best_k_of_each_structure(cells) -> None:
    fill_sizes(cells)
    (axes,), made = build("sequoia/fig1", cells)
    limits = {"Sequoia": "–", "k sequences": "2.70", "k-ary tree": "6.67", "binary tree": "3.33", "sequence": "2.00"}
    assert made.frame.groupby("label")["limit"].first().to_dict() == limits
    dotted = sorted(line[0][1] for line in lines(axes, linestyle=":"))
    assert dotted == pytest.approx([2.0, 2.7, 1 / 0.3]), "the k-ary tree's is far above all else"


def test_of_several_vectors_the_one_for_these_draws_of_most_positions_counts(cells) -> None:
    sized(cells, "sequoia", 7)
    for positions, tokens in ((10, 1.1), (5000, 2.2), (20, 3.3)):
        cells.add_vector(P, growth={"sequoia": {7: tokens}}, num_positions=positions, **SETTING)
    cells.add_vector(P, growth={"sequoia": {7: 9.9}}, num_positions=9999, draws="iid", verifier="spec_infer", **SETTING)
    axes, made = build("sequoia/fig1", cells)
    assert len(axes) == 4, "the run's, and a panel for each vector that has no run"
    assert made.frame["expected_tree"].iloc[0] == "2.20"
    assert sorted(made.frame["expected_tree"]) == ["1.10", "2.20", "3.30", "9.90"]


def test_a_vector_without_runs_and_runs_without_a_vector_are_drawn(cells) -> None:
    cells.add_vector(P, growth=GROWTH, **SETTING | {"dataset": "c4"})
    for n in (7, 31):
        sized(cells, "sequoia", n)
    (measured, expected), made = build("sequoia/fig2", cells)
    assert [len(line) for line in lines(measured)] == [2]
    assert len([line for line in lines(expected) if len(line) == 4]) == 5
    assert made.frame.loc[made.frame["name"].str.startswith("Sequoia, n = "), "expected_tree"].tolist() == ["–", "–"]


@pytest.mark.parametrize("given", [{}, {"published": LLAMA_13B}])
def test_gains_are_sequoia_over_the_best_k_sequences(given: dict, cells) -> None:
    """The paper's stands beside ours in its setting, of its models and of what stands in for them."""
    fill_sizes(cells, pair="llama2_13b_jf68m", **given)
    best = sized(cells, "k_sequences", 7, mal=4.0, pair="llama2_13b_jf68m", drafter="other", **given)
    made = table_of("sequoia/fig5a", cells)
    rows = made.frame[made.frame["label"] == "Sequoia"].set_index("words")
    files = recomputed.Files(cells.store.folder)
    value, low, high = recomputed.mal_ratio(files.steps(made.runs[1]), files.steps(best))
    assert value == pytest.approx(mal_of(cells, made.runs[1]) / mal_of(cells, best))
    assert rows.loc["8", "gain"] == f"{value:.3f} [{low:.3f}, {high:.3f}]"
    assert rows.loc["2", "gain"] == "–"
    assert rows["gain_published"].tolist() == ["–", "–", "–", "1.33"]


@pytest.mark.parametrize("name", ["fig1", "fig5a", "fig5b", "fig5c", "table3", "table4"])
def test_rows_of_an_earlier_version_without_predictions_are_read(name: str, cells) -> None:
    fill_hardware(cells)
    results = cells.load()
    runs = results.runs.drop(columns=["predicted_mal", "predicted_speedup"])
    cells.load = lambda: replace(results, runs=runs)
    assert outputs(f"sequoia/{name}", cells)


@pytest.mark.parametrize("name", ["fig1", "fig2", "fig5a", "fig5b", "fig5c"])
def test_one_conversation_has_no_interval_and_is_drawn(name: str, cells) -> None:
    run_id = sized(cells, "sequoia", 7, conversations=1)
    cells.add_vector([1.0], growth={"sequoia": {7: 2.0}, "sequence": {7: 8.0}}, **SETTING)
    _, made = build(f"sequoia/{name}", cells)
    assert row_of(made, run_id).str.fullmatch(r"\d+\.\d\d").any()
    assert not row_of(made, run_id).str.contains("–, ", regex=False).any()


def test_trees_are_drawn_as_their_parents_say(cells) -> None:
    fill_sizes(cells)
    *_, trees = outputs("sequoia/fig1", cells)
    assert len(trees.canvas.axes) == len(GROWTH)
    for axes in trees.canvas.axes:
        assert len(axes.lines) == 31
        dots = {tuple(dot) for dot in axes.collections[0].get_offsets().tolist()}
        assert len(dots) == 32, "no two nodes in one place"
        assert {tuple(end) for line in axes.lines for end in line.get_xydata().tolist()} == dots
        for parent, child in (line.get_xydata().tolist() for line in axes.lines):
            assert child[1] == parent[1] + 1


def test_leaves_stand_side_by_side_and_parents_over_their_children() -> None:
    assert places([-1, 0, 0, 1, 1, 2, 3]) == [(1.25, 0), (0.5, 1), (2, 1), (0, 2), (1, 2), (2, 2), (0, 3)]
    assert places([-1]) == [(0, 0)]


# Figures 3, 4, 5b and 5c


def test_rejection_rates_by_rule_and_temperature(cells) -> None:
    fill_rejections(cells)
    axes, made = build("sequoia/fig3", cells)
    assert len(axes) == 3
    for panel in axes:
        drawn = lines(panel)
        assert len(drawn) == 3, "SpecTr has no rates"
        for line in drawn:
            assert line == [
                (k, pytest.approx(rate)) for k, rate in zip((1, 2, 3, 4), (0.5, 0.3, 0.2, 0.15), strict=True)
            ]
    assert made.frame["rule"].tolist() == ["Sequoia", "SpecInfer", "SpecTr", "top-k"] * 3
    assert made.frame[["r_1", "r_4"]].iloc[0].tolist() == ["0.5000 [0.4500, 0.5500]", "0.1500 [0.1350, 0.1650]"]
    assert made.frame[["b", "r_1", "r_4"]].iloc[2].tolist() == ["–", "–", "–"]


def test_rates_that_are_zero_or_unknown_are_left_out(cells) -> None:
    cells.add_vector([0.5, 0.3], measured=False, **SETTING | {"temperature": 1.0})
    with pytest.raises(NoResultsError):
        build("sequoia/fig3", cells)
    cells.add_vector([0.6, 0.4, 0.0], **SETTING)
    (axes,), made = build("sequoia/fig3", cells)
    assert lines(axes) == [[(1, 0.4)]]
    assert len(made.frame) == 2


def test_two_vectors_of_a_rule_are_told_apart(cells) -> None:
    for width, estimator in ((3, "analytic"), (4, "counts")):
        cells.add_vector(P[:width], estimator=estimator, exponent=0.5, **SETTING)
    (axes,) = axes_of("sequoia/fig3", cells)
    assert len(set(labels(axes))) == 2
    assert len(lines(axes, linestyle="-")) == len(lines(axes, linestyle="--")) == 1


def test_forward_times_are_medians(cells) -> None:
    cells.add_latency(sizes=(1, 64))
    (axes,) = axes_of("sequoia/fig4", cells)
    times = cells.load().latency.groupby(["role", "num_tokens"])["forward_s"].median() * 1000
    expected = [[(size, pytest.approx(times[role, size])) for size in (1, 64)] for role in ("target", "draft")]
    assert lines(axes) == expected


def test_leads_stand_beside_the_papers(cells) -> None:
    fill_temperatures(cells)
    failed = cells.add("sequoia", params={"n": 127}, verifier="k_seq", status="failed", **SETTING)
    made = table_of("sequoia/fig5b", cells)
    leads, speeds = (column(made, key, who="verifier", temperature=0.6) for key in ("lead", "speedup"))
    assert leads["spec_infer"] == pytest.approx(speeds["without_replacement"] / speeds["spec_infer"])
    assert column(made, "lead", "published", who="verifier", temperature=0.6) == {
        **dict.fromkeys(("without_replacement", "k_seq")),
        "spec_infer": 1.65,
        "target_sample": 1.27,
    }
    assert row_of(made, failed)["speedup"] == "failed"


def test_a_lead_over_other_conversations_is_absent(cells) -> None:
    for rule in ("without_replacement", "spec_infer"):
        cells.add("sequoia", params={"n": 127}, verifier=rule, **SETTING)
    assert column(table_of("sequoia/fig5b", cells), "lead", who="verifier")["spec_infer"] is not None
    path = cells.store.path("prompts", cells.load().runs.set_index("verifier")["run_id"]["spec_infer"])
    rows = pd.read_parquet(path)
    rows.assign(prompt_id="other " + rows["prompt_id"]).to_parquet(path)
    assert set(column(table_of("sequoia/fig5b", cells), "lead", who="verifier").values()) == {None}


def test_trees_of_several_sizes_are_lines_of_their_own(cells) -> None:
    for n in (63, 127):
        cells.add("sequoia", params={"n": n}, verifier="spec_infer", **SETTING)
    (axes,), made = build("sequoia/fig5b", cells)
    assert len(labels(axes)) == 2
    assert made.frame["lead"].tolist() == ["–", "–"]


def test_speedup_by_size_and_the_chosen_tree(cells) -> None:
    fill_hardware(cells)
    (axes,), made = build("sequoia/fig5c", cells)
    chosen = cells.load().runs.set_index("drafter")["run_id"]["sequoia_hardware"]
    own = speedup_of(cells, chosen)
    assert [(64, pytest.approx(own))] in lines(axes)
    assert [y for _, y in lines(axes, linestyle="--")[0]] == [2.25, 2.25]
    row = row_of(made, chosen)
    assert row[["n", "levels", "predicted_speedup", "predicted_mal"]].tolist() == ["64", "6", "2.25", "3.10"]


def test_without_a_prediction_there_is_no_dashed_line(cells) -> None:
    cells.add("sequoia_hardware", params={"n": 63}, predicted_speedup=math.nan, **SAMPLING)
    failed = sized(cells, "sequoia", 1023, status="oom")
    (axes,), made = build("sequoia/fig5c", cells)
    assert not lines(axes, linestyle="--")
    assert row_of(made, failed)[["n", "speedup"]].tolist() == ["1024", "oom"]
