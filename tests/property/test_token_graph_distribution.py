"""The distribution of the next tokens behind token graphs, summed exactly and by samples of the engine.

Graphs of best children hold nothing random; of a drawn sequence every draw is played. The tokens asked for are more
than a path needs to cross a merge edge.
"""

from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise, product

import pytest
import torch
from doubles import BigramLM, TableDraft, context_for
from scipy import stats

from specdec_core import Sampling, TokenTree, generate
from specdec_core.drafters import TokenGraph, token_graph
from specdec_core.errors import PairError
from specdec_core.graph import Kind
from specdec_core.verifiers import Chain, MultiCandidate, SpecInfer, TargetSample

VOCAB, TOKENS, TOLERANCE = 3, 5, 1e-6
"""Q is in float32, and the sums in float64."""


def table(seed):
    """Logits after each token."""
    return 1.5 * torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(seed))


TARGET, DRAFT = BigramLM(table(1)), BigramLM(table(2))
P = TARGET.table.double().softmax(-1)
MERGING = {"k": 2, "tau": 1, "theta_prob": 0, "theta_sib": 0, "max_steps": 4}
GRAPHS = {
    "gsd": MERGING,
    "gsd_pruned": MERGING | {"k": 3, "theta_prob": 0.2, "theta_sib": 0.3},
    "paper": MERGING | {"k": 3, "theta_prob": 0.2, "theta_sib": 0.3, "pruning": "paper"},
    "code": MERGING | {"k": 3, "theta_prob": 0.2, "theta_sib": 0.3, "pruning": "code"},
    "code_to_the_cap": MERGING
    | {"k": 3, "theta_prob": 0.35, "pruning": "code", "unmerge_depth": None, "verify_cap": 60},
    "path_prob": MERGING | {"cap_order": "path_prob", "verify_cap": 11},
    "breadth_capped": MERGING | {"verify_cap": 17},
    "tsd": MERGING | {"tau": None},
    "ssd": MERGING | {"tau": None, "k": 1, "theta_prob": 0.3},
}


def draft_after(token):
    """A draft whose distribution depends on the last token alone, beginning behind `token`."""
    return TableDraft(VOCAB, lambda path: DRAFT.table[path[-1] if path else token].softmax(-1))


def walk(tree, node, token, done, reach, rule, outcomes):
    """The rule's exact chances from a node on."""
    children = tree.children(node)
    if not len(children):
        for last in range(VOCAB):
            outcomes[(*done, last)] += reach * float(P[token, last])
        return
    q = tree.q_after(node)
    q = P[token] if q is None else q.double()  # a rule that does not look at it
    rounds = rule.rounds(P[token], q, tree.tokens[children])
    for child, accept in zip(children.tolist(), rounds.accept.tolist(), strict=True):
        drawn = int(tree.tokens[child])
        walk(tree, child, drawn, (*done, drawn), reach * accept, rule, outcomes)
        reach *= 1 - accept
    for last in range(VOCAB):
        outcomes[(*done, last)] += reach * float(rounds.residual[last])


def furthest(trees, rule, count):
    """Largest distance to the target's distribution of `count` tokens; `trees`: a token's, with their probabilities."""
    steps = []
    for token in range(VOCAB):
        outcomes = defaultdict(float)
        for tree, chance in trees(token):
            walk(tree, 0, token, (), chance, rule, outcomes)
        steps.append(outcomes)

    @cache
    def probs(token, count):
        found = Counter()
        for sequence, chance in steps[token].items():
            if len(sequence) >= count:
                found[sequence[:count]] += chance
                continue
            for rest, more in probs(sequence[-1], count - len(sequence)).items():
                found[(*sequence, *rest)] += chance * more
        return found

    return max(abs(probs(0, count)[outcome] - chance) for outcome, chance in wanted(0, count).items())


def wanted(root, count):
    """The target's distribution of the tokens behind the root."""
    return {
        tokens: float(torch.stack([P[a, b] for a, b in zip((root, *tokens), tokens, strict=False)]).prod())
        for tokens in product(range(VOCAB), repeat=count)
    }


@pytest.mark.parametrize("name", GRAPHS)
def test_target_sample_keeps_the_distribution_behind_merges(name):
    crossing = 0

    def trees(token):
        nonlocal crossing
        tree = TokenGraph(draft=draft_after(token), **GRAPHS[name]).grow(context_for(token))
        crossing += int(tree.origin.behind_merge.sum())
        yield tree, 1.0

    assert furthest(trees, TargetSample(), TOKENS) < TOLERANCE
    assert crossing > 0 or GRAPHS[name]["tau"] is None


class Dropping(TokenGraph):
    """The classic error: the token that ended the sequence is thrown away because of what it is."""

    def grow(self, context):
        tree = super().grow(context)
        if tree.origin.kinds[tree.origin.nodes[-1]] != Kind.PROB_LEAF:
            return tree
        return TokenTree(
            tree.tokens[:-1], tree.parents[:-1], tree.edge_probs[:-1], tree.draft_probs, tree.draft_rows[:-1]
        )


