"""The distribution of three tokens equals the target's, in the engine: chi-square against exact enumeration.

What every drafter of `conf/drafter` says of its draws is tested in `test_declared_draws.py`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product

import pytest
import torch
from doubles import BigramLM
from scipy import stats
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel, Qwen3Config

from specdec_core import CausalLM, Sampling, generate, shapes
from specdec_core.drafters import (
    Autoregressive,
    Drafter,
    DySpec,
    DySpecHeap,
    DySpecThreshold,
    Eagle2,
    OptTree,
    Sequoia,
    StaticTree,
)
from specdec_core.models import DFlash, EagleHead, Head, Medusa
from specdec_core.models.dflash import DFlashModel
from specdec_core.models.draft_vocabulary import ReducedOutput, of_vocabulary
from specdec_core.models.eagle import Eagle3Model, EagleModel, Norms
from specdec_core.models.kinds import KINDS
from specdec_core.models.medusa import medusa_heads
from specdec_core.models.mtp import MtpModel
from specdec_core.shapes import TreeShape
from specdec_core.verifiers import (
    Block,
    Chain,
    Eagle1,
    GreedyMultiPath,
    GreedyOne,
    KSeq,
    MultiCandidate,
    SpecInfer,
    TargetSample,
    Traversal,
    Verifier,
    WithoutReplacement,
)

Probs = Mapping[tuple[int, ...], float]
VOCAB = 3
TARGET = BigramLM(torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(8)))  # top-p leaves no trap
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
DYNAMIC = {make.__name__: make(draft=DRAFT, n=5) for make in (DySpec, DySpecHeap)}
DYNAMIC["DySpecThreshold"] = DySpecThreshold(draft=DRAFT, n=5, threshold=0.1)


RULES = {"iid": [SpecInfer(), KSeq(), MultiCandidate(replacement=True), Traversal(draws="iid")]}
RULES["without_replacement"] = [WithoutReplacement(), MultiCandidate(), Eagle1(), Traversal()]
RULES["greedy_one"] = [GreedyOne(), Traversal(draws="greedy_one")]
SHAPES = {"branching": shapes.branching([2, 2]), "chain": shapes.chain(3), "k_sequences": shapes.k_sequences(3, 2)}
SHAPES["uneven"] = TreeShape.from_paths([(0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0)])
CELLS = [(draws, rule, "branching") for draws, rules in RULES.items() for rule in rules]
CELLS += [(draws, rules[0], "k_sequences") for draws, rules in RULES.items()]
CELLS += [(draws, rule, "chain") for draws in RULES for rule in (Chain(), Block()) if draws in rule.lossless_for]
CELLS += [("iid", GreedyMultiPath(), "k_sequences")]
CELLS += [("greedy_one", rule, "uneven") for rule in RULES["greedy_one"]]


def probs_after(token: int, sampling: Sampling) -> Probs:
    """Probability of every three tokens after a token, multiplied out of the table in float64."""
    p = sampling.probs(TARGET.table).double()
    p /= p.sum(-1, keepdim=True)
    return {(a, b, c): float(p[token, a] * p[a, b] * p[b, c]) for a, b, c in product(range(VOCAB), repeat=3)}


def chi_square(counts: Counter, probs: Probs) -> tuple[float, int]:
    """And its degrees of freedom; the outcomes that are expected fewer than five times are taken together."""
    total = counts.total()
    common = [outcome for outcome in probs if total * probs[outcome] >= 5]
    observed, expected = [counts[o] for o in common], [total * probs[o] for o in common]
    rare = total - sum(expected)
    if rare > 1:
        observed.append(total - sum(observed))
        expected.append(rare)
    scale = total / sum(expected)
    return sum((o - scale * e) ** 2 / (scale * e) for o, e in zip(observed, expected, strict=True)), len(observed) - 1


def p_value(texts: Sequence[Sequence[int]], probs: Sequence[Probs]) -> float:
    """Of the three tokens after every third one, given the one before; the table looks no further back."""
    triples: list[Counter] = [Counter() for _ in probs]
    for text in texts:
        for start in range(0, len(text) - 3, 3):
            triples[text[start]][tuple(text[start + 1 : start + 4])] += 1
    assert all(probs[token][triple] > 0 for token, counts in enumerate(triples) for triple in counts)
    found, degrees = zip(*(chi_square(*both) for both in zip(triples, probs, strict=True) if both[0]), strict=True)
    return float(stats.chi2.sf(sum(found), sum(degrees)))


def sampled(drafter: Drafter, rule: Verifier, sampling: Sampling, *, seed: int, count: int) -> float:
    """The p-value of one text of `count` times three tokens."""
    rng = torch.Generator().manual_seed(seed)
    text = generate(TARGET, drafter, rule, [0], max_new_tokens=3 * count, sampling=sampling, rng=rng).tokens
    return p_value([(0, *text)], [probs_after(token, sampling) for token in range(VOCAB)])


@pytest.fixture(scope="module")
def count(long_form: bool) -> int:
    """How often three tokens are drawn."""
    return 1000 if long_form else 500


@pytest.mark.few(9)
@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(0.7, top_p=0.8)], ids=["t1", "t07_top_p08"])
def test_three_tokens_have_the_targets_distribution(name, sampling, count):
    assert sampled(DRAFTERS[name], TargetSample(), sampling, seed=11, count=count) > 1e-3


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("draws", "rule", "shape"), CELLS, ids=[f"{draws}-{type(rule).__name__}-{shape}" for draws, rule, shape in CELLS]
)
def test_rules_that_compare_p_with_q_keep_the_targets_distribution(draws, rule, shape, count):
    """In the engine; the rules by themselves are summed exactly elsewhere, at more settings."""
    drafter = StaticTree(draft=DRAFT, shape=SHAPES[shape], draws=draws, draft_temperature=0.8, draft_top_p=0.9)
    assert sampled(drafter, rule, Sampling(0.7, top_p=0.8), seed=12, count=count) > 1e-3


@pytest.mark.parametrize("rule", [MultiCandidate(), Traversal()], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("name", DYNAMIC)
def test_trees_that_depend_on_their_draws_keep_the_targets_distribution(name, rule, count):
    """In the engine, with fresh races in every step; one step is summed exactly in `test_dyspec_distribution.py`."""
    assert sampled(DYNAMIC[name], rule, Sampling(0.7), seed=14, count=count) > 1e-3


def test_the_first_token_has_the_targets_distribution(count):
    """It is drawn from the prompt's forward, without a tree."""
    sampling, rng, counts = Sampling(0.7), torch.Generator().manual_seed(15), [0] * VOCAB
    options = {"max_new_tokens": 1, "sampling": sampling, "rng": rng}
    for _ in range(count):
        (token,) = generate(TARGET, DRAFTERS["binary"], TargetSample(), [0], **options).tokens
        counts[token] += 1
    p = sampling.probs(TARGET.table)[0].double()
    assert stats.chisquare(counts, count * p / p.sum()).pvalue > 1e-3


