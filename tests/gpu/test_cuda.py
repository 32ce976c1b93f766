"""What only a GPU can show: the same tokens, bf16 within its rounding, event times, few waits for the device."""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from discovered import NAMES, built, parameters, rule_for
from doubles import BigramLM

from specdec_core import CausalLM, Sampling, generate, load_pair, shapes
from specdec_core.cache import KVCache
from specdec_core.drafters import (
    Autoregressive,
    Context,
    Drafter,
    DySpec,
    Eagle2,
    OptTree,
    StaticTree,
    TargetInit,
    TokenGraph,
)
from specdec_core.models import Pair
from specdec_core.sampling import draw_children, rank_keys, top_k
from specdec_core.timing import Clock
from specdec_core.verifiers import Greedy, TargetSample
from specdec_trees.measure.audit import divergence
from specdec_trees.prompts.embedded import TINY
from specdec_trees.results.ties import is_tie

DEVICE = torch.device("cuda")
PROMPTS = ("def read_config(filename):\n", "Once upon a time there was a module that")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def on_device(dtype: str) -> Pair:
    return load_pair(str(TINY / "target"), str(TINY / "draft"), device=str(DEVICE), dtype=dtype)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return on_device("float32")


@pytest.fixture(scope="module")
def pair_bf16() -> Pair:
    return on_device("bfloat16")


def drafter_of(name: str, draft: CausalLM, decoding: str = "greedy") -> Drafter:
    """In its own size, but no larger than the largest of the papers' adaptive trees."""
    return built(parameters(name, decoding=decoding, largest=128), draft)


@pytest.fixture(params=PROMPTS)
def prompt(request: pytest.FixtureRequest, pair: Pair) -> list[int]:
    return pair.tokenizer(request.param)["input_ids"]


@pytest.mark.few(16)
@pytest.mark.parametrize("name", NAMES)
def test_greedy_output_in_float32_is_the_targets_own(name, prompt, pair):
    options = {"max_new_tokens": 64, "do_sample": False, "eos_token_id": None}
    ids = torch.tensor([prompt], device=DEVICE)
    own = pair.target.model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, len(prompt) :].tolist()
    drafter = drafter_of(name, pair.draft)
    assert generate(pair.target, drafter, rule_for(drafter), prompt, max_new_tokens=64).tokens == own


@pytest.mark.few(8)
@pytest.mark.parametrize("name", NAMES)
def test_bf16_differs_only_where_rounding_decides(name, prompt, pair_bf16):
    """Eight units in the last place of the largest logit, since both forwards round in every layer."""
    target, drafter = pair_bf16.target, drafter_of(name, pair_bf16.draft)
    ours = generate(target, drafter, rule_for(drafter), prompt, max_new_tokens=64).tokens
    own = generate(target, Autoregressive(), Greedy(), prompt, max_new_tokens=64).tokens
    parted = divergence(target, prompt, ours, own)
    assert parted is None or is_tie(parted.gap, parted.largest_logit, "bfloat16")


@pytest.mark.real_gpu
@pytest.mark.parametrize("name", ["autoregressive", "chain4", "opt_tree", "eagle2"])
def test_event_times_are_positive_and_fit_into_the_wall_time(name, prompt, pair):
    drafter = drafter_of(name, pair.draft)
    generate(pair.target, drafter, Greedy(), prompt, max_new_tokens=16)
    torch.cuda.synchronize()
    started = time.perf_counter()
    result = generate(pair.target, drafter, Greedy(), prompt, max_new_tokens=64)
    torch.cuda.synchronize()
    wall = time.perf_counter() - started
    for step in result.steps:
        assert min(step.score_s, step.judge_s, step.commit_s) > 0
        assert (step.draft_s > 0) == (name != "autoregressive")
        assert step.tree_s >= -1e-6
    assert result.prefill_s > 0
    assert 0.1 * wall < result.prefill_s + result.decode_s < wall


@pytest.mark.real_gpu
def test_a_span_is_as_long_as_the_work_in_it():
    clock = Clock(DEVICE)
    matrix = torch.randn(2048, 2048, device=DEVICE)
    for name, repeats in (("warm", 5), ("short", 10), ("long", 100)):
        with clock.span(name):
            for _ in range(repeats):
                matrix @ matrix
    tallies = clock.read()[-1]
    assert 3 < tallies["long"].seconds / tallies["short"].seconds < 30


