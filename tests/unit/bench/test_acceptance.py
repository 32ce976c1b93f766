"""Acceptance vectors: against counting, closed forms and independent computations."""

import math
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
import torch
from checkpoints import word_tokenizer
from doubles import BigramLM, random_llama

from specdec_core import generate
from specdec_core.drafters import Autoregressive
from specdec_core.errors import NonFiniteLogitsError, PairError, PromptError
from specdec_core.models import Pair
from specdec_core.sampling import Sampling, draw_children
from specdec_core.verifiers import (
    Chain,
    Eagle1,
    Greedy,
    KSeq,
    MultiCandidate,
    SpecInfer,
    TargetSample,
    WithoutReplacement,
)
from specdec_core.verifiers.k_seq import solve_rho
from specdec_trees.calibrate import estimators
from specdec_trees.calibrate.acceptance import AcceptanceRequest, AcceptanceVector, measure, power_law, rows
from specdec_trees.calibrate.estimators import Estimator, expected
from specdec_trees.calibrate.teacher_forced import logits_along
from specdec_trees.prompts.embedded import prompts as bundled
from specdec_trees.results.kept_rows import AcceptanceRow
from specdec_trees.results.store import Store, load

RULES = {
    "chain": Chain(),
    "spec_infer": SpecInfer(),
    "k_seq": KSeq(),
    "multi_candidate_iid": MultiCandidate(replacement=True),
    "multi_candidate": MultiCandidate(),
    "eagle1": Eagle1(),
    "without_replacement": WithoutReplacement(),
    "target_sample": TargetSample(),
}
CELLS = [(name, draws) for name, rule in RULES.items() for draws in sorted(rule.lossless_for)]
TOKENIZER = word_tokenizer([f"w{number}" for number in range(61)])
PROMPTS = [[3, 1, 4, 1], [5], [9, 2, 6], [5, 3, 5, 8, 9, 7], [2, 7, 1], [8, 2, 8, 1]]


def request(verifier="without_replacement", draws="without_replacement", **changes):
    asked = {"temperature": 1.0, "top_p": 1.0, "draft_temperature": 1.0, "width": 4, "new_tokens": 16}
    return AcceptanceRequest(verifier=verifier, draws=draws, **(asked | changes))


def frame_of(made):
    return pd.DataFrame([asdict(row) for row in made])


def measured(pair, asked, prompts=PROMPTS, **options):
    return measure(pair, prompts, RULES[asked.verifier], asked, progress=False, **options)


@pytest.fixture(scope="module")
def pair():
    return Pair(random_llama(0), random_llama(1, layers=1), TOKENIZER)


@pytest.fixture(scope="module")
def memoryless():
    """Distributions that are the same everywhere, so that it does not matter where a step starts."""
    logits = torch.randn(2, 6, generator=torch.Generator().manual_seed(5)) * 1.5
    return Pair(*(BigramLM(row.expand(6, 6).contiguous()) for row in logits), TOKENIZER)


def p_and_q(pair, prompt, new, temperature, draft_temperature=1.0):
    """P and q at the new tokens of the first prompt's text, by a single forward of each model."""
    rng = torch.Generator().manual_seed(int(np.random.SeedSequence((0, 0)).generate_state(1, np.uint64)[0] >> 1))
    sampling = Sampling(temperature)
    text = generate(
        pair.target, Autoregressive(), TargetSample(), prompt, max_new_tokens=new, sampling=sampling, rng=rng
    ).tokens
    ids = torch.tensor([prompt + text[:-1]])
    with torch.inference_mode():
        rows_of = [model.model(ids).logits[0, len(prompt) - 1 :] for model in (pair.target, pair.draft)]
    return sampling.probs(rows_of[0]), Sampling(draft_temperature).probs(rows_of[1])


