"""How large a drafter's trees are, from its config alone; also where that is measured or chosen anew."""

import inspect
from collections.abc import Mapping
from itertools import accumulate
from operator import mul
from typing import Any

import hydra

from specdec_core import TreeShape


def words(drafter: Mapping[str, Any]) -> set[str]:
    """The words in a drafter's config that stand for numbers to be measured."""
    places = [drafter, drafter.get("shape") or {}]
    keys = "acceptance", "n", "depth", "delta"
    return {place[key] for place in places for key in keys if isinstance(place.get(key), str)}


def size(drafter: Mapping[str, Any], calibration: Mapping[str, Any]) -> tuple[int, int]:
    """Drafted nodes and draft forwards of a step.

    What is measured or grown anew is bounded by what `calibration` considers.
    """
    shape = drafter.get("shape") or {}
    if shape and "acceptance" not in shape:
        found: TreeShape = hydra.utils.instantiate(shape, _convert_="all")
        return found.num_drafted, found.depth
    if drafter["method"] == "autoregressive":
        return 0, 0
    sizes = [drafter.get("n"), shape.get("n"), drafter["total"] - 1 if "total" in drafter else None]
    largest = max(calibration["latency"]["num_tokens"]) - 1
    nodes = next((size for size in sizes if isinstance(size, int)), largest)
    if "draft" not in inspect.signature(hydra.utils.get_object(drafter["_target_"])).parameters:
        return nodes, 0
    if fork := _fork(drafter):
        return fork
    if "max_steps" in drafter:  # a token graph: what is verified of it; of a sequence no more than is drafted
        steps = drafter["max_steps"]
        return steps if drafter.get("k", 1) == 1 else drafter["verify_cap"], steps
    if drafter["_target_"].endswith(".DySpecHeap"):  # a forward for every node
        return nodes, nodes
    depths = [drafter.get("depth"), drafter.get("max_depth")]
    return nodes, next((depth for depth in depths if isinstance(depth, int)), min(nodes, calibration["depths"]))


def _fork(drafter: Mapping[str, Any]) -> tuple[int, int] | None:
    """Of a tree that starts from the target's distribution, or of sequences side by side; None of other trees."""
    if "widths" in drafter:
        return sum(accumulate(drafter["widths"], mul)), len(drafter["widths"]) - 1
    if "init" in drafter:
        return drafter["width"] * (drafter["depth"] + (drafter["init"] == "target")), drafter["depth"]
    return None
