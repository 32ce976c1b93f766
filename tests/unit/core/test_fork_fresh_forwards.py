"""Trees that end early, as the draft reads them: every distribution equals that of a fresh forward of the path."""

import pytest
import torch
from doubles import context_for, paths_of, random_llama
from forks import PROMPT, Scripted, causal, decode

from specdec_core import Verdict, load_pair, shapes
from specdec_core.drafters import EagleDraft, StaticTree, TargetInit, fork_tree
from specdec_core.models import LayerSkip, ModelSpec
from specdec_core.models.causal_lm import FINAL
from specdec_core.sampling import DRAWS
from specdec_trees.prompts.embedded import TINY


def eagle():
    pair = load_pair(str(TINY / "target"), ModelSpec(id=str(TINY / "eagle"), kind="eagle"), device="cpu")
    return pair.target, pair.draft


def skipping():
    target = random_llama(0, layers=4, vocab=12)
    target.model.lm_head.weight.data *= 0.3
    return target, LayerSkip(target, [1])


def fresh_causal(virtual):
    model = causal()[1]
    model.keep_hidden = FINAL

    def row(text, path):
        model.reset(256)
        found = model.prefill(torch.tensor([*text, *path]))
        return found.logits[-1], found.hidden[-1]

    return row


def fresh_eagle(virtual):
    """A chain of single nodes below the text, whose features are the target's."""
    target, head = eagle()

    def row(text, path):
        target.keep_hidden = FINAL
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
    skip.keep_hidden = FINAL

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
        probs = sampling.open_probs(target.logits[node])
        tokens = tuple(tree.tokens[path[1:]].tolist())
        return Verdict(path, tokens, None, probs) if first else Verdict(path, tokens, int(probs.argmax()))


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


@pytest.mark.long
@pytest.mark.parametrize(("kind", "name"), [
    ("causal_lm", "fork_target"), ("causal_lm", "fork_draft"), ("causal_lm", "expanding"),
    ("causal_lm", "expanding_target"), ("causal_lm", "uneven"), ("eagle", "fork_target"), ("eagle", "fork_draft"),
    ("layer_skip", "fork_draft"), ("layer_skip", "expanding"),
])  # fmt: skip
def test_every_distribution_and_all_that_a_stop_is_shown_equal_a_fresh_forward_of_the_path(kind, name):
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
            assert torch.allclose(tree.q_after(node), logits.float().softmax(-1), atol=2e-4)
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
