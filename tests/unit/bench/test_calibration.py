"""What trees are calibrated with: measured once, kept apart from cells, and chosen as an exhaustive search would."""

import json

import pytest
from cells import config, execute, stamps

from bench import calibration, forward_times
from bench.configs import cell_of
from bench.records import LatencyRow
from bench.store import Store, load
from specdec_core import shapes
from specdec_core.search import best_tree, expected_tokens

FEW = ("pair=tiny", "dataset=mini", "limit=2", "decoding.max_new_tokens=8", "runtime.warmup_conversations=0")
GRID = "calibration.latency.num_tokens=[1,2,4,8,16,32]"
SIZES = (1, 2, 4, 8, 16, 32)


def vectors(results):
    """Measured vectors by the file they are in."""
    files = (results / "calibration" / "acceptance").glob("*.json")
    return {path.stem: json.loads(path.read_text()) for path in files}


def planned(results, *overrides):
    """The cell of some overrides, calibrated."""
    return cell_of(config(f"results_dir={results}", *FEW, GRID, *overrides))


def forwards_take(monkeypatch, seconds):
    """Replace the clock: a forward of so many tokens takes `seconds(role, tokens)`."""

    def measure(spec, grid, runtime, store):
        facts = {"device_name": "none", "dtype": "float32", "num_prefix": grid.num_prefix, "repeat": 0}
        rows = [
            LatencyRow(
                run_id="times",
                pair=spec.name,
                role=role,
                model_id="none",
                num_tokens=size,
                forward_s=seconds(role, size),
                **facts,
            )
            for role in ("target", "draft")
            for size in grid.num_tokens
        ]
        store.write("latency", "times", rows)
        return "times"

    monkeypatch.setattr(forward_times, "measure", measure)


def test_a_vector_is_measured_once_for_all_that_share_it(tmp_path):
    for drafter in ("sequoia", "sized_sequoia", "sized_k_sequences"):
        assert execute(tmp_path, *FEW, f"drafter={drafter}") == "ok"
    (first,) = vectors(tmp_path)
    kept = {path: stamp for path, stamp in stamps(tmp_path).items() if path.startswith("calibration/")}
    assert execute(tmp_path, *FEW, "drafter=sequoia", "drafter.n=5") == "ok"
    assert {path: stamp for path, stamp in stamps(tmp_path).items() if path.startswith("calibration/")} == kept
    assert execute(tmp_path, *FEW, "drafter=sequoia", "decoding=t06", "verifier=by_draws") == "ok"
    assert len(vectors(tmp_path)) == 2
    results = load(tmp_path, "default")
    assert set(results.acceptance["run_id"]) == set(vectors(tmp_path)) == set(results.growth["run_id"])
    greedy = results.runs[results.runs["temperature"] == 0]
    assert len(greedy) == 4
    for parameters in greedy["drafter_params"].map(json.loads):
        vector = parameters.get("acceptance") or parameters["shape"]["acceptance"]
        assert sum(vector) == pytest.approx(sum(vectors(tmp_path)[first]["p"]))
        assert sorted(vector, reverse=True) == vector


def test_runs_say_what_was_predicted_for_their_tree(tmp_path):
    cell = planned(tmp_path, "drafter=sequoia", "drafter.n=9", "drafter.depth=3")
    vector = cell.drafter_params["acceptance"]
    assert cell.predicted_mal == pytest.approx(expected_tokens(best_tree(acceptance=vector, n=9, depth=3), vector))
    assert cell.predicted_speedup is None
    assert planned(tmp_path, "drafter=opt_tree").predicted_mal is None
    cell = planned(tmp_path, "drafter=sized_k_sequences", "+size=8")
    best = max(expected_tokens(shapes.sequences(k, 8), vector) for k in range(1, 9))
    assert cell.predicted_mal == pytest.approx(best)
    assert execute(tmp_path, *FEW, "drafter=sequoia", "drafter.n=9", "drafter.depth=3") == "ok"
    (row,) = load(tmp_path, "default").runs.to_dict("records")
    assert row["predicted_mal"] == pytest.approx(expected_tokens(best_tree(acceptance=vector, n=9, depth=3), vector))


@pytest.mark.parametrize(
    "seconds",
    [
        lambda role, size: 1.0 if role == "target" else 0.001,
        lambda role, size: 1.0 + 0.1 * size if role == "target" else 0.001,
        lambda role, size: 1.0 if role == "target" else 0.4,
        lambda role, size: 1.0 * size if role == "target" else 0.5,
    ],
    ids=["free", "tokens_cost", "drafting_costs", "nothing_pays"],
)
@pytest.mark.parametrize("passes", ["depth", "levels"])
def test_the_hardware_aware_tree_is_the_best_of_all_sizes_and_depths(monkeypatch, tmp_path, seconds, passes):
    forwards_take(monkeypatch, seconds)
    options = (f"calibration.draft_passes={passes}", "calibration.depths=6")
    cell = planned(tmp_path, "drafter=sequoia_hardware", *options)
    vector, more = cell.drafter_params["acceptance"], int(passes == "levels")

    def speedup(n, depth):
        tokens = expected_tokens(best_tree(acceptance=vector, n=n, depth=depth), vector)
        return tokens * seconds("target", 1) / (seconds("target", n + 1) + (depth + more) * seconds("draft", 1))

    found = {
        (size - 1, depth): speedup(size - 1, depth) for size in SIZES[1:] for depth in range(1, min(6, size - 1) + 1)
    }
    assert cell.predicted_speedup == pytest.approx(max(found.values()))
    n, depth = cell.drafter_params["n"], cell.drafter_params["depth"]
    assert found[n, depth] == pytest.approx(cell.predicted_speedup)
    assert cell.predicted_mal == pytest.approx(expected_tokens(best_tree(acceptance=vector, n=n, depth=depth), vector))