@pytest.mark.parametrize("estimator", ["analytic", "counts"])
@pytest.mark.parametrize(("verifier", "draws"), CELLS, ids=["-".join(cell) for cell in CELLS])
@pytest.mark.parametrize("temperature", [0.0, 0.6])
def test_every_lossless_pair_of_rule_and_draws(pair, verifier, draws, temperature, estimator):
    width = 1 if verifier == "chain" else 4
    found = measured(
        pair, request(verifier, draws, width=width, new_tokens=6, temperature=temperature, estimator=estimator)
    )
    assert sum(found.p) + found.reject == pytest.approx(1, abs=1e-12)
    assert found.rejection[-1] == pytest.approx(found.reject, abs=1e-12)
    assert found.num_prompts == 6
    if estimator == "analytic":
        assert found.num_positions == 6 * 6
    if verifier != "k_seq" or temperature == 0:
        assert found.rejection == pytest.approx((1 - np.cumsum(found.p)).tolist(), abs=1e-12)
    for value, low, high in zip(found.p, found.low, found.high, strict=True):
        assert low - 1e-12 <= value <= high + 1e-12


@pytest.mark.long
@pytest.mark.parametrize(("verifier", "draws"), [cell for cell in CELLS if cell[0] != "chain"])
def test_counts_and_analytic_agree(memoryless, verifier, draws):
    both = {}
    for estimator in ("analytic", "counts"):
        asked = request(verifier, draws, estimator=estimator, new_tokens=60, draft_temperature=0.8, top_p=0.95)
        sums = [Estimator(memoryless, RULES[verifier], asked)(index, [index % 6]) for index in range(40)]
        each = np.stack([found.accepted / found.num_positions for found in sums])
        both[estimator] = each.mean(0), each.var(0, ddof=1) / len(each)
    (analytic, noise), (counts, more_noise) = both["analytic"], both["counts"]
    assert (np.abs(analytic - counts) <= 4 * np.sqrt(noise + more_noise) + 1e-9).all()
    assert noise.sum() < more_noise.sum()


def test_counts_and_analytic_agree_on_models(pair):
    prompts = [[token, token + 7] for token in range(24)]
    both = []
    for estimator in ("analytic", "counts"):
        asked = request(estimator=estimator, new_tokens=32)
        sums = [Estimator(pair, WithoutReplacement(), asked)(index, prompt) for index, prompt in enumerate(prompts)]
        each = np.stack([found.accepted / found.num_positions for found in sums])
        both.append((each.mean(0), each.var(0, ddof=1) / len(each)))
    assert (np.abs(both[0][0] - both[1][0]) <= 4 * np.sqrt(both[0][1] + both[1][1])).all()


@pytest.mark.parametrize("estimator", ["analytic", "counts"])
@pytest.mark.parametrize("verifier", ["without_replacement", "spec_infer", "k_seq", "eagle1"])
def test_equal_models_accept_the_first_child(verifier, estimator):
    draws = next(iter(RULES[verifier].lossless_for))
    pair = Pair(random_llama(0), random_llama(0), TOKENIZER)
    found = measured(pair, request(verifier, draws, estimator=estimator, new_tokens=8))
    if verifier == "k_seq":  # rho is above 1 for several children, also where p = q
        found = measured(pair, request(verifier, draws, estimator=estimator, new_tokens=8, width=1))
    assert found.p[0] == pytest.approx(1, abs=1e-4)  # draft and target read the text in different forwards
    assert found.reject == pytest.approx(0, abs=1e-4)


def test_equal_distributions_accept_the_first_child_exactly():
    p = torch.rand(5, 7).softmax(-1)
    children = draw_children(p, 3, "without_replacement", torch.Generator().manual_seed(0))[1]
    accepted, rejected = expected(WithoutReplacement(), p, p, children[:, None])
    assert accepted.tolist() == [5, 0, 0]
    assert rejected.tolist() == [0, 0, 0]


