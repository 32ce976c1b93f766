"""The search for what a target leaves out when it drafts for itself, against walks, decodings and exhaustive search."""

import itertools
import random

import pytest
import torch
import yaml
from cells import config, execute, word_pair
from doubles import BigramLM, context_for, random_llama

from specdec_core import generate, shapes
from specdec_core.drafters import Autoregressive, SelfDraft, StaticTree
from specdec_core.errors import PairError, PromptError
from specdec_core.models import LayerSkip, ModelSpec
from specdec_core.models.layer_skip import kept_bytes
from specdec_core.verifiers import Greedy
from specdec_trees.calibrate import skip_search
from specdec_trees.calibrate.skip_search import Judge, Judged, chain_mal, judged, search, skipped_of, sublayers_of
from specdec_trees.configs.cells import pair_of, scientific_config, setting_of
from specdec_trees.measure.cell import LatencyGrid

FEW = ("pair=tiny_self", "dataset=mini", "decoding.max_new_tokens=8", "calibration.skips.prompts=2")


def walked(answers, steps):
    """Chain drafting token by token: the MAL that `chain_mal` is to have."""
    tokens = rounds = 0
    for answer in answers:
        right = list(answer[1:])
        while right:
            rounds += 1
            for _ in range(steps):
                if not right or not right[0]:
                    break
                right.pop(0)
                tokens += 1
            if right:  # the target's own token
                right.pop(0)
                tokens += 1
    return tokens / rounds


def test_mal_is_that_of_a_walk_along_the_answers():
    rng = random.Random(0)
    for _ in range(300):
        share = rng.random()
        answers = [[rng.random() < share for _ in range(rng.randint(2, 30))] for _ in range(rng.randint(1, 4))]
        for steps in (1, 2, 5, 12):
            assert chain_mal(answers, steps) == walked(answers, steps)
    assert chain_mal([[True]], 3) == 1.0, "an answer of one token has no step"


def test_mal_is_that_of_decoding_where_a_draft_depends_on_the_last_token_alone():
    """There teacher forcing is exact: against the engine's own steps."""
    rng, seen = torch.Generator().manual_seed(0), set()
    for root in range(8):
        table = torch.randn(23, 23, generator=rng)
        target, draft = BigramLM(table), BigramLM(table + 0.5 * torch.randn(23, 23, generator=rng))
        text = generate(target, Autoregressive(), Greedy(), [root], max_new_tokens=40).tokens
        agreed = [[int(draft.table[before].argmax()) == token for before, token in itertools.pairwise([root, *text])]]
        for steps in (1, 3, 6):
            drafter = StaticTree(draft=draft, shape=shapes.chain(steps))
            found = generate(target, drafter, Greedy(), [root], max_new_tokens=40)
            assert chain_mal(agreed, steps) == (len(text) - 1) / len(found.steps)
            seen.add(len(found.steps))
    assert len(seen) > 8, "drafts are all right or all wrong"


def test_the_number_of_steps_is_the_one_that_costs_least():
    rng = random.Random(1)
    for _ in range(100):
        agreed, cost = [[rng.random() < 0.8 for _ in range(40)]], rng.random()
        found = judged(agreed, cost, 9)
        costs = {steps: (cost * steps + 1) / walked(agreed, steps) for steps in range(1, 10)}
        assert found.per_token == min(costs.values()) == costs[found.steps]
        assert found.mal == walked(agreed, found.steps)
        assert found.agreement == sum(agreed[0][1:]) / 39


def by_table(count, seed, *, separable):
    """A judge of random costs: of every set its own, or a sum over sublayers."""
    rng = random.Random(seed)
    parts = [rng.uniform(-1, 1) for _ in range(count)]
    whole = {frozenset(s): rng.random() for n in range(count) for s in itertools.combinations(range(count), n)}

    def judge(chosen):
        judge.asked.append(chosen)
        cost = 10 + sum(parts[sublayer] for sublayer in chosen) if separable else whole[chosen]
        return Judged(agreement=0.5, steps=1, mal=1.0, cost=cost)

    judge.asked, judge.least = [], min(whole, key=whole.get)
    judge.negative = frozenset(n for n in range(count) if parts[n] < 0)
    return judge


@pytest.mark.parametrize("seed", range(8))
def test_with_enough_evaluations_the_search_is_exhaustive(seed):
    judge = by_table(6, seed, separable=False)
    found = search(judge, 6, evaluations=1000, seed=seed)
    assert len(found) == len(judge.asked) == 2**6 - 1
    assert frozenset(range(6)) not in found
    assert skip_search.best_of(found) == judge.least


@pytest.mark.parametrize("seed", range(8))
def test_one_descent_finds_the_best_set_where_sublayers_add_up(seed):
    judge = by_table(14, seed, separable=True)
    found = search(judge, 14, evaluations=250, seed=seed)
    assert skip_search.best_of(found) == judge.negative


