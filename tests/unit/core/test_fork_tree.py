"""Sequences side by side: sizes, distributions of the children, and what a stop that changes nothing changes."""

import pytest
import torch
from doubles import BigramLM, TableDraft, paths_of, random_q
from forks import T1, YES, Scripted, table_tree

from specdec_core import shapes
from specdec_core.checks import check_lossless
from specdec_core.drafters import StaticTree, TargetInit, fork_tree
from specdec_core.errors import PairError
from specdec_core.models.decision import DecisionModel
from specdec_core.sampling import DRAWS
from specdec_core.verifiers import IndependentLongest, LongestSubtree, MultiCandidate

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
    drafter = make(TableDraft(30, random_q(30, 1)))
    tree = table_tree(drafter, 30)
    assert (tree.num_drafted, sum(widths)) == (TOTALS[name], TOTALS[name])
    assert torch.bincount(torch.tensor([len(path) for path in paths_of(tree)])).tolist() == [1, *widths]
    assert sum(not len(tree.children(node)) for node in range(tree.num_nodes)) == paths
    assert drafter.draft.expanded == widths[:-1]


@pytest.mark.parametrize("init", ["target", "draft"])
@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("end", [1, 2, 3, None])
@pytest.mark.parametrize("draws", DRAWS)
def test_a_fork_is_sequences_side_by_side_whose_children_have_the_drafts_distribution(init, depth, end, draws):
    """At most W (D + 1) nodes below first tokens of the target's, W D below the root; level by level."""
    width, virtual, probs = 3, init == "target", random_q(9, 4)
    stop = Scripted(YES if end is None else (*YES * (end - 1), False))
    drafter = fork_tree(draft=TableDraft(9, probs), width=width, depth=depth, init=init, draws=draws, decision=stop)
    tree, levels = table_tree(drafter, 9), min(depth, end or depth)
    assert tree.num_drafted == width * (levels + virtual)
    assert tree.parents.tolist() == [-1, *[0] * width, *range(1, 1 + width * (levels + virtual - 1))]
    assert len(stop.shown) == min(levels, depth - 1)
    assert len(drafter.draft.expanded) == levels - (not virtual)
    firsts = tree.tokens[1 : 1 + width].tolist()
    assert len(set(firsts)) == width or (draws == "iid" and not virtual)
    for node, path in enumerate(paths_of(tree)):
        if node and len(path) > virtual:
            assert tree.edge_probs[node] == pytest.approx(float(probs(path[:-1])[path[-1]]), rel=1e-5)
            if draws == "topk" and len(path) > 1:
                assert path[-1] == int(probs(path[:-1]).argmax())
        if draws != "topk" and len(tree.children(node)) and (node or not virtual):
            assert torch.allclose(tree.q_after(node), probs(path))
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
        drafter = fork_tree(draft=TableDraft(9, random_q(9, 4)), width=3, depth=4, decision=stop)
        trees.append(table_tree(drafter, 9))
    assert torch.equal(trees[0].tokens, trees[1].tokens)
    assert torch.equal(trees[0].edge_probs, trees[1].edge_probs)


def test_a_tree_that_ends_early_is_the_first_levels_of_the_one_that_does_not():
    """The level just drafted is kept; with the same stream of draws it is the same."""
    full = table_tree(fork_tree(draft=TableDraft(9, random_q(9, 4)), width=3, depth=4, init="draft"), 9)
    for end in (1, 2, 3):
        stop = Scripted((*YES * (end - 1), False))
        drafter = fork_tree(draft=TableDraft(9, random_q(9, 4)), width=3, depth=4, init="draft", decision=stop)
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
        fork_tree(**({"draft": TableDraft(9, random_q(9, 4)), "width": 2, "depth": 3} | options))


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
            with pytest.raises(PairError, match="IndependentLongest does not keep the target's distribution"):
                check_lossless(drafter, IndependentLongest(), T1)
