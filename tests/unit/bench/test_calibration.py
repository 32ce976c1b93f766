"""What trees are calibrated with: measured once, kept apart from cells, and chosen as an exhaustive search would."""

import json

import pytest
from cells import QUIET, config, execute, finish, stamps, start

from specdec_core import shapes
from specdec_core.search import best_tree, expected_tokens
from specdec_trees.calibrate import kept
from specdec_trees.configs.cells import cell_of
from specdec_trees.measure import once
from specdec_trees.prompts.datasets import DatasetError
from specdec_trees.results.kept_rows import FOLDER
from specdec_trees.results.store import Store, load

FEW = ("pair=tiny", "dataset=mini", "limit=2", "decoding.max_new_tokens=8", "runtime.warmup_conversations=0")
GRID = "calibration.latency.num_tokens=[1,2,4,8,16,32]"
SIZES = (1, 2, 4, 8, 16, 32)


def vectors(results):
    """The rows of measured vectors by their ids."""
    return dict(list(Store(results, "calibration").read("acceptance").groupby("run_id")))


def planned(results, *overrides):
    """The cell of some overrides, calibrated."""
    return cell_of(config(f"results_dir={results}", *FEW, GRID, *overrides))


def forwards_take(monkeypatch, seconds):
    """Replace the clock: a forward of so many tokens takes `seconds(role, tokens)`."""

    def latency(setting):
        sizes = setting.plan.latency.num_tokens
        return {role: {size: seconds(role, size) for size in sizes} for role in ("target", "draft")}

    monkeypatch.setattr(kept, "latency", latency)


def test_a_vector_is_measured_once_for_all_that_share_it(tmp_path):
    for drafter in ("sequoia", "sized_sequoia", "sized_k_sequences"):
        assert execute(tmp_path, *FEW, f"drafter={drafter}") == "ok"
    (first,) = vectors(tmp_path)
    before = {path: stamp for path, stamp in stamps(tmp_path).items() if path.startswith("calibration/")}
    assert execute(tmp_path, *FEW, "drafter=sequoia", "drafter.n=5") == "ok"
    assert {path: stamp for path, stamp in stamps(tmp_path).items() if path.startswith("calibration/")} == before
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


@pytest.mark.long
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
    cell = planned(tmp_path, "drafter=sequoia_hardware", "verifier=by_draws", *options)
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
    assert cell.predicted_mal is None, "nothing says that the vector is this cell's"


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


def test_a_printed_tree_is_the_cells_own_and_none_is_refused_in_a_sentence(tmp_path):
    chosen = ("drafter=sequoia_printed", "drafter.acceptance=[0.6,0.2,0.1]", "name=sequoia/table7", "dataset.name=c4")
    found = planned(tmp_path, *chosen)
    assert (found.drafter_params["n"], found.drafter_params["depth"]) == (63, 9)
    assert found.config["drafter"]["n"] == 63
    assert found.run_id != planned(tmp_path, *chosen, "name=sequoia/table4").run_id, "there it has 127 nodes"
    for other in ("dataset.name=mini", "decoding=t1", "name=default", "name=sequoia/fig1"):
        with pytest.raises(
            ValueError, match=r"has no printed tree for (c4|mini) at temperature [01]; leave this drafter"
        ):
            planned(tmp_path, *chosen, other)


@pytest.mark.parametrize("wrong", ["acceptance=mesured", "n=hardwear", "depth=hard"])
def test_mistyped_words_are_refused_in_a_sentence(wrong, tmp_path):
    key, _, word = wrong.partition("=")
    with pytest.raises(ValueError, match=f"drafter.{key}={word}: .* or (measured|hardware) is expected"):
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
    assert {at for vector in vectors(tmp_path).values() for at in vector["temperature"]} == {0.6}


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
    assert Store(tmp_path, FOLDER).read("latency").equals(results.latency)
    with pytest.raises(ValueError, match='did you mean "latency"'):
        execute(tmp_path, *chosen, "measure=latancy")


