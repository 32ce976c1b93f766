"""When a tree ends: by a decision model's scores, by a stop's answers, and what is counted of it."""

import pytest
import torch
from doubles import TableDraft, random_llama, random_q
from forks import Scripted, causal, decision, decode

from specdec_core import Sampling, shapes
from specdec_core.drafters import EarlyStop, OptTree, StaticTree, Stop, fork_tree
from specdec_core.errors import PairError
from specdec_core.models import ModelOutput
from specdec_core.models.decision import DecisionModel

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
    assert {step.facts["decision_calls"] for step in steps} == {min(levels, 3)}
    assert all(0 < step.facts["decision_s"] < step.tree_s for step in steps)


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
        assert [step.facts["decision_calls"] for step in steps] == [drafted - (drafted == 3) for drafted in levels]
        assert {1, 2, 3} == set(levels)
        assert sum(step.facts["decision_calls"] for step in steps) == len(stop.shown)


def test_without_a_model_there_are_no_calls_and_a_single_level_asks_nothing(toy_target, toy_draft):
    plain = [fork_tree(draft=toy_draft, width=2, depth=2), OptTree(draft=toy_draft, n=4)]
    for drafter in plain:
        steps = decode(toy_target, drafter, new=6).steps
        assert [step.facts for step in steps] == [{}] * len(steps)
    stop = Scripted()
    steps = decode(toy_target, fork_tree(draft=toy_draft, width=2, depth=1, decision=stop), new=6).steps
    assert not stop.shown
    assert not any(step.facts for step in steps)
    assert {step.depth for step in steps} == {2}


@pytest.mark.parametrize(("stop", "keeps"), [
    (None, False), (decision(0.5), False), (DecisionModel.of("hidden", 32), True), (Scripted(), True),
])  # fmt: skip
def test_hidden_states_are_kept_for_stops_that_read_them_alone(stop, keeps, toy_target, toy_draft):
    drafter = fork_tree(draft=toy_draft, width=2, depth=2, decision=stop)
    decode(toy_target, drafter, new=6)
    assert bool(toy_draft.keep_hidden) == keeps
    assert drafter.stop is None or isinstance(drafter.stop, Stop)
    decode(toy_target, fork_tree(draft=toy_draft, width=2, depth=2), new=3)
    assert not toy_draft.keep_hidden, "the next drafter of the same model does not need them"


def test_a_model_for_another_draft_is_refused_in_a_sentence(toy_target, toy_draft):
    wrong = fork_tree(draft=toy_draft, width=2, depth=2, decision=DecisionModel.of("hidden", 48))
    with pytest.raises(
        PairError, match=r"hidden states of size 48, and this draft's have 32; train one for this draft"
    ):
        decode(toy_target, wrong, new=6)
    none = fork_tree(draft=TableDraft(61, random_q(61, 0)), width=2, depth=2, decision=DecisionModel.of("hidden", 32))
    with pytest.raises(PairError, match="reads the draft's hidden states, and this draft keeps none"):
        decode(toy_target, none, new=6)
