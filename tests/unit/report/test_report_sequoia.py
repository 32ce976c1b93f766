"""Sequoia's tables: values against hand-made rows, published numbers beside them, and what was not run."""

import math
from itertools import accumulate, pairwise

import pytest

from bench.artifacts.outputs import NoResultsError, read_results, write_all
from bench.artifacts.tables import Table
from bench.papers.registry import ARTIFACTS
from bench.papers.sequoia import bounds
from bench.statistics import samples

P = [0.5, 0.2, 0.1, 0.05]
"""P_1 to P_4: 0.5, 0.7, 0.8, 0.85."""
ACCEPTED = list(accumulate(P))
GROWTH = {"sequoia": {3: 1.85, 15: 2.6}, "k_sequences": {3: 1.8, 15: 2.3}, "sequence": {3: 1.875}}
SAMPLING = {"temperature": 0.6, "verifier": "without_replacement", "draws": "without_replacement"}
TABLE4 = {"pair": "llama2_7b_jf68m", "dataset": "cnn_dm", **SAMPLING}
REAL = {"target": "llama2_7b", "draft": "jf68m", "stand_in": False}


def build(name: str, cells) -> list[Table]:
    outputs = ARTIFACTS[f"sequoia/{name}"].build(name, cells.load())
    assert all(isinstance(output, Table) for output in outputs)
    return outputs


def speedup_mal(cells, run_id: str) -> str:
    results = cells.load()
    steps, prompts = (frame[frame["run_id"] == run_id] for frame in (results.steps, results.prompts))
    return f"{samples.interval(samples.speedup(prompts)).value:.2f}x ({steps['acceptance_length'].mean():.2f})"


def test_bounds_by_hand() -> None:
    assert bounds.sequence(ACCEPTED) == pytest.approx(2)
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
    assert bounds.concave([0.5]) == [0.5]


def test_table_1_evaluates_the_bounds_at_the_vector(cells) -> None:
    run_id = cells.add_vector(P, growth=GROWTH)
    (made,) = build("table1", cells)
    frame = made.frame.set_index("Structure")
    assert frame.loc["Sequence", "value"] == "2.00 [1.82, 2.22]"  # 1 / 0.5, 1 / 0.55, 1 / 0.45
    assert frame.loc["k independent sequences", ["k=2", "k=4", "k=8"]].tolist() == ["2.40", "2.70", "–"]
    assert frame.loc["Binary tree", "value"].startswith("3.33 [")
    assert frame.loc["k-ary tree", "k=4"].startswith("6.67 [")
    assert frame.loc["Sequoia", "Sequoia's largest tree"] == "2.60 at N=16"
    assert set(made.runs) == {run_id}
    for word in ("tiny", "c4", "temperature 0.6", "Test CPU"):
        assert word in made.title


def test_table_2_has_the_finite_sequence_and_the_forward_times(cells) -> None:
    cells.add_vector(P)
    cells.add_latency(sizes=(1, 8))
    (made,) = build("table2", cells)
    frame = made.frame.set_index("Structure")
    assert frame.loc["1 sequence", "n or k=4"] == f"{1 + 0.5 + 0.25 + 0.125 + 0.0625:.2f}"
    assert frame.loc["1 sequence", "limit"].startswith("2.00 [")
    assert frame.loc["k independent sequences", "n or k=2"] == f"{1 + 1 / 0.3:.2f}"
    assert frame.loc["Sequoia", "Sequoia's largest tree"] == "–"
    times = cells.load().latency.groupby(["role", "num_tokens"])["forward_s"].median()
    ratio = times["target", 8] / times["target", 1]
    assert any(f"t(8) = {ratio:.2f}; c = {times['draft', 1] / times['target', 1]:.3f}" in note for note in made.notes)


def test_formulas_of_a_rule_without_rejection_rates_and_of_one_that_never_rejects(cells) -> None:
    cells.add_vector(P, measured=False, verifier="k_seq", draws="iid")
    cells.add_vector([1.0], verifier="target_sample", draws="topk")
    frame = build("table1", cells)[0].frame.set_index(["Rule", "Structure"])
    assert frame.loc[("SpecTr", "Sequence"), "value"] == "2.00 [–, –]"
    assert frame.loc[("top-k", "Sequence"), "value"] == "infinite"
    assert frame.loc[("top-k", "Binary tree"), "value"] == "–"


