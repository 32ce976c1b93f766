"""The loop against the target's own generate, its stop rules, its refusals, and both kinds of root."""

from dataclasses import replace

import jaxtyping
import numpy as np
import pytest
import torch
from doubles import BigramLM, random_llama, random_tree

from specdec_core import CausalLM, Sampling, TokenTree, Verdict, generate, shapes
from specdec_core.checks import check_lossless
from specdec_core.drafters import Autoregressive, Context, Eagle2, OptTree, StaticTree
from specdec_core.errors import NonFiniteLogitsError, PairError, PromptError
from specdec_core.models import ModelOutput
from specdec_core.roots import Virtual
from specdec_core.verifiers import (
    Eagle1,
    Greedy,
    GsdNondeterministic,
    IndependentLongest,
    KSeq,
    LongestSubtree,
    MultiCandidate,
    SpecInfer,
    TargetSample,
    WithoutReplacement,
)
from specdec_core.verifiers.base import follow, target_choices

DRAFTERS = {
    "autoregressive": lambda draft: Autoregressive(),
    "chain": lambda draft: StaticTree(draft=draft, shape=shapes.chain(4)),
    "binary": lambda draft: StaticTree(draft=draft, shape=shapes.kary(2, 4)),
    "eagle25": lambda draft: StaticTree(draft=draft, shape=shapes.eagle25()),
    "k_sequences": lambda draft: StaticTree(draft=draft, shape=shapes.k_sequences(3, 3)),
    "iid": lambda draft: StaticTree(draft=draft, shape=shapes.branching([3, 2]), draws="iid"),
    "without_replacement": lambda d: StaticTree(draft=d, shape=shapes.branching([3, 2]), draws="without_replacement"),
    "opt_tree": lambda draft: OptTree(draft=draft, n=20, delta=0.1),
    "eagle2": lambda draft: Eagle2(draft=draft, total=20, depth=3, k=4),
}
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def own_greedy(target: CausalLM, prompt: list[int], new: int, eos: int | None = None) -> list[int]:
    """transformers' own generate, with its own cache."""
    options = {"eos_token_id": eos} if eos is not None else {"eos_token_id": None}
    out = target.model.generate(torch.tensor([prompt]), max_new_tokens=new, do_sample=False, pad_token_id=0, **options)
    return out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("same_draft", [False, True])
def test_greedy_output_is_the_targets_own(name, same_draft, toy_target, toy_draft):
    """With a random draft almost nothing is accepted, with the target as its own draft almost everything."""
    draft = random_llama(0) if same_draft else toy_draft
    result = generate(toy_target, DRAFTERS[name](draft), Greedy(), PROMPT, max_new_tokens=60)
    assert result.tokens == own_greedy(toy_target, PROMPT, 60)
    assert sum(step.kept for step in result.steps) == 59
    assert all(step.num_accepted <= step.depth <= step.num_drafted for step in result.steps)
    if same_draft and name == "chain":
        assert [step.acceptance_length for step in result.steps] == [5] * 12


@pytest.mark.parametrize("name", DRAFTERS)
def test_nothing_after_eos_and_nothing_beyond_the_length(name, toy_target):
    free = own_greedy(toy_target, PROMPT, 40)
    eos = free[17]
    end = free.index(eos) + 1
    drafter = DRAFTERS[name](random_llama(0))
    result = generate(toy_target, drafter, TargetSample(), PROMPT, max_new_tokens=40, eos_token_ids=[eos])
    assert (result.tokens, result.finish) == (free[:end], "eos")
    assert sum(step.acceptance_length for step in result.steps) == end - 1
    for new in (1, 2, end - 1):
        cut = generate(toy_target, drafter, TargetSample(), PROMPT, max_new_tokens=new, eos_token_ids=[eos])
        assert (cut.tokens, cut.finish) == (free[:new], "length")
        assert sum(step.kept for step in cut.steps) == new - 1


