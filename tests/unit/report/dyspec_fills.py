"""Synthetic results of DySpec's artifacts."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from specdec_trees.results.rows import NodeRow, StepRow

SAMPLING: dict[str, Any] = {"dataset": "cnn_dm", "temperature": 0.6}
SAMPLING |= {"verifier": "without_replacement", "draws": "without_replacement"}
P = [0.5, 0.2]
THRESHOLD = {"threshold": 0.001, "n": 768, "draft_temperature": 0.6}
Q_AND_P = [(0.02, 0.9), (0.42, 0.21), (0.44, 0.11), (0.97, 0.97), (1.0, 0.5)]
"""Draft and target probability of first children. Acceptance probabilities: 1, 0.5, 0.25, 1, 0.5."""


def fill_small(cells, **given: Any) -> dict[str, str]:
    """The three methods of Tables 1 to 3, by method."""
    options = SAMPLING | {"size": 64} | given
    return {
        "dyspec": cells.add("dyspec", params={"n": 64}, **options),
        "sequoia": cells.add("sized_sequoia", "sequoia", params={"n": 64, "acceptance": P}, **options),
        "spec_infer": cells.add("spec_infer_8x8", "spec_infer", **options),
    }


def fill_large(cells, **given: Any) -> dict[str, str]:
    """The three methods of Table 4, by method."""
    options = SAMPLING | {"size": 768} | given
    return {
        "dyspec": cells.add("dyspec_threshold", "dyspec_threshold", params=THRESHOLD, **options),
        "sequoia": cells.add("sized_sequoia", "sequoia", params={"n": 768, "acceptance": P}, **options),
        "spec_infer": cells.add("spec_infer_16x48", "spec_infer", **options),
    }


def node(run_id: str, place: int, q: float, p: float, **given: Any) -> NodeRow:
    """The first child of an accepted node in the step of this number; the first of two in five are accepted."""
    row = {"run_id": run_id, "prompt_id": f"p{place % 3}", "turn": 0, "step": place, "node": 1, "parent": 0}
    row |= {"rank": 0, "depth": 1, "edge_prob": q, "path_prob": q, "target_prob": p}
    return NodeRow(**row | {"parent_accepted": True, "accepted": place % 5 < 2} | given)


def fill_nodes(cells, **given: Any) -> str:
    run_id = cells.add("dyspec", params={"n": 64}, **SAMPLING | given)
    rows = [node(run_id, place, *Q_AND_P[place % 5]) for place in range(20)]
    rows += [node(run_id, 20, 0.7, 0.7, rank=1), node(run_id, 21, 0.7, 0.7, parent_accepted=False)]
    cells.store.write("nodes", run_id, rows)
    return run_id


def fill_steps(cells) -> None:
    """Of the time of growing a tree 0.1 is choice, 0.3 sampling, 0.2 the target's layout."""
    run_id = cells.add("dyspec", params={"n": 64}, **SAMPLING)
    names = [field.name for field in fields(StepRow)]
    rows = cells.store.read("steps", [run_id]).to_dict("records")
    parts = {"choice_s": 0.1, "sampling_s": 0.3, "layout_s": 0.2}
    split = [row | {name: part * row["tree_s"] for name, part in parts.items()} for row in rows]
    cells.store.write("steps", run_id, [StepRow(**{name: row[name] for name in names}) for row in split])


def fill_sizes(cells, **given: Any) -> str:
    options = SAMPLING | {"dataset": "openwebtext", "params": THRESHOLD, "size": 768}
    return cells.add("dyspec_threshold", **options | given)


def resize(cells, run_id: str, size: int) -> None:
    """Give the tree of the run's first step another size."""
    names = [field.name for field in fields(StepRow)]
    rows = cells.store.read("steps", [run_id]).to_dict("records")
    rows[0]["num_drafted"] = size
    cells.store.write("steps", run_id, [StepRow(**{name: row[name] for name in names}) for row in rows])
