"""Acceptance by position, depth and rank of five hand-made steps, counted by hand."""

import pandas as pd
import pytest

from specdec_trees.statistics import positions

NUM_DRAFTED, DEPTH = [3, 3, 3, 3, 0], [2, 2, 2, 2, 0]
PATHS = [[0, 1], [], [1], [0, 0], []]
"""Ranks of the accepted tokens: of four drafting steps, and one without a draft."""


def steps(paths=PATHS) -> pd.DataFrame:
    accepted = [0 if path is None else len(path) for path in paths]
    columns = {"num_drafted": NUM_DRAFTED, "depth": DEPTH, "num_accepted": accepted, "accepted_ranks": paths}
    return pd.DataFrame(columns)


def test_counts_and_shares_by_position():
    counts = positions.histogram(steps())
    assert counts == [1, 1, 2]  # the step without a draft is no step of an engine
    reached = positions.reached(counts)
    assert reached == [3, 2]
    assert positions.joint(reached, 4) == [3 / 4, 2 / 4]
    assert positions.conditional(reached, 4) == [3 / 4, 2 / 3]


def test_positions_that_no_step_reached_are_there_and_ask_nothing():
    none = positions.reached(positions.histogram(steps([[], [], [], [], []])))
    assert none == [0, 0]
    assert positions.joint(none, 4) == [0, 0]
    assert positions.conditional(none, 4) == [0]  # nobody can say what follows what was never accepted
    assert positions.joint([], 0) == positions.conditional([], 0) == []
    assert positions.histogram(steps()[4:]) == [0]


def test_accepted_children_by_depth_and_rank():
    counts = positions.accepted_by_rank(steps())
    assert counts.tolist() == [[2, 1], [1, 1]]  # depth 1: ranks 0, 1, 0; depth 2: ranks 1, 0
    assert counts.sum(axis=1).tolist() == positions.reached(positions.histogram(steps()))
    assert positions.accepted_by_rank(steps([[0], None, [1], [0], []])) is None
    assert positions.accepted_by_rank(steps([[], [], [], [], []])).size == 0


def test_children_that_were_asked_for_by_depth_and_rank():
    """A root with two children, of which the first, accepted, has two children, and the second one."""
    nodes = pd.DataFrame(
        {
            "depth": [1, 1, 2, 2, 2],
            "rank": [0, 1, 0, 1, 0],
            "parent_accepted": [True, True, True, True, False],
        }
    )
    assert positions.tested_by_rank(nodes).tolist() == [[1, 1], [1, 1]]
    assert positions.tested_by_rank(nodes[:2]).tolist() == [[1, 1]]
    assert positions.tested_by_rank(nodes[:0]) is None
    assert positions.tested_by_rank(nodes.assign(rank=None)) is None


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_of_independent_tokens_the_conditional_is_their_share_at_each_position(share):
    reached = [1000 * share ** (place + 1) for place in range(4)]
    assert positions.joint(reached, 1000) == pytest.approx([share, share**2, share**3, share**4])
    asked = positions.conditional(reached, 1000)
    assert asked == pytest.approx([share] * (4 if share else 1))
