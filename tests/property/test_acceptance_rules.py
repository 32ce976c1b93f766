"""Acceptance rules by exact enumeration of ordered draws: output distribution, optimal transport, cover, edge cases."""

from fractions import Fraction
from itertools import combinations, pairwise

import pytest
import torch
from distributions import Probs, declared_pairs, judges, name_of, ordered_draws, random_pq, refuted, sources, tensor
from torch import Tensor

from specdec_core import Sampling
from specdec_core.errors import PairError
from specdec_core.sampling import draw_children
from specdec_core.verifiers import (
    Chain,
    ChildByChild,
    Eagle1,
    GreedyOne,
    KSeq,
    MultiCandidate,
    SpecInfer,
    TargetSample,
    WithoutReplacement,
)
from specdec_core.verifiers.k_seq import solve_rho
from specdec_core.verifiers.rounds import Told

SAMPLED = ("iid", "without_replacement", "greedy_one")
CELLS = [(rule, draws) for rule, draws in declared_pairs() if draws in SAMPLED and judges(rule, 2)]
RULES = list(dict.fromkeys(rule for rule, _ in CELLS))
OPTIMAL: list[ChildByChild] = [
    *(Chain(), SpecInfer(), MultiCandidate(replacement=True), KSeq(), MultiCandidate(), WithoutReplacement()),
    *(WithoutReplacement(uniform_fallback=False), Eagle1(), GreedyOne()),
]
"""Those that accept one child as often as any rule can: not what every lossless rule does."""


def output_probs(rule: ChildByChild, p: Probs, q: Probs, k: int, draws: str) -> tuple[Tensor, float]:
    """Distribution of the next token, and the probability that some child is accepted."""
    probs, accepted = torch.zeros(len(p), dtype=torch.float64), 0.0
    for children, chance in ordered_draws(q, k, draws):
        rounds, reach = rule.rounds(tensor(p), tensor(q), torch.tensor(children)), float(chance)
        for child, accept in zip(children, rounds.accept.tolist(), strict=True):
            probs[child] += reach * accept
            accepted += reach * accept
            reach *= 1 - accept
        probs += reach * rounds.residual
    return probs, accepted


def distance(p: Probs, probs: Tensor) -> float:
    return float((tensor(p) - probs).abs().sum() / 2)


@pytest.mark.few(36)
@pytest.mark.parametrize(("rule", "draws"), CELLS, ids=["-".join(map(name_of, cell)) for cell in CELLS])
@pytest.mark.parametrize("vocab", [1, 2, 3, 4])
def test_the_output_distribution_is_the_targets(rule, draws, vocab):
    for seed in range(12):
        p, q = random_pq(vocab, seed)
        for k in range(1, vocab + 1):
            probs, _ = output_probs(rule, p, q, k, draws)
            assert distance(p, probs) < 1e-12, f"{refuted(rule, draws, distance(p, probs))}: p={p}, q={q}, k={k}"


def exact_rounds(p: Probs, q: Probs, children: tuple[int, ...], remove: bool, fallback: bool) -> tuple[Probs, Probs]:
    """The loop of rounds in rational arithmetic."""
    residual, draft, accept = list(p), list(q), []
    for number, child in enumerate(children):
        if draft[child] == 0:
            accept.append(Fraction(0))
            continue
        accept.append(min(Fraction(1), residual[child] / draft[child]))
        rest = [max(r - d, Fraction(0)) for r, d in zip(residual, draft, strict=True)]
        if not sum(rest):
            accept += [Fraction(-1)] * (len(children) - number - 1)  # never reached
            break
        residual = [r / sum(rest) for r in rest]
        if remove:
            draft[child] = Fraction(0)
            unseen = [Fraction(int(token not in children[: number + 1])) for token in range(len(p))]
            source = draft if sum(draft) else unseen if fallback else draft
            draft = [d / sum(source) if sum(source) else Fraction(0) for d in source]
    return accept, residual


