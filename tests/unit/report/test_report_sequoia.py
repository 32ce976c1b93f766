"""Sequoia's tables: values against hand-made rows, published numbers beside them, and what was not run."""

import math
from itertools import accumulate, pairwise

import pytest

from bench.artifacts.outputs import NoResultsError, read_results
from bench.artifacts.tables import Table
from bench.papers.registry import ARTIFACTS
from bench.papers.sequoia import bounds
from bench.statistics import samples

P = [0.5, 0.2, 0.1, 0.05]
"""P_1 to P_4: 0.5, 0.7, 0.8, 0.85."""
ACCEPTED = list(accumulate(P))
GROWTH = {"sequoia": {3: 1.85, 15: 2.6}, "k_sequences": {3: 1.8, 15: 2.3}, "sequence": {3: 1.875}}
SAMPLING = {"temperature": 0.6, "verifier": "without_replacement", "draws": "without_replacement"}
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


def test_an_experiment_of_acceptance_vectors_alone_is_read(cells) -> None:
    with pytest.raises(NoResultsError):
        read_results(cells.store.folder, None)
    cells.add_vector(P)
    assert len(read_results(cells.store.folder, None).acceptance) == len(P)
