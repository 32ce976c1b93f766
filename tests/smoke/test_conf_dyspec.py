"""DySpec's experiments: what they sweep, how their baselines draw, what they decode, and what is known of a step."""

from pathlib import Path

import pytest
from cells import execute
from composed import cells, composed, names, plain

from specdec_trees import published
from specdec_trees.calibrate.drafters import MEASURED
from specdec_trees.plan.trees import size as planned_size
from specdec_trees.results.store import load

SMALL = {"dyspec", "dyspec_heap", "sized_sequoia", "spec_infer_8x8", "spec_infer_8x8_merged"}
LARGE = {"dyspec_threshold", "sized_sequoia", "spec_infer_16x48", "spec_infer_16x48_merged"}
TABLES = ("table1", "table2", "table3", "table4")
DRAWS = {
    "dyspec": "without_replacement",
    "sequoia": "without_replacement",
    "spec_infer": "iid",
    "spec_infer_merged": "iid",
}
RULES = {"without_replacement": "without_replacement", "iid": "spec_infer"}
SHORT = ("pair=tiny", "dataset=mini", "dataset.part=evaluation", "limit=2", "decoding.max_new_tokens=12")
SHORT += ("runtime.warmup_conversations=0", "calibration.acceptance.new_tokens=8")
PARTS = ["choice_s", "sampling_s", "layout_s"]


def configs(table: str) -> list[dict]:
    return [plain(composed(*cell)) for cell in cells(f"dyspec/{table}")]


def cell(decoding: str, drafter: str) -> tuple[str, ...]:
    """A cell of Table 1, of few short answers."""
    return ("experiment=dyspec/table1", *SHORT, f"decoding={decoding}", f"drafter={drafter}")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("table", "datasets", "drafters", "nodes"),
    [*((table, 5, SMALL, 64) for table in TABLES[:3]), ("table4", 3, LARGE, 768)],
)
def test_tables_compare_trees_of_one_size(table, datasets, drafters, nodes):
    rows, found = published.find("dyspec", table), configs(table)
    settings = {(config["dataset"]["name"], config["decoding"]["temperature"]) for config in found}
    assert settings == set(zip(rows["dataset"], rows["temperature"], strict=True))
    assert len(settings) == 2 * datasets
    assert len(found) == 2 * datasets * len(drafters)
    assert {config["drafter"]["name"] for config in found} == drafters
    for config in found:
        shape = config["drafter"].get("shape")
        assert (shape["num_sequences"] * shape["depth"] if shape else config["drafter"]["n"]) == nodes
        assert config["pair"]["target"]["offload"] == (table in ("table3", "table4"))


@pytest.mark.parametrize("table", TABLES)
def test_prompts_are_the_first_128_tokens_of_as_many_texts_as_the_paper_has(table):
    for config in configs(table):
        dataset = config["dataset"]
        assert (dataset["mode"], dataset["prompt_tokens"]) == ("raw", 128)
        assert config["decoding"]["max_new_tokens"] == 128
        assert dataset["limit"] == (1000 if table in ("table1", "table2") else 100)
        assert dataset["part"] == "evaluation"  # Sequoia's tree is chosen on the other part


@pytest.mark.parametrize("table", TABLES)
def test_all_methods_draw_at_draft_temperature_06_also_for_greedy_decoding(table):
    for config in configs(table):
        drafter = config["drafter"]
        method = "dyspec" if drafter["method"].startswith("dyspec") else drafter["method"]
        assert (drafter["draws"], drafter["draft_temperature"]) == (DRAWS[method], 0.6)
        assert config["verifier"]["name"] == RULES[drafter["draws"]]


@pytest.mark.parametrize("experiment", ["sequoia/table5", "dyspec/table3", "dyspec/table4"])
def test_offloaded_targets_share_a_baseline_and_stand_ins_do_not(experiment):
    """A stand-in takes seconds, and on a busy machine a baseline of other minutes says nothing."""
    for pair, baseline in (("llama2_70b_llama2_7b", "shared"), ("tiny", True)):
        assert composed(f"experiment={experiment}", f"pair={pair}").runtime.baseline == baseline


