"""What a run's arguments say of its tree: whose first tokens it starts from, and how many levels the draft may add."""

from __future__ import annotations

from typing import Any

from bench.artifacts.runs import Run

PAPER = "improving_mcsd"
LOSSY = " (lossy)"
"""What is said behind a method whose rule does not keep the target's law."""
LOSSY_RULE = "independent_longest"


def virtual(run: Run) -> bool:
    """Whether the first level is the target's own. A run that failed early left no draws: its arguments say it."""
    draws = str(run["draws"] or "")
    return draws.startswith("target") if draws else first_tokens(run) > 0


def first_tokens(run: Run) -> int:
    """W, the number of first tokens from the target's law; 0 where the tree starts from the last token."""
    params = run.params
    if "widths" in params:  # TargetInit; a shape's widths stand in the shape
        return int(params["widths"][0])
    return int(params["width"]) if params.get("init") == "target" else 0


def draft_levels(run: Run) -> int:
    """The most levels that the draft adds to a tree, the target's own level left out; 0 where the arguments say none.

    gamma of a sequence, the length of a k-configuration without the target's level, D of a fork (Lu et al., 2024,
    section 3).
    """
    params = run.params
    if "widths" in params:
        return len(params["widths"]) - 1
    return _depth(params.get("shape", params))


def lossy_mark(run: Run) -> str:
    """` (lossy)`, to be put behind a method, below several first tokens and by the paper's own rule; else nothing."""
    return LOSSY if first_tokens(run) > 1 or run["verifier"] == LOSSY_RULE else ""


def _depth(tree: Any) -> int:
    """Of a shape (a chain's depth, the widths of a k-configuration), or of a fork's own arguments."""
    if not isinstance(tree, dict):
        return 0
    if "widths" in tree:
        return len(tree["widths"])
    return int(tree["depth"]) if isinstance(tree.get("depth"), int) else 0