@contextmanager
def waits() -> Iterator[list[warnings.WarningMessage]]:
    """Warnings of all operations in which the host waits for the device; copies to it from pageable memory count."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.filterwarnings("ignore")
            warnings.filterwarnings("always", message=".*synchronizing CUDA operation.*")
            yield caught
    finally:
        torch.cuda.set_sync_debug_mode("default")


class Watched:
    """A drafter and a rule that count their waits."""

    def __init__(self, drafter: Any, rule: Any) -> None:
        self.drafter, self.rule = drafter, rule
        self.grow_waits: list[int] = []
        self.judge_waits: list[int] = []
        grow, judge = drafter.grow, rule.judge

        def counted_grow(context: Context) -> Any:
            with waits() as caught:
                tree = grow(context)
            self.grow_waits.append(len(caught))
            return tree

        def counted_judge(*arguments: Any) -> Any:
            with waits() as caught:
                verdict = judge(*arguments)
            self.judge_waits.append(len(caught))
            return verdict

        drafter.grow, rule.judge = counted_grow, counted_judge


def test_waits_are_seen():
    value = torch.ones(3, device=DEVICE)
    with waits() as caught:
        value.sum().item()
        value.add_(1)
        value.cpu()
    assert len(caught) == 2


def reads_of_growing(drafter: Drafter, forwards: int) -> int:
    """How often the host may have to know what the draft made of a layer before it goes on."""
    if isinstance(drafter, DySpec):
        return 2 * forwards  # where the first draws of a race do not suffice more of them are looked at
    return forwards if isinstance(drafter, OptTree | TokenGraph) else int(isinstance(drafter, TargetInit))


@pytest.mark.few(24)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", NAMES)
def test_waits_are_one_for_a_judgement_and_those_of_growing(name, temperature, prompt, pair):
    """The target's own draws are followed with one read."""
    drafter = drafter_of(name, pair.draft, "t1" if temperature else "greedy")
    options = {"max_new_tokens": 32, "sampling": Sampling(temperature), "allow_lossy": True}
    rule = rule_for(drafter) if drafter.virtual_root else TargetSample()
    generate(pair.target, drafter, rule, prompt, **options)
    watched = Watched(drafter, rule)
    steps = generate(pair.target, watched.drafter, watched.rule, prompt, **options).steps
    if not drafter.virtual_root:
        assert watched.judge_waits == [1] * len(steps)
    assert max(watched.judge_waits) <= 2
    for waited, step in zip(watched.grow_waits, steps, strict=True):
        assert waited <= reads_of_growing(drafter, step.draft_forwards)


@pytest.mark.parametrize("kept", [[0], [0, 1, 2], [0, 3, 7], [11], []])
def test_commit_is_the_same_as_on_the_cpu(kept):
    told = torch.randn(2, 3, 20, 4)
    caches = []
    for device in (torch.device("cpu"), DEVICE):
        cache = KVCache(2, 8)
        cache.reserve(20)
        for layer in range(2):
            cache.update(told[layer, None].to(device), -told[layer, None].to(device), layer)
        cache.advance(20)
        cache.commit(8, torch.tensor(kept, dtype=torch.long))
        caches.append(cache)
    new = torch.zeros(1, 3, 1, 4)
    for layer in range(2):
        on_cpu, on_gpu = (
            cache.update(new.to(device), new.to(device), layer)
            for cache, device in zip(caches, (torch.device("cpu"), DEVICE), strict=True)
        )
        assert all(torch.equal(one, other.cpu()) for one, other in zip(on_cpu, on_gpu, strict=True))
        assert on_gpu[0].shape[-2] == 8 + len(kept) + 1


def test_ties_are_broken_as_on_the_cpu():
    values = torch.randint(5, (64, 999)).float() / 4
    for one, other in zip(top_k(values, 40), top_k(values.to(DEVICE), 40), strict=True):
        assert torch.equal(one, other.cpu())
    paths = values.flatten().double()
    assert torch.equal(rank_keys(paths), rank_keys(paths.to(DEVICE)).cpu())


@pytest.mark.parametrize(
    "build",
    [
        lambda draft: OptTree(draft=draft, n=25, delta=0.1),
        lambda draft: Eagle2(draft=draft, total=30, depth=3, k=5),
        lambda draft: StaticTree(draft=draft, shape=shapes.eagle25()),
    ],
)
def test_trees_are_the_same_as_on_the_cpu(build):
    table = torch.randint(4, (61, 61)).float()  # full of ties
    trees = []
    for device in (torch.device("cpu"), DEVICE):
        draft, seen = BigramLM(table.to(device)), []
        options = {"max_new_tokens": 20, "watch": lambda tree, *_: seen.append(tree)}  # noqa: B023
        generate(BigramLM(table.flip(0).to(device)), build(draft), Greedy(), [3], **options)
        trees.append(seen)
    for one, other in zip(*trees, strict=True):
        assert torch.equal(one.tokens, other.tokens.cpu())
        assert torch.equal(one.parents, other.parents.cpu())


@pytest.mark.parametrize("name", ["chain4", "branching_4_2_2_1_iid", "branching_4_2_2_1_wor"])
def test_random_numbers_come_from_the_given_generator(name, prompt, pair):
    def sampled(seed: int) -> list[int]:
        rng, drafter = torch.Generator(DEVICE).manual_seed(seed), drafter_of(name, pair.draft)
        options = {"max_new_tokens": 32, "sampling": Sampling(1.0), "rng": rng}
        return generate(pair.target, drafter, TargetSample(), prompt, **options).tokens

    first = sampled(1)
    torch.cuda.manual_seed(99)
    assert sampled(1) == first != sampled(2)


def test_draws_on_the_device_follow_their_distribution():
    probs = torch.tensor([0.5, 0.25, 0.125, 0.125, 0.0], device=DEVICE)
    rng = torch.Generator(DEVICE).manual_seed(0)
    drawn = Sampling(1.0).draw(probs.log().expand(100_000, -1), rng)
    shares = torch.bincount(drawn, minlength=5) / 100_000
    assert torch.allclose(shares, probs, atol=0.01)
    assert shares[4] == 0
    _, ids = draw_children(probs.expand(1000, -1), 4, "without_replacement", rng)
    assert (ids.sort(-1).values == torch.arange(4, device=DEVICE)).all()
