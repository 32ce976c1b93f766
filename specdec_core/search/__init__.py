"""Offline choice of tree shapes: Sequoia's dynamic programme and its hardware-aware size."""

from specdec_core.search.acceptance import check_acceptance, expected_tokens, isotonic
from specdec_core.search.best_tree import best_tree
from specdec_core.search.greedy import greedy_order
from specdec_core.search.hardware import Choice, choose_tree
from specdec_core.search.programme import Programme
from specdec_core.search.structures import Growth, best_kary, best_sequences, growth

__all__ = [
    "Choice",
    "Growth",
    "Programme",
    "best_kary",
    "best_sequences",
    "best_tree",
    "check_acceptance",
    "choose_tree",
    "expected_tokens",
    "greedy_order",
    "growth",
    "isotonic",
]