@pytest.mark.parametrize("name", ["table1", "table2"])
def test_formulas_without_a_vector_say_so(name: str, cells) -> None:
    cells.add("sequoia", params={"n": 127})
    with pytest.raises(NoResultsError, match="acceptance"):
        build(name, cells)


def test_table_3_tells_sizes_apart(cells) -> None:
    made = {n: cells.add("sized_sequoia", "sequoia", params={"n": n - 1}, **TABLE4) for n in (64, 128, 256)}
    chosen = cells.add("sequoia_hardware", params={"n": 99}, predicted_speedup=1.75, predicted_mal=3.1, **TABLE4)
    wide, details = build("table3", cells)
    assert wide.frame["hardware-aware"].tolist() == [speedup_mal(cells, chosen)]
    assert wide.frame["N=128"].tolist() == [speedup_mal(cells, made[128])]
    assert wide.frame["N=256"].tolist() == [speedup_mal(cells, made[256])]
    assert wide.frame["hardware-aware predicted"].tolist() == ["1.75x (3.10)"]
    assert wide.frame["Tree"].tolist() == ["(100, 9)"]
    assert details.frame["N"].tolist() == ["100", "128", "256"]
    assert made[64] not in " ".join(wide.runs)


PRINTED = {
    "table4": ("4.04x (5.08)", "(128, 10)", "3.45x (3.96)", "3.70x (4.11)"),
    "table7": ("3.95x (4.68)", "(64, 10)", "3.50x (3.98)", "3.30x (4.10)"),
}
"""Llama-2-7B with JF68M, C4, greedy: Sequoia, its tree, SpecInfer 5x8, SpecInfer 8x8."""


@pytest.mark.parametrize("name", PRINTED)
def test_tables_4_and_7_set_the_printed_numbers_beside_ours(name: str, cells) -> None:
    options = {"pair": "llama2_7b_jf68m", "published": REAL, "dataset": "c4", "device": "NVIDIA A100"}
    run_id = cells.add("sequoia", params={"n": 127}, depth=9, **options)
    failed = cells.add("spec_infer_5x8", "spec_infer", status="oom", **options)
    wide, details = build(name, cells)
    row = wide.frame.iloc[0]
    assert row[["Sequoia", "Tree"]].tolist() == [speedup_mal(cells, run_id), "(128, 10)"]
    columns = ["Sequoia published", "Tree published", "SpecInfer 5x8 published", "SpecInfer 8x8 published"]
    assert row[columns].tolist() == list(PRINTED[name])
    assert row[["SpecInfer 5x8", "SpecInfer 8x8"]].tolist() == ["oom", "–"]
    assert wide.runs == (f"{run_id} {failed}",)
    of_method = details.frame.set_index("Method")
    results = cells.load()  # the failed run has neither steps nor prompts
    for header, sample in (("MAL", samples.mal(results.steps)), ("speedup", samples.speedup(results.prompts))):
        value = samples.interval(sample)
        assert of_method.loc["Sequoia", header] == f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"
    assert of_method.loc[["SpecInfer 5x8", "SpecInfer 8x8"], "verdict speedup"].tolist() == ["not run", "not run"]
    assert any("Not run: llama2_13b + jf68m" in note for note in wide.notes)


CHIP = {"dataset": "c4", "published": REAL, "device": "NVIDIA A100", "conversations": 12}
"""Table 4's (128, 10): tokens per step 5.08; of SpecInfer's trees 3.96 and 4.11."""
EXACT = CHIP | {"conversations": 120}
"""So many that an interval lies within 5% of a published value."""


def verdicts(cells, name: str) -> dict[str, tuple[str, str]]:
    """On tokens per step and on the speedup, by method."""
    rows = build(name, cells)[1].frame.to_dict("records")
    return {row["Method"]: (row["verdict MAL"], row["verdict speedup"]) for row in rows}


