"""Stock models score trees: every node's logits equal those of its root-to-node path fed as plain text."""

import pytest
import torch
from doubles import paths_of, random_tree
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig, OPTConfig, Qwen2Config

from specdec_core import CausalLM
from specdec_core.layout import tree_layout

SMALL = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
CONFIGS = {
    "llama": LlamaConfig(**SMALL, num_key_value_heads=2, intermediate_size=48),
    "qwen2": Qwen2Config(**SMALL, num_key_value_heads=2, intermediate_size=48),
    "mistral": MistralConfig(**SMALL, num_key_value_heads=2, intermediate_size=48),
    "opt": OPTConfig(**SMALL, ffn_dim=48, max_position_embeddings=128, word_embed_proj_dim=32),
    "gpt2": GPT2Config(vocab_size=61, n_embd=32, n_layer=2, n_head=4, n_positions=128),
}


@pytest.fixture(params=CONFIGS)
def model(request: pytest.FixtureRequest) -> CausalLM:
    torch.manual_seed(0)
    model = CausalLM(AutoModelForCausalLM.from_config(CONFIGS[request.param], attn_implementation="sdpa"))
    model.keep_hidden = True
    return model


def plain_logits(model: CausalLM, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model.model(torch.tensor([tokens])).logits[0, -1]


def score(model: CausalLM, tree):
    return model(tree.tokens, tree_layout(tree.ancestor_mask, tree.depths, prefix=model.cache.length))


def test_tree_logits_equal_path_by_path_also_after_commits(model, rng):
    prefix = [5, 9, 11, 3]
    model.reset(8)  # too small on purpose: the cache has to grow
    logits = model.prefill(torch.tensor(prefix)).logits
    assert logits.shape == (1, 61)
    assert torch.allclose(logits[0], plain_logits(model, prefix), atol=1e-5)
    for _ in range(3):
        tree = random_tree(17, 61, rng)
        start, root = model.cache.length, int(tree.tokens[0])
        scored = score(model, tree)
        for node, path in enumerate(paths_of(tree)):
            assert torch.allclose(scored.logits[node], plain_logits(model, [*prefix, root, *path]), atol=1e-5)
        deepest = int(tree.depths.argmax())
        path = tree.ancestor_mask[deepest].nonzero().flatten()
        model.cache.commit(start, path)
        prefix += tree.tokens[path].tolist()
        assert model.cache.length == len(prefix)


def test_hidden_states_are_what_the_output_matrix_reads(model):
    model.reset(8)
    output = model.prefill(torch.tensor([5, 9, 11]))
    assert output.hidden is not None
    assert output.hidden.shape[0] == 3
    with torch.inference_mode():
        assert torch.allclose(model.model.get_output_embeddings()(output.hidden[-1]), output.logits[-1], atol=1e-5)


def test_positions_past_the_last_do_not_crash_models_with_learned_positions(rng):
    model = CausalLM(AutoModelForCausalLM.from_config(CONFIGS["gpt2"]))
    model.reset(128)
    model.prefill(torch.zeros(126, dtype=torch.long))
    tree = random_tree(9, 61, rng)
    layout = tree_layout(tree.ancestor_mask, tree.depths, prefix=126, max_positions=model.max_positions)
    assert model(tree.tokens, layout).logits.isfinite().all()
