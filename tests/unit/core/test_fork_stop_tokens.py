"""Drafted stop tokens: the answer ends there, and what lies behind them does not count."""

from itertools import pairwise

import pytest
import torch
from doubles import BigramLM, paths_of
from forks import T1, Scripted, decode

from specdec_core import Sampling
from specdec_core.drafters import fork_tree
from specdec_core.verifiers import IndependentLongest, LongestSubtree

EOS = 3


def chains(*lines, vocab=8):
    """A table in which each line's tokens follow one another, for certain."""
    table = torch.zeros(vocab, vocab)
    for line in lines:
        for token, following in pairwise(line):
            table[token, following] = 50.0
    return table


def ended():
    """Behind first token 1 all is right, a stop token second; behind 2 two are right and the third is wrong."""
    target = chains((1, EOS, 7, 7), (2, 4, 5, 6))
    target[0, 1], target[0, 2] = 50.0, 49.0
    draft = target.clone()
    draft[5] = chains((5, 0))[5]
    return BigramLM(target), BigramLM(draft)


@pytest.mark.parametrize("rule", [IndependentLongest(), LongestSubtree()], ids=["independent", "subtree"])
@pytest.mark.parametrize("sampling", [T1, Sampling()], ids=["t1", "greedy"])
def test_what_is_drafted_behind_a_stop_token_does_not_count(sampling, rule):
    """Without it the first chain is accepted to its end and wins; with it the second is the longer one."""
    outcomes = {}
    for eos in ((), (EOS,)):
        target, draft = ended()
        drafter = fork_tree(draft=draft, width=2, depth=3, draws="topk" if sampling.greedy else "without_replacement")
        paths, chances = [], []

        def watch(tree, scored, verdict, paths=paths, chances=chances, sampling=sampling):
            paths.append(verdict.tokens)
            chances.append(rule.first_token_probs(tree, scored, sampling))

        decode(
            target,
            drafter,
            sampling=sampling,
            prompt=[0],
            new=1,
            eos_token_ids=eos,
            watch=watch,
            rule=rule,
        )
        outcomes[eos] = paths[0], chances[0].argmax()
        assert chances[0].sum() == pytest.approx(1)
    assert outcomes == {(): ((1, EOS, 7, 7), 1), (EOS,): ((2, 4, 5), 2)}


@pytest.mark.parametrize("width", [1, 2])
def test_the_answer_ends_at_a_drafted_stop_token_and_a_counts_up_to_it(width):
    table = chains((0, 1, 2, EOS, 5, 6, 7))
    table[0, 7], draft = 49.0, chains((0, 1, 2, EOS, 5, 6, 7, 1))  # behind the second best first token it is wrong
    target = BigramLM(table)
    drafter = fork_tree(draft=BigramLM(draft), width=width, depth=5, draws="topk")
    found = decode(target, drafter, sampling=Sampling(), prompt=[0], new=30, eos_token_ids=[EOS])
    assert (found.tokens, found.finish) == ([1, 2, EOS], "eos")
    (step,) = found.steps
    assert (step.acceptance_length, step.num_accepted, step.kept, step.depth) == (3, 3, 3, 6)
    free = decode(BigramLM(target.table), drafter, sampling=Sampling(), prompt=[0], new=6)
    assert (free.tokens, free.steps[0].acceptance_length) == ([1, 2, EOS, 5, 6, 7], 6)


def test_a_stop_token_as_the_first_one_ends_the_answer_and_nothing_is_accepted_below_it():
    target = BigramLM(chains((0, EOS, 5, 6, 7)))
    drafter = fork_tree(draft=BigramLM(target.table), width=1, depth=3, draws="topk")
    found = decode(target, drafter, sampling=Sampling(), prompt=[0], new=30, eos_token_ids=[EOS])
    assert (found.tokens, found.finish) == ([EOS], "eos")
    assert [(step.acceptance_length, step.num_accepted) for step in found.steps] == [(1, 1)]


def test_no_path_goes_on_behind_a_stop_token_in_samples():
    """Nodes behind one have no chance, all others theirs: min(1, p/q)."""
    table = torch.randn(5, 5, generator=torch.Generator().manual_seed(2))
    table[:, EOS] += 1
    behind, ends = 0, 0

    def watch(tree, scored, verdict):
        nonlocal behind, ends
        for node, path in enumerate(paths_of(tree)):
            stopped = EOS in path[:-1]
            behind += stopped
            assert (float(tree.edge_probs[node]) == 0) == stopped
        assert EOS not in verdict.tokens[:-1]
        ends += verdict.tokens[-1] == EOS

    for seed in range(40):
        drafter = fork_tree(draft=BigramLM(table.clone()), width=2, depth=3, decision=Scripted())
        rng = torch.Generator().manual_seed(seed)
        found = decode(BigramLM(table), drafter, prompt=[0], new=12, eos_token_ids=[EOS], rng=rng, watch=watch)
        assert (EOS in found.tokens) == (found.finish == "eos")
        assert EOS not in found.tokens[:-1]
        assert sum(step.kept for step in found.steps) == len(found.tokens)
    assert behind > 50
    assert ends > 20