@pytest.mark.parametrize("name", ["autoregressive", "opt_tree"])
def test_without_a_word_the_targets_own_end_tokens_end_it(name, tiny, monkeypatch):
    prompt = tiny.tokenizer("def read_file(path):\n")["input_ids"]
    assert {*tiny.target.eos_token_ids} == {tiny.tokenizer.eos_token_id}
    drafter = DRAFTERS[name](tiny.draft)
    free = generate(tiny.target, drafter, Greedy(), prompt, max_new_tokens=24, eos_token_ids=()).tokens
    monkeypatch.setattr(tiny.target, "eos_token_ids", [free[11]])
    result = generate(tiny.target, drafter, Greedy(), prompt, max_new_tokens=24)
    assert (result.tokens, result.finish) == (free[: free.index(free[11]) + 1], "eos")
    assert generate(tiny.target, drafter, Greedy(), prompt, max_new_tokens=24, eos_token_ids=()).tokens == free


@pytest.mark.parametrize("name", DRAFTERS)
def test_streamed_tokens_are_the_output_step_by_step(name, toy_target):
    eos = generate(toy_target, Autoregressive(), Greedy(), PROMPT, max_new_tokens=40).tokens[17]
    for ends in ((), (eos,)):
        streamed = []
        drafter = DRAFTERS[name](random_llama(0))
        done = generate(
            toy_target, drafter, Greedy(), PROMPT, max_new_tokens=23, eos_token_ids=ends, on_tokens=streamed.append
        )
        assert [token for tokens in streamed for token in tokens] == done.tokens
        assert [len(tokens) for tokens in streamed] == [1, *(step.kept for step in done.steps if step.kept)]


def test_eos_from_the_prefill_ends_without_a_step(toy_target):
    first = own_greedy(toy_target, PROMPT, 1)
    result = generate(toy_target, Autoregressive(), Greedy(), PROMPT, max_new_tokens=9, eos_token_ids=first)
    assert (result.tokens, result.finish, result.steps, result.decode_s) == (first, "eos", [], 0)


def test_times_and_counts_of_steps(toy_target, toy_draft):
    drafter = StaticTree(draft=toy_draft, shape=shapes.eagle25())
    result = generate(toy_target, drafter, Greedy(), PROMPT, max_new_tokens=20)
    for number, step in enumerate(result.steps):
        assert (step.num_drafted, step.depth, step.draft_forwards) == (25, 5, 5)
        assert min(step.draft_s, step.tree_s, step.score_s, step.judge_s, step.commit_s) > 0
        # begin() reads the new root and at most one accepted leaf; the inner nodes are 4 + 4 + 1 + 1
        assert step.draft_tokens in ((11,) if number == 0 else (11, 12))
    assert result.prefill_s > 0
    assert result.decode_s == pytest.approx(
        sum(s.draft_s + s.tree_s + s.score_s + s.judge_s + s.commit_s for s in result.steps)
    )


def test_the_sum_of_spans_is_the_decode_loops_wall_time(tiny, monkeypatch):
    """Of some generations the one least disturbed, since on a busy machine the clock runs on between two spans.

    Without the checks of shapes, of which some lie between spans, and which users do not have.
    """
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    drafter = StaticTree(draft=tiny.draft, shape=shapes.kary(2, 4))
    found = [generate(tiny.target, drafter, Greedy(), [1, 2, 3], max_new_tokens=16)]
    while found[-1].wall_s >= 1.02 * found[-1].decode_s and len(found) < 100:
        found.append(generate(tiny.target, drafter, Greedy(), [1, 2, 3], max_new_tokens=16))
    assert all(made.decode_s <= made.wall_s + 1e-6 for made in found)
    assert found[-1].wall_s < 1.02 * found[-1].decode_s
    nothing = generate(tiny.target, drafter, Greedy(), [1, 2, 3], max_new_tokens=1)
    assert nothing.decode_s == 0
    assert nothing.wall_s < found[0].wall_s


def test_room_up_to_the_last_position_is_used_and_no_further(toy_draft):
    target = random_llama(0, positions=32)
    drafter = OptTree(draft=toy_draft, n=20, delta=0.0, max_depth=6)
    result = generate(target, drafter, Greedy(), PROMPT, max_new_tokens=24)
    assert result.tokens == own_greedy(target, PROMPT, 24)
    with pytest.raises(PromptError, match=r"32 positions.* 8 tokens.* 25 more"):
        generate(target, drafter, Greedy(), PROMPT, max_new_tokens=25)


