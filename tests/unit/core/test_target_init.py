"""Target-initialised trees in the engine: what is counted, what is cached, what is refused."""

import pytest
import torch
from doubles import BigramLM, context_for, paths_of, random_llama

from specdec_core import CausalLM, Sampling, generate, load_pair, shapes
from specdec_core.checks import check_lossless
from specdec_core.drafters import Autoregressive, CausalDraft, EagleDraft, SelfDraft, StaticTree, TargetInit
from specdec_core.errors import NonFiniteLogitsError, PairError
from specdec_core.models import LayerSkip, ModelOutput, ModelSpec
from specdec_core.models.causal_lm import FINAL
from specdec_core.sampling import draft_probs
from specdec_core.verifiers import (
    Chain,
    Greedy,
    GsdNondeterministic,
    IndependentLongest,
    LongestSubtree,
    MultiCandidate,
    TargetSample,
    WithoutReplacement,
)
from specdec_trees.prompts.embedded import TINY, prompts

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
RULES = {"independent": IndependentLongest(), "subtree": LongestSubtree(rule=MultiCandidate())}
T07 = Sampling(0.7)


def plain(target, new, prompt=PROMPT):
    return generate(target, Autoregressive(), Greedy(), prompt, max_new_tokens=new).tokens


def text_prompt(pair):
    return pair.tokenizer(prompts(1)[0].turns[0])["input_ids"][:48]


@pytest.fixture
def forwards(monkeypatch):
    """How many forwards each model has run."""
    counts, run = {}, CausalLM._run

    def counted(self, *args, **options):
        counts[id(self)] = counts.get(id(self), 0) + 1
        return run(self, *args, **options)

    monkeypatch.setattr(CausalLM, "_run", counted)
    return counts


def watched(drafter, check):
    """The drafter, with a look at the context before every step."""
    grow = drafter.grow
    drafter.grow = lambda context: check(context) or grow(context)
    return drafter


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("order", ["creation", "dfs"])
def test_every_committed_token_is_in_the_targets_cache_and_no_forward_is_wasted(rule, order, tiny, forwards):
    prompt, target, seen, expected = text_prompt(tiny), tiny.target, [], []

    def check(context):
        assert context.root.first
        assert target.cache.length == len(context.tokens)
        seen.append(list(context.tokens))

    def watch(tree, scored, verdict):
        assert torch.bincount(tree.depths).tolist() == [1, 2, 8, 24, 24, 24]
        assert (tree.parents[1:3].tolist(), sum(not len(tree.children(node)) for node in range(83))) == ([0, 0], 24)
        assert (verdict.next_token, scored.logits.shape[0]) == (None, 83)
        expected.append(float(tree.path_probs.sum()) - 1)

    drafter = watched(TargetInit(draft=tiny.draft, widths=(2, 4, 3, 1, 1)), check)
    found = generate(
        target, drafter, RULES[rule], prompt, max_new_tokens=30, sampling=T07, allow_lossy=True, watch=watch,
        node_order=order, rng=torch.Generator().manual_seed(2),
    )  # fmt: skip
    steps = found.steps
    assert forwards[id(target)] == 1 + len(steps)
    assert forwards[id(tiny.draft)] == 1 + 4 * len(steps)
    assert {(step.num_drafted, step.depth, step.draft_forwards) for step in steps} == {(82, 5, 4)}
    assert sum(step.kept for step in steps) == len(found.tokens) == 30
    committed = len(prompt) + sum(step.acceptance_length for step in steps)
    assert target.cache.length == committed
    for before, after, step in zip(seen, [*seen[1:], None], steps, strict=True):
        assert after is None or len(after) - len(before) == step.acceptance_length >= 1
    assert [step.expected_acceptance for step in steps] == pytest.approx(expected)
    assert max(step.acceptance_length for step in steps) > 2


