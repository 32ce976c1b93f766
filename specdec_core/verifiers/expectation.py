"""How many tokens of a drafted tree a rule accepts in the mean over its own coins: exact, of the tree at hand."""

from functools import singledispatch

import torch

from specdec_core.errors import PairError
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.sampling import Sampling
from specdec_core.tree import TokenTree
from specdec_core.verifiers.base import Verifier
from specdec_core.verifiers.block import Block
from specdec_core.verifiers.gbv import GreedyMultiPath
from specdec_core.verifiers.rounds import ChildByChild, family, no_q, probs_after_all
from specdec_core.verifiers.traversal import Traversal


@singledispatch
def expected_accepted(rule: Verifier, tree: TokenTree, target: ModelOutput, sampling: Sampling) -> float:
    """The mean number of accepted drafted tokens, given the tree; the target's own token is not counted.

    Of the same tree it differs between rules without the noise of their coins. Its mean over the trees of a run is
    MAL - 1 for the rule that decodes, but for tokens behind an end of text; another rule's steps begin elsewhere. At
    temperature 0 equal siblings count for the best of them. PairError for a tree without q where the rule reads it.
    TypeError for a rule that chooses by whole paths in another way than `Traversal`.
    """
    raise TypeError(f"how much {type(rule).__name__} accepts of a tree in the mean is not known")


@expected_accepted.register
def _of_rounds(rule: ChildByChild, tree: TokenTree, target: ModelOutput, sampling: Sampling) -> float:
    """From the root on: a node is reached if its parent is, its earlier siblings are rejected and it is accepted."""
    (tokens, children), p = family(tree), probs_after_all(target, sampling)
    reached = [1.0] + [0.0] * (tree.num_nodes - 1)
    for node in range(tree.num_nodes):
        below = children.get(node)
        if not below or not reached[node]:
            continue
        q = tree.q_after(node)
        if q is None and rule.reads_q:
            raise PairError(no_q(rule))
        drawn = torch.tensor([tokens[child] for child in below], device=p.device)
        left = reached[node]
        for child, accept in zip(below, rule.rounds(p[node], p[node] if q is None else q, drawn).accept, strict=True):
            reached[child] = left * float(accept)
            left -= reached[child]
    return sum(reached) - 1


@expected_accepted.register
def _of_paths(rule: Traversal, tree: TokenTree, target: ModelOutput, sampling: Sampling) -> float:
    """From the leaves to the root: a node is accepted if nothing before it is, with what is left of its chance."""
    tokens, children = family(tree)
    if 0 in children and tree.draft_probs is None:
        raise PairError(no_q(rule))
    rule.check(children)
    begin = rule.rounds_of(tree, target, sampling, tokens, children)

    def judged(node: int, chance: float, depth: int, undecided: float) -> tuple[float, float]:
        """Accepted tokens in this subtree, and how probable it is that none of its nodes is accepted either."""
        rounds, accepted = begin(node, chance), 0.0
        for place, child in enumerate(children.get(node, ())):
            if not rounds.chance:
                break
            below, undecided = judged(child, rounds.accept(place), depth + 1, undecided)
            accepted += below
            rounds.reject(place)
        return accepted + undecided * rounds.chance * depth, undecided * (1 - rounds.chance)

    return judged(0, 1.0, 0, 1.0)[0]


@expected_accepted.register
def _of_the_best(rule: GreedyMultiPath, tree: TokenTree, target: ModelOutput, sampling: Sampling) -> float:
    """Of the best sequence as a block."""
    best = rule.best(tree, target, sampling)
    return expected_accepted(Block(), best.chain, best.output(target), sampling)
