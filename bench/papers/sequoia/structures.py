"""The structures of trees that Sequoia's Figures 1, 2 and 5a set against each other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Structure:
    """One structure: its name in growth rows, its label, and the method of its runs (None where there are none)."""

    name: str
    label: str
    method: str | None
    any_k: bool = False  # whether its k is chosen anew for every size

    @property
    def index(self) -> int:
        """A number of its own, so that it has the same colour in every figure."""
        return STRUCTURES.index(self)


SEQUOIA = Structure("sequoia", "Sequoia", "sequoia")
K_SEQUENCES = Structure("k_sequences", "k sequences", "k_sequences", any_k=True)
STRUCTURES = (
    SEQUOIA,
    K_SEQUENCES,
    Structure("k_ary", "k-ary tree", None, any_k=True),
    Structure("binary", "binary tree", "binary"),
    Structure("sequence", "sequence", "chain"),
)
