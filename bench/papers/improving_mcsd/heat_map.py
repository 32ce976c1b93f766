"""Improved MCSD, Figure 4: speed over static target-initialised trees, two of whose widths are swept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from bench import published
from bench.artifacts import style, tables, ties
from bench.artifacts.blocks import Block, drafted_blocks
from bench.artifacts.metric import (
    AUTOREGRESSIVE_TOKENS_PER_S,
    FORWARDS,
    LOSSLESS,
    MAL,
    TOKENS_PER_S,
    Metric,
    or_status,
)
from bench.artifacts.outputs import NoResultsError, Output
from bench.artifacts.run_table import run_table
from bench.artifacts.runs import Run, run_ids
from bench.artifacts.wording import setting
from bench.papers.improving_mcsd import methods as mcsd
from bench.published import params_of
from bench.results.store import Results

METHOD = "target_init_mcsd"
TITLE = "Improved MCSD Figure 4: speed of static target-initialised trees"
BEST, LEVEL, BEHIND, AHEAD = "best", "level", "behind", "ahead"
_PREPOSITIONS = {LEVEL: "with the", AHEAD: "of the", BEHIND: "the"}
_PRINTED = published.find(mcsd.PAPER, "table2", method=METHOD)
PAPERS = tuple(map(int, params_of(_PRINTED["params"].iloc[0])["k_config"].split("-")))
"""The tree that the paper's tables have."""
_MAP = "cividis"
"""Its lightness rises from end to end, and it looks alike with every common colour vision."""
_PANELS: tuple[tuple[Metric, str, Callable[[Run], str]], ...] = (
    (
        mcsd.SPEEDUP,
        "speedup, below it tokens/s",
        lambda run: f"{found.value:.0f}" if (found := TOKENS_PER_S.of(run)) else "",
    ),
    (
        mcsd.ALPHA,
        "alpha, below it the number of verified nodes",
        lambda run: f"n = {run.mean_size:.0f}" if run.mean_size else "",
    ),
)
"""What is coloured, its label, and the words below it."""


def _widths(run: Run) -> tuple[int, ...]:
    """Children per node, from the first level on; the first two draft levels have a and b."""
    return tuple(run.params.get("widths", ()))


@dataclass(frozen=True)
class Grid:
    """The trees of a block, by a and b, whose other widths and rule are the same."""

    name: str
    runs: dict[tuple[int, int], Run]

    @property
    def block(self) -> Block:
        """That of its runs."""
        return next(iter(self.runs.values())).block

    @property
    def noisy(self) -> bool:
        """Whether times are too noisy to rank its trees."""
        return mcsd.noisy(self.block)

    @cached_property
    def best(self) -> Run | None:
        """The run with the largest speedup; None where none has any, or times are too noisy."""
        ran = [run for run in self.runs.values() if run.speedup and not self.noisy]
        return max(ran, key=lambda run: run.rank, default=None)

    @cached_property
    def standings(self) -> dict[str, str | None]:
        """How every run stands against the best one, by its id: by the ratio of speedups, with its interval.

        `!` in place of it where times are too noisy.
        """
        return {run.run_id: self._standing(run) for run in self.runs.values()}

    def _standing(self, run: Run) -> str | None:
        if self.noisy and run.speedup:
            return tables.ABSENT + ties.UNRANKED
        if self.best is None or run is self.best:
            return BEST if self.best else None
        return mcsd.ahead(mcsd.gain(run, self.best), AHEAD, BEHIND, LEVEL)