@pytest.mark.parametrize("verifier", [Greedy(), TargetSample(), WithoutReplacement()])
@pytest.mark.parametrize("estimator", ["analytic", "counts"])
def test_at_temperature_0_it_is_how_often_each_rank_is_the_arg_max(pair, verifier, estimator):
    asked = request("greedy", "topk", temperature=0.0, width=61, estimator=estimator)
    found = measure(pair, PROMPTS, verifier, asked, progress=False)
    frequency = np.zeros(61)
    for prompt in PROMPTS:
        p, q = p_and_q(pair, prompt, 16, 0.0)
        ranks = (q > q[p > 0][:, None]).sum(-1).tolist()  # how many tokens the draft likes better
        at = 1 if estimator == "counts" else 0  # a step starts behind the first token
        while at < len(ranks):
            frequency[ranks[at]] += 1
            at += 2 if estimator == "counts" else 1  # all tokens are children: each is accepted, and one more follows
    assert found.num_positions == frequency.sum()
    assert found.p == pytest.approx((frequency / frequency.sum()).tolist(), abs=1e-12)


def test_target_sample_with_the_best_children_takes_their_share_of_p(pair):
    found = measured(pair, request("target_sample", "topk", temperature=0.6, width=3), PROMPTS[:1])
    p, q = p_and_q(pair, PROMPTS[0], 16, 0.6)
    best = q.topk(3).indices
    assert found.rejection[0] == pytest.approx(float(1 - p.gather(-1, q.argmax(-1, keepdim=True)).mean()), abs=1e-6)
    assert found.p == pytest.approx(p.gather(-1, best).mean(0).tolist(), abs=1e-6)


def test_spec_infer_is_its_closed_form():
    """R_i does not depend on the drawn tokens: p_k = prod_{i<k} s_i (1 - s_k) with s_i = sum max(R_i - q, 0)."""
    rng = torch.Generator().manual_seed(1)
    p, q = (torch.randn(1, 5, generator=rng).mul(1.5).softmax(-1) for _ in range(2))
    children = torch.stack([draw_children(q, 3, "iid", rng)[1] for _ in range(20_000)], 1)
    accepted, _ = expected(SpecInfer(), p, q, children)
    left, reach = p[0].double(), 1.0
    for chance in accepted.tolist():
        rest = (left - q[0].double()).clamp(min=0)
        assert chance == pytest.approx(reach * float(1 - rest.sum()), abs=0.01)
        left, reach = rest / rest.sum(), reach * float(rest.sum())


def test_k_seq_has_its_own_rho_for_every_number_of_children(pair):
    found = measured(pair, request("k_seq", "iid", width=5, temperature=0.6), PROMPTS[:1])
    p, q = (probs.double() for probs in p_and_q(pair, PROMPTS[0], 16, 0.6))
    for k, rate in enumerate(found.rejection, 1):
        beta = torch.minimum(q, p / solve_rho(p, q, k)[:, None]).sum(-1)
        assert rate == pytest.approx(float(((1 - beta) ** k).mean()), abs=1e-6)
    assert found.p == pytest.approx([float((beta * (1 - beta) ** i).mean()) for i in range(5)], abs=1e-6)
    counted = measured(pair, request("k_seq", "iid", width=5, estimator="counts"))
    assert [math.isnan(rate) for rate in counted.rejection] == [True] * 4 + [False]
    assert counted.exponent is None


def test_the_exact_chance_of_k_seq_is_what_drawn_children_give():
    rng = torch.Generator().manual_seed(2)
    p, q = (torch.randn(1, 6, generator=rng).mul(1.5).softmax(-1) for _ in range(2))
    children = draw_children(q.expand(50_000, -1), 3, "iid", rng)[1]
    accept = KSeq().rounds(p, q, children[:, None].unbind(0)[0]).accept
    assert accept.shape == (1, 3)
    accept = KSeq().rounds(p.expand(50_000, -1), q.expand(50_000, -1), children).accept
    assert accept.mean(0).tolist() == pytest.approx([KSeq().chance(p, q, 3).item()] * 3, abs=0.01)


