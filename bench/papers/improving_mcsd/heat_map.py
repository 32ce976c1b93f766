"""Improved MCSD, Figure 4: speed over static target-initialised trees, two of whose widths are swept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from bench.artifacts import control, definitions, style, tables
from bench.artifacts.blocks import drafted_blocks
from bench.artifacts.metric import SPEEDS, cells, headers, legend, lossless_words
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.tables import Table
from bench.artifacts.wording import scale, setting
from bench.papers.improving_mcsd.heat_map_notes import METHOD, is_papers, of_grids, table2
from bench.papers.improving_mcsd.remarks import left_out
from bench.papers.improving_mcsd.static_grids import AHEAD, BEHIND, BEST, LEVEL, Cell, Grid, grids
from bench.results.store import Results
from bench.statistics.intervals import Interval

TITLE = "Improved MCSD Figure 4: tokens/s over static target-initialised trees"
NOT_RUN = "not run"
_MAP = "cividis"
"""Its lightness rises from end to end, and it looks alike with every common colour vision."""
COLUMNS = (
    *("Pair", "Rule", "Tree", "nodes", *headers(SPEEDS), "against the best", "speedup", "alpha", "MAL"),
    *("draft forwards", "lossless"),
)
LEGEND = {
    "Tree": "children per node from the first level on; the first level is the target's own",
    "nodes": "nodes that the target verifies, first tokens counted; mean over steps",
    **legend(SPEEDS),
    "against the best": f"{BEST}: the largest speedup. The others by the ratio of their speedup to its, paired over "
    f"conversations: {LEVEL} if the 95% interval holds 1, {BEHIND} below, {AHEAD} above it",
    "speedup": definitions.SPEEDUP,
    "alpha": definitions.ALPHA,
    "MAL": definitions.MAL,
    "draft forwards": "per decoding step",
    "lossless": definitions.LOSSLESS,
}


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a panel shows of its cells: a value that is coloured, and words below it."""

    label: str
    of: Callable[[Cell], Interval | None]
    digits: int
    below: Callable[[Cell], str]


_PANELS = (
    _Shown(
        "tokens/s, below it the speedup",
        lambda cell: cell.tokens_per_s,
        1,
        lambda cell: f"{cell.speedup.value:.2f}x" if cell.speedup else "",
    ),
    _Shown(
        "alpha, below it the number of verified nodes",
        lambda cell: cell.alpha,
        2,
        lambda cell: f"n = {cell.mean_size:.0f}" if cell.mean_size else "",
    ),
)


@style.styled
def heat_map(name: str, results: Results) -> list[Output]:
    """Two panels per block and rule, tokens/s and alpha, a number in every cell; and a table of all cells."""
    found = [grid for block in drafted_blocks(results, (METHOD,)) for grid in grids(block.standing_in(table2()))]
    if not found:
        raise NoResultsError(
            "no run is of a target-initialised tree with two draft levels or more that drafts as its decoding asks for"
        )
    words = setting(grid.block for grid in found)
    canvas, axes = style.panels(TITLE, words, len(_PANELS) * len(found), panel=(5.6, 4.4))
    panels = [(grid, shown) for grid in found for shown in _PANELS]
    for axis, (grid, shown) in zip(axes, panels, strict=True):
        _draw(axis, grid, shown)
    cells = [(grid, cell) for grid in found for cell in grid.cells.values()]
    frame = tables.frame([_row(grid, cell) for grid, cell in cells], COLUMNS)
    ids = tuple(cell.run_id for _, cell in cells)
    controls = control.notes({id(grid.block): grid.block for grid in found}.values())
    notes = (*dict.fromkeys(scale(grid.block) for grid in found), *of_grids(found), *controls)
    notes += tuple(left_out(results, ids))
    table = Table(name, f"{TITLE} ({words})", frame, notes, LEGEND, ids)
    return [style.Figure(name, table.title, canvas, table.runs), table]