@pytest.mark.parametrize("sampling", [T07, Sampling(0.7, top_p=0.8), Sampling()])
def test_the_distribution_that_is_left_is_a_fresh_forwards(sampling, tiny):
    """Before the first step, and wherever the paper's rule leaves p: behind a bare first token and a whole path."""
    fresh = load_pair(str(TINY / "target"), str(TINY / "draft"), device="cpu").target
    prompt, whole = text_prompt(tiny), [True]

    def check(context):
        if whole[-1]:
            fresh.reset(256)
            probs = sampling.open_probs(fresh.prefill(torch.tensor(context.tokens)).logits[-1])
            assert torch.allclose(context.root.probs, probs, atol=1e-4)
            assert context.root.probs.sum() == pytest.approx(1, abs=1e-5)

    def watch(tree, scored, verdict):
        whole.append(sampling.greedy or len(verdict.path) in (2, 4))

    drafter = watched(TargetInit(draft=tiny.draft, widths=(2, 2, 1)), check)
    generate(
        tiny.target, drafter, RULES["independent"], prompt, max_new_tokens=40, sampling=sampling, allow_lossy=True,
        watch=watch,
    )  # fmt: skip
    assert whole.count(True) > 3
    assert sampling.greedy or not all(whole)


PAIRS = {
    "toy": lambda: (random_llama(0), random_llama(1, layers=1)),
    "itself": lambda: (random_llama(0), random_llama(0)),
    "tiny": lambda: two(load_pair(str(TINY / "target"), str(TINY / "draft"), device="cpu")),
    "eagle": lambda: two(eagle()),
    "layer_skip": lambda: skipping(random_llama(0, layers=4)),
}


def eagle():
    return load_pair(str(TINY / "target"), ModelSpec(id=str(TINY / "eagle"), kind="eagle"), device="cpu")


def two(pair):
    return pair.target, pair.draft


def skipping(target):
    return target, LayerSkip(target, [2])


