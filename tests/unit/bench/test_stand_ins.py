"""Folders and hub ids in place of a pair's own models: when they are the paper's, and when another pair."""

import json
from pathlib import Path

import pytest
from cells import config, execute
from checkpoints import checkpoint
from composed import names
from omegaconf import OmegaConf

from specdec_trees import reproduce
from specdec_trees.configs.cells import pair_config, pair_of, scientific_config
from specdec_trees.measure import hub_configs
from specdec_trees.papers.opt_tree.tables import dataset_table
from specdec_trees.plan import planning
from specdec_trees.results.identity import identity
from specdec_trees.results.store import load

PAIR = "llama2_7b_chat_jf68m"
TARGET, DRAFT = "meta-llama/Llama-2-7b-chat-hf", "JackFram/llama-68m"


def folder_of(path: Path, model_id: str, **changes: object) -> Path:
    """A folder with a published config.json and no weights; None takes a key out."""
    path.mkdir(parents=True)
    shape = hub_configs.config_of(model_id).to_dict() | changes
    kept = {key: value for key, value in shape.items() if value is not None and key != "kind"}
    (path / "config.json").write_text(json.dumps(kept))
    return path


def composed(*overrides: str, pair: str = PAIR) -> dict:
    return pair_config(config(f"pair={pair}", *overrides))


@pytest.mark.parametrize("name", names("pair"))
def test_a_pair_with_its_own_models_is_the_one_of_its_yaml(name: str) -> None:
    cfg = config(f"pair={name}")
    assert composed(pair=name) == OmegaConf.to_container(cfg.pair, resolve=True)
    assert cfg.pair.name == name


def test_a_folder_of_the_papers_shape_is_the_papers_model(tmp_path) -> None:
    target, draft = folder_of(tmp_path / "llama", TARGET), folder_of(tmp_path / "small", DRAFT)
    found = composed(f"pair.target.id={target}", f"pair.draft.id={draft}")
    assert (found["name"], found["published"]["stand_in"]) == (PAIR, False)
    assert composed(f"+pair.target.folder={target}")["name"] == PAIR
    assert scientific_config(config(f"pair={PAIR}", f"pair.target.id={target}"))["pair"]["name"] == PAIR


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": 128},
        {"num_hidden_layers": 31},
        {"num_attention_heads": 16},
        {"num_key_value_heads": 8},
        {"intermediate_size": 512},
        {"vocab_size": 32016},
        {"model_type": "mistral"},
    ],
)
def test_a_folder_of_another_shape_is_another_pair(tmp_path, change) -> None:
    other = folder_of(tmp_path / "my model", TARGET, **change)
    found = composed(f"pair.target.id='{other}'")
    assert found["name"] == f"my_model_for_{PAIR}"
    assert found["published"] == {"target": "llama2_7b", "draft": "jf68m", "stand_in": True}


def test_a_draft_counts_as_much_as_a_target(tmp_path) -> None:
    folder = folder_of(tmp_path / "y", DRAFT, num_hidden_layers=3)
    found = composed(f"pair.draft.id={folder}")
    assert (found["name"], found["published"]["stand_in"]) == (f"y_draft_for_{PAIR}", True)
    both = composed(f"pair.draft.id={folder}", f"pair.target.id={folder_of(tmp_path / 'x', TARGET, hidden_size=64)}")
    assert both["name"] == f"x_y_for_{PAIR}"


def test_a_head_is_known_by_what_its_config_may_be_trusted_in(tmp_path) -> None:
    """Published heads are silent about key/value heads, which are read off the tensors."""
    head = "yuhuili/EAGLE-Vicuna-33B-v1.3"
    silent = folder_of(tmp_path / "silent", head, num_key_value_heads=None)
    wider = folder_of(tmp_path / "wider", head, hidden_size=4096)
    assert composed(f"pair.draft.id={silent}", pair="vicuna_33b_eagle")["name"] == "vicuna_33b_eagle"
    assert composed(f"pair.draft.id={wider}", pair="vicuna_33b_eagle")["name"] == "wider_draft_for_vicuna_33b_eagle"