ROWS = {"narrower": 2, "wider": 5}
"""Of models that draft for a target of another number."""


def pair_of(kind: str) -> tuple[CausalLM, Head | CausalLM]:
    """A random target of three tokens and a random draft; EAGLE-3's predict two of them, speculators' with all norms.

    Models of their own have fewer tokens than the target, or more.
    """
    torch.manual_seed(5)
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "pad_token_id": None}
    config = LlamaConfig(vocab_size=VOCAB, num_hidden_layers=1, initializer_range=0.5, **shape)
    target = LlamaForCausalLM(config)
    if kind in ROWS:
        own = LlamaConfig(vocab_size=ROWS[kind], num_hidden_layers=1, initializer_range=0.5, **shape)
        return CausalLM(target), of_vocabulary(LlamaForCausalLM(own), VOCAB)
    if kind == "medusa":
        return CausalLM(target), Medusa(medusa_heads(2, 1, 8, VOCAB), config)
    if kind == "dflash":
        said = {"block_size": 3, "num_target_layers": 1, "dflash_config": {"mask_token_id": 2, "target_layer_ids": [0]}}
        head = DFlashModel(Qwen3Config(num_hidden_layers=1, num_key_value_heads=1, head_dim=4, **shape, **said), 1)
        return CausalLM(target), DFlash(head, target.model.embed_tokens, target.lm_head)
    if kind == "eagle":
        return CausalLM(target), EagleHead(EagleModel(config, bias=True), target.lm_head)
    if kind == "mtp":
        return CausalLM(target), EagleHead(MtpModel(LlamaModel(config)), target.lm_head)
    norms = {"eagle3": Norms(), "speculators": Norms(before_residual=True, before_fc=True, each=True, output=True)}
    model = Eagle3Model(config, target_hidden=8, joined=2, vocab=2, norms=norms[kind])
    output = model.output(ReducedOutput(model.lm_head, torch.tensor([0, 1]), VOCAB))
    return CausalLM(target), EagleHead(model, output, layers=(0, 1))