@pytest.mark.parametrize(
    ("rule", "remove", "fallback"),
    [(SpecInfer(), False, False), (MultiCandidate(), True, False), (WithoutReplacement(), True, True)],
    ids=["spec_infer", "multi_candidate", "without_replacement"],
)
def test_rounds_equal_rational_arithmetic(rule, remove, fallback):
    for seed in range(30):
        p, q = random_pq(4, seed)
        for children, _ in ordered_draws(q, 3, "without_replacement" if remove else "iid"):
            accept, residual = exact_rounds(p, q, children, remove, fallback)
            rounds = rule.rounds(tensor(p), tensor(q), torch.tensor(children))
            for ours, exact in zip(rounds.accept.tolist(), accept, strict=True):
                assert exact < 0 or ours == pytest.approx(float(exact), abs=1e-12)
            if 1 not in accept:
                assert torch.allclose(rounds.residual, tensor(residual), atol=1e-12)


@pytest.mark.parametrize("rule", [SpecInfer(), KSeq()], ids=name_of)
def test_rules_for_independent_draws_are_lossy_for_others(rule):
    draws = "without_replacement"
    assert draws not in rule.lossless_for
    pairs = [random_pq(3, seed) for seed in range(8)]
    assert max(distance(p, output_probs(rule, p, q, 2, draws)[0]) for p, q in pairs) > 1e-3


def test_best_children_under_a_ratio_rule_are_lossy():
    """Top-k children are no draws from q: the best token is accepted as if it were."""
    p, q = [Fraction(1, 2), Fraction(1, 2)], [Fraction(3, 5), Fraction(2, 5)]
    rounds = WithoutReplacement().rounds(tensor(p), tensor(q), torch.tensor([0]))
    probs = (1 - rounds.accept[0]) * rounds.residual
    probs[0] += rounds.accept[0]
    assert distance(p, probs) > 0.1


def test_the_order_of_verification_is_the_order_of_the_draws():
    """Judging the children of draws without replacement by token id changes the distribution."""
    p, q = [Fraction(1, 10), Fraction(3, 10), Fraction(6, 10)], [Fraction(6, 10), Fraction(3, 10), Fraction(1, 10)]
    probs = torch.zeros(3, dtype=torch.float64)
    for children, chance in ordered_draws(q, 2, "without_replacement"):
        rounds, reach = WithoutReplacement().rounds(tensor(p), tensor(q), torch.tensor(sorted(children))), float(chance)
        for child, accept in zip(sorted(children), rounds.accept.tolist(), strict=True):
            probs[child] += reach * accept
            reach *= 1 - accept
        probs += reach * rounds.residual
    assert distance(p, probs) > 1e-3


@pytest.mark.parametrize("rule", OPTIMAL, ids=name_of)
def test_one_child_is_an_optimal_transport(rule):
    """Sequoia, Theorem 3.7: acceptance is 1 - TV(p, q). Naive sampling has it not."""
    for seed in range(20):
        p, q = random_pq(4, seed)
        overlap = sum(min(a, b) for a, b in zip(p, q, strict=True))
        draws = next(iter(rule.lossless_for))
        assert output_probs(rule, p, q, 1, draws)[1] == pytest.approx(float(overlap), abs=1e-12)
    half = [Fraction(6, 10), Fraction(4, 10)]
    naive = TargetSample().rounds(tensor(half), tensor(half), torch.tensor([0]))
    assert naive.accept.tolist() == pytest.approx([0.6])


def test_only_the_rule_with_fallback_covers():
    """As many children as q (or the vocabulary) has tokens are always enough for Sequoia's rule (Theorem 3.7)."""
    for seed in range(20):
        p, q = random_pq(4, seed)
        assert output_probs(WithoutReplacement(), p, q, 4, "without_replacement")[1] == pytest.approx(1, abs=1e-12)
        accepted = [output_probs(WithoutReplacement(), p, q, k, "without_replacement")[1] for k in range(1, 5)]
        assert all(more >= less - 1e-12 for less, more in pairwise(accepted))
    p, q = [Fraction(1), Fraction(0)], [Fraction(1, 2)] * 2
    assert output_probs(SpecInfer(), p, q, 2, "iid")[1] == pytest.approx(0.75)
    assert output_probs(KSeq(), p, q, 2, "iid")[1] == pytest.approx(0.75)
    assert output_probs(WithoutReplacement(), p, q, 2, "without_replacement")[1] == pytest.approx(1)
    one_hot = [Fraction(0), Fraction(1)]
    assert output_probs(MultiCandidate(), p, one_hot, 2, "without_replacement")[1] == 0  # no fallback, no cover


