"""Offline choice of tree shapes: Sequoia's dynamic programme and its hardware-aware size."""

from specdec_core.search.acceptance import check_acceptance, expected_tokens, isotonic
from specdec_core.search.best_tree import best_tree
from specdec_core.search.greedy import greedy_order
from specdec_core.search.hardware import Choice, choose_tree
from specdec_core.search.programme import Programme

__all__ = [
    "Choice",
    "Programme",
    "best_tree",
    "check_acceptance",
    "choose_tree",
    "expected_tokens",
    "greedy_order",
    "isotonic",
]
