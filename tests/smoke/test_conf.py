import copy
import re
from dataclasses import fields

import hydra
import pytest
from composed import cells, composed, names, of_hydra, plain
from omegaconf import OmegaConf

from specdec_core.models.kinds import KINDS
from specdec_trees import published
from specdec_trees.configs.options import check_values
from specdec_trees.configs.values import parameters
from specdec_trees.locations import CONF
from specdec_trees.plan.composing import composer
from specdec_trees.prompts.datasets import BUNDLED, DatasetSpec
from specdec_trees.prompts.hub import ADAPTERS
from specdec_trees.prompts.templates import NAMES
from specdec_trees.results.rows import RECORDED

EXPERIMENTS = sorted(
    p.relative_to(CONF / "experiment").with_suffix("").as_posix() for p in (CONF / "experiment").rglob("*.yaml")
)
MEASURED_AS_LOSSY = {"longest_subtree"}
"""Rules that are lossless for some draws and are there to be measured with others."""


def test_yamls_are_short_and_begin_with_a_comment():
    longest = {"config.yaml": 28, "variants.yaml": 120, "full.yaml": 24}  # a line for every key, for every choice
    for path in CONF.rglob("*.yaml"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= longest.get(path.name, 20), path
        assert max(map(len, lines)) <= 130, path
        assert lines[lines[0].startswith("# @package")].startswith("# "), path


@pytest.mark.parametrize("group", ["pair", "dataset", "drafter", "verifier"])
def test_names_are_file_names(group):
    for name in names(group):
        choice = composed(f"{group}={name}")[group]
        if OmegaConf.is_interpolation(choice, "name"):
            assert choice.name in names(group)
        else:  # a paper's own settings of a dataset leave it its name, by which its file is found
            folder, _, last = name.rpartition("/")
            assert choice.name in ({last, f"{folder}_{last}"} if group == "dataset" else {name})


def test_a_variant_is_its_base_but_for_the_values_of_its_own():
    listed = OmegaConf.to_container(OmegaConf.load(CONF / "variants.yaml"))
    of = [(group, base, name) for group, bases in listed.items() for base, own in bases.items() for name in own]
    assert len({(group, name) for group, _, name in of}) == len(of) > 0
    with composer() as compose:
        for group, base, name in of:
            assert (CONF / group / f"{base}.yaml").is_file()
            assert not (CONF / group / f"{name}.yaml").exists(), "Hydra would take the file"
            found, variant = (OmegaConf.to_container(compose([f"{group}={one}"])[group]) for one in (base, name))
            found |= {"name": name} if "name" in found else {}
            assert variant == OmegaConf.to_container(OmegaConf.merge(found, listed[group][base][name])) != found


def of_papers(*folders: str) -> list[str]:
    """The experiments of these folders, "" for those of none."""
    return [name for name in EXPERIMENTS if name.rpartition("/")[0] in folders]


@pytest.mark.few(2)
@pytest.mark.parametrize("paper", [*published.papers(), "beyond"])
def test_the_first_and_the_last_cell_of_every_experiment_compose(paper):
    for experiment in of_papers(*([paper] if paper != "beyond" else ["", "bench"])):
        config = composed(f"experiment={experiment}", "pair=tiny")
        assert config.pair.name == "tiny"
        assert config.name == experiment or paper == "beyond"
        assert set(config.get("pairs", [])) <= set(names("pair"))
        batch = cells(experiment, "pair=tiny")
        assert len({tuple(cell) for cell in batch}) == len(batch)
        for cell in (batch[0], batch[-1]):
            check_values(composed(*cell))
            assert plain(composed(*cell))["pair"]["name"] == "tiny"


def test_table_1_has_every_size_of_the_trees_whose_best_size_is_printed():
    batch = [composed(*cell).drafter for cell in cells("opt_tree/table1", "pair=tiny")]
    sized = {"binary_n25", "binary_n50", "binary_n60", "opt_tree", "opt_tree_n50", "opt_tree_n60"}
    assert {drafter.name for drafter in batch} == {"autoregressive", "eagle25"} | sized
    assert len(batch) == 8


@pytest.mark.parametrize(
    ("pair", "delta"),
    [("llama2_7b_chat_jf68m", 0.2), ("llama2_7b_chat_eagle", 0.8), ("llama2_70b_chat_llama2_7b_chat", 0.7)],
)
def test_opt_trees_threshold_is_the_papers_for_the_draft(pair, delta):
    """Section 4.5: 0.2 for the 68M draft, 0.8 for EAGLE; appendix B: 0.7 for 7B; what is given goes first."""
    for experiment in ("table1", "table3", "fig6"):
        drafters = [composed(*cell, f"pair={pair}").drafter for cell in cells(f"opt_tree/{experiment}")]
        wanted = {drafter.delta for drafter in drafters if drafter.method == "opt_tree"}
        assert wanted == ({0.2} if experiment == "fig6" else {delta})
    assert (
        composed("experiment=opt_tree/table1", f"pair={pair}", "drafter=opt_tree", "drafter.delta=0.4").drafter.delta
        == 0.4
    )
    assert composed(f"pair={pair}", "drafter=opt_tree").drafter.delta == 0.5


def test_eagles_tree_is_drawn_and_judged_as_eagle_does_in_table_3():
    """The rows with a dagger; its children are the best ones where nothing is drawn."""
    found = [composed(*cell) for cell in cells("opt_tree/table3", "pair=tiny_eagle")]
    rules = {config.drafter.name: (plain(config)["drafter"].get("draws"), config.verifier.name) for config in found}
    assert rules["eagle25_drawn"] == ("without_replacement", "eagle1")
    assert rules["opt_tree"][1] == "target_sample"
    assert composed("drafter=eagle25_drawn", "verifier=by_draws_eagle").verifier.name == "target_sample"


@pytest.mark.parametrize(
    ("pair", "dtype"), [("tiny", "float64"), ("vicuna_7b_jf68m", "float64"), ("tiny_eagle", None), ("tiny_self", None)]
)
def test_improved_mcsds_drafts_are_in_double_precision_where_they_are_models_of_their_own(pair, dtype):
    assert composed("experiment=improving_mcsd/table3", f"pair={pair}").pair.draft.dtype == dtype


def printed_trees(table: str) -> dict[tuple[str, str, str, float], tuple[float, float]]:
    """N and levels by target, draft, dataset and temperature, the root counted."""
    rows = published.find("sequoia", table, metric=["tree_size", "tree_depth"])
    found = rows.pivot_table(index=["target", "draft", "dataset", "temperature"], columns="metric", values="value")
    return {key: (row["tree_size"], row["tree_depth"]) for key, row in found.iterrows()}


@pytest.mark.few(1)
@pytest.mark.parametrize("table", ["table4", "table5", "table7"])
def test_the_printed_tree_of_every_setting_is_run(table):
    experiment, found = f"sequoia/{table}", {}
    for pair in composed(f"experiment={experiment}").pairs:
        for cell in cells(experiment, "drafter=sequoia_printed", f"pair={pair}"):
            config = plain(composed(*cell))
            names, drafter = config["pair"]["published"], config["drafter"]
            key = names["target"], names["draft"], config["dataset"]["name"], config["decoding"]["temperature"]
            found[key] = drafter["n"] + 1, drafter["depth"] + 1
    assert found == printed_trees(table)
    assert "sequoia_printed" in {composed(*cell).drafter.name for cell in cells(experiment, "pair=tiny")}


@pytest.mark.parametrize("pair", ["tiny", "tiny_eagle", "llama2_70b_chat_eagle"])
def test_a_pair_that_the_table_has_not_runs_the_trees_of_its_first(pair):
    trees = {
        table: composed(f"experiment=sequoia/{table}", f"pair={pair}", "drafter=sequoia_printed").drafter
        for table in ("table4", "table5")
    }
    assert (trees["table4"].n, trees["table4"].depth) == (127, 9)
    assert (trees["table5"].n, trees["table5"].depth) == (767, 21)


def test_the_command_line_replaces_what_an_experiment_sweeps():
    assert len(cells("opt_tree/fig8", "pair=tiny")) == 10
    assert len(cells("opt_tree/fig8", "pair=tiny", "drafter.delta=0.2,0.3")) == 2
    assert [composed(*cell).drafter.name for cell in cells("smoke", "drafter=chain8")] == ["chain8"]


@pytest.mark.long
def test_every_pair_goes_with_every_drafter():
    base = copy.deepcopy(composed())
    OmegaConf.set_struct(base, False)  # a pair may have keys that the default pair has not
    for pair in names("pair"):
        both = OmegaConf.merge(base, {"pair": composed(f"pair={pair}").pair})
        for drafter in names("drafter"):
            both.drafter = composed(f"drafter={drafter}").drafter
            found = plain(both.drafter)
            expected = 0.6 if "dyspec" in drafter else both.pair.draft_temperature  # DySpec's paper fixes it
            takes_draft = "draft" in parameters(hydra.utils.get_method(found["_target_"]))
            assert found.get("draft_temperature") == (expected if takes_draft else None)


def test_pairs_are_complete():
    for name in names("pair"):
        check_pair(name)


def check_pair(name: str) -> None:
    pair = plain(composed(f"pair={name}"))["pair"]
    keys = {"name", "target", "draft", "template", "draft_temperature"}
    planted, of_a_paper = name.startswith("planted/"), "published" in pair
    assert set(pair) == keys | ({"planted"} if planted else set()) | ({"published"} if of_a_paper else set())
    assert set(pair.get("planted", {})) == ({"private", "spread", "noise", "seed"} if planted else set())
    assert not planted or pair["published"]["stand_in"]
    made = {"folder"} & set(pair["target"])  # what `make` puts into models/
    said = {"licence"}  # of models that are no paper's
    assert set(pair["target"]) - said == {"id", "revision", "gated", "offload", "resident_layers", "bits"} | made
    kept = [pair["target"][key] for key in ("offload", "resident_layers", "bits")]
    assert kept == [name.endswith("_offload"), 0, None]
    skipped = set(pair["draft"]) - {"id", "revision", "gated", "kind"} - made - said
    assert bool(skipped) == (pair["draft"]["kind"] == "layer_skip")
    assert skipped <= {"skipped_layers", "skipped_attention", "skipped_mlp"}
    assert pair["draft"]["kind"] in KINDS
    assert pair["template"] in NAMES
    printed = {(row.target, row.draft) for paper in published.papers() for row in published.load(paper).itertuples()}
    assert not of_a_paper or (pair["published"]["target"], pair["published"]["draft"]) in printed


def test_drafters_are_complete():
    for name in names("drafter"):
        check_drafter(name)


def check_drafter(name: str) -> None:
    drafter = plain(composed(f"drafter={name}"))["drafter"]
    assert re.fullmatch(r"[a-z][a-z0-9_]*", drafter["method"])
    assert drafter["_target_"].startswith("specdec_core.drafters.")


FROM_FILES = {"spec_bench", "speed_bench"}
"""Those that are on no hub, and are not ours to bundle."""


def test_datasets_are_complete():
    for name in names("dataset"):
        check_dataset(name)


def check_dataset(name: str) -> None:
    spec = DatasetSpec.from_config(plain(composed(f"dataset={name}"))["dataset"])
    if spec.source == "hub":
        assert spec.adapter in ADAPTERS
    elif spec.source == "bundled" and name not in FROM_FILES:
        assert any((BUNDLED / f"{stem}.jsonl").exists() for stem in (spec.name, *spec.files))


def test_what_a_dataset_need_not_say_is_the_same_in_configs_and_in_python():
    base = OmegaConf.to_container(OmegaConf.load(CONF / "config.yaml"))["dataset"]
    assert DatasetSpec.from_config({"name": "own"}) == DatasetSpec.from_config(base | {"name": "own"})
    assert {*base, "name"} == {field.name for field in fields(DatasetSpec)}  # so that each can be overridden


def test_rules_are_complete():
    for name in names("verifier"):
        check_rule(name)


def check_rule(name: str) -> None:
    verifier = plain(composed(f"verifier={name}"))["verifier"]
    assert verifier["_target_"].startswith("specdec_core.verifiers.")
    given = {key: value for key, value in verifier.items() if key not in ("name", "allow_lossy")}
    lossless_for = hydra.utils.instantiate(given).lossless_for
    assert verifier["allow_lossy"] is (not lossless_for or name in MEASURED_AS_LOSSY), (
        f"a rule without lossless_for is there to be measured as lossy, any other is not; {name} is lossless for "
        f"{sorted(lossless_for)}: change allow_lossy, or add it to MEASURED_AS_LOSSY"
    )


def test_flags_that_say_what_is_recorded_are_off():
    config = composed()
    assert {config[f"record_{table}"] for table in RECORDED} == {False}
    assert config.decoding.ignore_eos is False


@pytest.mark.parametrize("group", ["decoding", "runtime"])
def test_the_other_axes_have_the_same_keys_in_every_file(group):
    assert len({frozenset(plain(composed(f"{group}={name}"))[group]) for name in names(group)}) == 1


@pytest.mark.filterwarnings("ignore:(?s).*is validated against ConfigStore schema")
@pytest.mark.parametrize(("launcher", "plugin"), [("slurm_gpu", "submitit"), ("joblib", "joblib")])
def test_launchers_compose(launcher, plugin):
    pytest.importorskip(f"hydra_plugins.hydra_{plugin}_launcher")
    config = of_hydra(f"hydra/launcher={launcher}").launcher
    assert plugin in config._target_
    if launcher == "slurm_gpu":
        assert (config.gpus_per_node, config.tasks_per_node, config.nodes) == (1, 1, 1)
