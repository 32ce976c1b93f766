import pytest
import torch
from omegaconf import OmegaConf
from transformers import GPT2Config, LlamaConfig, LlamaForCausalLM

from specdec_core.errors import LoadError
from specdec_core.models import ModelSpec
from specdec_core.models.kinds import kind_of
from specdec_core.models.memory import eagle_bytes, kv_bytes, tree_bytes, weight_bytes
from specdec_trees.locations import CONF
from specdec_trees.measure import hub_configs

MODELS = {
    model.id: model.get("kind", "causal_lm")
    for path in (CONF / "pair").glob("*.yaml")
    for pair in [OmegaConf.load(path)]
    if "published" in pair  # one's own are of no paper
    for model in (pair.get("target"), pair.get("draft"))
    if model and "/" in model.get("id", "") and not model.id.startswith("tiny/")  # a pair may be another one's variant
}
LLAMA_7B = hub_configs.config_of("meta-llama/Llama-2-7b-hf")

# What the model cards say, in 1e9; of EAGLE's heads (its README) without the embedding, which they copy.
PUBLISHED = {
    "meta-llama/Llama-2-7b-hf": 6.74,
    "meta-llama/Llama-2-13b-chat-hf": 13.02,
    "meta-llama/Llama-2-70b-hf": 68.98,
    "lmsys/vicuna-7b-v1.3": 6.74,
    "lmsys/vicuna-33b-v1.3": 32.53,
    "JackFram/llama-68m": 0.068,
    "JackFram/llama-160m": 0.162,
    "princeton-nlp/Sheared-LLaMA-1.3B": 1.345,
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": 1.100,
    "facebook/opt-13b": 12.85,
    "facebook/opt-350m": 0.331,
    "bigscience/bloom-7b1": 7.07,
    "bigscience/bloom-560m": 0.559,
    "meta-llama/Llama-3.2-1B-Instruct": 1.236,
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": 1.711,
    "HuggingFaceTB/SmolLM2-135M-Instruct": 0.1345,
}
HEADS = {"llama2-chat-7B": 0.24, "llama2-chat-13B": 0.37, "llama2-chat-70B": 0.99, "Vicuna-33B-v1.3": 0.56}


def test_every_model_of_a_pair_is_in_the_table_with_its_kind():
    assert set(MODELS) <= set(hub_configs.names())
    for name, kind in MODELS.items():
        if kind != "layer_skip":
            assert getattr(hub_configs.config_of(name), "kind", "causal_lm") == kind


def test_an_unknown_model_is_named_with_its_neighbours():
    assert not hub_configs.known("meta-llama/Llama-2-7b")
    with pytest.raises(LoadError, match=r"did you mean .*meta-llama/Llama-2-7b-hf"):
        hub_configs.config_of("meta-llama/Llama-2-7b")


@pytest.mark.parametrize(("name", "billions"), PUBLISHED.items())
def test_parameters_are_those_of_the_model_cards(name, billions):
    bytes_ = weight_bytes(hub_configs.config_of(name), torch.float16)
    assert bytes_ / 2e9 == pytest.approx(billions, rel=0.005)


@pytest.mark.parametrize(("name", "billions"), HEADS.items())
def test_heads_have_the_parameters_that_their_authors_state(name, billions):
    config = hub_configs.config_of(f"yuhuili/EAGLE-{name}")
    assert eagle_bytes(config, torch.float16) / 2e9 - config.vocab_size * config.hidden_size / 1e9 == pytest.approx(
        billions, abs=0.005
    )


@pytest.mark.parametrize(("name", "own_embedding", "gigabytes"), [
    ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", True, 0.849),
    ("FasterDecoding/medusa-vicuna-7b-v1.3", False, 1.48),
])  # fmt: skip
def test_heads_are_as_large_as_their_files(name, own_embedding, gigabytes):
    """Those of EAGLE-3's authors leave the embedding out; ours counts it, since it may be there."""
    config = hub_configs.config_of(name)
    kind = kind_of(ModelSpec(id=name, kind=config.kind))
    size = kind.weight_bytes(ModelSpec(id=name), config, torch.float16) / 1e9
    assert size - own_embedding * 2 * config.vocab_size * config.hidden_size / 1e9 == pytest.approx(
        gigabytes, abs=0.005
    )


def test_a_head_is_a_one_layer_llama_with_fc_and_without_output_matrix_and_two_norms():
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=False,
    )
    stock = sum(parameter.numel() for parameter in LlamaForCausalLM(config).parameters())
    assert eagle_bytes(config, torch.float32) == 4 * (stock - 50 * 16 - 2 * 16 + 2 * 16 * 16 + 16)
    config.bias = False
    assert eagle_bytes(config, torch.float32) == 4 * (stock - 50 * 16 - 2 * 16 + 2 * 16 * 16)


def test_keys_and_values_of_a_token():
    half = torch.bfloat16
    assert kv_bytes(LLAMA_7B, half, 1) == 2 * 32 * 32 * 128 * 2 == 524_288
    assert kv_bytes(LLAMA_7B, torch.float32, 10) == 10 * 2 * 524_288
    assert kv_bytes(hub_configs.config_of("meta-llama/Llama-2-70b-hf"), half, 1) == 2 * 80 * 8 * 128 * 2
    assert kv_bytes(hub_configs.config_of("facebook/opt-13b"), half, 1) == 2 * 40 * 5120 * 2
    assert kv_bytes(hub_configs.config_of("bigscience/bloom-7b1"), half, 1) == 2 * 30 * 4096 * 2
    assert kv_bytes(GPT2Config(n_layer=3, n_head=2, n_embd=8), half, 1) == 2 * 3 * 8 * 2


def test_a_tree_takes_its_mask_its_hidden_states_and_its_logits():
    mask, hidden, logits = 61 * (1960 + 61) * 2, 61 * 4096 * 2, 61 * 32000 * 4
    assert tree_bytes(LLAMA_7B, torch.bfloat16, 61, 1960) == mask + hidden + logits
