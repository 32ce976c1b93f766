"""Forks and trees that end early: sizes, what the draft reads, what a stop is shown, what the engine counts."""

import math
from itertools import pairwise

import pytest
import torch
from doubles import BigramLM, TableDraft, context_for, paths_of, random_law, random_llama

from bench.embedded import TINY
from specdec_core import CausalLM, Sampling, Verdict, generate, load_pair, shapes
from specdec_core.checks import check_lossless
from specdec_core.drafters import EagleDraft, EarlyStop, OptTree, StaticTree, Stop, TargetInit, fork_tree
from specdec_core.drafters.static_tree import DRAWS
from specdec_core.errors import PairError
from specdec_core.models import LayerSkip, ModelOutput, ModelSpec
from specdec_core.models.decision import DecisionModel
from specdec_core.verifiers import IndependentLongest, LongestSubtree, MultiCandidate, TargetSample

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
T1 = Sampling(1.0)


class Scripted:
    """Answers in an order that fits no depth, and keeps what it was shown in the present step."""

    needs_hidden = True

    def __init__(self, answers=(True, False, True, True, True, False, False)):
        self.answers, self.asked, self.shown = answers, -1, []

    def goes_on(self, drafted):
        self.asked += 1
        self.shown.append(drafted)
        return self.answers[self.asked % len(self.answers)]


YES, NO = (True,), (False,)


def decode(target, drafter, *, sampling=T1, new=30, prompt=PROMPT, rule=None, **options):
    if rule is None and drafter.virtual_root:
        rule = IndependentLongest()
    rule = rule or (TargetSample() if drafter.draws == "topk" else MultiCandidate())
    return generate(target, drafter, rule, prompt, max_new_tokens=new, sampling=sampling, allow_lossy=True, **options)


def table_tree(drafter, vocab):
    """One tree of a table draft, below a uniform law where the root is virtual."""
    context = context_for()
    if drafter.virtual_root:
        context.next_probs = torch.full((vocab,), 1 / vocab)
    return drafter.grow(context)


SIZES = {
    "mcsd": (lambda d: StaticTree(draft=d, shape=shapes.branching([4, 2, 2, 1])), [4, 8, 16, 16], 16),
    "mcsd_5": (lambda d: StaticTree(draft=d, shape=shapes.branching([4, 2, 2, 1, 1])), [4, 8, 16, 16, 16], 16),
    "ti": (lambda d: TargetInit(draft=d, widths=(2, 4, 3, 1, 1)), [2, 8, 24, 24, 24], 24),
    "matched": (lambda d: StaticTree(draft=d, shape=shapes.branching([8, 3, 1, 1])), [8, 24, 24, 24], 24),
    "fork_target": (lambda d: fork_tree(draft=d, width=16, depth=5), [16] * 6, 16),
    "fork_draft": (lambda d: fork_tree(draft=d, width=16, depth=5, init="draft"), [16] * 5, 16),
}
TOTALS = {"mcsd": 44, "mcsd_5": 60, "ti": 82, "matched": 80, "fork_target": 96, "fork_draft": 80}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_the_papers(name):
    """Spec 9.5: nodes, widths of the levels, candidate paths; the draft reads all levels but the last."""
    make, widths, paths = SIZES[name]
    drafter = make(TableDraft(30, random_law(30, 1)))
    tree = table_tree(drafter, 30)
    assert (tree.num_drafted, sum(widths)) == (TOTALS[name], TOTALS[name])
    assert torch.bincount(torch.tensor([len(path) for path in paths_of(tree)])).tolist() == [1, *widths]
    assert sum(not len(tree.children(node)) for node in range(tree.num_nodes)) == paths
    assert drafter.draft.expanded == widths[:-1]