def conversations(folder, *, marker=""):
    """A DATA_DIR of eight conversations; the first half is what vectors are measured on."""
    folder.mkdir(parents=True)
    lines = [json.dumps({"id": str(k), "turns": [f"def function_{k}(a, b):\n"]}) for k in range(8)]
    lines[1] = lines[1].replace("function", f"function{marker}")
    (folder / "mini.jsonl").write_text("\n".join(lines))
    return f"data_dir={folder}"


def test_a_vector_belongs_to_its_calibration_prompts_and_to_no_others(tmp_path):
    one, other = conversations(tmp_path / "one"), conversations(tmp_path / "other", marker="_of")
    for data, part, count in (
        (one, "evaluation", 1),
        (one, "calibration", 1),
        (one, "all", 1),
        (other, "evaluation", 2),
    ):
        planned(tmp_path / "r", "drafter=sequoia", data, f"dataset.part={part}")
        assert len(vectors(tmp_path / "r")) == count


def test_a_vector_of_selected_prompts_is_none_of_the_first_ones(monkeypatch, tmp_path):
    """The calibration part has the categories one after another, so that two prompts are one of each."""
    kinds = [kind for kind in ("coding", "writing") for _ in range(4)]
    lines = [
        json.dumps({"id": f"{kind}{k}", "turns": [f"def {kind}_{k}(a, b):\n"], "category": kind})
        for k, kind in enumerate([*kinds, *kinds])
    ]
    (tmp_path / "mini.jsonl").write_text("\n".join(lines))
    chosen = (*FEW, f"data_dir={tmp_path}", "drafter=sequoia", "drafter.n=8", "limit=2")
    planned(tmp_path / "r", *chosen)
    monkeypatch.setattr(kept, "fingerprint_selection", lambda *_: {})  # as it was, of the first two
    planned(tmp_path / "r", *chosen)
    assert len(vectors(tmp_path / "r")) == 2


def test_a_vector_belongs_to_the_switches_of_its_rule(tmp_path):
    chosen = (*FEW, "dataset.part=calibration", "measure=acceptance", "verifier=without_replacement", "decoding=t1")
    assert execute(tmp_path, *chosen) == "ok"
    assert execute(tmp_path, *chosen, "verifier.uniform_fallback=false") == "ok"
    assert len(vectors(tmp_path)) == 2


def test_force_measures_anew_once_per_process(tmp_path, monkeypatch):
    monkeypatch.setattr(once, "_forced", set())
    (tmp_path / "results").mkdir()
    planned(tmp_path, "drafter=sequoia")
    monkeypatch.setattr(once, "_forced", set())
    marks = []
    for drafter in ("sequoia", "sized_sequoia"):
        planned(tmp_path, f"drafter={drafter}", "force=true")
        marks.append({path: stamp for path, stamp in stamps(tmp_path).items() if "calibration/acceptance/run" in path})
        planned(tmp_path, f"drafter={drafter}")
    assert marks[0] == marks[1]
    assert len(marks[0]) == 1


@pytest.mark.long
def test_two_processes_measure_once(tmp_path):
    """The second waits for the first and takes its times, so that both choose the same tree."""
    chosen = (*FEW, "drafter=sequoia_hardware", GRID, "calibration.latency.repeats=5")
    both = [start(tmp_path, *QUIET, *chosen, "results_dir=r", f"seed={seed}") for seed in (0, 1)]
    assert sum(finish(process).count("forward times written") for process in both) == 1
    assert len(list((tmp_path / "r" / "calibration" / "latency").glob("*.parquet"))) == 1
    assert [execute(tmp_path / "r", *chosen, f"seed={seed}") for seed in (0, 1)] == ["skipped"] * 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (("verifier=by_draws",), True),
        (("verifier=by_draws", "decoding=t06"), True),
        (("verifier=spec_infer", "drafter.draws=iid", "decoding=t06"), False),
        (("verifier=target_sample", "drafter.draws=topk", "decoding=t06"), False),
        (("verifier=without_replacement", "decoding=t06", "calibration.acceptance.temperature=1"), False),
        (("verifier=without_replacement", "decoding=t1_top_p08", "calibration.acceptance.top_p=1"), False),
        (("verifier=without_replacement", "decoding=t06", "drafter.draft_temperature=1.5"), True),
    ],
)
def test_only_a_cell_like_the_vectors_is_predicted(overrides, says, tmp_path):
    cell = planned(tmp_path, "drafter=sequoia", *overrides)
    assert (cell.predicted_mal is not None) == says
    (vector,) = vectors(tmp_path).values()
    if "drafter.draft_temperature=1.5" in overrides:
        assert set(vector["draft_temperature"]) == {1.5}


