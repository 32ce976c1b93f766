"""The tables beside Figures 3 and 5: every bar with what was measured beside it, and the gains over other methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bench import published
from bench.artifacts import control, definitions, tables, ties
from bench.artifacts.metric import SPEEDS, headers, legend
from bench.artifacts.metric import cells as speed_cells
from bench.artifacts.speedups.arms import params_of
from bench.artifacts.tables import Table
from bench.artifacts.wording import scale
from bench.papers.improving_mcsd import remarks
from bench.papers.improving_mcsd.cells import Cell
from bench.papers.improving_mcsd.gains import Side, gain
from bench.papers.improving_mcsd.methods import Method
from bench.papers.improving_mcsd.panels import Layout, Panel
from bench.papers.improving_mcsd.settings import PAPER
from bench.results.store import Results
from bench.statistics import samples
from bench.statistics.intervals import Interval

_COLUMNS = ("Pair", "Dataset", "Method", "Configuration", "speedup", *headers(SPEEDS), "alpha", "MAL")
_LEGEND = {
    "speedup": f"{definitions.SPEEDUP}; in brackets the 95% interval",
    **legend(SPEEDS),
    "alpha": definitions.ALPHA,
    "MAL": definitions.MAL,
}
_RANKED = {"speedup": "speedup", "tokens_per_s": "tokens/s", "alpha": "alpha", "mal": "MAL"}
"""Columns in which the best are marked, by metric."""
ALL, _CLAIMED = "mean of datasets", "published"
_GAIN = (
    "the mean of the method's speedups on the datasets that both ran / that of the other's; in brackets the 95% "
    "interval, bootstrap over the conversations that both decoded"
)
_OWN = "Every run has its own autoregressive arm, so that slow changes of the machine cancel."
_CLAIM = (
    "Published: the abstract's 27.5%, the most by which the method is faster than MCSD across the three datasets, with "
    "Llama-2-7B and the draft of 68M; read as a ratio of mean speedups."
)


def speedup(cell: Cell) -> Interval | None:
    """Over autoregressive decoding; None where no turn has both arms."""
    if cell.block is None:
        return None
    found = samples.interval(samples.speedup(cell.block.prompts(cell.run_id)))
    return found if np.isfinite(found.value) else None


def speeds(
    layout: Layout, words: str, panels: Sequence[Panel], datasets: Sequence[str], results: Results, said: list[str]
) -> Table:
    """A row per bar."""
    cells = [
        (panel, dataset, cell)
        for panel in panels
        for dataset in datasets
        for method in layout.methods
        if (cell := panel.cell(dataset, method))
    ]
    shown = tuple(cell.run_id for *_, cell in cells)
    rows = [_row(panel, dataset, cell) for panel, dataset, cell in cells]
    places_of: dict[tuple[int, str], list[int]] = {}
    for place, (panel, dataset, _) in enumerate(cells):
        places_of.setdefault((id(panel), dataset), []).append(place)
    for places in places_of.values():
        entries = {header: [cells[place][2].entry(metric) for place in places] for metric, header in _RANKED.items()}
        ties.mark([rows[place] for place in places], entries)
    frame = tables.frame(rows, _COLUMNS)
    blocks = [block for panel in panels for block in panel.blocks.values()]
    notes = (*said, *_text(layout), *layout.notes, *control.notes(blocks), *ties.note(frame))
    notes += tuple(remarks.left_out(results, shown))
    return Table(layout.name, f"{layout.title} ({words})", frame, notes, _LEGEND, shown)


def _row(panel: Panel, dataset: str, cell: Cell) -> dict[str, str]:
    row = {"Pair": panel.name, "Dataset": dataset}
    row |= {"Method": cell.method.header, "Configuration": cell.method.configuration}
    if cell.block is None or cell.failure:
        return row | {"speedup": cell.failure} | dict.fromkeys(_COLUMNS[5:], tables.ABSENT)
    return row | {
        "speedup": tables.interval(speedup(cell)),
        **speed_cells(SPEEDS, cell.measured),
        "alpha": tables.interval(cell.pairing.ours),
        "MAL": tables.interval(samples.interval(samples.mal(cell.block.steps(cell.run_id)))),
    }


def _text(layout: Layout) -> Iterator[str]:
    """What the paper's text says of the figure, whose bars have no numbers."""
    yield "The paper: one RTX 4090, targets in bfloat16, drafts in double precision. Its bars have no numbers."
    rows = published.find(PAPER, "fig_text", method=layout.ours.method, metric="speedup")
    for fact in tables.named_rows(rows[rows["params"].str.contains(f"figure={layout.name.removeprefix('fig')};")]):
        yield (
            f"Its text: at most {fact.value:.2f}x over autoregressive decoding on {fact.dataset} ({fact.draft}; the "
            "target is not stated)."
        )


def gains(layout: Layout, words: str, panels: Sequence[Panel], datasets: Sequence[str]) -> Table:
    """How many times as fast the paper's method is, by dataset and by the mean of all; a row per other method."""
    found = [
        (_gain(layout, panel, other, both, datasets), " ".join(one.run_id for pair in both.values() for one in pair))
        for panel in panels
        for other in layout.methods
        if other is not layout.ours and (both := _both(panel, layout.ours, other, datasets))
    ]
    rows = [row for row, _ in found]
    claimed = any(row[_CLAIMED] != tables.ABSENT for row in rows)
    columns = ["Pair", "Method", "over", *datasets, ALL, *([_CLAIMED] if claimed else [])]
    title = f"{layout.title}, gain over other methods ({words})"
    frame, runs = tables.frame(rows, columns), tuple(run for _, run in found)
    scales = (scale(block) for panel in panels for block in panel.blocks.values())
    notes = (*scales, _OWN, *([_CLAIM] if claimed else []))
    return Table(f"{layout.name}_gains", title, frame, notes, {ALL: _GAIN}, runs)


def _both(panel: Panel, ours: Method, other: Method, datasets: Sequence[str]) -> dict[str, tuple[Cell, Cell]]:
    """The runs of two methods on the datasets that both ran."""
    cells = {name: (panel.ok(name, ours), panel.ok(name, other)) for name in datasets}
    return {name: (first, second) for name, (first, second) in cells.items() if first and second}


def _gain(
    layout: Layout, panel: Panel, other: Method, both: dict[str, tuple[Cell, Cell]], datasets: Sequence[str]
) -> dict[str, str]:
    row = {"Pair": panel.name, "Method": layout.ours.header, "over": f"{other.header} {other.configuration}"}
    row |= {name: tables.ratio(_gain_of([both[name]]) if name in both else None) for name in datasets}
    row |= {ALL: tables.ratio(_gain_of(list(both.values())))}
    return row | {_CLAIMED: tables.number(_claim(layout.ours, other, panel.models), 3)}


def _claim(ours: Method, other: Method, models: tuple[str, str]) -> float | None:
    """What the abstract says of two of the paper's own methods and these models, as a ratio."""
    target, draft = models
    rows = published.find(PAPER, "claim_text", metric="speedup_gain", method=ours.method, target=target, draft=draft)
    for text, percent in zip(rows["params"], rows["value"], strict=True):
        if other.params and params_of(text).get("baseline") == other.method:
            return 1 + float(percent) / 100
    return None


def _gain_of(pairs: Sequence[tuple[Cell, Cell]]) -> Interval | None:
    """Of those that were both run."""
    sides = [[Side(cell.block, cell.run_id) for cell in pair if cell.block is not None] for pair in pairs]
    return gain([(first, second) for first, second in sides])
