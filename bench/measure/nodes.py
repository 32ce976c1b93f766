"""Per-node events of a decoding run: what the draft thought of each node and what became of it."""

from typing import Any

import torch
from torch import Tensor

from bench.results.rows import NodeRow
from specdec_core.models import ModelOutput
from specdec_core.sampling import Sampling
from specdec_core.tree import TokenTree, Verdict


class NodeRecorder:
    """A watch for `generate` that turns every judged tree into rows."""

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
