"""`pruning=code` against the rule of GSD's public code: records, merge edges and verified trees of random stages."""

import random
from collections import Counter

import numpy as np
import pytest
import torch
from doubles import paths_of
from gsd_public_rule import Stage, stage, verified
from token_graphs import drafted

from specdec_core.graph import Kind

LETTERS = "abcdefgh"


class Table:
    """q of the last `memory` tokens, in float32, as the drafter computes it; drawn when it is first asked for."""

    def __init__(self, rng: random.Random, vocab: int, memory: int) -> None:
        self.rng, self.vocab, self.memory, self.rows = rng, vocab, memory, dict[str, torch.Tensor]()

    def row(self, text: str) -> torch.Tensor:
        ending = text[-self.memory :]
        if ending not in self.rows:
            logits = torch.tensor([2 * self.rng.gauss(0, 1) for _ in range(self.vocab)])
            self.rows[ending] = logits.softmax(-1)
        return self.rows[ending]

    def letters(self, text: str) -> dict[str, float]:
        q = self.row(text).log().softmax(-1).tolist()
        return dict(zip(LETTERS, q, strict=False))

    def ids(self, root: str):
        return lambda path: self.row(root + "".join(LETTERS[token] for token in path))


def ours(table: Table, root: str, **options):
    """The drafter's tree of the same draft."""
    return drafted(table.ids(root), table.vocab, LETTERS.index(root), pruning="code", **options)


def texts_of(graph) -> list[str]:
    texts: list[str] = []
    for token, parent in zip(graph.tokens.tolist(), graph.parents.tolist(), strict=True):
        texts.append((texts[parent] if parent >= 0 else "") + LETTERS[token])
    return texts


def assert_same(tree, made: Stage, cap: int, depth: int | None, case: object) -> None:
    """Records, their q and classes, merge edges, and the verified tree with its order."""
    graph, root = tree.origin, made.nodes[0]
    texts = texts_of(graph)
    assert texts == [root, *made.candidates], case
    assert graph.probs.tolist()[1:] == [made.q[text] for text in made.candidates], case
    classes = {Kind.LIVE: set(made.nodes) - made.leaves, Kind.PROB_LEAF: made.leaves, Kind.ALIAS: {*made.redundant}}
    for kind in Kind:
        found = {text for text, own in zip(texts, graph.kinds.tolist(), strict=True) if own == kind}
        assert found == classes.get(kind, set()), (kind, case)
    edges = {texts[record]: texts[into] for record, into in enumerate(graph.merged_into.tolist()) if into >= 0}
    assert edges == made.redundant, case
    walks = [root + "".join(LETTERS[token] for token in path) for path in paths_of(tree)]
    assert walks == verified(made, cap, depth), case


def random_options(rng: random.Random) -> dict:
    return {
        "k": rng.choice([1, 2, 2, 3, 3, 4]),
        "theta_prob": rng.choice([0, rng.uniform(0.05, 0.3), rng.uniform(0.2, 0.7)]),
        "theta_sib": rng.choice([0, rng.uniform(0.02, 0.4), rng.uniform(0.3, 0.9)]),
        "max_steps": rng.choice([1, 2, 3, 4, 5, 6]),
    }


def seen_in(made: Stage, theta_prob: float) -> list[str]:
    """What is peculiar to the rule in a stage."""
    redundant = made.redundant
    facts = {
        "cycle": made.returns(),
        "merges, no cycle": bool(redundant) and not made.returns(),
        "into a leaf": any(match in made.leaves for match in redundant.values()),
        "redundant below theta_prob": any(made.q[text] < theta_prob for text in redundant),
        "redundant below a leaf": any(text[:-1] in made.leaves for text in redundant),
        "leaf by its father": any(text[:-1] in made.leaves and made.q[text] >= theta_prob for text in made.leaves),
        "ended by leaves": made.widths[-1:] != [0] and bool(made.leaves) and made.candidates[-1] in made.leaves,
        "two of one father": max(Counter(text[:-1] for text in redundant).values(), default=0) > 1,
    }
    return [name for name, holds in facts.items() if holds]


