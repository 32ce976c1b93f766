"""Distribution of the next token and the next three on the embedded pair: chi-square of many samples for every rule.

All samples advance together, one token at a time: a sample that stands in a tree has children drawn at its node and
judged, a recovered or bonus token begins a new tree. This is the engine's distribution, because the children of a node
do not depend on what is accepted above it; the engine itself is tested in `test_sampling_distribution.py`. Children are
drawn once per way of drawing, draft and context, and used by all rules. Where a context is expected less than five
times under every setting, so are all outcomes that begin with it: they are pooled, and its samples go no further.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache

import pytest
import torch
from distributions import declared_pairs, judges, name_of
from scipy import stats
from torch import Generator, Tensor

from specdec_core import CausalLM, Sampling, load_pair
from specdec_core.models import ModelSpec, Pair
from specdec_core.sampling import draw_children, draw_tokens
from specdec_core.verifiers import ChildByChild, Eagle1, SpecInfer, TargetSample, WithoutReplacement
from specdec_core.verifiers.rounds import State
from specdec_trees.prompts.embedded import TINY, prompts

VOCAB, PROMPT, ROWS = 512, 8, 1024
SAMPLES = {True: 200_000, False: 20_000}
"""In the long form and in the short one."""
TREE, CHAIN = (3, 2), (1, 1)  # children of every node, by depth
SHARP, WIDE = Sampling(0.8, top_p=0.95), Sampling(1.0)
SETTINGS = {
    "t1": (Sampling(1.0), WIDE),
    "t1_top_p": (Sampling(1.0, top_p=0.9), SHARP),
    "t06": (Sampling(0.6), SHARP),
    "t06_top_p": (Sampling(0.6, top_p=0.9), WIDE),
}
"""The target's sampling and the draft's."""
PAIRS = declared_pairs()
EAGLE_PAIRS = [
    (TargetSample(), "topk"),
    (SpecInfer(), "iid"),
    (WithoutReplacement(), "without_replacement"),
    (Eagle1(), "without_replacement"),
]
SMALLEST_P = 1e-3 / (2 * len(PAIRS) * len(SETTINGS) + 4 * len(EAGLE_PAIRS))
"""Of all p-values in this file together one falls below it by chance once in a thousand; seeds are fixed."""


class Contexts:
    """Logits of target and draft after no, one and two new tokens; row 0 is the prompt, 1 to VOCAB follow it."""

    def __init__(self, pair: Pair, samples: int) -> None:
        self.pair, self.samples, one = pair, samples, torch.arange(VOCAB)[:, None]
        prompt = torch.tensor([pair.tokenizer(prompts()[11].turns[0]).input_ids[:PROMPT]])
        models = self._logits_of_target, self._logits_of_draft
        self._first = [logits_of(prompt, one) for logits_of in models]
        first, expected = self._first[0], torch.zeros(VOCAB, VOCAB, dtype=torch.float64)
        for sampling, _ in SETTINGS.values():
            p = sampling.probs(first).double()
            expected = expected.maximum(samples * p[0, :, None] * p[1:])
        two = (expected >= 5).nonzero()
        after = [logits_of(prompt, two)[1:] for logits_of in models]
        self.target, self.draft = (torch.cat(both) for both in zip(self._first, after, strict=True))
        self.next = torch.full((len(self.target), VOCAB), -1)
        self.next[0] = torch.arange(1, VOCAB + 1)
        self.next[two[:, 0] + 1, two[:, 1]] = torch.arange(VOCAB + 1, len(self.target))
        self.pools: dict[object, Pool] = {}
        self.p, self.q = (lru_cache(lambda s, of=of: s.probs(of)) for of in (self.target, self.draft))

    def _logits_of_target(self, prompt: Tensor, new: Tensor) -> Tensor:
        return self._logits(self.pair.target.model, prompt, new)

    def _logits_of_draft(self, prompt: Tensor, new: Tensor) -> Tensor:
        """A head's with the target's features: no rule may depend on how good the draft's distribution is."""
        if isinstance(self.pair.draft, CausalLM):
            return self._logits(self.pair.draft.model, prompt, new)
        texts, head, target = [prompt, *self._texts(prompt, new)], self.pair.draft.model, self.pair.target.model
        features = [head.predict(text[:, 1:], target.model(text).last_hidden_state[:, :-1])[:, -1] for text in texts]
        return target.lm_head(torch.cat(features)).float()

    @staticmethod
    def _texts(prompt: Tensor, new: Tensor) -> Iterator[Tensor]:
        for rows in new.split(256):
            yield torch.cat((prompt.expand(len(rows), -1), rows), 1)

    @staticmethod
    def _logits(model: torch.nn.Module, prompt: Tensor, new: Tensor) -> Tensor:
        """Of the prompt, and of the prompt with each row of new tokens."""
        found = [model(input_ids=prompt).logits[:, -1]]
        for rows in new.split(256):
            cache = model(input_ids=prompt, use_cache=True).past_key_values
            cache.batch_repeat_interleave(len(rows))
            found.append(model(input_ids=rows, past_key_values=cache).logits[:, -1])
        return torch.cat(found).float()

    def children(self, draft: Sampling, draws: str, contexts: Tensor, width: int, used: Counter[int]) -> Tensor:
        """Each sample's own draw of children, the first `width` of as many as any node has; none that were `used`."""
        pool = self.pools.setdefault((draft, draws), Pool(self.q(draft), draws))

        def take(context: int, count: int) -> Tensor:
            used[context] += count
            return pool.first(context, used[context])[-count:]

        return by_context(contexts, take)[:, :width]


