"""GSD's metrics on hand-made steps: what is counted, by sample and by step."""

import math
from typing import Any

import pandas as pd
import pytest

from specdec_trees.statistics import graph_metrics

GRAPH = (
    "num_live",
    "num_prob_leaf",
    "num_sib_leaf",
    "num_alias",
    "capped",
    "num_behind_merge",
    "num_displaced",
    "visited_children",
    "recurring",
    "merge_kl",
)
STEP: dict[str, Any] = {"prompt_id": "a", "turn": 0, "draft_forwards": 4, "num_accepted": 2, "num_drafted": 20}
STEP |= {"num_live": 6, "num_prob_leaf": 3, "num_sib_leaf": 5, "num_alias": 2, "capped": False, "num_behind_merge": 0}
STEP |= {"num_displaced": 0, "visited_children": None, "accepted_ranks": [0, 1], "recurring": None, "merge_kl": None}
STEP |= {"draft_s": 0.2, "tree_s": 0.1, "score_s": 0.04, "judge_s": 0.01, "commit_s": 0.03}


def steps(*given: dict[str, Any]) -> pd.DataFrame:
    """Steps as they are read from disk; what is not given is `STEP`'s, and all accepted tokens and a bonus are kept."""
    rows = [STEP | one for one in given]
    frame = pd.DataFrame([{"kept": row["num_accepted"] + 1, **row} for row in rows])
    whole = [name for name in GRAPH if name.startswith("num_")]
    return frame.astype(dict.fromkeys(whole, "Int64") | {"capped": "boolean"})


def rates(frame: pd.DataFrame) -> list[float]:
    """The acceptance rate of every sample."""
    return graph_metrics.samples(frame)["acceptance_rate"].tolist()


def plain(*given: dict[str, Any]) -> pd.DataFrame:
    """Steps of a drafter that grows no graph."""
    return steps(*(dict.fromkeys(GRAPH) | one for one in given))


def test_the_bonus_token_is_no_accepted_token() -> None:
    frame = steps({"num_accepted": 3, "draft_forwards": 4}, {"num_accepted": 0, "draft_forwards": 6})
    (row,) = graph_metrics.samples(frame).to_dict("records")
    assert row["acceptance_rate"] == 3 / 10
    assert row["accepted_per_step"] == 3 / 2


def test_a_sample_has_one_acceptance_rate_of_all_its_steps() -> None:
    """Sample a: 3 of 4 forwards in one step; sample b: 1 of 12 in three."""
    frame = steps(
        {"num_accepted": 3, "draft_forwards": 4},
        *({"prompt_id": "b", "num_accepted": accepted, "draft_forwards": 4} for accepted in (1, 0, 0)),
    )
    assert rates(frame) == [3 / 4, 1 / 12]


def test_turns_are_samples_of_their_own() -> None:
    frame = steps({"num_accepted": 4}, {"turn": 1, "num_accepted": 0}, {"turn": 1, "num_accepted": 0})
    found = graph_metrics.samples(frame)
    assert found[graph_metrics.SAMPLE].to_numpy().tolist() == [["a", 0], ["a", 1]]
    assert rates(frame) == [1, 0]


def test_acceptance_may_exceed_one_behind_merge_edges() -> None:
    assert rates(steps({"num_accepted": 6, "draft_forwards": 4})) == [1.5]


def test_counts_add_up() -> None:
    """512 new tokens, the first of them from the prefill."""
    frame = steps({"num_accepted": 300, "kept": 301}, {"num_accepted": 209, "kept": 210, "num_sib_leaf": 1})
    (row,) = graph_metrics.samples(frame).to_dict("records")
    live, improbable, beside, aliases, rounds = 12, 6, 6, 4, 2
    assert row["created"] == live + improbable + beside
    assert row["drafted"] == live + improbable + rounds
    assert (row["aliases"], row["sib_leaves"]) == (aliases, beside)
    assert row["created"] - row["sib_leaves"] == row["drafted"] - rounds
    assert row["verified"] == 40