@pytest.mark.long
@pytest.mark.parametrize("draws", ["topk", "without_replacement"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("pair", PAIRS)
def test_at_temperature_0_one_first_token_gives_the_targets_own_tokens(pair, rule, draws):
    """However the children are picked: the first token is the target's best, not a draw at temperature 1."""
    target, draft = PAIRS[pair]()
    drafter = TargetInit(draft=draft, widths=(1, 2, 2), draws=draws)
    found = generate(target, drafter, RULES[rule], PROMPT, max_new_tokens=24, allow_lossy=rule == "independent")
    assert target.cache.length == len(PROMPT) + sum(step.acceptance_length for step in found.steps)
    assert found.tokens == plain(target, 24)
    assert pair != "itself" or draws != "topk" or {step.acceptance_length for step in found.steps} == {3}
    assert pair not in ("tiny", "eagle", "itself") or draws != "topk" or len(found.steps) < 24


@pytest.mark.parametrize("rule", RULES)
def test_at_temperature_0_the_second_best_first_token_may_win(rule):
    """Behind the best one the draft is wrong, behind the second best it is right."""
    target, draft = torch.zeros(4, 4), torch.zeros(4, 4)
    target[0], target[1, 3], target[2, 3] = torch.tensor([0.0, 2.0, 1.0, 0.0]), 1.0, 1.0
    draft[1, 0], draft[2, 3] = 1.0, 1.0
    tokens = []
    for width in (1, 2):
        drafter = TargetInit(draft=BigramLM(draft), widths=(width, 1), draws="topk")
        found = generate(BigramLM(target), drafter, RULES[rule], [0], max_new_tokens=2, allow_lossy=True)
        tokens.append(found.tokens)
    assert tokens[0] == plain(BigramLM(target), 2, [0]) == [1, 3]
    assert tokens[1] == [2, 3]
    with pytest.raises(PairError, match="does not keep the target's distribution for targets_topk children"):
        generate(BigramLM(target), drafter, RULES[rule], [0], max_new_tokens=2)


def fresh_rows(model, text, tokens):
    """Logits behind the text and each of the tokens, all read anew."""
    rows = []
    for token in tokens:
        model.reset(128)
        rows.append(model.prefill(torch.tensor([*text, token])).logits[-1])
    return torch.stack(rows)


COMMITS = {
    "nothing_below": ([1], [2]),
    "middle": ([0, 4], [7, 5]),
    "last_level_read": ([2, 5, 6], [9, 6, 8]),
    "last_level_unread": ([2, 5, 6], [9, 6, 8, 11]),
}
"""Slots that are kept, and the tokens that are committed."""


@pytest.mark.parametrize("name", COMMITS)
def test_below_a_virtual_root_rows_and_slots_are_those_of_plain_text(name):
    """Three first nodes, two children below the first and one below the third, one more below that."""
    draft, fresh = CausalDraft(random_llama(1)), random_llama(1)
    text = list(PROMPT)
    draft.reset(torch.tensor(text), ModelOutput(torch.zeros(1, 61)))
    for _ in range(3):
        context = context_for(text[-1], tuple(text[:-1]))
        first = torch.tensor([7, 2, 9])
        rows = draft.begin_below(context, first).logits
        assert torch.allclose(rows, fresh_rows(fresh, text, first.tolist()), atol=1e-4)
        below = draft.expand(torch.tensor([4, 5, 6]), torch.tensor([0, 0, 2])).logits
        wanted = torch.cat((fresh_rows(fresh, [*text, 7], [4, 5]), fresh_rows(fresh, [*text, 9], [6])))
        assert torch.allclose(below, wanted, atol=1e-4)
        deep = draft.expand(torch.tensor([8]), torch.tensor([5])).logits
        assert torch.allclose(deep, fresh_rows(fresh, [*text, 9, 6], [8]), atol=1e-4)
        slots, tokens = COMMITS[name]
        draft.model.cache.commit(draft._start, torch.tensor(slots))
        text += tokens
        assert draft.model.cache.length == len(text) - (name == "last_level_unread")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sampling", [T07, Sampling(0.7, top_p=0.5)])
def test_every_distribution_of_every_step_is_the_drafts_after_its_path(rule, sampling, tiny):
    """Whatever was committed before, and where the distribution has fewer tokens than the level has places."""
    fresh = load_pair(str(TINY / "target"), str(TINY / "draft"), device="cpu").draft
    committed, gaps, firsts, lengths = list(PROMPT), [], [], []

    def watch(tree, scored, verdict):
        assert int(tree.tokens[0]) == committed[-1]
        for node, path in list(enumerate(paths_of(tree)))[1:]:
            if len(tree.children(node)):
                q = draft_probs(fresh_rows(fresh, [*committed, *path[:-1]], path[-1:]), 1.0)[0]
                gaps.append(float((q - tree.q_after(node)).abs().max()))
        children = torch.arange(1 + len(tree.children(0)), tree.num_nodes)
        drawn = torch.stack([tree.q_after(int(tree.parents[n]))[tree.tokens[n]] for n in children])
        assert torch.equal(drawn, tree.edge_probs[children])
        firsts.append(len(tree.children(0)))
        lengths.append(len(verdict.tokens))
        committed.extend(verdict.tokens)

    drafter = TargetInit(draft=tiny.draft, widths=(3, 2, 1))
    generate(
        tiny.target, drafter, RULES[rule], list(committed), max_new_tokens=36, sampling=sampling, allow_lossy=True,
        watch=watch,
    )  # fmt: skip
    assert max(gaps) < 1e-4
    assert {1, 2, 3} == set(lengths)
    assert sampling.top_p == 1 or min(firsts) < 3


def test_other_drafts_have_the_rows_of_a_pending_root_below_a_virtual_one():
    target = random_llama(0, layers=4)
    rows = []
    for read in ("begin", "begin_below"):
        target.reset(64)
        target.prefill(torch.tensor(PROMPT))
        draft = SelfDraft(LayerSkip(target, [1, 2]))
        if read == "begin":
            rows.append(draft.begin(context_for(7, tuple(PROMPT))).logits[0])
        else:
            below = draft.begin_below(context_for(PROMPT[-1], tuple(PROMPT[:-1])), torch.tensor([2, 7]))
            rows.append(below.logits[1])
            assert target.cache.length == len(PROMPT) + 2
    assert torch.allclose(*rows, atol=1e-5)


def test_a_heads_first_level_has_the_true_features_after_any_commit(monkeypatch):
    pair, other = eagle(), eagle()
    begin_below, gaps = EagleDraft.begin_below, []

    def checked(self, context, tokens):
        output, text = begin_below(self, context, tokens), context.tokens
        for row, token in zip(output.logits, tokens.tolist(), strict=True):
            other.target.keep_hidden = FINAL
            other.target.reset(256)
            fresh = EagleDraft(other.draft)
            fresh.reset(torch.tensor(text), other.target.prefill(torch.tensor(text)))
            gaps.append(float((row - fresh.begin(context_for(token, tuple(text))).logits[0]).abs().max()))
        return output

    monkeypatch.setattr(EagleDraft, "begin_below", checked)
    drafter = TargetInit(draft=pair.draft, widths=(2, 2, 1))
    found = generate(
        pair.target, drafter, RULES["subtree"], PROMPT, max_new_tokens=40, sampling=Sampling(1.2),
        allow_lossy=True, rng=torch.Generator().manual_seed(3),
    )  # fmt: skip
    assert max(gaps) < 1e-4
    assert {1, 3} <= {step.acceptance_length for step in found.steps}
    with pytest.raises(PairError, match="one-token prompt"):
        generate(pair.target, drafter, RULES["subtree"], [5], max_new_tokens=4, sampling=T07, allow_lossy=True)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("draws", ["without_replacement", "iid"])
def test_where_the_distribution_has_fewer_tokens_the_first_level_is_smaller(rule, draws):
    """Rows of one, two and all tokens; nothing without probability is ever committed."""
    table = torch.randn(6, 6, generator=torch.Generator().manual_seed(1))
    table[1, 4] = 60.0  # certain
    table[2, 1:] = -torch.inf
    table[3, :4] = -torch.inf
    sampling, sizes, committed = Sampling(1.0, top_p=0.9), [], [0]
    p = sampling.probs(table)
    draft = BigramLM(torch.randn(6, 6, generator=torch.Generator().manual_seed(2)))
    drafter = TargetInit(draft=draft, widths=(9, 3, 1), draws=draws)

    def watch(tree, scored, verdict):
        first = tree.children(0)
        sizes.append(len(first))
        assert len(set(tree.tokens[first].tolist())) == len(first) == int((scored.root_probs > 0).sum())
        assert (scored.root_probs[tree.tokens[first]] > 0).all()
        assert torch.bincount(tree.depths).tolist() == [1, *(len(first) * width for width in (1, 3, 3))]
        for token in verdict.tokens:
            assert p[committed[-1], token] > 0
            committed.append(token)
        assert verdict.next_probs[p[committed[-1]] == 0].sum() == 0

    rng = torch.Generator().manual_seed(0)
    found = generate(
        BigramLM(table), drafter, RULES[rule] if draws != "iid" or rule == "independent" else
        LongestSubtree(rule=MultiCandidate(replacement=True)), [0], max_new_tokens=120, sampling=sampling,
        allow_lossy=True, watch=watch, rng=rng,
    )  # fmt: skip
    assert committed[1 : 1 + len(found.tokens)] == found.tokens
    assert {1, 2} < set(sizes)


def test_virtual_roots_need_a_rule_that_leaves_a_distribution():
    drafter = TargetInit(draft=BigramLM(torch.zeros(4, 4)), widths=(1, 2))
    for rule in (TargetSample(), MultiCandidate(), WithoutReplacement(), Greedy(), Chain(), GsdNondeterministic()):
        for sampling in (T07, Sampling()):
            for allow_lossy in (False, True):
                with pytest.raises(
                    PairError, match=rf"which {type(rule).__name__} does not leave; use verifier=by_root"
                ):
                    check_lossless(drafter, rule, sampling, allow_lossy=allow_lossy)


@pytest.mark.parametrize("drafter", ["static", "autoregressive"])
@pytest.mark.parametrize("rule", RULES)
def test_rules_for_virtual_roots_refuse_pending_ones(drafter, rule):
    model = BigramLM(torch.zeros(4, 4))
    own = Autoregressive() if drafter == "autoregressive" else StaticTree(draft=model, shape=shapes.chain(2))
    for sampling in (T07, Sampling()):
        with pytest.raises(PairError, match="start from the target's distribution, and those of"):
            generate(
                BigramLM(torch.zeros(4, 4)), own, RULES[rule], [0], max_new_tokens=2, sampling=sampling,
                allow_lossy=True,
            )  # fmt: skip


def test_only_one_first_token_under_a_lossless_rule_is_lossless():
    draft = BigramLM(torch.zeros(4, 4))
    for draws, rule in {
        "without_replacement": MultiCandidate(),
        "iid": MultiCandidate(replacement=True),
        "topk": TargetSample(),
    }.items():
        for width, sampling in ((width, sampling) for width in (1, 2) for sampling in (T07, Sampling())):
            drafter = TargetInit(draft=draft, widths=(width, 2), draws=draws)
            assert check_lossless(drafter, LongestSubtree(rule=rule), sampling, allow_lossy=True) == (width == 1)
            with pytest.raises(PairError, match="IndependentLongest does not keep the target's distribution"):
                check_lossless(drafter, IndependentLongest(), sampling)
    wrong = LongestSubtree(rule=MultiCandidate(replacement=True))
    drafter = TargetInit(draft=draft, widths=(1, 2))
    with pytest.raises(PairError, match="for target_without_replacement children of TargetInit; with one first token"):
        check_lossless(drafter, wrong, T07)
    assert check_lossless(drafter, wrong, Sampling()), "greedy verification whatever the rule"


@pytest.mark.parametrize("widths", [(), (2,), (2, 0), (0, 2), (2, 0, 2)])
def test_widths_that_leave_nothing_to_draft_are_refused(widths):
    with pytest.raises(ValueError, match="leave nothing to draft; give two"):
        TargetInit(draft=BigramLM(torch.zeros(4, 4)), widths=widths)


def test_a_distribution_is_needed():
    drafter = TargetInit(draft=BigramLM(torch.zeros(4, 4)), widths=(1, 2))
    with pytest.raises(PairError, match="which the rule left out"):
        drafter.grow(context_for(0))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sampling", [T07, Sampling()])
@pytest.mark.parametrize(("row", "where"), [(0, "prefill"), (1, "step 0")])
def test_nonsense_of_the_target_is_named(rule, sampling, row, where):
    table = torch.full((3, 3), -9.0)
    table[0, 1] = 9.0
    table[row] = torch.nan
    drafter = TargetInit(draft=BigramLM(torch.zeros(3, 3)), widths=(1, 1))
    with pytest.raises(NonFiniteLogitsError, match=rf"{where}: the target returned NaN"):
        generate(BigramLM(table), drafter, RULES[rule], [0], max_new_tokens=9, sampling=sampling, allow_lossy=True)


@pytest.mark.parametrize("new", [1, 2, 7])
def test_length_and_eos_end_an_answer_inside_a_path(new):
    target = random_llama(0)
    free = plain(target, 20)
    drafter = TargetInit(draft=random_llama(0), widths=(1, 1, 1, 1), draws="topk")
    cut = generate(target, drafter, RULES["subtree"], PROMPT, max_new_tokens=new)
    assert (cut.tokens, cut.finish) == (free[:new], "length")
    assert sum(step.kept for step in cut.steps) == new
    eos = free[5]
    end = free.index(eos) + 1
    ended = generate(target, drafter, RULES["subtree"], PROMPT, max_new_tokens=20, eos_token_ids=[eos])
    assert (ended.tokens, ended.finish) == (free[:end], "eos")
    assert sum(step.acceptance_length for step in ended.steps) == end