def test_numbers_of_the_config_bound_the_hardware_aware_tree(monkeypatch, tmp_path):
    forwards_take(monkeypatch, lambda role, size: 1.0 if role == "target" else 0.0)
    chosen = ("drafter=sequoia_hardware", "drafter.acceptance=[0.4,0.3,0.2]")
    free = planned(tmp_path, *chosen).drafter_params
    assert free["depth"] > 1
    assert planned(tmp_path, *chosen, "drafter.depth=1").drafter_params["depth"] == 1
    narrow = planned(tmp_path, *chosen, "+drafter.max_children=1").drafter_params
    assert narrow["n"] == narrow["depth"]
    for grid, said in (("[2,4,8]", "num_tokens lacks 1"), ("[]", "from 1 on")):
        with pytest.raises(ValueError, match=said):
            planned(tmp_path, *chosen, f"calibration.latency.num_tokens={grid}")


def test_a_vector_may_go_into_the_search_as_it_was_measured(tmp_path):
    raw = planned(tmp_path, "drafter=sequoia", "calibration.acceptance.smooth=none").drafter_params["acceptance"]
    smooth = planned(tmp_path, "drafter=sequoia").drafter_params["acceptance"]
    assert raw != sorted(raw, reverse=True)
    assert smooth == sorted(smooth, reverse=True)
    assert sum(raw) == pytest.approx(sum(smooth))


def test_prompts_that_are_decoded_too_are_warned_of(tmp_path, caplog):
    for part, warned in (("evaluation", False), ("calibration", True), ("all", True), ("all", True)):
        caplog.clear()
        planned(tmp_path, "drafter=sequoia", f"dataset.part={part}")
        assert ("decoded too" in caplog.text) == warned


def test_one_conversation_is_too_few_to_split(tmp_path):
    (tmp_path / "mini.jsonl").write_text(json.dumps({"id": "0", "turns": ["x = 1"]}))
    with pytest.raises(DatasetError, match="at least two"):
        planned(tmp_path / "r", "drafter=sequoia", f"data_dir={tmp_path}")


def test_a_vector_may_be_measured_on_another_dataset(tmp_path, caplog):
    """OPT-Tree's Figure 6: trees made for C4, drafted on MT-Bench. The vector is that of cells of the other dataset."""
    data = conversations(tmp_path / "data")
    texts = [json.dumps({"id": str(k), "turns": [f"class Number{k}:\n" * 150]}) for k in range(8)]
    (tmp_path / "data" / "c4.jsonl").write_text("\n".join(texts))
    elsewhere = ("drafter=sequoia", data, "dataset@calibration.acceptance.dataset=c4")
    cell = planned(tmp_path / "r", *elsewhere)
    assert cell.dataset.name == "mini"
    assert cell.predicted_mal is None, "the vector is not of the cell's prompts"
    assert "decoded too" not in caplog.text
    ((key, vector),) = vectors(tmp_path / "r").items()
    assert set(vector["dataset"]) == {"c4"}
    own = planned(tmp_path / "r", "drafter=sequoia", data, "dataset=c4", "dataset.part=evaluation")
    assert own.drafter_params["acceptance"] == cell.drafter_params["acceptance"]
    assert list(vectors(tmp_path / "r")) == [key]
    planned(tmp_path / "r", "drafter=sequoia", data)
    assert len(vectors(tmp_path / "r")) == 2