def test_baselines_elsewhere_take_the_best_tokens_in_greedy_decoding():
    found = [plain(composed(*one)) for name in ("sequoia/table4", "bench/budget") for one in cells(name, "pair=tiny")]
    found = [one["drafter"] for one in found if not one["decoding"]["temperature"]]
    drawing = [drafter for drafter in found if drafter["method"].startswith(("sequoia", "spec_infer"))]
    assert len(drawing) > 4
    assert {drafter["draws"] for drafter in drawing} == {"topk"}


@pytest.mark.parametrize("name", [name for name in names("drafter") if "dyspec" in name])
def test_dyspec_draws_at_its_own_temperature_also_for_greedy_decoding(name):
    for decoding in ("greedy", "t06", "t1"):
        found = plain(composed(f"drafter={name}", "verifier=by_draws", f"decoding={decoding}"))
        assert (found["drafter"]["draws"], found["drafter"]["draft_temperature"]) == ("without_replacement", 0.6)
        assert found["verifier"]["name"] == "without_replacement"


def test_a_plan_knows_how_often_the_draft_is_run():
    forwards = {}
    for name in ("dyspec", "dyspec_heap"):
        config = plain(composed(f"drafter={name}"))
        forwards[name] = planned_size(config["drafter"], config["calibration"])
    assert forwards == {"dyspec": (64, 32), "dyspec_heap": (64, 64)}


def test_figure_4_records_parts_with_the_papers_heap_and_by_layers():
    found = [plain(composed(*one))["drafter"] for one in cells("dyspec/fig4")]
    assert [(drafter["name"], drafter["record_parts"]) for drafter in found] == [
        ("dyspec", True),
        ("dyspec_heap", True),
    ]
    tables = [config["drafter"] for table in TABLES for config in configs(table)]
    assert not [drafter for drafter in tables if "record_parts" in drafter], "it takes time"


def test_drawn_baselines_are_verified_greedily(tmp_path: Path):
    """Outputs at temperature 0 are the target's own, and Sequoia's tree is chosen for the children that it draws."""
    for drafter in ("sized_sequoia", "spec_infer_8x8"):
        assert execute(tmp_path, *cell("greedy", drafter)) == "ok"
    results = load(tmp_path, "dyspec/table1")
    runs = results.runs.set_index("drafter")
    assert dict(runs["draws"]) == {"sized_sequoia": "without_replacement", "spec_infer_8x8": "iid"}
    assert runs["lossless"].all()
    assert (runs["identical"] == 1).all()
    assert not results.steps.empty
    vectors = results.acceptance
    assert set(zip(vectors["draws"], vectors["temperature"], vectors["draft_temperature"], strict=True)) == {
        ("without_replacement", 0.0, 0.6)
    }
    assert runs.loc["sized_sequoia", "predicted_mal"] > 1
    assert plain(composed(*cell("greedy", "sized_sequoia")))["drafter"]["acceptance"] == MEASURED


@pytest.mark.parametrize("drafter", ["dyspec", "dyspec_heap"])
def test_parts_of_growing_are_known_where_they_are_recorded(drafter, tmp_path: Path):
    for experiment in ("fig4", "table1"):
        chosen = (f"experiment=dyspec/{experiment}", *SHORT, "decoding=t06", f"drafter={drafter}")
        assert execute(tmp_path, *chosen) == "ok"
    steps, without = (load(tmp_path, f"dyspec/{experiment}").steps for experiment in ("fig4", "table1"))
    assert (steps[PARTS] > 0).all(axis=None)
    assert (steps[PARTS].sum(axis=1) < steps["tree_s"]).all(), "what is left: the draft's own masks and inputs"
    assert without[PARTS[:2]].isna().all(axis=None)
    assert (without["layout_s"] > 0).all()
