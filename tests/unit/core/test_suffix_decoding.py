"""Suffix decoding against counting by hand: every substring, every pattern, every candidate tree."""

import random
from itertools import product

import pytest
import torch
from doubles import BigramLM, context_for

from specdec_core import generate
from specdec_core.drafters import SuffixDecoding
from specdec_core.drafters.suffix_automaton import SuffixAutomaton
from specdec_core.models import ModelOutput
from specdec_core.verifiers import Greedy

OUTPUT = ModelOutput(torch.zeros(1, 9))
Path = tuple[int, ...]


def texts(seed: int, count: int, longest: int):
    draw = random.Random(seed)
    for _ in range(count):
        alphabet = draw.randint(1, 4)
        yield draw, [draw.randrange(alphabet) for _ in range(draw.randint(1, longest))]


def ends(text: list[int], string: Path) -> list[int]:
    """Where a string ends in the text."""
    size = len(string)
    return [end for end in range(size, len(text) + 1) if tuple(text[end - size : end]) == string]


def best_nodes(text: list[int], pattern: Path, size: int) -> tuple[list[Path], float]:
    """The `size` best paths below a pattern, one after another, and the sum of their D."""
    estimates, kept, score = {(): 1.0}, [], 0.0
    while len(kept) < size:
        frontier = []
        for above in ((), *kept):
            follow = {token: ends(text, (*pattern, *above, token)) for token in set(text)}
            total = sum(map(len, follow.values()))
            for token, places in follow.items():
                path = (*above, token)
                if places and path not in kept:
                    estimate = estimates[above] * (len(places) / total)
                    frontier.append((estimate, -len(path), max(places), path))
        if not frontier:
            break
        estimate, _, _, path = max(frontier)
        kept, score, estimates[path] = [*kept, path], score + estimate, estimate
    return kept, score


def by_hand(text: list[int], n: int, max_pattern: int, factor: float | None) -> list[Path]:
    """The best candidate over all pattern lengths, the longest of equals."""
    best, highest = [], 0.0
    for length in range(min(max_pattern, len(text)), 0, -1):
        size = n if factor is None else min(n, int(factor * length))
        paths, score = best_nodes(text, tuple(text[-length:]), size)
        if score > highest:
            best, highest = paths, score
    return best


def paths(tree) -> list[Path]:
    """Tokens from the root's child to every node."""
    found: list[Path] = [()]
    for token, parent in zip(tree.tokens.tolist()[1:], tree.parents.tolist()[1:], strict=True):
        found.append((*found[parent], token))
    return found[1:]


def grown(text: list[int], **options):
    drafter = SuffixDecoding(**options)
    drafter.reset(torch.tensor(text), OUTPUT)
    return drafter.grow(context_for(text[-1], tuple(text[:-1])))


def state_of(index: SuffixAutomaton, string: Path) -> int | None:
    state: int | None = 0
    for token in string:
        state = None if state is None else index.children[state].get(token)
    return state


def test_an_automaton_counts_every_substring_after_every_token():
    for draw, text in texts(0, 60, 14):
        longest = draw.randint(1, 6)
        index = SuffixAutomaton(longest)
        for size, token in enumerate(text, 1):
            index.append(token)
            for length in range(1, min(longest, size) + 1):
                for string in product(set(text), repeat=length):
                    state, places = state_of(index, string), ends(text[:size], string)
                    assert (state is not None) == bool(places)
                    assert state is None or (index.count[state], index.latest[state]) == (len(places), places[-1])


def test_the_suffixes_of_a_text_are_its_states_from_the_longest():
    for draw, text in texts(1, 200, 40):
        index = SuffixAutomaton(draw.randint(1, 12))
        for token in text:
            index.append(token)
        found = list(index.suffixes())
        lengths = [length for _, length in found]
        assert lengths[0] == min(index.longest, len(text))
        shortest = [index.shortest(state) for state, _ in found]
        assert [length - 1 for length in shortest] == [*lengths[1:], 0], "no length is missing"
        for (state, length), least in zip(found, shortest, strict=True):
            assert {state_of(index, tuple(text[-size:])) for size in (length, least)} == {state}


