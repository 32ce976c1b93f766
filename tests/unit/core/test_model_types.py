"""Model types: listed ones decode trees as `generate` decodes text, others are tried, or refused in a sentence."""

import copy
from pathlib import Path

import pytest
import torch
from checkpoints import word_tokenizer
from doubles import random_tree
from transformers import CONFIG_MAPPING, Gemma3TextConfig, LlamaConfig, Phi3Config

from specdec_core import CausalLM, generate, load_pair
from specdec_core.drafters import Autoregressive
from specdec_core.errors import LoadError, PromptError
from specdec_core.layout import tree_layout
from specdec_core.models import architectures, causal_lm, trial
from specdec_core.models.causal_lm import max_positions_of
from specdec_core.models.eagle import max_positions_of as of_heads
from specdec_core.models.windows import Span, within
from specdec_core.verifiers import Greedy
from specdec_trees.architectures.__main__ import MARKS, main
from specdec_trees.architectures.compare import NEW, compare, stock_greedy
from specdec_trees.architectures.zoo import TURN, VOCAB, WINDOW, ZOO, config_of, small

REPRESENTATIVE = ["gpt_neo", "gemma3", "gpt_oss", "deepseek_v3", "llama4_text", "phi3, longrope", "mistral"]
"""A window in a buffer, a wrapper, two masks, latent attention, chunks, a limit, and one window for all layers."""
LISTED = [name for name in ZOO if config_of(name).model_type in architectures.COMPARED and name != "falcon, alibi"]


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def equal(name: str) -> None:
    outcome = compare(name, config_of(name))
    assert (outcome.verdict, outcome.alone, outcome.trees) == ("compared", outcome.answers, outcome.answers)
    assert outcome.answers + outcome.bounded == 3
    assert outcome.bounded == (name in ("phi3, longrope", "llama, dynamic"))
    assert 1.5 < outcome.accepted < 5, "paths were committed, and answers are no single token again and again"


@pytest.mark.parametrize("name", REPRESENTATIVE)
def test_one_of_each_kind_decodes_as_generate_alone_and_as_trees(name):
    equal(name)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in LISTED if name not in REPRESENTATIVE])
def test_every_listed_type_decodes_as_generate_alone_and_as_trees(name):
    equal(name)


def test_the_list_is_what_is_compared_and_what_the_page_says():
    assert {config_of(name).model_type for name in LISTED} == architectures.COMPARED
    assert len(architectures.COMPARED) >= 40
    page = (Path(__file__).parents[3] / "docs/real_pairs.md").read_text()
    first = page.partition(MARKS[0])[2].partition("\n| ")[2].partition("\n|---|---|\n| ")[2].partition(" (")[0]
    assert set(first.split(", ")) == architectures.COMPARED


@pytest.mark.parametrize("name", ["mistral", "gemma2", "qwen3", "llama4_text"])
def test_the_comparison_sees_windows_that_are_not_in_the_masks(name, monkeypatch):
    monkeypatch.setattr(causal_lm, "by_layer", lambda narrow, mask, slots, like: mask)
    outcome = compare(name, config_of(name))
    assert outcome.verdict == "silent"
    assert outcome.trees < outcome.answers


def test_the_comparison_sees_gpt_neos_window_by_slot(monkeypatch):
    monkeypatch.setattr(causal_lm, "adapt", lambda model: None)
    assert compare("gpt_neo", config_of("gpt_neo")).verdict == "silent"


@pytest.mark.parametrize("span", [Span(3, chunked=False), Span(4, chunked=True), Span(1, chunked=False)])
def test_a_window_counts_along_paths_and_not_along_slots(span, rng):
    tree, prefix = random_tree(17, VOCAB, rng), 5
    narrow = within(tree_layout(tree.ancestor_mask, tree.depths, prefix=prefix).mask, span)[0, 0] == 0
    for node in range(17):
        path = [*range(prefix), *(prefix + tree.ancestor_mask[node].nonzero().flatten()).tolist()]
        last = len(path) - 1
        near = [
            at // span.size == last // span.size if span.chunked else last - at < span.size for at in range(last + 1)
        ]
        assert narrow[node].nonzero().flatten().tolist() == [
            slot for slot, seen in zip(path, near, strict=True) if seen
        ]


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        (Phi3Config(**ZOO["phi3, longrope"][1]), TURN),
        (CONFIG_MAPPING["gpt_neo"](**ZOO["gpt_neo"][1]), 256),
        (CONFIG_MAPPING["codegen"](n_positions=64, n_ctx=32), 32),
        (CONFIG_MAPPING["dbrx"](max_seq_len=77), 77),
        (LlamaConfig(max_position_embeddings=99, rope_scaling={"rope_type": "dynamic", "factor": 2.0}), 99),
        (LlamaConfig(max_position_embeddings=99, rope_scaling={"rope_type": "linear", "factor": 2.0}), 99),
        (Gemma3TextConfig(max_position_embeddings=99, sliding_window=WINDOW), 99),
        (CONFIG_MAPPING["bloom"](), None),
    ],
)
def test_positions_end_at_the_least_limit_of_a_config(config, positions):
    assert max_positions_of(config, windows=False) == positions