@pytest.mark.parametrize(
    ("prompt", "options", "sentence"),
    [
        ([], {"max_new_tokens": 3}, "prompt is empty"),
        ([1, 2], {"max_new_tokens": 0}, "max_new_tokens must be at least 1"),
        ([1, 2], {"max_new_tokens": 3, "eos_token_ids": [2]}, "ends with the end-of-sequence token 2"),
    ],
)
def test_prompts_that_cannot_be_decoded(prompt, options, sentence, toy_target):
    with pytest.raises(PromptError, match=sentence):
        generate(toy_target, Autoregressive(), Greedy(), prompt, **options)


@pytest.mark.parametrize(
    "prompt", ["a text", [[1, 2], [3, 4]], torch.tensor([[1, 2]]), ["1", "2"], [0.5, 2.0]], ids=str
)
def test_a_text_and_a_batch_are_no_prompt(prompt, toy_target, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users have no checks of types
    with pytest.raises(PromptError, match="neither a text nor a batch"):
        generate(toy_target, Autoregressive(), Greedy(), prompt, max_new_tokens=3)
    for right in ([1, 2], torch.tensor([1, 2]), np.array([1, 2]), (1, 2)):
        assert generate(toy_target, Autoregressive(), Greedy(), right, max_new_tokens=3).tokens


def test_other_vocabularies_and_rules_that_do_not_fit_are_refused(toy_target, toy_draft):
    drafter = StaticTree(draft=random_llama(1, vocab=40), shape=shapes.chain(2))
    with pytest.raises(PairError, match="vocabulary of 40 tokens and the target one of 61"):
        generate(toy_target, drafter, Greedy(), PROMPT, max_new_tokens=3)
    with pytest.raises(PairError, match="temperature 0 only"):
        generate(toy_target, Autoregressive(), Greedy(), PROMPT, max_new_tokens=3, sampling=Sampling(1.0))

    class Lossy(TargetSample):
        lossless_for = frozenset({"iid"})

    drafter = StaticTree(draft=toy_draft, shape=shapes.chain(2))
    options = {"max_new_tokens": 3, "sampling": Sampling(1.0)}
    with pytest.raises(PairError, match="allow_lossy"):
        generate(toy_target, drafter, Lossy(), PROMPT, **options)
    assert generate(toy_target, drafter, Lossy(), PROMPT, **options, allow_lossy=True).tokens
    assert check_lossless(drafter, Lossy(), Sampling(1.0), allow_lossy=True) is False
    assert check_lossless(drafter, Lossy(), Sampling(0.0)) is True


def test_a_rule_that_needs_q_says_so_where_the_drafter_kept_none(toy_target, toy_draft):
    drafter = StaticTree(draft=toy_draft, shape=shapes.chain(2))
    with pytest.raises(PairError, match="the tree has no draft_probs"):
        generate(toy_target, drafter, SpecInfer(), PROMPT, max_new_tokens=3, sampling=Sampling(1.0), allow_lossy=True)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_name_the_step_and_invent_no_token(bad, temperature):
    """Token 2 is followed by nonsense; greedy decoding gets there from 0 by 1."""
    table = torch.full((4, 4), -torch.inf)
    table[0, 1] = table[1, 2] = 0.0
    table[2, 3] = bad
    options = {"max_new_tokens": 9, "sampling": Sampling(temperature)}
    with pytest.raises(NonFiniteLogitsError, match=r"step 1: the target"):
        generate(BigramLM(table), Autoregressive(), TargetSample(), [0], **options)
    with pytest.raises(NonFiniteLogitsError, match="prefill"):
        generate(BigramLM(table), Autoregressive(), TargetSample(), [2], **options)
    good, bad_draft = BigramLM(torch.zeros(4, 4)), BigramLM(torch.full((4, 4), bad))
    drafter = StaticTree(draft=bad_draft, shape=shapes.chain(2))
    with pytest.raises(NonFiniteLogitsError, match=r"step 0: the draft"):
        generate(good, drafter, TargetSample(), [0], **options)


RULES = [TargetSample(), SpecInfer(), WithoutReplacement(), KSeq(), MultiCandidate(), Eagle1()]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("filters", [{}, {"top_k": 3}, {"top_p": 0.9}])
def test_nonsense_on_the_accepted_path_is_found_by_every_rule(rule, filters, depth, bad):
    """Token 1 is followed by 2, and so on: of the path 1, 2, 3 all is accepted down to where the target fails."""
    logits = torch.full((4, 5), -30.0)
    logits[range(4), [1, 2, 3, 4]] = 30.0
    q = logits[:3].softmax(-1)
    logits[depth] = bad
    tree = TokenTree(torch.arange(4), torch.arange(-1, 3), torch.ones(4), q, torch.tensor([0, 1, 2, -1]))
    rng = torch.Generator().manual_seed(0)
    with pytest.raises(NonFiniteLogitsError, match="target"):
        rule.judge(tree, ModelOutput(logits), Sampling(1.0, **filters), rng)
    logits[depth] = 30 * torch.eye(5)[depth + 1]
    assert rule.judge(tree, ModelOutput(logits), Sampling(1.0, **filters), rng).tokens == (1, 2, 3)
    if isinstance(rule, KSeq):  # to the others a child of no probability is no draw
        q[depth] = float("nan")
        with pytest.raises(NonFiniteLogitsError, match="draft"):
            rule.judge(tree, ModelOutput(logits), Sampling(1.0, **filters), rng)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "rule",
    [*(LongestSubtree(rule=rule) for rule in (None, *RULES)), IndependentLongest(), GsdNondeterministic()],
    ids=lambda rule: f"{type(rule).__name__} {type(getattr(rule, 'rule', None)).__name__}",
)
@pytest.mark.parametrize("node", [1, 2, 3, 4])
def test_nonsense_at_any_node_is_found_where_the_longest_path_wins(rule, node, temperature):
    """Two first tokens with a child each: what loses may have lost by nonsense."""
    tree = TokenTree(
        torch.tensor([0, 1, 2, 3, 4]), torch.tensor([-1, 0, 0, 1, 2]), torch.ones(5), torch.full((3, 6), 1 / 6)
    )
    tree = replace(tree, draft_rows=torch.tensor([0, 1, 2, -1, -1]))
    logits = torch.randn(5, 6, generator=torch.Generator().manual_seed(node))
    logits[node, 3] = float("nan")
    output = ModelOutput(logits, root_probs=torch.full((6,), 1 / 6))
    with pytest.raises(NonFiniteLogitsError, match="target"):
        rule.judge(tree, output, Sampling(temperature), torch.Generator().manual_seed(0))


