"""The conformance kit: right functions pass, wrong ones of public reports and a bias of 1 % do not."""

import time
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from distributions import declared_pairs, judges, name_of, ordered_draws
from verification_functions import RIGHT, WRONG, WRONG_RNG, Stale, multi_round, one_uniform_per_node, sampled
from verification_functions import target_sample as target_sample_rule

from specdec_core import Sampling
from specdec_core.models.causal_lm import ModelOutput
from specdec_core.sampling import DRAWS
from specdec_core.tree import TokenTree
from specdec_trees.conformance import REFUSED, NonsenseError, check
from specdec_trees.conformance.calls import Trees
from specdec_trees.conformance.cases import CHAINS, KINDS, TREES, cases, depth, drafts, model, orders
from specdec_trees.conformance.check import ROUNDING, SAMPLES, farthest, tables, weighted

CELLS = [(name, draws) for name, (_, kinds) in RIGHT.items() for draws in kinds]
SECONDS = 10


@pytest.mark.parametrize(("name", "draws"), CELLS)
def test_the_exact_law_of_a_right_rule_is_the_targets(name, draws):
    report = check(RIGHT[name][0], draws, arrays="numpy")
    assert report.passed
    assert report.exact


@pytest.mark.few(3)
@pytest.mark.parametrize(("name", "draws"), CELLS)
def test_samples_of_a_right_rule_pass(name, draws, long_form):
    samples = SAMPLES if long_form else 20_000
    assert check(sampled(RIGHT[name][0]), draws, arrays="numpy", seed=1, samples=samples).passed


def test_right_rules_pass_with_100_seeds(long_form):
    """Each is refused once in a million checks, so that none of these should be."""
    draws, samples = ("without_replacement", SAMPLES) if long_form else ("chain", 1000)
    reports = [check(sampled(multi_round), draws, arrays="numpy", seed=seed, samples=samples) for seed in range(100)]
    assert [report.passed for report in reports] == [True] * 100


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_refused_exactly_and_by_samples(name):
    rule, draws = WRONG[name]
    exact, report = (check(one, draws, arrays="numpy") for one in (rule, sampled(rule)))
    assert not exact.passed
    assert report.p < REFUSED
    assert not report.passed


@pytest.mark.parametrize(("name", "draws"), [*product(WRONG_RNG, ("chain", "without_replacement"))])
def test_random_numbers_that_are_not_fresh_are_refused(name, draws):
    assert check(WRONG_RNG[name], draws, arrays="numpy").p < REFUSED


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(4))
def test_a_random_number_that_serves_all_siblings_is_refused(seed):
    assert check(one_uniform_per_node, "without_replacement", arrays="numpy", seed=seed).p < REFUSED


@pytest.mark.parametrize("draws", ["chain", "iid"])
def test_rows_of_another_step_are_refused(draws):
    assert check(sampled(Stale()), draws, arrays="numpy").p < REFUSED


def biased(tokens, parents, q, p, rng):
    """1 % in total variation, onto the likeliest token, so that nothing impossible comes."""
    best = int(p[0].argmax())
    missing = 1 - p[0][best]
    if missing > 0.02 and rng.random() * missing < 0.01:
        return [], best
    return sampled(multi_round)(tokens, parents, q, p, rng)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(10))
def test_a_bias_of_one_percent_is_refused_in_time(seed):
    start = time.thread_time()
    report = check(biased, "chain", arrays="numpy", seed=seed)
    assert report.p < REFUSED
    assert time.thread_time() - start < SECONDS


def test_the_report_is_that_of_the_seed():
    reports = [check(sampled(multi_round), "iid", arrays="numpy", seed=seed, samples=20_000) for seed in (3, 3, 4)]
    assert str(reports[0]) == str(reports[1]) != str(reports[2])


def test_the_smallest_failing_case_is_told():
    """A chain is right, two children are not."""
    rule, draws = WRONG["another_order"]
    failure = check(rule, draws, arrays="numpy").failure
    assert failure.member.parents == (-1, 0, 0)
    assert failure.after == ()
    assert abs(failure.expected - failure.observed) > 1e-3


def test_kinds_of_draws_have_the_projects_names():
    assert {*KINDS} == {*DRAWS, "chain"}


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_draws_have_their_probabilities(draws, count):
    q = next(iter(model("any", 4, (-1,), np.random.default_rng(0)).q.values()))
    assert dict(orders(q, count, draws)) == pytest.approx(dict(ordered_draws(list(q), count, draws)))


@pytest.mark.parametrize("draws", KINDS)
def test_all_trees_that_may_be_drawn_are(draws):
    for case in cases(draws, np.random.default_rng(1)):
        for member in case.members:
            assert sum(tree.prob for tree in member.drafted) == pytest.approx(1)
            for tree in member.drafted:
                for node, parent in enumerate(tree.parents[1:], 1):
                    assert tree.texts[node][:-1] == tree.texts[parent]


def test_the_drafts_of_a_tree_are_products_of_its_draws():
    """Two children, of which the second has one: its law is that behind the second."""
    laws = model("any", 3, (-1, 0, 1), np.random.default_rng(2))
    for tree in drafts(laws, (-1, 0, 0, 2), "without_replacement"):
        (first,), (second,), (_, third) = tree.texts[1:]
        q = laws.q[()]
        expected = q[first] * q[second] / (1 - q[first]) * laws.q[second,][third]
        assert tree.prob == pytest.approx(expected)


def test_shapes_are_depth_first_and_breadth_first():
    for parents in (*CHAINS, *TREES):
        assert all(parent < node for node, parent in enumerate(parents))
    assert {sorted(parents) == list(parents) for parents in TREES} == {True, False}


