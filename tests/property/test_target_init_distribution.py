"""Target-initialised trees: distributions summed over every draw of drafter and rule, and what is left to samples."""

from collections import Counter, defaultdict
from functools import cache
from itertools import product

import pytest
import torch
from distributions import ordered_draws, probs_of_tokens
from doubles import BigramLM, TableDraft, context_for
from played_forks import every_run
from scipy import stats

from specdec_core import Sampling, TokenTree, generate, shapes
from specdec_core.checks import check_lossless
from specdec_core.drafters import StaticTree, TargetInit, static_tree, target_init
from specdec_core.errors import PairError
from specdec_core.models import ModelOutput
from specdec_core.roots import Virtual
from specdec_core.sampling import draw_tokens
from specdec_core.verifiers import (
    ChildByChild,
    IndependentLongest,
    LongestSubtree,
    MultiCandidate,
    TargetSample,
    WithoutReplacement,
    rounds,
)

TOLERANCE = 1e-6
"""Distributions are in float32, and the sums in float64."""
T1 = Sampling(1.0)


def table(seed, vocab, sharpness=1.5):
    """Logits after each token."""
    return sharpness * torch.randn(vocab, vocab, generator=torch.Generator().manual_seed(seed))


def after(logits):
    """A draft whose distribution depends on the last token alone."""
    return TableDraft(logits.shape[1], lambda path: logits[path[-1]].softmax(-1))


class Played:
    """Steps of a drafter and a rule on bigram tables, in which each draw is one of all possible ones."""

    def __init__(self, monkeypatch, target, draft, rule, widths, *, draws="without_replacement", sampling=T1):
        self.target, self.rule, self.sampling = target, rule, sampling
        self.drafter = TargetInit(draft=after(draft), widths=widths, draws=draws)
        self.orders = cache(lambda probs, k, way: list(ordered_draws(probs, k, way)))
        self.pick = None
        for module in (target_init, static_tree):
            monkeypatch.setattr(module, "draw_children", self.draw)
        for kind, choose in ((ChildByChild, self.choose), (TargetSample, self.sample)):
            # bound to the class, not to the rule
            monkeypatch.setattr(kind, "choose", lambda rule, p, q, drawn, rng, choose=choose: choose(rule, p, q, drawn))

    def draw(self, probs, k, draws, rng, counts=None):
        ids = []
        for row in probs.tolist():
            orders = self.orders(tuple(row), k, draws)
            total = sum(float(chance) for _, chance in orders)
            ids.append(orders[self.pick([float(chance) / total for _, chance in orders])][0])
        ids = torch.tensor(ids)
        return probs.gather(-1, ids), ids

    def choose(self, rule, p, q, children):
        rounds = rule.rounds(p, q, children)
        chances, left = [], 1.0
        for accept in rounds.accept.tolist():
            chances.append(left * accept)
            left *= 1 - accept
        choice = self.pick([*chances, left])
        return choice if choice < len(chances) else rounds.residual

    def sample(self, rule, p, q, children):
        token = self.pick(p.tolist())
        found = (children == token).tolist()
        return found.index(True) if True in found else torch.nn.functional.one_hot(torch.tensor(token), len(p)).float()

    def step(self, token, probs):
        """Probability of the tokens and the next distribution that one step behind `token` leaves."""
        root = torch.tensor(probs)

        def run(pick):
            self.pick, context = pick, context_for(token)
            context.root = Virtual(root)
            tree = self.drafter.grow(context)
            logits = torch.cat((root.log()[None], self.target[tree.tokens[1:]]))
            verdict = self.rule.judge(tree, ModelOutput(logits, None, root), self.sampling, context.rng)
            assert verdict.next_token is None
            return verdict.tokens, tuple(verdict.next_probs.tolist())

        outcomes = Counter()
        for outcome, chance in every_run(run):
            outcomes[outcome] += chance
        assert sum(outcomes.values()) == pytest.approx(1, abs=1e-6)
        return outcomes

    def probs_of(self, count):
        """The distribution of so many tokens behind token 0."""

        return probs_of_tokens(self.step, 0, tuple(self.sampling.open_probs(self.target[0]).tolist()), count)

    def error(self, count):
        """Largest distance from the target's own distribution of so many tokens."""
        p, found = self.sampling.probs(self.target).double(), self.probs_of(count)
        p = p / p.sum(-1, keepdim=True)
        worst = 0.0
        for tokens in product(range(len(p)), repeat=count):
            chance = 1.0
            for above, token in zip((0, *tokens), tokens, strict=False):
                chance *= float(p[above, token])
            assert chance > 0 or not found[tokens], "a token without probability"
            worst = max(worst, abs(found[tokens] - chance))
        return worst