def _grids(block: Block) -> Iterator[Grid]:
    """The grids of a block, one for every rule and every choice of the widths that are not swept.

    Of the runs that draft as their decoding asks for, and of several runs of a tree the last that ended well.
    """
    runs = [run for run in block.every if len(_widths(run)) > 2 and mcsd.drafts_as_asked(run, ["widths"])]
    rules = {run["verifier"] for run in runs}
    found: dict[str, dict[tuple[int, int], list[Run]]] = {}
    for run in runs:
        first, a, b, *others = _widths(run)
        shape = ", ".join(map(str, [first, "a", "b", *others]))
        rule = f", {run['verifier']}" if len(rules) > 1 else ""
        name = f"{block.name}, ({shape}){rule}{mcsd.lossy_mark(run)}"
        found.setdefault(name, {}).setdefault((a, b), []).append(run)
    for name, same in found.items():
        yield Grid(name, {key: mcsd.last(several) for key, several in sorted(same.items())})


def heat_map(name: str, results: Results) -> list[Output]:
    """Two panels per block and rule, tokens/s and alpha, a number in every cell; and a table of all cells."""
    found = [grid for block in drafted_blocks(results, (METHOD,)) for grid in _grids(block.standing_in(_PRINTED))]
    if not found:
        raise NoResultsError(
            "no run is of a target-initialised tree with two draft levels or more that drafts as its decoding asks for"
        )
    rows = [
        ({"Pair": grid.block.name, "Rule": str(run["verifier"]), "Tree": "-".join(map(str, _widths(run)))}, run)
        for grid in found
        for run in grid.runs.values()
    ]
    standings = {run_id: standing or tables.ABSENT for grid in found for run_id, standing in grid.standings.items()}
    against = Metric(
        "against the best",
        lambda run: standings[run.run_id],
        f"{BEST}: the largest speedup. The others by the ratio of their speedup to its, paired over conversations: "
        f"{LEVEL} if the 95% interval holds 1, {BEHIND} below, {AHEAD} above it",
    )
    speeds = (or_status(TOKENS_PER_S), AUTOREGRESSIVE_TOKENS_PER_S)
    ids, panels = run_ids(run for _, run in rows), [(grid, *panel) for grid in found for panel in _PANELS]
    words = setting(grid.block for grid in found)
    figure = style.drawn(name, TITLE, words, _draw, panels, ids, panel=(5.6, 4.4))
    table = run_table(
        name,
        figure.title,
        rows,
        (mcsd.NODES, *speeds, against, mcsd.SPEEDUP, mcsd.FINE_ALPHA, MAL, FORWARDS, LOSSLESS),
        said=(*_said(found), *mcsd.not_shown(results, ids)),
        means={"Tree": "children per node from the first level on; the first level is the target's own"},
    )
    return [figure, table]


