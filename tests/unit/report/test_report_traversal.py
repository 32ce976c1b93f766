"""Traversal's tables and figure against plain sums: items, gains, all tasks together, and whose number stands where."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from drawn import axes_of, column, lines, outputs, table_of

from specdec_trees import published
from specdec_trees.artifacts.tables import Table
from specdec_trees.papers.beyond.claims import CLAIMS
from specdec_trees.papers.traversal.lines import BY_ITEM, GAIN

TREES = ("chain5", "binary_depth5", "eagle25")
METHODS = {"chain": ("chain", {}), "binary": ("kary", {"branching": 2}), "eagle": ("eagle25", {})}
RULES = {"without_replacement": "token-level", "traversal": "Traversal"}
LLAMA3 = {"target": "llama31_8b", "draft": "llama32_1b", "stand_in": False}
RUN = {"temperature": 1.0, "draws": "without_replacement", "conversations": 7}


def shaped(name: str) -> dict:
    """The method and the arguments of a drafter by its name."""
    kind = name.partition("_")[0].rstrip("0123456789")
    shape, more = METHODS[kind]
    depth = {} if kind == "eagle" else {"depth": int(name[-1])}
    method = "eagle_tree" if kind == "eagle" else kind
    return {"method": method, "params": {"shape": {"_target_": f"specdec_core.shapes.{shape}", **more, **depth}}}


def fill(cells, experiment: str, *, datasets=("mt_bench", "gsm8k"), trees=TREES, **given) -> dict:
    """A run of both rules on each tree and dataset; by dataset, drafter and rule its id."""
    cells.experiment, ids = f"traversal/{experiment}", {}
    for place, dataset in enumerate(datasets):
        for name in trees:
            for rule in RULES:
                options = RUN | {"mal": 2.5 + place + (rule == "traversal") * 0.1, "steps": 9 + place}
                options |= {"verifier": rule, "dataset": dataset, **shaped(name)} | given
                ids[dataset, name, rule] = cells.add(name, **options)
    return ids


def items(cells, run_id: str) -> pd.Series:
    """Of each conversation its new tokens a step."""
    steps = cells.load().steps
    return steps[steps["run_id"] == run_id].groupby("prompt_id")["acceptance_length"].mean()


def cell(table: Table, metric, name: str, **where: object):
    (found,) = column(table, metric.key, name, "label", **where).values()
    return found


def test_an_item_counts_once_however_long_its_answer(cells) -> None:
    ids = fill(cells, "table2")
    table = table_of("traversal/table2", cells)
    for (dataset, name, rule), run_id in ids.items():
        found = cell(table, BY_ITEM, "value", dataset=dataset, drafter=name, rule=RULES[rule])
        assert found == pytest.approx(items(cells, run_id).mean())


def test_a_gain_is_in_pairs_and_stands_in_traversals_row(cells) -> None:
    ids = fill(cells, "table2")
    table = table_of("traversal/table2", cells)
    where = {"dataset": "mt_bench", "drafter": "binary_depth5"}
    first, other = (items(cells, ids[(*where.values(), rule)]).mean() for rule in ("traversal", "without_replacement"))
    assert cell(table, GAIN, "value", rule="Traversal", **where) == pytest.approx(first / other)
    assert cell(table, GAIN, "published", rule="Traversal", **where) == pytest.approx(4.76 / 4.64)
    assert cell(table, GAIN, "value", rule="token-level", **where) is None


def test_tasks_without_prompts_have_the_papers_numbers_alone(cells) -> None:
    fill(cells, "table2")
    table = table_of("traversal/table2", cells)
    published = column(table, BY_ITEM.key, "published", dataset="natural_questions")
    assert [*published.values()] == [3.51, 3.68, 4.32, 4.40, 4.19, 4.31]
    assert set(column(table, BY_ITEM.key, dataset="rag").values()) == {None}


def test_all_tasks_together_are_all_their_conversations(cells) -> None:
    ids = fill(cells, "table2", published=LLAMA3)
    table = table_of("traversal/table2", cells)
    where = {"dataset": "all: mt_bench + gsm8k", "drafter": "chain5", "rule": "Traversal"}
    both = [items(cells, ids[dataset, "chain5", "traversal"]) for dataset in ("mt_bench", "gsm8k")]
    assert cell(table, BY_ITEM, "value", **where) == pytest.approx(np.concatenate(both).mean())
    assert cell(table, BY_ITEM, "published", **where) == 3.99
    assert cell(table, BY_ITEM, "verdict", **where).startswith(("order holds", "not resolved", "differs (vs"))


def test_a_task_that_one_rule_lacks_is_not_among_all(cells) -> None:
    fill(cells, "table3", trees=("chain5",))
    cells.add("chain5", **RUN, verifier="traversal", dataset="cnn_dm", **shaped("chain5"))
    datasets = set(table_of("traversal/table3", cells).long["dataset"])
    assert {name for name in datasets if name.startswith("all")} >= {"all: mt_bench + gsm8k"}
    assert not any("cnn_dm" in name for name in datasets if name.startswith("all"))


def test_table_4_has_a_line_for_each_temperature_and_no_task(cells) -> None:
    for temperature in (1.0, 0.2):
        fill(cells, "table4", temperature=temperature)
    table = table_of("traversal/table4", cells)
    assert set(table.long["dataset"]) == {"all: mt_bench + gsm8k"}
    lines_ = table.long[table.long["metric"].isin([BY_ITEM])]
    assert lines_["temperature"].tolist() == [0.2] * 6 + [1.0] * 6
    assert lines_["published"].tolist()[:2] + lines_["published"].tolist()[-2:] == [4.16, 4.20, 4.49, 4.60]


def test_table_6_has_both_ways_to_count(cells) -> None:
    head = {"target": "vicuna_7b", "draft": "eagle", "stand_in": False}
    ids = fill(cells, "table6", datasets=("gsm8k",), published=head)
    table = table_of("traversal/table6", cells)
    where = {"drafter": "chain5", "rule": "token-level"}
    steps = cells.load().steps
    own = steps[steps["run_id"] == ids["gsm8k", "chain5", "without_replacement"]]
    assert column(table, "mal", **where, who="rule") == {"token-level": pytest.approx(own["acceptance_length"].mean())}
    assert column(table, "mal", "published", **where, who="rule") == {"token-level": 2.57}
    assert cell(table, BY_ITEM, "published", **where) == 2.51


def test_fig_3_draws_both_rules_by_depth_and_the_papers_values(cells) -> None:
    names = ("chain2", "chain8", "binary_depth2", "binary_depth5")
    ids = fill(cells, "fig3", datasets=("gsm8k",), trees=names)
    chains, gains, binaries, _ = axes_of("traversal/fig3", cells)
    for name, axes in (("chain8", chains), ("binary_depth5", binaries)):
        depth = float(name[-1])
        drawn = [point for line in lines(axes) for point in line]
        for rule in RULES:
            mean = items(cells, ids["gsm8k", name, rule]).mean()
            assert any(point == pytest.approx((depth, mean)) for point in drawn)
    (stars,) = lines(chains, marker="*")
    printed = {2: (2.55, 2.58), 4: (3.47, 3.56), 6: (4.10, 4.23), 8: (4.50, 4.67)}
    assert sorted(stars) == [(depth, value) for depth, values in printed.items() for value in values]
    (leads,) = lines(gains, marker="*")
    assert sorted(leads) == [(depth, pytest.approx(after / before)) for depth, (before, after) in printed.items()]


def test_spechub_is_ahead_by_a_difference_in_pairs(cells) -> None:
    cells.experiment, ids = "traversal/spechub", {}
    mals = {
        "spec_infer": ("iid", 1.6),
        "without_replacement": ("without_replacement", 1.7),
        "greedy_one": ("greedy_one", 2),
    }
    for rule, (draws, mal) in mals.items():
        options = RUN | {"temperature": 0.6, "dataset": "cnn_dm", "draws": draws, "mal": mal, "verifier": rule}
        ids[rule] = cells.add("binary_depth1", **options, **shaped("binary_depth1"))
    table = table_of("traversal/spechub", cells)
    steps = cells.load().steps.groupby("run_id")["acceptance_length"].mean()
    for key, rule, logs in (("over_rrs", "spec_infer", 1.5540), ("over_rrsw", "without_replacement", 1.5997)):
        where = {"who": "rule", "tree": "binary, depth 1"}
        more = column(table, key, **where)["SpecHub"]
        assert more == pytest.approx(steps[ids["greedy_one"]] - steps[ids[rule]])
        assert column(table, key, "published", **where)["SpecHub"] == pytest.approx(1.6157 - logs)
    assert column(table, "mal", "published", who="rule", tree="binary, depth 4")["SpecHub"] == 2.4031


@pytest.mark.parametrize("name", ["table2", "table3", "table4", "table6", "fig3", "spechub"])
def test_an_artifact_of_failed_runs_alone_is_no_crash(cells, name: str) -> None:
    fill(cells, name, trees=("chain5",), status="failed")
    assert name == "fig3" or outputs(f"traversal/{name}", cells)


def test_claims_are_of_rules_on_one_tree_and_of_orders_that_the_numbers_have() -> None:
    own = [claim for claim in CLAIMS if claim.artifact.startswith("traversal/")]
    assert Counter(claim.artifact.partition("/")[2] for claim in own) == {"table2": 3, "table3": 3, "spechub": 2}
    for claim in own:
        assert (claim.ahead.given, claim.ahead.params) == (claim.behind.given, claim.behind.params)
        rows = published.find(*claim.artifact.split("/"))
        for _, setting in rows[rows["method"] != "autoregressive"].groupby(["draft", "dataset", "temperature"]):
            first, other = (arm.published(setting) for arm in (claim.ahead, claim.behind))
            assert all(first[metric] > other[metric] for metric in first)
