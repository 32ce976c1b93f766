"""What a config's names are committed for: honest configs of every pair keep them, edited ones do not."""

import shutil

import pytest
from cells import config
from composed import names

from specdec_trees.check.labels import misnamed
from specdec_trees.configs.cells import scientific_config
from specdec_trees.prompts.embedded import TINY

CELL = ("dataset=mini", "drafter=opt_tree")


def sentences(*overrides, verifier="verifier=target_sample"):
    """What is said of the config that a row of this cell has."""
    return [*misnamed(scientific_config(config(*CELL, verifier, *overrides)))]


@pytest.mark.parametrize("experiment", ["", "gsd/table1", "opt_tree/table1"])
@pytest.mark.parametrize("name", [name for name in names("pair") if "smollm2_135m_" not in name])
def test_pairs_are_what_they_are_called(name, experiment):
    of = [f"experiment={experiment}"] * bool(experiment)
    assert sentences(*of, f"pair={name}") == []


@pytest.mark.parametrize("name", names("drafter"))
def test_drafters_are_what_they_are_called(name):
    assert sentences("pair=tiny", f"drafter={name}", verifier="verifier=greedy") == []


@pytest.mark.parametrize("name", ["prompt_lookup", "suffix_decoding"])
def test_drafters_that_read_the_text_alone_need_no_draft(name):
    assert sentences("pair=tiny", "pair.draft=null", f"drafter={name}") == []


def test_a_folder_stands_for_its_model(tmp_path):
    for role in ("target", "draft"):
        shutil.copytree(TINY / role, tmp_path / role)
    for key in ("pair.{}.id", "+pair.{}.folder"):
        folders = [f"{key.format(role)}={tmp_path / role}" for role in ("target", "draft")]
        assert sentences("pair=tiny", *folders) == []


@pytest.mark.parametrize(
    ("axis", "key", "value"),
    [
        ("pair", "target", {"id": "meta-llama/Llama-2-70b-hf"}),
        ("pair", "draft", {"id": "JackFram/llama-160m"}),
        ("pair", "published", {"target": "llama2_70b", "draft": "jf68m", "stand_in": False}),
        ("pair", "published", {"target": "llama2_7b"}),
        ("drafter", "method", "sequoia"),
        ("drafter", "_target_", "specdec_core.drafters.Eagle2"),
        ("verifier", "_target_", "specdec_core.verifiers.Greedy"),
    ],
)
def test_another_value_is_named(axis, key, value):
    made = scientific_config(config("pair=llama2_7b_jf68m", *CELL, "verifier=multi_candidate"))
    made[axis][key] = value
    assert len([*misnamed(made)]) == 1
