"""What makes another cell of a config, and what does not."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from cells import config

from specdec_core.errors import LoadError
from specdec_core.models.graphs import usable
from specdec_trees.configs.cells import pair_of, scientific_config, setting_of
from specdec_trees.measure import cell as cell_module
from specdec_trees.measure.cell import Runtime
from specdec_trees.measure.provenance import collect
from specdec_trees.results.identity import identity
from specdec_trees.results.store import Store, experiments, run_id

REFERENCE = Path(__file__).resolve().parents[3] / "results" / "reference"


def cell(*overrides: str) -> str:
    return run_id(identity(scientific_config(config(*overrides))))


@pytest.mark.parametrize(
    "override",
    [
        "runtime.device_map={model: cpu, lm_head: cpu}",
        "runtime.draft_device=cpu",
        "runtime.dtype=bfloat16",
        "runtime.node_order=dfs",
        "runtime.graphs=compile",
        "pair.target.bits=8",
        "decoding.ignore_eos=true",
        "+dataset.frame='Q: {text}'",
        "seed=1",
    ],
)
def test_other_weights_places_and_seeds_are_other_cells(override):
    assert cell(override) != cell()


@pytest.mark.parametrize(
    "override",
    [
        *("runtime.num_threads=3", "runtime.warmup_conversations=4", "results_dir=elsewhere"),
        *("record_variation=true", "record_quality=true", "decoding.ignore_eos=false"),
    ],
)
def test_how_it_is_run_is_not(override):
    assert cell(override) == cell()


def test_options_that_came_later_change_no_cell_at_their_default():
    before = scientific_config(config())
    del before["pair"]["target"]["bits"]
    assert run_id(identity(before)) == cell()
    assert set(before["runtime"]) == {"dtype", "attention"}
    assert set(before["decoding"]) == {"temperature", "top_p", "max_new_tokens"}
    assert cell("runtime.node_order=creation", "runtime.graphs=eager") == cell()
    assert cell("+pair.draft.dtype=null") == cell()
    assert cell("+pair.draft.dtype=float64") != cell()


def test_on_a_gpu_what_may_be_compiled_is(monkeypatch):
    pair = pair_of(config())
    assert Runtime().graphs_of(pair) == "eager"
    monkeypatch.setattr(cell_module, "resolve_device", lambda device: "cuda")
    assert Runtime().graphs_of(pair) == "compile"
    offloaded = replace(pair, target=replace(pair.target, offload=True))
    assert Runtime().graphs_of(offloaded) == "eager"
    for option in ({"attention": "tree_split"}, {"device_map": "auto"}, {"tensor_parallel": True}, {"graphs": "eager"}):
        assert Runtime(**option).graphs_of(pair) == "eager"
    with pytest.raises(LoadError, match="whole on one device"):
        usable("compile", "sdpa", torch.device("cuda"), [], whole=False)


def test_kept_rows_have_the_ids_that_their_configs_give():
    """Of the results that are committed with the code."""
    kept = [row for store in experiments(REFERENCE, "runs") for row in store.read("runs").itertuples()]
    assert kept
    assert all(run_id(identity(json.loads(row.config))) == row.run_id for row in kept)
    for row in kept:
        order = "creation" if pd.isna(row.node_order) else row.node_order
        assert json.loads(row.config)["runtime"].get("node_order", "creation") == order


def test_todays_configs_make_the_cells_that_were_kept():
    """Of a sweep on the embedded pair; a calibrated tree's config has measured numbers in it."""
    kept = {row.drafter: row.run_id for row in Store(REFERENCE, "smoke").read("runs").itertuples()}
    del kept["sequoia"]
    assert len(kept) > 8
    assert {drafter: cell("experiment=smoke", f"drafter={drafter}") for drafter in kept} == kept


