"""The methods of every table by what its paper calls them: the arms of its report."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from bench import papers, published
from bench.artifacts.speedups.arms import Arm
from bench.papers.gsd import main_table, operations, quality
from bench.papers.gsd.classes import LARGE, bound
from bench.papers.gsd.methods import self_drafting


def laid_out(paper: str) -> dict[str, Sequence[Arm]]:
    """The arms of every table in a paper's `layouts.py`; none where it has no such module."""
    if not (Path(papers.__file__).parent / paper / "layouts.py").is_file():
        return {}
    layouts = import_module(f"bench.papers.{paper}.layouts").LAYOUTS
    return {name: layout.arms for name, layout in layouts.items()}


OTHERS: Mapping[str, Mapping[str, Sequence[Arm]]] = {
    "sequoia": {"fig5b": laid_out("sequoia")["table6"]},
    "gsd": {
        "table1": [bound(of, LARGE) for arm in main_table.ARMS for of in (arm, self_drafting(arm))],
        "table3": operations.ARMS,
        "table10": quality.ARMS,
    },
}
"""Arms of artifacts without a layout."""
ARMS: Mapping[str, Mapping[str, Sequence[Arm]]] = {
    paper: laid_out(paper) | OTHERS.get(paper, {}) for paper in published.papers()
}