def test_a_search_keeps_to_its_evaluations_and_its_seed():
    given, runs = frozenset({1, 4}), []
    for seed in (0, 0, 1):
        judge = by_table(12, 3, separable=False)
        found = search(judge, 12, evaluations=37, seed=seed, first=[given])
        assert judge.asked[0] == given
        assert len(judge.asked) == len(set(judge.asked)) == len(found) == 37
        runs.append(judge.asked)
    assert runs[0] == runs[1] != runs[2]


def test_sets_are_the_options_of_a_draft():
    rng = random.Random(0)
    for _ in range(50):
        chosen = frozenset(n for n in range(10) if rng.random() < 0.5)
        options = skipped_of(chosen, 5)
        assert sublayers_of(ModelSpec(id="x", **options), 5) == chosen
        lists = [set(numbers) for numbers in options.values()]
        assert not any(a & b for a, b in itertools.combinations(lists, 2))


@pytest.mark.parametrize("chosen", [{0}, {2, 6}, {1, 3, 7}], ids=str)
def test_agreement_is_the_drafts_arg_max_at_every_root(chosen):
    target, layers = random_llama(0, layers=4), 4
    text = generate(target, Autoregressive(), Greedy(), [5, 9, 11], max_new_tokens=25).tokens
    judge = Judge(target, [([5, 9, 11], text)], max_steps=4)
    options = skipped_of(frozenset(chosen), layers)
    draft = SelfDraft(skipping(target, options))
    right = []
    for number, token in enumerate(text):
        *before, root = [5, 9, 11, *text[:number]]
        target.reset(64)
        target.prefill(torch.tensor(before))
        with torch.inference_mode():
            right.append(int(draft.begin(context_for(root, tuple(before))).logits[0].argmax()) == token)
    found = judge(frozenset(chosen))
    sizes = [kept_bytes(target.config, torch.float32, *part) for part in (options.values(), ())]
    assert found == judged([right], sizes[0] / sizes[1], 4)
    assert 0 < found.agreement < 1
    assert judge(frozenset()) == judged([[True] * 25], 1.0, 4)


def skipping(target, options):
    layers, attention, mlp = options.values()
    return LayerSkip(target, layers, attention=attention, mlp=mlp)


def test_costs_may_be_measured():
    target = random_llama(0, layers=4)
    judge = Judge(target, [([5], [3, 4])], max_steps=2, timed=LatencyGrid(num_tokens=[1], num_prefix=8, repeats=3))
    seconds = iter([0.25])
    judge.whole, judge._forward = 1.0, lambda model: next(seconds)
    assert judge(frozenset({1})).cost == 0.25
    assert Judge(target, [([5], [3, 4])], max_steps=2, timed=judge.timed).whole > 0


def test_answers_that_do_not_fit_are_left_out():
    pair = word_pair(positions=16)
    found = skip_search.answers_of(pair, [[3] * 14, [5, 6]], 8)
    assert [prompt for prompt, _ in found] == [[5, 6]]
    with pytest.raises(PromptError, match="14"):
        skip_search.answers_of(pair, [[3] * 14], 8)


def test_a_search_says_what_to_write_into_the_yaml(capsys, tmp_path, monkeypatch):
    """The same words for the same seed; prompts are of the calibration part; the line is the set that was found."""
    said, parts, load = [], [], skip_search.datasets.load
    monkeypatch.setattr(
        skip_search.datasets, "load", lambda spec, **options: parts.append(spec.part) or load(spec, **options)
    )
    for _ in range(2):
        assert execute(tmp_path, *FEW, "measure=skips", "calibration.skips.evaluations=6") == "ok"
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert parts == ["calibration"] * 2
    head, names, today, found, line = said[0].splitlines()
    assert head == "tiny_self: 6 of 4,095 sets, 2 answers to mini's calibration part"
    assert names.split() == ["agreement", "forward", "steps", "MAL", "cost/token", "left", "out"]
    draft = yaml.safe_load(line)["draft"]
    own = pair_of(config(*FEW)).draft
    assert {key: draft.pop(key) for key in ("id", "revision", "gated", "kind")} == {
        key: getattr(own, key) for key in ("id", "revision", "gated", "kind")
    }
    assert float(found.split()[5]) <= float(today.split()[5])
    assert all(f"{name.removeprefix('skipped_')} {numbers}" in found for name, numbers in draft.items())


def test_only_targets_that_draft_for_themselves_are_searched():
    made = config("pair=tiny", "measure=skips")
    with pytest.raises(PairError, match="pair tiny does not draft for itself"):
        skip_search.summary(setting_of(made, scientific_config(made)))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("calibration.skips.cost=hours", 'unknown calibration.skips.cost "hours"'),
        ("calibration.skips.evaluations=0", "calibration.skips.evaluations must be at least 1, not 0"),
        ("calibration.skips.max_steps=x", "calibration.skips.max_steps=x: a whole number is expected"),
    ],
)
def test_mistyped_options_are_said(override, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        execute(tmp_path, *FEW, "measure=skips", override)
