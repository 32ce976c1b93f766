"""The kernel for tree attention on a GPU: by the definition, without waits, and under a whole model."""

import math

import pytest
import torch
from tree_attention import TOLERANCE, Case, inputs, mask_of

from specdec_core import generate, load_pair
from specdec_core.drafters import OptTree
from specdec_core.models.tree_attention import TRITON, block_mask, dense_attention
from specdec_core.verifiers import Greedy
from specdec_trees.prompts.embedded import TINY

DEVICE = torch.device("cuda")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.real_gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CASES = [
    *(Case(nodes=769, prefix=prefix, heads=8, kv_heads=2, dim=128, dtype=dtype)
      for dtype in TOLERANCE for prefix in (0, 1, 31, 32, 200, 2000)),
    *(Case(kind, nodes=333, prefix=77, heads=4, kv_heads=4, dim=64) for kind in ("chain", "star")),
    *(Case(nodes=65, prefix=4000, heads=2, dim=dim, dtype=torch.float16) for dim in (16, 24, 80, 128)),
    *(Case(nodes=100, new=new, prefix=1000, heads=4, dtype=torch.bfloat16) for new in (1, 7, 33)),
    Case(nodes=65, prefix=500, heads=4, batch=3),
]  # fmt: skip


def run(case: Case, block: int, splits: int | None, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Ours, and the dense reference in float64."""
    from specdec_core.models.tree_attention.kernel import block_attention

    mask, given = mask_of(case, rng).to(DEVICE), [tensor.to(DEVICE) for tensor in inputs(case, rng)]
    ours = block_attention(*given, block_mask(mask, block), case.dim**-0.5, splits).transpose(1, 2)
    exact = dense_attention(*(tensor.double() for tensor in given), mask, case.dim**-0.5)
    return ours.double(), exact


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_kernel_is_the_dense_reference(case, rng):
    ours, exact = run(case, 32, None, rng)
    assert (ours - exact).abs().max() <= TOLERANCE[case.dtype]


@pytest.mark.parametrize("splits", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("block", [16, 32, 64])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_blocks_and_shares_of_every_size(dtype, block, splits, rng):
    ours, exact = run(Case(nodes=300, prefix=450, heads=4, kv_heads=2, dim=64, dtype=dtype), block, splits, rng)
    assert (ours - exact).abs().max() <= TOLERANCE[dtype]


def test_views_of_a_cache_are_read_where_they_are(rng):
    from specdec_core.models.tree_attention.kernel import block_attention

    case = Case(nodes=64, prefix=4000, heads=8, kv_heads=8, dim=128, dtype=torch.float16)
    cache = torch.full((2, 1, 8, 5000, 128), math.nan, dtype=torch.float16, device=DEVICE)
    mask, (query, *stored) = mask_of(case, rng).to(DEVICE), inputs(case, rng)
    cache[..., :4064, :] = torch.stack(stored).to(DEVICE)
    keys, values = cache[..., :4064, :]
    query, blocks = query.to(DEVICE), block_mask(mask)
    block_attention(query, keys, values, blocks, 0.1)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    assert block_attention(query, keys, values, blocks, 0.1).isfinite().all()
    assert torch.cuda.max_memory_allocated() - before < keys.numel() * keys.element_size() // 2


def test_the_host_waits_for_nothing(rng):
    from specdec_core.models.tree_attention.kernel import block_attention

    case = Case(nodes=64, prefix=100, heads=4, kv_heads=4, dim=64, dtype=torch.float16)
    given = [tensor.to(DEVICE) for tensor in inputs(case, rng)]
    masks = [mask_of(case, rng).to(DEVICE) for _ in range(2)]
    block_attention(*given, block_mask(masks[0]), 0.1)
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = block_attention(*given, block_mask(masks[1]), 0.1)  # a wait would raise here
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert bool(found.isfinite().all())


def test_greedy_decoding_in_float32_is_sdpas_token_for_token():
    answers = []
    for attention in ("sdpa", TRITON):
        pair = load_pair(str(TINY / "target"), str(TINY / "draft"), device="cuda", dtype="float32", attention=attention)
        assert pair.target.attention == attention
        prompt = pair.tokenizer("def read_config(filename):\n")["input_ids"]
        drafter = OptTree(draft=pair.draft, n=60, delta=0.1)
        answers.append(generate(pair.target, drafter, Greedy(), prompt, max_new_tokens=64).tokens)
    assert answers[0] == answers[1]