@pytest.mark.parametrize("init", ["target", "draft"])
@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("end", [1, 2, 3, None])
@pytest.mark.parametrize("draws", DRAWS)
def test_a_fork_is_sequences_side_by_side_whose_children_have_the_drafts_law(init, depth, end, draws):
    """At most W (D + 1) nodes below first tokens of the target's, W D below the root; level by level."""
    width, virtual, law = 3, init == "target", random_law(9, 4)
    stop = Scripted(YES if end is None else (*YES * (end - 1), False))
    drafter = fork_tree(draft=TableDraft(9, law), width=width, depth=depth, init=init, draws=draws, decision=stop)
    tree, levels = table_tree(drafter, 9), min(depth, end or depth)
    assert tree.num_drafted == width * (levels + virtual)
    assert tree.parents.tolist() == [-1, *[0] * width, *range(1, 1 + width * (levels + virtual - 1))]
    assert len(stop.shown) == min(levels, depth - 1)
    assert len(drafter.draft.expanded) == levels - (not virtual)
    firsts = tree.tokens[1 : 1 + width].tolist()
    assert len(set(firsts)) == width or (draws == "iid" and not virtual)
    for node, path in enumerate(paths_of(tree)):
        if node and len(path) > virtual:
            assert tree.edge_probs[node] == pytest.approx(float(law(path[:-1])[path[-1]]), rel=1e-5)
            if draws == "topk" and len(path) > 1:
                assert path[-1] == int(law(path[:-1]).argmax())
        if draws != "topk" and len(tree.children(node)) and (node or not virtual):
            assert torch.allclose(tree.law_after(node), law(path))
    if draws == "topk":
        assert tree.draft_probs is None
    else:
        assert (tree.draft_rows[-width:] == -1).all()
        assert tree.draft_probs.shape[0] == (1 + width * (levels - 1) if not virtual else width * levels)
    # the last level was read by no draft; of the others each is where it was read
    assert drafter._slots.tolist() == [-1, *range(tree.num_drafted - width), *[-1] * width]


def test_a_stop_that_always_goes_on_changes_nothing_and_draws_nothing():
    trees = []
    for stop in (None, Scripted(YES)):
        drafter = fork_tree(draft=TableDraft(9, random_law(9, 4)), width=3, depth=4, decision=stop)
        trees.append(table_tree(drafter, 9))
    assert torch.equal(trees[0].tokens, trees[1].tokens)
    assert torch.equal(trees[0].edge_probs, trees[1].edge_probs)


def test_a_tree_that_ends_early_is_the_first_levels_of_the_one_that_does_not():
    """The level just drafted is kept; with the same stream of draws it is the same."""
    full = table_tree(fork_tree(draft=TableDraft(9, random_law(9, 4)), width=3, depth=4, init="draft"), 9)
    for end in (1, 2, 3):
        stop = Scripted((*YES * (end - 1), False))
        drafter = fork_tree(draft=TableDraft(9, random_law(9, 4)), width=3, depth=4, init="draft", decision=stop)
        tree = table_tree(drafter, 9)
        assert tree.num_drafted == 3 * end
        assert tree.tokens.tolist() == full.tokens[: tree.num_nodes].tolist()


@pytest.mark.parametrize(("options", "message"), [
    ({"init": "root"}, "init must be target or draft, not 'root'"),
    ({"width": 0}, "at least one sequence and one drafted level, not 0 x 3"),
    ({"depth": 0}, "at least one sequence and one drafted level, not 2 x 0"),
    ({"depth": 0, "init": "draft"}, "at least one sequence"),
    ({"draws": "best"}, "draws must be one of"),
    ({"draft_temperature": 0.0}, "draft_temperature must be positive"),
])  # fmt: skip
def test_senseless_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fork_tree(**({"draft": TableDraft(9, random_law(9, 4)), "width": 2, "depth": 3} | options))


def test_which_forks_are_lossless():
    """From the root under the rule of its draws, however it may end; below one first token; never below several."""
    draft = BigramLM(torch.zeros(4, 4))
    for decision in (None, Scripted(), DecisionModel.of("topk")):
        own = fork_tree(draft=draft, width=3, depth=2, init="draft", decision=decision)
        assert check_lossless(own, MultiCandidate(), T1)
        for width in (1, 2):
            drafter = fork_tree(draft=draft, width=width, depth=2, decision=decision)
            assert check_lossless(drafter, LongestSubtree(), T1, allow_lossy=True) == (width == 1)
            assert not check_lossless(drafter, IndependentLongest(), T1, allow_lossy=True)
            with pytest.raises(PairError, match="IndependentLongest does not keep the target's law"):
                check_lossless(drafter, IndependentLongest(), T1)


# what the draft reads


def causal():
    pair = load_pair(str(TINY / "target"), str(TINY / "draft"), device="cpu")
    return pair.target, pair.draft


def eagle():
    pair = load_pair(str(TINY / "target"), ModelSpec(id=str(TINY / "eagle"), kind="eagle"), device="cpu")
    return pair.target, pair.draft


