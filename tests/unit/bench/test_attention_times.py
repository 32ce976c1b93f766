"""Times of attention over random trees: what is timed is one function, by every kernel; rows, counts, refusals."""

from pathlib import Path

import pytest
import torch
from cells import execute

from specdec_core.layout import tree_layout
from specdec_core.models.tree_attention import TRITON, dense_attention
from specdec_core.node_order import block_count, node_order, reordered
from specdec_trees import published
from specdec_trees.calibrate import attention_kernels, attention_times
from specdec_trees.calibrate.attention_kernels import FLEX, KERNELS, MANUAL, SDPA, Problem, runnable
from specdec_trees.calibrate.attention_times import AttentionGrid, random_tree
from specdec_trees.results.store import Store, load

CPU = torch.device("cpu")
SMALL = ("measure=attention", "name=here", "attention.num_tokens=[8,40]", "attention.head_dim=16", "attention.trees=2")
SMALL += ("attention.heads=4", "attention.kv_heads=2", "attention.repeats=3", "attention.num_prefix=5")


def problem(nodes: int, prefix: int, kv_heads: int, rng: torch.Generator) -> Problem:
    tree = random_tree(nodes, seed=nodes)
    mask = tree_layout(tree.ancestor_mask, tree.depths, prefix=prefix).mask
    stored = torch.randn(2, 1, kv_heads, prefix + nodes, 16, generator=rng)
    return Problem(torch.randn(1, 4, nodes, 16, generator=rng), *stored, mask, 32)


@pytest.mark.filterwarnings("ignore:(?s)flex_attention called without")
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("name", [SDPA, MANUAL, FLEX])
def test_kernels_compute_the_same(name, kv_heads, rng, monkeypatch):
    monkeypatch.setattr(attention_kernels, "_compiled_flex", lambda: torch.nn.attention.flex_attention.flex_attention)
    for prefix in (0, 37):
        given = problem(50, prefix, kv_heads, rng)
        expected = dense_attention(given.query, given.key, given.value, given.mask, given.scale)
        assert torch.allclose(KERNELS[name](given)(), expected, atol=1e-5, rtol=0)


def test_masks_of_a_size_share_one_rule_so_that_nothing_recompiles(rng):
    one, other = (problem(40, 3, 2, rng) for _ in range(2))
    for given in (one, other):
        KERNELS[FLEX](given)
    assert attention_kernels._flex_rule(40, 43, CPU) is attention_kernels._flex_rule(40, 43, CPU)


def test_what_needs_a_gpu_is_left_out_without_one():
    assert [name for name in KERNELS if runnable(name, CPU)] == [SDPA, MANUAL]
    assert all(runnable(name, torch.device("cuda")) for name in KERNELS)


def test_random_trees_are_uniform_and_recursive():
    trees = [random_tree(20, seed).parents for seed in range(2000)]
    for parents in trees[:100]:
        assert parents[0] == -1
        assert (parents < torch.arange(20)).all()
    counts = torch.bincount(torch.stack(trees)[:, 10], minlength=10) / 2000
    assert len(counts) == 10
    assert (counts - 0.1).abs().max() < 0.03
    assert torch.equal(random_tree(300, 4).parents, random_tree(300, 4).parents)


def test_the_papers_block_counts_are_those_of_these_trees():
    """Within 3% over 20 trees: the paper does not say how many it has drawn."""
    rows = published.find("dyspec", "table5", metric="num_blocks").set_index("params")["value"]
    for nodes in (256, 512, 1024):
        for order, word in (("creation", "false"), ("dfs", "true")):
            counts = []
            for seed in range(20):
                tree = random_tree(nodes, seed)
                counts.append(block_count(reordered(tree, node_order(tree, order)).ancestor_mask, 32))
            mean = float(torch.stack(counts).double().mean())
            assert mean == pytest.approx(rows[f"size={nodes};reorder={word};block=32"], rel=0.03)


def test_rows_are_written_once_and_shown_again(tmp_path: Path, capsys, monkeypatch):
    assert execute(tmp_path, *SMALL) == "ok"
    said = capsys.readouterr().out
    assert f"{TRITON} is timed on a GPU alone" in said
    rows = load(tmp_path, "here").attention
    assert len(rows) == 2 * 2 * 2 * 2  # sizes, trees, orders, kernels
    assert set(rows["kernel"]) == {SDPA, MANUAL}
    assert rows["forward_s"].min() > 0
    assert set(rows["repeats"]) == {3}
    assert set(rows["num_tree_blocks"][rows["num_nodes"] == 8]) == {1}
    assert (rows["num_blocks"] >= rows["num_tree_blocks"]).all()
    monkeypatch.setattr(attention_times, "rows", lambda *_, **__: pytest.fail("measured twice"))
    assert execute(tmp_path, *SMALL, "name=there") == "ok"
    assert capsys.readouterr().out == said
    assert load(tmp_path, "there").attention.equals(rows)
    assert Store(tmp_path, "calibration").read("attention").equals(rows)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"kernels": ["sdpaa"]}, 'unknown attention.kernel "sdpaa"; did you mean "sdpa"?'),
        ({"orders": ["bfs"]}, 'unknown attention.order "bfs"'),
        ({"heads": 6, "kv_heads": 4}, "attention.heads=6 is no multiple of attention.kv_heads=4"),
        ({"trees": 0}, "at least one"),
        ({"num_tokens": []}, "at least one"),
        ({"kv_heads": 0}, "attention.kv_heads has to be at least one"),
        ({"kernels": []}, "attention.kernels has to be at least one"),
        ({"block": 24}, "attention.block is one of 16, 32, 64, not 24"),
    ],
)
def test_a_grid_that_makes_no_sense_is_a_sentence(given, sentence):
    with pytest.raises(ValueError, match="attention") as refused:
        AttentionGrid(**given)
    assert sentence in str(refused.value)


def test_kernels_for_a_gpu_alone_are_refused_without_one(tmp_path):
    with pytest.raises(ValueError, match="tree_triton is timed on a GPU alone; add sdpa or manual"):
        execute(tmp_path, *SMALL, f"attention.kernels=[{TRITON}]")
    assert load(tmp_path, "here").attention.empty


def test_another_kernel_is_another_measurement(monkeypatch):
    before = attention_times.key(AttentionGrid(), CPU, torch.float32)
    assert attention_times.key(AttentionGrid(), CPU, torch.float32) == before
    monkeypatch.setattr(torch, "__version__", "9.9")
    assert attention_times.key(AttentionGrid(), CPU, torch.float32) != before


def test_a_slow_kernel_is_run_once_and_a_fast_one_as_often_as_asked(rng):
    given = problem(8, 0, 2, rng)
    for budget, runs in ((0.0, 1), (60.0, 7)):
        prepare_s, seconds = attention_times._times(KERNELS[SDPA], given, 7, budget)
        assert prepare_s >= 0
        assert len(seconds) == runs
