"""What the draft's temperature does: where MAL meets what the draft itself expects, it is as sure as it is right."""

from __future__ import annotations

from specdec_trees.artifacts import draw, frame, notes
from specdec_trees.artifacts.metrics import EXPECTED, MAL, SPEEDS, SPEEDUP
from specdec_trees.artifacts.outputs import Output
from specdec_trees.artifacts.table import table
from specdec_trees.results.store import Results

POINT = (MAL, EXPECTED, *SPEEDS, SPEEDUP)


def draft_temperature(name: str, results: Results) -> list[Output]:
    """MAL and E(A) over the temperature of the draft, a line per drafter."""
    loaded = frame.finished(results)
    runs = draw.lines(loaded, "draft_temperature")
    long = draw.ranked(frame.measure(runs, POINT), MAL)
    title = "MAL and E(A) against the temperature of the draft"
    words = (title, notes.setting(runs), "draft temperature (the papers: 1; DySpec: 0.6)")
    figure = draw.curves(name, words, long, [[(draw.curve, MAL), (draw.bare, EXPECTED)]])
    rows = (*draw.LINE_ROWS, "draft_temperature")
    below = draw.below(loaded, runs, [draw.MARKED], temperatures=False)
    return [figure, table(name, figure.title, long.assign(draft_temperature=long["point"]), rows, POINT, notes=below)]