def test_greedy_children_are_accepted_as_often_as_any_rule_can():
    """Hu et al. (2025): the least over sets H of tokens of p(H) + 1 - P(all children are in H) bounds every rule."""
    p, q = ([Fraction(n, 10) for n in weights] for weights in ((5, 3, 2), (2, 3, 5)))
    assert output_probs(GreedyOne(), p, q, 2, "greedy_one")[1] == pytest.approx(0.9, abs=1e-12)
    for seed in range(20):
        p, q = random_pq(4, seed)
        for k in range(1, 5):
            drawn = [*ordered_draws(q, k, "greedy_one")]
            bound = min(
                sum(p[token] for token in some) + 1 - sum(chance for all_of, chance in drawn if {*all_of} <= {*some})
                for size in range(5)
                for some in combinations(range(4), size)
            )
            assert output_probs(GreedyOne(), p, q, k, "greedy_one")[1] == pytest.approx(float(bound), abs=1e-12)


def test_rules_agree_where_they_are_the_same():
    for seed in range(20):
        p, q = (tensor(probs) for probs in random_pq(4, seed))
        for child in range(4):
            one = [rule.rounds(p, q, torch.tensor([child])) for rule in OPTIMAL]
            assert all(torch.allclose(other.accept, one[0].accept, atol=1e-12) for other in one)
        support = (q > 0).nonzero().flatten()
        with_fallback, without = (rule.rounds(p, q, support) for rule in (WithoutReplacement(), MultiCandidate()))
        assert torch.equal(with_fallback.accept, without.accept)
        assert solve_rho(p, q, 1) == 1
        assert 1 <= solve_rho(p, q, 3) <= 3
    with pytest.raises(PairError, match="one child"):
        Chain().rounds(p, q, torch.tensor([0, 1]))


def hard_pairs() -> dict[str, tuple[Tensor, Tensor]]:
    """Distributions at the edges, float32 as `Sampling.probs` makes them."""
    one_hot, flat = torch.eye(6)[2], torch.full((6,), 1 / 6)
    half = torch.randn(6, generator=torch.Generator().manual_seed(0)).half()
    half[[1, 3]] = -torch.inf
    left, right = torch.tensor([0.5, 0.5, 0, 0, 0, 0]), torch.tensor([0, 0, 0.2, 0.3, 0.5, 0])
    tiny = torch.tensor([1.0, 1e-40, 1e-38, 1e-30, 1e-10, 0])
    return {
        "one_hot_p": (one_hot, flat),
        "one_hot_q": (flat, one_hot),
        "both": (one_hot, one_hot),
        "disjoint": (left, right),
        "equal": (flat, flat),
        "half": (Sampling(1.0).probs(half), Sampling(0.7).probs(half.flip(0))),
        "subnormal_q": (flat, tiny),
        "subnormal_p": (tiny, flat),
        "vocabulary_of_one": (torch.ones(1), torch.ones(1)),
    }


@pytest.mark.parametrize("case", hard_pairs())
@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_no_input_gives_a_distribution_that_is_none(rule, case):
    p, q = hard_pairs()[case]
    rng = torch.Generator().manual_seed(1)
    for draws in SAMPLED:
        for k in range(1, p.shape[0] + 1):
            children = draw_children(q[None], k, draws, rng)[1][0]
            rounds = rule.rounds(p, q, children)
            assert ((rounds.accept >= 0) & (rounds.accept <= 1)).all()
            assert (rounds.residual >= 0).all()
            assert rounds.residual.sum() == pytest.approx(1, abs=1e-9)
            assert (rounds.accept[p[children] == 0] == 0).all()
            chosen = rule.choose(p, q, children, torch.rand(len(children), dtype=torch.float64, generator=rng))
            if isinstance(chosen, int):
                assert p[children[chosen]] > 0
            elif draws in rule.lossless_for:
                assert (p[chosen > 0] > 0).all()


