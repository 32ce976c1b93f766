"""What is said below improved MCSD's Figure 4."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pandas as pd

from bench import published
from bench.report import tables
from bench.report.improving_mcsd.remarks import NOT_LOSSLESS
from bench.report.improving_mcsd.settings import PAPER
from bench.report.improving_mcsd.static_grids import AHEAD, BEHIND, BEST, LEVEL, Cell, Grid
from bench.stats import Interval

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
            speed = tables.interval(grid.best.measured.tokens_per_s, 1)
            yield (
                f"{grid.name}: most tokens/s at a = {grid.best.swept[0]}, b = {grid.best.swept[1]}: {speed}. Of the "
                f"other trees, {counts[LEVEL]} are level with it, {counts[AHEAD]} ahead by speedup, {counts[BEHIND]} "
                f"behind; {counts[None]} cannot be compared."
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
    """`takes place 2 of 25 by tokens/s and 4 of 25 by speedup, level with the best (0.981 [..] of its speedup)`."""
    cell = next((one for one in grid.cells.values() if is_papers(one)), None)
    if cell is None or cell.run["status"] != "ok":
        return f"has no number ({cell.run['status']})" if cell else "was not run"
    found = {"tokens/s": grid.place(cell, _tokens_per_s), "speedup": grid.place(cell, _speedup)}
    places = " and ".join(f"{at[0]} of {at[1]} by {what}" for what, at in found.items() if at)
    standing, ratio = grid.standings[cell.swept], grid.ratio(cell)
    if standing is None or standing == BEST or ratio is None:
        return f"takes place {places}"
    held = f"{standing} {_PREPOSITIONS[standing]} best"
    return f"takes place {places}, {held} ({tables.interval(ratio, 3)} of its speedup)"


def _tokens_per_s(cell: Cell) -> Interval | None:
    return cell.measured.tokens_per_s


def _speedup(cell: Cell) -> Interval | None:
    return cell.measured.speedup
