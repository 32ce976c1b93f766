"""Forks and trees that may end early: scripted stops, a model of one score, one tree, and a decoding."""

import math

import torch
from doubles import context_for

from specdec_core import Sampling, generate, load_pair
from specdec_core.models.decision import DecisionModel
from specdec_core.roots import Virtual
from specdec_core.verifiers import IndependentLongest, MultiCandidate, TargetSample
from specdec_trees.prompts.embedded import TINY

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
    """One tree of a table draft, below a uniform distribution where the root is virtual."""
    context = context_for()
    if drafter.virtual_root:
        context.root = Virtual(torch.full((vocab,), 1 / vocab))
    return drafter.grow(context)


def causal():
    pair = load_pair(str(TINY / "target"), str(TINY / "draft"), device="cpu")
    return pair.target, pair.draft


def decision(score):
    """A model that gives every token one score."""
    model = DecisionModel.of("topk")
    for name, values in model.state_dict().items():
        values.zero_()
        if name == "layers.linear1.bias":
            values.fill_(math.log(score / (1 - score)))
    return model
