"""The methods of every table by what its paper calls them: the arms of its report."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec

from bench import published
from bench.artifacts.speedups.arms import Arm
from bench.papers.gsd import by_dataset, operations, quality, table1


def laid_out(paper: str) -> dict[str, Sequence[Arm]]:
    """The arms of every table in a paper's `layouts.py`; none where it has no such module."""
    if not find_spec(f"bench.papers.{paper}") or not find_spec(f"bench.papers.{paper}.layouts"):
        return {}
    layouts = import_module(f"bench.papers.{paper}.layouts").LAYOUTS
    return {name: layout.arms for name, layout in layouts.items()}


OTHERS: Mapping[str, Mapping[str, Sequence[Arm]]] = {
    "sequoia": {"fig5b": laid_out("sequoia")["table6"]},
    "gsd": {
        **{name: layout.arms for name, layout in by_dataset.LAYOUTS.items()},
        "table1": [*table1.ARMS, *table1.OWN],
        "table3": operations.ARMS,
        "table10": quality.ARMS,
    },
}
"""Arms of artifacts without a layout."""
ARMS: Mapping[str, Mapping[str, Sequence[Arm]]] = {
    paper: laid_out(paper) | OTHERS.get(paper, {}) for paper in published.papers()
}
