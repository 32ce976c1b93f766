"""Replays by rules that compare p with q have the law of live decoding, given the answer."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from math import prod

import numpy as np
import pytest
import torch
from discovered import NAMES, built, parameters, rule_for
from distributions import sources
from doubles import BigramLM, perturbed, random_llama
from scipy import stats

from specdec_core import Generation, Sampling, generate
from specdec_core.drafters import StaticTree
from specdec_core.errors import PairError
from specdec_core.rank_replay import by_distributions, goes_by_distributions, replay_by_ranks
from specdec_core.renewal import Expected, expected, renewed
from specdec_core.replay import Distributions, Recording, record, with_distributions
from specdec_core.shapes import TreeShape, chain
from specdec_core.verifiers import Chain, KSeq, LongestSubtree, MultiCandidate, SpecInfer, WithoutReplacement

P = ((0.2, 0.7, 0.1), (0.6, 0.1, 0.3), (0.1, 0.2, 0.7))
Q = ((0.1, 0.7, 0.2), (0.7, 0.2, 0.1), (0.5, 0.5, 0.0))
"""Probabilities of a target and of a draft, by the token before."""
UNEVEN = TreeShape.from_paths([(0,), (1,), (0, 0), (0, 1), (1, 0)])
"""Below the second child there is less, so that the rank decides how far a path may go."""
NEW = 4
VOCAB = 23
TARGET = random_llama(0, vocab=VOCAB)
CASES = [
    (SpecInfer(), "iid", UNEVEN),
    (KSeq(), "iid", UNEVEN),
    (MultiCandidate(), "without_replacement", UNEVEN),
    (WithoutReplacement(), "without_replacement", UNEVEN),
    (WithoutReplacement(), "without_replacement", TreeShape.from_paths([(0,), (1,), (2,), (2, 0)])),
    (Chain(), "iid", TreeShape.from_paths([(0,), (0, 0)])),
]
Steps = tuple[tuple[int, ...], tuple[int, ...]]
"""Acceptance lengths, and the ranks that the first step accepted."""


class Law:
    """What a rule does on trees that a draft draws, by enumeration."""

    def __init__(self, rule, draws: str, shape: TreeShape, q=Q) -> None:
        self.rule, self.draws, self.shape, self.q = rule, draws, shape, q

    @cache  # noqa: B019 - a test's own object
    def shares(self, before: int, children: int) -> list[list[float]]:
        """Of each token, how likely it is each child's, and in the end recovered."""
        judged = sources(self.rule, P[before], self.q[before], children, self.draws)
        return (judged / judged.sum(0)).T.tolist()

    def paths(self, answer: tuple[int, ...], at: int) -> Iterator[tuple[tuple[int, ...], float]]:
        """The ranks accepted behind a place of the answer, each with its probability."""
        open_paths = [((), 0, 1.0)]
        while open_paths:
            ranks, node, chance = open_paths.pop()
            if not (children := self.shape.num_children[node]):
                yield ranks, chance
                continue
            place = at + len(ranks)
            share = self.shares(answer[place - 1], children)[answer[place]]
            yield ranks, chance * share[children]
            first = self.shape.parents.index(node)
            open_paths += [((*ranks, rank), first + rank, chance * share[rank]) for rank in range(children)]

    def of_answer(self, answer: tuple[int, ...], new: int = NEW) -> Counter[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Of each way to decode an answer, as acceptance lengths and the ranks of the first step, how likely it is."""
        law: Counter[Steps] = Counter()

        def go_on(lengths: tuple[int, ...], first: tuple[int, ...], at: int, chance: float) -> None:
            if at >= new:
                law[lengths, first] += chance
                return
            for ranks, odds in self.paths(answer, at):
                go_on((*lengths, len(ranks) + 1), first if lengths else ranks, at + len(ranks) + 1, chance * odds)

        go_on((), (), 1, 1.0)
        return law

    def of_all(self, new: int = NEW) -> dict[Steps, float]:
        """Of answers that the target draws behind token 0; lengths are as far as the output goes."""
        law: Counter[Steps] = Counter()
        for answer in product(range(3), repeat=new + self.shape.depth):
            drawn = prod(P[one][two] for one, two in pairwise((0, *answer)))
            for (lengths, first), chance in self.of_answer(answer, new).items():
                law[(*lengths[:-1], new - 1 - sum(lengths[:-1])), first] += drawn * chance
        return {steps: chance for steps, chance in law.items() if chance > 1e-12}


def told(generation: Generation) -> Steps:
    return tuple(step.kept for step in generation.steps), tuple(generation.steps[0].accepted_ranks)


def apart(counts: Counter[Steps], law: dict[Steps, float]) -> float:
    """How improbable counts are: Pearson's test, what is rare taken together."""
    total = counts.total()
    assert set(counts) <= set(law)
    common = [steps for steps, chance in law.items() if chance * total >= 5]
    found = [counts[steps] for steps in common]
    known = [law[steps] * total for steps in common]
    if (rest := total - sum(known)) > 1e-6:
        found.append(total - sum(found))
        known.append(rest)
    return float(stats.chisquare(found, known).pvalue)


def drawn(shape: TreeShape, rng: torch.Generator) -> Recording:
    """An answer of the target's, behind token 0."""
    answer = [0]
    for _ in range(NEW + shape.depth):
        answer.append(int(torch.tensor(P[answer[-1]]).multinomial(1, generator=rng)))
    drawn_from = Distributions.stack([torch.tensor(P[token]) for token in answer[1:-1]], 3)
    return Recording((0,), tuple(answer[1:]), (), False, 3, None, None, drawn_from)


@pytest.mark.few(5)
@pytest.mark.parametrize("way", ["live", "replayed"])
@pytest.mark.parametrize(("rule", "draws", "shape"), CASES)
def test_steps_have_the_law_that_enumeration_gives(rule, draws: str, shape: TreeShape, way: str) -> None:
    rng, sampling = torch.Generator().manual_seed(7), Sampling(1.0)
    target, draft = (BigramLM(torch.tensor(table).log()) for table in (P, Q))
    drafter, counts = StaticTree(draft=draft, shape=shape, draws=draws), Counter[Steps]()
    assert goes_by_distributions(drafter, rule)
    for _ in range(400):
        if way == "live":
            made = generate(target, drafter, rule, [0], max_new_tokens=NEW, sampling=sampling, rng=rng)
        else:
            recording = drawn(shape, rng)
            source = by_distributions(recording, drafter, rule, rng)
            made = replay_by_ranks(recording, drafter, max_new_tokens=NEW, source=source)
        counts[told(made)] += 1
    assert apart(counts, Law(rule, draws, shape).of_all()) > 1e-3


@pytest.mark.parametrize(("rule", "draws", "shape"), CASES)
def test_so_many_answers_tell_other_laws_apart(rule, draws: str, shape: TreeShape) -> None:
    """Of a draft that is the target itself, of one without the last token, and of one that swaps its tokens."""
    law = Law(rule, draws, shape).of_all()
    for q in (P, ((0.5, 0.5, 0.0),) * 3, tuple(row[::-1] for row in Q)):
        wrong = Law(rule, draws, shape, q).of_all()
        assert sum(wrong.values()) == pytest.approx(1)
        likely = {steps: chance for steps, chance in law.items() if 400 * chance >= 5}
        found = [400 * wrong.get(steps, 0.0) for steps in likely]
        known = [400 * chance for chance in likely.values()]
        pearson = sum((one - other) ** 2 / other for one, other in zip(found, known, strict=True))
        assert pearson > 1.5 * stats.chi2.isf(1e-3, len(known))


@pytest.mark.parametrize("sampling", [Sampling(0.8, 0.9), Sampling(1.0)], ids=str)
def test_distributions_are_what_the_answer_was_drawn_from(sampling: Sampling) -> None:
    prompt, rng = [3, 1, 4, 1, 5], torch.Generator().manual_seed(2)
    given = {"max_new_tokens": 12, "beyond": 4, "sampling": sampling}
    recording = record(TARGET, prompt, **given, rng=rng, distributions=True)
    again = record(TARGET, prompt, **given, rng=rng.manual_seed(2))
    assert recording.answer == again.answer
    assert again.distributions is None
    with torch.inference_mode():
        logits = TARGET.model(torch.tensor([[*prompt, *recording.answer]])).logits[0]
    for place in range(1, len(recording.answer)):
        probs = recording.distributions.of(place)
        torch.testing.assert_close(probs, sampling.probs(logits[len(prompt) + place - 1]), rtol=1e-4, atol=1e-5)
        assert probs[recording.answer[place]] > 0


def test_fixed_shapes_of_draws_go_by_distributions() -> None:
    """Of a draft model, by the rule that their draws call for; a tree that follows its draws does not."""
    drafters = {name: built(parameters(name, decoding="t1", largest=6), perturbed(TARGET)) for name in NAMES}
    named = {name for name, drafter in drafters.items() if goes_by_distributions(drafter, rule_for(drafter))}
    assert named >= {"sequoia", "spec_infer_5x8", "mcsd", "branching_4_2_2_1_iid"}
    assert named.isdisjoint(
        {"dyspec", "dyspec_threshold", "ti_mcsd", "dyn_mcsd", "prompt_lookup", "suffix_decoding", "autoregressive"}
    )
    assert not goes_by_distributions(drafters["spec_infer_5x8"], WithoutReplacement()), "lossy for such draws"
    assert not goes_by_distributions(drafters["sequoia"], LongestSubtree())


def test_without_distributions_a_replay_is_refused() -> None:
    drafter = StaticTree(draft=perturbed(TARGET), shape=UNEVEN, draws="iid")
    recording = record(TARGET, [3, 1, 4], max_new_tokens=6, beyond=4, sampling=Sampling(1.0))
    with pytest.raises(PairError, match="no p"):
        by_distributions(recording, drafter, SpecInfer(), torch.Generator())
    with pytest.raises(PairError, match="child by child"):
        by_distributions(recording, drafter, LongestSubtree(), torch.Generator())


@pytest.mark.parametrize(("rule", "draws", "shape"), CASES)
def test_expected_steps_are_those_of_all_ways_to_decode_an_answer(rule, draws: str, shape: TreeShape) -> None:
    """By shares that are exact, and on average by shares of one history each, which know no bias."""
    law, rng = Law(rule, draws, shape), torch.Generator().manual_seed(11)
    drafter = StaticTree(draft=BigramLM(torch.tensor(Q).log()), shape=shape, draws=draws)
    for _ in range(3):
        recording = drawn(shape, rng)
        answer, ways = recording.answer, law.of_answer(recording.answer)
        known = [sum(chance * fact(lengths) for (lengths, _), chance in ways.items()) for fact in (len, sum)]
        most = max(shape.num_children)
        exact = np.zeros((most + 1, len(answer) - 1, most))
        for count in {*shape.num_children} - {0}:
            for place in range(1, len(answer)):
                exact[count, place - 1, :count] = law.shares(answer[place - 1], count)[answer[place]][:count]
        found = renewed(exact, shape, NEW)
        assert [found.steps, found.length] == pytest.approx(known)
        estimates = [expected(recording, drafter, rule, rng, max_new_tokens=NEW) for _ in range(200)]
        for values, value in zip(zip(*((one.steps, one.length) for one in estimates), strict=True), known, strict=True):
            assert abs(np.mean(values) - value) <= 4 * np.std(values) / 200**0.5 + 1e-6


def test_expected_steps_end_where_the_answer_does() -> None:
    """In an end-of-sequence token, and at the length that was asked for; a path to the recording's end is refused."""
    shape, rule, rng = UNEVEN, SpecInfer(), torch.Generator().manual_seed(3)
    drafter = StaticTree(draft=BigramLM(torch.tensor(Q).log()), shape=shape, draws="iid")
    recording = replace(drawn(shape, rng), answer=(1, 0, 1, 0, 2), ended=True)
    for new in (1, 2, 4, 9):
        found = expected(recording, drafter, rule, rng, max_new_tokens=new, eos_token_ids=[2])
        made = [
            replay_by_ranks(
                recording,
                drafter,
                max_new_tokens=new,
                eos_token_ids=[2],
                source=by_distributions(recording, drafter, rule, rng),
            )
            for _ in range(300)
        ]
        for value, facts in (
            (found.steps, [len(one.steps) for one in made]),
            (found.length, [sum(step.acceptance_length for step in one.steps) for one in made]),
        ):
            assert abs(np.mean(facts) - value) <= 4 * np.std(facts) / 300**0.5 + 0.01
    with pytest.raises(PairError, match="record more"):
        expected(replace(recording, ended=False), drafter, rule, rng, max_new_tokens=5)


def test_an_answer_of_one_token_has_no_steps() -> None:
    """The first token comes from the prefill; here it ends the answer."""
    drafter = StaticTree(draft=perturbed(TARGET), shape=UNEVEN, draws="iid")
    eos = record(TARGET, [3, 1, 4], max_new_tokens=1, beyond=0).answer[0]
    given = {"max_new_tokens": 9, "eos_token_ids": [eos]}
    recording = record(TARGET, [3, 1, 4], beyond=4, sampling=Sampling(0.01), distributions=True, **given)
    assert recording.answer == (eos,)
    rng = torch.Generator().manual_seed(0)
    for source in (None, by_distributions(recording, drafter, SpecInfer(), rng)):
        assert replay_by_ranks(recording, drafter, source=source, **given).steps == []
    assert expected(recording, drafter, SpecInfer(), rng, **given) == Expected(0, 0)


def test_at_the_targets_last_position_nothing_more_is_to_be_known() -> None:
    target = random_llama(0, vocab=VOCAB, positions=12)
    drafter = StaticTree(draft=random_llama(1, vocab=VOCAB, positions=40), shape=chain(3), draws="iid")
    recording = record(target, [3, 1, 4], max_new_tokens=9, beyond=4, sampling=Sampling(1.0), distributions=True)
    rng = torch.Generator().manual_seed(0)
    assert expected(recording, drafter, Chain(), rng, max_new_tokens=9).steps > 1
    for _ in range(5):
        source = by_distributions(recording, drafter, Chain(), rng)
        assert len(replay_by_ranks(recording, drafter, max_new_tokens=9, source=source).tokens) == 9


def test_what_is_expected_does_not_depend_on_how_far_the_recording_goes() -> None:
    drafter = StaticTree(draft=perturbed(TARGET), shape=UNEVEN, draws="without_replacement", draft_top_p=0.7)
    found = []
    for beyond in (4, 30):
        rng = torch.Generator().manual_seed(5)
        given = {"max_new_tokens": 12, "sampling": Sampling(1.0), "rng": rng, "distributions": True}
        recording = record(TARGET, [3, 1, 4], beyond=beyond, **given)
        found.append(expected(recording, drafter, WithoutReplacement(), rng.manual_seed(1), max_new_tokens=12))
    assert found[0].steps == pytest.approx(found[1].steps, abs=1e-4)


def test_an_end_that_is_to_end_no_answer_is_refused() -> None:
    drafter = StaticTree(draft=perturbed(TARGET), shape=UNEVEN, draws="iid")
    recording = replace(record(TARGET, [3, 1, 4], max_new_tokens=6, beyond=0), ended=True)
    with pytest.raises(PairError, match="record anew"):
        replay_by_ranks(recording, drafter, max_new_tokens=9)
    with pytest.raises(PairError, match="record anew"):
        expected(recording, drafter, SpecInfer(), torch.Generator(), max_new_tokens=9)


@pytest.mark.parametrize("sampling", [Sampling(1.0, 0.3), Sampling(1.0, top_k=2)], ids=str)
def test_a_drawn_token_stays_in_the_support_that_rounding_takes_it_out_of(sampling: Sampling) -> None:
    """An answer drawn from more than what is kept stands for rounding at the support's edge."""
    drawn = record(TARGET, [3, 1, 4], max_new_tokens=8, beyond=0, sampling=Sampling(1.5))
    told = with_distributions(TARGET, drawn, sampling).distributions
    rows = [told.of(place) for place in range(1, 8)]
    assert all(row[token] > 0 for row, token in zip(rows, drawn.answer[1:], strict=True))
    assert [float(row.sum()) for row in rows] == pytest.approx([1] * 7)
