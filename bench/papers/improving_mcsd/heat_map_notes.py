"""What is said below improved MCSD's Figure 4."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pandas as pd

from bench import published
from bench.artifacts import tables
from bench.papers.improving_mcsd.remarks import NOT_LOSSLESS
from bench.papers.improving_mcsd.settings import PAPER
from bench.papers.improving_mcsd.static_grids import AHEAD, BEHIND, BEST, LEVEL, Cell, Grid

METHOD = "target_init_mcsd"
_PREPOSITIONS = {LEVEL: "with the", AHEAD: "of the", BEHIND: "the"}


def table2() -> pd.DataFrame:
    """The paper's numbers of this method's trees."""
    return published.find(PAPER, "table2", method=METHOD)


def is_papers(cell: Cell) -> bool:
    """Whether this is the tree that the paper's tables have."""
    return cell.widths == _papers()


def of_grids(found: Sequence[Grid]) -> Iterator[str]:
    """All notes: what the paper says of the figure, which tree is best here, and where the paper's own stands."""
    yield (
        "The paper states neither the axes nor a number of this figure; a and b are our choice. What its text says of "
        f"it (section 4.2): the grid search in Figure 4 finds {_tree()} to yield the optimal speedup on MT-Bench."
    )
    yield NOT_LOSSLESS
    for grid in found:
        counts = Counter(grid.standings.values())
        if grid.best:
            speedup = tables.interval(grid.best.speedup)
            yield (
                f"{grid.name}: largest speedup at a = {grid.best.swept[0]}, b = {grid.best.swept[1]}: {speedup}. Of "
                f"the other trees, {counts[LEVEL]} are level with it, {counts[AHEAD]} ahead, {counts[BEHIND]} behind; "
                f"{counts[None]} cannot be compared."
            )
        if _may_have(grid):
            yield f"{grid.name}, {grid.block.first['dataset']}: the paper's tree, {_tree()}, {_standing(grid)}."


def _papers() -> tuple[int, ...]:
    """The tree of its Table 2."""
    (params,) = set(table2()["params"])
    return tuple(map(int, str(params).removeprefix("k_config=").split("-")))


def _tree() -> str:
    return "-".join(map(str, _papers()))


def _may_have(grid: Grid) -> bool:
    """Whether the widths that are not swept are those of the paper's tree."""
    widths, papers = next(iter(grid.cells.values())).widths, _papers()
    return (widths[0], widths[3:]) == (papers[0], papers[3:])


def _standing(grid: Grid) -> str:
    """`takes place 4 of 25 by speedup, level with the best (0.981 [..] of its speedup)`."""
    cell = next((one for one in grid.cells.values() if is_papers(one)), None)
    if cell is None or cell["status"] != "ok":
        return f"has no number ({cell['status']})" if cell else "was not run"
    place, standing, ratio = grid.place(cell), grid.standings[cell.swept], grid.ratio(cell)
    if place is None:
        return "has no speedup"
    words = f"takes place {place[0]} of {place[1]} by speedup"
    if standing is None or standing == BEST or ratio is None:
        return words
    return f"{words}, {standing} {_PREPOSITIONS[standing]} best ({tables.ratio(ratio)} of its speedup)"