@pytest.mark.parametrize(("kept", "scale"), [(511, 1), (255, 2), (127, 4)])
def test_counts_are_scaled_to_512_new_tokens(kept: int, scale: int) -> None:
    (row,) = graph_metrics.samples(steps({"kept": kept})).to_dict("records")
    names = ("created", "drafted", "aliases", "sib_leaves", "verified")
    assert [row[name] for name in names] == [count * scale for count in (14, 10, 2, 5, 20)]
    assert row["acceptance_rate"] == 1 / 2


def test_tokens_past_the_length_limit_do_not_scale() -> None:
    """The last step may accept more than is kept."""
    (row,) = graph_metrics.samples(steps({"num_accepted": 9, "kept": 511})).to_dict("records")
    assert row["drafted"] == 10


def test_capped_is_a_share_of_steps() -> None:
    assert graph_metrics.capped_share(steps({"capped": True}, {}, {}, {})) == 1 / 4


def test_every_accepted_token_has_a_rank() -> None:
    frame = steps({"accepted_ranks": [0, 0, 3]}, {"accepted_ranks": []}, {"accepted_ranks": [1]})
    assert graph_metrics.accepted_children(frame)["child"].tolist() == [1, 1, 4, 2]


def test_every_visited_node_has_an_accepted_child_or_none() -> None:
    """A root of three children, whose second was accepted, which had one, which was not; and a root without any."""
    frame = steps({"visited_children": [3, 1], "accepted_ranks": [1]}, {"visited_children": [0], "accepted_ranks": []})
    found = graph_metrics.visited_nodes(frame)
    assert list(zip(found["children"], found["accepted"], strict=True)) == [(3, 2), (1, 0), (0, 0)]
    assert graph_metrics.visited_nodes(frame.drop(columns="visited_children")).empty


def test_recurrences_are_one_per_graph_and_length() -> None:
    """A graph without paths of two tokens has no share for n = 2, of either kind."""
    frame = steps(
        {"recurring": [0.8, 0.4], "in_recurring": [0.8, 0.5]},
        {"recurring": [0.4, math.nan], "in_recurring": [0.4, 0.0], "draft_forwards": 1},
        {},
    )
    found = graph_metrics.recurrences(frame)[["n", "recurring", "in_recurring", "draft_forwards"]]
    assert list(found.itertuples(index=False, name=None)) == [(1, 0.8, 0.8, 4), (2, 0.4, 0.5, 4), (1, 0.4, 0.4, 1)]
    assert graph_metrics.recurrences(frame.drop(columns="in_recurring")).empty


def test_divergences_are_one_per_merge() -> None:
    frame = steps({"merge_kl": [0.1, 0.3]}, {"merge_kl": []}, {}, {"prompt_id": "b", "merge_kl": [0.2]})
    found = graph_metrics.merge_divergences(frame)
    assert found.to_dict("list") == {"prompt_id": ["a", "a", "b"], "turn": [0, 0, 0], "kl": [0.1, 0.3, 0.2]}


def test_steps_without_a_graph_have_acceptance_alone() -> None:
    frame = plain({"num_accepted": 2}, {"num_accepted": 1})
    (row,) = graph_metrics.samples(frame).to_dict("records")
    assert row["acceptance_rate"] == 3 / 8
    assert all(math.isnan(row[name]) for name in ("created", "drafted", "aliases", "sib_leaves"))
    assert math.isnan(graph_metrics.capped_share(frame))
    assert graph_metrics.recurrences(frame).empty
    assert graph_metrics.merge_divergences(frame).empty


def test_a_sample_that_never_drafted_has_no_rate() -> None:
    """As at the end of the context."""
    frame = steps({"draft_forwards": 0, "num_accepted": 0}, {"prompt_id": "b", "draft_forwards": 4, "num_accepted": 2})
    never, other = rates(frame)
    assert math.isnan(never)
    assert other == 1 / 2


def test_nothing_measured_is_nan() -> None:
    frame = steps({}).iloc[:0]
    assert math.isnan(graph_metrics.capped_share(frame))
    assert graph_metrics.samples(frame).empty
    assert graph_metrics.accepted_children(frame).empty
    assert graph_metrics.merge_divergences(frame).empty