def method(name: str, draft: object) -> tuple[Drafter, Verifier]:
    """Every way of growing a tree, with a rule for its draws."""
    wor = {"draft": draft, "draws": "without_replacement"}
    return {
        "chain": lambda: (StaticTree(draft=draft, shape=shapes.chain(3), draws="iid"), Chain()),
        "topk": lambda: (StaticTree(draft=draft, shape=shapes.branching([2, 1])), TargetSample()),
        "eagle1": lambda: (StaticTree(shape=shapes.branching([2, 1]), **wor), Eagle1()),
        "sequoia": lambda: (Sequoia(n=4, acceptance=[0.6, 0.3], **wor), WithoutReplacement()),
        "opt_tree": lambda: (OptTree(draft=draft, n=4, delta=0.2), TargetSample()),
        "eagle2": lambda: (Eagle2(draft=draft, total=5, depth=1, k=2), TargetSample()),
        "dyspec": lambda: (DySpec(draft=draft, n=5), MultiCandidate()),
    }[name]()


METHODS = ("chain", "topk", "eagle1", "sequoia", "opt_tree", "eagle2", "dyspec")
FEW = dict.fromkeys(("speculators", "mtp"), ("dyspec",))
"""Under which methods those heads are tested that are run just as EAGLE's are."""
HEADS = [kind for kind, one in KINDS.items() if one.needs_hidden]


@pytest.mark.few(4)
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in HEADS for name in FEW.get(kind, METHODS)])
def test_heads_in_the_engine_keep_the_targets_distribution(kind, name, count):
    """What a head predicts at a node depends on how the tree came there, and EAGLE-3's never says one of the tokens."""
    assert p_value_of_pair(kind, name, count) > 1e-3


@pytest.mark.few(4)
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", ROWS)
def test_drafts_of_other_sizes_keep_the_targets_distribution(kind, name, count):
    """The narrower one never says one of the tokens, and reads it as another; the wider one's own are left out."""
    assert p_value_of_pair(kind, name, count) > 1e-3


def p_value_of_pair(kind: str, name: str, count: int) -> float:
    """Of texts of three tokens, each of which was begun anew."""
    target, draft = pair_of(kind)
    sampling, rng = Sampling(0.8), torch.Generator().manual_seed(13)
    drafter, rule = method(name, draft)
    texts = torch.tensor([(0, a, b) for a, b in product(range(VOCAB), repeat=2)])
    with torch.no_grad():
        p = sampling.probs(target.model(texts).logits.flatten(0, 1)).view(-1, 3, VOCAB).double()
    rows = dict(zip(product(range(VOCAB), repeat=2), p, strict=True))
    probs = {
        (a, b, c): float(rows[a, b][0, a] * rows[a, b][1, b] * rows[a, b][2, c])
        for a, b, c in product(range(VOCAB), repeat=3)
    }
    texts = [
        (0, *generate(target, drafter, rule, [0], max_new_tokens=3, sampling=sampling, rng=rng).tokens)
        for _ in range(count)
    ]
    return p_value(texts, [probs])


def test_the_test_can_tell_a_wrong_distribution(count):
    """Reusing a noise table three times keeps each token's distribution and breaks the joint one; this must be seen."""
    state, text = torch.Generator().manual_seed(0), [0]
    for _ in range(count):
        noise = torch.empty(VOCAB).exponential_(generator=state)
        for _ in range(3):
            text.append(int((noise / TARGET.table[text[-1]].softmax(-1)).argmin()))
    assert p_value([text], [probs_after(token, Sampling(1.0)) for token in range(VOCAB)]) < 1e-6