class Pool:
    """Draws of children, by context; grown in blocks of fixed sizes and seeds, so that all orders of tests agree."""

    def __init__(self, q: Tensor, draws: str) -> None:
        self.q, self.draws, self.drawn = q, draws, {}

    def first(self, context: int, count: int) -> Tensor:
        """The first draws of a context."""
        have = self.drawn.get(context, torch.empty(0, max(TREE), dtype=torch.long))
        while len(have) < count:
            size = max(16, len(have))
            have = torch.cat((have, self._draw(self.q[context], size, 1_000_000 * context + len(have))))
            self.drawn[context] = have
        return have[:count]

    def _draw(self, q: Tensor, size: int, seed: int) -> Tensor:
        """Tokens without probability are left out where others suffice: they win no race, but cost time."""
        rng, width = Generator().manual_seed(seed), max(TREE)
        if self.draws == "iid":
            return draw_children(q[None], size * width, "iid", rng)[1].view(size, width)
        support = q.nonzero()[:, 0] if int((q > 0).sum()) >= width else torch.arange(VOCAB)
        return support[draw_children(q[support].expand(size, -1), width, self.draws, rng)[1]]


def by_context(contexts: Tensor, draw: Callable[[int, int], Tensor]) -> Tensor:
    """Draws for every sample, made by `draw(context, count)` once per context."""
    order = contexts.argsort(stable=True)
    found, counts = contexts[order].unique_consecutive(return_counts=True)
    drawn = torch.cat([draw(*pair) for pair in zip(found.tolist(), counts.tolist(), strict=True)])
    return torch.empty_like(drawn).index_copy_(0, order, drawn)