ALONE = {
    "wor": (MultiCandidate(), "without_replacement", 3, (1, 2), T1),
    "wor_top_p": (MultiCandidate(), "without_replacement", 3, (1, 2), Sampling(0.8, top_p=0.6)),
    "wor_chain": (MultiCandidate(), "without_replacement", 3, (1, 1), T1),
    "wor_deep": (MultiCandidate(), "without_replacement", 2, (1, 2, 1), T1),
    "wor_all": (MultiCandidate(), "without_replacement", 3, (1, 9), T1),
    "iid": (MultiCandidate(replacement=True), "iid", 2, (1, 2, 1), T1),
    "sequoia": (WithoutReplacement(), "without_replacement", 3, (1, 2), T1),
    "topk": (TargetSample(), "topk", 3, (1, 2), T1),
}


@pytest.mark.parametrize("name", ALONE)
def test_with_one_first_token_the_next_three_have_the_targets_distribution(name, monkeypatch):
    rule, draws, vocab, widths, sampling = ALONE[name]
    rule = LongestSubtree(rule=rule)
    played = Played(monkeypatch, table(1, vocab), table(2, vocab), rule, widths, draws=draws, sampling=sampling)
    assert check_lossless(played.drafter, rule, sampling)
    assert played.error(3) < TOLERANCE


@pytest.mark.parametrize("name", ["wor", "iid"])
def test_distributions_with_holes_keep_the_distribution_too(name, monkeypatch):
    """Tokens that q lacks, tokens that p lacks, and a certain p; children behind q's support are drawn all the same."""
    rule, draws, vocab, widths, _ = ALONE[name]
    p, q = table(3, vocab), table(4, vocab)
    p[0, 1] = p[1, 0] = q[0, 0] = q[1, 1] = -torch.inf
    if vocab > 2:
        q[1, 2] = q[2, 0] = -torch.inf
    assert Played(monkeypatch, p, q, LongestSubtree(rule=rule), widths, draws=draws).error(3) < TOLERANCE


def test_wrong_pairs_are_seen(monkeypatch):
    """The controls: SpecInfer's rule on draws without replacement, and topk children that are taken for draws."""
    wrong = LongestSubtree(rule=MultiCandidate(replacement=True))
    assert Played(monkeypatch, table(1, 3), table(2, 3), wrong, (1, 2)).error(3) > 1e-3


def unequal(vocab=3):
    """Behind token 0 all continuations are accepted, behind the others none but token 0."""
    p = torch.zeros(vocab, vocab)
    p[1:, 0] = -20.0
    q = p.clone()
    q[1:] = torch.tensor([20.0] + [0.0] * (vocab - 1))
    return p, q


def test_two_first_tokens_change_the_distribution(monkeypatch):
    p, q = unequal()
    rule = LongestSubtree(rule=MultiCandidate())
    played = Played(monkeypatch, p, q, rule, (2, 1))
    first = played.probs_of(1)
    # token 0 wins whenever it is one of the two, else the first of two equals
    assert [first[(token,)] for token in range(3)] == pytest.approx([2 / 3, 1 / 6, 1 / 6], abs=1e-6)
    assert Played(monkeypatch, p, q, rule, (1, 1)).error(1) < TOLERANCE
    with pytest.raises(PairError, match="does not keep the target's distribution for targets_without_replacement"):
        check_lossless(played.drafter, rule, T1)
    assert not check_lossless(played.drafter, rule, T1, allow_lossy=True)


@pytest.mark.parametrize("rule", [IndependentLongest(), LongestSubtree(rule=MultiCandidate())])
def test_samples_of_the_engine_tell_that_two_first_tokens_are_lossy(rule):
    p, q = unequal()
    counts = [Counter(), Counter()]
    for width in (1, 2):
        drafter, rng = TargetInit(draft=BigramLM(q), widths=(width, 1)), torch.Generator().manual_seed(width)
        for _ in range(200):
            found = generate(BigramLM(p), drafter, rule, [0], max_new_tokens=1, sampling=T1, allow_lossy=True, rng=rng)
            counts[width - 1][found.tokens[0]] += 1
    one, two = (stats.chisquare([count[token] for token in range(3)]).pvalue for count in counts)
    assert one > 1e-3
    assert two < 1e-6


