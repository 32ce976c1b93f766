"""Suffix decoding: the text's last words stood there before, and what most often followed is the draft."""

from heapq import heappop, heappush
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from specdec_core.drafters.base import Context, Drafter
from specdec_core.drafters.suffix_automaton import SuffixAutomaton
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.tree import TokenTree


class Frequent(NamedTuple):
    """A tree of frequent continuations: `tokens` and `parents` below a root, which is node 0, and its score."""

    tokens: list[int]
    parents: list[int]
    score: float


class SuffixDecoding(Drafter):
    """Suffix decoding (Oliaro et al., 2024, arXiv 2411.04975): counted continuations in place of a draft model.

    A pattern is a suffix of the text, of 1 to `max_pattern` tokens. Where it stood before, its continuations are a trie
    with counts. D of a node estimates how likely it is accepted: D of its parent times its share of the counts of the
    parent's children. The trie's best nodes by D are a candidate tree. Of all patterns' candidates the one with the
    highest score, the sum of its D, is drafted; of equal ones that of the longest pattern.

    A candidate has at most `n` nodes, and at most `max_spec_factor` times its pattern's length (the paper's MAX_SPEC =
    alpha p); None: `n` alone. Among nodes of equal D the shallowest comes first, then the one that was seen last.

    The index is the paper's per-request tree, of prompt and answer. Its global tree of earlier answers is left out:
    what it drafts for a conversation depends on those decoded before it. A resumed or sharded run would draft other
    trees than an uninterrupted one, a turn decoded again would find its own answer, and intervals over conversations
    need these to be independent.

    D is no probability of a draft model: `draws` is `topk`, and trees have neither `edge_probs` nor `draft_probs`.
    """

    draws = "topk"

    def __init__(self, *, n: int = 25, max_pattern: int = 64, max_spec_factor: float | None = None) -> None:
        for name, value in (("n", n), ("max_pattern", max_pattern)):
            if value < 1:
                raise ValueError(f"SuffixDecoding's {name} must be at least 1, not {value}")
        if max_spec_factor is not None and max_spec_factor <= 0:
            raise ValueError(f"SuffixDecoding's max_spec_factor must be above 0, not {max_spec_factor}")
        self.n, self.max_pattern, self.max_spec_factor = n, max_pattern, max_spec_factor
        self._forget()

    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Forget the last text; the prompt is part of the first context."""
        self._forget()

    def grow(self, context: Context) -> TokenTree:
        """The best candidate of all patterns; the bare root where the last token is new."""
        for token in context.tokens[self._index.size :]:
            self._index.append(token)
        best = self._best()
        tokens, parents = [context.tokens[-1], *best.tokens], [-1, *best.parents]
        return TokenTree(torch.tensor(tokens), torch.tensor(parents), edge_probs=None)

    def _forget(self) -> None:
        self._index = SuffixAutomaton(self.max_pattern + self.n)

    def _best(self) -> Frequent:
        """Of the candidates, longest pattern first; D is at most 1, so that none scores more than its size."""
        best = Frequent([], [], 0.0)
        for state, length in self._index.suffixes():
            if self._index.shortest(state) > self.max_pattern:
                continue
            size = self._size(min(length, self.max_pattern))
            if size <= best.score:  # nor have shorter patterns larger trees
                break
            best = max(best, frequent(self._index, state, size), key=lambda tree: tree.score)
        return best

    def _size(self, pattern: int) -> int:
        """Nodes of a candidate at most."""
        return self.n if self.max_spec_factor is None else min(self.n, int(self.max_spec_factor * pattern))


def frequent(index: SuffixAutomaton, state: int, size: int) -> Frequent:
    """The first `size` nodes, by D, of the trie of what follows a state's strings."""
    tokens: list[int] = []
    parents: list[int] = []
    frontier: list[tuple[float, int, int, int, int, int]] = []
    estimate, depth, score = 1.0, 0, 0.0
    while len(tokens) < size:
        children = index.children[state]
        total = sum(index.count[child] for child in children.values())
        for token, child in children.items():
            share = estimate * (index.count[child] / total)
            heappush(frontier, (-share, depth + 1, -index.latest[child], token, child, len(tokens)))
        if not frontier:
            break
        negative, depth, _, token, state, parent = heappop(frontier)
        estimate = -negative
        score += estimate
        tokens.append(token)
        parents.append(parent)
    return Frequent(tokens, parents, score)
