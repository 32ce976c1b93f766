"""Greedy multi-path block verification of independent sequences (GBV, 2026, arXiv 2602.16961)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from specdec_core.errors import PairError
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.sampling import Sampling
from specdec_core.sending import sent
from specdec_core.tree import TokenTree, Verdict
from specdec_core.verifiers.base import follow, target_choices
from specdec_core.verifiers.block import Block
from specdec_core.verifiers.rounds import family, no_q, probs_after
from specdec_core.verifiers.traversal import Children


@dataclass(frozen=True, slots=True)
class Best:
    """The best of the drafted sequences, as a chain that was drawn from q*."""

    nodes: Int[Tensor, " path"]
    """Of the whole tree, one below another, the root first; on the tree's device."""
    chain: TokenTree

    def output(self, target: ModelOutput) -> ModelOutput:
        """The target's, after these nodes."""
        return ModelOutput(target.logits[self.nodes], root_probs=target.root_probs)


class GreedyMultiPath(Block):
    """Judge the best of K independent sequences as one block.

    Sequences have an order before they are drawn: by the first token in which they differ, of which the larger p / q is
    the better. If F is the probability that one draw is no better than a sequence, F^K is that of the best of K. Its
    next token has the distribution q* that follows, and `Block` compares p with q*, so that the output distribution is
    the target's. The paper's abstract names the idea; q* is derived here. With one sequence it is `Block`. More are not
    always better: the best of many may come more often than p has it.

    Sequences are of one length, which must not hang on what was drawn, and equal beginnings are not merged. Of equal
    ones the target must say the same: where p / q ties up to rounding, rounding decides the order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lossless_for = frozenset({"iid"})

    def judge(self, tree: TokenTree, target: ModelOutput, sampling: Sampling, rng: Generator) -> Verdict:
        """PairError for a tree without q, or not of sequences of one length; else as `Block`.

        At temperature 0 the first of equal tokens is followed, as by any rule.
        """
        if sampling.greedy:
            return follow(tree, target_choices(target, sampling, rng))
        best = self.best(tree, target, sampling)
        verdict = super().judge(best.chain, best.output(target), sampling, rng)
        return replace(verdict, path=best.nodes.cpu()[verdict.path])

    def best(self, tree: TokenTree, target: ModelOutput, sampling: Sampling) -> Best:
        """Of the drafted sequences; one read from the device for each level."""
        if tree.edge_probs is None:
            raise PairError(no_q(self))
        tokens, children = family(tree)
        check_sequences(children)
        device, laws, level = tree.tokens.device, list[Tensor](), children.get(0, [])
        at, count, share = 0, len(level), torch.ones((), dtype=torch.float64, device=tree.tokens.device)
        while level:
            q = tree.q_after(at)
            if q is None:
                raise PairError(no_q(self))
            p, q = probs_after(target, at, sampling).double(), q.double()
            order = torch.where(q > 0, p / q, -1.0).argsort(descending=True, stable=True)
            law, shares = best_law(q, order, share, count)
            drawn = sent(torch.tensor([tokens[node] for node in level]), device)
            token = int(drawn[order.argsort()[drawn].argmin()])
            alike = [node for node in level if tokens[node] == token]
            at, share, laws = alike[0], shares[token], [*laws, law]
            level = [children[node][0] for node in alike if node in children]
        path = tree.ancestor_mask[at].nonzero().flatten()
        return Best(path, _chain(tree.tokens[path], laws))


def check_sequences(children: Children) -> None:
    """PairError for a tree that branches below its root, or whose leaves are not equally deep."""
    level = children.get(0, [])
    while level:
        below = [children.get(node, []) for node in level]
        if len({len(nodes) for nodes in below}) > 1 or len(below[0]) > 1:
            raise PairError(
                "verifier=gbv judges independent sequences of one length, kept apart; draft them "
                "(drafter=spec_infer_5x8)"
            )
        level = [child for nodes in below for child in nodes]


def best_law(
    q: Float[Tensor, " vocab"], order: Int[Tensor, " vocab"], share: Float[Tensor, ""], count: int
) -> tuple[Float[Tensor, " vocab"], Float[Tensor, " vocab"]]:
    """The next token's distribution q* in the best of so many draws, and the share that each token would leave.

    The share is a part of the draws that are no better than what is known of the best one: those that begin like it, 1
    before the first token. `order` has the best token first. Where F^K - G^K is wanted, F - G is divided out.
    """
    begun = share * q
    better = torch.zeros_like(q).index_copy_(0, order, q[order].cumsum(0) - q[order])
    kept = torch.maximum(1 - share * better, begun)
    rest, known = kept - begun, 1 - share
    weights = sum(kept ** (count - 1 - i) * rest**i for i in range(count))
    law = q * weights / sum(known**i for i in range(count))
    return law / law.sum(), begun / kept


def _chain(tokens: Int[Tensor, " path"], laws: Sequence[Tensor]) -> TokenTree:
    """A root and one node below another, drawn from these laws."""
    rows = torch.arange(len(tokens), device=tokens.device)
    if not laws:
        return TokenTree(tokens, rows - 1, torch.ones_like(rows, dtype=torch.float32))
    probs = torch.stack(list(laws))
    edges = torch.cat((probs.new_ones(1), probs.gather(1, tokens[1:, None])[:, 0]))
    return TokenTree(tokens, rows - 1, edges, probs, torch.where(rows < len(laws), rows, -1))