@pytest.mark.parametrize("rule", [IndependentLongest(), LongestSubtree(rule=MultiCandidate())])
def test_a_perfect_draft_has_all_accepted_and_the_first_path_wins(rule, monkeypatch):
    """With q = p the paper's rule keeps the distribution of the first token: it is the first of the draws."""
    p = table(5, 3)
    played = Played(monkeypatch, p, p, rule, (2, 2))
    probs = tuple(p[0].softmax(-1).tolist())
    outcomes = played.step(0, probs)
    assert {len(tokens) for tokens, _ in outcomes} == {2}, "1 + (L - 1) tokens"
    first = Counter()
    for (tokens, left), chance in outcomes.items():
        first[tokens[0]] += chance
        assert left == pytest.approx(p[tokens[-1]].softmax(-1).tolist(), abs=1e-6), "p after a whole path"
    assert [first[token] for token in range(3)] == pytest.approx(probs, abs=1e-6)


TREE = [-1, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6]
"""Parents of widths (2, 2, 1), level by level."""


def judged_tree(seed, vocab=5):
    """A tree of tokens from tables, its distributions, and the target's rows."""
    rng = torch.Generator().manual_seed(seed)
    p, q = table(seed, vocab, 2.5), table(seed + 100, vocab, 2.5)
    tokens = torch.tensor([0, 1, 2, *(int(torch.randint(vocab, (1,), generator=rng)) for _ in range(8))])
    parents = torch.tensor(TREE)
    probs = q.softmax(-1)
    edges = probs[tokens[parents], tokens]
    edges[0] = 1
    inner = torch.arange(11)
    tree = TokenTree(tokens, parents, edges, probs[tokens], torch.where(inner < 7, inner, -1))
    root = p[0].softmax(-1)
    return tree, ModelOutput(p[tokens], None, root), p.softmax(-1).double(), probs.double()


def winner(flags):
    """Spec 3.4, word for word: the path of a leaf, cut behind its leading flagged nodes."""
    best = (-1, None)
    for leaf in range(7, 11):
        path = [leaf, TREE[leaf], TREE[TREE[leaf]]][::-1]
        accepted = next((n for n, node in enumerate(path[1:]) if not flags[node]), 2)
        if accepted > best[0]:
            best = (accepted, path[: 1 + accepted])
    return tuple(best[1])


@pytest.mark.parametrize("seed", [20, 27, 33])
def test_independent_longest_has_the_distribution_of_all_patterns(seed):
    tree, scored, p, q = judged_tree(seed)
    tokens, samples, rule, rng = tree.tokens.tolist(), 1000, IndependentLongest(), torch.Generator().manual_seed(seed)
    accept = {node: min(1, float(p[tokens[TREE[node]], tokens[node]] / tree.edge_probs[node])) for node in range(3, 11)}
    wanted = defaultdict(float)
    for pattern in product((False, True), repeat=8):
        flags, chance = dict(zip(range(3, 11), pattern, strict=True)), 1.0
        for node, flag in flags.items():
            chance *= accept[node] if flag else 1 - accept[node]
        wanted[winner(flags)] += chance
    counts, next_probs = Counter(), {}
    for _ in range(samples):
        verdict = rule.judge(tree, scored, T1, rng)
        path = tuple(verdict.path[1:].tolist())
        counts[path] += 1
        next_probs[path] = verdict.next_probs
    assert all(wanted[path] > 0 for path in counts)
    common = [path for path in wanted if samples * wanted[path] >= 5]
    expected = torch.tensor([samples * wanted[path] for path in common], dtype=torch.float64)
    observed = torch.tensor([counts[path] for path in common], dtype=torch.float64)
    rest = samples - expected.sum()
    if rest > 1e-6:
        expected, observed = torch.cat((expected, rest[None])), torch.cat((observed, (samples - observed.sum())[None]))
    assert stats.chisquare(observed, expected).pvalue > 1e-3
    assert {len(path) for path in next_probs} == {1, 2, 3}
    for path, probs in next_probs.items():
        own = p[tokens[path[-1]]]
        if len(path) == 2:
            own = (own - q[tokens[path[-1]]]).clamp(min=0)
            own = own / own.sum()
        assert torch.allclose(probs.double(), own, atol=1e-6), "p, or max(p - q, 0) once between the ends"


