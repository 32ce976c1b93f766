"""The law of the first three tokens equals the target's, in the engine: chi-square against exact enumeration.

What every drafter of `conf/drafter` says of its draws is tested in `test_declared_draws.py`.
"""

from itertools import product

import pytest
import torch
from doubles import BigramLM
from scipy import stats
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_core import CausalLM, Sampling, generate, shapes
from specdec_core.drafters import Autoregressive, DySpec, DySpecThreshold, Eagle2, OptTree, StaticTree
from specdec_core.models import EagleHead
from specdec_core.models.eagle import EagleModel
from specdec_core.verifiers import (
    Chain,
    Eagle1,
    KSeq,
    MultiCandidate,
    SpecInfer,
    TargetSample,
    WithoutReplacement,
)

VOCAB, SAMPLES = 3, 1000
TARGET = BigramLM(2 * torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(3)))
DRAFT = BigramLM(2 * torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(4)))
DRAFTERS = {
    "autoregressive": Autoregressive(),
    "chain": StaticTree(draft=DRAFT, shape=shapes.chain(2)),
    "binary": StaticTree(draft=DRAFT, shape=shapes.kary(2, 2)),
    "k_sequences": StaticTree(draft=DRAFT, shape=shapes.k_sequences(2, 2)),
    "iid": StaticTree(draft=DRAFT, shape=shapes.branching([2, 2]), draws="iid"),
    "without_replacement": StaticTree(draft=DRAFT, shape=shapes.branching([2, 1]), draws="without_replacement"),
    "opt_tree": OptTree(draft=DRAFT, n=4, delta=0.2),
    "eagle2": Eagle2(draft=DRAFT, total=5, depth=1, k=2),
    "dyspec": DySpec(draft=DRAFT, n=4, draws="topk"),
}
DYNAMIC = {"dyspec": DySpec(draft=DRAFT, n=5), "dyspec_threshold": DySpecThreshold(draft=DRAFT, n=5, threshold=0.1)}


RULES = {"iid": [SpecInfer(), KSeq(), MultiCandidate(replacement=True)]}
RULES["without_replacement"] = [WithoutReplacement(), MultiCandidate(), Eagle1()]
SHAPES = {"branching": shapes.branching([2, 2]), "chain": shapes.chain(3), "k_sequences": shapes.k_sequences(3, 2)}
CELLS = [(draws, rule, "branching") for draws, rules in RULES.items() for rule in rules]
CELLS += [(draws, rules[0], "k_sequences") for draws, rules in RULES.items()]
CELLS += [(draws, Chain(), "chain") for draws in RULES]


def exact_law(sampling: Sampling) -> dict[tuple[int, ...], float]:
    """Probability of every three tokens after token 0, multiplied out of the table in float64."""
    p = sampling.probs(TARGET.table).double()
    p /= p.sum(-1, keepdim=True)
    return {(a, b, c): float(p[0, a] * p[a, b] * p[b, c]) for a, b, c in product(range(VOCAB), repeat=3)}


def p_value(counts: dict[tuple[int, ...], int], law: dict[tuple[int, ...], float]) -> float:
    """Chi-square, the outcomes that are expected fewer than five times taken together."""
    common = [outcome for outcome in law if SAMPLES * law[outcome] >= 5]
    observed, expected = [counts[o] for o in common], [SAMPLES * law[o] for o in common]
    rare = SAMPLES - sum(expected)
    if rare > 1:
        observed.append(SAMPLES - sum(observed))
        expected.append(rare)
    return stats.chisquare(observed, torch.tensor(expected, dtype=torch.float64) / sum(expected) * SAMPLES).pvalue


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(0.7, top_p=0.8)], ids=["t1", "t07_top_p08"])
def test_first_three_tokens_have_the_targets_law(name, sampling):
    rng = torch.Generator().manual_seed(11)
    law = exact_law(sampling)
    counts = dict.fromkeys(law, 0)
    for _ in range(SAMPLES):
        result = generate(TARGET, DRAFTERS[name], TargetSample(), [0], max_new_tokens=3, sampling=sampling, rng=rng)
        counts[tuple(result.tokens)] += 1
    assert all(law[outcome] > 0 for outcome, count in counts.items() if count)
    assert p_value(counts, law) > 1e-3


