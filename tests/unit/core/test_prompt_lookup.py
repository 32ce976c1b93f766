"""Prompt lookup against a search by hand."""

import random

import numpy as np
import pytest
import torch
from doubles import BigramLM, context_for

from specdec_core import Sampling, generate
from specdec_core.drafters import PromptLookup
from specdec_core.drafters.prompt_lookup import matches, trie
from specdec_core.models import ModelOutput
from specdec_core.verifiers import Greedy

OUTPUT = ModelOutput(torch.zeros(1, 9))


def by_hand(text: list[int], longest: int, shortest: int) -> list[int]:
    """n-gram after n-gram, from the longest; places from the end."""
    found: list[int] = []
    for size in range(longest, shortest - 1, -1):
        for place in reversed(range(size - 1, len(text) - 1)):
            if text[place - size + 1 : place + 1] == text[-size:] and place not in found:
                found.append(place)
    return found


def paths(tree) -> list[tuple[int, ...]]:
    """Tokens from the root's child to every node."""
    found: list[tuple[int, ...]] = [()]
    for token, parent in zip(tree.tokens.tolist()[1:], tree.parents.tolist()[1:], strict=True):
        found.append((*found[parent], token))
    return found[1:]


def grown(text: list[int], **options):
    drafter = PromptLookup(**options)
    drafter.reset(torch.tensor(text), OUTPUT)
    return drafter.grow(context_for(text[-1], tuple(text[:-1])))


def test_matches_are_those_of_a_search_by_hand():
    draw = random.Random(0)
    for _ in range(300):
        text = [draw.randrange(draw.randint(1, 4)) for _ in range(draw.randint(1, 30))]
        shortest = draw.randint(1, 4)
        longest = draw.randint(shortest, 5)
        assert matches(np.array(text), longest, shortest).tolist() == by_hand(text, longest, shortest)


def test_the_longest_ngram_and_then_the_latest_place_is_continued():
    text = [1, 2, 3, 8, 4, 2, 3, 5, 6, 3, 7, 1, 2, 3]
    assert paths(grown(text, n=3)) == [(8,), (8, 4), (8, 4, 2)], "1 2 3, though 2 3 and 3 stand later"
    assert paths(grown(text, n=2, max_ngram=2)) == [(5,), (5, 6)]
    assert paths(grown(text, n=2, max_ngram=1)) == [(7,), (7, 1)]


def test_several_places_make_a_trie_level_by_level():
    text = [3, 5, 6, 1, 3, 5, 7, 2, 3, 4, 4, 2, 8, 3]
    places = {"max_ngram": 1, "num_matches": 3}
    assert paths(grown(text, n=9, **places))[:5] == [(4,), (5,), (4, 4), (5, 7), (5, 6)]
    assert paths(grown(text, n=3, **places)) == [(4,), (5,), (4, 4)]
    assert {path[0] for path in paths(grown(text, n=9, max_ngram=1, num_matches=1))} == {4}


def test_places_that_go_on_alike_count_once():
    text = [1, 2, 4, 4, 1, 2, 4, 4, 1, 2, 5, 5, 1, 2, 4, 4, 1]
    assert {path[:3] for path in paths(grown(text, n=9, num_matches=2)) if len(path) >= 3} == {(2, 4, 4), (2, 5, 5)}


def test_a_repetition_goes_on_behind_the_end_of_the_text():
    assert paths(grown([7, 1, 2, 1, 2], n=5))[-1] == (1, 2, 1, 2, 1)


def test_where_nothing_matches_the_root_stands_alone():
    for text in ([4], [1, 2, 3], [3, 1, 2]):
        tree = grown(text, n=5)
        assert (tree.tokens.tolist(), tree.parents.tolist()) == ([text[-1]], [-1])
    assert grown([1, 5, 1], n=5, min_ngram=2).num_drafted == 0
    assert (tree.edge_probs, tree.expected_acceptance) == (None, None)


def test_a_text_is_read_once_and_forgotten_by_the_next():
    drafter, context = PromptLookup(n=4), context_for(2, (1, 2, 3, 1))
    drafter.reset(torch.tensor(context.tokens), OUTPUT)
    assert drafter.grow(context).tokens.tolist() == [2, 3, 1, 2, 3]
    context.tokens.extend([9, 1, 2])
    assert drafter.grow(context).tokens.tolist() == [2, 9, 1, 2, 9]
    drafter.reset(torch.tensor([2]), OUTPUT)
    assert drafter.grow(context_for(2)).num_drafted == 0


def test_it_helps_where_text_repeats_and_its_cost_is_no_drafting():
    target = BigramLM(torch.eye(9).roll(1, 1) * 9)  # counts up to 8 and begins anew
    done = generate(target, PromptLookup(n=6), Greedy(), [0], max_new_tokens=50)
    assert done.tokens == [token % 9 for token in range(1, 51)]
    assert max(step.acceptance_length for step in done.steps) == 7
    assert {(step.draft_forwards, step.draft_s, step.expected_acceptance) for step in done.steps} == {(0, 0.0, None)}
    sampled = generate(target, PromptLookup(), Greedy(), [0], max_new_tokens=5, sampling=Sampling(0.0))
    assert sampled.tokens == done.tokens[:5]


def test_a_trie_shares_beginnings():
    assert trie(9, [(1, 2, 3), (1, 2, 4), (5, 2, 3)], 20) == ([9, 1, 5, 2, 2, 3, 4, 3], [-1, 0, 0, 1, 2, 3, 3, 4])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n": 0}, "PromptLookup's n must be at least 1, not 0"),
        ({"min_ngram": 0}, "PromptLookup's min_ngram must be at least 1, not 0"),
        ({"num_matches": 0}, "PromptLookup's num_matches must be at least 1, not 0"),
        ({"max_ngram": 1, "min_ngram": 2}, "PromptLookup's max_ngram=1 is less than its min_ngram=2"),
    ],
)
def test_options_that_are_none_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        PromptLookup(**options)
