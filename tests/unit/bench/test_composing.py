"""Configs that share what was read are those of `hydra.compose`; files that change are read again."""

import shutil

import pytest
from composed import cells
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf

from hydra_plugins.specdec_sweeper import Sweeper
from specdec_trees.configs.cells import dataset_of
from specdec_trees.locations import CONF
from specdec_trees.measure.fingerprints import fingerprint_data, fingerprint_folder
from specdec_trees.plan import composing
from specdec_trees.plan.composing import composer

EXPERIMENTS = (
    "smoke",
    "opt_tree/fig8",
    "sequoia/table6",
    "dyspec/fig4",
    "dyspec/table4",
    "gsd/table2",
    "gsd/fig6",
    "improving_mcsd/fig8",
    "bench/budget",
)
OTHERS = (
    ("pair=llama2_70b_chat_eagle", "+size=8", "drafter=sized_chain"),
    ("pair.draft_temperature=0.6", "dataset.limit=3", "~decoding.ignore_eos"),
    ("experiment=smoke", "drafter={name: own, n: 3}", "dataset.files=[a,b]"),
    ("runtime=cpu", "hydra.job.name=mine"),
)
"""Adding, deleting, values that are no words, and an option of Hydra's own."""
WRONG = (["drafter.nodes=3"], ["pair=tinny"], ["no_such=1"], ["+pair=tiny"], ["hydra/output=none"], ["seed=1,2"])


def plainly(overrides):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", list(overrides))


def same(one, other) -> bool:
    plain = [OmegaConf.to_container(config, resolve=False) for config in (one, other)]
    flags = [[config._get_flag(flag) for flag in ("struct", "readonly")] for config in (one, other)]
    texts = [OmegaConf.to_yaml(config, resolve=True) for config in (one, other)]
    return plain[0] == plain[1] and texts[0] == texts[1] and flags[0] == flags[1]


@pytest.mark.long
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_sweep_has_the_configs_that_hydra_composes(experiment):
    batch = [*cells(experiment)[:4], *cells(experiment)[-4:]]
    with composer() as composed:
        for job in (batch, batch):  # once read, and once kept
            found = [composed([*overrides, "pair=tiny"]) for overrides in job]
    assert all(same(config, plainly([*job, "pair=tiny"])) for config, job in zip(found, batch, strict=True))


@pytest.mark.parametrize("overrides", OTHERS)
def test_any_override_is_taken_as_hydra_takes_it(overrides):
    with composer() as composed:
        found = composed(overrides)
    assert same(found, plainly(overrides))


@pytest.mark.parametrize("overrides", WRONG)
def test_what_hydra_refuses_is_refused_in_its_words(overrides):
    with pytest.raises(HydraException) as expected:
        plainly(overrides)
    with composer() as composed, pytest.raises(type(expected.value)) as found:
        composed(overrides)
    assert str(found.value) == str(expected.value)


def test_no_config_sees_what_was_done_to_another():
    with composer() as composed:
        first = composed(["experiment=smoke"])
        first.drafter.n, first.pair.target.id = -1, "changed"
        second = composed(["experiment=smoke"])
    assert same(second, plainly(["experiment=smoke"]))


def test_a_yaml_that_changed_is_read_again(tmp_path, monkeypatch):
    shutil.copytree(CONF / "dataset", tmp_path / "conf" / "dataset")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "conf" / "dataset" / "mini.yaml"
    with composer() as composed:
        assert composed([]).dataset.min_chars != 12345
    path.write_text(path.read_text() + "min_chars: 12345\n")
    with composer() as composed:
        assert composed([]).dataset.min_chars == 12345


def test_files_are_read_once_in_a_process(monkeypatch):
    read, load = [], OmegaConf.load
    monkeypatch.setattr(OmegaConf, "load", lambda file: read.append(file) or load(file))
    monkeypatch.setattr(composing, "_KEPT", {})
    counts = []
    for overrides in (["experiment=smoke"], ["experiment=smoke", "seed=3"]):
        with composer() as composed:
            composed(overrides)
        counts.append(len(read))
    assert counts[0] > 5, "what is counted are the yamls"
    assert counts[1] == counts[0]


def test_fingerprints_follow_the_files(tmp_path):
    spec, path = dataset_of(plainly(["dataset=c4", "dataset.min_chars=0"])), tmp_path / "c4.jsonl"
    found = []
    for text in ("one", "two", "one"):
        path.write_text(f'{{"id": "a", "turns": ["{text}"]}}')
        found.append((fingerprint_folder(tmp_path), fingerprint_data(spec, tmp_path)))
    assert found[0] == found[2]
    assert all(one != other for one, other in zip(found[0], found[1], strict=True))
    path.unlink()
    assert fingerprint_data(spec, tmp_path) is None


@pytest.mark.parametrize(("shard", "seeds"), [("0/3", [0, 3]), ("1/3", [1, 4]), ("2/3", [2]), ("3/3", [0, 1, 2, 3, 4])])
def test_jobs_of_other_shards_are_not_composed(shard, seeds):
    """What is no shard is refused job by job."""
    overrides = OverridesParser.create().parse_overrides([f"shard={shard}", "seed=range(5)", "pair=tiny"])
    jobs = [job for batch in Sweeper.split_arguments(overrides, 2) for job in batch]
    assert [next(text for text in job if text.startswith("seed=")) for job in jobs] == [f"seed={one}" for one in seeds]
    assert {text for job in jobs for text in job if "shard" in text} == {
        "shard=3/3" if shard == "3/3" else "shard=null"
    }