@pytest.mark.parametrize("verifier", ["without_replacement", "k_seq", "target_sample"])
def test_chunks_change_nothing(pair, verifier, monkeypatch):
    asked = request(verifier, sorted(RULES[verifier].lossless_for)[0], temperature=0.6)
    whole = measured(pair, asked)
    monkeypatch.setattr(estimators, "ELEMENTS", 3 * 61 * asked.repeats)
    parts = measured(pair, asked)
    assert parts.p == pytest.approx(whole.p, abs=1e-13)
    assert parts.rejection == pytest.approx(whole.rejection, abs=1e-13)


def test_the_same_seed_gives_the_same_numbers_and_a_prompt_does_not_depend_on_others(pair):
    asked = request(temperature=0.6)
    assert measured(pair, asked) == measured(pair, asked)
    assert measured(pair, asked).p != measured(pair, replace(asked, seed=1)).p
    estimate = Estimator(pair, RULES["without_replacement"], asked)
    alone = estimate(2, PROMPTS[2])
    estimate(0, PROMPTS[0])
    assert np.array_equal(estimate(2, PROMPTS[2]).accepted, alone.accepted)


def test_positions_end_with_the_one_that_emits_eos(pair):
    prompt = PROMPTS[0]
    text = generate(pair.target, Autoregressive(), Greedy(), prompt, max_new_tokens=16).tokens
    end = text[5]
    asked = request("target_sample", "topk", temperature=0.0)
    found = measured(pair, asked, [prompt], eos_token_ids=[end])
    assert found.num_positions == text.index(end) + 1


def test_distributions_along_a_text_are_those_of_a_plain_forward(pair):
    prompt, text = [3, 1, 4], [1, 5, 9, 2]
    with torch.inference_mode():
        plain = pair.target.model(torch.tensor([prompt + text])).logits[0]
    assert torch.allclose(logits_along(pair.target, prompt, text), plain[2:6], atol=1e-5)
    assert torch.allclose(logits_along(pair.target, prompt[:1], text), logits_along(pair.target, [3], text))


def test_isotonic_is_what_a_tree_search_is_given(pair):
    found = measured(pair, request("target_sample", "topk", width=16))
    assert any(later > earlier for earlier, later in zip(found.p, found.p[1:], strict=False)), "nothing to smooth"
    assert all(later <= earlier for earlier, later in zip(found.vector, found.vector[1:], strict=False))
    assert sum(found.vector) == pytest.approx(sum(found.p), abs=1e-12)
    assert replace(found, request=replace(found.request, smooth="none")).vector == found.p


def test_a_vector_is_read_from_its_rows(pair):
    facts = {"pair": "toy", "dataset": "numbers", "device_name": "cpu"}
    for asked, prompts in ((request(), PROMPTS), (request("k_seq", "iid", estimator="counts"), PROMPTS[:1])):
        found = measured(pair, asked, prompts, facts=facts)
        table = frame_of(rows(found, "r1"))
        again = AcceptanceVector.from_rows(asked, table.sample(frac=1, random_state=0))
        assert frame_of(rows(again, "r1")).equals(table)
        assert (again.request, again.facts) == (asked, facts)


def test_what_is_no_vector(pair):
    found = frame_of(rows(measured(pair, request()), "r1"))
    for change in ({"p": [0.9, 0.9, 0.1, 0.1]}, {"num_positions": 0}, {"k": [1, 2, 3, 3]}, {"run_id": [*"abcd"]}):
        with pytest.raises(ValueError):  # noqa: PT011
            AcceptanceVector.from_rows(request(), found.assign(**change))


def test_rows_go_through_the_store(pair, tmp_path):
    found = measured(pair, request(), facts={"pair": "toy", "dataset": "numbers", "device_name": "cpu"})
    made = rows(found, "r1")
    assert all(isinstance(row, AcceptanceRow) for row in made)
    Store(tmp_path, "e").write("acceptance", "r1", made)
    frame = load(tmp_path, "e", pair="toy", dataset="numbers").acceptance
    assert frame["k"].tolist() == [1, 2, 3, 4]
    assert frame["p"].tolist() == found.p
    assert frame["rejection_high"].tolist() == found.rejection_high
    assert load(tmp_path, "e", dataset="words").acceptance.empty
    assert load(tmp_path, "e", pair="other").acceptance.empty


