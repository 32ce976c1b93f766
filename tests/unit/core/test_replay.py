"""Replayed steps are those of live decoding in all that is no time, for every drafter of `conf/drafter`."""

import gc
import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise, product
from weakref import ref

import pytest
import torch
from discovered import NAMES, built, parameters
from doubles import BigramLM, perturbed, random_llama
from heads import load, write_dflash, write_eagle_3, write_medusa, write_target
from played_forks import draws_of
from scipy import stats

from specdec_core import Generation, Sampling, generate
from specdec_core import replay as replaying
from specdec_core.drafters import Autoregressive, StaticTree
from specdec_core.errors import NonFiniteLogitsError, PairError, PromptError
from specdec_core.models import LayerSkip
from specdec_core.rank_replay import goes_by_ranks, replay_by_ranks
from specdec_core.replay import Recording, record, record_together, replay
from specdec_core.sampling import NO_DRAWS
from specdec_core.shapes import branching, chain
from specdec_core.verifiers import TargetSample

Table = list[list[float]]
P: Table = [[0.2, 0.7, 0.1], [0.6, 0.1, 0.3], [0.1, 0.2, 0.7]]
Q: Table = [[0.1, 0.7, 0.2], [0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]
"""Probabilities of a target and of a good draft, by the token before."""
VOCAB, NEW, BEYOND = 23, 30, 12
PROMPTS = ([3, 1, 4, 1, 5], [6, 5, 3, 5, 8, 9, 7, 9])
TARGET = random_llama(0, vocab=VOCAB)


def of(prompt: list[int], **given) -> Recording:
    return record(TARGET, prompt, max_new_tokens=NEW, beyond=BEYOND, **given)


def timeless(generation: Generation) -> tuple[list[int], str, str]:
    """All of it but seconds and E(A)."""
    steps = [{**{name: getattr(step, name) for name in step.__slots__}, **step.facts} for step in generation.steps]
    left = ("facts", "expected_acceptance")
    facts = [
        {name: fact for name, fact in step.items() if not name.endswith("_s") and name not in left} for step in steps
    ]
    return generation.tokens, generation.finish, repr(facts)  # a nan is itself


def times(generation: Generation) -> list[float]:
    """All seconds."""
    steps = [{**{name: getattr(step, name) for name in step.__slots__}, **step.facts} for step in generation.steps]
    own = [generation.prefill_s, generation.decode_s, generation.wall_s]
    return own + [value for step in steps for name, value in step.items() if name.endswith("_s")]


def assert_same(replayed: Generation, live: Generation) -> None:
    """In all but seconds; features and keys of one forward are not to the bit those of another, nor is E(A)."""
    assert timeless(replayed) == timeless(live)
    known = [[step.expected_acceptance for step in one.steps] for one in (replayed, live)]
    assert [one is None for one in known[0]] == [one is None for one in known[1]]
    assert [one or 0.0 for one in known[0]] == pytest.approx([one or 0.0 for one in known[1]], abs=1e-4)


SAMPLING = Sampling(0.8, 0.9)


SOME = ("chain4", "binary", "opt_tree", "eagle2", "gsd", "ssd_adaptive", "prompt_lookup_tree", "autoregressive")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in SOME else pytest.mark.long) for name in NAMES])
def test_steps_on_a_drawn_answer_are_those_that_drew_it(name: str) -> None:
    """By a rule that draws without a look at the tree: of a live answer, longer than is replayed, the same steps."""
    drafter = built(parameters(name, decoding="greedy", largest=6), perturbed(TARGET))
    if drafter.virtual_root or drafter.draws not in ("topk", NO_DRAWS):
        return  # the draft's draws are others in a replay
    options = {"sampling": SAMPLING, "rng": torch.Generator().manual_seed(3)}
    long = generate(TARGET, drafter, TargetSample(), PROMPTS[0], max_new_tokens=NEW + BEYOND, **options)
    drawn = Recording(tuple(PROMPTS[0]), tuple(long.tokens), (), False, VOCAB, TARGET.max_positions)
    options["rng"].manual_seed(3)
    live = generate(TARGET, drafter, TargetSample(), PROMPTS[0], max_new_tokens=NEW, **options)
    assert live.tokens == long.tokens[:NEW]
    assert_same(replay(drawn, drafter, max_new_tokens=NEW), live)
    if goes_by_ranks(drafter):
        ranked = replay_by_ranks(drawn, drafter, max_new_tokens=NEW)
        assert_same(ranked, replace(live, steps=[replace(step, expected_acceptance=None) for step in live.steps]))