def test_tokens_per_step_are_judged_on_the_printed_tree_and_speedup_on_the_chosen_one(cells) -> None:
    options = CHIP | {"pair": "tiny", "published": REAL | {"stand_in": True}}
    cells.add("sequoia_hardware", params={"n": 7, "depth": 3}, depth=3, mal=2.0, speedup=3.0, **options)
    for shape, mal, speedup in (("5x8", 2.9, 1.5), ("8x8", 3.4, 2.2)):
        cells.add(f"spec_infer_{shape}", "spec_infer", mal=mal, speedup=speedup, **options)
    assert verdicts(cells, "table4") == {
        "Sequoia": ("not comparable: other tree", "order holds"),
        "Sequoia, printed size": ("not run", "not run"),
        "SpecInfer 5x8": ("order holds", "order holds"),  # set against each other alone
        "SpecInfer 8x8": ("order holds", "order holds"),
    }
    cells.add("sequoia_printed", params={"n": 127, "depth": 9}, depth=9, mal=2.4, speedup=1.0, **options)
    assert {method: mal for method, (mal, _) in verdicts(cells, "table4").items()} == {
        "Sequoia": "not comparable: other tree",
        "Sequoia, printed size": "differs",  # of fewer tokens than SpecInfer's trees, not of more
        "SpecInfer 5x8": "differs",
        "SpecInfer 8x8": "differs",
    }


def test_the_printed_tree_of_the_papers_pair_is_judged_by_value(cells) -> None:
    cells.add("sequoia_hardware", params={"n": 63, "depth": 6}, depth=6, mal=4.0, speedup=4.04, **EXACT)
    cells.add("sequoia_printed", params={"n": 127, "depth": 9}, depth=9, mal=5.08, speedup=1.0, **EXACT)
    found = verdicts(cells, "table4")
    assert found["Sequoia"] == ("not comparable: other tree", "matches")
    assert found["Sequoia, printed size"] == ("matches", "not comparable: no published value")
    wide, details = build("table4", cells)
    assert wide.frame["Sequoia, printed size published"].tolist() == ["– (5.08)"]
    assert details.frame.set_index("Method").loc["Sequoia, printed size", ["N", "levels"]].tolist() == ["128", "10"]


@pytest.mark.parametrize(("depth", "verdict"), [(9, "matches"), (8, "not comparable: other tree")])
def test_an_optimiser_that_finds_the_printed_tree_is_judged_on_it(depth: int, verdict: str, cells) -> None:
    run_id = cells.add("sequoia_hardware", params={"n": 127}, depth=depth, mal=5.08, **EXACT)
    found = verdicts(cells, "table4")
    assert found["Sequoia"][0] == verdict
    assert found["Sequoia, printed size"][0] == (verdict if depth == 9 else "not run")
    wide, details = build("table4", cells)
    assert wide.runs == (run_id,)
    assert not details.frame[["MAL", "speedup"]].stack().str.contains("=").any(), "a run does not tie with itself"


def test_table_3_does_not_say_which_tree_was_chosen(cells) -> None:
    cells.add("sequoia_hardware", params={"n": 63}, mal=2.0, speedup=3.0, **TABLE4)
    for n, mal in ((127, 2.6), (255, 3.2)):
        cells.add("sized_sequoia", "sequoia", params={"n": n}, mal=mal, speedup=1.0, **TABLE4)
    found = {method: mal for method, (mal, _) in verdicts(cells, "table3").items()}
    assert found["hardware-aware"] == "not comparable: other tree"
    assert {found["N=128"], found["N=256"]} == {"order holds"}


def test_table_4_of_a_setting_the_paper_has_not(cells) -> None:
    cells.add("sequoia", params={"n": 127}, published=REAL, dataset="mt_bench")
    wide, details = build("table4", cells)
    assert wide.frame["Sequoia published"].tolist() == ["–"]
    assert details.frame["verdict MAL"].tolist()[0] == "not comparable: no published value"


def test_the_hardware_aware_tree_goes_before_the_fixed_one(cells) -> None:
    cells.add("sequoia", params={"n": 127}, speedup=3.0)
    chosen = cells.add("sequoia_hardware", params={"n": 63}, speedup=1.5)
    assert build("table4", cells)[0].frame["Sequoia"].tolist() == [speedup_mal(cells, chosen)]


