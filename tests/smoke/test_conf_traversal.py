"""Traversal's and SpecHub's experiments: what they sweep, and how their children are drawn."""

from itertools import product

import pytest
from composed import cells, composed, plain

from specdec_trees.plan.trees import size

TASKS = {"mt_bench", "wmt14_de_en", "cnn_dm", "gsm8k"}
BOTH = {"without_replacement", "traversal"}
DEPTHS = {"chain": {(n, n) for n in (2, 4, 6, 8)}, "binary": {(2 ** (n + 1) - 2, n) for n in (2, 3, 4, 5)}}
THREE = {("chain", 5, 5), ("binary", 62, 5), ("eagle_tree", 25, 5)}
DRAWS = {"spec_infer": "iid", "greedy_one": "greedy_one"}


def configs(name: str) -> list[dict]:
    return [plain(composed(*cell)) for cell in cells(f"traversal/{name}")]


def tree(config: dict) -> tuple[str, int, int]:
    """The method, the nodes and the depth."""
    return (config["drafter"]["method"], *size(config["drafter"], config["calibration"]))


@pytest.mark.parametrize(
    ("name", "trees", "temperatures"),
    [
        *((table, THREE, {1.0}) for table in ("table2", "table3", "table6")),
        ("table4", THREE, {0.2, 0.4, 0.6, 0.8, 1.0}),
        ("fig3", {(method, *sizes) for method, both in DEPTHS.items() for sizes in both}, {1.0}),
    ],
)
def test_both_rules_have_each_tree_on_each_task(name, trees, temperatures):
    found = configs(name)
    swept = [
        (tree(one), one["verifier"]["name"], one["dataset"]["name"], one["decoding"]["temperature"]) for one in found
    ]
    assert sorted(swept) == sorted(product(trees, BOTH, TASKS, temperatures))
    for config in found:
        assert config["dataset"]["mode"] == "chat"
        assert (config["dataset"]["limit"], config["dataset"]["max_new_tokens"]) == (80, 1024)


def test_spechub_is_run_beside_two_rules_on_binary_trees_of_the_logs():
    found = configs("spechub")
    assert {tree(one) for one in found} == {("binary", 2, 1), ("binary", 6, 2), ("binary", 14, 3), ("binary", 30, 4)}
    assert {one["verifier"]["name"] for one in found} == {"spec_infer", "without_replacement", "greedy_one"}
    assert len(found) == 4 * 3 * 2 * 2
    for config in found:
        assert config["dataset"]["prompt_tokens"] + config["dataset"]["max_new_tokens"] == 384


@pytest.mark.parametrize("name", ["table2", "table3", "table4", "table6", "fig3", "spechub"])
def test_children_are_drawn_for_the_rule_at_the_targets_temperature(name):
    for config in configs(name):
        drafter = config["drafter"]
        assert drafter["draws"] == DRAWS.get(config["verifier"]["name"], "without_replacement")
        assert drafter["draft_temperature"] == config["decoding"]["temperature"]