def test_an_automaton_is_as_small_as_it_is_proven_to_be():
    """At most 2 n - 1 states and 3 n - 4 transitions for n > 2 (Blumer et al., 1985)."""
    for _, text in texts(2, 200, 60):
        index = SuffixAutomaton(5)
        for token in text:
            index.append(token)
        if len(text) > 2:
            assert len(index.children) <= 2 * len(text) - 1
            assert sum(map(len, index.children)) <= 3 * len(text) - 4


@pytest.mark.parametrize("factor", [None, 0.5, 1.0, 2.5])
def test_trees_are_those_of_counting_by_hand(factor):
    for draw, text in texts(3, 60, 24):
        n, max_pattern = draw.randint(1, 9), draw.randint(1, 8)
        tree = grown(text, n=n, max_pattern=max_pattern, max_spec_factor=factor)
        assert paths(tree) == by_hand(text, n, max_pattern, factor)
        assert tree.tokens[0] == text[-1]


def test_frequent_continuations_come_first_and_of_equal_ones_the_shallow_and_the_late():
    text = [1, 2, 9, 1, 3, 8, 1, 2, 7, 1]
    thirds = [(3,), (2, 7), (3, 8), (2, 9), (2, 7, 1), (3, 8, 1), (2, 9, 1), (3, 8, 1, 2)]
    assert paths(grown(text, n=9)) == [(2,), *thirds]
    assert paths(grown(text, n=1)) == [(2,)]


def test_a_pattern_that_is_shorter_and_surer_beats_a_longer_one():
    text = [5, 1, 2, 0, 5, 1, 3, 0, *(1, 4, 6) * 8, 5, 1]
    assert paths(grown(text, n=3))[0] == (4,), "after 5 1 came 2 and 3, after 1 mostly 4"
    assert paths(grown([*text[:8], 5, 1], n=3))[0] == (3,)


def test_a_tree_is_no_larger_than_its_pattern_allows():
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3]
    assert [grown(text, n=9, max_spec_factor=factor).num_drafted for factor in (0.2, 1.0, 2.0, 3.0)] == [0, 3, 6, 9]
    assert grown(text, n=9, max_spec_factor=2.0, max_pattern=2).num_drafted == 4


def test_more_nodes_than_are_known_are_all_that_are_known():
    assert paths(grown([1, 2, 1], n=50)) == [(2,), (2, 1)]


def test_where_nothing_matches_the_root_stands_alone():
    for text in ([4], [1, 2, 3]):
        tree = grown(text, n=5)
        assert (tree.tokens.tolist(), tree.parents.tolist()) == ([text[-1]], [-1])
    assert (tree.edge_probs, tree.expected_acceptance) == (None, None)


def test_a_text_read_in_pieces_is_the_text_read_at_once():
    for draw, text in texts(4, 40, 40):
        options = {"n": draw.randint(1, 9), "max_pattern": draw.randint(1, 9)}
        drafter, context = SuffixDecoding(**options), context_for(text[0])
        drafter.reset(torch.tensor(text[:1]), OUTPUT)
        for begin in range(1, len(text), 3):
            context.tokens.extend(text[begin : begin + 3])
            assert paths(drafter.grow(context)) == paths(grown(context.tokens, **options))


def test_nothing_is_remembered_of_the_text_before():
    drafter = SuffixDecoding(n=4)
    assert drafter.grow(context_for(1, (1, 2, 3))).num_drafted == 3
    drafter.reset(torch.tensor([2]), OUTPUT)
    assert drafter.grow(context_for(2)).num_drafted == 0


def test_it_helps_where_text_repeats_and_its_cost_is_no_drafting():
    target = BigramLM(torch.eye(9).roll(1, 1) * 9)  # counts up to 8 and begins anew
    done = generate(target, SuffixDecoding(n=6), Greedy(), [0], max_new_tokens=50)
    assert done.tokens == [token % 9 for token in range(1, 51)]
    assert max(step.acceptance_length for step in done.steps) == 7
    assert {(step.draft_forwards, step.draft_s, step.expected_acceptance) for step in done.steps} == {(0, 0.0, None)}


@pytest.mark.parametrize("options", [{"n": 0}, {"max_pattern": 0}, {"max_spec_factor": 0.0}])
def test_options_that_are_none_are_refused(options):
    (name,) = options
    with pytest.raises(ValueError, match=name):
        SuffixDecoding(**options)
