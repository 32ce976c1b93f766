"""Every pair that names models of the hub, from a hub that lays them out as their publishers do."""

from typing import Any

import publishers
import torch
from client import LENGTH, QUESTION
from omegaconf import OmegaConf
from served import ROOT, TOKEN, Hub, client, served

YAMLS = ROOT / "conf/pair"
PAIRS = {path.relative_to(YAMLS).with_suffix("").as_posix(): OmegaConf.load(path) for path in YAMLS.rglob("*.yaml")}
ELSEWHERE = {
    "tiny": "its models are in the package",
    "planted/": "its weights are made here, in published shapes",
    "smollm2_135m_": "its models are folders, of `make smollm2` and of the repository",
}
"""Pairs that read nothing of a hub, by how their names begin, and why."""


def ids(name: str) -> set[str]:
    """Of the models that the yaml of a pair names."""
    models = [PAIRS[name].get(role) for role in ("target", "draft")]
    return {model.id for model in models if model and "id" in model}


OF_HUB = sorted(name for name in PAIRS if not name.startswith(tuple(ELSEWHERE)))
NAMES = [name for name in OF_HUB if ids(name) <= publishers.MODELS.keys()]
OFFLINE = (
    *("bloom_7b1_bloom_560m", "llama31_8b_eagle3", "opt_13b_opt_350m", "qwen3_8b_speculator", "vicuna_7b_medusa"),
    "qwen3_8b_dflash",
)
WITHOUT_BOS = ("bloom", "qwen3", "smollm2")
"""Families whose tokenizers put no token before a text."""


def test_models_of_pairs_are_on_the_hub_of_the_tests():
    papers = [name for name in OF_HUB if "published" in PAIRS[name]]  # one's own are of no paper
    assert set(papers) <= set(NAMES)
    assert set().union(*map(ids, NAMES)) == publishers.MODELS.keys()
    models = [PAIRS[name].get(role) for name in NAMES for role in ("target", "draft")]
    gated = {model.id for model in models if model and model.get("gated")}
    assert gated == {name for name in publishers.MODELS if publishers.is_gated(name)}


def test_pairs_decode_as_their_targets_do_and_later_without_the_hub(tmp_path):
    """One process for all pairs, as each takes seconds to start."""
    with served(Hub({f"models/{name}": publishers.model(name) for name in publishers.MODELS})) as hub:
        decoded = client(hub, tmp_path, "decode", *(f"pair={name}" for name in NAMES), HF_TOKEN=TOKEN)
        assert {name: said["refused"] for name, said in decoded.items() if "refused" in said} == {}
        for name in NAMES:
            check_answer(name, decoded[f"pair={name}"])
            check_prompt(name, decoded[f"pair={name}"])
        # transformers would ask for commits and pull requests, and a service on the network to convert pickles
        assert hub.questions.keys() <= {"revision", "tree"}

        hub.asked.clear()
        hub.questions.clear()
        offline = client(hub, tmp_path, "decode", *(f"pair={name}" for name in OFFLINE), HF_HUB_OFFLINE="1")
        assert offline == {override: decoded[override] for override in offline}
        assert not hub.asked + hub.questions

        head, pair = hub.repositories["models/yuhuili/EAGLE-llama2-chat-7B"], "pair=llama2_7b_chat_eagle"
        pinned = f"{pair} pair.draft.revision={head.commit}"
        head.move(publishers.eagle(hidden_size=128))
        said = client(hub, tmp_path, "decode", pair, pinned, HF_TOKEN=TOKEN)
        assert said[pinned] == decoded[pair]
        assert "128" in said[pair]["refused"], "the new head is for another target"


def check_answer(name: str, said: dict[str, Any]) -> None:
    """It is the target's own, as transformers decodes it, and drafts were of use."""
    ids, answer = torch.tensor([said["prompt"]]), said["answer"]
    options = {"attention_mask": torch.ones_like(ids), "do_sample": False, "max_new_tokens": len(answer)}
    alone = publishers.original(said["target"]).generate(ids, **options)[0, ids.shape[1] :]
    assert answer == alone.tolist(), name
    assert len(answer) == LENGTH or answer[-1] == 1, name
    assert said["steps"] < len(answer), name


def check_prompt(name: str, said: dict[str, Any]) -> None:
    """It has the question, and the first token of a text once, where the family has one."""
    assert QUESTION in said["text"], name
    assert said["prompt"].count(0) == (not name.startswith(WITHOUT_BOS)), name
    assert 0 not in said["prompt"][1:], name