@pytest.mark.parametrize(
    ("draws", "rule", "shape"), CELLS, ids=[f"{draws}-{type(rule).__name__}-{shape}" for draws, rule, shape in CELLS]
)
def test_rules_that_compare_p_with_q_keep_the_targets_law(draws, rule, shape):
    """In the engine; the rules by themselves are summed exactly elsewhere, at more settings."""
    sampling = Sampling(0.7, top_p=0.8)
    drafter = StaticTree(draft=DRAFT, shape=SHAPES[shape], draws=draws, draft_temperature=0.8, draft_top_p=0.9)
    rng = torch.Generator().manual_seed(12)
    law = exact_law(sampling)
    counts = dict.fromkeys(law, 0)
    for _ in range(SAMPLES):
        counts[tuple(generate(TARGET, drafter, rule, [0], max_new_tokens=3, sampling=sampling, rng=rng).tokens)] += 1
    assert all(law[outcome] > 0 for outcome, count in counts.items() if count)
    assert p_value(counts, law) > 1e-3


@pytest.mark.parametrize("name", DYNAMIC)
def test_trees_that_depend_on_their_draws_keep_the_targets_law(name):
    """In the engine, with fresh races in every step; one step is summed exactly in `test_dyspec_law.py`."""
    sampling, rng = Sampling(0.7), torch.Generator().manual_seed(14)
    law = exact_law(sampling)
    counts = dict.fromkeys(law, 0)
    for _ in range(SAMPLES):
        found = generate(TARGET, DYNAMIC[name], MultiCandidate(), [0], max_new_tokens=3, sampling=sampling, rng=rng)
        counts[tuple(found.tokens)] += 1
    assert p_value(counts, law) > 1e-3


def eagle_pair() -> tuple[CausalLM, EagleHead]:
    """A random target of three tokens and a random head."""
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        initializer_range=0.5,
        pad_token_id=None,
    )
    target = LlamaForCausalLM(config)
    return CausalLM(target), EagleHead(EagleModel(config, bias=True), target.lm_head)


@pytest.mark.parametrize(("draws", "rule"), [("topk", TargetSample()), ("without_replacement", Eagle1())])
def test_an_eagle_head_in_the_engine_keeps_the_targets_law(draws, rule):
    """With EAGLE's own stochastic mode; what the head predicts at a node depends on how the tree came there."""
    target, head = eagle_pair()
    sampling, rng = Sampling(0.8), torch.Generator().manual_seed(13)
    drafter = StaticTree(draft=head, shape=shapes.branching([2, 1]), draws=draws)
    texts = torch.tensor([(0, a, b) for a, b in product(range(VOCAB), repeat=2)])
    with torch.no_grad():
        p = sampling.probs(target.model(texts).logits.flatten(0, 1)).view(-1, 3, VOCAB).double()
    rows = dict(zip(product(range(VOCAB), repeat=2), p, strict=True))
    law = {
        (a, b, c): float(rows[a, b][0, a] * rows[a, b][1, b] * rows[a, b][2, c])
        for a, b, c in product(range(VOCAB), repeat=3)
    }
    counts = dict.fromkeys(law, 0)
    for _ in range(SAMPLES):
        counts[tuple(generate(target, drafter, rule, [0], max_new_tokens=3, sampling=sampling, rng=rng).tokens)] += 1
    assert p_value(counts, law) > 1e-3


def test_the_test_can_tell_a_wrong_law():
    """Reusing one noise table in every step keeps each token's law and breaks the joint one; this must be seen."""
    law, counts = exact_law(Sampling(1.0)), dict.fromkeys(exact_law(Sampling(1.0)), 0)
    for sample in range(SAMPLES):
        tokens, state = [0], torch.Generator().manual_seed(sample)
        noise = torch.empty(VOCAB).exponential_(generator=state)
        for _ in range(3):
            tokens.append(int((noise / TARGET.table[tokens[-1]].softmax(-1)).argmin()))
        counts[tuple(tokens[1:])] += 1
    assert p_value(counts, law) < 1e-6