def test_drawing_at_visited_nodes_alone_is_following_draws_at_all_of_them():
    rng = torch.Generator().manual_seed(1)
    depths = set()
    for seed in range(60):
        tree = random_tree(30, 6, rng)
        output, sampling = ModelOutput(2 * torch.randn(30, 6, generator=rng)), Sampling(0.8, (0.7, 1.0)[seed % 2])
        walked, whole = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)
        verdict = TargetSample().judge(tree, output, sampling, walked)
        followed = follow(tree, target_choices(output, sampling, whole))
        assert (verdict.path.tolist(), verdict.tokens, verdict.next_token) == (
            followed.path.tolist(),
            followed.tokens,
            followed.next_token,
        )
        depths.add(len(verdict.tokens))
        assert torch.equal(walked.get_state(), whole.get_state())
    assert len(depths) > 2


def test_watch_sees_every_tree_and_row(toy_target, toy_draft):
    seen: list[tuple[int, int, int]] = []

    def watch(tree: TokenTree, target: ModelOutput, verdict: Verdict) -> None:
        seen.append((tree.num_nodes, target.logits.shape[0], len(verdict.tokens)))

    drafter = OptTree(draft=toy_draft, n=7, delta=0.1)
    result = generate(toy_target, drafter, Greedy(), PROMPT, max_new_tokens=12, watch=watch)
    assert [(s.num_drafted + 1, s.num_drafted + 1, s.num_accepted) for s in result.steps] == seen


def test_one_object_as_target_and_draft_is_refused(toy_target):
    drafter = StaticTree(draft=toy_target, shape=shapes.chain(2))
    with pytest.raises(PairError, match="same object"):
        generate(toy_target, drafter, Greedy(), PROMPT, max_new_tokens=3)


