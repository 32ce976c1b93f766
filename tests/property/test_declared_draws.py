"""What every drafter of `conf/drafter` says of its draws: under the rule for them text has the target's distribution.

One long text of a target whose distribution depends on the last token alone: after every token, and after every two,
the next ones are independent draws from that distribution, whatever the tree was that they were accepted in. The rule
for children that are no draws (`topk`) keeps the distribution whatever they are. So their trees are also compared
between two random streams, on a text that is certain: trees that differ were drawn.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
import torch
from discovered import NAMES, built, parameters, rule_for
from doubles import BigramLM
from scipy import stats

from specdec_core import Sampling, TokenTree, generate, shapes
from specdec_core.checks import check_lossless
from specdec_core.drafters import Drafter, StaticTree
from specdec_core.sampling import NO_DRAWS
from specdec_core.verifiers import TargetSample, Verifier

P = torch.tensor([[0.3, 0.25, 0.25, 0.2], [0.25, 0.3, 0.2, 0.25], [0.2, 0.25, 0.35, 0.2], [0.4, 0.2, 0.3, 0.1]])
Q = torch.tensor([[0.65, 0.15, 0.1, 0.1], [0.25, 0.7, 0.03, 0.02], [0.1, 0.1, 0.75, 0.05], [0.02, 0.08, 0.2, 0.7]])
"""Lies show most where a draft is surer than the target."""
TARGET, DRAFT, T1 = BigramLM(P.log()), BigramLM(Q.log()), Sampling(1.0)
FEW = BigramLM(torch.where(torch.tensor([True, True, False, True]), Q, 0).log())
"""A draft that does not know every token of the target."""
TOKENS, TOPK_TOKENS, LARGEST = 1500, 500, 4
CYCLE = BigramLM(100 * torch.eye(4)[[1, 2, 3, 0]])
"""A target that leaves nothing to chance: at any temperature its text is 0, 1, 2, 3, 0, ..."""
SMALLEST_P, SUSPICIOUS = 1e-6 / len(NAMES), 0.02


def p_value(drafter: Drafter, rule: Verifier) -> float:
    """Of one text, or where that is suspicious, of more: an honest drafter seldom needs them, a subtle lie does."""
    found = p_value_of_texts(drafter, rule, range(1))
    return p_value_of_texts(drafter, rule, range(1, 6)) if SMALLEST_P < found < SUSPICIOUS else found


def p_value_of_texts(drafter: Drafter, rule: Verifier, seeds: Iterable[int]) -> float:
    """Chi-square of the tokens after every token, and after every two: the smaller p-value, twice."""
    once, twice = Counter(), Counter()
    new = TOPK_TOKENS if isinstance(rule, TargetSample) else TOKENS
    for seed in seeds:
        rng = torch.Generator().manual_seed(seed)
        text = generate(TARGET, drafter, rule, [0], max_new_tokens=new, sampling=T1, rng=rng).tokens
        once.update(((before,), token) for before, token in pairwise(text))
        twice.update(zip(pairwise(text), text[2:], strict=False))
    return 2 * min(map(chi_square, (once, twice)))


def chi_square(counts: Counter) -> float:
    """Of counts of (tokens before, token) against the distribution after the last of those before."""
    statistic, contexts = 0.0, {before for before, _ in counts}
    for before in contexts:
        observed = torch.tensor([counts[before, token] for token in range(4)], dtype=torch.float64)
        expected = observed.sum() * P[before[-1]].double()
        statistic += float(((observed - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(statistic, 3 * len(contexts)))


@cache
def p_value_of(found: str, draft: BigramLM) -> float:
    """Of drafters that differ in nothing but their size or name there is one."""
    drafter = built(json.loads(found), draft)
    return p_value(drafter, rule_for(drafter))


def changes(make: Callable[[], Drafter]) -> bool:
    """Whether the trees of a new drafter depend on the random stream."""
    return trees(make(), 0) != trees(make(), 1)


def trees(drafter: Drafter, seed: int) -> list[tuple[list[int], list[int]]]:
    """Tokens and parents of every tree that is grown along the certain text."""
    found, rng = [], torch.Generator().manual_seed(seed)

    def watch(tree: TokenTree, *_: object) -> None:
        found.append((tree.tokens.tolist(), tree.parents.tolist()))

    rule, new = TargetSample(), 40
    text = generate(CYCLE, drafter, rule, [0], max_new_tokens=new, sampling=T1, rng=rng, watch=watch).tokens
    assert text == [(token + 1) % 4 for token in range(new)]
    return found


@pytest.mark.few(8)
@pytest.mark.parametrize("name", NAMES)
def test_draws_are_what_the_drafter_says(name):
    found = parameters(name, decoding="t1", largest=LARGEST)
    drafter = built(found, DRAFT)
    rule = rule_for(drafter)
    assert check_lossless(drafter, rule, T1)
    if drafter.draws == NO_DRAWS:
        steps = generate(TARGET, drafter, rule, [0], max_new_tokens=50, sampling=T1).steps
        assert {step.num_drafted for step in steps} == {0}, f"{name} says that it drafts nothing"
    if drafter.draws == "topk":
        assert not changes(lambda: built(found, DRAFT)), f"{name} says draws=topk, but its trees change with the seed"
    wrong = f"{name} says draws={drafter.draws}, but with {type(rule).__name__} sampled text has another distribution"
    assert p_value_of(json.dumps(found), DRAFT) > SMALLEST_P, wrong
    assert p_value_of(json.dumps(found), FEW) > SMALLEST_P, f"{wrong} if the draft knows fewer tokens"


class DropsImprobable(StaticTree):
    """A drawn child is dropped where its path is improbable: whether it stays depends on what was drawn."""

    def draft_tree(self, context):
        tree, slots = super().draft_tree(context)
        kept = tree.path_probs >= 0.05
        parents = (kept.cumsum(0) - 1)[tree.parents[kept]]
        parents[0] = -1
        rows = tree.draft_rows[kept]
        return TokenTree(tree.tokens[kept], parents, tree.edge_probs[kept], tree.draft_probs, rows), slots[kept]


class SortsSiblings(StaticTree):
    """The drawn children of the root in the order of their probabilities."""

    def draft_tree(self, context):
        tree, slots = super().draft_tree(context)
        order = torch.cat((torch.zeros(1).long(), 1 + tree.edge_probs[1:].argsort(descending=True)))
        return replace(tree, tokens=tree.tokens[order], edge_probs=tree.edge_probs[order]), slots


class Reseeds(StaticTree):
    """Its children are the best tokens, but it sets the stream that the target draws from."""

    def draft_tree(self, context):
        context.rng.manual_seed(0)
        return super().draft_tree(context)


def drawn_as_topk() -> Drafter:
    """A drafter that draws its children and says that they are the best tokens."""
    drafter = StaticTree(draft=DRAFT, shape=shapes.branching([2]), draws="without_replacement")
    drafter.draws = "topk"
    return drafter


def liars() -> dict[str, Drafter]:
    """Drafters whose children are not drawn as they say."""
    two, once, twice = shapes.branching([2, 2]), "without_replacement", "iid"
    found = {
        "drops_improbable": DropsImprobable(draft=DRAFT, shape=shapes.branching([3, 3]), draws=twice),
        "sorts_siblings": SortsSiblings(draft=DRAFT, shape=shapes.branching([3]), draws=once),
        "reseeds": Reseeds(draft=DRAFT, shape=two),
        "once_as_iid": StaticTree(draft=DRAFT, shape=two, draws=once),
    }
    found["once_as_iid"].draws = twice
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", liars())
def test_a_lie_is_seen(name):
    drafter = liars()[name]
    assert p_value(drafter, rule_for(drafter)) < SMALLEST_P


def test_draws_that_are_said_to_be_topk_are_seen():
    assert p_value(drawn_as_topk(), TargetSample()) > SMALLEST_P, (
        "sampled text keeps the distribution, and does not show it"
    )
    assert changes(drawn_as_topk)
