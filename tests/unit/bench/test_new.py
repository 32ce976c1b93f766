"""The yamls of one's own models and prompts: what is written composes, and what does not fit is refused first."""

import json
import shutil
from pathlib import Path

import pytest
from cells import config
from checkpoints import checkpoint
from omegaconf import OmegaConf

from specdec_trees import new
from specdec_trees.configs.cells import dataset_of, pair_of, scientific_config
from specdec_trees.configs.options import check_values
from specdec_trees.locations import CONF
from specdec_trees.prompts.embedded import TINY


@pytest.fixture(autouse=True)
def conf(tmp_path, monkeypatch) -> Path:
    """Yamls go to a folder of the test."""
    for group in ("pair", "dataset"):
        (tmp_path / "conf" / group).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "conf"


@pytest.fixture
def quiz(tmp_path) -> Path:
    lines = [{"id": "a", "turns": ["One?", "Two?"]}, {"id": "b", "turns": ["Three?"]}]
    path = tmp_path / "My quiz, 2.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def composed(group: str, path: Path):
    """A config with the yaml in place of the group's default; its keys may be others."""
    cfg = config()
    OmegaConf.set_struct(cfg, False)
    cfg[group] = OmegaConf.merge(OmegaConf.load(CONF / "config.yaml")[group], OmegaConf.load(path))
    check_values(cfg)
    return cfg


def test_a_dataset_of_a_file_has_three_keys_and_composes(conf, quiz):
    said = new.new_dataset(str(quiz))
    path = conf / "dataset" / "my_quiz_2.yaml"
    assert OmegaConf.load(path) == {"name": "my_quiz_2", "file": str(quiz), "max_new_tokens": 128}
    cfg = composed("dataset", path)
    assert dataset_of(cfg).file == str(quiz)
    assert scientific_config(cfg)["dataset"]["prompts_sha256"]
    assert "2 conversations, 3 turns, at most 128 new tokens a turn" in said
    assert "next: specdec run dataset=my_quiz_2 " in said
    new.new_dataset(str(quiz), name="other", max_new_tokens=9)
    assert OmegaConf.load(conf / "dataset" / "other.yaml").max_new_tokens == 9


def test_what_is_no_dataset_is_refused_and_nothing_is_written(conf, quiz, tmp_path, capsys):
    bad, empty = tmp_path / "bad.jsonl", tmp_path / "empty.jsonl"
    bad.write_text('{"id": "a", "turns": ["x"]}\n{"id": "b"}\n')
    empty.write_text("\n")
    cases = {
        (str(bad),): "line 2: \"turns\" is 'missing'",
        (str(empty),): "empty.jsonl has no conversations",
        (str(tmp_path / "none.jsonl"),): "cannot read",
        (str(quiz), "--name", "mini"): "there is a dataset mini already",
        (str(quiz), "--name", "a/b"): 'NAME="a/b": a name has letters',
        (str(quiz), "--name", "\N{LATIN SMALL LETTER E WITH ACUTE}"): "a name has letters",
        **{(str(quiz), "--name", name): f'NAME="{name}" is read as' for name in ("null", "True", "1e3", "nan", "1_0")},
        (str(quiz), "--max-new-tokens", "0"): "MAX_NEW_TOKENS=0",
    }
    for arguments, words in cases.items():
        with pytest.raises(SystemExit) as stop:
            new.main(["dataset", *arguments])
        assert words in str(stop.value.code)
        assert "\n" not in str(stop.value.code)
    assert not list((conf / "dataset").iterdir())
    new.main(["dataset", str(quiz)])
    before = (conf / "dataset" / "my_quiz_2.yaml").read_text()
    with pytest.raises(SystemExit, match="there is a dataset my_quiz_2 already, which is kept; give NAME=another"):
        new.main(["dataset", str(quiz), "--max-new-tokens", "5"])
    assert (conf / "dataset" / "my_quiz_2.yaml").read_text() == before


@pytest.mark.parametrize(
    ("draft", "kind", "agreed"),
    [("draft", "causal_lm", "their tokenizers agree"), ("eagle", "eagle", "the draft fits")],
)
def test_a_pair_of_folders_is_compared_and_composes(draft, kind, agreed, conf):
    said = new.new_pair(str(TINY / "target"), str(TINY / draft))
    path = conf / "pair" / f"target_{draft}.yaml"
    assert agreed in said
    assert f"next: make bench-mtbench PAIR=target_{draft} " in said
    pair = pair_of(composed("pair", path))
    assert (pair.name, pair.template) == (f"target_{draft}", "plain")
    assert (pair.target.id, pair.target.source) == ("target", str(TINY / "target"))
    assert (pair.draft.id, pair.draft.source, pair.draft.kind) == (draft, str(TINY / draft), kind)


@pytest.mark.parametrize("kind", ["eagle3", "medusa"])
def test_the_kind_of_a_folder_follows_from_its_config(kind, conf, tmp_path):
    shutil.copytree(TINY / kind, tmp_path / "head")
    new.new_pair(str(TINY / "target"), str(tmp_path / "head"), name="7")
    assert pair_of(composed("pair", conf / "pair" / "7.yaml")).draft.kind == kind


def test_a_pair_of_hub_ids_takes_the_template_that_its_target_has_elsewhere(conf):
    said = new.new_pair("meta-llama/Llama-2-7b-chat-hf", "me/my-draft", name="mine")
    loaded = OmegaConf.load(conf / "pair" / "mine.yaml")
    assert (loaded.template, loaded.draft.id, loaded.draft_temperature) == ("llama2_chat", "me/my-draft", 1.0)
    assert "me/my-draft (hub id, causal_lm)" in said
    assert "hub ids are checked when they are loaded" in said
    new.new_pair("me/model", "me/my-draft", template="vicuna")
    assert OmegaConf.load(conf / "pair" / "model_my_draft.yaml").template == "vicuna"


def test_what_is_no_pair_is_refused_and_nothing_is_written(conf, tmp_path):
    (tmp_path / "none").mkdir()
    other = checkpoint(tmp_path / "other", [f"w{number}" for number in range(61)])
    target, there = str(TINY / "target"), sorted((conf / "pair").iterdir())
    cases = {
        (target, "/no/folder"): "DRAFT=/no/folder: there is no such folder, and a hub id is such as",
        (
            target,
            str(tmp_path / "none"),
        ): "if it is a head, give its KIND=eagle, eagle3, speculators, medusa, dflash, mtp",
        (str(TINY / "prompts.jsonl"), target): "prompts.jsonl is a file; give the folder that holds it",
        (target, str(other)): "token ids different meanings",
        (target, str(TINY / "draft"), "--name", "tiny"): "there is a pair tiny already",
        (target, str(TINY / "draft"), "--template", "plane"): 'unknown template "plane"; did you mean "plain"',
        (target, str(TINY / "draft"), "--kind", "eagl"): 'unknown kind of draft "eagl"; did you mean "eagle"',
    }
    for (ours, theirs, *rest), words in cases.items():
        with pytest.raises(SystemExit) as stop:
            new.main(["pair", "--target", ours, "--draft", theirs, *rest])
        assert words in str(stop.value.code)
    assert sorted((conf / "pair").iterdir()) == there