def test_two_wrappers_of_one_model_are_a_pair(toy_target):
    drafter = StaticTree(draft=CausalLM(toy_target.model), shape=shapes.chain(2))
    result = generate(toy_target, drafter, Greedy(), PROMPT, max_new_tokens=10)
    assert [step.acceptance_length for step in result.steps] == [3, 3, 3]


class FromTarget(Autoregressive):
    """The smallest target-initialised drafter: the first level from the target's distribution, then a draft chain."""

    virtual_root = True

    def __init__(self, table: torch.Tensor, depth: int) -> None:
        super().__init__()
        self.table, self.depth = table, depth

    def grow(self, context: Context) -> TokenTree:
        assert isinstance(context.root, Virtual)
        tokens = [context.tokens[-1], int(context.root.probs.argmax())]
        for _ in range(self.depth - 1):
            tokens.append(int(self.table[tokens[-1]].argmax()))
        nodes = torch.arange(len(tokens))
        return TokenTree(torch.tensor(tokens), nodes - 1, torch.ones(len(tokens)))


class KeepProbs(TargetSample):
    """Accepts the first level as given and leaves p after the path to the next step (W = 1: lossless)."""

    virtual_root = True

    def judge(self, tree, target, sampling, rng):
        choices = target_choices(target, sampling, rng)
        path = [0, 1]
        while path[-1] + 1 < tree.num_nodes and choices[path[-1]] == tree.tokens[path[-1] + 1]:
            path.append(path[-1] + 1)
        probs = torch.zeros(target.logits.shape[-1])
        probs[choices[path[-1]]] = 1
        return Verdict(torch.tensor(path), tuple(tree.tokens[path[1:]].tolist()), None, probs)


def test_virtual_roots_give_the_same_tokens_and_waste_no_forward(toy_target):
    drafter = FromTarget(torch.randn(61, 61), depth=3)
    result = generate(toy_target, drafter, KeepProbs(), PROMPT, max_new_tokens=30)
    assert result.tokens == own_greedy(toy_target, PROMPT, 30)
    assert sum(step.kept for step in result.steps) == 30
    assert toy_target.cache.length == len(PROMPT) + sum(step.acceptance_length for step in result.steps)


class FirstLevelFromTarget(StaticTree):
    """A chain whose first token comes from the target's distribution and whose rest from a draft model."""

    virtual_root = True

    def draft_tree(self, context: Context) -> tuple[TokenTree, torch.Tensor]:
        assert isinstance(context.root, Virtual)
        first = int(context.root.probs.argmax())
        self.draft.begin(context)
        second = self.draft.expand(torch.tensor([first]), torch.tensor([-1])).logits.argmax()
        tokens = torch.tensor([context.tokens[-1], first, int(second)])
        return TokenTree(tokens, torch.tensor([-1, 0, 1]), torch.ones(3)), torch.tensor([-1, 0, -1])


def test_virtual_roots_with_a_draft_model(toy_target, toy_draft):
    """The draft has read the root already when its last node was an inner one; it must not read nothing."""
    drafter = FirstLevelFromTarget(draft=toy_draft, shape=shapes.chain(2))
    result = generate(toy_target, drafter, KeepProbs(), PROMPT, max_new_tokens=20)
    assert result.tokens == own_greedy(toy_target, PROMPT, 20)


class DrawAtTheRoot(KeepProbs):
    """Judges the virtual root alone: p there must be the one that was left, not tempered again."""

    def judge(self, tree, target, sampling, rng):
        self.drawn = int(target_choices(target, sampling, rng)[0])
        return super().judge(tree, target, sampling, rng)


def test_the_distribution_at_a_virtual_root_is_tempered_once():
    table = torch.tensor([[0.0, 1.0, 2.0]] * 3)
    sampling, rule, rng = Sampling(0.5), DrawAtTheRoot(), torch.Generator().manual_seed(0)
    counts = torch.zeros(3)
    for _ in range(600):
        drafter = FromTarget(table, depth=1)
        generate(BigramLM(table), drafter, rule, [0], max_new_tokens=1, sampling=sampling, rng=rng)
        counts[rule.drawn] += 1
    expected = 600 * sampling.probs(table[0])
    assert ((counts - expected).abs() < 4 * expected.sqrt() + 1).all()