def skipping():
    target = random_llama(0, layers=4, vocab=12)
    target.model.lm_head.weight.data *= 0.3
    return target, LayerSkip(target, [1])


def fresh_causal(virtual):
    model = causal()[1]
    model.keep_hidden = True

    def row(text, path):
        model.reset(256)
        found = model.prefill(torch.tensor([*text, *path]))
        return found.logits[-1], found.hidden[-1]

    return row


def fresh_eagle(virtual):
    """A chain of single nodes below the text, whose features are the target's."""
    target, head = eagle()

    def row(text, path):
        target.keep_hidden = True
        target.reset(256)
        known = text if virtual else text[:-1]
        draft = EagleDraft(head)
        draft.reset(torch.tensor(known), target.prefill(torch.tensor(known)))
        found = draft.begin(context_for(text[-1], tuple(text[:-1])))
        for slot, token in enumerate(path):
            found = draft.expand(torch.tensor([token]), torch.tensor([slot - 1]))
        return found.logits[-1], found.hidden[-1]

    return row


def fresh_skipping(virtual):
    target, skip = skipping()
    skip.keep_hidden = True

    def row(text, path):
        target.reset(256)
        target.prefill(torch.tensor(text[:-1]))
        found = skip.extend(torch.tensor([text[-1], *path]))
        return found.logits[-1], found.hidden[-1]

    return row


class Anywhere:
    """Accepts the path to a node of any depth, by turns, so that every kind of commit occurs."""

    lossless_for = frozenset(DRAWS)

    def __init__(self, virtual_root):
        self.virtual_root, self.rng = virtual_root, torch.Generator().manual_seed(2)

    def judge(self, tree, target, sampling, rng):
        first = target.root_probs is not None
        depth = int(torch.randint(int(first), int(tree.depths.max()) + 1, (), generator=self.rng))
        nodes = (tree.depths == depth).nonzero().flatten()
        node = int(nodes[int(torch.randint(len(nodes), (), generator=self.rng))])
        path = tree.ancestor_mask[node].nonzero().flatten()
        law = sampling.open_law(target.logits[node])
        tokens = tuple(tree.tokens[path[1:]].tolist())
        return Verdict(path, tokens, None, law) if first else Verdict(path, tokens, int(law.argmax()))


KINDS = {"causal_lm": (causal, fresh_causal), "eagle": (eagle, fresh_eagle), "layer_skip": (skipping, fresh_skipping)}
GROWN = {
    "fork_target": lambda d, stop: fork_tree(draft=d, width=3, depth=3, decision=stop),
    "fork_draft": lambda d, stop: fork_tree(draft=d, width=3, depth=3, init="draft", decision=stop),
    "expanding": lambda d, stop: StaticTree(
        draft=d, shape=shapes.branching([2, 2, 1]), draws="without_replacement", stop=stop
    ),
    "expanding_target": lambda d, stop: TargetInit(draft=d, widths=(2, 2, 1), stop=stop),
    "uneven": lambda d, stop: StaticTree(draft=d, shape=shapes.eagle25(), draws="without_replacement", stop=stop),
}