def test_a_limit_that_selects_makes_another_cell_than_the_first_conversations_did(tmp_path):
    """Rows of an old slice must not be taken for those of a selection, nor measured again where both are the same."""
    kinds = ("writing", "math")
    lines = (json.dumps({"id": f"{kind}{n}", "turns": ["x"], "category": kind}) for kind in kinds for n in range(4))
    (tmp_path / "mt_bench.jsonl").write_text("\n".join(lines))
    folder = ("dataset=mt_bench", f"data_dir={tmp_path}")
    for overrides, selects in {
        **{(*folder, f"limit={limit}"): selects for limit, selects in {1: False, 2: True, 6: True, 8: False}.items()},
        folder: False,
        ("limit=8",): False,  # the bundled categories stand in turn
        ("dataset=mt_bench", "limit=8"): True,
        ("dataset=mt_bench",): False,
        ("dataset=c4",): True,
        ("dataset=c4", "dataset.part=evaluation", "limit=8"): False,  # in a seeded order as before
    }.items():
        found = scientific_config(config(*overrides))
        before = {**found, "dataset": {key: value for key, value in found["dataset"].items() if key != "selection"}}
        assert (run_id(identity(found)) != run_id(identity(before))) == selects, overrides
    made = [config(*folder, f"limit={limit}") for limit in (2, 8)]
    assert setting_of(made[0], scientific_config(made[0])).identity == (
        setting_of(made[1], scientific_config(made[1])).identity
    )


def test_a_file_is_known_by_its_contents_wherever_it_lies(tmp_path):
    def written(path: Path, text: str) -> Path:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"id": "a", "turns": [text]}) + "\n" + json.dumps({"id": "b", "turns": ["y"]}))
        return path

    one, moved = written(tmp_path / "one" / "a.jsonl", "x"), written(tmp_path / "two" / "quiz.jsonl", "x")
    other = written(tmp_path / "one" / "b.jsonl", "z")
    quiz = "dataset.name=quiz"
    kept = cell(quiz, f"dataset.file={one}")
    assert cell(quiz, f"dataset.file={moved}") == cell(quiz, f"data_dir={moved.parent}") == kept
    assert len({kept, cell(quiz, f"dataset.file={other}"), cell(f"dataset.file={one}"), cell()}) == 4
    vectors = [
        setting_of(made, scientific_config(made)).identity["dataset"]
        for made in (config(quiz, f"dataset.file={path}") for path in (one, moved, other))
    ]
    assert vectors[0] == vectors[1]
    assert vectors[0]["prompts_sha256"] != vectors[2]["prompts_sha256"]
    written(one, "z")
    assert cell(quiz, f"dataset.file={one}") == cell(quiz, f"dataset.file={other}") != kept


def test_a_printed_tree_is_no_tree_that_a_machine_chose_even_where_the_two_are_alike():
    """Else whichever ran first would give its name and predictions to both."""
    printed = scientific_config(config("experiment=sequoia/table4", "drafter=sequoia_printed"))
    chosen = scientific_config(config("experiment=sequoia/table4", "drafter=sequoia_hardware"))
    chosen["drafter"] |= {key: printed["drafter"][key] for key in ("n", "depth")}
    alike = {key: value for key, value in printed["drafter"].items() if key not in ("name", "method")}
    assert alike == {key: value for key, value in chosen["drafter"].items() if key not in ("name", "method")}
    assert run_id(identity(printed)) != run_id(identity(chosen))


def test_unknown_node_orders_suggest_the_nearest():
    with pytest.raises(ValueError, match=r'unknown runtime.node_order "heavy"; did you mean "heavy_path"'):
        scientific_config(config("runtime.node_order=heavy"))


def test_acceptance_vectors_do_not_depend_on_the_node_order():
    found = [
        setting_of(made, scientific_config(made)).identity for made in (config(), config("runtime.node_order=dfs"))
    ]
    assert found[0] == found[1]


def test_the_device_of_a_row_says_how_it_was_shared(monkeypatch):
    alone = str(collect("cpu", "float32", "sdpa")["device_name"])
    placements = {
        f"2x {alone}, tensor parallel": {"tensor_parallel": 2},
        f"{alone}, draft on cuda:1": {"draft_device": "cuda:1"},
        f"{alone}, device map {{'model': 'cpu'}}": {"device_map": {"model": "cpu"}},
        alone: {},
    }
    for name, placement in placements.items():
        assert collect("cpu", "float32", "sdpa", placement)["device_name"] == name