def test_the_exponent_of_a_power_law():
    assert power_law([0.7 * k**-1.3 for k in range(1, 33)]) == pytest.approx(1.3)
    assert power_law([0.5, 0.25, 0.0]) == pytest.approx(1)
    assert power_law([0.5, 0.0]) is None
    assert power_law([math.nan, 0.5]) is None


def test_no_more_children_than_tokens(memoryless):
    found = measured(memoryless, request(width=32), [[0], [1]])
    assert len(found.p) == 6
    assert found.reject == pytest.approx(0, abs=1e-12), "all tokens are children: Sequoia's rule covers"


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"verifier": "chain", "draws": "iid"}, "one child"),
        ({"verifier": "spec_infer", "draws": "topk"}, "does not keep"),
        ({"verifier": "k_seq", "draws": "without_replacement"}, "does not keep"),
    ],
)
@pytest.mark.parametrize("estimator", ["analytic", "counts"])
def test_refusals_of_rules(pair, changes, refusal, estimator):
    with pytest.raises(PairError, match=refusal):
        measured(pair, request(**changes, estimator=estimator))


def test_other_refusals(pair):
    with pytest.raises(PairError, match="no draft"):
        measured(Pair(pair.target, None, TOKENIZER), request())
    with pytest.raises(PairError, match="vocabular"):
        measured(Pair(pair.target, random_llama(1, vocab=60), TOKENIZER), request())
    with pytest.raises(PairError, match="Greedy"):
        measure(pair, PROMPTS, Greedy(), request("greedy", "topk"), progress=False)
    with pytest.raises(PromptError, match="fit"):
        measured(Pair(pair.target, random_llama(1, positions=16), TOKENIZER), request())
    fits = measured(Pair(pair.target, random_llama(1, positions=18), TOKENIZER), request())
    assert fits.num_prompts == 1, "prompts that do not fit are passed over"
    with pytest.raises(ValueError, match="no position"):
        measured(pair, request(estimator="counts", new_tokens=1))
    with pytest.raises(ValueError, match="no position"):
        measured(pair, request(), [])
    broken = random_llama(1, layers=1)
    broken.model.lm_head.weight.data.fill_(torch.nan)
    with pytest.raises(NonFiniteLogitsError):
        measured(Pair(pair.target, broken, TOKENIZER), request())
    for wrong in ({"width": 0}, {"repeats": 0}, {"estimator": "count"}, {"smooth": "no"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            request(**wrong)


def test_the_embedded_pair(tiny):
    texts = [tiny.tokenizer(conversation.turns[0])["input_ids"] for conversation in bundled(3)]
    found = measured(tiny, request(width=8, temperature=0.6, new_tokens=32), texts)
    assert 0.3 < found.p[0] < 1
    assert found.exponent is not None
    assert found.exponent > 0
    assert found.rejection == sorted(found.rejection, reverse=True)


def test_along_a_given_text_it_is_what_sampling_that_text_gives():
    """At temperature 0 the target's own answer is its text: both estimators follow the same tokens."""
    pair = Pair(random_llama(0), random_llama(1, layers=1), TOKENIZER)
    asked = request("target_sample", "topk", temperature=0.0, new_tokens=12)
    prompts = [prompt[:2] for prompt in PROMPTS if len(prompt) > 1]
    own = [
        generate(pair.target, Autoregressive(), TargetSample(), prompt, max_new_tokens=12).tokens for prompt in prompts
    ]
    texts = [prompt + answer for prompt, answer in zip(prompts, own, strict=True)]
    sampled = measured(pair, asked, prompts)
    along = measured(pair, replace(asked, estimator="text"), [*texts, [3, 1]], num_prompt=2)
    assert (along.p, along.num_positions, along.num_prompts) == (sampled.p, sampled.num_positions, len(prompts))
    other = [text[:2] + text[:1:-1] for text in texts]
    assert measured(pair, replace(asked, estimator="text"), other, num_prompt=2).p != sampled.p