@pytest.mark.parametrize("batch", [0, *(pytest.param(batch, marks=pytest.mark.long) for batch in range(1, 5))])
def test_stages_are_the_public_rules(batch):
    """Small vocabularies and drafts of short memory, so that repeats are frequent; with and without cycles."""
    seen = Counter()
    for seed in range(500 * batch, 500 * (batch + 1)):
        rng = random.Random(seed)
        table = Table(rng, rng.choice([2, 2, 3, 3, 4, 6, 8]), rng.choice([1, 1, 2, 3, 99]))
        options, root, r = random_options(rng), rng.choice(LETTERS[: table.vocab]), rng.choice([0, 0, 1, 1, 2, 3, None])
        cap, depth = rng.choice([3, 20, 100]), rng.choice([None, 2, 5, 10])
        made = stage(table.letters, root, r=r, **options)
        counted = {"tau": r, "tau_as_context": True} if rng.random() < 0.5 else {"tau": None if r is None else r + 1}
        limits = {"verify_cap": cap, "unmerge_depth": depth, "draft_node_cap": 100_000}
        tree, drafter = ours(table, root, **options, **limits, **counted)
        assert_same(tree, made, cap, depth, (seed, options, r))
        assert [1, *drafter.draft.expanded] == made.widths, (seed, options, r)
        seen.update(seen_in(made, options["theta_prob"]))
    assert len(seen) == 8, seen
    assert min(seen.values()) > 25, seen


class Fixed(Table):
    """q behind whole texts, in eighths; elsewhere the first token is certain."""

    def __init__(self, vocab: int, rows: dict[str, list[float]]) -> None:
        self.vocab, self.given = vocab, rows

    def row(self, text: str) -> torch.Tensor:
        return torch.tensor(self.given.get(text, [1.0] + [0.0] * (self.vocab - 1)))


def test_what_an_improbable_leaf_ends_in_is_merged_into_it():
    """b (0.25) below the root is a leaf at theta_prob 0.3; the b below a goes on as it does."""
    table = Fixed(3, {"c": [0.75, 0.25, 0.0], "ca": [0.25, 0.75, 0.0]})
    made = stage(table.letters, "c", k=2, r=0, theta_prob=0.3, theta_sib=0.2, max_steps=3)
    assert made.leaves >= {"cb"}
    assert made.redundant["cab"] == "cb"
    tree, _ = ours(table, "c", k=2, tau=1, theta_prob=0.3, theta_sib=0.2, max_steps=3)
    assert_same(tree, made, 100, 10, "leaf")


def test_a_candidate_too_improbable_is_redundant_all_the_same():
    """Its edge stands where a leaf would end the path: what follows its match follows it."""
    table = Fixed(4, {"d": [0.5, 0.5, 0, 0], "da": [0.0, 0.125, 0.875, 0.0], "db": [0.0, 0.0, 1.0, 0.0]})
    made = stage(table.letters, "d", k=2, r=0, theta_prob=0.3, theta_sib=0.1, max_steps=2)
    assert made.redundant["dab"] == "db"
    assert "dab" not in made.leaves
    tree, _ = ours(table, "d", k=2, tau=1, theta_prob=0.3, theta_sib=0.1, max_steps=2)
    assert_same(tree, made, 100, 10, "improbable")


def test_two_nodes_may_lead_to_each_other_and_the_tree_goes_round_until_its_limits():
    """a below b goes on as a, b below a as b: the texts are abab..., as deep as the tree may be."""
    even = {"c": [0.5, 0.5, 0.0], "ca": [0.0, 1.0, 0.0], "cb": [1.0, 0.0, 0.0]}
    table = Fixed(3, even)
    made = stage(table.letters, "c", k=2, r=0, theta_prob=0.1, theta_sib=0.1, max_steps=4)
    assert made.redundant == {"cab": "cb", "cba": "ca"}
    assert made.returns()
    options = {"k": 2, "tau": 1, "theta_prob": 0.1, "theta_sib": 0.1, "max_steps": 4}
    for cap, depth, deepest in ((100, 10, 10), (100, None, 50), (7, None, 4)):
        tree, _ = ours(table, "c", verify_cap=cap, unmerge_depth=depth, **options)
        assert_same(tree, made, cap, depth, (cap, depth))
        assert int(tree.depths.max()) == deepest
    papers, _ = drafted(table.ids("c"), 3, 2, pruning="siblings", unmerge_depth=None, **options)
    assert np.count_nonzero(papers.origin.merged_into >= 0) == 1, "the paper's graph has no cycle"
