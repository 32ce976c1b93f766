"""A target drafting for itself: its own weights and cache, some layers left out."""

import copy

import pytest
import torch
from checkpoints import checkpoint
from doubles import context_for, random_llama
from offloaded import CONFIGS, stock
from torch import nn
from transformers import DynamicCache

from specdec_core import CausalLM, generate, load_pair, shapes
from specdec_core.drafters import Autoregressive, Context, OptTree, SelfDraft, StaticTree
from specdec_core.errors import LoadError, PairError
from specdec_core.models import LayerSkip, ModelSpec
from specdec_core.roots import Virtual
from specdec_core.verifiers import Greedy

PROMPT = [5, 9, 11, 3, 7]


def plain(target: CausalLM, new: int = 20) -> list[int]:
    return generate(target, Autoregressive(), Greedy(), PROMPT, max_new_tokens=new).tokens


def test_skipping_nothing_has_everything_accepted():
    target = random_llama(0)
    drafter = StaticTree(draft=LayerSkip(target, []), shape=shapes.chain(3))
    found = generate(target, drafter, Greedy(), PROMPT, max_new_tokens=21)
    assert found.tokens == plain(target, 21)
    assert {step.num_accepted for step in found.steps} == {3}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("shape", [shapes.chain(4), shapes.eagle25()], ids=["chain", "eagle25"])
def test_outputs_are_the_targets_and_its_cache_is_untouched(name, shape):
    """Committed keys and values are those that a target without a draft has, to rounding."""
    target, alone = CausalLM(stock(name)), CausalLM(stock(name))
    drafter = StaticTree(draft=LayerSkip(target, [1, 2]), shape=shape)
    found = generate(target, drafter, Greedy(), PROMPT, max_new_tokens=20)
    assert found.tokens == plain(alone)
    assert all(step.num_drafted == shape.num_drafted for step in found.steps)
    length = min(alone.cache.length, target.cache.length)
    for ours, theirs in zip(target.cache.layers, alone.cache.layers, strict=True):
        assert torch.allclose(ours.keys[:, :, :length], theirs.keys[:, :, :length], atol=1e-4)
        assert torch.allclose(ours.values[:, :, :length], theirs.values[:, :, :length], atol=1e-4)


def test_the_distribution_is_that_of_the_kept_layers_on_the_targets_own_prefix():
    """Against transformers' own cache: the whole model reads the prefix, the rest of the layers the last token."""
    target, skipped = CausalLM(stock("llama")), {1, 3}
    draft = SelfDraft(LayerSkip(target, skipped))
    target.reset(64)
    target.prefill(torch.tensor(PROMPT))
    context = context_for(8, tuple(PROMPT))
    first = draft.begin(context).logits[0]
    second = draft.expand(torch.tensor([2, 6]), torch.tensor([-1, -1])).logits[1]

    whole, cache = stock("llama").eval(), DynamicCache()
    with torch.no_grad():
        whole(torch.tensor([PROMPT]), past_key_values=cache)
        whole.model.layers = nn.ModuleList(layer for n, layer in enumerate(whole.model.layers) if n not in skipped)
        positions = [torch.tensor([[len(PROMPT) + i]]) for i in range(2)]
        for token, position, ours in zip((8, 6), positions, (first, second), strict=True):
            logits = whole(torch.tensor([[token]]), past_key_values=cache, position_ids=position).logits
            assert torch.allclose(ours, logits[0, -1], atol=1e-5)
    full = CausalLM(stock("llama"))
    full.reset(64)
    assert not torch.allclose(full.prefill(torch.tensor([*PROMPT, 8])).logits[-1], first, atol=1e-2)


def test_weights_are_shared_and_the_target_keeps_its_layers():
    target = random_llama(0, layers=4)
    before = copy.deepcopy(target.model.state_dict())
    draft = LayerSkip(target, [1, 2])
    assert len(draft.model.model.layers) == 2
    assert len(target.model.model.layers) == target.config.num_hidden_layers == 4
    ours = {parameter.data_ptr() for parameter in draft.model.parameters()}
    assert ours < {parameter.data_ptr() for parameter in target.model.parameters()}
    assert all(torch.equal(before[name], tensor) for name, tensor in target.model.state_dict().items())


@pytest.mark.parametrize("skipped", [[0, 1], [2], [-1]])
def test_layers_that_cannot_be_skipped_are_named(skipped):
    with pytest.raises(LoadError, match="give numbers from 0 to 1, and leave at least one layer"):
        LayerSkip(random_llama(0), skipped)


def test_a_virtual_root_is_refused():
    target = random_llama(0)
    context = context_for(3, (1,))
    virtual = Context(context.tokens, context.rng, context.clock, root=Virtual(torch.ones(61) / 61))
    with pytest.raises(PairError, match="virtual root"):
        SelfDraft(LayerSkip(target, [0])).begin(virtual)


def test_by_its_id_in_a_pair(tmp_path):
    folder = str(checkpoint(tmp_path / "model", num_hidden_layers=3))
    pair = load_pair(folder, ModelSpec(id=folder, kind="layer_skip", skipped_layers=(1,)), device="cpu")
    assert isinstance(pair.draft, LayerSkip)
    found = generate(pair.target, OptTree(draft=pair.draft, n=8), Greedy(), [3, 7], max_new_tokens=12)
    assert found.tokens == generate(pair.target, Autoregressive(), Greedy(), [3, 7], max_new_tokens=12).tokens
    with pytest.raises(LoadError, match="is the target itself, by the same id"):
        load_pair(folder, ModelSpec(id="another", kind="layer_skip", skipped_layers=(1,)), device="cpu")
