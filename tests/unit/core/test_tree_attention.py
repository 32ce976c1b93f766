"""Blocks of a mask, the attention that reads only those, and when it is refused."""

import gc
import importlib.util
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from architectures import VOCAB, both, by_paths, by_tree, close
from doubles import random_tree
from transformers import BloomConfig, LlamaConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from tree_attention import TOLERANCE, Case, by_definition, inputs, mask_of

from specdec_core import CausalLM, generate, load_pair
from specdec_core.drafters import OptTree
from specdec_core.errors import LoadError
from specdec_core.models import ModelSpec, loading
from specdec_core.models.planted import pair as planted
from specdec_core.models.planted.bigrams import Planting
from specdec_core.models.tree_attention import (
    DENSE,
    SPLIT,
    TRITON,
    block_mask,
    blocks,
    check_attention,
    dense_attention,
    split_attention,
)
from specdec_core.models.tree_attention.interface import by_group
from specdec_core.node_order import block_count
from specdec_core.verifiers import Greedy
from specdec_trees.prompts.embedded import TINY

INTERPRETED = Path(__file__).with_name("interpreted_tree_attention.py")
CPU = torch.device("cpu")
MASKS = [
    *(Case(kind, prefix=prefix) for kind in ("random", "chain", "star") for prefix in (0, 1, 31, 32, 200)),
    *(Case(nodes=nodes, new=new, prefix=7) for nodes, new in ((1, 1), (2, 1), (64, 64), (90, 10), (130, 65))),
]


