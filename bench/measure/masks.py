"""The attention masks of a decoding run's trees: the blocks that each has in every node order."""

from typing import Any

from bench.results.rows import MaskRow
from specdec_core.models import ModelOutput
from specdec_core.node_order import NODE_ORDERS, block_count, heap_order, placed, reordered
from specdec_core.tree import TokenTree, Verdict

BLOCK = 32
"""Rows and columns of a block, as in the paper's kernel (DySpec, appendix C.1)."""


class MaskRecorder:
    """A watch for `generate` that turns every judged tree into a row per node order.

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
