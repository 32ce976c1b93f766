"""Prompt lookup: the text repeats itself, and what followed its last words before is the draft."""

from collections.abc import Sequence
from itertools import chain, islice

import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray
from torch import Tensor

from specdec_core.drafters.base import Context, Drafter
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.tree import TokenTree

LOOKED_AT = 16
"""Matches that are read for every one wanted, since several may go on alike."""


class PromptLookup(Drafter):
    """Prompt lookup decoding (Saxena, 2023): n-grams of prompt and answer in place of a draft model.

    The text's last `max_ngram` tokens are searched in what stands before them, then fewer, down to `min_ngram`. Of the
    longest that is found the latest place counts first, and what follows there is drafted. With `num_matches` 1 that is
    a chain of `n` tokens. With more it is a trie of continuations that differ, cut to its first `n` nodes by level. The
    author's code takes the earliest place, where more text follows. Here a continuation that comes to the end of the
    text goes on with itself, since what repeats may do so again.

    Nodes are no draws from a distribution q: `draws` is `topk`, and trees have neither `edge_probs` nor `draft_probs`.
    """

    draws = "topk"

    def __init__(self, *, n: int = 10, max_ngram: int = 3, min_ngram: int = 1, num_matches: int = 1) -> None:
        for name, value in (("n", n), ("min_ngram", min_ngram), ("num_matches", num_matches)):
            if value < 1:
                raise ValueError(f"PromptLookup's {name} must be at least 1, not {value}")
        if max_ngram < min_ngram:
            raise ValueError(f"PromptLookup's max_ngram={max_ngram} is less than its min_ngram={min_ngram}")
        self.n, self.max_ngram, self.min_ngram, self.num_matches = n, max_ngram, min_ngram, num_matches
        self._text = np.zeros(0, dtype=np.int64)

    def reset(self, prompt_ids: Int[Tensor, " prompt"], target: ModelOutput) -> None:
        """Forget the last text; the prompt is part of the first context."""
        self._text = self._text[:0]

    def grow(self, context: Context) -> TokenTree:
        """The trie of what followed earlier; the bare root where the last tokens are new."""
        new = context.tokens[len(self._text) :]
        self._text = np.concatenate((self._text, np.array(new, dtype=np.int64)))
        tokens, parents = trie(context.tokens[-1], self._continuations(), self.n)
        return TokenTree(torch.tensor(tokens), torch.tensor(parents), edge_probs=None)

    def _continuations(self) -> list[tuple[int, ...]]:
        """What follows the best matches, `n` tokens of each, without repeats."""
        text = self._text
        starts = 1 + matches(text, self.max_ngram, self.min_ngram)[: LOOKED_AT * self.num_matches, None]
        follow = text[starts + np.arange(self.n) % (len(text) - starts)]
        return list(islice(dict.fromkeys(map(tuple, follow.tolist())), self.num_matches))


def matches(text: Int[ndarray, " text"], longest: int, shortest: int) -> Int[ndarray, " places"]:
    """Places before the last at which the text ends as it does there: by how many tokens, then the latest first.

    At least `shortest` tokens are alike, and more than `longest` count as so many.
    """
    last = len(text) - 1
    alike, length = np.ones(last, dtype=bool), np.zeros(last, dtype=np.int64)
    for back in range(min(longest, last)):
        alike[:back] = False
        alike[back:] &= text[: last - back] == text[last - back]
        length += alike
    places = np.flatnonzero(length >= shortest)[::-1]
    return places[np.argsort(-length[places], kind="stable")]


def trie(root: int, sequences: Sequence[Sequence[int]], n: int) -> tuple[list[int], list[int]]:
    """Tokens and parents of the first `n` nodes below a root, level by level; shared beginnings are one path."""
    nodes, ends = {(-1, root): 0}, [0] * len(sequences)
    for place, token in chain.from_iterable(map(enumerate, zip(*sequences, strict=True))):
        ends[place] = nodes.setdefault((ends[place], token), len(nodes))
        if len(nodes) > n:
            break
    parents, tokens = zip(*nodes, strict=True)
    return list(tokens), list(parents)
