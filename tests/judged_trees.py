"""Trees that rules judge at all nodes at once: what comes of it, and what it is child by child."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_core.sampling import draw_children
from specdec_core.verifiers import GreedyOne, KSeq, MultiCandidate, SpecInfer, WithoutReplacement
from specdec_core.verifiers.k_seq import _Selection
from specdec_core.verifiers.multi_round import InRounds
from specdec_core.verifiers.rounds import State, children_of
from specdec_core.verifiers.tree_rounds import Families, tree_rounds, without_sure

RULES = [SpecInfer(), MultiCandidate(), WithoutReplacement(), WithoutReplacement(uniform_fallback=False), KSeq()]
RULES.append(GreedyOne())


@dataclass(frozen=True)
class Case:
    """A tree whose nodes have up to `most` children, over distributions of one kind."""

    kind: str = "sharp"
    """sharp | flat | near (q is p but for rounding) | narrow (q has three tokens) | apart | one_hot"""
    vocab: int = 50
    most: int = 6
    drawn: bool = True
    """Children are draws from q; else any tokens, repeated ones too, but where a rule knows them by q."""

    def probs(self, rows: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """p and q behind so many nodes, float32."""
        p, q = torch.randn(2, rows, self.vocab, generator=rng) * (0.1 if self.kind == "flat" else 3)
        if self.kind == "near":
            q = p + 1e-6 * q
        if self.kind == "narrow":
            q[:, 3:] = -torch.inf
        if self.kind == "apart":
            q[:, : self.vocab // 2], p[:, self.vocab // 2 :] = -torch.inf, -torch.inf
        if self.kind == "one_hot":
            p, q = 1e3 * p, 1e3 * q
        return p.softmax(-1), q.softmax(-1)


@dataclass(frozen=True)
class WithRho(KSeq):
    """K-SEQ with a given rho, which is the least that the rule may have, to a millionth."""

    rho: Tensor

    def begin(self, p: Tensor, q: Tensor, num_children: int) -> State:
        def excess(rho: Tensor) -> Tensor:
            """What the children would yield beyond p."""
            beta = torch.minimum(q.double() / q.double().sum(), p.double() / p.double().sum() / rho).sum().clamp(max=1)
            return 1 - (1 - beta) ** num_children - rho * beta

        assert 1 <= self.rho <= num_children + 1e-9
        assert excess(self.rho) <= 1e-12
        assert self.rho < 1 + 1e-6 or excess(self.rho / (1 + 1e-6)) >= -1e-12
        return _Selection(p, q, num_children, self.rho)


CASES = [
    *(Case(kind) for kind in ("sharp", "flat", "near", "narrow", "apart", "one_hot")),
    *(Case(drawn=False), Case("narrow", drawn=False), Case("narrow", vocab=5, most=8), Case(vocab=2, most=4)),
    *(Case(vocab=3000, most=3), Case(most=30)),
]


@dataclass(frozen=True)
class Drafted:
    """A tree as `tree_rounds` takes it."""

    p: Tensor
    q: Tensor
    judged_q: Tensor
    """What `tree_rounds` takes for it."""
    rows: Tensor
    tokens: Tensor
    families: Families
    children: dict[int, list[int]]


def drafted(case: Case, rule: InRounds, rng: torch.Generator) -> Drafted:
    """Of up to 12 nodes with children."""
    parents, tokens = [-1], [0]
    p, q = case.probs(40, rng)
    (draws,) = rule.lossless_for
    for node in range(12):
        count = int(torch.randint(case.most + 1, (), generator=rng))
        drawn = draw_children(q[node][None], min(count, case.vocab), draws, rng)[1][0] if count else tokens[:0]
        drawn = drawn if case.drawn or rule.sure else torch.randint(case.vocab, (count,), generator=rng)
        room = 40 - len(parents)
        tokens += [int(token) for token in drawn][:room]
        parents += [node] * min(len(drawn), room)
        if len(parents) <= node + 1:
            break
    children = children_of(parents)
    inner = [*children][1:]
    rows, rows_q = torch.full((len(parents),), -1), torch.empty(len(inner), case.vocab)
    rows[inner] = torch.randperm(len(inner), generator=rng)
    rows_q[rows[inner]] = q[inner]
    given, above = torch.tensor(tokens), torch.tensor(parents)
    families = Families.of(above, given)
    judged_q = without_sure(rows_q, rows, above, given, families) if rule.sure else rows_q
    return Drafted(p[: len(parents)], rows_q, judged_q, rows, given, families, children)


def judged(case: Case, rule: InRounds, rng: torch.Generator) -> Iterator[tuple[Tensor, ...]]:
    """Of each node with children: chances and residual from `tree_rounds`, and by the rule's own rounds."""
    tree = drafted(case, rule, rng)
    children, count = tree.children, len(tree.tokens)
    uniform = torch.ones(count, dtype=torch.float64)  # nothing is accepted, and all chances are known
    accept, shares = tree_rounds(tree.p, tree.judged_q, tree.rows, tree.tokens, uniform, tree.families, **rule.how)
    assert (accept[0], *shares[[node for node in range(count) if node not in children]].flatten().tolist()) == (0,) * (
        1 + 3 * (count - len(children) + 1)
    )
    for node in list(children)[1:]:
        known = WithRho(shares[node, 0]) if rule.k_seq else rule
        p, q, given = tree.p[node], tree.q[tree.rows[node]], tree.tokens[children[node]]
        expected = known.rounds(p, q, given)
        yield (
            accept[children[node]],
            rule.left(p, tree.judged_q[tree.rows[node]], shares[node], given.tolist()),
            expected.accept,
            expected.residual,
        )


def check(case: Case, rule: InRounds, rng: torch.Generator, trees: int = 6) -> int:
    """Both have the same law, as far as the walk can come: how many nodes were compared."""
    compared = 0
    for _ in range(trees):
        for accept, left, expected, expected_left in judged(case, rule, rng):
            reach = torch.cat((torch.ones(1, dtype=torch.float64), (1 - expected).cumprod(0)))
            assert ((accept >= 0) & (accept <= 1)).all()
            assert (reach[:-1] * (accept - expected)).abs().max() <= 1e-12
            assert (left >= 0).all()
            assert abs(float(left.sum()) - 1) <= 1e-9
            assert (reach[-1] * (left - expected_left)).abs().max() <= 1e-12
            compared += 1
    return compared