def test_nothing_accepted_leaves_p_behind_the_first_token():
    """Where p has none of what is drafted, the lowest of all paths wins with its bare first token."""
    tree, scored, _, _ = judged_tree(0, vocab=12)
    logits = scored.logits.index_fill(1, tree.tokens[3:], -torch.inf)
    verdict = IndependentLongest().judge(tree, ModelOutput(logits, None, scored.root_probs), T1, torch.Generator())
    assert verdict.path.tolist() == [0, 1]
    assert torch.allclose(verdict.next_probs, logits[1].softmax(-1))


def test_children_behind_the_drafts_support_are_not_accepted():
    """Such a child was not drawn from q: u q < p would take it whenever p has it (spec 1.2: dead nodes)."""
    q = torch.tensor([0.0, 1.0, 0.0])
    tree = TokenTree(
        torch.tensor([0, 0, 1, 2]), torch.tensor([-1, 0, 1, 1]), torch.tensor([1.0, 1, 1, 0]),
        q[None], torch.tensor([-1, 0, -1, -1]),
    )  # fmt: skip
    logits = torch.tensor([0.5, 0.0, 0.5]).log().expand(4, 3)
    verdict = IndependentLongest().judge(tree, ModelOutput(logits, None, torch.ones(3) / 3), T1, torch.Generator())
    assert verdict.path.tolist() == [0, 1]


def inverted(probs, k, draws, rng):
    """One draw the way a bonus token is drawn."""
    assert k == 1
    ids = draw_tokens(probs, 1, rng)
    return probs.gather(-1, ids), ids


def for_children_of_drafted_nodes(tree, rng):
    """Numbers for the nodes that a rule judges: a tree's only first token is none of them."""
    given = 1 + int((tree.parents == 0).sum() == 1)
    drawn = torch.rand(tree.num_nodes - given, dtype=torch.float64, generator=rng)
    return torch.cat((torch.zeros(given, dtype=torch.float64), drawn))


@pytest.mark.parametrize("rule", [MultiCandidate(), WithoutReplacement()])
@pytest.mark.parametrize("sampling", [T1, Sampling(0.7, top_p=0.8)])
def test_on_the_same_random_stream_one_first_token_is_multi_candidate_decoding(rule, sampling, monkeypatch):
    """The bonus token is merely drawn a step later."""
    monkeypatch.setattr(target_init, "draw_children", inverted)
    monkeypatch.setattr(rounds, "one_for_each", for_children_of_drafted_nodes)
    target, draft = BigramLM(table(1, 9)), BigramLM(table(2, 9))
    own = StaticTree(draft=draft, shape=shapes.branching([3, 2, 1]), draws="without_replacement")
    ours = TargetInit(draft=draft, widths=(1, 3, 2, 1))
    plain, late = (
        generate(
            target, drafter, rule, [0], max_new_tokens=150, sampling=sampling, rng=torch.Generator().manual_seed(3)
        )
        for drafter, rule in ((own, rule), (ours, LongestSubtree(rule=rule)))
    )
    assert late.tokens == plain.tokens
    assert [step.acceptance_length for step in late.steps][:-1] == [s.acceptance_length for s in plain.steps][
        : len(late.steps) - 1
    ]
    shared = zip(plain.steps, late.steps, strict=False)
    assert all(a.expected_acceptance == pytest.approx(b.expected_acceptance, rel=1e-5) for a, b in shared)


def test_acceptance_lengths_have_the_distribution_of_multi_candidate_decoding():
    """Two-sample test, each with draws of its own."""
    target, draft, counts = BigramLM(table(1, 9)), BigramLM(table(2, 9)), []
    own = StaticTree(draft=draft, shape=shapes.branching([3, 2, 1]), draws="without_replacement")
    ours = TargetInit(draft=draft, widths=(1, 3, 2, 1))
    for seed, (drafter, rule) in enumerate(((own, MultiCandidate()), (ours, LongestSubtree(rule=MultiCandidate())))):
        found = generate(
            target, drafter, rule, [0], max_new_tokens=900, sampling=T1, rng=torch.Generator().manual_seed(seed)
        )
        lengths = Counter(step.acceptance_length for step in found.steps)
        counts.append([lengths[length] for length in (1, 2, 3, 4)])
    assert min(map(min, counts)) > 20
    assert stats.chi2_contingency(counts).pvalue > 1e-3