def readable(background: Sequence[float]) -> str:
    """Black or white, whichever has the higher contrast with a colour (WCAG); one of them has 4.5:1 or more."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in background[:3]]
    luminance = float(np.dot([0.2126, 0.7152, 0.0722], linear))
    return "black" if (luminance + 0.05) ** 2 >= 0.05 * 1.05 else "white"


def _draw(axes: Axes, grid: Grid, metric: Metric, label: str, below: Callable[[Run], str]) -> None:
    rows, columns = (sorted({key[place] for key in grid.runs}) for place in (0, 1))
    runs = [[grid.runs.get((a, b)) for b in columns] for a in rows]
    values = np.array([[found.value if run and (found := metric.of(run)) else np.nan for run in row] for row in runs])
    colours = np.ones((*values.shape, 4))
    if np.isfinite(values).any():
        mesh = axes.pcolormesh(np.ma.masked_invalid(values), cmap=_MAP, edgecolors="white", linewidth=1)
        label += "; times too noisy to rank" * (grid.noisy and metric is mcsd.SPEEDUP)
        axes.figure.colorbar(mesh, ax=axes, label=label)
        colours = np.asarray(mesh.cmap(mesh.norm(values)))
    for (row, column), value in np.ndenumerate(values):
        colour = readable(colours[row, column].tolist()) if np.isfinite(value) else "black"
        run = runs[row][column]
        text = f"{value:.{metric.digits}f}\n{below(run)}" if run and np.isfinite(value) else _status(run)
        axes.text(column + 0.5, row + 0.5, text.strip(), color=colour, ha="center", va="center", fontsize=8)
    axes.set_xticks([place + 0.5 for place in range(len(columns))], [str(b) for b in columns])
    axes.set_yticks([place + 0.5 for place in range(len(rows))], [str(a) for a in rows])
    axes.set(xlim=(0, len(columns)), ylim=(0, len(rows)), facecolor="#EEEEEE", title=grid.name)
    axes.set(xlabel="b: children per node of the first draft level", ylabel="a: drafted children per first token")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    _mark(axes, grid, rows, columns)


def _status(run: Run | None) -> str:
    """Why there is no number."""
    return run.status if run else "not run"


def _mark(axes: Axes, grid: Grid, rows: Sequence[int], columns: Sequence[int]) -> None:
    """A frame in the best cell, a dashed one in the paper's tree; the legend says which is which."""
    best: dict[str, Any] = {"edgecolor": style.COLOURS[1], "linewidth": 3, "label": "largest speedup"}
    papers: dict[str, Any] = {"edgecolor": "black", "linestyle": "--", "label": "the tree of the paper's Table 2"}
    handles = []
    for run, inset, look in ((grid.best, 0.04, best), (_papers(grid), 0.12, papers)):
        if run:
            _, a, b, *_ = _widths(run)
            corner, side = (columns.index(b) + inset, rows.index(a) + inset), 1 - 2 * inset
            plate = Rectangle(corner, side, side, fill=False, edgecolor="white", linewidth=3.6)  # on dark colours
            axes.add_patch(plate)
            handles.append(axes.add_patch(Rectangle(corner, side, side, fill=False, **look)))
    style.legend_below(axes, handles=handles)


def _papers(grid: Grid) -> Run | None:
    return next((run for run in grid.runs.values() if _widths(run) == PAPERS), None)


def _said(found: Sequence[Grid]) -> Iterator[str]:
    """What the paper says of the figure, which tree is best here, and where the paper's own stands."""
    tree = "-".join(map(str, PAPERS))
    yield (
        "The paper states neither the axes nor a number of this figure; a and b are our choice. What its text says of "
        f"it (section 4.2): the grid search in Figure 4 finds {tree} to yield the optimal speedup on MT-Bench."
    )
    yield mcsd.NOT_LOSSLESS
    for grid in found:
        counts = Counter(grid.standings.values())
        if grid.noisy:
            yield f"{grid.name}: times are too noisy to rank the trees (!)."
        elif grid.best:
            _, a, b, *_ = _widths(grid.best)
            yield (
                f"{grid.name}: largest speedup at a = {a}, b = {b}: {tables.interval(grid.best.speedup)}. Of "
                f"the other trees, {counts[LEVEL]} are level with it, {counts[AHEAD]} ahead, {counts[BEHIND]} behind; "
                f"{counts[None]} cannot be compared."
            )
        first, _, _, *others = _widths(next(iter(grid.runs.values())))
        if (first, *others) == (PAPERS[0], *PAPERS[3:]):
            yield f"{grid.name}, {grid.block.first['dataset']}: the paper's tree, {tree}, {_place(grid)}."


def _place(grid: Grid) -> str:
    """`takes place 4 of 25 by speedup, level with the best (0.981 [..] of its speedup)`."""
    run = _papers(grid)
    if run is None or not run.ok:
        return f"has no number ({run.status})" if run else "was not run"
    if run.speedup is None:
        return "has no speedup"
    if grid.best is None:
        return f"has a speedup of {tables.interval(run.speedup)}; its place is not told"
    every = [one.rank for one in grid.runs.values() if one.speedup]
    words = f"takes place {1 + sum(value > run.rank for value in every)} of {len(every)} by speedup"
    standing = grid.standings[run.run_id]
    if standing is None or standing == BEST:
        return words
    ratio = tables.ratio(mcsd.gain(run, grid.best))
    return f"{words}, {standing} {_PREPOSITIONS[standing]} best ({ratio} of its speedup)"
