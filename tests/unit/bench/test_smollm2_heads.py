"""Training of SmolLM2's heads: what is trained is what drafts, and the committed heads are of their target."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_core.models.dflash import DFlash
from specdec_trees.smollm2 import text, train_heads
from specdec_trees.smollm2.train_heads import BLOCK, LAYERS, Conversations

HERE = Path(text.__file__).parent
HIDDEN, VOCAB = 48, 300
ANCHORS = torch.tensor([[1, 5, 20], [7, 2, 30], [9, 31, 11]])


@pytest.fixture
def target(monkeypatch) -> LlamaForCausalLM:
    """A random one of as many layers as SmolLM2 has."""
    monkeypatch.setattr(train_heads, "HIDDEN", HIDDEN)
    torch.manual_seed(0)
    shape = {"hidden_size": HIDDEN, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40}
    config = LlamaConfig(**shape, head_dim=12, num_hidden_layers=30, vocab_size=VOCAB, max_position_embeddings=256)
    return LlamaForCausalLM(config).eval().requires_grad_(False)


@pytest.fixture
def batch(target) -> Conversations:
    tokens = torch.randint(20, VOCAB, (3, 40))
    states = target.model(tokens, output_hidden_states=True).hidden_states
    return Conversations(tokens, torch.cat([states[layer] for layer in LAYERS], -1), states[-1])


@torch.no_grad()
def test_blocks_in_training_are_those_that_the_head_drafts(target, batch):
    """All blocks of a batch in one forward, against each alone on the head's own cache."""
    model = train_heads.new_dflash(target, batch).eval()
    model.fc = model.fc.folded()
    hidden = train_heads.filled_blocks(model, target.model.embed_tokens, batch, ANCHORS)
    head = DFlash(model, target.model.embed_tokens, target.lm_head)
    for row, places in enumerate(ANCHORS.tolist()):
        for column, place in enumerate(places):
            head.reset(64)
            logits = head(head.inward(batch.features[row, :place]), int(batch.tokens[row, place]))
            assert torch.allclose(logits, target.lm_head(hidden[row, column]), atol=1e-5)


@torch.no_grad()
def test_a_mask_is_to_say_what_the_target_says_of_its_place(target, batch):
    finals = train_heads.finals_behind(batch, ANCHORS)
    for row, places in enumerate(ANCHORS.tolist()):
        for column, place in enumerate(places):
            for depth in range(1, BLOCK):
                alone = target(batch.tokens[row : row + 1, : place + depth]).logits[0, -1]
                assert torch.allclose(target.lm_head(finals[row, column, depth - 1]), alone, atol=1e-4)


def test_the_loss_is_the_divergence_by_depth_with_all_other_tokens_in_the_heads_sum(target, batch, monkeypatch):
    """With all other tokens drawn the sum is exact."""
    known = torch.arange(0, VOCAB, 3)
    rest = [token for token in range(VOCAB) if token % 3]
    monkeypatch.setattr(train_heads, "OTHERS", len(rest))
    monkeypatch.setattr(train_heads, "random_anchors", lambda *_: ANCHORS)
    head = train_heads.new_dflash(target, batch)
    loss = train_heads.dflash_loss(head, target, known, 3)(batch)
    with torch.no_grad():
        hidden = train_heads.filled_blocks(head, target.model.embed_tokens, batch, ANCHORS)
        log_q = F.linear(hidden, target.lm_head.weight).log_softmax(-1)[..., known]
        finals = train_heads.finals_behind(batch, ANCHORS)
        log_p = F.linear(finals, target.lm_head.weight[known]).log_softmax(-1)
        by_depth = (log_p.exp() * (log_p - log_q)).sum(-1).flatten(0, 1).mean(0)
        weights = torch.tensor([2.718281828 ** (-depth / 4) for depth in range(BLOCK - 1)])
    assert loss.item() == pytest.approx(float((by_depth * weights).sum() / weights.sum()), rel=1e-4)
    loss.backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in head.parameters())


def test_a_scaled_layer_is_an_ordinary_one_and_begins_as_the_best_linear_map():
    inputs = torch.randn(500, 6) * torch.tensor([1, 50, 0.1, 3, 1, 900])
    goal = inputs @ torch.randn(6, 4) / 10
    layer = train_heads.Scaled(inputs, goal)
    assert torch.allclose(layer(inputs), layer.folded()(inputs), rtol=1e-4, atol=1e-3)
    assert (layer(inputs) - goal).abs().max() < 0.02 * goal.std()


def test_committed_heads_are_small_and_of_their_target() -> None:
    for name in ("eagle3", "dflash"):
        assert sum(path.stat().st_size for path in (HERE / name).iterdir()) < 12e6
        assert "/" not in json.dumps(json.loads((HERE / name / "config.json").read_text())), "no path of a machine"
        with safe_open(HERE / name / "model.safetensors", "pt") as file:
            assert file.get_slice("fc.weight").get_shape() == [576, 3 * 576]
            assert not {"embed_tokens.weight", "lm_head.weight"} & {*file.keys()}