def readable(background: Sequence[float]) -> str:
    """Black or white, whichever has the higher contrast with a colour (WCAG); one of them has 4.5:1 or more."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in background[:3]]
    luminance = float(np.dot([0.2126, 0.7152, 0.0722], linear))
    return "black" if (luminance + 0.05) ** 2 >= 0.05 * 1.05 else "white"


def _draw(axes: Axes, grid: Grid, shown: _Shown) -> None:
    rows, columns = (sorted({key[place] for key in grid.cells}) for place in (0, 1))
    values = np.array([[_value(grid.cells.get((a, b)), shown) for b in columns] for a in rows])
    colours = np.ones((*values.shape, 4))
    if np.isfinite(values).any():
        mesh = axes.pcolormesh(np.ma.masked_invalid(values), cmap=_MAP, edgecolors="white", linewidth=1)
        axes.figure.colorbar(mesh, ax=axes, label=shown.label)
        colours = np.asarray(mesh.cmap(mesh.norm(values)))
    for (row, column), value in np.ndenumerate(values):
        cell, there = grid.cells.get((rows[row], columns[column])), np.isfinite(value)
        text = f"{value:.{shown.digits}f}\n{shown.below(cell)}" if cell and there else _status(cell)
        colour = readable(colours[row, column].tolist()) if there else "black"
        axes.text(column + 0.5, row + 0.5, text.strip(), color=colour, ha="center", va="center", fontsize=8)
    axes.set_xticks([place + 0.5 for place in range(len(columns))], [str(b) for b in columns])
    axes.set_yticks([place + 0.5 for place in range(len(rows))], [str(a) for a in rows])
    axes.set(xlim=(0, len(columns)), ylim=(0, len(rows)), facecolor="#EEEEEE", title=grid.name)
    axes.set(xlabel="b: children per node of the first draft level", ylabel="a: drafted children per first token")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    _mark(axes, grid, rows, columns)


def _value(cell: Cell | None, shown: _Shown) -> float:
    found = shown.of(cell) if cell else None
    return found.value if found else np.nan


def _status(cell: Cell | None) -> str:
    """Why there is no number."""
    return str(cell["status"]) if cell else NOT_RUN


def _mark(axes: Axes, grid: Grid, rows: Sequence[int], columns: Sequence[int]) -> None:
    """A frame in the best cell, a dashed one in the paper's tree; the legend says which is which."""
    best: dict[str, Any] = {"edgecolor": style.COLOURS[1], "linewidth": 3, "label": "largest speedup"}
    papers: dict[str, Any] = {"edgecolor": "black", "linestyle": "--", "label": "the tree of the paper's Table 2"}
    marked = [(grid.best, 0.04, best), *((cell, 0.12, papers) for cell in grid.cells.values() if is_papers(cell))]
    handles = []
    for cell, inset, look in marked:
        if cell:
            a, b = cell.swept
            corner, side = (columns.index(b) + inset, rows.index(a) + inset), 1 - 2 * inset
            axes.add_patch(
                Rectangle(corner, side, side, fill=False, edgecolor="white", linewidth=3.6)
            )  # on dark colours
            handles.append(axes.add_patch(Rectangle(corner, side, side, fill=False, **look)))
    style.legend_below(axes, handles=handles)


def _row(grid: Grid, cell: Cell) -> dict[str, str]:
    run, ok = cell, cell.ok
    return {
        "Pair": grid.block.name,
        "Rule": str(cell["verifier"]),
        "Tree": "-".join(map(str, cell.widths)),
        "nodes": tables.number(cell.mean_size, 1),
        **cells(SPEEDS, run) | ({} if ok else {"tokens/s": run.status}),
        "against the best": grid.standings[cell.swept] or tables.ABSENT,
        "speedup": tables.interval(run.speedup),
        "alpha": tables.interval(cell.alpha, 3),
        "MAL": tables.interval(run.mal),
        "draft forwards": tables.number(cell.draft_forwards if ok else None, 1),
        "lossless": lossless_words(run),
    }
