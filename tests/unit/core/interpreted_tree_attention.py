"""The kernel in Triton's interpreter, on the CPU: collected by `test_tree_attention.py` alone, in a process of its own.

TRITON_INTERPRET=1 python -m pytest tests/unit/core/interpreted_tree_attention.py
"""

import copy
import math

import pytest
import torch
from architectures import VOCAB, by_tree, close, stock
from doubles import random_tree
from tree_attention import TOLERANCE, Case, by_definition, inputs, mask_of

from specdec_core import CausalLM, generate, load_pair, shapes
from specdec_core.drafters import OptTree, StaticTree
from specdec_core.layout import Layout
from specdec_core.models.tree_attention import TRITON, BlockMask, block_mask, blocks
from specdec_core.models.tree_attention.kernel import block_attention
from specdec_core.verifiers import Greedy
from specdec_trees.prompts.embedded import TINY

PREFIXES = (0, 1, 31, 32, 200)
CASES = [
    *(Case(dtype=dtype, prefix=prefix) for dtype in TOLERANCE for prefix in PREFIXES),
    *(Case(kind, prefix=prefix) for kind in ("chain", "star") for prefix in (0, 31)),
    *(Case(nodes=nodes, prefix=3) for nodes in (2, 31, 32, 33, 64)),
    *(Case(nodes=20, prefix=40, heads=heads, kv_heads=kv) for heads, kv in ((1, 1), (6, 2), (3, 3))),
    *(Case(nodes=20, prefix=40, heads=2, kv_heads=2, dim=dim) for dim in (17, 64, 80, 128)),
    *(Case(nodes=50, prefix=prefix, new=new) for new, prefix in ((1, 0), (4, 31), (33, 5))),
    Case(nodes=20, prefix=20, batch=3),
]


def run(case: Case, rng: torch.Generator, block: int = 32, splits: int | None = None) -> tuple[torch.Tensor, ...]:
    """Ours and by the definition."""
    mask, (query, key, value), scale = mask_of(case, rng), inputs(case, rng), case.dim**-0.5
    ours = block_attention(query, key, value, block_mask(mask, block), scale, splits).transpose(1, 2)
    return ours.double(), by_definition(query, key, value, mask, scale)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_kernel_is_attention_by_its_definition(case, rng):
    ours, expected = run(case, rng)
    assert (ours - expected).abs().max() <= TOLERANCE[case.dtype]


@pytest.mark.parametrize("splits", [2, 8])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_keys_may_be_shared_out_among_programs_even_if_some_get_none(splits, dtype, rng):
    for case in (Case(nodes=20, prefix=100, dtype=dtype), Case("chain", nodes=40, heads=1, dtype=dtype)):
        ours, expected = run(case, rng, splits=splits)
        assert (ours - expected).abs().max() <= TOLERANCE[dtype]


@pytest.mark.parametrize("block", [16, 64])
def test_blocks_of_other_sizes(block, rng):
    ours, expected = run(Case(nodes=40, prefix=90, heads=1), rng, block)
    assert (ours - expected).abs().max() <= TOLERANCE[torch.float32]


def test_permuted_nodes_have_permuted_outputs(rng):
    case = Case(nodes=40, prefix=11)
    mask, (query, key, value) = mask_of(case, rng), inputs(case, rng)
    order = torch.randperm(40, generator=rng)
    slots = torch.cat((torch.arange(11), 11 + order))
    plain = block_attention(query, key, value, block_mask(mask), 0.25)
    permuted = mask[:, :, order][..., slots]
    moved = block_attention(query[:, :, order], key[:, :, slots], value[:, :, slots], block_mask(permuted), 0.25)
    assert torch.allclose(moved, plain[:, order], atol=TOLERANCE[torch.float32], rtol=0)


@pytest.mark.filterwarnings("ignore:All-NaN slice")
def test_blocks_that_nobody_sees_are_not_read(rng):
    """Two chains below the root, one behind the other: the second sees nothing of the first but the root's block."""
    case = Case("chain", nodes=128, heads=1)
    mask = mask_of(case, rng)
    mask[..., 64:, 32:64] = -torch.inf
    query, key, value = inputs(case, rng)
    expected = block_attention(query, key, value, block_mask(mask), 0.25)[:, 64:]
    key[:, :, 32:64], value[:, :, 32:64] = math.nan, math.nan
    found = block_attention(query, key, value, block_mask(mask), 0.25)
    assert torch.equal(found[:, 64:], expected)
    assert found[:, 32:64].isnan().all(), "who sees the block reads it"