def continued(law, p, length):
    """The law of so many tokens, with target sampling behind what a step wrote."""
    whole = Counter()
    for text, chance in law.items():
        missing = length - len(text)
        for more in product(range(len(p[()])), repeat=max(0, missing)):
            prob, longer = chance, text
            for token in more:
                prob *= p[longer][token]
                longer = (*longer, token)
            whole[longer] += prob
    return whole


@pytest.mark.parametrize("name", [*RIGHT, *(name for name in WRONG if "not_" not in name)])
def test_what_is_tested_is_the_law_of_the_first_tokens_behind_the_root(name):
    """Behind every accepted text the target's law, if and only if depth + 1 tokens have it."""
    rule, draws = RIGHT[name] if name in RIGHT else WRONG[name]
    draws, differ = draws[-1] if name in RIGHT else draws, []
    for case in cases(draws, np.random.default_rng(5)):
        if case.depth > 2 or case.vocab**case.depth > 9:
            continue
        for member in case.members:
            try:
                law = weighted(Trees(rule, "numpy", "nodes", 0), member)
            except NonsenseError:
                differ.append(True)
                continue
            p, length = member.model.p, depth(member.parents) + 1
            target = continued({(): 1.0}, p, length)
            distance = max(abs(prob - target[text]) for text, prob in continued(law, p, length).items())
            failure = farthest(case, tables({(member, text): chance for text, chance in law.items()}))
            assert (failure is not None) == (distance > ROUNDING)
            differ.append(failure is not None)
    assert any(differ) == (name in WRONG)


def judged(rule):
    """One of the project's rules as such a function."""

    def verify(tokens, parents, draft_probs, target_probs, rng):
        inner = sorted({*parents.tolist()[1:]})
        rows = torch.full_like(parents, -1)
        rows[inner] = torch.arange(len(inner))
        edges = draft_probs[parents.clamp(min=0), tokens]
        edges[0] = 1
        tree = TokenTree(tokens, parents, edges, draft_probs[inner], rows)
        verdict = rule.judge(tree, ModelOutput(target_probs.log(), None), Sampling(1.0), rng)
        return verdict.path, verdict.next_token

    return verify


OURS = [(rule, draws if judges(rule, 2) else "chain") for rule, draws in declared_pairs()]


@pytest.mark.few(4)
@pytest.mark.parametrize(("rule", "draws"), OURS, ids=["-".join(map(name_of, cell)) for cell in OURS])
def test_the_projects_own_rules_pass(rule, draws, long_form):
    samples = SAMPLES if long_form else 2_000
    assert check(judged(rule), draws, samples=samples).passed


def test_a_rule_of_the_project_for_other_draws_is_refused():
    rule = next(rule for rule, draws in OURS if name_of(rule) == "SpecInfer")
    assert check(judged(rule), "topk", samples=5000).p < REFUSED


def as_tokens(tokens, parents, q, p, coins):
    path, token = target_sample_rule(tokens, parents, q, p, coins)
    return tokens[path], token


@pytest.mark.parametrize("arrays", ["torch", "numpy"])
def test_accepted_tokens_may_stand_for_their_nodes(arrays):
    def drawn(tokens, parents, q, p, rng):
        numbers = np.random.default_rng(int(torch.randint(2**31, (), generator=rng)))
        return sampled(as_tokens)(*(one.numpy() for one in (tokens, parents, q, p)), numbers)

    verify = sampled(as_tokens) if arrays == "numpy" else drawn
    assert check(verify, "iid", arrays=arrays, returns="tokens", samples=5000).passed
    assert not check(verify, "iid", arrays=arrays, samples=5000).passed


RETURNED = {
    "none": None,
    "one": 3,
    "a_word": ([], "a"),
    "a_fraction": ([], 0.5),
    "outside": ([], 3),
    "below_zero": ([], -1),
    "no_node": ([99], 0),
    "backwards": ([1, 0], 0),
    "nodes_below_zero": ([-1], 0),
    "nan": ([], float("nan")),
    "nested": ([[1]], 0),
}


@pytest.mark.parametrize("name", RETURNED)
def test_nonsense_is_a_failure(name):
    report = check(lambda tokens, parents, q, p, rng: RETURNED[name], "chain", arrays="numpy", samples=1000)
    assert (report.passed, report.p, bool(report.failure.reason)) == (False, 0, True)


def raising(tokens, parents, q, p, rng):
    raise KeyError("gone")


def leaving(tokens, parents, q, p, rng):
    raise SystemExit(0)


@pytest.mark.parametrize("verify", [raising, leaving])
def test_a_function_that_raises_is_a_failure(verify):
    report = check(verify, "iid", samples=1000)
    assert not report.passed
    assert "\n" not in report.failure.reason


def test_a_function_may_write_to_what_it_is_given():
    def verify(tokens, parents, q, p, rng):
        path, token = sampled(multi_round)(tokens, parents, q.copy(), p.copy(), rng)
        for array in (tokens, parents, q, p):
            array[:] = 7
        return path, token

    assert check(verify, "without_replacement", arrays="numpy", samples=5000).passed


@pytest.mark.parametrize(
    ("verify", "draws", "options"),
    [
        (multi_round, "beam", {}),
        (multi_round, "iid", {"arrays": "jax"}),
        (multi_round, "iid", {"returns": "words"}),
        (multi_round, "iid", {"samples": 0}),
        (lambda tokens, parents: None, "iid", {}),
        (lambda a, b, c, d, e, f: None, "iid", {}),
        (lambda a, b, c, d, e, *, f: None, "iid", {}),
        (dict, "iid", {}),
        (lambda draft_token_ids: None, "iid", {}),
        (lambda draft_token_ids, sampling_metadata: None, "chain", {}),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_sentence(verify, draws, options):
    with pytest.raises(ValueError, match=r"^.+$"):
        check(verify, draws, **options)
