"""Watches for `generate` that turn every judged tree into rows: of its nodes, of its attention masks, of rules."""

from typing import Any

import torch
from torch import Tensor

from specdec_core.models import ModelOutput
from specdec_core.node_order import NODE_ORDERS, block_count, heap_order, placed, reordered
from specdec_core.sampling import Sampling
from specdec_core.tree import TokenTree, Verdict
from specdec_core.verifiers import (
    GreedyOne,
    KSeq,
    MultiCandidate,
    SpecInfer,
    TargetSample,
    Traversal,
    Verifier,
    WithoutReplacement,
)
from specdec_core.verifiers.expectation import expected_accepted
from specdec_trees.results.instrument_rows import MaskRow, NodeRow, RuleRow

BLOCK = 32
"""Rows and columns of a block, as in the paper's kernel (DySpec, appendix C.1)."""


RULES: dict[str, Verifier] = {
    "target_sample": TargetSample(),
    "spec_infer": SpecInfer(),
    "k_seq": KSeq(),
    "traversal_iid": Traversal(draws="iid"),
    "without_replacement": WithoutReplacement(),
    "multi_candidate": MultiCandidate(),
    "traversal": Traversal(),
    "greedy_one": GreedyOne(),
    "traversal_greedy": Traversal(draws="greedy_one"),
}
"""Those that are compared on one tree, by their yamls."""


class NodeRecorder:
    """A row per drafted node: what the draft thought of it and what became of it."""

    def __init__(self, run_id: str, prompt_id: str, turn: int, sampling: Sampling) -> None:
        self._turn: dict[str, Any] = {"run_id": run_id, "prompt_id": prompt_id, "turn": turn}
        self._sampling = Sampling(1.0) if sampling.greedy else sampling
        self.rows: list[NodeRow] = []
        self._step = 0

    def __call__(self, tree: TokenTree, target: ModelOutput, verdict: Verdict) -> None:
        """One row per drafted node."""
        found, absent = self._columns(tree, target, verdict), [None] * tree.num_drafted
        columns = {name: absent if column is None else column[1:].tolist() for name, column in found.items()}
        for values in zip(*columns.values(), strict=True):
            self.rows.append(NodeRow(**self._turn, step=self._step, **dict(zip(columns, values, strict=True))))
        self._step += 1

    def _columns(self, tree: TokenTree, target: ModelOutput, verdict: Verdict) -> dict[str, Tensor | None]:
        """The columns of the rows that are not the step's, of all nodes; the root's are not used. None: absent."""
        above = tree.parents.clamp(min=0)
        accepted = torch.zeros(tree.num_nodes, dtype=torch.bool, device=above.device)
        accepted[verdict.path] = True
        p = self._sampling.probs(target.logits)
        if target.root_probs is not None:
            p[0] = target.root_probs  # sampling settings applied already
        return {
            "node": torch.arange(tree.num_nodes),
            "parent": tree.parents,
            "rank": (tree.parents[:, None] == tree.parents).tril(-1).sum(-1),
            "depth": tree.depths,
            "edge_prob": tree.edge_probs,
            "path_prob": tree.path_probs,
            "target_prob": p[above, tree.tokens],
            "parent_accepted": accepted[above],
            "accepted": accepted,
        }


class MaskRecorder:
    """A row per tree and node order: the blocks that its mask has in that order.

    `prompt_tokens` is the length of the prompt, all of which is cached before the first step.
    """

    def __init__(self, run_id: str, prompt_id: str, turn: int, prompt_tokens: int) -> None:
        self._turn: dict[str, Any] = {"run_id": run_id, "prompt_id": prompt_id, "turn": turn}
        self.rows: list[MaskRow] = []
        self._prefix, self._step = prompt_tokens, 0

    def __call__(self, tree: TokenTree, target: ModelOutput, verdict: Verdict) -> None:
        """A row per node order, DySpec's heap first; a virtual root is cached already and stands in no mask.

        Where nodes have no probabilities there is no heap.
        """
        virtual = int(target.root_probs is not None)
        if tree.edge_probs is not None:
            self.rows.append(self._row(reordered(tree, heap_order(tree)), "heap", virtual))
        self.rows += [self._row(placed(tree, order).tree, order, virtual) for order in NODE_ORDERS]
        self._prefix += len(verdict.path) - virtual
        self._step += 1

    def _row(self, tree: TokenTree, order: str, virtual: int) -> MaskRow:
        visible = tree.ancestor_mask[virtual:, virtual:]
        return MaskRow(
            **self._turn,
            step=self._step,
            num_nodes=len(visible),
            num_prefix=self._prefix,
            order=order,
            block=BLOCK,
            num_blocks=int(block_count(visible, BLOCK, self._prefix)),
            num_tree_blocks=int(block_count(visible, BLOCK)),
            parents=(tree.parents[virtual:] - virtual).clamp(min=-1).tolist(),
        )


class RuleRecorder:
    """A row per tree and rule that keeps the target's distribution for its draws: what it accepts in the mean.

    Only while sampling; at temperature 0 all of them accept the same path.
    """

    def __init__(self, run_id: str, prompt_id: str, turn: int, draws: str, sampling: Sampling) -> None:
        self._turn: dict[str, Any] = {"run_id": run_id, "prompt_id": prompt_id, "turn": turn}
        self._rules = {name: rule for name, rule in RULES.items() if draws in rule.lossless_for}
        self._sampling = sampling
        self.rows: list[RuleRow] = []
        self._step = 0

    def __call__(self, tree: TokenTree, target: ModelOutput, verdict: Verdict) -> None:
        """A row per rule."""
        for name, rule in self._rules.items():
            accepted = expected_accepted(rule, tree, target, self._sampling)
            self.rows.append(RuleRow(**self._turn, step=self._step, rule=name, expected_accepted=accepted))
        self._step += 1