def test_recorded_draws_are_those_of_plain_decoding_by_the_same_stream() -> None:
    options = {"sampling": SAMPLING}
    drawn = of(PROMPTS[0], **options, rng=torch.Generator().manual_seed(5))
    plain = generate(
        TARGET,
        Autoregressive(),
        TargetSample(),
        PROMPTS[0],
        max_new_tokens=NEW,
        **options,
        rng=torch.Generator().manual_seed(5),
    )
    assert list(drawn.answer[:NEW]) == plain.tokens != list(of(PROMPTS[0]).answer[:NEW])
    assert drawn.gaps == ()


def law_of_steps(q: Table, widths: list[int], how: str, new: int = 4) -> dict[tuple[int, ...], float]:
    """Probability of what each step adds to an answer of `new` tokens that `P` draws after token 0.

    A level is accepted if its token is among the children that the draft's table draws there.
    """
    among = [
        [[sum(chance for drawn, chance in draws_of(row, k, how) if token in drawn) for token in range(3)] for row in q]
        for k in widths
    ]
    law: Counter[tuple[int, ...]] = Counter()

    def go_on(answer: tuple[int, ...], steps: tuple[int, ...], at: int, chance: float) -> None:
        if at >= new:
            law[steps] += chance
            return
        for accepted in range(len(widths) + 1):
            taken = [among[level][answer[at + level - 1]][answer[at + level]] for level in range(len(widths))]
            odds = math.prod(taken[:accepted]) * (1 - taken[accepted] if accepted < len(widths) else 1)
            go_on(answer, (*steps, min(accepted + 1, new - at)), at + accepted + 1, chance * odds)

    for answer in product(range(3), repeat=new + len(widths)):
        go_on(answer, (), 1, math.prod(P[one][two] for one, two in pairwise((0, *answer))))
    return law


@pytest.mark.parametrize(
    ("draws", "widths", "way"),
    [
        ("iid", [2, 2], "live"),
        ("iid", [2, 2], "replayed"),
        ("without_replacement", [2, 1], "replayed"),
        ("iid", [1, 1], "replayed"),
    ],
)
def test_where_the_draft_draws_too_steps_have_their_law(draws: str, widths: list[int], way: str) -> None:
    """What every step adds, live and replayed on drawn answers, against enumeration, by chi-square."""
    new, rng, sampling = 4, torch.Generator().manual_seed(21), Sampling(1.0)
    target, draft = (BigramLM(torch.tensor(table).log()) for table in (P, Q))
    drafter = StaticTree(draft=draft, shape=branching(widths), draws=draws)
    counts: Counter[tuple[int, ...]] = Counter()
    for _ in range(300):
        if way == "live":
            made = generate(target, drafter, TargetSample(), [0], max_new_tokens=new, sampling=sampling, rng=rng)
        else:
            answer = [0]
            for _ in range(new + len(widths)):
                answer.append(int(torch.tensor(P[answer[-1]]).multinomial(1, generator=rng)))
            recording = Recording((0,), tuple(answer[1:]), (), False, 3, None)
            made = replay(recording, drafter, max_new_tokens=new, rng=rng)
        counts[tuple(step.kept for step in made.steps)] += 1
    law = law_of_steps(Q, widths, draws)
    assert set(counts) <= set(law)
    assert apart(counts, law) < stats.chi2.isf(1e-3, len(law) - 1)


def apart(counts: Counter[tuple[int, ...]], law: dict[tuple[int, ...], float]) -> float:
    """Pearson's statistic."""
    total = counts.total()
    return sum((counts[steps] - total * chance) ** 2 / (total * chance) for steps, chance in law.items())


