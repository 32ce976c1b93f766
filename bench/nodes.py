"""Per-node events of a decoding run: what the draft thought of each node and what became of it."""

import torch

from bench.records import NodeRow
from specdec_core.models import ModelOutput
from specdec_core.sampling import Sampling
from specdec_core.tree import TokenTree, Verdict


class NodeRecorder:
    """A watch for `generate` that turns every judged tree into rows."""

    def __init__(self, run_id: str, prompt_id: str, turn: int, sampling: Sampling) -> None:
        self.run_id, self.prompt_id, self.turn = run_id, prompt_id, turn
        self._law = Sampling(1.0) if sampling.greedy else sampling
        self.rows: list[NodeRow] = []
        self._step = 0

    def __call__(self, tree: TokenTree, target: ModelOutput, verdict: Verdict) -> None:
        """One row per drafted node."""
        accepted = torch.zeros(tree.num_nodes, dtype=torch.bool)
        accepted[verdict.path] = True
        p = self._law.probs(target.logits)[tree.parents.clamp(min=0)].gather(-1, tree.tokens[:, None])[:, 0]
        columns = (tree.parents, tree.depths, tree.edge_probs, tree.path_probs, p)
        for node, (parent, depth, edge, path, target_prob) in enumerate(
            zip(*(c.tolist() for c in columns), strict=True)
        ):
            if node == 0:
                continue
            self.rows.append(
                NodeRow(
                    run_id=self.run_id,
                    prompt_id=self.prompt_id,
                    turn=self.turn,
                    step=self._step,
                    node=node,
                    depth=depth,
                    edge_prob=edge,
                    path_prob=path,
                    target_prob=target_prob,
                    parent_accepted=bool(accepted[parent]),
                    accepted=bool(accepted[node]),
                )
            )
        self._step += 1
