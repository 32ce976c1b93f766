"""Masks of a run's trees: what is recorded against what the target was given, and when it is written."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from cells import cell, execute, word_pair
from doubles import random_tree

from specdec_core import TokenTree, Verdict
from specdec_core.models import ModelOutput, Pair
from specdec_core.node_order import NODE_ORDERS, node_order, reordered
from specdec_trees.measure.cell import Runtime
from specdec_trees.measure.measurement import Measurement
from specdec_trees.measure.recorders import BLOCK, MaskRecorder
from specdec_trees.measure.to_rows import Rows
from specdec_trees.prompts.datasets import Conversation
from specdec_trees.results.rows import MaskRow
from specdec_trees.results.store import Store

TALK = Conversation("talk", ("w3 w1 w4", "w1 w5"))
ORDERS = ["heap", *NODE_ORDERS]


@pytest.fixture(scope="module")
def pair() -> Pair:
    """The target drafts for itself, so that much is accepted."""
    return replace(word_pair(), draft=word_pair().target)


def measured(pair: Pair, drafter: str, temperature: float = 0.0, **options: Any) -> Rows:
    rows = Rows()
    made = cell(f"drafter={drafter}", new=23, temperature=temperature)
    Measurement(made, pair, rows, Runtime(**options)).run(TALK)
    return rows


def by_step(rows: list[MaskRow]) -> list[list[MaskRow]]:
    return [rows[start : start + len(ORDERS)] for start in range(0, len(rows), len(ORDERS))]


def visible(parents: list[int]) -> torch.Tensor:
    mask = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] |= mask[parent]
    return mask


def filled(mask: torch.Tensor) -> int:
    return len({(row // BLOCK, column // BLOCK) for row, column in mask.nonzero().tolist()})


@pytest.mark.long
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("drafter", ["opt_tree_n50", "branching_4_2_2_1_iid", "autoregressive"])
def test_rows_are_the_masks_that_the_target_was_given(drafter, temperature, pair, monkeypatch):
    """In the pass of their own: prefix and tree of every forward, in the order in which it was fed."""
    given: list[tuple[int, torch.Tensor]] = []
    score = type(pair.target).__call__

    def call(model: Any, tokens: torch.Tensor, layout: Any) -> ModelOutput:
        if model is pair.target:
            prefix = model.cache.length
            mask = torch.ones(1, prefix + 1) if layout.mask is None else (layout.mask == 0)[0, 0].float()
            given.append((prefix, mask[:, prefix:].bool()))
        return score(model, tokens, layout)

    monkeypatch.setattr(type(pair.target), "__call__", call)
    rows = measured(pair, drafter, temperature, record_masks=True, baseline=False, node_order="dfs")
    monkeypatch.undo()
    steps = by_step(rows.masks)
    assert len(steps) == len(rows.steps)
    turns = [[place for place, step in enumerate(rows.steps) if step.turn == turn] for turn in (0, 1)]
    forwards = [*given[: len(turns[0])], *given[2 * len(turns[0]) :][: len(turns[1])]]  # of the pass that is measured
    for step, masks, (prefix, mask) in zip(rows.steps, steps, forwards, strict=True):
        assert [row.order for row in masks] == ORDERS
        assert {(row.prompt_id, row.turn, row.step) for row in masks} == {("talk", step.turn, step.step)}
        assert {(row.num_nodes, row.num_prefix, row.block) for row in masks} == {(step.num_drafted + 1, prefix, BLOCK)}
        (fed,) = (row for row in masks if row.order == "dfs")
        assert torch.equal(visible(fed.parents), mask)
        for row in masks:
            whole = torch.cat((torch.ones(row.num_nodes, prefix, dtype=torch.bool), visible(row.parents)), 1)
            assert row.num_tree_blocks == filled(visible(row.parents))
            assert row.num_blocks == filled(whole)


def test_nothing_is_recorded_unless_asked_and_both_instruments_share_a_pass(pair):
    plain = measured(pair, "opt_tree")
    assert list(plain.masks) == list(plain.nodes) == []
    both = measured(pair, "opt_tree", record_masks=True, record_nodes=True)
    assert both.nodes == measured(pair, "opt_tree", record_nodes=True).nodes
    assert both.masks == measured(pair, "opt_tree", record_masks=True).masks
    assert sum(row.num_nodes - 1 for row in both.masks if row.order == "dfs") == len(both.nodes)


def test_a_virtual_root_is_part_of_the_prefix():
    tree = random_tree(70, 7, torch.Generator().manual_seed(0))
    recorder = MaskRecorder("run", "prompt", 0, prompt_tokens=10)
    rows = torch.zeros(70, 7)
    path = tree.ancestor_mask[-1].nonzero().flatten()
    virtual = ModelOutput(rows, None, torch.full((7,), 1 / 7))
    recorder(tree, virtual, Verdict(path, (1,) * (len(path) - 1), None, virtual.root_probs))
    recorder(tree, virtual, Verdict(path[:1], (), 3))
    recorder(tree, ModelOutput(rows), Verdict(path, (1,) * (len(path) - 1), 3))
    recorder(TokenTree.root_only(3, torch.device("cpu")), ModelOutput(rows[:1]), Verdict(path[:1], (), 3))
    accepted = len(path) - 1
    found = [(row.num_nodes, row.num_prefix) for row in recorder.rows if row.order == "dfs"]
    assert found == [(69, 10), (69, 10 + accepted), (70, 10 + accepted), (1, 11 + 2 * accepted)]
    moved = reordered(tree, node_order(tree, "dfs"))
    dfs = next(row for row in recorder.rows if row.order == "dfs")
    assert torch.equal(visible(dfs.parents), moved.ancestor_mask[1:, 1:])
    assert dfs.num_tree_blocks == filled(visible(dfs.parents))


def test_masks_are_written_on_request_and_belong_to_their_run(tmp_path):
    chosen = ("drafter=opt_tree", "limit=1", "decoding.max_new_tokens=5", "runtime.warmup_conversations=0")
    store = Store(tmp_path, "default")
    assert execute(tmp_path, *chosen) == "ok"
    (run,) = store.read("runs")["run_id"]
    assert not store.has("masks", run)
    assert execute(tmp_path, *chosen, "record_masks=true") == "ok"
    assert execute(tmp_path, *chosen, "record_masks=true") == "skipped"
    masks = store.read("masks")
    assert set(masks["run_id"]) == {run}
    assert len(masks) == len(ORDERS) * len(store.read("steps"))
    assert [len(parents) for parents in masks["parents"]] == masks["num_nodes"].tolist()
    assert store.read("runs")["node_order"].tolist() == ["creation"]
    store.forget(run)
    assert store.read("masks").empty


def test_both_arms_are_decoded_in_the_order_and_give_the_same_tokens(pair):
    plain, moved = (measured(pair, "opt_tree", node_order=order) for order in ("creation", "heavy_path"))
    assert [row.output_ids for row in moved.prompts] == [row.output_ids for row in plain.prompts]
    assert {row.identical for row in moved.prompts} == {True}


def test_what_was_recorded_before_is_recorded_again(tmp_path):
    asked = ("dataset=mini", "limit=1", "decoding.max_new_tokens=6", "runtime.baseline=false", "drafter=chain4")
    for flag, tables in (("record_nodes", {"nodes"}), ("record_masks", {"nodes", "masks"})):
        assert execute(tmp_path, *asked, f"{flag}=true") == "ok"
        store = Store(tmp_path, "default")
        (run_id,) = store.read("runs")["run_id"]
        assert {table for table in ("nodes", "masks") if store.has(table, run_id)} == tables
    assert execute(tmp_path, *asked, "record_nodes=true") == "skipped"