def test_of_several_runs_the_last_that_ended_well_counts_not_the_fastest(cells) -> None:
    for n, speedup, status in ((31, 3.0, "ok"), (15, 1.0, "oom")):
        cells.add("sequoia_hardware", params={"n": n}, speedup=speedup, status=status, **SAMPLING)
    last = cells.add("sequoia_hardware", params={"n": 63}, speedup=1.5, **SAMPLING)
    cells.add("sequoia_hardware", params={"n": 7}, status="failed", **SAMPLING)
    assert build("table4", cells)[0].frame["Sequoia"].tolist() == [speedup_mal(cells, last)]


def test_table_5_has_seconds_per_token_and_plain_offloading(cells) -> None:
    offloaded = {"target": "llama2_70b", "draft": "llama2_7b", "stand_in": False}
    cells.add("sequoia_hardware", params={"n": 767}, dataset="c4", published=offloaded)
    wide, details = build("table5", cells)
    rows = cells.load().prompts.groupby("arm")[["decode_s", "num_decoded_tokens"]].sum()
    seconds = rows["decode_s"] / rows["num_decoded_tokens"]
    assert wide.frame["s/token"].tolist() == [f"{seconds['method']:.4f}"]
    assert wide.frame[["s/token published", "SpecInfer 16x48 published"]].to_numpy().tolist() == [
        ["0.56", "6.46x (8.66)"]
    ]
    assert details.frame["s/token"].tolist()[0].startswith(f"{seconds['method']:.4f} [")
    plain = [note for note in wide.notes if "without a tree" in note]
    assert f"{seconds['autoregressive']:.4f} [" in plain[0]
    assert "5.6 s/token" in plain[0]


def test_table_6_has_a_column_per_rule_and_a_row_per_top_p(cells) -> None:
    rules = {"without_replacement": 2.0, "spec_infer": 1.8, "target_sample": 1.4}
    runs = {
        (top_p, rule): cells.add(
            "sequoia", params={"n": 127}, verifier=rule, top_p=top_p, speedup=speedup, dataset="cnn_dm", temperature=1.0
        )
        for top_p in (0.9, 1.0)
        for rule, speedup in rules.items()
    }
    wide, _ = build("table6", cells)
    assert wide.frame["top-p"].tolist() == ["0.9", "1.0"]
    assert wide.frame["top-k"].tolist() == [speedup_mal(cells, runs[(top_p, "target_sample")]) for top_p in (0.9, 1.0)]
    last = wide.frame.iloc[1]
    columns = ["Sequoia published", "SpecInfer published", "top-k published"]
    assert last[columns].tolist() == ["2.69x (3.26)", "2.55x (3.10)", "2.12x (2.44)"]
    assert "SpecTr" not in wide.frame  # in no table of the paper, and not run
    cells.add("sequoia", params={"n": 127}, verifier="k_seq", dataset="cnn_dm", temperature=1.0)
    assert build("table6", cells)[0].frame["SpecTr"].tolist()[0] == "–"


@pytest.mark.parametrize(
    ("name", "rows"), [("table3", 2), ("table4", 24), ("table5", 6), ("table6", 3), ("table7", 18)]
)
def test_without_runs_all_rows_of_the_paper_are_there(name: str, rows: int, cells) -> None:
    wide, details = build(name, cells)
    assert len(wide.frame) == rows
    assert "not run" in wide.title
    unstated = {"Tree published"} if name == "table3" else set()
    published = [column for column in wide.frame if column.endswith("published") and column not in unstated]
    assert (wide.frame[published] != "–").all(axis=None)
    assert set(details.frame["verdict speedup"]) == {"not run"}


@pytest.mark.parametrize("name", ["table3", "table4", "table5", "table6", "table7"])
def test_one_conversation_and_missing_predictions_are_no_crash(name: str, cells, tmp_path) -> None:
    for drafter in ("sequoia", "sequoia_hardware"):
        cells.add(drafter, params={"n": 127}, conversations=1, predicted_mal=math.nan, verifier="without_replacement")
    outputs = build(name, cells)
    assert len(write_all(outputs, tmp_path / name)) == 6
    assert all("nan" not in cell for output in outputs for cell in output.frame.to_numpy().ravel())


def test_an_experiment_of_acceptance_vectors_alone_is_read(cells) -> None:
    with pytest.raises(NoResultsError):
        read_results(cells.store.folder, None)
    cells.add_vector(P)
    assert len(read_results(cells.store.folder, None).acceptance) == len(P)