@pytest.mark.parametrize(("kind", "name"), [
    ("causal_lm", "fork_target"), ("causal_lm", "fork_draft"), ("causal_lm", "expanding"),
    ("causal_lm", "expanding_target"), ("causal_lm", "uneven"), ("eagle", "fork_target"), ("eagle", "fork_draft"),
    ("layer_skip", "fork_draft"), ("layer_skip", "expanding"),
])  # fmt: skip
def test_every_law_and_all_that_a_stop_is_shown_equal_a_fresh_forward_of_the_path(kind, name):
    """Spec 9.8, after every kind of commit: nothing, part of a tree, the last level, of a tree that ended early too."""
    make, fresh = KINDS[kind]
    target, draft = make()
    stop = Scripted((True, True, True, True, False, True, False, False))
    drafter = GROWN[name](draft, stop)
    virtual, shown_hidden = drafter.virtual_root, kind != "layer_skip"
    row, committed, ends, compared, asked = fresh(virtual), list(PROMPT), set(), 0, 0

    def watch(tree, scored, verdict):
        nonlocal compared, asked
        if not virtual and len(committed) == len(PROMPT):
            committed.append(int(tree.tokens[0]))
        assert int(tree.tokens[0]) == committed[-1]
        paths, levels = paths_of(tree), int(tree.depths.max())
        expanded = [node for node in range(virtual, tree.num_nodes) if len(tree.children(node))]
        for node in expanded[:: 1 if kind == "causal_lm" else 2]:
            logits, _ = row(committed, paths[node])
            assert torch.allclose(tree.law_after(node), logits.float().softmax(-1), atol=2e-4)
            compared += 1
        full = tree.sliced is not None
        for number, drafted in enumerate(stop.shown if full else []):
            parents = [node for node in expanded if len(paths[node]) == number + virtual]
            assert drafted.logits.shape[0] == len(parents)
            for place, node in list(enumerate(parents))[:: 1 if kind == "causal_lm" else 2]:
                logits, hidden = row(committed, paths[node])
                assert torch.allclose(drafted.logits[place], logits, atol=2e-3)
                if shown_hidden:
                    assert torch.allclose(drafted.hidden[place], hidden, atol=2e-3)
                asked += 1
        stop.shown.clear()
        last = len(tree.children(int(verdict.path[-1]))) == 0
        ends.add(
            (levels == drafter.shape.depth, "last" if last else "none" if len(verdict.path) < 2 + virtual else "part")
        )
        committed.extend(verdict.tokens if verdict.next_token is None else (*verdict.tokens, verdict.next_token))

    decode(target, drafter, new=32, rule=Anywhere(virtual), watch=watch)
    assert compared > 20
    assert asked > 8
    assert {how for _, how in ends} == {"none", "part", "last"}
    assert {(True, "last"), (False, "last")} <= ends, "of whole trees and of those that ended early"


# when it ends


def decision(score):
    """A model that gives every token one score."""
    model = DecisionModel.of("topk")
    for name, values in model.state_dict().items():
        values.zero_()
        if name == "layers.linear1.bias":
            values.fill_(math.log(score / (1 - score)))
    return model


BETAS = [
    *((kind, init, 1.0, 1) for kind in ("hidden", "topk") for init in ("target", "draft")),
    *((kind, init, -0.1, 4) for kind in ("hidden", "topk") for init in ("target", "draft")),
    ("constant", "target", 0.7, 1),
    ("constant", "draft", 0.5, 4),
]


@pytest.mark.parametrize(("kind", "init", "beta", "levels"), BETAS)
def test_beta_1_drafts_one_level_and_a_negative_beta_all(kind, init, beta, levels):
    """Spec 9.9; a constant score of 0.6 lies between 0.5 and 0.7."""
    torch.manual_seed(0)
    model = decision(0.6) if kind == "constant" else DecisionModel.of(kind, 32)
    target, draft = random_llama(0), random_llama(1, layers=1)
    drafter = fork_tree(draft=draft, width=2, depth=4, init=init, decision=model, beta=beta)
    virtual, steps = drafter.virtual_root, decode(target, drafter, new=12).steps
    assert {step.depth - virtual for step in steps} == {levels}
    assert {step.num_drafted for step in steps} == {2 * (levels + virtual)}
    assert {step.draft_forwards for step in steps} == {levels}
    assert {step.decision_calls for step in steps} == {min(levels, 3)}
    assert all(0 < step.decision_s < step.tree_s for step in steps)


@pytest.mark.parametrize("kind", ["hidden", "topk"])
def test_a_best_score_of_exactly_beta_ends_the_tree(kind):
    torch.manual_seed(1)
    model, drafted = DecisionModel.of(kind, 16), ModelOutput(torch.randn(5, 30), torch.randn(5, 16))
    scores = model.scores(drafted).detach()
    assert len(set(scores.tolist())) == 5
    best = scores.max()
    below, above = (torch.nextafter(best, torch.tensor(side)) for side in (0.0, 1.0))
    assert not EarlyStop(model, float(best)).goes_on(drafted)
    assert not EarlyStop(model, float(above)).goes_on(drafted)
    assert EarlyStop(model, float(below)).goes_on(drafted)
    assert not any(
        EarlyStop(model, float(best)).goes_on(ModelOutput(drafted.logits[[i]], drafted.hidden[[i]])) for i in range(5)
    )
    assert EarlyStop(model, float(scores.min())).goes_on(drafted), "any, not all"