IID = {"k": 1, "tau": None, "draws": "iid", "theta_prob": 0.35, "theta_sib": 0, "max_steps": 3}
SEQUENCES = {
    "exit": IID,
    "no_exit": IID | {"theta_prob": 0},
    "temperature": IID | {"draft_temperature": 0.7},
    "cap": IID | {"verify_cap": 2},
    "depth": IID | {"unmerge_depth": 1},
    "code": IID | {"pruning": "code"},
    "created": IID | {"draft_node_cap": 2},
}


def every_sequence(make, monkeypatch):
    """All drawn sequences with their probabilities: a tape of tokens is played, and lengthened where it is short."""
    tapes = [()]
    while tapes:
        tape = tapes.pop()
        played, chance = 0, 1.0

        def draw(probs, k, draws, rng, tape=tape):
            nonlocal played, chance
            token = tape[played] if played < len(tape) else 0
            assert (tuple(probs.shape), k, draws) == ((1, VOCAB), 1, "iid")
            played, chance = played + 1, chance * float(probs[0, token])
            return probs[:, [token]], torch.tensor([[token]])

        monkeypatch.setattr(token_graph, "draw_children", draw)
        tree = make().grow(context_for())
        if played > len(tape):
            tapes += [(*tape, token) for token in range(VOCAB)]
        else:
            yield tree, chance


def furthest_of(cls, rule, options, monkeypatch, count=4):
    def trees(token):
        return every_sequence(lambda: cls(draft=draft_after(token), **options), monkeypatch)

    return furthest(trees, rule, count)


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("rule", [Chain(), SpecInfer(), TargetSample()], ids=lambda rule: type(rule).__name__)
def test_drawn_sequences_keep_the_distribution(name, rule, monkeypatch):
    assert furthest_of(TokenGraph, rule, SEQUENCES[name], monkeypatch) < TOLERANCE


def test_dropping_what_ended_the_sequence_is_found_out(monkeypatch):
    assert furthest_of(Dropping, Chain(), SEQUENCES["exit"], monkeypatch) > 1e-2
    assert furthest_of(Dropping, Chain(), SEQUENCES["no_exit"], monkeypatch) < TOLERANCE


def test_every_sequence_is_played_and_ends_at_its_first_improbable_token(monkeypatch):
    found = list(every_sequence(lambda: TokenGraph(draft=draft_after(0), **IID), monkeypatch))
    assert sum(chance for _, chance in found) == pytest.approx(1, abs=1e-6)
    for tree, _ in found:
        edges = tree.edge_probs[1:].tolist()
        assert tree.parents.tolist() == list(range(-1, len(edges)))
        assert all(edge >= 0.35 for edge in edges[:-1])
        assert edges[-1] < 0.35 or len(edges) == 3
        assert tree.q_after(len(edges) - 1) is not None
        assert int(tree.draft_rows[-1]) == -1


APART = (torch.tensor([[0.2, 0.4, 0.4]] * VOCAB), torch.tensor([[0.6, 0.2, 0.2]] * VOCAB))
"""Distributions after every token, of which the draft's second best is dropped by the wrong drafter."""


@pytest.mark.parametrize("name", ["gsd", "exit", "dropping"])
def test_samples_of_the_engine(name):
    """One long answer of a bigram is many draws from its distributions: chi-square; only the wrong drafter fails."""
    target, draft = (TARGET, DRAFT) if name == "gsd" else (BigramLM(probs.log()) for probs in APART)
    if name == "gsd":
        drafter, rule = TokenGraph(draft=draft, **GRAPHS[name]), TargetSample()
    else:
        cls = Dropping if name == "dropping" else TokenGraph
        drafter, rule = cls(draft=draft, **IID | {"max_steps": 1}), Chain()
    options = {"sampling": Sampling(1.0), "rng": torch.Generator().manual_seed(11)}
    counts = Counter(pairwise(generate(target, drafter, rule, [0], max_new_tokens=2000, **options).tokens))
    statistic, p = 0.0, target.table.double().softmax(-1)
    for token in range(VOCAB):
        observed = [counts[token, last] for last in range(VOCAB)]
        statistic += stats.chisquare(observed, sum(observed) * p[token]).statistic
    value = stats.chi2.sf(statistic, VOCAB * (VOCAB - 1))
    assert (value < 1e-4) if name == "dropping" else (value > 1e-3)


def test_rules_for_drawn_children_are_refused_for_best_ones():
    for rule in (Chain(), SpecInfer(), MultiCandidate()):
        assert "topk" not in rule.lossless_for
        with pytest.raises(PairError, match="does not keep the target's distribution for topk children"):
            generate(TARGET, TokenGraph(draft=DRAFT), rule, [0], max_new_tokens=2, sampling=Sampling(1.0))
