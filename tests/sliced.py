"""Pairs and static trees whose masks are sliced, and how they are decoded."""

from doubles import random_llama

from specdec_core import Sampling, generate, load_pair, shapes
from specdec_core.drafters import StaticTree, TargetInit, fork_tree
from specdec_core.models import LayerSkip, ModelSpec
from specdec_core.verifiers import IndependentLongest, MultiCandidate, TargetSample
from specdec_trees.prompts.embedded import TINY

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]

T07 = Sampling(0.7)


class Scripted:
    """Says yes and no in an order that fits no depth."""

    needs_hidden = False
    answers = (True, False, True, True, True, False, False)

    def __init__(self):
        self.asked = -1

    def goes_on(self, drafted):
        self.asked += 1
        return self.answers[self.asked % len(self.answers)]


def tiny_pair():
    pair = load_pair(str(TINY / "target"), str(TINY / "draft"), device="cpu")
    return pair.target, pair.draft


def eagle_pair():
    pair = load_pair(str(TINY / "target"), ModelSpec(id=str(TINY / "eagle"), kind="eagle"), device="cpu")
    return pair.target, pair.draft


def skipping_pair():
    target = random_llama(0, layers=4, vocab=40)
    return target, LayerSkip(target, [2])


PAIRS = {"causal_lm": tiny_pair, "eagle": eagle_pair, "layer_skip": skipping_pair}

DRAFTERS = {
    "fork_target": lambda draft, draws: fork_tree(draft=draft, width=3, depth=3, draws=draws, decision=Scripted()),
    "fork_draft": lambda draft, draws: fork_tree(
        draft=draft, width=3, depth=4, init="draft", draws=draws, decision=Scripted()
    ),
    "fork_always": lambda draft, draws: fork_tree(draft=draft, width=4, depth=2, draws=draws),
    "expanding_target": lambda draft, draws: TargetInit(draft=draft, widths=(2, 3, 1), draws=draws, stop=Scripted()),
    "expanding": lambda draft, draws: StaticTree(draft=draft, shape=shapes.branching([3, 2, 1]), draws=draws),
    "uneven": lambda draft, draws: StaticTree(draft=draft, shape=shapes.eagle25(), draws=draws, stop=Scripted()),
    "chain": lambda draft, draws: StaticTree(draft=draft, shape=shapes.chain(4), draws=draws, stop=Scripted()),
}


def rule_for(drafter, draws):
    if drafter.virtual_root:
        return IndependentLongest()
    return MultiCandidate() if draws != "topk" else TargetSample()


def storages(masks):
    return {mask.untyped_storage().data_ptr() for _, mask in masks}


def decoded(target, drafter, prompt, sampling, new=24):
    """Depths of the trees of a run, and how many have fewer first tokens than places (their mask is no first part)."""
    depths, smaller = set(), 0

    def watch(tree, scored, verdict):
        nonlocal smaller
        depths.add(int(tree.depths.max()))
        smaller += tree.sliced is None
        assert tree.sliced is not None or len(tree.children(0)) < len(drafter.shape.levels[1])

    draws = "topk" if sampling.greedy else "without_replacement"
    generate(
        target, drafter, rule_for(drafter, draws), prompt, max_new_tokens=new, sampling=sampling, allow_lossy=True,
        watch=watch,
    )  # fmt: skip
    return depths, smaller


def as_before(drafter):
    """The drafter without masks that were made before."""
    drafter.sliced = drafter.sliced_for_draft = None
    return drafter
