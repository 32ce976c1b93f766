"""What the draft's temperature does: where MAL meets what the draft itself expects, it is as sure as it is right."""

from __future__ import annotations

from bench.artifacts import draw, frame
from bench.artifacts.metrics import EXPECTED, MAL, SPEEDS, SPEEDUP
from bench.artifacts.outputs import Output
from bench.artifacts.table import table
from bench.artifacts.wording import setting
from bench.results.store import Results

POINT = (MAL, EXPECTED, *SPEEDS, SPEEDUP)


def draft_temperature(name: str, results: Results) -> list[Output]:
    """MAL and E(A) over the temperature of the draft, a line per drafter."""
    runs = draw.lines(frame.finished(results), "draft_temperature")
    long, blocks = draw.ranked(frame.measure(runs, POINT), MAL), draw.blocks_of(results, runs)
    title = "MAL and E(A) against the temperature of the draft"
    words = (title, setting(blocks), "draft temperature (the papers: 1; DySpec: 0.6)")
    figure = draw.curves(name, words, long, [[(draw.curve, MAL), (draw.bare, EXPECTED)]])
    rows, notes = draw.LINE_ROWS | {"point": "draft_temperature"}, draw.notes(blocks, long, temperatures=False)
    return [figure, table(name, figure.title, long, rows, POINT, notes=notes)]
