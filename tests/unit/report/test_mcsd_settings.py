"""What a run's arguments say of its tree, and alpha with its interval from them."""

from types import SimpleNamespace
from typing import Any

import pytest
from mcsd_table_fills import chain, tree
from mcsd_table_fills import run as add

from bench.artifacts import frame
from bench.artifacts.tables import named_rows
from bench.papers.improving_mcsd.methods import alpha, alpha_drafted, draft_levels, first_tokens, lossy_mark, virtual
from bench.statistics import metrics, samples


def row(params: dict[str, Any], draws: str = "", verifier: str = "multi_candidate") -> SimpleNamespace:
    return SimpleNamespace(params=params, draws=draws, verifier=verifier)


@pytest.mark.parametrize(
    ("params", "draws", "levels", "first"),
    [
        (chain(4), "without_replacement", 4, 0),
        (tree(4, 2, 2, 1), "without_replacement", 4, 0),
        ({"widths": [2, 4, 3, 1, 1]}, "targets_without_replacement", 4, 2),
        ({"widths": [1, 4]}, "target_topk", 1, 1),
        ({"width": 16, "depth": 5, "init": "target"}, "targets_without_replacement", 5, 16),
        ({"width": 16, "depth": 5, "init": "draft"}, "without_replacement", 5, 0),
        ({"n": 50, "delta": None}, "topk", 0, 0),
        ({}, "topk", 0, 0),
    ],
)
def test_levels_and_first_tokens_of_every_kind_of_tree(params, draws, levels, first):
    assert (draft_levels(row(params, draws)), first_tokens(row(params, draws))) == (levels, first)
    assert virtual(row(params, draws)) == virtual(row(params)) == (first > 0)


def test_what_is_lossy_is_told_by_the_first_tokens_and_by_the_rule():
    one, two = {"widths": [1, 4]}, {"widths": [2, 4]}
    assert lossy_mark(row(one, verifier="longest_subtree")) == lossy_mark(row(tree(4, 2))) == ""
    assert lossy_mark(row(one, verifier="independent_longest")) == " (lossy)"
    assert lossy_mark(row(two, verifier="longest_subtree")) == " (lossy)"


@pytest.mark.parametrize(("name", "stops"), [("ti", 0.0), ("dynamic", 0.3), ("mcsd4221", 0.0)])
def test_alpha_with_its_interval_is_that_of_the_metrics(name: str, stops: float, cells) -> None:
    add(cells, name, stops=stops)
    (run,) = named_rows(frame.load(cells.load()))
    steps = run.steps
    options = {"virtual": virtual(run)}
    whole, drafted = (samples.interval(of(run)) for of in (alpha, alpha_drafted))
    assert whole.value == pytest.approx(metrics.alpha(steps, draft_levels(run), **options))
    assert drafted.value == pytest.approx(metrics.alpha_drafted(steps, **options))
    assert (drafted.value > whole.value) == bool(stops)
    assert whole.low < whole.value < whole.high
    assert whole.n == steps["prompt_id"].nunique()