def test_one_score_above_beta_among_many_is_enough_in_the_engine_too():
    """Beta between the scores that the steps have: trees of several depths, each as the scores say."""
    torch.manual_seed(3)
    model = DecisionModel.of("topk")
    model.layers.linear1.weight.data *= 8
    stop, said = EarlyStop(model, 0.0), []
    goes_on = stop.goes_on

    def noted(drafted):
        scores = model.scores(drafted)
        answer = goes_on(drafted)
        said.append((scores.tolist(), answer))
        return answer

    target, draft = causal()
    drafter = fork_tree(draft=draft, width=3, depth=4, decision=stop)
    decode(target, drafter, new=10)
    bests = sorted(max(scores) for scores, _ in said) or [0.5]
    stop.goes_on = noted
    decode(target, drafter, new=20)
    stop.beta, depths = sorted(max(scores) for scores, _ in said)[len(said) // 2], []
    said.clear()
    decode(target, drafter, new=30, watch=lambda tree, *rest: depths.append(int(tree.depths.max())))
    assert bests
    assert {answer for _, answer in said} == {True, False}
    for scores, answer in said:
        assert answer == any(score > stop.beta for score in scores)
    assert len(set(depths)) > 1
    assert any(min(scores) <= stop.beta < max(scores) for scores, _ in said), "some but not all above"


@pytest.mark.parametrize("init", ["target", "draft"])
def test_a_level_behind_which_drafting_ended_is_judged(init):
    """The draft is the target: all of one drafted level is accepted, and the answer is the target's own."""
    target = random_llama(0)
    drafter = fork_tree(
        draft=random_llama(0), width=2, depth=5, init=init, draws="topk", decision=decision(0.2), beta=0.4
    )
    found = decode(target, drafter, sampling=Sampling(), new=20)
    virtual = drafter.virtual_root
    assert {step.depth - virtual for step in found.steps} == {1}
    assert {step.acceptance_length for step in found.steps} == {2}, "1 + m, m = 1"
    assert {step.num_accepted for step in found.steps} == {1 + virtual}
    own = StaticTree(draft=random_llama(0), shape=shapes.chain(2), draws="topk")
    # the best first token's chain is accepted as far as the other's, so that it wins
    assert found.tokens == decode(random_llama(0), own, sampling=Sampling(), new=20).tokens


def test_calls_are_the_levels_that_were_not_the_last_possible_one(toy_target, toy_draft):
    for init in ("target", "draft"):
        stop = Scripted()
        stop.needs_hidden = False
        drafter = fork_tree(draft=toy_draft, width=2, depth=3, init=init, decision=stop)
        steps = decode(toy_target, drafter, new=24).steps
        levels = [step.depth - drafter.virtual_root for step in steps]
        assert [step.decision_calls for step in steps] == [drafted - (drafted == 3) for drafted in levels]
        assert {1, 2, 3} == set(levels)
        assert sum(step.decision_calls for step in steps) == len(stop.shown)


def test_without_a_model_there_are_no_calls_and_a_single_level_asks_nothing(toy_target, toy_draft):
    plain = [fork_tree(draft=toy_draft, width=2, depth=2), OptTree(draft=toy_draft, n=4)]
    for drafter in plain:
        steps = decode(toy_target, drafter, new=6).steps
        assert {(step.decision_calls, step.decision_s) for step in steps} == {(None, None)}
    stop = Scripted()
    steps = decode(toy_target, fork_tree(draft=toy_draft, width=2, depth=1, decision=stop), new=6).steps
    assert not stop.shown
    assert not any(step.decision_calls for step in steps)
    assert {step.depth for step in steps} == {2}


@pytest.mark.parametrize(("stop", "keeps"), [
    (None, False), (decision(0.5), False), (DecisionModel.of("hidden", 32), True), (Scripted(), True),
])  # fmt: skip
def test_hidden_states_are_kept_for_stops_that_read_them_alone(stop, keeps, toy_target, toy_draft):
    drafter = fork_tree(draft=toy_draft, width=2, depth=2, decision=stop)
    decode(toy_target, drafter, new=6)
    assert toy_draft.keep_hidden == keeps
    assert drafter.stop is None or isinstance(drafter.stop, Stop)
    decode(toy_target, fork_tree(draft=toy_draft, width=2, depth=2), new=3)
    assert not toy_draft.keep_hidden, "the next drafter of the same model does not need them"


def test_a_model_for_another_draft_is_refused_in_a_sentence(toy_target, toy_draft):
    wrong = fork_tree(draft=toy_draft, width=2, depth=2, decision=DecisionModel.of("hidden", 48))
    with pytest.raises(
        PairError, match=r"hidden states of size 48, and this draft's have 32; train one for this draft"
    ):
        decode(toy_target, wrong, new=6)
    none = fork_tree(draft=TableDraft(61, random_law(61, 0)), width=2, depth=2, decision=DecisionModel.of("hidden", 32))
    with pytest.raises(PairError, match="reads the draft's hidden states, and this draft keeps none"):
        decode(toy_target, none, new=6)


# the engine


@pytest.fixture
def forwards(monkeypatch):
    """Tokens of the forwards that each model has run."""
    fed, run = {}, CausalLM._run

    def counted(self, tokens, *args, **options):
        fed.setdefault(id(self), []).append(tokens.shape[0])
        return run(self, tokens, *args, **options)

    monkeypatch.setattr(CausalLM, "_run", counted)
    return fed


@pytest.mark.parametrize("order", ["creation", "dfs", "heavy_path"])
@pytest.mark.parametrize("rule", [IndependentLongest(), LongestSubtree()])
def test_below_first_tokens_all_that_is_committed_is_in_the_targets_cache(rule, order, forwards):
    """Spec 9.7, for trees that end early: 1 + S forwards of the target, none over a token that it has read."""
    target, draft = causal()
    drafter, before, drafted = fork_tree(draft=draft, width=3, depth=3, decision=Scripted()), [], []
    grow = drafter.grow

    def checked(context):
        assert context.virtual
        assert target.cache.length == len(context.tokens)
        before.append(len(context.tokens))
        return grow(context)

    drafter.grow = checked
    found = decode(
        target, drafter, new=30, rule=rule, node_order=order, watch=lambda tree, *rest: drafted.append(tree.num_drafted)
    )
    steps = found.steps
    assert forwards[id(target)] == [len(PROMPT), *drafted], "the virtual root is not fed"
    assert len(forwards[id(draft)]) == 1 + sum(step.depth - 1 for step in steps)
    assert [after - earlier for earlier, after in pairwise(before)] == [s.acceptance_length for s in steps[:-1]]
    assert target.cache.length == len(PROMPT) + sum(step.acceptance_length for step in steps)
    assert sum(step.kept for step in steps) == len(found.tokens) == 30
    assert {1, 2, 3} == {step.depth - 1 for step in steps}
    assert all(1 <= step.acceptance_length <= step.depth for step in steps)


def test_below_a_pending_root_one_token_is_unread_before_every_step(forwards):
    target, draft = causal()
    drafter, drafted = fork_tree(draft=draft, width=3, depth=3, init="draft", decision=Scripted()), []
    grow = drafter.grow

    def checked(context):
        assert not context.virtual
        assert target.cache.length == len(context.tokens) - 1
        return grow(context)

    drafter.grow = checked
    found = decode(target, drafter, new=30, watch=lambda tree, *rest: drafted.append(tree.num_nodes))
    assert forwards[id(target)] == [len(PROMPT), *drafted]
    assert len(forwards[id(draft)]) == 1 + sum(step.depth for step in found.steps)
    assert {1, 2, 3} == {step.depth for step in found.steps}


def test_the_law_that_is_left_is_a_fresh_forwards_where_a_tree_ended_early():
    """P behind a whole path, also of a tree that was not drafted to its full depth, and behind a bare first token."""
    (target, draft), (fresh, _) = causal(), causal()
    drafter, whole, seen = fork_tree(draft=draft, width=2, depth=4, decision=Scripted()), [True], []
    grow = drafter.grow

    def checked(context):
        fresh.reset(256)
        law = T1.open_law(fresh.prefill(torch.tensor(context.tokens)).logits[-1])
        assert torch.allclose(context.next_probs, law, atol=1e-4) == whole[-1]
        return grow(context)

    def watch(tree, scored, verdict):
        m, levels = len(verdict.path) - 2, int(tree.depths.max()) - 1
        seen.append((m, levels))
        whole.append(m in (0, levels))

    drafter.grow = checked
    decode(target, drafter, new=40, watch=watch)
    assert any(m == levels < 4 for m, levels in seen)
    assert any(0 < m < levels for m, levels in seen)
    assert any(m == 0 for m, _ in seen)


# stop tokens

EOS = 3


def chains(*lines, vocab=8):
    """A table in which each line's tokens follow one another, for certain."""
    table = torch.zeros(vocab, vocab)
    for line in lines:
        for token, following in pairwise(line):
            table[token, following] = 50.0
    return table


def ended():
    """Behind first token 1 all is right, a stop token second; behind 2 two are right and the third is wrong."""
    target = chains((1, EOS, 7, 7), (2, 4, 5, 6))
    target[0, 1], target[0, 2] = 50.0, 49.0
    draft = target.clone()
    draft[5] = chains((5, 0))[5]
    return BigramLM(target), BigramLM(draft)


@pytest.mark.parametrize("rule", [IndependentLongest(), LongestSubtree()], ids=["independent", "subtree"])
@pytest.mark.parametrize("sampling", [T1, Sampling()], ids=["t1", "greedy"])
def test_what_is_drafted_behind_a_stop_token_does_not_count(sampling, rule):
    """Without it the first chain is accepted to its end and wins; with it the second is the longer one."""
    outcomes = {}
    for eos in ((), (EOS,)):
        target, draft = ended()
        drafter = fork_tree(draft=draft, width=2, depth=3, draws="topk" if sampling.greedy else "without_replacement")
        paths, chances = [], []

        def watch(tree, scored, verdict, paths=paths, chances=chances, sampling=sampling):
            paths.append(verdict.tokens)
            chances.append(rule.first_token_law(tree, scored, sampling))

        decode(
            target,
            drafter,
            sampling=sampling,
            prompt=[0],
            new=1,
            eos_token_ids=eos,
            watch=watch,
            rule=rule,
        )
        outcomes[eos] = paths[0], chances[0].argmax()
        assert chances[0].sum() == pytest.approx(1)
    assert outcomes == {(): ((1, EOS, 7, 7), 1), (EOS,): ((2, 4, 5), 2)}


@pytest.mark.parametrize("width", [1, 2])
def test_the_answer_ends_at_a_drafted_stop_token_and_a_counts_up_to_it(width):
    table = chains((0, 1, 2, EOS, 5, 6, 7))
    table[0, 7], draft = 49.0, chains((0, 1, 2, EOS, 5, 6, 7, 1))  # behind the second best first token it is wrong
    target = BigramLM(table)
    drafter = fork_tree(draft=BigramLM(draft), width=width, depth=5, draws="topk")
    found = decode(target, drafter, sampling=Sampling(), prompt=[0], new=30, eos_token_ids=[EOS])
    assert (found.tokens, found.finish) == ([1, 2, EOS], "eos")
    (step,) = found.steps
    assert (step.acceptance_length, step.num_accepted, step.kept, step.depth) == (3, 3, 3, 6)
    free = decode(BigramLM(target.table), drafter, sampling=Sampling(), prompt=[0], new=6)
    assert (free.tokens, free.steps[0].acceptance_length) == ([1, 2, EOS, 5, 6, 7], 6)


def test_a_stop_token_as_the_first_one_ends_the_answer_and_nothing_is_accepted_below_it():
    target = BigramLM(chains((0, EOS, 5, 6, 7)))
    drafter = fork_tree(draft=BigramLM(target.table), width=1, depth=3, draws="topk")
    found = decode(target, drafter, sampling=Sampling(), prompt=[0], new=30, eos_token_ids=[EOS])
    assert (found.tokens, found.finish) == ([EOS], "eos")
    assert [(step.acceptance_length, step.num_accepted) for step in found.steps] == [(1, 1)]


def test_no_path_goes_on_behind_a_stop_token_in_samples():
    """Nodes behind one have no chance, all others theirs: min(1, p/q)."""
    table = torch.randn(5, 5, generator=torch.Generator().manual_seed(2))
    table[:, EOS] += 1
    behind, ends = 0, 0

    def watch(tree, scored, verdict):
        nonlocal behind, ends
        for node, path in enumerate(paths_of(tree)):
            stopped = EOS in path[:-1]
            behind += stopped
            assert (float(tree.edge_probs[node]) == 0) == stopped
        assert EOS not in verdict.tokens[:-1]
        ends += verdict.tokens[-1] == EOS

    for seed in range(40):
        drafter = fork_tree(draft=BigramLM(table.clone()), width=2, depth=3, decision=Scripted())
        rng = torch.Generator().manual_seed(seed)
        found = decode(BigramLM(table), drafter, prompt=[0], new=12, eos_token_ids=[EOS], rng=rng, watch=watch)
        assert (EOS in found.tokens) == (found.finish == "eos")
        assert EOS not in found.tokens[:-1]
        assert sum(step.kept for step in found.steps) == len(found.tokens)
    assert behind > 50
    assert ends > 20