def test_masks_without_windows_end_positions_at_the_window():
    assert of_heads(Gemma3TextConfig(max_position_embeddings=99, sliding_window=WINDOW)) == WINDOW
    assert of_heads(config_of("llama4_text")) == WINDOW


def test_a_text_that_would_cross_a_change_of_rotations_is_refused():
    model, prompt = CausalLM(small(config_of("phi3, longrope"))), [5] * (TURN - NEW)
    assert len(generate(model, Autoregressive(), Greedy(), prompt, max_new_tokens=NEW).tokens) == NEW
    with pytest.raises(PromptError, match=str(TURN)):
        generate(model, Autoregressive(), Greedy(), [*prompt, 5], max_new_tokens=NEW)


@pytest.mark.parametrize("name", ["roberta", "bert", "xlnet", "openai-gpt"])
def test_types_that_were_not_compared_are_tried_and_refused(name):
    model = small(config_of(name))
    with pytest.raises(LoadError, match=name):
        CausalLM(model)


@pytest.mark.parametrize("name", ["llama", "gpt2", "deepseek_v2", "gemma3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_trial_passes_what_is_right_and_leaves_the_model_as_it_was(name, dtype, monkeypatch):
    stock = small(config_of(name)).to(dtype)
    calm = CausalLM(copy.deepcopy(stock))
    monkeypatch.setattr(causal_lm, "COMPARED", frozenset())
    tried = CausalLM(stock)
    assert tried.cache.length == 0
    outputs = [model.prefill(torch.tensor([5, 9, 3])).logits for model in (calm, tried)]
    assert torch.equal(*outputs)


@pytest.mark.parametrize("fault", ["mask", "position_ids"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_trial_sees_a_model_that_goes_by_slot(name, fault, dtype, monkeypatch):
    monkeypatch.setattr(causal_lm, "COMPARED", frozenset())
    stock = small(config_of(name)).to(dtype)
    whole = CausalLM.whole

    def deaf(self, tokens, **options):
        count, start = tokens.shape[1], self.cache.length
        if fault == "mask" and options.get("attention_mask") is not None:
            options["attention_mask"] = torch.zeros_like(options["attention_mask"])
            rows = torch.ones(count, start + count, dtype=torch.bool).triu(start + 1)
            options["attention_mask"][0, 0].masked_fill_(rows, -torch.inf)
        elif "position_ids" in options:
            options["position_ids"] = torch.arange(start, start + count)[None]
        return whole(self, tokens, **options)

    monkeypatch.setattr(CausalLM, "whole", deaf)
    with pytest.raises(LoadError, match="as a tree"):
        CausalLM(stock)


def test_a_listed_type_is_not_tried(monkeypatch):
    monkeypatch.setattr(causal_lm, "check_decoding", lambda model: pytest.fail("tried"))
    CausalLM(small(config_of("llama")))
    assert trial.check_decoding is not causal_lm.check_decoding


REFUSED = {
    **dict.fromkeys(
        [
            "mamba",
            "mamba2",
            "rwkv",
            "lfm2",
            "qwen3_next",
            "falcon_h1",
            "bamba",
            "granitemoehybrid",
            "recurrent_gemma",
            "jamba",
            "zamba2",
            "xlstm",
            "minimax",
            "kimi_linear",
        ],
        "memory",
    ),
    **dict.fromkeys(["bart", "t5", "whisper", "pegasus"], "encoder"),
    **dict.fromkeys(["mpt", "falcon"], "slot"),
    "vit": "language model",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_a_config_tells_is_refused_before_weights_are_read(kind, tmp_path):
    options = {"falcon": {"alibi": True}, "lfm2": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2}}
    config = CONFIG_MAPPING[kind](**options.get(kind, {}))
    config.save_pretrained(tmp_path)
    with pytest.raises(LoadError, match=REFUSED[kind]) as refusal:
        load_pair(str(tmp_path), device="cpu")
    assert kind in str(refusal.value)


@pytest.mark.parametrize("name", ["gemma3", "mistral3", "llama4", "qwen2_5_vl"])
def test_a_wrapper_is_loaded_from_its_files_and_decodes_as_its_generate(name, tmp_path):
    stock = small(config_of(name))
    stock.save_pretrained(tmp_path)
    word_tokenizer([f"w{number}" for number in range(VOCAB)], unk_token="w0").save_pretrained(tmp_path)
    pair = load_pair(str(tmp_path), str(tmp_path), device="cpu", dtype="float32")
    prompt = list(range(2, 32))
    found = generate(pair.target, Autoregressive(), Greedy(), prompt, max_new_tokens=NEW)
    assert found.tokens == stock_greedy(stock, prompt)
    assert pair.draft.vocab_size == VOCAB


def test_the_command_counts_and_fails_where_one_is_silent(capsys, monkeypatch):
    assert main(["llama", "bart"]) == 0
    said = capsys.readouterr().out
    assert "2 model types: 1 compared" in said
    assert "1 refused" in said
    assert "0 silent" in said
    monkeypatch.setattr(causal_lm, "by_layer", lambda narrow, mask, slots, like: mask)
    assert main(["mistral"]) == 1
    assert "1 silent" in capsys.readouterr().out