def by_case(cases: Tensor, answer: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """`answer(rows, which)` for samples whose cases are `rows[which]`, each case once and ROWS of them at a time."""
    keys = (cases * VOCAB ** torch.arange(cases.shape[1]).flip(0)).sum(-1)
    order = keys.argsort()
    _, which, counts = keys[order].unique_consecutive(return_inverse=True, return_counts=True)
    distinct = cases[order[counts.cumsum(0) - counts]].split(ROWS)
    samples = which.split([int(part.sum()) for part in counts.split(ROWS)])
    found = [answer(rows, index - ROWS * n) for n, (rows, index) in enumerate(zip(distinct, samples, strict=True))]
    return torch.empty_like(drawn := torch.cat(found)).index_copy_(0, order, drawn)


def judged(
    rule: ChildByChild, p: Tensor, q: Tensor, contexts: Tensor, children: Tensor, rng: Generator
) -> tuple[Tensor, Tensor]:
    """Every sample's next token, and whether it is an accepted child: `rule.choose` for all of them together."""
    width = children.shape[1]

    def state(rows: Tensor, *, all_rejected: bool = False) -> State:
        """Of nodes (rows: context, children); all but the last are rejected."""
        found = rule.begin(p[rows[:, 0]], q[rows[:, 0]], width)
        for child in rows[:, 1 : None if all_rejected else -1].unbind(-1):
            found.reject(child)
        return found

    tokens, left, cases = (
        torch.empty_like(contexts),
        torch.arange(len(contexts)),
        torch.cat((contexts[:, None], children), 1),
    )
    for number in range(width):
        if not len(left):
            break
        chance = by_case(cases[left, : number + 2], lambda rows, which: state(rows).accept(rows[:, -1])[which])
        accepted = torch.rand(len(left), dtype=torch.float64, generator=rng) < chance
        tokens[left[accepted]] = children[left[accepted], number]
        left = left[~accepted]
    if len(left):
        recovered = by_case(
            cases[left], lambda rows, which: draw_tokens(state(rows, all_rejected=True).residual()[which], 1, rng)
        )
        tokens[left] = recovered[:, 0]
    return tokens, torch.ones_like(tokens, dtype=torch.bool).index_fill_(0, left, False)


def sampled(contexts: Contexts, rule: ChildByChild, draws: str, settings: tuple[Sampling, Sampling], rng: Generator):
    """Three new tokens of every sample, -1 behind a context that is too rare; never one of probability 0."""
    p, q = contexts.p(settings[0]), contexts.q(settings[1])
    widths = TREE if judges(rule, max(TREE)) else CHAIN
    after, depth = torch.zeros(2, contexts.samples, dtype=torch.long)
    tokens, used = torch.full((contexts.samples, 3), -1), Counter[int]()
    for number in range(3):
        going, chosen = after >= 0, torch.full_like(after, -1)
        goes_on = torch.zeros_like(going)
        for level, width in enumerate(widths):
            at = (going & (depth == level)).nonzero()[:, 0]
            if not len(at):
                continue
            children = contexts.children(settings[1], draws, after[at], width, used)
            chosen[at], goes_on[at] = judged(rule, p, q, after[at], children, rng)
        at = (going & (depth == len(widths))).nonzero()[:, 0]
        if len(at):
            chosen[at] = by_context(after[at], lambda context, count: draw_tokens(p[context], count, rng))
        assert (p[after[going], chosen[going]] > 0).all()
        tokens[:, number] = chosen
        depth = torch.where(goes_on, depth + 1, 0)
        after = torch.where(going, contexts.next[after, chosen], -1)
    return tokens


def p_value(observed: Tensor, expected: Tensor, samples: int) -> float:
    """Chi-square over the outcomes that are expected five times; all others are one, joined to the last if as rare."""
    common = expected >= 5
    counts, means = observed[common].double(), expected[common]
    counts, means = (torch.cat((x, samples - x.sum()[None])) for x in (counts, means))
    if means[-1] < 5:
        counts, means = (torch.cat((x[:-2], x[-2:].sum()[None])) for x in (counts, means))
    return float(stats.chisquare(counts, means).pvalue) if len(means) > 1 else 1.0


def p_values(contexts: Contexts, tokens: Tensor, sampling: Sampling) -> tuple[float, float]:
    """Of the next token and of the next three, against the products of the target's distributions in float64."""
    p = contexts.p(sampling).double()
    p = p / p.sum(-1, keepdim=True)
    samples = contexts.samples
    one = p_value(tokens[:, 0].bincount(minlength=VOCAB), samples * p[0], samples)
    first, second = (contexts.next[1 : VOCAB + 1] >= 0).nonzero().unbind(-1)
    pairs = contexts.next[1 + first, second]
    reached = torch.zeros(len(p), dtype=torch.float64).index_copy_(0, pairs, p[0, first] * p[1 + first, second])
    whole = tokens[tokens[:, 2] >= 0]
    codes = contexts.next[1 + whole[:, 0], whole[:, 1]] * VOCAB + whole[:, 2]
    return one, p_value(codes.bincount(minlength=p.numel()), (samples * reached[:, None] * p).flatten(), samples)


@pytest.fixture(scope="module")
def contexts(tiny: Pair, long_form: bool) -> Contexts:
    with torch.inference_mode():
        return Contexts(tiny, SAMPLES[long_form])


@pytest.mark.few(8)
@pytest.mark.parametrize(("rule", "draws"), PAIRS, ids=["-".join(map(name_of, pair)) for pair in PAIRS])
@pytest.mark.parametrize("settings", SETTINGS)
def test_the_next_three_tokens_have_the_targets_distribution(contexts, rule, draws, settings):
    rng = Generator().manual_seed(5)
    tokens = sampled(contexts, rule, draws, SETTINGS[settings], rng)
    found = p_values(contexts, tokens, SETTINGS[settings][0])
    print("p-values", *found)
    assert min(found) > SMALLEST_P


@pytest.fixture(scope="module")
def contexts_of_the_head(long_form: bool) -> Contexts:
    head = ModelSpec(id=str(TINY / "eagle"), kind="eagle")
    with torch.inference_mode():
        return Contexts(load_pair(str(TINY / "target"), head, device="cpu"), SAMPLES[long_form])


@pytest.mark.parametrize(("rule", "draws"), EAGLE_PAIRS, ids=["-".join(map(name_of, pair)) for pair in EAGLE_PAIRS])
@pytest.mark.parametrize("settings", ["t1", "t06_top_p"])
def test_the_distributions_with_an_eagle_head_are_the_targets_too(contexts_of_the_head, rule, draws, settings):
    tokens = sampled(contexts_of_the_head, rule, draws, SETTINGS[settings], Generator().manual_seed(7))
    assert min(p_values(contexts_of_the_head, tokens, SETTINGS[settings][0])) > SMALLEST_P


@pytest.mark.parametrize(
    ("rule", "draws"), [(SpecInfer(), "without_replacement"), (WithoutReplacement(), "topk")], ids=name_of
)
def test_pairs_that_are_not_declared_fail(contexts, rule, draws):
    assert draws not in rule.lossless_for
    tokens = sampled(contexts, rule, draws, SETTINGS["t1_top_p"], Generator().manual_seed(6))
    assert max(p_values(contexts, tokens, SETTINGS["t1_top_p"][0])) < 1e-6 * SMALLEST_P