@pytest.mark.long
def test_the_kernel_in_tritons_interpreter():
    """In a process of its own: Triton is imported with transformers, and reads then whether it is to interpret."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rp", str(INTERPRETED))
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert run.stdout.count("PASSED ") > 40


@pytest.mark.parametrize("block", blocks.BLOCKS)
@pytest.mark.parametrize("case", MASKS, ids=str)
def test_the_blocks_of_a_mask_are_those_of_brute_force(case, block, rng):
    mask = mask_of(case, rng)
    seen, made = mask[0, 0] == 0, block_mask(mask, block)
    rows, slots = seen.shape
    assert (made.rows, made.slots, made.block) == (rows, slots, block)
    for i in range(made.listed.shape[0]):
        found = {}
        for j in range(made.listed.shape[1]):
            tile = seen[i * block : (i + 1) * block, j * block : (j + 1) * block]
            if tile.any():
                found[j] = bool(tile.all()) and tile.shape[1] == block
        listed = made.listed[i, : made.counts[i]].tolist()
        assert listed == [2 * j + full for j, full in found.items()]
        assert sorted(entry // 2 for entry in made.listed[i].tolist()) == list(range(made.listed.shape[1]))
    column = torch.arange(slots)
    words = made.words[column // block].T[:rows]
    assert torch.equal((words >> (column % block)) & 1 == 1, seen)


@pytest.mark.parametrize("prefix", [0, 5, 64])
def test_as_many_blocks_are_listed_as_are_counted(prefix, rng):
    case = Case(nodes=150, prefix=prefix)
    mask = mask_of(case, rng)
    tree = mask[0, 0, :, prefix:] == 0
    assert block_mask(mask, 32).counts.sum() == block_count(tree, 32, prefix)


def test_blocks_are_made_once_for_a_mask_and_go_with_it(rng):
    mask = mask_of(Case(), rng)
    before = len(blocks._memo)
    made = block_mask(mask)
    assert block_mask(mask) is made
    assert block_mask(mask, 16) is not made
    assert block_mask(mask.clone()) is not made
    assert torch.equal(block_mask(mask == 0).words, made.words)
    del mask
    gc.collect()
    assert len(blocks._memo) == before


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("prefix", [0, 1, 31, 200])
def test_the_dense_reference_is_attention_by_its_definition(prefix, dtype, rng):
    case = Case(prefix=prefix, heads=4, kv_heads=2, dtype=dtype)
    mask, (query, key, value) = mask_of(case, rng), inputs(case, rng)
    for given in (mask, mask == 0):
        ours = dense_attention(query, key, value, given, 0.25)
        assert (ours.double() - by_definition(query, key, value, mask, 0.25)).abs().max() <= TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", [case for case in MASKS if case.prefix], ids=str)
def test_prefix_and_tree_apart_are_attention_by_its_definition(case, dtype, rng):
    case = replace(case, heads=6, kv_heads=2, dtype=dtype)
    mask, (query, key, value) = mask_of(case, rng), inputs(case, rng)
    exact, dense = by_definition(query, key, value, mask, 0.25), dense_attention(query, key, value, mask, 0.25)
    for given, prefix in ((mask, case.prefix), (mask == 0, case.prefix), (mask, 1)):
        ours = split_attention(query, key, value, given, 0.25, prefix=prefix)
        assert (ours.double() - exact).abs().max() <= TOLERANCE[dtype]
        assert dtype != torch.float32 or (ours - dense).abs().max() <= 1e-6


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (6, 1), (3, 3)])
def test_attention_by_group_is_that_of_copied_keys_and_values(heads, kv_heads, dtype, rng):
    case = Case(nodes=33, prefix=70, heads=heads, kv_heads=kv_heads, dtype=dtype)
    mask, (query, key, value) = mask_of(case, rng), inputs(case, rng)
    layer = SimpleNamespace(num_key_value_groups=heads // kv_heads)
    copied, _ = sdpa_attention_forward(layer, query, key, value, mask, scaling=0.25)
    ours = by_group(query, key, value, mask, 0.25)
    assert torch.equal(ours, copied)
    assert ours.is_contiguous()


@pytest.mark.parametrize("attention", [DENSE, SPLIT])
@pytest.mark.parametrize("name", ["llama-2-70b", "opt", "gpt2", "mistral"])
def test_a_model_under_our_attention_scores_trees(name, attention, rng):
    own, model = both(name)
    model.model.set_attn_implementation(attention)
    model.reset(8)
    prefix = [5, 9, 11, 3]
    model.prefill(torch.tensor(prefix))
    tree = random_tree(17, VOCAB, rng)
    assert model.attention == attention
    assert close(by_tree(model, tree).logits, by_paths(own, prefix, tree))


def test_greedy_decoding_is_sdpas():
    answers = []
    for attention in ("sdpa", DENSE, SPLIT):
        pair = load_pair(str(TINY / "target"), str(TINY / "draft"), device="cpu", attention=attention)
        prompt = pair.tokenizer("Once upon a time")["input_ids"]
        result = generate(pair.target, OptTree(draft=pair.draft, n=25), Greedy(), prompt, max_new_tokens=32)
        answers.append(result.tokens)
        assert isinstance(pair.draft, CausalLM)
        assert (pair.target.attention, pair.draft.attention) == (attention, attention)
    assert answers[0] == answers[1] == answers[2]


def refusal(monkeypatch: pytest.MonkeyPatch, attention: str) -> str:
    """What the embedded pair is refused with, before its weights are read."""
    monkeypatch.setattr(loading, "fetch_weights", lambda *_, **__: pytest.fail("weights are read"))
    with pytest.raises(LoadError) as refused:
        load_pair(str(TINY / "target"), str(TINY / "draft"), device="cpu", attention=attention)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_without_a_gpu_the_kernel_is_refused(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    said = refusal(monkeypatch, TRITON)
    assert "runtime.attention=tree_triton needs a GPU, and the pair would run on cpu" in said
    assert "runtime.attention=sdpa" in said
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    check_attention(TRITON, [CPU], [LlamaConfig()])


def test_without_triton_the_kernel_is_refused(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "triton" else find(name, *more)
    )
    assert "needs Triton: pip install triton" in refusal(monkeypatch, TRITON)


def test_planted_pairs_are_refused_too(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1)
    with pytest.raises(LoadError, match="needs a GPU"):
        planted.plant_pair(
            [ModelSpec(id="a")], [config], Planting(private=0.1), device=CPU, dtype=torch.float32, attention=TRITON
        )


@pytest.mark.parametrize("name", [DENSE, TRITON])
def test_an_architecture_with_attention_of_its_own_is_refused(name):
    with pytest.raises(LoadError, match=r"bloom has one of its own; use runtime\.attention=sdpa"):
        check_attention(name, [CPU], [LlamaConfig(), BloomConfig()])
    check_attention("sdpa", [CPU], [BloomConfig()])


def test_heads_too_wide_for_the_kernel_are_refused(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for config in (LlamaConfig(hidden_size=1024, num_attention_heads=4), LlamaConfig(head_dim=256)):
        with pytest.raises(LoadError, match="heads of at most 128 dimensions, and those of llama have 256"):
            check_attention(TRITON, [CPU], [config])
        check_attention(DENSE, [CPU], [config])


@pytest.mark.parametrize(("capability", "dtype", "dim", "splits"), [(80, "fp16", 128, 1), (90, "bf16", 80, 4)])
def test_the_kernel_compiles_for_gpus(capability, dtype, dim, splits):
    """Which needs none: what the interpreter lets pass and the compiler does not is seen here."""
    triton = pytest.importorskip("triton")
    compiler = pytest.importorskip("triton.backends.compiler")
    from specdec_core.models.tree_attention import kernel

    sizes = {"GROUP": 4, "BLOCK": 32, "DIM": dim, "WIDTH": 128, "SPLITS": splits, "WIDEN": False}
    kinds = dict.fromkeys(("query", "key", "value", "out"), f"*{dtype}") | {"scale": "fp32", "sums": "*fp32"}
    kinds |= dict.fromkeys(("listed", "counts", "words"), "*i32") | dict.fromkeys(sizes, "constexpr")
    kinds["parts"] = f"*{dtype}" if splits == 1 else "*fp32"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for function in (kernel._attend, kernel._combine)[: 1 if splits == 1 else 2]:
            names = function.arg_names
            signature = {name: kinds.get(name, "i32") for name in names}
            constants = {(names.index(name),): value for name, value in sizes.items() if name in names}
            source = triton.compiler.ASTSource(function, signature, constants)
            made = triton.compile(source, target=compiler.GPUTarget("cuda", capability, 32))
            assert made.metadata.shared < 99 * 1024
            if function is kernel._attend:
                assert "mma" in made.asm["ptx"], "tensor cores"
