"""Traversal verification: a tree judged from its leaves to its root (Weng et al., 2025, arXiv 2505.12398)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor

from specdec_core.errors import PairError
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.sampling import Sampling, check_draws, without_best
from specdec_core.sending import sent
from specdec_core.tree import TokenTree, Verdict
from specdec_core.verifiers.base import follow, target_choices
from specdec_core.verifiers.rounds import ended, family, no_q, one_for_each, probs_after, probs_after_all
from specdec_core.verifiers.tree_rounds import Families, NodeRounds, residual, tree_rounds, without_sure

_BELOW_ONE = 1 - 2**-53
"""The largest number that a coin shows: no chance but 1 is above it."""


@dataclass(slots=True)
class _Known:
    """Rounds that were judged before, or those of a leaf."""

    residual: Callable[[], Tensor]
    chance: float
    accepts: Sequence[float] = ()
    ends: float = 0.0

    def accept(self, place: int) -> float:
        """As `NodeRounds.accept`."""
        return self.accepts[place]

    def reject(self, place: int) -> None:
        """The chance is right behind the last child."""
        self.chance = self.ends if place + 1 == len(self.accepts) else self.chance


Children = Mapping[int, Sequence[int]]
Begin = Callable[[int, float], NodeRounds | _Known]
"""Rounds of a node that the walk comes to with such a chance."""


class Traversal:
    """Accept the first node, children before their parent and in draft order, whose coin is below its chance.

    Chances are those of `NodeRounds`: a leaf's is what its parent gives it, another node's what is left of that behind
    all its children, the root's is 1. They follow from the drafted tokens, whatever coins show. A rejected subtree
    leaves its parent what a rejected child leaves, so that the output distribution is the target's. Trees of one level
    are judged as by rounds. Deeper ones are accepted at least as far: an improbable node may be worth its subtree.

    Whether a child is drafted may depend on all that is drawn before it, but not on what it is itself. At temperature 0
    this is greedy verification.
    """

    def __init__(self, *, draws: str = "without_replacement") -> None:
        check_draws(draws, ("iid", "without_replacement", "greedy_one"))
        self.draws, self.lossless_for = draws, frozenset({draws})

    def judge(self, tree: TokenTree, target: ModelOutput, sampling: Sampling, rng: Generator) -> Verdict:
        """PairError for a tree without q; NonFiniteLogitsError where nonsense stands before the accepted node."""
        if sampling.greedy:
            return follow(tree, target_choices(target, sampling, rng))
        if tree.edge_probs is None:
            raise PairError(no_q(self))
        coins, (tokens, children) = one_for_each(tree, rng), family(tree)
        if 0 in children and tree.draft_probs is None:
            raise PairError(no_q(self))
        self.check(children)
        on_gpu = target.logits.device.type == "cuda" and 0 in children
        begin = (self._at_once if on_gpu else self.rounds_of)(tree, target, sampling, tokens, children)
        path, rounds = accepted(children, coins.tolist(), begin)
        return ended(path, rounds.residual(), tokens, target, rng)

    def check(self, children: Children) -> None:
        """Refuse trees that the rule does not judge: there are none."""

    @property
    def how(self) -> dict[str, bool]:
        """Options of the rounds."""
        removes = self.draws == "without_replacement"
        return {"remove": removes, "uniform_fallback": removes, "sure": self._sure}

    @property
    def _sure(self) -> bool:
        """Whether all children of a node but the first are there for sure."""
        return self.draws == "greedy_one"

    def rounds_of(
        self, tree: TokenTree, target: ModelOutput, sampling: Sampling, tokens: Sequence[int], children: Children
    ) -> Begin:
        """Rounds of a node once the walk comes to it."""

        def begin(node: int, chance: float) -> NodeRounds | _Known:
            below, p = children.get(node), partial(probs_after, target, node, sampling)
            if not below or not chance:
                return _Known(p, chance)
            q = tree.q_after(node)
            assert q is not None
            drawn = [tokens[child] for child in below]
            fresh = [token not in drawn[:place] for place, token in enumerate(drawn)]
            at = sent(torch.tensor(drawn), q.device), sent(torch.tensor(fresh), q.device)
            q = without_best(q, at[0][1:]) if self._sure else q
            return NodeRounds(p().double(), q.double(), *at, chance, **self.how)

        return begin

    def _at_once(
        self, tree: TokenTree, target: ModelOutput, sampling: Sampling, tokens: Sequence[int], children: Children
    ) -> Begin:
        """Rounds of all nodes, judged level by level before the walk, with one read from the device."""
        p, q, rows = probs_after_all(target, sampling), tree.draft_probs, tree.draft_rows
        assert q is not None
        assert rows is not None
        families = Families.of(tree.parents, tree.tokens)
        q = without_sure(q, rows, tree.parents, tree.tokens, families) if self._sure else q
        begins = (tree.parents < 0).double()
        below_one, shares = torch.full_like(begins, _BELOW_ONE), begins.new_zeros(len(tokens), 3)
        for depth in range(_depth(children)):
            level = torch.where(tree.depths == depth, rows, -1)
            found = tree_rounds(p, q, level, tree.tokens, below_one, families, begins, **self.how)
            begins, shares = begins + found[0], shares + found[1]
        entered, ends = torch.stack((begins, shares[:, 2])).tolist()

        def begin(node: int, chance: float) -> _Known:
            if not (below := children.get(node)):
                return _Known(lambda: p[node], chance)
            taken = [tokens[child] for child in below[1:]] if self._sure else ()
            left = partial(residual, p[node], q.index_select(0, rows[node : node + 1])[0], shares[node], taken)
            return _Known(left, chance, [entered[child] for child in below], ends[node])

        return begin


def accepted(children: Children, coins: Sequence[float], begin: Begin) -> tuple[list[int], NodeRounds | _Known]:
    """The accepted path, and the rounds of its end.

    It ends at a node whose p or q are no numbers, and neither is what is left there.
    """
    path, rounds, places = [0], [begin(0, 1.0)], [0]
    while True:
        below, last = children.get(path[-1], ()), rounds[-1]
        if last.chance and places[-1] < len(below):
            child = below[places[-1]]
            if math.isnan(chance := last.accept(places[-1])):
                return path, last
            path.append(child)
            rounds.append(begin(child, chance))
            places.append(0)
        elif not coins[path[-1]] >= last.chance:  # also where that is no number
            return path, last
        else:
            del path[-1], rounds[-1], places[-1]
            rounds[-1].reject(places[-1])
            places[-1] += 1


def _depth(children: Children) -> int:
    """How many levels have children."""
    level, depth = [0], 0
    while level := [child for node in level for child in children.get(node, ())]:
        depth += 1
    return depth