def test_a_given_vector_is_not_measured(monkeypatch, tmp_path):
    forwards_take(monkeypatch, lambda role, size: 1.0 if role == "target" else 0.001)
    cell = planned(tmp_path, "drafter=sequoia_hardware", "drafter.acceptance=[0.5,0.25]", "calibration.depths=4")
    assert not vectors(tmp_path)
    assert (cell.drafter_params["n"], cell.drafter_params["depth"]) == (30, 4)
    assert cell.predicted_mal == pytest.approx(sum(0.75**depth for depth in range(5)))


def test_the_depth_alone_may_be_hardware_aware(monkeypatch, tmp_path):
    """As for offloaded targets: where drafting costs nothing a deep tree is best, where it costs much a flat one."""
    chosen = ("drafter=sequoia_offload", "drafter.n=15")
    forwards_take(monkeypatch, lambda role, size: 1.0 if role == "target" else 0.0)
    deep = planned(tmp_path, *chosen).drafter_params
    forwards_take(monkeypatch, lambda role, size: 1.0 if role == "target" else 10.0)
    flat = planned(tmp_path / "other", *chosen).drafter_params
    assert (deep["n"], flat["depth"]) == (15, 1)
    assert flat["n"] == min(15, sum(p > 0 for p in flat["acceptance"]))
    assert deep["depth"] == best_tree(acceptance=deep["acceptance"], n=15).depth > 1
    with pytest.raises(ValueError, match="num_tokens lacks 21"):
        planned(tmp_path, "drafter=sequoia_offload", "drafter.n=20")


@pytest.mark.parametrize("wrong", ["acceptance=mesured", "n=hardwear", "depth=hard"])
def test_mistyped_words_are_refused_in_a_sentence(wrong, tmp_path):
    key, _, word = wrong.partition("=")
    with pytest.raises(ValueError, match=f'unknown drafter.{key} "{word}"'):
        planned(tmp_path, "drafter=sequoia", f"drafter.{wrong}")


def test_cells_of_another_temperature_may_share_one_tree(tmp_path):
    """Sequoia's Table 6 and Figure 5 (middle): rules and temperatures differ, the tree does not."""
    one = "calibration.acceptance.temperature=0.6"
    chosen = (one, "drafter=sequoia", "drafter.draws=${draws_for_rule:}")
    cells = [
        planned(tmp_path, *chosen, f"decoding={decoding}", f"verifier={verifier}")
        for decoding in ("t02", "t06", "t1_top_p08")
        for verifier in ("without_replacement", "spec_infer", "target_sample", "k_seq")
    ]
    by_top_p = {cell.sampling.top_p: cell.drafter_params["acceptance"] for cell in cells}
    assert all(cell.drafter_params["acceptance"] == by_top_p[cell.sampling.top_p] for cell in cells)
    assert {cell.drafter_params["draws"] for cell in cells} == {"without_replacement", "iid", "topk"}
    assert len(vectors(tmp_path)) == 2
    assert {vector["request"]["temperature"] for vector in vectors(tmp_path).values()} == {0.6}


@pytest.mark.parametrize(
    ("drafter", "decoding", "rule", "draws"),
    [
        ("sequoia", "greedy", "TargetSample", "topk"),
        ("sequoia", "t06", "WithoutReplacement", "without_replacement"),
        ("spec_infer_5x8", "greedy", "TargetSample", "topk"),
        ("spec_infer_5x8", "t06", "SpecInfer", "iid"),
        ("binary", "t06", "TargetSample", "topk"),
        ("autoregressive", "t06", "TargetSample", None),
    ],
)
def test_the_rule_may_follow_the_draws(tmp_path, drafter, decoding, rule, draws):
    cell = planned(tmp_path, f"drafter={drafter}", f"decoding={decoding}", "verifier=by_draws")
    assert type(cell.rule).__name__ == rule
    assert cell.drafter_params.get("draws") == draws
    if decoding != "greedy" and draws not in (None, "topk"):
        assert cell.drafter_params["draft_temperature"] == cell.sampling.temperature


def test_vectors_and_times_may_be_all_that_is_measured(tmp_path):
    chosen = (*FEW, "dataset.part=calibration", "calibration.latency.repeats=2", GRID)
    assert execute(tmp_path, *chosen, "measure=acceptance", "verifier=k_seq", "decoding=t1") == "ok"
    assert execute(tmp_path, *chosen, "measure=latency") == "ok"
    results = load(tmp_path, "default")
    assert results.runs.empty
    assert set(results.acceptance["draws"]) == {"iid"}
    assert sorted(results.acceptance["k"]) == list(range(1, 33))
    assert set(results.latency["num_tokens"]) == set(SIZES)
    kept = Store(tmp_path, calibration.FOLDER).read("latency")
    assert kept.equals(results.latency)
    with pytest.raises(ValueError, match='did you mean "latency"'):
        execute(tmp_path, *chosen, "measure=latancy")
