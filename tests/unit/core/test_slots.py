"""Slots of every drafter of `conf/drafter`: in the middle of a text it drafts what a fresh one would.

A wrong slot keeps the keys of another node in the draft's cache. No output changes, only what is drafted next is worse,
and with it every number that is measured.
"""

import json
from dataclasses import replace
from functools import cache

import pytest
import torch
from discovered import NAMES, built, parameters, rule_for
from doubles import perturbed, random_llama

from specdec_core import Sampling, TokenTree, generate
from specdec_core.drafters import Context, OptTree
from specdec_core.models import ModelOutput
from specdec_core.verifiers import TargetSample

PROMPT, VOCAB = [3, 1, 4, 1, 5], 23
DECODING = {"greedy": Sampling(), "t1": Sampling(1.0)}
TARGET = random_llama(0, vocab=VOCAB)
STILL = {"theta_step": 0.0}
"""Of drafters that learn from one step for the next, what keeps them as they begin: a fresh one has seen no step."""


def steps_of(drafter, sampling: Sampling) -> list[tuple[Context, torch.Tensor, TokenTree]]:
    """Every step of one text: the context, the state of its random stream, the tree."""
    steps, grow = [], drafter.grow

    def recorded(context: Context) -> TokenTree:
        state = context.rng.get_state()
        before = replace(context, tokens=list(context.tokens))
        steps.append((before, state, grow(context)))
        return steps[-1][-1]

    drafter.grow = recorded
    rule = TargetSample() if sampling.greedy and not drafter.virtual_root else rule_for(drafter)
    generate(TARGET, drafter, rule, PROMPT, max_new_tokens=30, sampling=sampling)
    return steps


def differences(steps, fresh) -> int:
    """How many trees behind the first a drafter that has just read the text grows otherwise."""
    found = 0
    for context, state, tree in steps[1:]:
        context.rng = torch.Generator()
        context.rng.set_state(state)
        with torch.inference_mode():
            known = torch.tensor(context.tokens[: len(context.tokens) - (not context.root.first)])
            fresh.reset(known, ModelOutput(torch.zeros(1, 1)))
            other = fresh.grow(context)
        same = torch.equal(tree.tokens, other.tokens) and torch.equal(tree.parents, other.parents)
        if tree.edge_probs is not None:
            same = same and torch.allclose(tree.edge_probs, other.edge_probs, atol=1e-4)
        found += not same
    return found


@cache
def checked(found: str, decoding: str) -> tuple[int, int]:
    """Steps and differences; of drafters that differ in nothing but their size or name there is one."""
    drafter, fresh = (built(json.loads(found), perturbed(TARGET)) for _ in range(2))
    steps = steps_of(drafter, DECODING[decoding])
    return len(steps), differences(steps, fresh)


@pytest.mark.few(16)
@pytest.mark.parametrize("decoding", [pytest.param("greedy", marks=pytest.mark.long), "t1"])
@pytest.mark.parametrize("name", NAMES)
def test_trees_in_the_middle_of_a_text_are_those_of_a_fresh_drafter(name, decoding):
    found = parameters(name, decoding=decoding, largest=12)
    found |= {key: value for key, value in STILL.items() if key in found}
    steps, wrong = checked(json.dumps(found), decoding)
    assert steps > 2
    assert wrong == 0, f"{name} gives its draft wrong slots"


class Reversed(OptTree):
    """Gives the slots of the nodes from the last to the first."""

    def draft_tree(self, context):
        tree, slots = super().draft_tree(context)
        return tree, torch.cat((slots[:1], slots[1:].flip(0)))


class Forgetful(OptTree):
    """Gives no slots."""

    def draft_tree(self, context):
        return super().draft_tree(context)[0], torch.zeros(0, dtype=torch.long)


def test_wrong_slots_are_seen():
    steps = steps_of(Reversed(draft=perturbed(TARGET), n=12), DECODING["greedy"])
    assert differences(steps, OptTree(draft=perturbed(TARGET), n=12)) > 1


def test_a_tree_without_a_slot_for_every_node_is_refused():
    drafter = Forgetful(draft=perturbed(TARGET), n=5)
    with pytest.raises(ValueError, match=r"Forgetful gave 0 slots for a tree of \d nodes; draft_tree must give one"):
        generate(TARGET, drafter, TargetSample(), PROMPT, max_new_tokens=3)