def test_bits_of_full_blocks_are_not_read(rng):
    case = Case("chain", nodes=64, prefix=64)
    made, (query, key, value) = block_mask(mask_of(case, rng)), inputs(case, rng)
    expected = block_attention(query, key, value, made, 0.25)
    made.words[:2] = 0
    assert torch.equal(block_attention(query, key, value, made, 0.25), expected)


def test_queries_that_see_nothing_are_zero(rng):
    case = Case(nodes=40, prefix=8)
    mask, (query, key, value) = mask_of(case, rng), inputs(case, rng)
    mask[..., 5, :] = -torch.inf
    for splits in (1, 4):
        found = block_attention(query, key, value, block_mask(mask), 0.25, splits)
        assert found.isfinite().all()
        assert (found[:, 5] == 0).all()
        assert (found[:, 6] != 0).any()


@pytest.mark.parametrize("name", ["llama-2-70b", "opt", "gpt2"])
def test_a_whole_model_has_sdpas_logits_and_blocks_are_made_once_per_forward(name, rng, monkeypatch):
    own = stock(name)
    made: list[BlockMask] = []
    build = blocks._made
    monkeypatch.setattr(blocks, "_made", lambda *given: made.append(build(*given)) or made[-1])
    models = []
    for attention in ("sdpa", TRITON):
        model = copy.deepcopy(own)
        model.set_attn_implementation(attention)
        models.append(CausalLM(model))
    assert [model.attention for model in models] == ["sdpa", TRITON]
    tree, prompt = random_tree(20, VOCAB, rng), torch.randint(VOCAB, (6,), generator=rng)
    outputs = []
    for model in models:
        model.reset(8)
        first = model.prefill(prompt).logits
        outputs.append(torch.cat((first, by_tree(model, tree).logits, model.extend(prompt[:3]).logits)))
    assert close(*outputs)
    assert len(made) == 2, "one for the tree and one for what was appended, whatever the number of layers"


def test_other_masks_than_the_layouts(rng):
    """Booleans, as transformers makes them itself; one for each sequence of a batch, which SDPA takes over."""
    model = stock("llama-2")
    ids = torch.randint(VOCAB, (2, 7), generator=rng)
    ragged = torch.ones(2, 7, dtype=torch.long)
    ragged[0, :3] = 0
    for batch, mask in ((ids[:1], ragged[:1]), (ids, ragged)):
        outputs = []
        for attention in ("sdpa", TRITON):
            model.set_attn_implementation(attention)
            with torch.inference_mode():
                outputs.append(model(batch, attention_mask=mask).logits[:, 3:])
        assert close(*outputs)


def test_greedy_decoding_is_sdpas_token_for_token():
    answers = []
    for attention in ("sdpa", TRITON):
        pair = load_pair(str(TINY / "target"), str(TINY / "draft"), device="cpu", attention=attention)
        assert (pair.target.attention, pair.draft.attention) == (attention, attention)
        prompt = pair.tokenizer("def read_config(filename):\n")["input_ids"]
        drafters = OptTree(draft=pair.draft, n=12, delta=0.2), StaticTree(draft=pair.draft, shape=shapes.chain(2))
        answers.append([generate(pair.target, each, Greedy(), prompt, max_new_tokens=6).tokens for each in drafters])
    assert answers[0] == answers[1]


def test_a_mask_that_fits_the_keys_is_asked_for(rng):
    """What does not fit is left to SDPA, which refuses it."""
    model = CausalLM(stock("llama-2"))
    model.model.set_attn_implementation(TRITON)
    model.reset(8)
    model.prefill(torch.tensor([1, 2, 3]))
    case = Case(nodes=5, prefix=9)
    with pytest.raises(RuntimeError):
        model(torch.tensor([1, 2, 3, 4, 5]), Layout(mask_of(case, rng), torch.arange(5)[None]))