def test_heads_whose_config_names_no_family_are_known(tmp_path) -> None:
    """Medusa's names neither family nor sizes, the speculators format's has its layer in a part of its own."""
    (tmp_path / "config.json").write_text(json.dumps({"medusa_num_heads": 5, "medusa_num_layers": 1}))
    assert composed(f"pair.draft.id={tmp_path}", pair="vicuna_7b_medusa")["name"] == "vicuna_7b_medusa"
    name = "llama31_8b_speculator"
    layer = hub_configs.config_of(OmegaConf.to_container(config(f"pair={name}").pair)["draft"]["id"]).to_dict()
    for other, found in (({}, name), ({"hidden_size": 512}, f"nested_draft_for_{name}")):
        folder = tmp_path / "nested"
        folder.mkdir(exist_ok=True)
        said = {"speculators_model_type": "eagle3", "transformer_layer_config": layer | other}
        (folder / "config.json").write_text(json.dumps(said))
        assert composed(f"pair.draft.id={folder}", pair=name)["name"] == found


def test_another_hub_id_is_another_model(tmp_path) -> None:
    for other in ("someone/Llama-2-7b-chat-hf", "meta-llama/Llama-2-13b-chat-hf", str(tmp_path)):
        found = composed(f"pair.target.id={other}")
        assert (found["name"], found["published"]["stand_in"]) == (f"{Path(other).name}_for_{PAIR}", True)
    assert composed("pair.name=mine")["published"]["stand_in"] is True  # no yaml says which models it has


def test_an_offloaded_pair_has_the_models_of_the_pair_above(tmp_path) -> None:
    target = folder_of(tmp_path / "llama", "meta-llama/Llama-2-70b-hf")
    name = "llama2_70b_llama2_7b_offload"
    assert composed(f"pair.target.id={target}", pair=name)["name"] == name


def test_names_make_no_other_cell(tmp_path) -> None:
    cfg = config(f"pair={PAIR}", f"pair.target.id={folder_of(tmp_path / 'x', TARGET, hidden_size=128)}")
    named = scientific_config(cfg)
    assert named["pair"]["name"] == f"x_for_{PAIR}"
    plain = {**named, "pair": {**named["pair"], "name": PAIR, "published": {"stand_in": False}}}
    assert identity(named) == identity(plain)


def test_plans_have_the_name_that_rows_will_have(tmp_path) -> None:
    target = folder_of(tmp_path / "x", TARGET, num_hidden_layers=2)
    overrides = (f"pair={PAIR}", f"pair.target.id={target}", "limit=1", f"results_dir={tmp_path}")
    (pair,) = planning.make(["experiment=opt_tree/table1", *overrides]).pairs
    assert (pair.spec.name, pair.labels["stand_in"]) == (f"x_for_{PAIR}", True)
    plan = reproduce.planned("opt_tree/table1", overrides)
    assert plan.pairs == (f"x_for_{PAIR}",)
    assert {cell["pair"] for cell in plan.cells} == {f"x_for_{PAIR}"}
    assert f"pair={PAIR}" in plan.overrides
    assert reproduce._single(plan, {"pair": PAIR}) == ["--pair", f"x_for_{PAIR}"]


def test_a_random_folder_is_no_llama_in_rows_and_tables(tmp_path) -> None:
    """128 wide, given as Llama-2-7B with its 68M draft: rows, table and notes have a name of its own."""
    words = [f"w{number}" for number in range(64)]
    target = checkpoint(tmp_path / "x", words, hidden_size=128, max_position_embeddings=1024)
    draft = checkpoint(tmp_path / "y", words, max_position_embeddings=1024)
    models = (f"pair={PAIR}", f"pair.target.id={target}", f"pair.draft.id={draft}", "pair.template=plain")
    cell = ("dataset=mini", "limit=2", "decoding.max_new_tokens=4", "drafter=chain4", "runtime.warmup_conversations=0")
    assert execute(tmp_path / "results", *models, *cell) == "ok"
    name = f"x_y_for_{PAIR}"
    results = load(tmp_path / "results", "default", pair=name)
    assert results.runs["pair"].tolist() == [name]
    (table,) = dataset_table("mini", results)
    assert table.frame["target_words"].tolist() == [f"{name} (for llama2_7b)"]
    assert table.long is not None
    assert table.long["stand_in"].all()
    assert json.loads(results.runs["config"][0])["pair"]["published"]["stand_in"] is True
    assert pair_of(config(*models)).name == name
