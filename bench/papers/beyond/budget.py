"""All lossless drafters at equal budget: MAL and speedup against tree size, in one table and one figure."""

from __future__ import annotations

from collections.abc import Iterator

from bench.artifacts import control, definitions, tables
from bench.artifacts.blocks import Block, blocks, drafted_blocks
from bench.artifacts.outputs import Output
from bench.artifacts.tables import Table
from bench.artifacts.ties import BEST, BUSY_NOTE, TIED, UNRANKED
from bench.artifacts.wording import draft_temperatures, scale, setting
from bench.papers.beyond.budget_figure import by_budget
from bench.papers.beyond.budget_points import METRICS, Point, Standing, place, points, standing
from bench.results.store import Results

TITLE = "All drafters at equal budget: MAL and speedup against tree size"
COLUMNS = ("Dataset", "Temperature", "Budget", "Method", "nodes", *METRICS, "conversations")
LEGEND = {
    "Budget": "the most nodes a step that the method may draft for the target, root excluded",
    "nodes": "drafted nodes a step that the target read, root excluded, mean over steps",
    "MAL": definitions.MAL,
    "speedup": definitions.CONTROLLED_SPEEDUP,
    "conversations": "how many the intervals are over",
}
MARKS = (
    "*: the best of its dataset, temperature and budget; =: tied with it (the paired 95% interval of their difference "
    "holds 0, or, of speedups, the two runs' autoregressive arms lie as far apart). A budget is an upper bound: what "
    "smaller trees leave of it is seen in the column nodes and on the figure's axis."
)
LEFT_OUT = (
    "Only rules that keep the target's law are compared. Not here: drafters without a size to set (EAGLE's 25 nodes, "
    "DySpec's threshold, Sequoia's hardware-aware tree, SSD), and target-initialised trees, which with one first token "
    "are accepted as MCSD's below it are, and with several are not lossless."
)
Found = list[tuple[Block, list[Point]]]


def at_equal_budget(name: str, results: Results) -> list[Output]:
    """The figure, and the table of all its points; raises NoResultsError where no tree method ended well."""
    drafted_blocks(results)
    found = [(block, points(block)) for block in blocks(results)]
    found = sorted((entry for entry in found if entry[1]), key=lambda entry: _order(entry[0]))
    words = setting(block for block, _ in found)
    drawn = [entry for entry in found if entry[0].ran]
    return [by_budget(name, TITLE, words, drawn), _table(name, f"{TITLE} ({words})", found)]


def _order(block: Block) -> tuple[str, str, float]:
    return block.pair, str(block.first["dataset"]), float(block.first["temperature"])


def _table(name: str, title: str, found: Found) -> Table:
    every = [point for _, mine in found for point in mine]
    marks = standing(every)
    rows = [_row(point, marks, len({block.pair for block, _ in found}) > 1) for point in _by_budget(found)]
    notes = [scale(block) for block, _ in found]
    notes += draft_temperatures(run for block, _ in found for run in block.ok)
    notes += [*control.notes(block for block, _ in found), *_summary(every, marks), MARKS]
    notes += [*[BUSY_NOTE] * (UNRANKED in marks.values()), LEFT_OUT]
    runs = tuple(point.run_id for point in _by_budget(found))
    return Table(name, title, tables.frame(rows, COLUMNS), tuple(notes), LEGEND, runs)


def _by_budget(found: Found) -> Iterator[Point]:
    """Of every setting the autoregressive run, then the methods of one budget side by side."""
    for _, mine in found:
        yield from sorted(mine, key=lambda point: point.budget or 0)


def _row(point: Point, marks: Standing, pairs: bool) -> dict[str, str]:
    counts = [interval.n for interval in point.intervals.values()]
    row = {
        "Dataset": place(point.block, pairs, temperature=False),
        "Temperature": f"{point.run['temperature']:g}",
        "Budget": str(point.budget or tables.ABSENT),
        "Method": point.label,
        "nodes": tables.number(point.nodes, 1),
        "conversations": " / ".join(str(count) for count in dict.fromkeys(counts)) or "0",
    }
    row |= {metric: _value(point, metric, marks) for metric in METRICS}
    return row if point.ok else row | {"MAL": str(point.run["status"])}


def _value(point: Point, metric: str, marks: Standing) -> str:
    return tables.interval(point.intervals.get(metric)) + marks.get((point.run_id, metric), "")


def _summary(every: list[Point], marks: Standing) -> Iterator[str]:
    """By budget and metric: in how many settings a method is the best, or tied with it."""
    sized = [point for point in every if point.budget]
    for size in sorted({point.budget or 0 for point in sized}):
        for metric in METRICS:
            judged = [
                point for point in sized if point.budget == size and marks.get((point.run_id, metric)) in (BEST, TIED)
            ]
            settings, counts = len({id(point.block) for point in judged}), dict[str, int]()
            for point in judged:
                counts[point.label] = counts.get(point.label, 0) + 1
            ranked = sorted(counts.items(), key=lambda entry: -entry[1])
            if ranked:
                words = ", ".join(f"{label} {count}" for label, count in ranked)
                yield f"Budget {size}, {metric}: best or tied, in how many of {settings} settings: {words}."