@pytest.mark.parametrize(("draws", "widths"), [("iid", [2, 2]), ("without_replacement", [2, 1]), ("iid", [1, 1])])
def test_so_many_answers_tell_other_laws_apart(draws: str, widths: list[int]) -> None:
    """A draft that ignores q, one that always goes by the root's row, one that draws the other way."""
    law, other = law_of_steps(Q, widths, draws), {"iid": "without_replacement"}.get(draws, "iid")
    wrong = [law_of_steps([[1 / 3] * 3] * 3, widths, draws), law_of_steps([Q[0]] * 3, widths, draws)]
    wrong += [law_of_steps(Q, widths, other)] * (max(widths) > 1)
    for one in wrong:
        assert sum(one.values()) == pytest.approx(1)
        assert apart(Counter({steps: 300 * chance for steps, chance in one.items()}), law) > 30


def eos_of(prompt: list[int]) -> list[int]:
    """A token in the middle of the answer."""
    return [of(prompt).answer[NEW // 2]]


@pytest.mark.few(33)
@pytest.mark.parametrize("name", NAMES)
def test_a_replay_is_what_the_loop_did(name: str) -> None:
    """To the length that was asked for, and to an end-of-sequence token."""
    drafter = built(parameters(name, decoding="greedy", largest=6), perturbed(TARGET))
    if drafter.virtual_root:
        with pytest.raises(PairError):
            replay(of(PROMPTS[0]), drafter, max_new_tokens=NEW)
        return
    for prompt, ends in zip(PROMPTS, (False, True), strict=True):
        eos = eos_of(prompt) if ends else []
        live = generate(TARGET, drafter, TargetSample(), prompt, max_new_tokens=NEW, eos_token_ids=eos)
        replayed = replay(of(prompt, eos_token_ids=eos), drafter, max_new_tokens=NEW, eos_token_ids=eos)
        assert_same(replayed, live)
        assert all(math.isnan(seconds) for seconds in times(replayed)), "no time is invented, nor kept of the draft"
        if goes_by_ranks(drafter):
            ranked = replay_by_ranks(of(prompt, eos_token_ids=eos), drafter, max_new_tokens=NEW, eos_token_ids=eos)
            unexpected = [replace(step, expected_acceptance=None) for step in live.steps]
            assert_same(ranked, replace(live, steps=unexpected))


def test_fixed_shapes_of_best_tokens_go_by_ranks() -> None:
    draft = perturbed(TARGET)
    by_ranks = {name for name in NAMES if goes_by_ranks(built(parameters(name, decoding="greedy", largest=6), draft))}
    assert by_ranks >= {"chain4", "binary_n25", "eagle25", "mcsd", "sequoia", "spec_infer_5x8"}
    assert by_ranks.isdisjoint(
        {"opt_tree", "eagle2", "dyspec", "gsd", "prompt_lookup", "dyn_mcsd", "ti_mcsd", "branching_4_2_2_1_iid"}
    )


@pytest.mark.parametrize("top_p", [0.3, 0.9])
def test_ranks_are_of_the_drafts_truncated_distribution(top_p: float) -> None:
    """Children beyond the draft's top-p have probability 0 and an order all the same."""
    drafter = StaticTree(draft=perturbed(TARGET), shape=branching([8, 3, 1]), draft_top_p=top_p, draft_temperature=0.5)
    for prompt in PROMPTS:
        live = generate(TARGET, drafter, TargetSample(), prompt, max_new_tokens=NEW)
        assert timeless(replay_by_ranks(of(prompt), drafter, max_new_tokens=NEW)) == timeless(live)


@pytest.mark.parametrize("levels", [3, 1000])
def test_shapes_share_the_forwards_of_a_draft_that_is_not_kept(levels: int) -> None:
    """With three levels of logits nearly every token has equals: the smaller id comes first, as in a tree."""
    table = torch.randint(levels, (VOCAB, VOCAB), generator=torch.Generator().manual_seed(levels)) / levels
    draft, forwards = BigramLM(table), []
    for shape in (chain(2), branching([4, 2]), branching([VOCAB - 1])):
        drafter = StaticTree(draft=draft, shape=shape)
        live = generate(TARGET, drafter, TargetSample(), PROMPTS[0], max_new_tokens=NEW)
        before = draft.forwards
        assert timeless(replay_by_ranks(of(PROMPTS[0]), drafter, max_new_tokens=NEW)) == timeless(live)
        forwards.append(draft.forwards - before)
    assert forwards[0] > 0 == forwards[1] == forwards[2]
    gone = ref(draft)
    del draft, drafter
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_draft_that_returns_nonsense_has_no_ranks(bad: float) -> None:
    drafter = StaticTree(draft=BigramLM(torch.full((VOCAB, VOCAB), bad)), shape=chain(2))
    with pytest.raises(NonFiniteLogitsError):
        replay_by_ranks(of(PROMPTS[0]), drafter, max_new_tokens=NEW)


def test_a_path_to_the_end_of_the_recording_is_refused_by_ranks_too() -> None:
    """The draft is the target itself, so that its chain is accepted as far as the recording goes."""
    drafter = StaticTree(draft=TARGET, shape=chain(NEW + BEYOND))
    with pytest.raises(PairError, match="record more"):
        replay_by_ranks(of(PROMPTS[0]), drafter, max_new_tokens=NEW)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["chain4", "opt_tree", "gsd", "ssd_adaptive", "dyspec"])
def test_drafts_of_the_targets_own_layers_are_replayed_on_its_keys_and_values(name: str) -> None:
    """The target reads the text once; what it has read stands again behind every step."""
    target = random_llama(0, layers=3, vocab=VOCAB)
    drafter = built(parameters(name, decoding="greedy", largest=6), LayerSkip(target, [1]))
    for prompt, ends in zip(PROMPTS, (False, True), strict=True):
        whole = {"max_new_tokens": NEW, "eos_token_ids": eos_of(prompt) if ends else []}
        live = generate(target, drafter, TargetSample(), prompt, **whole)
        recording = record(target, prompt, beyond=BEYOND, **whole)
        assert_same(replay(recording, drafter, target=target, **whole), live)
        assert timeless(generate(target, drafter, TargetSample(), prompt, **whole)) == timeless(live)


HEADS = {"eagle3": write_eagle_3, "medusa": write_medusa, "dflash": write_dflash}


@pytest.mark.parametrize("kind", HEADS)
def test_heads_are_replayed_from_recorded_features(kind: str, tmp_path) -> None:
    write_target(tmp_path)
    HEADS[kind](tmp_path)
    pair = load(tmp_path, kind)
    drafter = StaticTree(draft=pair.draft, shape=branching([3, 2, 1]))
    for prompt in PROMPTS:
        live = generate(pair.target, drafter, TargetSample(), prompt, max_new_tokens=NEW, eos_token_ids=())
        bare, whole = (
            record(pair.target, prompt, max_new_tokens=NEW, beyond=BEYOND, layers=layers)
            for layers in ((), drafter.needs_hidden)
        )
        assert_same(replay(whole, drafter, max_new_tokens=NEW), live)
        with pytest.raises(PairError, match="no features"):
            replay(bare, drafter, max_new_tokens=NEW)


@pytest.mark.parametrize("layers", [(), (0, 1), (-1,)], ids=str)
def test_prompts_recorded_together_are_those_recorded_alone(layers: tuple[int, ...]) -> None:
    """Of several lengths, one of which ends with a token that others do not reach."""
    prompts = [*PROMPTS, [7], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 11]]
    eos = [of(PROMPTS[0]).answer[NEW // 2 + 1]]
    assert not {*eos} & {prompt[-1] for prompt in prompts}
    given = {"max_new_tokens": NEW, "beyond": BEYOND, "eos_token_ids": eos, "layers": layers}
    alone = [record(TARGET, prompt, **given) for prompt in prompts]
    together = record_together(TARGET, prompts, **given)
    for one, other in zip(alone, together, strict=True):
        assert (one.prompt, one.answer, one.ended) == (other.prompt, other.answer, other.ended)
        assert one.gaps == pytest.approx(other.gaps, abs=1e-4)
        if layers:
            torch.testing.assert_close(one.hidden, other.hidden, rtol=1e-4, atol=1e-5)
    assert {one.ended for one in alone} == {True, False}


def test_what_a_batch_decodes_otherwise_is_decoded_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is taken from a batch unseen: here one answer has another token in its middle."""
    genuine = replaying._decoded

    def wrong(*given: object) -> list[list[int]]:
        first, *others = genuine(*given)
        return [[*first[:9], (first[9] + 1) % VOCAB, *first[10:]], *others]

    monkeypatch.setattr(replaying, "_decoded", wrong)
    found = record_together(TARGET, PROMPTS, max_new_tokens=NEW, beyond=BEYOND)
    assert [one.answer for one in found] == [of(prompt).answer for prompt in PROMPTS]


def test_a_prompt_that_is_refused_alone_is_refused_together() -> None:
    for prompts in ([[], PROMPTS[0]], [PROMPTS[0], []], [PROMPTS[0], PROMPTS[0] * 200]):
        with pytest.raises(PromptError):
            record_together(random_llama(0, vocab=VOCAB, positions=64), prompts, max_new_tokens=NEW, beyond=4)


def test_gaps_are_those_of_plain_forwards() -> None:
    recording = of(PROMPTS[0])
    with torch.inference_mode():
        logits = TARGET.model(torch.tensor([[*recording.prompt, *recording.answer]])).logits[0]
    best = logits[len(recording.prompt) - 1 : -1].topk(2)
    assert best.indices[:, 0].tolist() == list(recording.answer)
    assert recording.gaps == pytest.approx((best.values[:, 0] - best.values[:, 1]).tolist(), abs=1e-4)
    assert len(recording.answer) == NEW + BEYOND


def test_what_needs_the_target_or_more_of_it_is_refused_in_a_sentence() -> None:
    """Trees that are accepted beyond the recording, another end of the answer, drafts of the target's own layers."""
    short = record(TARGET, PROMPTS[0], max_new_tokens=NEW, beyond=0)
    deep = StaticTree(draft=random_llama(0, vocab=VOCAB), shape=chain(BEYOND))
    with pytest.raises(PairError, match="record more tokens"):
        replay(short, deep, max_new_tokens=NEW)
    with pytest.raises(PairError, match="which is to end no answer"):
        replay(of(PROMPTS[0], eos_token_ids=eos_of(PROMPTS[0])), deep, max_new_tokens=NEW)
    with pytest.raises(PairError, match="own layers"):
        replay(of(PROMPTS[0]), StaticTree(draft=LayerSkip(TARGET, [1]), shape=chain(2)), max_new_tokens=NEW)


def test_features_are_those_of_the_target() -> None:
    recording = of(PROMPTS[1], layers=(-1,))
    TARGET.keep_hidden = (-1,)
    TARGET.reset(64)
    with torch.inference_mode():
        plain = TARGET.extend(torch.tensor([*recording.prompt, *recording.answer])).hidden
    TARGET.keep_hidden = ()
    assert recording.hidden is not None
    torch.testing.assert_close(recording.hidden, plain, rtol=1e-4, atol=1e-5)


def test_a_tree_may_be_accepted_to_the_targets_last_position() -> None:
    """As in the loop: behind it nothing is to be known, and nothing is in the output."""
    target, room = random_llama(0, vocab=VOCAB, positions=len(PROMPTS[0]) + NEW), len(PROMPTS[0]) + NEW
    drafter = StaticTree(draft=random_llama(0, vocab=VOCAB, positions=room + BEYOND), shape=chain(BEYOND))
    live = generate(target, drafter, TargetSample(), PROMPTS[0], max_new_tokens=NEW)
    recording = record(target, PROMPTS[0], max_new_tokens=NEW, beyond=BEYOND)
    assert len(recording.answer) == NEW
    replayed = replay(recording, drafter, max_new_tokens=NEW)
    assert (replayed.tokens, len(replayed.steps)) == (live.tokens, len(live.steps))
    assert [step.kept for step in replayed.steps] == [step.kept for step in live.steps]


def test_a_recording_ends_where_the_target_has_no_more_positions() -> None:
    """The output has room in any case, and what is asked for behind it as far as there is."""
    target = random_llama(0, vocab=VOCAB, positions=len(PROMPTS[0]) + NEW + 2)
    assert len(record(target, PROMPTS[0], max_new_tokens=NEW, beyond=BEYOND).answer) == NEW + 2
    with pytest.raises(PromptError, match="positions"):
        record(target, [*PROMPTS[0], 1, 2, 3], max_new_tokens=NEW, beyond=BEYOND)


def test_features_are_no_longer_kept_behind_an_error() -> None:
    def fail() -> None:
        with TARGET.keeping((-1,)):
            assert TARGET.keep_hidden == (-1,)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert TARGET.keep_hidden == ()