@pytest.mark.parametrize("rule", RULES, ids=name_of)
@pytest.mark.parametrize("rest", [1e-5, 1e-11, 1e-12, 1e-13, 0.0])
def test_many_rejections_that_are_hardly_possible_do_not_underflow(rule, rest):
    """Every round leaves a `rest` of what was there: forty of them are less than the smallest number."""
    p, q = torch.tensor([[1.0, 0.0, 0.0], [1 - rest, rest, 0.0]], dtype=torch.float64)
    for children in ([0] * 40, [1] * 40, [0, 1, 2] * 14):
        rounds = rule.rounds(p, q, torch.tensor(children))
        assert ((rounds.accept >= 0) & (rounds.accept <= 1)).all()
        assert float(rounds.residual.sum()) == pytest.approx(1)
        assert (rounds.residual >= 0).all()


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_choices_have_the_probabilities_of_the_rounds(rule):
    rng, times = torch.Generator().manual_seed(2), 4000
    p, q = (
        tensor(probs) for probs in ([Fraction(n, 20) for n in (2, 4, 5, 9)], [Fraction(n, 20) for n in (8, 6, 4, 2)])
    )
    children = torch.tensor([0, 1, 3])
    rounds = rule.rounds(p, q, children)
    reach = torch.cumprod(torch.cat((torch.ones(1), 1 - rounds.accept)), 0)
    expected = torch.cat((reach[:3] * rounds.accept, reach[3:]))
    counts = torch.zeros(4)
    for _ in range(times):
        chosen = rule.choose(p, q, children, torch.rand(len(children), dtype=torch.float64, generator=rng))
        counts[chosen if isinstance(chosen, int) else 3] += 1
    error = (expected * (1 - expected) / times).sqrt()
    assert ((counts / times - expected).abs() <= 4 * error + 1e-9).all()


TOLD = [(rule, draws) for rule, draws in CELLS if isinstance(rule.begin(*torch.ones(2, 1), 1), Told)]
"""Rules that tell which child a known token comes from."""


def sources_told(rule: ChildByChild, p: Probs, q: Probs, k: int) -> Tensor:
    """The same from the token on: P(token) times what the rule tells of it, summed over the children rejected."""
    joint = torch.zeros(k + 1, len(p), dtype=torch.float64)

    def go_on(token: int, rejected: tuple[int, ...], chance: float) -> None:
        state, number = rule.begin(tensor(p), tensor(q), k), len(rejected)
        for child in rejected:
            state.reject(torch.tensor(child))
        hit = float(state.hit(torch.tensor(token))) if number < k else 0.0
        missed = state.missed() if number < k else torch.zeros(len(p))
        joint[number if number < k else k, token] += chance * hit
        left = chance * (1 - hit)
        if not missed.sum() > 0:
            joint[k, token] += left
        for child in missed.nonzero().flatten().tolist() if left > 1e-15 else ():
            go_on(token, (*rejected, child), left * float(missed[child] / missed.sum()))

    for token, chance in enumerate(p):
        if chance:
            go_on(token, (), float(chance))
    return joint


@pytest.mark.few(18)
@pytest.mark.parametrize(("rule", "draws"), TOLD, ids=["-".join(map(name_of, cell)) for cell in TOLD])
@pytest.mark.parametrize("vocab", [1, 2, 3, 4])
def test_what_a_rule_tells_of_a_known_token_is_the_law_of_its_judgements(rule, draws, vocab):
    """Bayes' theorem, exactly: which child is accepted, and as which token."""
    for seed in range(8):
        p, q = random_pq(vocab, seed)
        for k in range(1, vocab + 2 if draws == "iid" else vocab + 1):
            judged, told = sources(rule, p, q, k, draws), sources_told(rule, p, q, k)
            torch.testing.assert_close(told, judged, rtol=0, atol=1e-9, msg=f"p={p}, q={q}, k={k}")


def test_every_rule_that_compares_p_with_q_tells():
    assert {type(rule) for rule, _ in TOLD} == {type(rule) for rule, _ in CELLS if rule.reads_q} >= {KSeq, SpecInfer}
